"""Says in plain English what a value in a file must be, instead of in msgspec's type names.

Only errors import this module, because it needs `msgspec.inspect`.
"""

import re
from typing import Any

import msgspec
from msgspec import inspect

_AT = re.compile(r"(.*) - at `(?:key in )?\$(.*)`", re.DOTALL)
_FIELD = re.compile(r"\.(\w+)(.*)")
_EXPECTED = re.compile(r"Expected `([^`]*)`([^,]*)(?:, got `(\w+)`)?")
_ENUM = re.compile(r"Invalid enum value (.*)", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(\w+)`")
_ONE = {
    "str": "a string", "int": "a whole number", "float": "a number", "bool": "true or false",
    "array": "a list", "object": "a table", "null": "nothing", "datetime": "a date",
}  # fmt: skip
_GIVEN = {**_ONE, "bool": "a boolean", "float": "a fraction"}


def plain(fault: msgspec.ValidationError, kind: Any = None) -> str:
    """The error without a subject: "must be a number, not a string". `kind` is the type of the
    whole value, from which the message can say what a list contains. Errors that a class raised
    about its own values stay as they are."""
    message, path = split(fault)
    if match := _MISSING.fullmatch(message):
        return f"lacks the key {match[1]}"
    if match := _UNKNOWN.fullmatch(message):
        return f"has an unknown key: {match[1]}"
    expected, enum = _EXPECTED.fullmatch(message), _ENUM.fullmatch(message)
    if expected is None and enum is None:
        return str(fault)
    if kind is not None:
        must = _expected(inspect.type_info(kind))
    elif expected is not None:
        bound = expected[2].strip().replace(">=", "at least").replace("<=", "at most")
        words = [_ONE.get(name, name) for name in expected[1].split(" | ") if name != "null"]
        must = " ".join(filter(None, (" or ".join(words), bound and f"of {bound}")))
    else:
        must = "one of the known values"
    got = enum[1] if enum is not None else _GIVEN.get(expected[3] or "", "") if expected else ""
    if not got:
        return f"must be {must}"
    if kind is not None and path:
        number = re.match(r"\[(\d+)\]", path)
        return f"must be {must}, but {f'item {int(number[1]) + 1}' if number else 'one'} is {got}"
    return f"must be {must}, not {got}"


def named(fault: msgspec.ValidationError, struct: Any) -> str:
    """The error with its subject, the key of a struct: "hard_mark must be a number, not a
    string"."""
    message, path = split(fault)
    if (match := _FIELD.fullmatch(path)) is None:
        return str(fault) if message == str(fault) and not _is_about_keys(message) else plain(fault)
    kinds = {field.name: field.type for field in msgspec.structs.fields(struct)}
    inner = msgspec.ValidationError(f"{message} - at `${match[2]}`" if match[2] else message)
    return f"{match[1]} {plain(inner, kinds.get(match[1]))}"


def _is_about_keys(message: str) -> bool:
    return bool(_MISSING.fullmatch(message) or _UNKNOWN.fullmatch(message))


def split(fault: msgspec.ValidationError) -> tuple[str, str]:
    """What msgspec says, and the path of the value that it says it about ("" for the whole)."""
    message = str(fault)
    at = _AT.fullmatch(message)
    return (at[1], at[2]) if at is not None else (message, "")


def _expected(kind: inspect.Type) -> str:
    match kind:
        case inspect.UnionType():
            wanted = [_expected(t) for t in kind.types if not isinstance(t, inspect.NoneType)]
            return " or ".join(wanted)
        case inspect.IntType() | inspect.FloatType():
            one = _ONE["int" if isinstance(kind, inspect.IntType) else "float"]
            return one if kind.ge is None else f"{one} of at least {kind.ge:g}"
        case inspect.LiteralType():
            return f"one of {', '.join(map(str, kind.values))}"
        case inspect.VarTupleType() | inspect.ListType():
            return f"a list of {_several(kind.item_type)}"
        case inspect.DictType():
            return f"a table of {_several(kind.value_type)}"
        case inspect.StrType():
            return _ONE["str"]
        case inspect.BoolType():
            return _ONE["bool"]
    return "another value"


def _several(kind: inspect.Type) -> str:
    match kind:
        case inspect.StrType():
            return "strings"
        case inspect.IntType():
            return "whole numbers"
        case inspect.FloatType():
            return "numbers"
        case inspect.LiteralType():
            return f"words from {', '.join(map(str, kind.values))}"
        case inspect.VarTupleType() | inspect.ListType():
            return f"lists of {_several(kind.item_type)}"
    return "values"
