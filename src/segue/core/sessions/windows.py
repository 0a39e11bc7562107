"""How large a context window is assumed to be, and the known windows, for when the agent's own
stream does not say.

A name matches by its longest known prefix, so "gpt-4-turbo" is never taken for "gpt-4".
"""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

DEFAULT_WINDOW_TOKENS = 200_000
WindowSource = Literal["agent", "config", "table", "prices", "default", "raised"]

KNOWN_WINDOWS: dict[str, int] = {
    "claude-3-5-sonnet": 200_000,
    "claude-3-opus": 200_000,
    "gpt-4-turbo": 128_000,
    "gpt-4": 8_192,
    "gpt-4-32k": 32_768,
    "gpt-4-1106": 128_000,
    "gpt-4-0125": 128_000,
    "gpt-4.5": 128_000,
    "claude-2": 200_000,
    "claude-3": 200_000,
    "claude-instant": 100_000,
    "claude-opus-4": 200_000,
    "claude-sonnet-4": 200_000,
    "claude-haiku-4": 200_000,
    "claude-opus-4-6": 1_000_000,
    "claude-opus-4-7": 1_000_000,
    "claude-opus-4-8": 1_000_000,
    "claude-opus-5": 1_000_000,
    "claude-sonnet-4-6": 1_000_000,
    "claude-sonnet-5": 1_000_000,
    "claude-haiku-5": 1_000_000,
    "claude-fable-5": 1_000_000,
    "gpt-4o": 128_000,
    "gpt-4.1": 1_047_576,
    "gpt-5": 272_000,
    "gpt-6": 272_000,
    "o3": 200_000,
    "o4-mini": 200_000,
    "gemini-": 1_048_576,
    "deepseek-chat": 131_072,
}


def find_window(model: str, table: Mapping[str, int] | None = None) -> int | None:
    """The window of a model according to a table (the bundled one by default); None if it is not
    listed."""
    name = model.strip().lower().rsplit("/", 1)[-1].replace(" ", "-")
    if table is None and name.endswith("[1m]"):
        return 1_000_000
    known = KNOWN_WINDOWS if table is None else table
    found = max((key for key in known if name.startswith(key.lower())), key=len, default=None)
    return known[found] if found is not None and name else None


def window_tokens(
    model: str,
    user: Mapping[str, int] | None = None,
    default: int = DEFAULT_WINDOW_TOKENS,
) -> int:
    """The window of a model: the user's table, then ours, then the default.

    >>> window_tokens("gpt-4-turbo-2024-04-09"), window_tokens("claude-sonnet-4-5[1m]")
    (128000, 1000000)
    """
    return find_window(model, user or {}) or find_window(model) or default


def raised(window: int, used: int) -> int:
    """The smallest known window that has room for `used` tokens, or `used` itself if none has;
    `window` if that has room."""
    if used <= window:
        return window
    return min((w for w in KNOWN_WINDOWS.values() if w >= used), default=used)


class Window(Struct, frozen=True):
    """How large the window is assumed to be, and who says so."""

    tokens: int
    source: WindowSource
    note: str = ""


def believed_window(
    *,
    told_tokens: int | None,
    accepted_tokens: int,
    model: str,
    configured: dict[str, int],
    agents_own: dict[str, int],
    priced_tokens: int | None = None,
    default_tokens: int = DEFAULT_WINDOW_TOKENS,
) -> Window:
    """The window from the first of these that knows it: the agent's own records, the user's config,
    the bundled tables, the price list, or else a default with a warning. If the provider accepted
    more tokens, the assumption was wrong and a larger window is assumed. What the agent itself says
    is never corrected, because the agent works with that number even if the provider would accept
    more (codex reserves a twentieth)."""
    window = _believed(told_tokens, model, configured, agents_own, priced_tokens, default_tokens)
    if told_tokens or accepted_tokens <= window.tokens:
        return window
    larger = min((own for own in agents_own.values() if own >= accepted_tokens), default=None)
    tokens = larger or raised(window.tokens, accepted_tokens)
    note = f"{accepted_tokens:,} tokens were accepted: the window is not {window.tokens:,}"
    return Window(tokens, "raised", note)


def _believed(
    stated: int | None,
    model: str,
    configured: dict[str, int],
    agents_own: dict[str, int],
    priced: int | None,
    default: int,
) -> Window:
    if stated:
        return Window(stated, "agent")
    if found := find_window(model, configured):
        return Window(found, "config")
    named = {name: tokens for name, tokens in agents_own.items() if name}
    if found := find_window(model, named) or find_window(model):
        return Window(found, "table")
    if agents_own.get(""):
        return Window(agents_own[""], "agent", f"the agent does not know {model or 'the model'}")
    if priced:
        return Window(priced, "prices")
    name = f"the window of {model}" if model else "the model"
    return Window(default, "default", f"{name} is unknown; assuming {default:,}")
