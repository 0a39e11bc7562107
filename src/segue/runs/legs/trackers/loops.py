"""Tracks whether a leg makes progress or goes round in circles."""

from segue.core.runs.idle import Idle
from segue.core.runs.progress import Progress
from segue.core.runs.types import Looped
from segue.core.secrets.redact import redact
from segue.core.stops.events import Event
from segue.system.git import git


class LoopDetector:
    """Detects that a leg goes round in circles, and reports it once per leg. It looks at the tree
    only if nothing else indicates progress. What another process already saw (`is_replaying`) is
    not news, because nobody knows the state of the tree at that time."""

    def __init__(
        self, leg: int, idle: Idle, progress: Progress, *, cwd: str, is_replaying: bool
    ) -> None:
        self.is_replaying = is_replaying
        self._leg, self._idle, self._progress, self._cwd = leg, idle, progress, cwd
        self._has_reported = False

    def feed(self, event: Event, now: float) -> Looped | None:
        """Takes an event from the source that reports calls: the stream or the session file."""
        spun = self._idle.feed(event, now)
        if spun is None or self._has_reported or self.is_replaying:
            return None
        self._progress.see_tree(git.mark(self._cwd))
        if self._idle.see(self._progress.mark()):
            return None
        self._has_reported = True
        return Looped(
            leg=self._leg,
            calls=spun.count,
            kind=spun.kind,
            call=redact(spun.call)[0],
            made=spun.made,
            failed=spun.failed,
        )

    def caught_up(self) -> None:
        """What arrives from now on is news."""
        if self.is_replaying:
            self.is_replaying = False
            self._idle.forget()
