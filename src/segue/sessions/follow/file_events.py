"""File system events: they say where to look. Nothing depends on them; they only make it fast."""

import os
import sys
import threading
from collections.abc import Callable
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING

from segue.sessions.follow.cursor import Identity

if TYPE_CHECKING:
    from watchfiles._rust_notify import RustNotify

RETRY_S = 60.0
"""When to request events again after they failed."""
BUSY_S, BUSY_MS, CALM_MS = 2.0, 10, 40
"""How often watchfiles checks its queue: a check costs 50 µs, and it takes two to answer."""
DELETED = 3
"""As in watchfiles.Change."""
# FSEvents watches whole trees, and starts again for every path that is added. With inotify each
# folder is named: in a tree, one that may not be read would leave others unwatched, in silence.
TREES = sys.platform == "darwin"


@cache
def _notifier() -> "type[RustNotify]":
    """The class behind watchfiles, without the package, which imports anyio: 45 ms and 6 MB."""
    package = find_spec("watchfiles")
    places = package.submodule_search_locations if package else None
    spec = PathFinder.find_spec("watchfiles._rust_notify", places)
    if spec is None or spec.loader is None:
        raise ImportError("watchfiles is not installed")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    found: type[RustNotify] = module.RustNotify
    return found


class FolderWatch:
    """The file system's events for a growing set of paths, or the reason why there are none."""

    degraded: str = ""

    def __init__(self, stop: threading.Event, clock: Callable[[], float], *, wanted: bool) -> None:
        self._stop, self._clock, self._wanted = stop, clock, wanted
        self._notify: RustNotify | None = None
        self._watched: dict[str, Identity] = {}
        self._new: dict[str, Identity] = {}
        self._reported: set[str] = set()
        self._retry_at = self._busy_until = float("-inf")

    @property
    def is_on(self) -> bool:
        """Whether events can be expected."""
        return self._notify is not None

    def add(self, path: str, identity: Identity) -> None:
        """Watches this path from the next `renew` on."""
        if self._watched.get(path) != identity:
            self._new[path] = identity

    def drop(self, path: str) -> None:
        """The path no longer exists, and its watch has ended with it."""
        self._watched.pop(path, None)
        self._new.pop(path, None)

    def renew(self) -> list[str]:
        """Watches what was added. Returns the paths that were not watched until now: check them."""
        if not (self._wanted and self._new) or self._clock() < self._retry_at:
            return []
        watched = {p: i for p, i in (self._watched | self._new).items() if _may_read(p)}
        fresh = [path for path in watched if path in self._new]
        try:
            notify = _notifier()([*watched], False, False, 0, TREES, False)
        except FileNotFoundError:
            return []  # disappeared just now; the next call knows
        except (OSError, RuntimeError, ImportError, UnicodeError) as fault:
            if self._notify is None:
                self._degrade(fault)
                return []
            # Old and new watches together may be too many: try again without the old ones.
            self._new = watched
            self.close()
            return self.renew()
        self._reported = self.wait(0.0) if self._notify else set()
        self.close()
        self._notify, self._watched, self._new = notify, watched, {}
        self.degraded = ""
        return fresh

    def wait(self, timeout_s: float) -> set[str]:
        """The paths where something happened; waits at most this long for the first of them."""
        changed, self._reported = self._reported, set()
        if self._notify is None:
            self._stop.wait(0.0 if changed else timeout_s)
            return changed
        timeout_ms = 1 if changed else max(1, int(timeout_s * 1000))
        look_ms = BUSY_MS if self._clock() < self._busy_until else CALM_MS
        try:
            news = self._notify.watch(0, min(timeout_ms, look_ms), timeout_ms, self._stop)
        except (OSError, RuntimeError) as fault:
            self._degrade(fault)
            return changed
        if news == "signal":
            raise KeyboardInterrupt
        if isinstance(news, set):
            self._busy_until = self._clock() + BUSY_S
            for kind, path in news:
                changed.add(path)
                if kind == DELETED:
                    self.drop(path)
        return changed

    def close(self) -> None:
        """Releases the resources of the watches."""
        if self._notify is not None:
            self._notify.close()
            self._notify = None

    def _degrade(self, fault: Exception) -> None:
        self.close()
        self._new, self._watched = self._watched | self._new, {}
        self._retry_at = self._clock() + RETRY_S
        why = str(fault).partition(" (Error")[0].partition(" about [")[0].rstrip(".")
        if "limit" in why:
            why += "; see fs.inotify.max_user_watches"
        self.degraded = f"no file events, checking every file instead: {why}"


def _may_read(path: str) -> bool:
    """Whether segue may read the folder. One that it may not read would cost the events of all
    others."""
    return os.access(path, os.R_OK, effective_ids=os.access in os.supports_effective_ids)
