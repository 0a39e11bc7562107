"""Reads scenario files. A mistake gets a one-line message: the file, the key, what is wrong, what
was probably meant."""

import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, inspect

from segue.core.nearest import did_you_mean
from segue.core.sessions.spend import Spend
from segue.drill.model.answer import ModelReply, Stop
from segue.drill.model.ask import Call
from segue.drill.scenarios import contradictions
from segue.drill.scenarios.types import Scenario
from segue.errors import InputError
from segue.system.config import type_faults

PACKAGED = Path(__file__).parent

_TIMES: dict[str, int | None] = {"once": 1, "for ever": None}


class Turn(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A reply of the model, as a scenario file states it."""

    text: str = ""
    command: str | None = None
    commands: list[str] = []
    stop: Stop | None = None
    usage: Spend = Spend()


def names() -> list[str]:
    """The scenarios that come with segue."""
    return sorted(file.stem for file in PACKAGED.glob("*.toml"))


def load(path_or_name: str | Path) -> Scenario:
    """A bundled scenario by its name, or one from a file. Raises InputError with one line."""
    given = str(path_or_name)
    if isinstance(path_or_name, str) and given in names():
        return read(PACKAGED / f"{given}.toml")
    path = Path(path_or_name)
    if isinstance(path_or_name, str) and not ("/" in given or given.endswith(".toml")):
        hint = _nearest(given, names()) or "`segue drill --list` lists them"
        raise InputError(f"no scenario {_quoted(given)}: {hint}")
    return read(path)


def read(file: Path) -> Scenario:
    """The scenario in a file. Raises InputError with one line."""
    try:
        text = file.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise InputError(_line(file, "no such file")) from None
    except (OSError, ValueError) as fault:
        why = fault.strerror if isinstance(fault, OSError) else str(fault)
        raise InputError(_line(file, f"cannot be read: {why}")) from None
    return parse(text, file)


def parse(text: str, file: Path) -> Scenario:
    """Parses a scenario; `file` is its default name, and appears in errors."""
    try:
        # Editors on Windows put a byte-order mark at the start.
        data = tomllib.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as fault:
        raise InputError(_line(file, f"not TOML: {fault}")) from None
    try:
        return _scenario(data, file)
    except Mistake as mistake:
        raise InputError(_line(file, str(mistake))) from None


class Mistake(Exception):  # noqa: N818 - it is the user's
    """What is wrong, and where in the file."""

    def __init__(self, path: Sequence[str | int], what: str) -> None:
        super().__init__(f"{place(path)}: {what}" if path else what)


def place(path: Sequence[str | int]) -> str:
    """`("rules", 0, "times")` as `rules[1].times`: people count from one."""
    text = ""
    for key in path:
        if isinstance(key, int):
            text += f"[{key + 1}]"
        else:
            text += ("." if text else "") + (key if _BARE.fullmatch(key) else _quoted(key))
    return text


_BARE = re.compile(r"[A-Za-z0-9_-]{1,60}")
_KEY = re.compile(r"\.([A-Za-z0-9_]+)|\[(\d+)\]|\[\.\.\.\]")


def _scenario(data: dict[str, Any], file: Path) -> Scenario:
    turns = data.pop("turns", [])
    _known_keys(data, inspect.type_info(Scenario), ())
    _known_keys(turns, inspect.type_info(list[Turn]), ("turns",))
    for number, rule in enumerate(data.get("rules", [])):
        times = rule.get("times")
        if isinstance(times, str):
            if times not in _TIMES:
                what = f"must be a number, {' or '.join(map(_quoted, _TIMES))}"
                raise Mistake(("rules", number, "times"), what)
            rule["times"] = _TIMES[times]
    data.setdefault("name", re.sub(r"[^a-z0-9]+", "-", file.stem.lower()).strip("-") or "unnamed")
    found: Scenario = _convert(data, Scenario, ())
    replies = [_reply(turn, n) for n, turn in enumerate(_convert(turns, list[Turn], ("turns",)))]
    scenario = msgspec.structs.replace(found, turns=replies)
    for path, what in contradictions.find(scenario):
        raise Mistake(path, what)
    return scenario


def _reply(turn: Turn, number: int) -> ModelReply:
    commands = turn.commands
    if turn.command is not None:
        if commands:
            raise Mistake(("turns", number), "command and commands: one of them is enough")
        commands = [turn.command]
    calls = tuple(Call("", command) for command in commands)
    return ModelReply(text=turn.text, calls=calls, stop=turn.stop, spend=turn.usage)


def _convert(data: Any, type_: Any, path: tuple[str | int, ...]) -> Any:
    try:
        return msgspec.convert(data, type_)
    except msgspec.ValidationError as fault:
        message, inner = type_faults.split(fault)
        keys = [int(m[2]) if m[2] else m[1] for m in _KEY.finditer(inner) if m[1] or m[2]]
        raise Mistake((*path, *keys), type_faults.plain(msgspec.ValidationError(message))) from None


def _known_keys(value: Any, type_: inspect.Type, path: tuple[str | int, ...]) -> None:
    """Raises Mistake for an unknown key or word, and names the closest known one. It leaves most
    wrong types to the conversion, which reports them."""
    if isinstance(type_, inspect.UnionType):
        choices = [t for t in type_.types if not isinstance(t, inspect.NoneType)]
        if len(choices) == 1:
            _known_keys(value, choices[0], path)
    elif isinstance(type_, inspect.StructType):
        _table(value, path)
        fields = {field.encode_name: field.type for field in type_.fields}
        for key, inner in value.items():
            if key not in fields:
                hint = _nearest(key, fields) or f"known keys: {', '.join(fields)}"
                raise Mistake((*path, key), f"no such key; {hint}")
            _known_keys(inner, fields[key], (*path, key))
    elif isinstance(type_, inspect.ListType) and isinstance(type_.item_type, inspect.StructType):
        if not isinstance(value, list):
            raise Mistake(path, f"must be an array of tables: write [[{place(path)}]]")
        for number, item in enumerate(value):
            _known_keys(item, type_.item_type, (*path, number))
    elif isinstance(type_, inspect.LiteralType | inspect.EnumType) and isinstance(value, str):
        words = (
            [str(word) for word in type_.values]
            if isinstance(type_, inspect.LiteralType)
            else [str(member.value) for member in type_.cls]
        )
        if value not in words:
            hint = _nearest(value, words) or f"it is one of {', '.join(words)}"
            raise Mistake(path, f"{_quoted(value)} is unknown; {hint}")


def _table(value: Any, path: tuple[str | int, ...]) -> None:
    if not isinstance(value, dict):
        name = place([key for key in path if isinstance(key, str)])
        brackets = f"[[{name}]]" if path and isinstance(path[-1], int) else f"[{name}]"
        raise Mistake(path, f"must be a table: write {brackets}")


def _nearest(word: str, known: Iterable[str]) -> str:
    return did_you_mean(word, known)


def _quoted(word: str) -> str:
    return repr(word if len(word) <= 60 else word[:60] + "…")


def _line(file: Path, what: str) -> str:
    """One line, whatever the file's name and its keys contain."""
    text = f"{file}: {what}"
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
