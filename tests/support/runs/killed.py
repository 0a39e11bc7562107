"""`segue` that is killed, as by `kill -9`, at one point of a run.

    python tests/killed.py "STATE FACT PLACE" ARGUMENTS OF SEGUE

"starting created after": the run was written down, and nothing was started.
before: the fact happened, and is not written down. after: it is, and nothing was done about it yet.
done: all that was decided on it was done.
"""

import os
import signal
import sys
from typing import Any

from segue.runs import journal, loop
from segue.runs.store.sqlite import SqliteStore
from segue.start import main

STATE, FACT, PLACE = sys.argv[1].rsplit(" ", 2)
_add, _do = journal.Journal.add, loop.Loop._do
_create = SqliteStore.create
_due: list[Any] = []  # the decisions after which it dies


def _name(fact: Any) -> str:
    """As it is kept on disk: classes may be renamed."""
    return str(type(fact).__struct_config__.tag).replace("_", "")


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def add(self: journal.Journal, fact: Any, **more: Any) -> Any:
    is_here = self.run.state == STATE and _name(fact) == FACT
    if is_here and PLACE == "before":
        _die()
    decisions = _add(self, fact, **more)
    if is_here and (PLACE == "after" or not decisions):
        _die()
    if is_here:
        _due.append(decisions[-1])
    return decisions


def do(self: loop.Loop, decision: Any) -> None:
    _do(self, decision)
    if _due and decision is _due[0]:
        _die()


def create(self: SqliteStore, *given: Any, **more: Any) -> Any:
    entry = _create(self, *given, **more)
    if FACT == "created":
        _die()
    return entry


SqliteStore.create = create  # type: ignore[method-assign, assignment]
journal.Journal.add = add  # type: ignore[method-assign]
loop.Loop._do = do  # type: ignore[method-assign]
sys.argv[1:] = sys.argv[2:]
main()
