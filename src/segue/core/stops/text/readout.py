"""Readings in plain text.

Two formats are read, and the last one in the text counts: `Token usage: 63153/200000; 136847
remaining` and `Context: 31.6% (63,153/200,000 tokens)`.
"""

from segue.core.lazy_pattern import lazy_pattern
from segue.core.stops.types import Tokens

_FORMS = (
    lazy_pattern(r"(?i)\btoken usage:\s*(?P<used>[\d,]+)\s*/\s*(?P<window>[\d,]+)"),
    lazy_pattern(
        r"(?i)\bcontext:[^\n(]{0,40}?[\d.]+\s*%\s*\((?P<used>[\d,]+)\s*/\s*(?P<window>[\d,]+)\s*tokens\)"
    ),
    lazy_pattern(r"(?i)\bused\s+(?P<used>[\d,]+)\s+of\s+(?P<window>[\d,]+)\s+tokens\b"),
    lazy_pattern(
        r"(?i)(?<![\d.,])(?P<used>\d[\d.,]{0,12}k?)\s*/\s*(?P<window>\d[\d.,]{0,12}[km]?)\s+tokens\s+\(\d+%\)"
    ),
    # One format has no window; codex's footer looks like it and counts all requests.
    lazy_pattern(
        r"(?i)(?<![\d.,])(?P<used>\d[\d,]{3,9})\s+tokens?\s+used\b(?!.*context left)(?P<window>)"
    ),
)
_LINE_CHARS = 512


def text_reading(lines: list[str]) -> Tokens | None:
    """The last reading that a text states, or None."""
    for line in reversed(lines):
        short = line[:_LINE_CHARS]
        for form in _FORMS:
            found = list(form.finditer(short))
            if found:
                used, window = _count(found[-1]["used"]), _count(found[-1]["window"])
                if used is not None:
                    return Tokens(used, window or None)
    return None


def _count(text: str) -> int | None:
    if not text:
        return None
    scale = {"k": 1_000, "m": 1_000_000}.get(text[-1:].lower(), 1)
    digits = text.rstrip("kKmM").replace(",", "")
    try:
        return int(float(digits) * scale)
    except (ValueError, OverflowError):
        return None
