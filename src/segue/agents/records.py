"""Cuts what an agent wrote into records and plain lines.

Streams are JSON lines, results are sometimes pretty-printed, logs put a stamp before the record,
and tails begin or end in the middle of one. What is not a record of a known agent stays text.
"""

import json
import re
from typing import Any

from msgspec import Struct

from segue import agents
from segue.agents.fields import joined, obj
from segue.agents.lines import decode
from segue.agents.profile import Profile, Record

_STAMP = re.compile(r"^(?:\s*\[[^\]{}]{1,60}\]){1,4}\s*(?=\{)")
_PAIR = re.compile(
    r'"(?P<key>\w{2,40})"\s*:\s*(?P<value>"(?:[^"\\]|\\.)*"|true|false|null|-?\d+(?:\.\d+)?)'
)
_TELLING = {"type", "subtype", "is_error", "terminal_reason", "api_error_status", "error", "result"}
_SALVAGE_CHARS = 65_536
_MULTI_LINE_CHARS = 1 << 20

Line = tuple[int, str]


class Split(Struct, frozen=True):
    """A text cut into objects that could be records, and all other lines with their numbers."""

    records: list[Record]
    rest: list[Line]
    is_stream: bool
    """Whether the records are what was written, not something that is shown in it: they are
    most of its lines, or the last thing."""


def split(text: str, source: str, first_line: int = 1) -> Split:
    """Cuts a text."""
    lines = text.split("\n")
    records: list[Record] = []
    rest: list[Line] = []
    index = taken = 0
    ends_with_record = False
    while index < len(lines):
        where = f"{source}:{first_line + index}"
        line = lines[index].strip()
        found, used = _record_at(lines, index, line)
        if found is None:
            rest.append((first_line + index, lines[index]))
            ends_with_record = ends_with_record and not line
        else:
            records += (Record(data, where) for data in found)
            taken, ends_with_record = taken + used, True
        index += used
    spoken = sum(1 for _, line in rest if line.strip())
    return Split(records, rest, bool(records) and (ends_with_record or taken >= spoken))


def _record_at(lines: list[str], index: int, line: str) -> tuple[list[dict[str, Any]] | None, int]:
    stamp = _STAMP.match(line)
    if stamp:
        line = line[stamp.end() :]
    if not line.startswith(("{", "[{")):
        return None, 1
    value = decode(line)
    if value is not None:
        return _objects(value), 1
    if line.endswith(("{", "[", ",")):
        value, used = _pretty(lines, index)
        if value is not None:
            return _objects(value), used
    salvaged, used = _salvage(lines, index)
    return ([salvaged], used) if salvaged else (None, 1)


def _objects(value: Any) -> list[dict[str, Any]] | None:
    if isinstance(value, dict):
        return [value]
    if isinstance(value, list) and value and all(isinstance(v, dict) for v in value):
        return value
    return None


def _pretty(lines: list[str], index: int) -> tuple[Any, int]:
    """A value over several lines."""
    text = "\n".join(lines[index:])[:_MULTI_LINE_CHARS].lstrip()
    try:
        value, end = json.JSONDecoder(strict=False).raw_decode(text)
    except (ValueError, RecursionError):
        return None, 1
    return value, text.count("\n", 0, end) + 1


def _salvage(lines: list[str], index: int) -> tuple[dict[str, Any] | None, int]:
    """The plain fields of an object that is cut off or abridged."""
    taken = [lines[index]]
    for line in lines[index + 1 :]:
        if (
            not line.strip()
            or line.lstrip().startswith("{")
            or sum(map(len, taken)) > _SALVAGE_CHARS
        ):
            break
        taken.append(line)
    text = "\n".join(taken)[:_SALVAGE_CHARS]
    pairs: dict[str, Any] = {}
    for match in _PAIR.finditer(text):
        pairs.setdefault(match["key"], decode(match["value"]))
    if len(_TELLING & pairs.keys()) < 2:
        return None, 1
    if "subtype" in pairs or "is_error" in pairs:
        pairs.setdefault("type", "result")
    return pairs, len(taken)


def spoken(records: list[Record], text: str) -> list[str]:
    """The lines of a text that holds no known agent's records; if it is one record all the same,
    what is said in it."""
    if len(records) == 1:
        said = joined(obj(records[0].data, "message").get("content")) or joined(
            records[0].data.get("content")
        )
        if said:
            return said.split("\n")
    return text.split("\n")


def owner(records: list[Record], agent: str | None) -> Profile | None:
    """Whose records are these? The named agent's if it knows any of them, else the first that
    surely wrote one, looking from the end."""
    named = agents.find(agent) if agent else None
    if named is not None:
        mine = named.resembles or named.knows
        known = any(named.knows(r.data) or mine(r.data) for r in records)
        if known or not any(agents.recognise(r.data) for r in records):
            return named if known else None
    for look in (agents.recognise, agents.guess):
        for record in reversed(records):
            profile = look(record.data)
            if profile is not None:
                return profile
    return None
