"""Takes snapshots of a run's work: before and after every leg, and now and then at a boundary.
They are a safety net: any problem is reported once and stops nothing."""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from segue.core.runs.types import Run
from segue.errors import StateError, in_words
from segue.runs.folders import read, write, write_json
from segue.system.git import snapshots
from segue.system.git.snapshots import NoRepository

_DAY_S = 86_400.0
_OFF = "snapshots-off"


Marked = Callable[[str], None]


def session_note(commit: str) -> str:
    """The name of a file in the run's folder with the sizes of the session's file before and after
    this snapshot. What the agent did in between may or may not be in the snapshot."""
    return f"session-at-{commit}"


class RunSnapshots:
    """The snapshots of one run. `say` shows the user what must not be missed, in one line."""

    def __init__(self, run: Run, folder: Path, say: Callable[[str], None]) -> None:
        self._run, self._folder, self._say = run.id, folder, say
        self._cwd, self._policy = run.cwd, run.policy
        self._is_on = run.policy.snapshots and read(folder / _OFF) is None
        self._has_warned = False
        self._at: float | None = None  # the last one, on the clock that stops during sleep
        self._thread: threading.Thread | None = None
        self.session_path: Callable[[], str] = lambda: ""
        """The file of the current session."""
        self.mark: Callable[[], Marked] = self._mark_size
        """Called before the tree is read; what it returns is called afterwards with the commit.
        This records which session belongs to which snapshot."""

    def before(self, leg: int, now: float, awake: float) -> None:
        """Takes the tree as the leg finds it. The first snapshot of a run drops those that are too
        old."""
        self._at = awake
        self._take(snapshots.start_name(leg), now)
        if leg == 1 and self._is_on:
            self._prune(now)

    def boundary(self, leg: int, now: float, awake: float) -> None:
        """Takes a snapshot at a natural boundary, if the last one is old enough. Nothing waits for
        it."""
        if not self._is_on or (self._thread is not None and self._thread.is_alive()):
            return
        if self._at is not None and awake - self._at < self._policy.snapshot_every_s:
            return
        self._at = awake
        name = snapshots.next_name(leg)
        self._thread = threading.Thread(target=self._take, args=(name, now), daemon=True)
        self._thread.start()

    def after(self, leg: int, now: float) -> None:
        """Takes the tree as the leg left it."""
        if self._thread is not None:
            self._thread.join(snapshots.MAX_S)
        self._take(snapshots.end_name(leg), now)

    def _take(self, name: str, now: float) -> None:
        if not self._is_on:
            return
        marked = self.mark()
        try:
            taken = snapshots.take(self._cwd, self._run, name, now)
        except NoRepository:
            self._is_on = False
            self._switch_off()
        except (StateError, OSError, ValueError) as fault:
            self._tell(f"no snapshot of the work could be saved: {in_words(fault)}")
        else:
            marked(taken.snapshot.commit)
            if taken.left_out:
                why = f"over {snapshots.MAX_FILE_BYTES >> 20} MB, or unreadable"
                self._tell(f"snapshots leave out {taken.left_out} files: {why}")

    def _mark_size(self) -> Marked:
        """Records the size of the session's file, because the two belong together."""
        before = self._session_size()

        def marked(commit: str) -> None:
            with suppress(OSError):
                if after := self._session_size():
                    write_json(self._folder / session_note(commit), [before, after])

        return marked

    def _session_size(self) -> int:
        with suppress(OSError):
            return os.stat(path).st_size if (path := self.session_path()) else 0
        return 0

    def _switch_off(self) -> None:
        """Switches snapshots off silently, because the reason was reported before the run began."""
        with suppress(OSError):  # then it is reported again
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write(self._folder / _OFF, "no repository")

    def _prune(self, now: float) -> None:
        before = now - self._policy.snapshot_days * _DAY_S
        with suppress(StateError, NoRepository, OSError, ValueError):  # the next run tries again
            snapshots.prune(self._cwd, before, keep=self._run)

    def _tell(self, line: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            self._say(line)
