"""The agents segue knows, in one registry; plug-ins register the same way.

Each agent has one file with one `PROFILE`. Files are imported when asked for: naming the agent
costs one import, and only an unnamed record makes segue look at all of them.
"""

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from segue.agents.places import STORES, Store

if TYPE_CHECKING:
    from segue.agents.counters.base import Count
    from segue.agents.profile import Profile

BUILT_IN = ("claude", "codex", "opencode", "gemini", "pi", "qwen", "copilot", "kimi", "goose")

_ALIASES = {
    "claude-code": "claude",
    "claude-cli": "claude",
    "agent-sdk": "claude",
    "claude-agent-sdk": "claude",
    "codex-cli": "codex",
    "openai-codex": "codex",
    "gemini-cli": "gemini",
    "kilo": "opencode",
    "kilocode": "opencode",
    "pi-coding-agent": "pi",
    "qwen-code": "qwen",
    "copilot-cli": "copilot",
    "kimi-cli": "kimi",
    "kimi-code": "kimi",
}

_loaded: dict[str, "Profile"] = {}


def canonical(name: str) -> str:
    """The name of the agent's binary for any accepted spelling; unknown names come back as is."""
    key = name.strip().lower().replace("_", "-")
    return _ALIASES.get(key, key)


def find(name: str) -> "Profile | None":
    """The profile of an agent by name or alias, or None for one that segue does not know."""
    key = canonical(name)
    if key not in _loaded:
        if key not in BUILT_IN:
            return None
        _loaded[key] = import_module(f"segue.agents.{key}").PROFILE
    return _loaded[key]


def register(profile: "Profile") -> None:
    """Adds an agent, or replaces one of the same name."""
    _loaded[profile.name] = profile


def recognise(record: dict[str, Any]) -> "Profile | None":
    """The agent that surely wrote this record, or None."""
    return next((p for p in all_profiles() if p.knows(record)), None)


def guess(record: dict[str, Any]) -> "Profile | None":
    """An agent whose form this record has, or None."""
    return next(
        (p for p in all_profiles() if p.resembles is not None and p.resembles(record)), None
    )


def all_profiles() -> Iterator["Profile"]:
    """Every agent that segue knows."""
    for name in (*BUILT_IN, *(n for n in _loaded if n not in BUILT_IN)):
        profile = find(name)
        if profile is not None:
            yield profile


def stores() -> dict[str, Store]:
    """Where the sessions of all agents are; parsers are not loaded for it."""
    added = {name: p.store for name, p in _loaded.items() if p.store is not None}
    return {**STORES, **added}


def counter(name: str) -> "Count | None":
    """How the session files of an agent are counted; parsers are not loaded for it."""
    added = _loaded.get(name)
    if added is not None and added.counter is not None:
        return added.counter
    if name not in STORES:
        return None
    found: Count = import_module(f"segue.agents.counters.{name}").COUNTER
    return found
