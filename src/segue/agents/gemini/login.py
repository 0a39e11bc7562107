"""Gemini CLI: a key in the environment, or the active Google account."""

import os
from collections.abc import Sequence
from pathlib import Path

from segue.agents.contracts.login import Env, Login, by_key, hashed
from segue.agents.contracts.permission import home, read_json


def login(flags: Sequence[str], env: Env, cwd: str) -> Login:
    """The key in the environment, otherwise the active account in `google_accounts.json`."""
    place = Path(env.get("GEMINI_CLI_HOME") or home(env)) / ".gemini"
    found = str(os.path.realpath(place))
    address = env.get("GOOGLE_GEMINI_BASE_URL", "")
    if who := by_key(env, "GEMINI_API_KEY", "GOOGLE_API_KEY", also=address):
        return Login(home=found, who=who, kind="key")
    active = read_json(place / "google_accounts.json").get("active")
    if isinstance(active, str) and active:
        return Login(home=found, who=hashed(active), kind="plan")
    return Login(home=found)
