"""The first prompt of each session, on one line. It never changes, so the index stores it: a
list of thousands must not read the beginning of every file again. The readers are imported
only when there is something to read."""

import sqlite3
from collections.abc import Iterable, Sequence

from segue.core.sessions.types import Session
from segue.sessions.count.index import Index
from segue.sessions.find import FileOnDisk
from segue.system.files.sqlite import is_damage

LINE_CHARS = 2_000
_SLACK_CHARS = 500  # half a secret is hard to recognise
_AT_ONCE = 100
_BETWEEN = "\x1e"


class Tasks:
    """Reads first prompts, and stores new ones. `found`: the files as they are on disk now."""

    def __init__(self, index: Index | None, found: Iterable[FileOnDisk] = ()) -> None:
        self._index = index
        self._places = {file.path: (file.stamp[0], file.stamp[1]) for file in found}

    def of(self, sessions: Sequence[Session]) -> list[str]:
        """The first prompt of each, without secrets; "" if there is none, or it cannot be read."""
        cached = self._index.tasks() if self._index is not None else {}
        names = [f"{session.path}#{session.session_id}" for session in sessions]
        places = [self._places.get(session.path, (0, 0)) for session in sessions]
        unknown = [
            number
            for number, (name, place) in enumerate(zip(names, places, strict=True))
            if cached.get(name, ((), ""))[0] != place
        ]
        lines = _lines([_task_text(sessions[number]) for number in unknown])
        new = dict(zip(unknown, lines, strict=True))
        self._keep([(names[n], places[n], line) for n, line in new.items() if line])
        return [
            new[number] if number in new else cached[name][1] for number, name in enumerate(names)
        ]

    def _keep(self, rows: Sequence[tuple[str, tuple[int, int], str]]) -> None:
        """Only a cache: what cannot be stored is read again."""
        if self._index is None:
            return
        try:
            self._index.keep_tasks(rows)
        except sqlite3.Error as fault:
            if is_damage(fault):
                raise


def _task_text(session: Session) -> str:
    from segue.sessions.documents import known_task

    task = known_task(session.agent, session.path, session.session_id, session.cwd)
    return task[: LINE_CHARS + _SLACK_CHARS].replace(_BETWEEN, "")


def _lines(tasks: Sequence[str]) -> list[str]:
    """Without secrets. Searching for them takes a while, but hardly longer for a hundred at
    once."""
    from segue.core.secrets.redact import redact

    found: list[str] = []
    for begin in range(0, len(tasks), _AT_ONCE):
        some = tasks[begin : begin + _AT_ONCE]
        clean = redact(f"\n{_BETWEEN}\n".join(some))[0].split(f"\n{_BETWEEN}\n")
        if len(clean) != len(some):  # one secret extended into the next text
            clean = [redact(text)[0] for text in some]
        found += map(_line, clean)
    return found


def _line(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= LINE_CHARS else flat[: LINE_CHARS - 1] + "…"
