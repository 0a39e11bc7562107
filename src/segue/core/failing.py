"""The names of failing tests in what a command printed, in the forms that test runners use.

Only lines that hold a sign are looked at, by their first characters; of a long text, its end."""

import re
from collections.abc import Iterator

MOST_TESTS = 100
MOST_CHARS = 200
_TAIL_CHARS = 64_000  # runners name what failed at the end
_LINE_CHARS = 2_000
_LINES = 1_000

_SIGNS = ("FAIL", "✕", "✗", "✖", "×", "●")
_LAST_SIGNS = ("ERROR", " failed")  # common words: alone they count only near the end
_END_CHARS = 4_000
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}m")
_TIMING = re.compile(r"\s{1,4}\(?\d{1,9}(?:\.\d{1,9})?\s?m?s\)?$")
_WORKER = re.compile(r"\[gw\d{1,4}\] \[ {0,2}\d{1,3}%\] ")  # pytest-xdist
_UNITTEST = re.compile(r"(?:FAIL|ERROR): (\w{1,150}) \(([\w.]{1,200})\)")
_GO = re.compile(r"--- FAIL: (\S{1,200})")
_CARGO = re.compile(r"test (\S{1,200}) \.\.\. FAILED$")
_COUNT = re.compile(r"(?<![\w.])[1-9]\d{0,6} failed\b")
_MARKS = "✕✗✖×"
_SCRIPT = re.compile(r"\.(?:[cm]?[jt]sx?|vue|svelte)$")


def failing_tests(text: str) -> tuple[str, ...]:
    """Each once, in order. Where only their number is told, that ("3 failed")."""
    if len(text) > _TAIL_CHARS:
        text = text[-_TAIL_CHARS:]
    if not any(sign in text for sign in _SIGNS):
        last = text[-_END_CHARS:]  # most texts are told to be none here: it must be quick
        if not any(sign in last for sign in _LAST_SIGNS):
            return ()
    signs = (*_SIGNS, *_LAST_SIGNS)
    places = {start for sign in signs for start in _lines_with(sign, text)}
    found: dict[str, None] = {}
    count = ""
    for start in sorted(places):
        end = text.find("\n", start, start + _LINE_CHARS)
        line = _COLOUR.sub("", text[start : end if end >= 0 else start + _LINE_CHARS]).strip()
        if name := _name(line):
            found[name[:MOST_CHARS]] = None
            if len(found) == MOST_TESTS:
                break
        elif " failed" in line and (told := _COUNT.search(line)):
            count = told[0]
    return tuple(found) if found or not count else (count,)


def _lines_with(sign: str, text: str) -> Iterator[int]:
    """Where the lines begin that hold it, the first of them; none that is very long."""
    place = text.find(sign)
    for _ in range(_LINES):
        if place < 0:
            return
        newline = text.rfind("\n", max(0, place - _LINE_CHARS), place)
        if newline >= 0 or place <= _LINE_CHARS:
            yield newline + 1
        end = text.find("\n", place)
        place = text.find(sign, end) if end >= 0 else -1


def is_count(name: str) -> bool:
    """Whether it is only the number of those that failed."""
    return _COUNT.fullmatch(name) is not None


def _name(line: str) -> str:
    """The test that a line says has failed, or ""."""
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
        node, _, said = line.partition(" ")
        return node if said.startswith(("FAILED", "ERROR")) and ".py::" in node else ""
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
    """jest, vitest, node; not a linter's sum ("✖ 5 problems") nor a heading."""
    if name.endswith(":") or (name[:1].isdigit() and " problem" in name):
        return ""
    return _TIMING.sub("", name)
