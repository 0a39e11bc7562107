"""The agents that segue knows, in one registry: the built-in ones, and those that others install as
entry points (`plugins`).

Each agent has a folder with one `PROFILE`, which is imported when asked for. Finding a named agent
costs one import; only a record without a name makes segue look at all of them.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from segue.agents import plugins
from segue.agents.places import STORES, SessionStore
from segue.agents.plugins import BUILT_IN as BUILT_IN

if TYPE_CHECKING:
    from segue.agents.contracts.counter import Count
    from segue.agents.contracts.profile import Profile
    from segue.agents.signs import Signs

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
    """The name of the agent's binary for any accepted spelling; unknown names are returned
    unchanged."""
    key = name.strip().lower().replace("_", "-")
    return _ALIASES.get(key, key)


def find(name: str) -> "Profile | None":
    """The profile of an agent by name or alias; None if segue does not know it. Raises
    BrokenPluginError."""
    key = canonical(name)
    if key not in _loaded and (profile := plugins.part(key, "profile", "PROFILE")) is not None:
        if key in BUILT_IN:
            _loaded[key] = cast("Profile", profile)
        else:
            _take(key, profile)
    return _loaded.get(key)


def names() -> list[str]:
    """Every agent that has a profile."""
    return list(dict.fromkeys((*BUILT_IN, *plugins.added(), *_loaded)))


def broken() -> list[str]:
    """The plug-ins that cannot be loaded, one line each."""
    found = []
    for name in plugins.added():
        try:
            find(name)
        except plugins.BrokenPluginError as fault:
            found.append(str(fault))
    return found


def _take(name: str, profile: object) -> None:
    from segue.agents.contracts.profile import Profile

    if not isinstance(profile, Profile):
        raise plugins.BrokenPluginError(
            f"the plug-in {name} ({plugins.package_of(name)}.profile): PROFILE is not a"
            " segue.agents.contracts.profile.Profile"
        )
    if profile.name != name:
        raise plugins.BrokenPluginError(
            f"the plug-in {name} ({plugins.package_of(name)}.profile): PROFILE is called"
            f" {profile.name!r}"
        )
    register(profile)


def register(profile: "Profile") -> None:
    """Adds an agent, or replaces one of the same name. Its parser is guarded, so that one that
    raises, stops early or never ends delays nobody."""
    from msgspec.structs import replace

    from segue.agents.shared.guard import guarded

    _loaded[profile.name] = replace(profile, parse=guarded(profile.parse))


def recognise(record: dict[str, Any]) -> "Profile | None":
    """The agent that certainly wrote this record, or None."""
    return next((p for p in all_profiles() if p.knows(record)), None)


def guess(record: dict[str, Any]) -> "Profile | None":
    """An agent whose format this record has, or None."""
    return next(
        (p for p in all_profiles() if p.resembles is not None and p.resembles(record)), None
    )


def all_profiles() -> Iterator["Profile"]:
    """Every agent that segue knows."""
    for name in names():
        try:
            profile = find(name)
        except plugins.BrokenPluginError:
            continue  # `segue doctor` reports it
        if profile is not None:
            yield profile


def stores() -> dict[str, SessionStore]:
    """Where the sessions of all agents are, without loading the parsers of built-in agents."""
    return {**STORES, **{p.name: p.store for p in _added_profiles() if p.store is not None}}


def signs_of(name: str) -> "Signs | None":
    """How to tell that an agent is running, without loading the parsers of built-in agents."""
    from segue.agents.signs import SIGNS

    if name in SIGNS:
        return SIGNS[name]
    return next((p.signs for p in _added_profiles() if p.name == name), None)


def _added_profiles() -> list["Profile"]:
    """The profiles that are not built in."""
    for name in plugins.added():
        try:
            find(name)
        except plugins.BrokenPluginError:
            continue
    return [profile for name, profile in _loaded.items() if name not in BUILT_IN]


def counter(name: str) -> "Count | None":
    """How to count an agent's session files, without loading the parsers of other agents; None if
    segue cannot count them."""
    added = _loaded.get(name)
    if added is not None and added.counter is not None:
        return added.counter
    if name in BUILT_IN and name not in STORES:
        return None
    return cast("Count | None", plugins.part(name, "counter", "COUNTER"))
