"""Reads tasks from a file: one per line, or the items of a Markdown list."""

import re
from collections.abc import Sequence

from msgspec import Struct

_ITEM = re.compile(r"(?:[-*+]|\d{1,9}[.)])[ \t]+(?:\[([ xX])\][ \t]+)?(.*)")
_HEADING = re.compile(r"#{1,6}(?:[ \t]|$)")


class TaskList(Struct, frozen=True, kw_only=True):
    """The content of a file. `ticked` is the number of items that are ticked off and therefore not
    in `tasks`; `ignored` has the numbers of the lines that belong to no task and are no
    headings."""

    tasks: tuple[str, ...]
    ticked: int = 0
    ignored: tuple[int, ...] = ()


def read(text: str) -> TaskList:
    """The tasks in a text. If it has any list item at the margin, it is a Markdown list: each such
    item is a task, with the indented lines below it. Otherwise each line is a task, except for
    empty lines and those that begin with #."""
    lines = text.removeprefix("\ufeff").splitlines()
    if any(_ITEM.match(line) for line in lines):
        return _items(lines)
    found = (line.strip() for line in lines)
    return TaskList(tasks=tuple(line for line in found if line and not line.startswith("#")))


def _items(lines: Sequence[str]) -> TaskList:
    found: list[list[str]] = []
    ticked, ignored = 0, []
    current: list[str] | None = None
    for number, line in enumerate(lines, 1):
        item = _ITEM.match(line)
        if item is not None:
            current = [item[2]]
            if item[1] in ("x", "X"):
                ticked += 1
            else:
                found.append(current)
        elif not line.strip() or line[0] in " \t":
            if current is not None:
                current.append(line.rstrip())
            elif line.strip():
                ignored.append(number)
        else:
            current = None
            if not _HEADING.match(line):
                ignored.append(number)
    tasks = (_text(item) for item in found)
    return TaskList(tasks=tuple(t for t in tasks if t), ticked=ticked, ignored=tuple(ignored))


def _text(item: Sequence[str]) -> str:
    """An item's text, without the common indentation of its lower lines."""
    below = [line for line in item[1:] if line.strip()]
    margin = min((len(line) - len(line.lstrip()) for line in below), default=0)
    return "\n".join([item[0], *(line[margin:] for line in item[1:])]).strip()
