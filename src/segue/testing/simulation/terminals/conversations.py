"""What sessions in terminals have written: conversations in their files, and documents.

The real code (`sessions/evidence`) reads what the records show. Only the agents' formats are left
out.
"""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from segue.core.handoffs.prompts import HANDOFF_REQUEST, HANDOFF_RESUME, RESUME
from segue.core.sessions.forecasts.growth import Growth, Sample, growth
from segue.core.sessions.types import Session, StopSeen
from segue.core.stops.events import Event, Failure, Prompt, Reply, ToolCall, ToolResult
from segue.core.stops.reasons import StopReason
from segue.errors import StateError
from segue.sessions import evidence
from segue.sessions.digest import Feeds
from segue.watch.handoffs.messages import Messages
from segue.watch.outside import DocumentFiles, FileState, SessionRecords

_KEPT_EVENTS = 300
_KEPT_SAMPLES = 40
_FILE = re.compile(r"/\S+/handoff-\S+?\.md")

VALID = """# Handoff

## Goal
Do the numbered steps of the task, one after the other, each once and in its order, and stop after
the last one of them.

## Completed Work
The steps that the project's file lists as done.

## Remaining Tasks
1. The next step that the project's file does not list, and those after it.

## Do Not Redo
What the project's file lists.

## Key Decisions
Each step is written down when it is done.
"""
OWN = f'---\nmade_by: "segue"\n---\n{VALID}'
BAD = "# Handoff\n\n## Goal\n"


class Talk(Struct, kw_only=True):
    """One conversation, as its file has it."""

    id: str
    path: str
    started_at: float
    last_at: float
    used_tokens: int
    events: list[Event] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    stop: StopSeen | None = None
    turns: int = 0
    steps_left: int = 0
    unread: str = ""  # the document that it was told to read and has not read yet
    version: int = 0  # increases with every record

    def add(self, *events: Event) -> None:
        """Appends records."""
        self.events += events
        self.version += 1
        if len(self.events) > 2 * _KEPT_EVENTS:
            del self.events[:-_KEPT_EVENTS]
        self.last_at = max(self.last_at, max(event.at or 0.0 for event in events))

    def measure(self, at: float) -> None:
        """Records its size after a reply."""
        self.samples.append(Sample(at, self.used_tokens, self.turns))
        if len(self.samples) > 2 * _KEPT_SAMPLES:
            del self.samples[:-_KEPT_SAMPLES]

    def growth(self) -> Growth | None:
        """Its growth according to its file."""
        return growth(self.samples[-_KEPT_SAMPLES:])

    @property
    def is_fresh(self) -> bool:
        """Whether nothing has been said in it yet."""
        return not self.events

    @property
    def is_in_doubt(self) -> bool:
        """Whether its last call has no result."""
        for event in reversed(self.events):
            if isinstance(event, ToolCall):
                return True
            if isinstance(event, ToolResult | Prompt | Reply):
                return False
        return False


def interrupted(at: float) -> Failure:
    """The record of a turn that was ended with a key. It does not say who pressed the key."""
    return Failure(at=at, message="interrupted", reason=StopReason.USER_EXIT)


def file_in(text: str) -> str:
    """The document that a message names, or ""."""
    found = _FILE.search(text)
    return found[0] if found else ""


@cache
def messages() -> Messages:
    """The default messages."""
    return Messages({})


@cache
def _first_lines() -> dict[str, str]:
    """The first line of each of segue's messages."""
    names = {"request": HANDOFF_REQUEST, "continue": HANDOFF_RESUME, "resume": RESUME}
    templates = messages().templates
    return {kind: templates[name].partition("\n")[0].partition("{")[0].strip()
            for kind, name in names.items()}  # fmt: skip


def kind_of(text: str) -> str:
    """The kind of a message to an agent: "clear", segue's "request", "continue" (from a document)
    or "resume"; "" for the user's own words."""
    if text.strip() == "/clear":
        return "clear"
    return next((kind for kind, first in _first_lines().items() if text.startswith(first)), "")


class SimulatedRecords(SessionRecords):
    """The session files of a machine."""

    def __init__(self, find: Callable[[str], Talk | None]) -> None:
        self._find = find
        self._lookups: dict[tuple[str, str, float], tuple[int, evidence.MessageEvidence]] = {}
        self._latest: dict[str, tuple[int, evidence.LatestTurn]] = {}

    def look(
        self, agent: str, path: str, session_id: str, marker: str, since: float
    ) -> evidence.MessageEvidence:
        """Like the real method, from the model's conversation."""
        talk = self._find(session_id)
        if talk is None or not marker:
            return evidence.MessageEvidence(session_id=session_id)
        key = (session_id, marker, since)
        known = self._lookups.get(key)
        if known is None or known[0] != talk.version:  # an unchanged file reads the same
            found = evidence.evidence_in(talk.events, marker, since, session_id)
            known = self._lookups[key] = (talk.version, found)
            if len(self._lookups) > 200:
                self._lookups = {key: known}
        return known[1]

    def latest(self, agent: str, path: str, session_id: str) -> evidence.LatestTurn:
        """Like the real method, from the model's conversation."""
        talk = self._find(session_id)
        if talk is None:
            return evidence.LatestTurn()
        known = self._latest.get(session_id)
        if known is None or known[0] != talk.version:
            known = self._latest[session_id] = (talk.version, evidence.latest_in(talk.events[-60:]))
            if len(self._latest) > 50:
                self._latest = {session_id: known}
        return known[1]

    def has_file(self, session: Session) -> bool:
        """Always true, because files stay."""
        return True

    def is_carried_on(self, session: Session) -> bool:
        """Always false, because runs have other sessions."""
        return False

    def replay(self, builder: Feeds, agent: str, path: str, session_id: str) -> None:
        """Passes the conversation to a digest builder."""
        talk = self._find(session_id)
        for event in talk.events if talk is not None else ():
            builder.feed(event)


class SimulatedDocuments(DocumentFiles):
    """The handoff documents on disk."""

    def __init__(self, now: Callable[[], float], is_full: Callable[[], bool]) -> None:
        self._now, self._is_full = now, is_full
        self.files: dict[str, tuple[str, int]] = {}

    def put(self, path: str, text: str) -> None:
        """Writes a document, whoever its author is."""
        self.files.pop(path, None)
        self.files[path] = (text, int(self._now() * 1000) * 1_000_000)
        if len(self.files) > 24:  # the oldest belong to handoffs that ended long ago
            del self.files[next(iter(self.files))]

    def folder(self, cwd: str, name: str) -> Path:
        """The folder in the project."""
        return Path(cwd) / name

    def prepare(self, folder: Path) -> None:
        """Does nothing, because the folder exists."""

    def state(self, path: str) -> FileState | None:
        """The current state of a file."""
        found = self.files.get(path)
        return None if found is None else FileState(len(found[0]), found[1])

    def read(self, path: str, *, project: str) -> tuple[str, str]:
        """Like the real one, except that nothing here is a link, a pipe or too large."""
        found = self.files.get(path)
        return ("", "there is no such file") if found is None else (found[0], "")

    def write(self, folder: Path, name: str, text: str) -> Path:
        """Writes a document; returns its path. Raises StateError if the disk is full."""
        if self._is_full():
            raise StateError("no space left on the disk")
        self.put(str(folder / name), text)
        return folder / name

    def own(self, **known: Any) -> str:
        """A document made by segue, the same for every session, because nothing depends on its
        text."""
        return OWN
