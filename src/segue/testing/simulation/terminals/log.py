"""The daemon's log in memory, on a disk that may be full, written by a process that may be killed
at any note."""

from collections.abc import Callable, Sequence
from typing import Any

from segue.errors import StateError
from segue.runs.store.coding import pack, unpack
from segue.watch.log import LASTING, Log, Note

_PLAIN = frozenset({"reading", "health", "turn", "daemon"})
"""Kinds of notes that nothing in a world reads again. They are counted and not stored."""


class MemoryLog(Log):
    """Like `watch/log`. `on_note` is called before each lasting note is written, with None, and
    again afterwards with the note; it may raise."""

    def __init__(
        self, is_full: Callable[[], bool], on_note: Callable[[str, str, Note | None], None]
    ) -> None:
        self.path = ":memory:"
        self._is_full, self._on_note = is_full, on_note
        self._seq = 0
        self._kinds: dict[str, dict[int, Note]] = {}
        self._sessions: dict[tuple[str, str], dict[int, Note]] = {}

    def append(
        self,
        kind: str,
        *,
        at: float,
        agent: str = "",
        session_id: str = "",
        project: str = "",
        data: dict[str, Any] | None = None,
    ) -> Note:
        if self._is_full():
            raise StateError("the watch log: no space left on the disk")
        if kind in LASTING:
            self._on_note(kind, session_id, None)
        self._seq += 1
        fields = data or {}
        if kind not in _PLAIN:
            fields = unpack(pack(fields), dict[str, Any])
        note = Note(
            seq=self._seq, at=at, kind=kind, agent=agent, session_id=session_id, project=project,
            data=fields,
        )  # fmt: skip
        if kind not in _PLAIN:
            self._kinds.setdefault(kind, {})[note.seq] = note
            if session_id:
                self._sessions.setdefault((agent, session_id), {})[note.seq] = note
        if kind in LASTING:
            self._on_note(kind, session_id, note)
        return note

    def since(self, seq: int, kinds: Sequence[str] = (), limit: int = 1000) -> list[Note]:
        found = [
            note
            for kind in (kinds or self._kinds)
            for note in self._kinds.get(kind, {}).values()
            if note.seq > seq
        ]
        return sorted(found, key=lambda note: note.seq)[:limit]

    def of(
        self, agent: str, session_id: str, kinds: Sequence[str] = (), limit: int = 1000
    ) -> list[Note]:
        notes = self._sessions.get((agent, session_id), {}).values()
        return [note for note in notes if not kinds or note.kind in kinds][-limit:]

    def latest(
        self, kind: str, *, agent: str = "", session_id: str = "", project: str = ""
    ) -> Note | None:
        if session_id:
            found = self.of(agent, session_id, (kind,))
        else:
            found = [*self._kinds.get(kind, {}).values()]
            found = [note for note in found if not agent or note.agent == agent]
        found = [note for note in found if not project or note.project == project]
        return found[-1] if found else None

    def prune(self, kind: str, before: float) -> int:
        old = [note for note in self._kinds.get(kind, {}).values() if note.at < before]
        for note in old:
            self.drop(note)
        return len(old)

    def drop(self, note: Note) -> None:
        """Deletes one note."""
        self._kinds[note.kind].pop(note.seq, None)
        self._sessions.get((note.agent, note.session_id), {}).pop(note.seq, None)

    def forget_sessions(self, names: Sequence[tuple[str, str]]) -> None:
        """Deletes all notes on these sessions, so that a world of years does not grow."""
        for name in names:
            for note in [*self._sessions.pop(name, {}).values()]:
                self._kinds[note.kind].pop(note.seq, None)

    def version(self) -> int:
        return self._seq

    def close(self) -> None:
        """Nothing to release."""
