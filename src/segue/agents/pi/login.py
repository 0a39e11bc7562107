"""pi: many providers in one home; its flags say which one is used."""

import os
from collections.abc import Sequence
from pathlib import Path

from segue.agents.contracts.login import Env, Login, hashed
from segue.agents.contracts.permission import home, values


def login(flags: Sequence[str], env: Env, cwd: str) -> Login:
    """The account by its home, and by the provider if a flag names one."""
    place = Path(env.get("PI_CODING_AGENT_DIR") or home(env) / ".pi/agent")
    found = str(os.path.realpath(place))
    provider = next(reversed(values(flags, "--provider")), "")
    return Login(home=found, who=hashed(found, provider) if provider else "")
