"""Reads one line of JSON, as leniently as agents write it. Separate from `records`, because
counting needs no parsers."""

import json
from typing import Any

import msgspec

from segue.core.lazy_pattern import lazy_pattern

_HALF_PAIR = lazy_pattern(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)


def decode(line: str) -> Any:
    """A JSON value, or None. Lenient where agents are: lone surrogates, raw control characters."""
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        pass
    try:
        return json.loads(line, strict=False, parse_int=_whole)
    except (ValueError, RecursionError):
        return None


def _whole(digits: str) -> int | float:
    """A number out of all range becomes infinite, which nothing accepts as a count; as an int of
    thousands of digits, Python would refuse the whole line."""
    return int(digits) if len(digits) < 40 else float(digits)


def read_line(line: bytes) -> Any:
    """The JSON object in a line of a file, or None. What is not valid in UTF-8 (other bytes, halves
    of surrogate pairs) becomes a replacement character, so that it can be stored in the index."""
    text = line.decode("utf-8", "replace").strip("\0\r\t \ufeff")
    if not text.startswith("{"):
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return decode(_HALF_PAIR.sub(r"\\ufffd", text))
