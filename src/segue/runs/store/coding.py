"""Encodes values for storage without losing anything: text from a command line or a file's name may
contain bytes that are not UTF-8 (lone surrogates in Python), which JSON libraries refuse.

Values are stored as readable JSON text; only where that is impossible, as the same text with
each surrogate as three bytes.
"""

import json
from functools import cache
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
Cell = str | bytes | int | float | None
_MAX_INT = (1 << 63) - 1


@cache
def _decoder(kind: Any) -> Any:
    return msgspec.json.Decoder(kind)


def pack(value: object) -> str | bytes:
    """Encodes a value as JSON."""
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, OverflowError):
        plain = msgspec.to_builtins(value)
        return json.dumps(plain, ensure_ascii=False).encode("utf-8", "surrogatepass")


def unpack(data: str | bytes, kind: type[T]) -> T:
    """Decodes a value. Raises ValueError if it is not one."""
    if isinstance(data, str):
        found: T = _decoder(kind).decode(data)  # type: ignore[arg-type]
        return found
    return msgspec.convert(json.loads(data.decode("utf-8", "surrogatepass")), kind)


@cache
def _holder(kind: Any) -> Any:
    return msgspec.defstruct("Value", [("value", kind)])


def convert_any(value: object, kind: Any) -> Any:
    """As `msgspec.convert` for a union of many types, which msgspec would look through again for
    every value. Raises ValueError."""
    return msgspec.convert({"value": value}, _holder(kind)).value


def pack_whole(value: object, kind: Any) -> str | bytes:
    """Encodes a value as JSON that decodes to the same value; raises ValueError if that is
    impossible."""
    data = pack(value)
    try:
        if unpack(data, kind) == value:
            return data
    except ValueError:
        pass
    raise ValueError(f"{type(value).__name__} cannot be stored as it is: {value!r:.400}")


def cell(value: object) -> Cell:
    """Encodes a value for a row."""
    if value is None or isinstance(value, float):
        return value
    if isinstance(value, int):  # no column is larger, and no real number is so large
        return max(-_MAX_INT, min(_MAX_INT, int(value)))
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode("utf-8", "surrogatepass")
        return str(value)
    return pack(value)


def text(value: Any) -> Any:
    """Decodes a text value of a row."""
    return value.decode("utf-8", "surrogatepass") if isinstance(value, bytes) else value
