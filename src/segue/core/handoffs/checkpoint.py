"""The checkpoint: what the next session must know, from the agent's own answer and from segue's
data.

A checkpoint never depends on the agent alone: the rule-made part comes from the transcript and
git, and is sufficient if the agent could not answer. All sizes are bounded, and cuts fall
between lines.
"""

from collections import Counter
from typing import Any

import msgspec
from msgspec import Struct, field

from segue.core.handoffs.digest import Digest, sections
from segue.core.handoffs.digest.parts import LAST_WORDS, USER
from segue.core.handoffs.quoting import item, line, name, quotation
from segue.core.handoffs.summary import AgentSummary, extract, paths_in
from segue.core.lines import count_of, shorten
from segue.core.secrets.redact import redact
from segue.core.sessions.remarks import Todo

__all__ = [
    "AgentSummary",
    "Checkpoint",
    "Command",
    "FileChanged",
    "clean",
    "extract",
    "paths_in",
    "render",
]

_TASK = "Task"
_SAID_LATER = "What the user said later"
_TODOS = "Todo list"
_AFTER_DIGEST = ("Failing tests", "Files changed", "Named above, but missing", "git status")
MAX_CHARS = 24_000  # some 6,000 tokens of the new session's window

_BOXES = {"completed": "[x]", "in_progress": "[~]", "pending": "[ ]"}


class FileChanged(Struct, frozen=True):
    """A file that the sessions so far wrote, in its current state."""

    path: str
    sha256: str | None = None  # None: it cannot be read
    exists: bool = True


class Command(Struct, frozen=True):
    """A command that was run; the exit code is None if unknown."""

    text: str
    exit_code: int | None = None
    has_result: bool = False  # it ended, even if nobody knows how
    failed: bool = False  # or was refused


class Checkpoint(Struct, frozen=True, kw_only=True):
    """Stored with a run, and given to the next session. Lists are in the order of the work."""

    summary: AgentSummary | None = field(default=None, name="told")
    """The agent's own words; None: it could not or would not answer."""
    task: str = ""  # word for word
    instructions: tuple[str, ...] = ()  # what the user said after the task
    todos: tuple[Todo, ...] = ()
    files: tuple[FileChanged, ...] = ()
    gone: tuple[str, ...] = ()  # paths that the agent names and that are not there
    commands: tuple[Command, ...] = ()
    failing_tests: tuple[str, ...] = ()
    last_words: str = ""  # of a session that wrote no checkpoint
    git_status: str = ""
    git_diff_stat: str = ""
    digest: Digest | None = None  # None: of an older version
    window_tokens: int = 0  # of the session that it was taken of; 0: not known

    @property
    def is_empty(self) -> bool:
        """Whether it contains only the task."""
        return not _parts(self, MAX_CHARS, with_task=False)


class _Part(Struct):
    title: str
    text: str
    keeps_end: bool = False  # when it is cut: what came last matters most
    shortened: str = ""
    missing: int = 0  # lines

    @property
    def head(self) -> str:
        return f"## {self.title}\n"

    @property
    def need(self) -> int:
        return len(self.head) + len(self.text) + 2


def clean(checkpoint: Checkpoint) -> tuple[Checkpoint, int]:
    """The checkpoint without its secrets, and how many there were. The task stays word for word:
    it is the user's own text, and goes only to the same agent."""
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


def render(checkpoint: Checkpoint, *, max_chars: int = MAX_CHARS, with_task: bool = True) -> str:
    """Renders Markdown of at most this many characters, without secrets. The most important
    parts come first; lines are kept whole or dropped, and dropped parts are named."""
    parts = _parts(checkpoint, max_chars, with_task=with_task)
    for part in parts:
        part.text = redact(part.text)[0]  # before it is cut: half a key is hard to see
    room = max_chars
    if sum(part.need for part in parts) > max_chars:
        room -= len(_missing([_Part(p.title, "", missing=10**9) for p in parts])) + 2
    _fill(parts, room)
    pieces = [part.head + part.shortened for part in parts if part.shortened]
    cut = [part for part in parts if part.missing]
    if cut:
        pieces += [_missing(cut)]
    text = "\n\n".join(pieces)
    if len(text) <= max_chars:
        return text
    short = f"[{len(parts)} parts left out for size]"  # there was no room for more
    return short if len(short) <= max_chars else ""


