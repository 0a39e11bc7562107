"""Looks at single sessions for the daemon, in the way `status` looks at all of them."""

import os
import re
import sqlite3
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

from segue.agents.places import SessionStore
from segue.core.sessions.types import Look, Process
from segue.errors import StateError
from segue.sessions import parents
from segue.sessions.count.index import open_index, set_aside
from segue.sessions.find import FileOnDisk, Home, Stamp
from segue.sessions.survey import ExaminedSession, Survey, make_judge
from segue.system.config.policies import PolicyFor
from segue.system.files.sqlite import is_damage

_encode = msgspec.msgpack.Encoder().encode
_ASK_S = 60.0
_MAX_UNSAVED = 2000
_BUSY_S = 0.1  # nothing waits for a cache, because a scan may write for seconds
WHOLE_BYTES = 1 << 16
"""The first record of a longer file is complete."""
_ASK = (
    "import sys; from segue.system.config.prices import window_tokens;"
    " print(window_tokens(sys.argv[1]) or '')"
)


class Sight(NamedTuple):
    """A look at a session, and the stamp of the file that it was taken at."""

    session: ExaminedSession
    stamp: Stamp


class Viewer(Survey):
    """Looks at single sessions. It keeps little between looks: earlier looks come from the
    caller, or from the index."""

    def __init__(
        self,
        homes: Sequence[Home],
        index_place: str,
        policy_for: PolicyFor,
        *,
        environment: Mapping[str, str],
        asker: "Asker",
    ) -> None:
        super().__init__(
            homes,
            (),
            None,
            policy_for,
            judge=make_judge(policy_for, 0.0),
            environment=environment,
            price_window=self._window,
        )
        self._asker = asker
        self._cache, note = open_index(index_place)
        self._cache.wait_at_most(_BUSY_S)
        self.notes += [note] if note else []
        self._unsaved: dict[str, tuple[Stamp, bytes]] = {}

    def close(self) -> None:
        """Saves what was seen, and closes the index."""
        self.save()
        self._cache.close()

    # Looking

    def look_at(self, file: FileOnDisk, before: Sight | None, now: float) -> Sight | None:
        """Looks at one file; None if it is not a session, or cannot be read."""
        if before is not None:
            self.known[file.path] = (before.stamp, _encode(before.session.look))
        self.judge = make_judge(self.policy_for, now)
        found = self.look_at_file(file)
        self._collect()
        if found is None:
            return None
        return Sight(ExaminedSession(file.agent, file.path, found, file.changed_at), file.stamp)

    def look_in(
        self,
        files: Sequence[FileOnDisk],
        since: float,
        processes: Sequence[Process],
        before: Sequence[Sight],
        now: float,
    ) -> list[Sight]:
        """The sessions of these files that were active since then, or that one of the processes
        may have open."""
        for sight in before:
            name = f"{sight.session.path}#{sight.session.look.session_id}"
            self.known[name] = (sight.stamp, _encode(sight.session.look))
        self.judge = make_judge(self.policy_for, now)
        stamps = {file.path: file.stamp for file in files}
        databases = {f.path for f in files if self.homes[f.home].store.database}
        self.found = list(files)
        sightings = self.active(since, processes)
        self._collect()
        self.found = []
        return [
            Sight(
                each,
                (*stamps[each.path][:2], round(each.changed_at * 1000), 0)
                if each.path in databases
                else stamps[each.path],
            )
            for each in sightings
        ]

    def parent_of(self, file: FileOnDisk) -> str:
        """The session that this file's session is a sub-agent of; "" if it is not a sub-agent,
        "?" if that is unknown so far."""
        ((resolved,), stated) = parents.resolve([file], self.homes, None)
        return resolved.parent_id if stated or file.size >= WHOLE_BYTES else parents.UNKNOWN_PARENT

    def with_parents(self, found: Sequence[FileOnDisk]) -> list[FileOnDisk]:
        """All files with their parents; new findings are saved."""
        try:
            resolved, new = parents.resolve(found, self.homes, self._cache)
            self._cache.keep_parents(new)
        except sqlite3.Error as fault:
            self._failed(fault)
            resolved, _ = parents.resolve(found, self.homes, None)
        except OverflowError:
            resolved, _ = parents.resolve(found, self.homes, None)
        return resolved

    def refresh(self) -> None:
        """Makes segue read the agents' own configs again when they are needed."""
        self.windows.configured.clear()

    # The index: only a cache

    def save(self) -> None:
        """Saves what was seen since the last call, for later looks."""
        unsaved, self._unsaved = self._unsaved, {}
        try:
            self._cache.keep_looks([(path, *look) for path, look in unsaved.items()])
        except OverflowError:  # an inode number that is too large for SQLite
            return
        except sqlite3.Error as fault:
            self._failed(fault)
            if len(unsaved) <= _MAX_UNSAVED:
                self._unsaved = unsaved | self._unsaved  # it will be saved next time

    def answered(self) -> set[str]:
        """The models whose windows the price list has supplied in the meantime."""
        answers = self._asker.take()
        for model, tokens in answers.items():
            try:
                self._cache.keep_window(model, tokens)
            except sqlite3.Error as fault:
                self._failed(fault)
        return set(answers)

    def _window(self, model: str) -> int | None:
        if model in self._asker.known:
            return self._asker.known[model]
        try:
            asked, tokens = self._cache.window(model)
        except sqlite3.Error as fault:
            self._failed(fault)
            return None
        if asked:
            self._asker.known[model] = tokens
            return tokens
        self._asker.ask(model)
        return None

    def _collect(self) -> None:
        for name, stamp, data in self.new:
            self._unsaved[name] = (stamp, data)
        self.new = []
        self.known.clear()

    def stored_look(self, name: str, stamp: Stamp) -> Look | None:
        """An earlier look: the caller's, or the index's."""
        if name not in self.known:
            try:
                found = self._cache.look(name)
            except sqlite3.Error as fault:
                self._failed(fault)
                found = None
            if found is not None:
                self.known[name] = found
        return super().stored_look(name, stamp)

    def _failed(self, fault: sqlite3.Error) -> None:
        """Continues without the index, and says so: a problem with the index must not lose what
        was seen."""
        if not is_damage(fault):
            self.notes.append(f"the index was not used: {fault}")
            return
        self._cache.close()
        try:
            self._cache, note = set_aside(self._cache, str(fault))
            self._cache.wait_at_most(_BUSY_S)
        except (StateError, sqlite3.Error) as worse:  # retried when it is needed next
            note = f"the index was not used: {worse}"
        self.notes += [note] if note else []


