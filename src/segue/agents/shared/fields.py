"""Tolerant getters: records come from programs of any version, and no shape may raise."""

from datetime import UTC, datetime
from typing import Any

JSON = dict[str, Any]

_MAX_TOKENS = 1 << 40
_YEAR_10000 = 253_402_300_800.0


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
    """A count of tokens at `path`; 0 for anything else."""
    found = whole(value, *path)
    return found if found is not None and 0 < found < _MAX_TOKENS else 0


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
            return dated((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp())
        except (ValueError, OverflowError, OSError):
            return None
    found = number(value)
    return None if found is None else dated(found / 1000 if found > 1e11 else found)


def dated(at: float) -> float | None:
    """Unix seconds since 1970 that a calendar can represent; None for others."""
    return at if 0 <= at < _YEAR_10000 else None


def images(content: Any) -> tuple[str, ...]:
    """The images in a message's content, by name if there is one, otherwise by kind."""
    if not isinstance(content, list):
        return ()
    found = []
    for block in content:
        data = obj(block, "inlineData") or obj(block, "fileData")
        if data and not text(data, "mimeType").startswith("image/"):
            continue
        if not data and text(block, "type") not in ("image", "input_image", "local_image", "file"):
            continue
        source = obj(block, "source")
        places = (block, "path"), (block, "filename"), (source, "path")
        more = (data, "displayName"), (data, "fileUri")
        named = (text(place, name) for place, name in (*places, *more))
        kind = text(source, "media_type") or text(block, "mimeType") or text(block, "mime")
        kind = kind or text(data, "mimeType")
        found.append(next(filter(None, named), "") or kind or "image")
    return tuple(found)


def joined(content: Any) -> str:
    """The text of a message's content: a string, or the text blocks of a list."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(t for block in content if (t := text(block, "text")))
    return ""
