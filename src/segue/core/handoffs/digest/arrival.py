"""Did the handoff arrive? Compares what a session does first with what it was given.

A continuation that knows the work so far continues it. One that does not reads the same files
again, repeats commands that were done, and asks what was asked before. Looking around first (`git
status`, `ls`) is not a repeat, and neither is a question that the session then answers itself.
"""

import re

from msgspec import Struct

from segue.core.handoffs.digest import tools
from segue.core.handoffs.digest.builder import questions_in
from segue.core.handoffs.digest.excerpts import only_looks
from segue.core.handoffs.digest.sentences import sentences
from segue.core.handoffs.digest.types import Digest
from segue.core.stops.events import Event, Prompt, Reply, ToolCall

MAX_ACTIONS = 20
_CALL_CHARS = 400  # as the digest stores them
_WORD = re.compile(r"\w+")
_SAME = 0.7  # share of common words from which two questions are the same


class Repeats(Struct, frozen=True, kw_only=True):
    """What a session repeated in its first `actions` (tool calls and replies)."""

    actions: int = 0
    commands: int = 0  # commands that had been done without failing
    files: int = 0  # files it read that the previous session had read or changed
    questions: int = 0  # questions that had been asked before


class Arrival:
    """Watches the first actions of a session that was given what `digest` knows."""

    def __init__(self, digest: Digest) -> None:
        done = [outcome.call for outcome in digest.results]
        self._done = {_flat(call) for call in done if not only_looks(call)}
        self._files = {_plain(file.path) for file in digest.files}
        # Some agents have no other tool to read with.
        shown = (path for call in done if only_looks(call) for path in tools.files_shown(call))
        self._files |= {_plain(path) for path in shown}
        self._names = {path.rpartition("/")[2] for path in self._files}
        self._asked = [_words(s.text) for s in digest.statements if s.kind == "question"]
        self._commands: set[str] = set()
        self._read: set[str] = set()
        self._again: set[int] = set()
        self._open: set[int] = set()  # asked in words, with no tool call since
        self._actions = 0

    @property
    def is_over(self) -> bool:
        """Whether it has seen enough."""
        return self._actions >= MAX_ACTIONS

    @property
    def repeats(self) -> Repeats:
        """The repeats so far."""
        return Repeats(
            actions=self._actions,
            commands=len(self._commands),
            files=len(self._read),
            questions=len(self._again | self._open),
        )

    def feed(self, event: Event) -> None:
        """Takes the next event of the session."""
        if self.is_over:
            return
        match event:
            case Prompt():
                self._again |= self._open
            case ToolCall():
                self._actions += 1
                self._open.clear()
                self._call(event)
            case Reply():
                self._actions += 1
                for found in sentences(event.text):
                    if found.kind == "question":
                        self._open |= self._same(found.text)

    def _call(self, event: ToolCall) -> None:
        kind = tools.tool(event.name)
        if event.command:
            command = _flat(event.command[:_CALL_CHARS])
            if command in self._done:
                self._commands.add(command)
            else:
                for word in _words_of_viewer(event.command):
                    self._look_at(word)
        elif kind.reads and not event.files:
            self._look_at(tools.path_in(event.given))
        if kind.asks:
            for text in questions_in(event.given):
                self._again |= self._same(text)

    def _look_at(self, path: str) -> None:
        path = _plain(path)
        if not path or path.rpartition("/")[2] not in self._names:
            return
        for known in self._files:
            if known == path or known.endswith(f"/{path}") or path.endswith(f"/{known}"):
                self._read.add(known)

    def _same(self, text: str) -> set[int]:
        """Which of the earlier questions this one repeats."""
        words = _words(text)
        return {
            place
            for place, asked in enumerate(self._asked)
            if (both := words & asked) and len(both) >= _SAME * len(words | asked)
        }


def _words_of_viewer(command: str) -> list[str]:
    """The words of a command that prints files and does nothing else; some of them name files."""
    return tools.words_if_shown(command) if only_looks(command) else []


def _plain(path: str) -> str:
    return path.removeprefix("./")


def _flat(text: str) -> str:
    return " ".join(text.split())


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.lower()))
