"""opencode: many providers in one home; its flags or its config say which one is used."""

import os
from collections.abc import Sequence
from pathlib import Path

from segue.agents.contracts.login import Env, Login, hashed
from segue.agents.contracts.permission import home, read_json, values


def login(flags: Sequence[str], env: Env, cwd: str) -> Login:
    """The account by its home, and by the provider in the name of the model, if one is set."""
    config = Path(env.get("XDG_CONFIG_HOME") or home(env) / ".config") / "opencode"
    data = Path(env.get("XDG_DATA_HOME") or home(env) / ".local/share") / "opencode"
    model = next(reversed(values(flags, "-m", "--model")), "")
    for name in ("opencode.json", "opencode.jsonc"):
        named = read_json(config / name).get("model")
        model = model or (named if isinstance(named, str) else "")
    found = str(os.path.realpath(data))
    provider = model.partition("/")[0] if "/" in model else ""
    return Login(home=found, who=hashed(found, provider) if provider else "")
