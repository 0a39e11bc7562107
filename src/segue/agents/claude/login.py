"""Claude Code: a key or token in the environment takes precedence over its own login."""

import os
from collections.abc import Sequence
from pathlib import Path

from segue.agents.contracts.login import Env, Login, by_key, hashed
from segue.agents.contracts.permission import home, read_json

_KEYS = ("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY")
_ELSEWHERE = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")


def login(flags: Sequence[str], env: Env, cwd: str) -> Login:
    """The key, token or cloud in the environment, otherwise the account in `.claude.json`. That
    file is next to the config home, or inside it if the user moved the home."""
    moved = env.get("CLAUDE_CONFIG_DIR", "")
    place = Path(moved) if moved else home(env) / ".claude"
    address = env.get("ANTHROPIC_BASE_URL", "")
    found = str(os.path.realpath(place))
    for name in _ELSEWHERE:
        if env.get(name):
            return Login(home=found, who=hashed(name, env.get("AWS_PROFILE", "")), kind="key")
    if who := by_key(env, *_KEYS, also=address):
        return Login(home=found, who=who, kind="key")
    if who := by_key(env, "CLAUDE_CODE_OAUTH_TOKEN", also=address):
        return Login(home=found, who=who, kind="plan")
    config = read_json(place / ".claude.json" if moved else home(env) / ".claude.json")
    account = config.get("oauthAccount")
    named = account.get("accountUuid") if isinstance(account, dict) else None
    if isinstance(named, str) and named:
        return Login(home=found, who=hashed(named, address), kind="plan")
    return Login(home=found)
