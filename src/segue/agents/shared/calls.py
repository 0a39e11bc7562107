"""What tool calls do, in the same terms for all agents: the command, the files written, and a
short text that identifies the same call when it is made again."""

import re
from collections.abc import Iterable, Iterator
from typing import Any
from zlib import crc32

import msgspec

from segue.agents.shared.fields import JSON, items, obj, text
from segue.core.sessions.remarks import Todo, TodoStatus

ARGUMENT_CHARS = 500
_PATHS = ("file_path", "notebook_path", "filePath", "path", "absolute_path")
WRITERS = frozenset(
    {"Edit", "MultiEdit", "Write", "NotebookEdit", "write_file", "replace"}
    | {"edit", "write", "multiedit", "patch"}
)
"""Tools that write the file that they name."""

_PATCH = "*** Begin Patch"
_HEADS = ("*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: ")
_IN_SHELL = re.compile(r"(?:\S{0,100}/)?(?:ba|z|da|k)?sh -l?i?c (.+)", re.S)
_MAX_TODOS = 200

_encode = msgspec.json.Encoder().encode


def argument_of(given: Any) -> str:
    """All arguments of a call in short; different arguments give different texts. A model's
    description of its command for people does not count."""
    if isinstance(given, str):
        argument = given
    elif not given:
        return ""
    else:
        if isinstance(given, dict) and "command" in given and "description" in given:
            given = {name: value for name, value in given.items() if name != "description"}
        try:
            argument = _encode(given).decode()
        except (TypeError, ValueError, RecursionError, OverflowError):
            argument = repr(given)
    if len(argument) <= ARGUMENT_CHARS:
        return argument
    rest = argument[ARGUMENT_CHARS:]
    return f"{argument[:ARGUMENT_CHARS]}…{len(rest)} {crc32(rest.encode('utf-8', 'replace')):08x}"


def written_by(name: str, given: JSON) -> tuple[str, ...]:
    """The files that a call of this tool writes; () if it writes none."""
    if name in WRITERS:
        return next(((path,) for key in _PATHS if (path := text(given, key))), ())
    return ()


def patched(patch: str) -> tuple[str, ...]:
    """The files of a patch in the form of `apply_patch`."""
    if _PATCH not in patch:
        return ()
    lines = (line for line in patch.splitlines() if line.startswith(_HEADS))
    return tuple(dict.fromkeys(line.partition(": ")[2].strip() for line in lines))


def command_of(given: Any) -> str:
    """The command that a shell call runs: `ls` of `bash -lc ls`."""
    if isinstance(given, list):
        words = [word for word in given if isinstance(word, str)]
        if len(words) == 3 and words[1] in ("-c", "-lc", "-ic"):
            return words[2]
        return " ".join(words)
    if not isinstance(given, str):
        return ""
    found = _IN_SHELL.fullmatch(given)
    if found is None:
        return given
    inner = found[1]
    if inner[0] == "'" and inner[-1] == "'" and "'" not in inner[1:-1] and len(inner) > 1:
        return inner[1:-1]
    if "'" not in inner and '"' not in inner and "\\" not in inner:
        return inner
    return _unquoted(inner) or given


def _unquoted(inner: str) -> str:
    import shlex

    try:
        words = shlex.split(inner)
    except ValueError:
        return ""
    return words[0] if len(words) == 1 else ""


# Todo lists


_TEXTS = ("content", "text", "step", "description", "subject", "title")
_LISTS = ("todos", "items", "plan")
_TODO_TOOLS = re.compile(r"todo|plan|task", re.I)


def todos_of(name: str, given: JSON) -> tuple[Todo, ...]:
    """The todo list that a call of this tool writes, or (). Other tools may take lists in the same
    format: issues, pull requests."""
    if not _TODO_TOOLS.search(name):
        return ()
    return next((tuple(found) for found in todo_lists(given)), ())


def todo_lists(record: JSON) -> Iterator[list[Todo]]:
    """Todo lists anywhere in a record, recognised by their format."""
    open_: list[tuple[Any, int]] = [(record, 0)]
    while open_:
        value, depth = open_.pop()
        if isinstance(value, dict):
            for name in _LISTS:
                if name in value and (listed := _todos(items(value, name))):
                    yield listed
            inner: Iterable[Any] = value.values()
        else:
            inner = value
        if depth < 8:
            open_ += ((item, depth + 1) for item in inner if isinstance(item, dict | list))


def _todos(listed: list[Any]) -> list[Todo]:
    """The todos of a list, if all its items are todos."""
    found = []
    for item in listed[:_MAX_TODOS]:
        content = next((content for name in _TEXTS if (content := text(item, name))), "")
        has_state = isinstance(obj(item).get("completed"), bool) or text(item, "status")
        if not content or not has_state:
            return []
        found.append(Todo(content, _status(obj(item))))
    return found


def _status(item: JSON) -> TodoStatus:
    status = text(item, "status")
    if item.get("completed") is True or status in ("completed", "done", "cancelled"):
        return "completed"
    return "in_progress" if status in ("in_progress", "doing") else "pending"
