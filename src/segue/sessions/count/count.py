"""Counts changed session files and writes them to the index, some at a time."""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from segue import agents
from segue.agents.contracts.counter import Count, Tally, print_of
from segue.core.sessions.ledger import Ledger
from segue.core.terminals.visible import to_json
from segue.sessions import find
from segue.sessions.count.index import CountedFile, Index
from segue.sessions.count.scan import feed
from segue.sessions.find import FileOnDisk, Stamp

_PRINT_BYTES = 512
_BATCH_BYTES = 1 << 30
"""How much is read between two transactions, about two seconds of work: the most that a killed scan
loses."""

_line = msgspec.json.Encoder().encode
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Tally).decode


class Batch:
    """The changed files of one scan."""

    def __init__(
        self,
        index: Index,
        found: Sequence[FileOnDisk],
        known: dict[str, Stamp],
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self.index, self.known, self.progress = index, known, progress
        self.found = {file.path: file for file in found}
        self.held: list[tuple[FileOnDisk, CountedFile, Ledger]] = []
        self.held_bytes = self.read_bytes = 0
        self.unreadable: list[str] = []
        self.forks: dict[
            str, tuple[FileOnDisk, CountedFile, Ledger]
        ] = {}  # waits until its parent is known

    def forget(self, paths: Iterable[str]) -> None:
        """Removes files that no longer exist from the index."""
        self.index.forget(paths)

    def add(self, file: FileOnDisk) -> None:
        """Counts a file, from where counting stopped last time if it has only grown since."""
        old = self.index.counted(file.path) if file.path in self.known else None
        if old is not None and old.forked_from and old.adopted >= len(Ledger(old.ledger)):
            old = None  # everything in it came from its parent, and more of it may
        try:
            counted = count(file, old)
        except OSError as fault:
            self.unreadable.append(f"{file.path}: {fault.strerror or fault}")
            return
        except Exception as fault:  # whatever is in one file, the others are counted
            self.unreadable.append(f"{file.path}: internal error: {type(fault).__name__}: {fault}")
            return
        if counted is None:
            return
        row, ledger, started = counted
        if row.forked_from and started == 0:
            self.forks[file.path] = (file, row, ledger)
            return
        row = row._replace(
            is_new=started == 0,
            adopted=old.adopted if old is not None else 0,
            parent_rows=old.parent_rows if old is not None else 0,
        )
        self._hold(file, row, ledger, row.offset - started)

    def finish(self) -> None:
        """Saves the rest, and finds the history that forks share with their parents."""
        self.flush()
        done: set[str] = set()
        while self._take_outdated(done):
            waiting = {row.session_id for _, row, _ in self.forks.values()}
            above = self.index.ancestors({path: row for path, (_, row, _) in self.forks.items()})
            ready = [
                path
                for path, (_, row, _) in self.forks.items()
                if row.session_id in above[row.session_id] or not waiting & above[row.session_id]
            ]
            for path in ready:  # never empty: forks that wait for each other form a circle
                file, row, ledger = self.forks.pop(path)
                done.add(path)
                if row.session_id not in above[row.session_id]:
                    row = self._matched(file.agent, row, ledger)
                self._hold(file, row, ledger, row.offset)
            self.flush()  # they may be parents themselves

    def _take_outdated(self, done: set[str]) -> bool:
        """Counts forks that must be matched again; returns whether any fork is waiting."""
        for path in self.index.outdated():
            if path in self.found and path not in self.forks and path not in done:
                done.add(path)  # also if it cannot be read
                try:
                    counted = count(self.found[path], None)
                except Exception:  # reported when it was added
                    counted = None
                if counted is not None:
                    self.forks[path] = (self.found[path], counted[0], counted[1])
        return bool(self.forks)

    def _matched(self, agent: str, row: CountedFile, ledger: Ledger) -> CountedFile:
        """A fork may begin with a copy of its parent's requests, with new times: those belong to
        the parent, so they get its keys."""
        adopted = parent_rows = 0
        for path in self.index.of_session(agent, row.forked_from):
            parent = self.index.counted(path)
            if parent is not None:
                known = Ledger(parent.ledger, parent.models)
                parent_rows = max(parent_rows, len(known))
                adopted = max(adopted, ledger.adopt(known))
        return row._replace(ledger=ledger.tobytes(), adopted=adopted, parent_rows=parent_rows)

    def _hold(self, file: FileOnDisk, row: CountedFile, ledger: Ledger, read: int) -> None:
        self.held.append((file, row, ledger))
        self.read_bytes += read
        self.held_bytes += read
        if self.progress is not None:
            self.progress(read)
        if self.held_bytes >= _BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Saves what is buffered."""
        self.index.keep(self.held)
        self.held, self.held_bytes = [], 0


def count(file: FileOnDisk, old: CountedFile | None) -> tuple[CountedFile, Ledger, int] | None:
    """Counts a file, and returns the offset from which it was read; None if files of its agent are
    not counted. Raises OSError if it cannot be read."""
    make = agents.counter(file.agent)
    if make is None:
        return None
    if agents.stores()[file.agent].database:
        return _count_database(file, make, old)
    handle = find.open_file(file.path)
    try:
        tally, ledger, start = _valid_count(handle, file, None if file.is_document else old)
        counter = make(tally, ledger)
        if file.is_document:
            from segue.sessions import tail

            offset = file.size
            data = b"\n".join(_line(r.data) for r in tail.document(handle, offset))
            counter.feed(data, len(data))
            counter.close()
        else:
            offset = feed(handle, start, file.size, counter)
        mark = _print(handle, offset)
    finally:
        os.close(handle)
    row = CountedFile(
        file.stamp,
        offset,
        mark,
        _encode(tally),
        ledger.tobytes(),
        ledger.models,
        file.session_id or tally.session_id,
        tally.forked_from,
    )
    return row, ledger, start


def _count_database(
    file: FileOnDisk, make: Count, old: CountedFile | None
) -> tuple[CountedFile, Ledger, int] | None:
    """All messages of a database, or those written since it was last counted."""
    from segue.sessions import database

    tally, ledger = Tally(), Ledger()
    if old is not None and old.stamp[:2] == file.stamp[:2] and (before := _tally(old)) is not None:
        tally, ledger = before, Ledger(old.ledger, old.models)
    until, had = int(tally.memory.get("until", 0)), int(tally.memory.get("ids", 0))
    try:
        rows, have = database.changed_messages(file.path, until)
        if until and have < had:  # some were deleted, and nothing says which
            tally, ledger = Tally(), Ledger()
            rows, have = database.changed_messages(file.path, 0)
    except database.Unreadable as fault:
        raise OSError(None, str(fault)) from None
    counter = make(tally, ledger)
    data = b"\n".join(_row_line(row) for row in rows)
    counter.feed(data, len(data))
    counter.close()
    times = [at for row in rows if isinstance(at := row["time_updated"], int)]
    if times:
        tally.memory["until"] = max(times)
    tally.memory["ids"] = have
    counted = CountedFile(
        file.stamp, 0, b"", _encode(tally), ledger.tobytes(), ledger.models, "", ""
    )
    return counted, ledger, 0


def _row_line(row: dict[str, Any]) -> bytes:
    try:
        return _line(row)
    except (UnicodeError, OverflowError):
        return to_json(row).encode()


def tally_of(row: CountedFile) -> Tally:
    """The tally of a whole file; empty if it is damaged."""
    return _tally(row) or Tally()


def _tally(row: CountedFile) -> Tally | None:
    try:
        return _decode(row.tally)
    except msgspec.MsgspecError:
        return None


def _valid_count(
    handle: int, file: FileOnDisk, old: CountedFile | None
) -> tuple[Tally, Ledger, int]:
    """The earlier count, if it is still valid: the same file, not shorter, with the same bytes at
    its start and just before the offset up to which it was read."""
    if old is not None:
        device, inode, _, _ = old.stamp
        same = (device, inode) == file.stamp[:2] and file.size >= old.offset
        tally = _tally(old) if same and _print(handle, old.offset) == old.print else None
        if tally is not None:  # otherwise it is damaged, and what it counted is unknown
            return tally, Ledger(old.ledger, old.models), old.offset
    return Tally(), Ledger(), 0


def _print(handle: int, offset: int) -> bytes:
    first = os.pread(handle, min(_PRINT_BYTES, offset), 0)
    last = os.pread(handle, min(_PRINT_BYTES, offset), max(0, offset - _PRINT_BYTES))
    return print_of(first + b"\n" + last)
