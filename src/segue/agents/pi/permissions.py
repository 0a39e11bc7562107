"""pi has no permissions: it may do what its user may. All it needs is an account."""

from collections.abc import Sequence
from pathlib import Path

from segue.agents.contracts.permission import (
    Access,
    Env,
    Permissions,
    RefusedCall,
    has,
    home,
    is_filled,
)
from segue.core.stops.types import Grant

_KEYS = ("_API_KEY", "_AUTH_TOKEN", "_OAUTH_TOKEN")
_OTHER_VARIABLES = (
    "AWS_PROFILE",
    "AWS_ACCESS_KEY_ID",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GH_TOKEN",
)


def _look(flags: Sequence[str], env: Env, cwd: str) -> Access:
    folder = Path(env.get("PI_CODING_AGENT_DIR") or home(env) / ".pi/agent")
    has_account = (
        has(flags, "--api-key")
        or any(is_filled(folder / name) for name in ("auth.json", "models.json"))
        or any(name.endswith(_KEYS) or name in _OTHER_VARIABLES for name in env)
    )
    return Access(
        edits=True,
        commands=True,
        signed_in=has_account,
        sign_in="start pi and type /login, or set the API key of your provider",
    )


def _grants(refused: RefusedCall) -> tuple[Grant, ...]:
    return ()


PERMISSIONS = Permissions(look=_look, grants=_grants)
