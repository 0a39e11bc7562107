"""Text from outside, made harmless for a terminal: what would move the cursor, change colours,
write to the clipboard, turn the direction of a line or hide in it is taken out or spelled out.

A whole escape sequence is taken out, as a terminal would: a coloured answer reads as it was meant.
Every other character that is not seen as itself is spelled out (`\\x07`, `\\u202e`), so nothing is
hidden and nothing is left that could begin a sequence with what follows.
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
# Joiners belong into emoji and many scripts; elsewhere they only make two texts look the same.
_JOINER = (
    r"(?<![^\x00-\x7f\u200b-\u200d])[\u200c\u200d]"
    r"|[\u200c\u200d](?![^\x00-\x7f\u200b-\u200d])"
)
_TEXT = lazy_pattern(rf"\r\n|{_SEQUENCE}|[{_UNSEEN}]|{_JOINER}")
_JSON = lazy_pattern(rf"[{_UNSEEN}\u200c\u200d]")


_HIDDEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0")
"""What Python calls printable although it is not seen as itself, below the last planes."""


def visible(text: str) -> str:
    """The text with its lines and tabs, and nothing else that a terminal acts on."""
    bare = text.replace("\n", "").replace("\t", "")
    if bare.isprintable() and (
        bare.isascii() or (_HIDDEN.isdisjoint(bare) and max(bare) < "\U000e0000")
    ):
        return text
    return _TEXT.sub(_escape, text)


def one_line(text: str) -> str:
    """The same on one line: a name or a path cannot pretend to be a separate line."""
    return visible(text).replace("\n", " ").replace("\t", " ")


def to_json(value: Any) -> str:
    """One line of JSON in ASCII: even on a terminal it shows nothing but JSON. Values that JSON
    lacks (NaN, infinity, a number with thousands of digits) become null."""
    try:
        text = json.dumps(value, allow_nan=False)
    except ValueError:
        text = json.dumps(_sayable(value))
    return text.replace("\x7f", "\\u007f")


def escape_json(text: str) -> str:
    """Foreign JSON, with every character escaped that is not displayed as itself."""
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