class Asker:
    """Queries the price list for windows, in a separate process: the list is large, and hardly
    ever needed. One model after the other; `done` is called, in another thread, after each."""

    def __init__(self, done: Callable[[], None]) -> None:
        self.known: dict[str, int | None] = {}
        self._done = done
        self._waiting: deque[str] = deque()
        self._answers: dict[str, int | None] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def ask(self, model: str) -> None:
        """Requests an answer, which arrives later."""
        with self._lock:
            self.known[model] = None
            self._waiting.append(model)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()

    def take(self) -> dict[str, int | None]:
        """The answers since the last call."""
        with self._lock:
            answers, self._answers = self._answers, {}
        return answers

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                model = self._waiting.popleft()
            tokens = None
            with suppress(OSError, ValueError, subprocess.SubprocessError):
                done = subprocess.run(  # noqa: S603 - our own interpreter
                    [sys.executable, "-c", _ASK, model],
                    capture_output=True,
                    text=True,
                    timeout=_ASK_S,
                    check=True,
                )
                tokens = int(done.stdout) if done.stdout.strip() else None
            with self._lock:
                self.known[model] = self._answers[model] = tokens
            self._done()


class Places:
    """Which paths are sessions' files, by the homes' patterns."""

    def __init__(self, homes: Sequence[Home]) -> None:
        self.homes = homes
        self._patterns = [
            (home, home.path + "/", _compiled(home.store)) for home in homes if home.store.files
        ]

    def home_of(self, path: str) -> Home | None:
        """The home that the file would belong to. Agents never use names that are not text;
        `find` relies on that too."""
        if not path.isascii() and not _is_text(path):
            return None
        for home, prefix, pattern in self._patterns:
            if path.startswith(prefix) and pattern.fullmatch(path, len(prefix)):
                return home
        return None

    def stat_file(self, home: Home, path: str) -> FileOnDisk | None:
        """A file, or a database, as it is now."""
        try:
            info = os.stat(path)
        except (OSError, ValueError):
            return None
        size, changed_ns = info.st_size, info.st_mtime_ns
        if home.store.database:
            with suppress(OSError):
                log = os.stat(f"{path}-wal")
                size, changed_ns = size + log.st_size, max(changed_ns, log.st_mtime_ns)
        return FileOnDisk(
            home.agent,
            home.path,
            path,
            home.store.session_id(os.path.basename(path)),
            home.store.parent_id(path[len(home.path) + 1 :]),
            (info.st_dev, info.st_ino, size, changed_ns),
        )


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _compiled(store: SessionStore) -> re.Pattern[str]:
    """The patterns as `find` understands them: `**/` is any depth, also none."""
    parts = {"**/": "(?:.*/)?", "*": "[^/]*"}
    forms = []
    for pattern in store.files:
        pieces = re.split(r"(\*\*/|\*)", pattern)
        forms.append("".join(parts.get(piece, re.escape(piece)) for piece in pieces))
    return re.compile("|".join(forms), re.DOTALL)
