"""What the next session must know: what the agent told, and what is known without it.

A checkpoint never depends on the agent alone: the rule-made part comes from the transcript and git,
and stands by itself if the agent could not answer. All sizes are bounded, by whole lines."""

from typing import Any

import msgspec
from msgspec import Struct

from segue.core.lines import count_of, shorten
from segue.core.redact import redact
from segue.core.remark import Todo
from segue.core.told import Told, extract, paths_in

__all__ = ["Checkpoint", "Command", "FileChanged", "Told", "clean", "extract", "paths_in", "render"]

MOST_CHARS = 24_000  # some 6,000 tokens of the new session's window

_BOXES = {"completed": "[x]", "in_progress": "[~]", "pending": "[ ]"}


class FileChanged(Struct, frozen=True):
    """A file that the sessions so far wrote, as it is now."""

    path: str
    sha256: str | None = None  # None: it cannot be read
    exists: bool = True


class Command(Struct, frozen=True):
    """A command that was run; the exit code is None if it is not known."""

    text: str
    exit_code: int | None = None
    has_result: bool = False  # it ended, also if nobody says how


class Checkpoint(Struct, frozen=True, kw_only=True):
    """Kept with a run, and given to the next session. Lists are in the order of the work."""

    told: Told | None = None  # None: the agent could not, or would not
    task: str = ""  # word for word
    instructions: tuple[str, ...] = ()  # what the user said after the task
    todos: tuple[Todo, ...] = ()
    files: tuple[FileChanged, ...] = ()
    gone: tuple[str, ...] = ()  # paths that the agent names and that are not there
    commands: tuple[Command, ...] = ()
    failing_tests: tuple[str, ...] = ()
    last_words: str = ""  # of a session that told nothing
    git_status: str = ""
    git_diff_stat: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing but the task."""
        return not _parts(self, with_task=False)


class _Part(Struct):
    title: str
    text: str
    keeps_end: bool = False  # when it is cut: what came last matters most
    kept: str = ""
    missing: int = 0  # lines

    @property
    def head(self) -> str:
        return f"## {self.title}\n"

    @property
    def need(self) -> int:
        return len(self.head) + len(self.text) + 2


def clean(checkpoint: Checkpoint) -> tuple[Checkpoint, int]:
    """Without the secrets in it, and how many there were. The task stays word for word: it is the
    user's own, and goes to nobody but the same agent."""
    found = 0

    def walk(value: Any) -> Any:
        nonlocal found
        if isinstance(value, str):
            value, number = redact(value)
            found += number
            return value
        if isinstance(value, list | tuple):
            return [walk(item) for item in value]
        if isinstance(value, dict):
            return {key: walk(item) for key, item in value.items()}
        return value

    fields = {
        name: value if name == "task" else walk(value)
        for name, value in msgspec.to_builtins(checkpoint).items()
    }
    return msgspec.convert(fields, Checkpoint), found


def render(checkpoint: Checkpoint, *, most_chars: int = MOST_CHARS, with_task: bool = True) -> str:
    """As Markdown of at most so many characters, without secrets. What matters most has its place
    first; lines are kept whole or not at all, and what is missing is named."""
    parts = _parts(checkpoint, with_task=with_task)
    for part in parts:
        part.text = redact(part.text)[0]  # before it is cut: half a key is hard to see
    room = most_chars
    if sum(part.need for part in parts) > most_chars:
        room -= len(_missing([_Part(p.title, "", missing=10**9) for p in parts])) + 2
    _fill(parts, room)
    pieces = [part.head + part.kept for part in parts if part.kept]
    cut = [part for part in parts if part.missing]
    if cut:
        pieces += [_missing(cut)]
    text = "\n\n".join(pieces)
    if len(text) <= most_chars:
        return text
    short = f"[{len(parts)} parts left out for size]"  # there was no room for more
    return short if len(short) <= most_chars else ""


def _fill(parts: list[_Part], room: int) -> None:
    """First each may take half of what is left, so that none starves the others; then what nobody
    wanted goes to the first that wants more."""
    left = max(0, room)
    grants: list[int] = []
    for part in parts:
        grants.append(min(part.need, left // 2))
        left -= grants[-1]
    for place, part in enumerate(parts):
        more = min(part.need - grants[place], left)
        left -= more
        most = grants[place] + more - len(part.head) - 2
        part.kept, part.missing = shorten(part.text, most, keeps_end=part.keeps_end)


def _missing(cut: list[_Part]) -> str:
    named = [f"{part.title} ({count_of(part.missing)})" for part in cut]
    return f"Left out for size: {', '.join(named)}."


def _parts(checkpoint: Checkpoint, *, with_task: bool) -> list[_Part]:
    """Those that say something, the most important first."""
    told = checkpoint.told or Told()
    is_plain = not told.has_sections
    other = "\n\n".join(f"### {title}\n{text}" if title else text for title, text in told.other)
    parts = [
        _Part("Task", checkpoint.task if with_task else ""),
        _Part("Goal", told.goal),
        _Part("Remaining tasks", told.remaining),
        _Part("Do not redo", told.do_not_redo),
        _Part("What the session told", told.raw if is_plain else ""),
        _Part("What the session said last", checkpoint.last_words, keeps_end=True),
        _Part("Completed work", told.completed),
        _Part("Key decisions", told.decisions),
        _Part("What the user said later", _quoted(checkpoint.instructions), keeps_end=True),
        _Part(
            "Todo list",
            "\n".join(f"- {_BOXES[t.status]} {_flat(t.text)}" for t in checkpoint.todos),
        ),
        _Part("Failing tests", _items(checkpoint.failing_tests)),
        _Part("Files changed", "\n".join(map(_file, checkpoint.files)), keeps_end=True),
        _Part("Named above, but not there", _items(checkpoint.gone)),
        _Part("git status", checkpoint.git_status.strip("\n")),
        _Part("Commands run", "\n".join(map(_command, checkpoint.commands)), keeps_end=True),
        _Part("git diff --stat", checkpoint.git_diff_stat.strip("\n"), keeps_end=True),
        _Part("Also told", "" if is_plain else other),
    ]
    return [part for part in parts if part.text.strip()]


def _flat(text: str) -> str:
    """On one line."""
    return " ".join(text.split())


def _items(texts: tuple[str, ...]) -> str:
    return "\n".join(f"- {_flat(text)}" for text in texts if text.strip())


def _quoted(texts: tuple[str, ...]) -> str:
    return "\n\n".join("> " + text.strip().replace("\n", "\n> ") for text in texts if text.strip())


def _file(file: FileChanged) -> str:
    if not file.exists:
        return f"- {_flat(file.path)} (gone)"
    return f"- {_flat(file.path)} ({f'sha256 {file.sha256}' if file.sha256 else 'not readable'})"


def _command(command: Command) -> str:
    if command.exit_code is not None:
        result = f"exit code {command.exit_code}"
    else:
        result = "ended, exit code not known" if command.has_result else "no result seen"
    return f"- {_flat(command.text)} ({result})"
