"""Makes text from outside harmless for a terminal: nothing in it can move the cursor, change
colours, write to the clipboard, reverse the direction of a line, or hide.

Whole escape sequences are removed, so a coloured answer reads as intended. Every other character
that is not displayed as itself is spelled out (`\\x07`, `\\u202e`), so nothing is hidden, and
nothing is left that could begin a sequence with the text that follows.
"""

import json
import re
from typing import Any

from segue.core.lazy_pattern import lazy_pattern

# Payloads end at a line's end and at any other control character: a sequence that is never closed
# takes no text with it, and no input is read more than twice.
_SEQUENCE = (
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x00-\x1f\x7f-\x9f]*(?:\x07|\x1b\\|\x9c)"  # OSC, DCS …
    r"|\x1b[ -/]+[0-~]"
    r"|\x1b[0-OQ-WYZ\\`-~]"  # two characters, but none that opens one of the above
)
_UNSEEN = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 except for tab and newline, DEL, C1
    r"\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f"
    r"\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U000e0000-\U000e0fff"
)
# Joiners belong to emoji and many scripts; elsewhere they only make different texts look the same.
_JOINER = (
    r"(?<![^\x00-\x7f\u200b-\u200d])[\u200c\u200d]"
    r"|[\u200c\u200d](?![^\x00-\x7f\u200b-\u200d])"
)
_TEXT = lazy_pattern(rf"\r\n|{_SEQUENCE}|[{_UNSEEN}]|{_JOINER}")
_JSON = lazy_pattern(rf"[{_UNSEEN}\u200c\u200d]")


_HIDDEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0")
"""Characters that Python calls printable although they are not displayed as themselves, except for
those of the last planes."""


def visible(text: str) -> str:
    """The text without anything that a terminal acts on, except for newlines and tabs."""
    bare = text.replace("\n", "").replace("\t", "")
    if bare.isprintable() and (
        bare.isascii() or (_HIDDEN.isdisjoint(bare) and max(bare) < "\U000e0000")
    ):
        return text
    return _TEXT.sub(_escape, text)


def one_line(text: str) -> str:
    """Like `visible`, on one line, so that a name or a path cannot pretend to be a separate
    line."""
    return visible(text).replace("\n", " ").replace("\t", " ")


def to_json(value: Any) -> str:
    """A value as one line of JSON in ASCII, which is harmless for a terminal too. Values that JSON
    lacks (NaN, infinity, a number with thousands of digits) become null."""
    try:
        text = json.dumps(value, allow_nan=False)
    except ValueError:
        text = json.dumps(_sayable(value))
    return text.replace("\x7f", "\\u007f")


def escape_json(text: str) -> str:
    """JSON from outside, in which every character that is not displayed as itself is escaped."""
    return text if text.isascii() and text.isprintable() else _JSON.sub(_escaped, text)


def _escape(match: re.Match[str]) -> str:
    found = match[0]
    if found == "\r\n":
        return "\n"
    if len(found) > 1:
        return ""
    code = ord(found)
    if found == "\r":
        return "\\r"
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is no UTF-8, as Python carries it
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


def _sayable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sayable(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_sayable(each) for each in value]
    if isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool)):
        return value if -1e300 < value < 1e300 else None  # NaN is not
    return value
