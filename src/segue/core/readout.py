"""Readings that stand in plain text (seed 004).

Its own pattern misses its own source line, so both forms are read here, the last one in the text:
`Token usage: 63153/200000; 136847 remaining` and `Context: 31.6% (63,153/200,000 tokens)`.
"""

import re

from segue.core.stop import Tokens

_FORMS = (
    re.compile(r"(?i)\btoken usage:\s*(?P<used>[\d,]+)\s*/\s*(?P<window>[\d,]+)"),
    re.compile(
        r"(?i)\bcontext:[^\n(]{0,40}?[\d.]+\s*%\s*\((?P<used>[\d,]+)\s*/\s*(?P<window>[\d,]+)\s*tokens\)"
    ),
    re.compile(r"(?i)\bused\s+(?P<used>[\d,]+)\s+of\s+(?P<window>[\d,]+)\s+tokens\b"),
    re.compile(r"(?i)(?P<used>[\d.,]+k?)\s*/\s*(?P<window>[\d.,]+[km]?)\s+tokens\s+\(\d+%\)"),
)
_LINE_CHARS = 4_096


def text_reading(lines: list[str]) -> Tokens | None:
    """The last reading that a text states, or None."""
    for line in reversed(lines):
        short = line[:_LINE_CHARS]
        for form in _FORMS:
            found = list(form.finditer(short))
            if found:
                used, window = _count(found[-1]["used"]), _count(found[-1]["window"])
                if used is not None and window:
                    return Tokens(used, window)
    return None


def _count(text: str) -> int | None:
    scale = {"k": 1_000, "m": 1_000_000}.get(text[-1:].lower(), 1)
    digits = text.rstrip("kKmM").replace(",", "")
    try:
        return int(float(digits) * scale)
    except (ValueError, OverflowError):
        return None
