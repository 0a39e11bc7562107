"""Finds the names of failing tests in a command's output, in the formats of common test runners.

Most texts contain no sign of a failing test, and one search rules them out. In the others, only
the lines with a sign are examined, by their first characters. Of a long text, only the end
counts.
"""

import re
from collections.abc import Iterable, Iterator

MAX_TESTS = 100
MAX_CHARS = 200
_TAIL_CHARS = 64_000  # runners list failures at the end
_LINE_CHARS = 2_000
_LINES = 1_000

_SIGN = "FAIL"
_MARKS = "✕✗✖×"
_BULLETS = (*_MARKS, "●")
_WEAK_SIGN = "ERROR"  # a common word: on its own it counts only near the end
_COUNTED = " failed"  # where runners print their summary, and nowhere else
_END_CHARS = 4_000
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}m")
_TIMING = re.compile(r"\s{1,4}\(?\d{1,9}(?:\.\d{1,9})?\s?m?s\)?$")
_WORKER = re.compile(r"\[gw\d{1,4}\] \[ {0,2}\d{1,3}%\] ")  # pytest-xdist
_UNITTEST = re.compile(r"(?:FAIL|ERROR): (\w{1,150}) \(([\w.]{1,200})\)")
_GO = re.compile(r"--- FAIL: (\S{1,200})")
_CARGO = re.compile(r"test (\S{1,200}) \.\.\. FAILED$")
_COUNT = re.compile(r"(?<![\w.])[1-9]\d{0,6} failed\b")
_SCRIPT = re.compile(r"\.(?:[cm]?[jt]sx?|vue|svelte)$")


def failing_tests(text: str) -> tuple[str, ...]:
    """The names of failing tests, each once and in order. If only their number is reported, that
    number ("3 failed")."""
    begin = max(0, len(text) - _TAIL_CHARS)
    near_end = max(0, len(text) - _END_CHARS)
    # Backwards, here and below: Python's `find` takes four times as long as its `rfind`.
    signs = [_SIGN] if text.rfind(_SIGN, begin) >= 0 else []
    if not text.isascii():  # known without a look at the text
        signs += [mark for mark in _BULLETS if text.rfind(mark, begin) >= 0]
    if not signs and text.rfind(_WEAK_SIGN, near_end) < 0:
        return _count(text, near_end)
    return _names(text, begin, (*signs, _WEAK_SIGN)) or _count(text, near_end)


def _names(text: str, begin: int, signs: Iterable[str]) -> tuple[str, ...]:
    """The names on the lines that contain one of these."""
    found: dict[str, None] = {}
    for start in sorted({start for sign in signs for start in _lines_with(sign, text, begin)}):
        if name := _name(_line(text, start)):
            found[name[:MAX_CHARS]] = None
            if len(found) == MAX_TESTS:
                break
    return tuple(found)


def _count(text: str, begin: int) -> tuple[str, ...]:
    """The last number that is reported."""
    for start in _lines_with(_COUNTED, text, begin):
        if count := _COUNT.search(_line(text, start)):
            return (count[0],)
    return ()


def _lines_with(sign: str, text: str, begin: int) -> Iterator[int]:
    """Offsets of the lines that contain it after `begin`: the last one first, and not too many."""
    place = text.rfind(sign, begin)
    for _ in range(_LINES):
        if place < 0:
            return
        start = text.rfind("\n", 0, place) + 1
        yield start
        place = text.rfind(sign, begin, start)


def _line(text: str, start: int) -> str:
    """The relevant part of the line that begins there, without colours."""
    end = text.find("\n", start, start + _LINE_CHARS)
    line = text[start : end if end >= 0 else start + _LINE_CHARS]
    return (_COLOUR.sub("", line) if "\x1b" in line else line).strip()


def is_count(name: str) -> bool:
    """Whether this is only the number of failed tests."""
    return _COUNT.fullmatch(name) is not None


def _name(line: str) -> str:
    """The test that has failed according to this line, or ""."""
    first = line[:1]
    if not first:
        return ""
    if first == "[":
        worker = _WORKER.match(line)
        return _name(line[worker.end() :]) if worker and worker.end() < len(line) else ""
    if first in "FE" and (found := _UNITTEST.match(line)):
        name, place = found[1], found[2]
        return place if place.endswith(f".{name}") else f"{place}.{name}"
    if first == "F":
        return _failed(line)
    if first == "E" and line.startswith("ERROR "):
        return _node(line[6:])
    if first == "-" and (found := _GO.match(line)):
        return found[1]
    if first == "t" and line.endswith("FAILED") and (found := _CARGO.match(line)):
        return found[1]
    if "::" in line and (" FAILED" in line or " ERROR" in line):  # pytest -v
        node, _, message = line.partition(" ")
        return node if message.startswith(("FAILED", "ERROR")) and ".py::" in node else ""
    if first in _MARKS:
        return _marked(line[1:].strip())
    if first == "●" and " › " in line:  # jest
        return line[1:].strip()
    return ""


def _failed(line: str) -> str:
    if line.startswith("FAILED "):
        return _node(line[7:])
    if line.startswith("FAIL\t"):  # go: a package; its tests have lines of their own
        return line[5:].partition(" ")[0] if line.endswith(" failed]") else ""
    if line.startswith("FAIL "):  # jest names the file, vitest the test
        name = _TIMING.sub("", line[5:].strip())
        name = name.partition(" ")[2] if name.startswith("|") else name
        return name if " > " in name or _SCRIPT.search(name.partition(" ")[0]) else ""
    return ""


def _node(rest: str) -> str:
    """pytest's name of a test or a file."""
    name = rest.partition(" - ")[0].strip()
    file = name.partition("::")[0]
    return name if "::" in name or (file.endswith(".py") and " " not in file) else ""


def _marked(name: str) -> str:
    """Output of jest, vitest and node; neither a linter's summary ("✖ 5 problems") nor a
    heading."""
    if name.endswith(":") or (name[:1].isdigit() and " problem" in name):
        return ""
    return _TIMING.sub("", name)
