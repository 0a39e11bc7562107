"""Codex: the user's own provider, a key in the environment, or the login in `auth.json`."""

import os
from collections.abc import Sequence
from pathlib import Path

from segue.agents.contracts.login import Env, Login, by_key, hashed
from segue.agents.contracts.permission import home, read_json, read_toml, values


def login(flags: Sequence[str], env: Env, cwd: str) -> Login:
    """Reads only the account's id from `auth.json`, and whether it is a key."""
    place = Path(env.get("CODEX_HOME") or home(env) / ".codex")
    found = str(os.path.realpath(place))
    config = read_toml(place / "config.toml")
    provider = _setting(flags, "model_provider") or config.get("model_provider")
    if isinstance(provider, str) and provider not in ("", "openai"):
        tables = config.get("model_providers")
        table = tables.get(provider) if isinstance(tables, dict) else None
        table = table if isinstance(table, dict) else {}
        key, address = str(table.get("env_key") or ""), str(table.get("base_url") or "")
        return Login(home=found, who=hashed(provider, address, env.get(key, "")), kind="key")
    address = env.get("OPENAI_BASE_URL", "")
    if who := by_key(env, "CODEX_API_KEY", "CODEX_ACCESS_TOKEN", also=address):
        return Login(home=found, who=who, kind="key")
    auth = read_json(place / "auth.json")
    tokens = auth.get("tokens")
    account = tokens.get("account_id") if isinstance(tokens, dict) else None
    if isinstance(account, str) and account:
        return Login(home=found, who=hashed(account), kind="plan")
    own = auth.get("OPENAI_API_KEY")
    if isinstance(own, str) and own:
        return Login(home=found, who=hashed("OPENAI_API_KEY", own), kind="key")
    return Login(home=found)


def _setting(flags: Sequence[str], name: str) -> str:
    for setting in reversed(values(flags, "-c", "--config")):
        key, _, value = setting.partition("=")
        if key.strip() == name:
            return value.strip().strip("\"'")
    return ""
