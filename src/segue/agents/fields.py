"""Tolerant getters: records come from programs of any version, and no shape may raise."""

from datetime import UTC, datetime
from typing import Any

JSON = dict[str, Any]


def obj(value: Any, *path: str) -> JSON:
    """The object at `path`, or an empty one."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def text(value: Any, *path: str) -> str:
    """The string at `path`, or ""."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


def number(value: Any, *path: str) -> float | None:
    """The number at `path`, or None; booleans are not numbers."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if value == value and abs(value) < 1e18 else None


def whole(value: Any, *path: str) -> int | None:
    """The number at `path` as an int, or None."""
    found = number(value, *path)
    return None if found is None else int(found)


def amount(value: Any, *path: str) -> int:
    """A count of tokens at `path`; 0 for anything that is none."""
    found = whole(value, *path)
    return found if found is not None and found > 0 else 0


def items(value: Any, *path: str) -> list[Any]:
    """The list at `path`, or an empty one."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, list) else []


def instant(value: Any) -> float | None:
    """Unix seconds from an ISO string, seconds or milliseconds; None if it is neither."""
    if isinstance(value, str):
        try:
            when = datetime.fromisoformat(value)
        except ValueError:
            return None
        try:
            return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
        except (OverflowError, OSError):
            return None
    found = number(value)
    if found is None or found < 0:
        return None
    return found / 1000 if found > 1e11 else found


def joined(content: Any) -> str:
    """The text of a message's content: a string, or the text blocks of a list."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(t for block in content if (t := text(block, "text")))
    return ""
