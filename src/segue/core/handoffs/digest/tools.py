"""What tools do, judged by the names and arguments that agents give them; for any agent."""

import re
from typing import Any

from msgspec import Struct

from segue.core.handoffs.digest.words import words

READERS = words("read read_file readfile view open_file notebookread read_many_files get_file cat")
"""Tools that show a file."""
LOOKERS = READERS | words(
    "grep glob ls list list_directory search search_file_content find codebase_search"
    " read_mcp_resource toolsearch bashoutput"
)
"""Tools that show what can be shown again."""
AGENTS = words("task agent subagent delegate dispatch_agent spawn_agent codebase_investigator")
"""Tools that have another agent work, and return its findings."""
QUESTIONS = words("askuserquestion ask_user question request_user_input ask_followup_question")
"""Tools that ask the user."""

_PATHS = ("file_path", "notebook_path", "filePath", "path", "absolute_path", "target_file")
_CHANGE_CHARS = 160
_PATH = re.compile(r"(?!-)[\w./~+@-]*[./][\w./~+@-]*\w")
_SHOWERS = re.compile(r"(?:^|[|;&\n]\s*)(?:cat|bat|head|tail|less|more|nl|sed)\b")


class Tool(Struct, frozen=True):
    """What a tool does."""

    reads: bool = False  # reads a file
    looks: bool = False  # shows what can be shown again
    works: bool = False  # has another agent work
    asks: bool = False  # asks the user


def tool(name: str) -> Tool:
    """The tool with this name, in any agent's spelling, including a server's
    (`mcp__files__read`)."""
    plain = name.lower().rpartition("__")[2].replace("-", "_")
    return Tool(plain in READERS, plain in LOOKERS, plain in AGENTS, plain in QUESTIONS)


def path_in(given: Any) -> str:
    """The file that a call names, or ""."""
    if not isinstance(given, dict):
        return ""
    for key in _PATHS:
        path = given.get(key)
        if isinstance(path, str):
            return path
    return ""


def words_if_shown(command: str) -> list[str]:
    """The words of a command that prints files; some of them name files."""
    if not _SHOWERS.search(command):
        return []
    return [word.strip("\"'") for word in command.split()]


def files_shown(command: str) -> list[str]:
    """The files that such a command prints, as far as their names show that they are files."""
    return [word for word in words_if_shown(command) if _PATH.fullmatch(word)]


def change_of(given: Any) -> str:
    """What a writing call changes, in short: how many lines, and the first of them."""
    if isinstance(given, str):
        return _patch(given)
    if not isinstance(given, dict):
        return ""
    old = _text(given, "old_string", "oldString", "old_str", "oldText")
    new = _text(given, "new_string", "newString", "new_str", "newText", "content", "file_text")
    if not old and not new:
        return _patch(_text(given, "patchText", "patch", "input", "command", "cmd"))
    gone = set(old.split("\n")) if old else set()
    new_lines = new.split("\n") if new else []
    added = [line for line in new_lines if line not in gone]
    removed = len(gone.difference(new_lines)) if old else 0
    return _change_line(len(added), removed, added)


def _patch(text: str) -> str:
    lines = text.split("\n")
    added = [line[1:] for line in lines if line.startswith("+") and not line.startswith("+++")]
    removed = sum(line.startswith("-") and not line.startswith("---") for line in lines)
    return _change_line(len(added), removed, added) if added or removed else ""


def _change_line(added: int, removed: int, lines: list[str]) -> str:
    first = next((line.strip() for line in lines if len(line.strip()) > 3), "")
    counts = f"+{added} −{removed}"
    return f"{counts}: {first}"[:_CHANGE_CHARS] if first else counts


def _text(given: dict[str, Any], *names: str) -> str:
    for name in names:
        value = given.get(name)
        if value and isinstance(value, str):
            return value
    return ""
