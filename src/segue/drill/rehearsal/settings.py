"""The settings from the command line and the environment."""

import os
from collections.abc import Mapping
from pathlib import Path

CLAUDE_MODEL = "claude-sonnet-4-5"
CODEX_MODEL = "gpt-5.5"
_CODEX_WINDOW = 272_000


class Settings:
    """The settings of one run. Raises ValueError with one line if a value is not a number."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.home = Path(env.get("REHEARSAL_HOME") or Path.home() / ".rehearsal")
        self.cwd = os.getcwd()
        self.anthropic_url = env.get("ANTHROPIC_BASE_URL", "")
        self.api_key = env.get("ANTHROPIC_API_KEY", "")
        self.oauth_token = env.get("CLAUDE_CODE_OAUTH_TOKEN", "")
        self.openai_url = env.get("OPENAI_BASE_URL", "")
        self.openai_key = env.get("OPENAI_API_KEY", "")
        self.max_retries = _whole(env, "CLAUDE_CODE_MAX_RETRIES", 10)
        self.timeout_s = _whole(env, "API_TIMEOUT_MS", 600_000) / 1_000
        self.idle_s = 300.0
        self.wait_scale = _number(env, "REHEARSAL_WAIT_SCALE", 1.0)
        self.window_tokens = _whole(env, "REHEARSAL_WINDOW", 0)
        self.is_compacting = not (env.get("DISABLE_AUTO_COMPACT") or env.get("DISABLE_COMPACT"))
        self.is_streaming_only = bool(env.get("CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK"))
        self.has_hooks = env.get("REHEARSAL_HOOKS") != "0"
        self.hooks: list[str] = []  # commands that run after a compaction
        self.model = ""
        self.output = "text"  # or json, stream-json
        self.input = "text"  # or stream-json
        self.tells_back = False  # confirms the user's messages when it handles them
        self.max_turns: int | None = None

    @property
    def is_plan(self) -> bool:
        """Whether the agent is logged in with a subscription, so that a plan's limits apply."""
        return bool(self.oauth_token)

    @property
    def claude_window(self) -> int:
        """The window that the claude form assumes."""
        return self.window_tokens or 200_000

    @property
    def codex_window(self) -> int:
        """The window that the codex form assumes: 95% of the raw one."""
        return (self.window_tokens or _CODEX_WINDOW) * 95 // 100


def _whole(env: Mapping[str, str], name: str, default: int) -> int:
    return int(_number(env, name, default))


def _number(env: Mapping[str, str], name: str, default: float) -> float:
    text = env.get(name, "")
    try:
        value = float(text) if text else float(default)
    except ValueError:
        raise ValueError(f"{name} is {text!r}, which is not a number") from None
    if not 0 <= value < float("inf"):
        raise ValueError(f"{name} is {text!r}; it must be 0 or more")
    return value