def _fill(parts: list[_Part], room: int) -> None:
    """First each part may take half of what is left, so that none starves the others; then the
    rest goes to the first part that needs more."""
    left = max(0, room)
    grants: list[int] = []
    for part in parts:
        grants.append(min(part.need, left // 2))
        left -= grants[-1]
    for place, part in enumerate(parts):
        more = min(part.need - grants[place], left)
        left -= more
        most = grants[place] + more - len(part.head) - 2
        part.shortened, part.missing = shorten(part.text, most, keeps_end=part.keeps_end)


def _missing(cut: list[_Part]) -> str:
    named = [f"{part.title} ({count_of(part.missing)})" for part in cut]
    return f"Left out for size: {', '.join(named)}."


def _parts(checkpoint: Checkpoint, max_chars: int, *, with_task: bool) -> list[_Part]:
    """The non-empty parts, the most important first. The agent's own text leaves room for the
    digest, which has what the agent did not mention."""
    parts = [part for part in _work_parts(checkpoint, with_task) if part.text.strip()]
    digest = checkpoint.digest
    if digest is None:
        return parts
    has = {LAST_WORDS: digest.last_words, _SAID_LATER: digest.prompts, _TODOS: digest.todos}
    parts = [part for part in parts if not has.get(part.title)]
    need = sum(part.need for part in parts)
    raw = checkpoint.summary.raw if checkpoint.summary else ""
    known = {
        title: _Part(title, text)
        for title, text in sections(digest, max(max_chars // 2, max_chars - need), summary=raw)
    }
    first = [known.pop(title) for title in (USER, LAST_WORDS) if title in known]
    place = next(
        (n for n, part in enumerate(parts) if part.title in _AFTER_DIGEST),
        len(parts),
    )
    begin = 1 if parts and parts[0].title == _TASK else 0
    return [*parts[:begin], *first, *parts[begin:place], *known.values(), *parts[place:]]


def _work_parts(checkpoint: Checkpoint, with_task: bool) -> list[_Part]:
    summary = checkpoint.summary or AgentSummary()
    is_plain = not summary.has_sections
    other = "\n\n".join(f"### {title}\n{text}" if title else text for title, text in summary.other)
    return [
        _Part(_TASK, checkpoint.task if with_task else ""),
        _Part("Goal", summary.goal),
        _Part("Remaining tasks", summary.remaining),
        _Part("Do not redo", summary.do_not_redo),
        _Part("What the session reported", summary.raw if is_plain else ""),
        _Part(LAST_WORDS, quotation(checkpoint.last_words), keeps_end=True),
        _Part("Completed work", summary.completed),
        _Part("Key decisions", summary.decisions),
        _Part(_SAID_LATER, _quoted(checkpoint.instructions), keeps_end=True),
        _Part(
            _TODOS,
            "\n".join(f"- {_BOXES[t.status]} {line(t.text)}" for t in checkpoint.todos),
        ),
        _Part("Failing tests", _items(checkpoint.failing_tests)),
        _Part("Files changed", "\n".join(map(_file, checkpoint.files)), keeps_end=True),
        _Part("Named above, but missing", _items(tuple(map(name, checkpoint.gone)))),
        _Part("git status", checkpoint.git_status.strip("\n")),
        _Part("Commands run", _commands(checkpoint.commands), keeps_end=True),
        _Part("git diff --stat", checkpoint.git_diff_stat.strip("\n"), keeps_end=True),
        _Part("Also reported", "" if is_plain else other),
    ]


def _items(texts: tuple[str, ...]) -> str:
    return "\n".join(f"- {item(text)}" for text in texts if text.strip())


def _quoted(texts: tuple[str, ...]) -> str:
    return "\n\n".join(quotation(text.strip()) for text in texts if text.strip())


def _file(file: FileChanged) -> str:
    if not file.exists:
        return f"- {name(file.path)} (gone)"
    return f"- {name(file.path)} ({f'sha256 {file.sha256}' if file.sha256 else 'not readable'})"


def _commands(commands: tuple[Command, ...]) -> str:
    """Each command once, with how it ended, at the position where it was last run."""
    lines = [_command(command) for command in commands]
    times = Counter(lines)
    last = reversed(dict.fromkeys(reversed(lines)))
    return "\n".join(f"{text}, {times[text]} times" if times[text] > 1 else text for text in last)


def _command(command: Command) -> str:
    if command.exit_code is not None:
        result = f"exit code {command.exit_code}"
    else:
        known = "failed, or was refused" if command.failed else "ended, exit code unknown"
        result = known if command.has_result else "no result seen"
    return f"- {item(command.text)} ({result})"
