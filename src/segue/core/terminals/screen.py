"""What a pane shows: the lines as tmux captured them, what an agent's `TERMINAL` reads in them, and
code that the agents' `terminal` modules share. Pure."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Literal

from msgspec import Struct

State = Literal["idle", "busy", "dialog", "starting", "unknown"]
"""idle: at its prompt, where submitted text begins a turn. busy: a turn is running. dialog: a
question is open, and receives all keys. starting: there is no prompt yet. unknown: the screen is
not understood, so nothing may be typed."""


class PaneCapture(Struct, frozen=True):
    """A pane at one moment."""

    lines: tuple[str, ...]  # capture-pane -p
    styled: tuple[str, ...]  # capture-pane -p -e: the same with its escape sequences
    cursor: tuple[int, int]  # x, y; from 0
    width: int
    alternate: bool = False  # the alternate screen is on


class Screen(Struct, frozen=True):
    """What an agent's screen says."""

    state: State
    draft: str = ""
    """The text that was typed or pasted into the input line, without placeholders and suggestions.
    Lines that the agent wrapped are joined again where that can be told; compare with `same`."""
    pasted: bool = False
    """The screen does not show the whole draft: it has a folded paste, or too many lines. Such a
    draft cannot be restored."""
    is_fresh: bool = False  # no conversation is shown: nothing was said since it began
    continues_at: str = ""  # the agent says that it will continue by itself, and when
    is_harmless: bool = False  # a dialog that the terminal's `dismiss` closes without a choice


class Ink(Struct, frozen=True):
    """A line and how each of its characters is drawn: "d" dim, "r" reversed (a drawn cursor), " "
    neither."""

    text: str
    marks: str


_ESCAPE = re.compile(
    r"\x1b\[([0-9;:]*)m"  # a style
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # a title or a link
    r"|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[()][A-Z0-9]|\x1b[@-_]|[\x0e\x0f]"
)


def ink(styled: Iterable[str]) -> tuple[Ink, ...]:
    """The lines of a styled capture. tmux writes only changes, so a style continues from one
    line to the next."""
    found, dim, reversed_ = [], False, False
    for line in styled:
        text, marks, place = [], [], 0
        for match in [*_ESCAPE.finditer(line), None]:
            end = match.start() if match else len(line)
            piece = line[place:end]
            text.append(piece)
            marks.append(("r" if reversed_ else "d" if dim else " ") * len(piece))
            if match is None:
                break
            place = match.end()
            if match[1] is not None:
                dim, reversed_ = _styled(match[1], dim, reversed_)
        found.append(Ink("".join(text), "".join(marks)))
    return tuple(found)


def _styled(codes: str, dim: bool, reversed_: bool) -> tuple[bool, bool]:
    rest = iter(codes.split(";"))
    for code in rest:
        match code:
            case "" | "0":
                dim = reversed_ = False
            case "2" | "22":
                dim = code == "2"
            case "7" | "27":
                reversed_ = code == "7"
            case "38" | "48" | "58":  # a colour: its numbers are no styles
                for _ in range({"5": 1, "2": 3}.get(next(rest, ""), 0)):
                    next(rest, "")
    return dim, reversed_


def typed(line: Ink, start: int = 0) -> str:
    """The part of a line that was typed: dim text is a placeholder or a suggestion, and so is
    the letter under the cursor if dim text follows."""
    found = []
    for place in range(start, len(line.text)):
        mark, after = line.marks[place], line.marks[place + 1 : place + 2]
        if mark != "d" and not (mark == "r" and after == "d"):
            found.append(line.text[place])
    return "".join(found)


def columns(text: str) -> int:
    """How many columns a terminal uses for a text."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(unicodedata.combining(letter) > 0 for letter in text)


def joined(rows: Sequence[str], room: int) -> str:
    """The text of an input box whose agent breaks lines at `room` columns. A row that the next
    word would still have fitted into ended with a line break; one that is full continues."""
    found = rows[0] if rows else ""
    for before, row in pairwise(rows):
        word = re.split(r"\s", row, maxsplit=1)[0]
        left = room - columns(before)
        if left <= 0 and word:
            found += row  # broken within a word
        elif word and columns(word) + 2 > left and before.strip():  # some want the blank after it
            found += ("" if found.endswith(" ") else " ") + row
        else:
            found += "\n" + row
    return found


def padded(rows: Sequence[str], row: int, column: int) -> list[str]:
    """The rows, with the blanks before the cursor added: captured lines end with their last
    letter."""
    found = list(rows)
    if 0 <= row < len(found):
        found[row] += " " * (column - columns(found[row]))
    return found


def same(one: str, other: str) -> bool:
    """Whether two texts are the same apart from blanks: boxes break lines anywhere."""
    return "".join(one.split()) == "".join(other.split())


def is_cut(rows: int, height: int, most: float = 0.5) -> bool:
    """Whether an input box of this many rows may be scrolled, so that not all of it is shown.
    `most` is the part of the screen that the box can fill before it scrolls."""
    return rows >= height * most


def is_blank(lines: Iterable[str]) -> bool:
    """Whether nothing is shown."""
    return not any(line.strip() for line in lines)


def upward(lines: Sequence[str], below: int) -> Iterator[tuple[int, str]]:
    """The lines above `below` with their places, the nearest first."""
    return ((place, lines[place]) for place in range(min(below, len(lines)) - 1, -1, -1))
