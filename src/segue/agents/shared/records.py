"""Splits an agent's output into records and plain lines.

Streams are JSON lines, results are sometimes pretty-printed, logs put a time stamp before the
record, and tails begin or end in the middle of one. Anything that is not a record of a known
agent stays text.
"""

import json
import re
from typing import Any

from msgspec import Struct

from segue import agents
from segue.agents.contracts.profile import Profile, Record
from segue.agents.shared.fields import joined, obj
from segue.agents.shared.lines import decode

_STAMP = re.compile(r"^(?:(?:\s*\[[^\]{}]{1,60}\]){1,4}|data:)\s*(?=\{)")
_OPENINGS = ("{", "[{")
_PAIR = re.compile(
    r'"(?P<key>\w{2,40})"\s*:\s*(?P<value>"(?:[^"\\]|\\.)*"|true|false|null|-?\d+(?:\.\d+)?)'
)
_TELLING = {"type", "subtype", "is_error", "terminal_reason", "api_error_status", "error", "result"}
_NAMED = re.compile(r"[a-z]+[./][a-z_.]+$")  # the kind of an event, which says enough
_ROW = re.compile(r"\s*\{\s*\"[^\"]*\"\s*,|[^\"]*`")  # of a table in a program's source
_SALVAGE_CHARS = 65_536
_TRIED_CHARS = 16 << 20
"""How much of a text is searched for values over several lines. It is limited because each line
may begin a value that never ends."""
_OWNED = 20_000  # records: an agent that wrote none of the last this many wrote none at all
_DEEP_CHARS = 1 << 16  # the size that a too deeply nested value counts for

Line = tuple[int, str]


class Split(Struct, frozen=True):
    """A text cut into objects that could be records, and all other lines with their numbers."""

    records: list[Record]
    rest: list[Line]
    is_stream: bool
    """Whether the records are the text itself, not something shown in it: they are most of its
    lines, or come last."""


def split(text: str, source: str, first_line: int = 1) -> Split:
    """Splits a text into records and other lines. `source` and `first_line` say where the text
    is."""
    lines = text.split("\n")
    records: list[Record] = []
    rest: list[Line] = []
    index = taken = 0
    ends_with_record = False
    values = _Values(text)
    while index < len(lines):
        where = f"{source}:{first_line + index}"
        line = lines[index].strip()
        found, used = _record_at(lines, index, line, values)
        if found is None:
            rest.append((first_line + index, lines[index]))
            ends_with_record = ends_with_record and not line
        else:
            records += (Record(data, where) for data in found)
            taken, ends_with_record = taken + used, True
        index += used
    spoken = sum(1 for _, line in rest if line.strip())
    return Split(records, rest, bool(records) and (ends_with_record or taken >= spoken))


def _record_at(
    lines: list[str], index: int, line: str, values: "_Values"
) -> tuple[list[dict[str, Any]] | None, int]:
    line = _unstamped(line)
    if not line.startswith(_OPENINGS):
        return None, 1
    value = decode(line)
    if value is not None:
        return _objects(value), 1
    if line.endswith(("{", "[", ",")):
        value, used = values.at(lines, index)
        if value is not None:
            return _objects(value), used
    salvaged, used = _salvage(lines, index)
    return ([salvaged], used) if salvaged else (None, 1)


def _unstamped(line: str) -> str:
    stamp = _STAMP.match(line)
    return line[stamp.end() :] if stamp else line


def _objects(value: Any) -> list[dict[str, Any]] | None:
    if isinstance(value, dict):
        return [value]
    if isinstance(value, list) and value and all(isinstance(v, dict) for v in value):
        return value
    return None


class _Values:
    """Values that span several lines of one text, which is read in order. However many lines
    begin a value that does not end, the work is bounded."""

    def __init__(self, text: str) -> None:
        self._text, self._left_chars = text, _TRIED_CHARS
        self._index = self._start = 0  # a line, and where it starts
        self._decoder = json.JSONDecoder(strict=False)

    def at(self, lines: list[str], index: int) -> tuple[Any, int]:
        """The value that begins with this line, and how many lines it takes."""
        self._start += sum(len(line) + 1 for line in lines[self._index : index])
        self._index = index
        if self._left_chars <= 0:
            return None, 1
        start = self._start + len(lines[index]) - len(lines[index].lstrip())
        try:
            value, end = self._decoder.raw_decode(self._text, start)
        except json.JSONDecodeError as fault:
            # The fault counts the lines before it.
            self._left_chars -= fault.pos - start + fault.pos // 64
            return None, 1
        except (ValueError, RecursionError):
            self._left_chars -= _DEEP_CHARS
            return None, 1
        return value, self._text.count("\n", start, end) + 1


def _salvage(lines: list[str], index: int) -> tuple[dict[str, Any] | None, int]:
    """The simple fields of an object that is cut off or abridged."""
    if _ROW.match(lines[index]):
        return None, 1
    taken, chars = [lines[index]], len(lines[index])
    for number in range(index + 1, len(lines)):
        line = lines[number]
        if (
            not (stripped := line.strip())
            or _unstamped(stripped).startswith(_OPENINGS)
            or chars > _SALVAGE_CHARS
        ):
            break
        taken.append(line)
        chars += len(line)
    text = "\n".join(taken)[:_SALVAGE_CHARS]
    pairs: dict[str, Any] = {}
    for match in _PAIR.finditer(text):
        pairs.setdefault(match["key"], decode(match["value"]))
    kind = pairs.get("type")
    is_last = index + len(taken) >= len(lines)
    named = is_last and isinstance(kind, str) and _NAMED.match(kind)
    if len(_TELLING & pairs.keys()) < 2 and not named:
        return None, 1
    if "subtype" in pairs or "is_error" in pairs:
        pairs.setdefault("type", "result")
    return pairs, len(taken)


def spoken(records: list[Record], text: str) -> list[str]:
    """The lines of a text without any known agent's records; if it is nevertheless a single
    record, its message."""
    if len(records) == 1:
        words = joined(obj(records[0].data, "message").get("content")) or joined(
            records[0].data.get("content")
        )
        if words:
            return words.split("\n")
    return text.split("\n")


_KEPT_ERROR = re.compile(r'\{"error":"((?:[^"\\]|\\.){1,8000})(?:","timestamp"|\\?$)')


def listed_errors(text: str) -> list[str]:
    """The lines of the last error in a client's own list of its errors, as reports attach it:
    `[{"error": "Error: 529 …", "timestamp": …}, …]`, also without its beginning or end."""
    head = text.lstrip()[:12]
    if not head.startswith(('[{"error":"', '{"error":"')) or "\n" in text.strip():
        return []
    *_, last = ["", *_KEPT_ERROR.findall(text[-_SALVAGE_CHARS:])]
    decoded = decode(f'"{last}"')
    message = decoded if isinstance(decoded, str) else last.replace("\\n", "\n")
    return message.split("\n") if last else []


def owner(records: list[Record], agent: str | None) -> Profile | None:
    """Whose records these are: the named agent's if it knows any of them, otherwise the first
    agent that certainly wrote one, looking from the end."""
    records = records[-_OWNED:]
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
