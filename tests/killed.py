"""`segue` that is killed, as by `kill -9`, at one point of a run.

    python tests/killed.py "STATE FACT PLACE" ARGUMENTS OF SEGUE

before: the fact happened, and is not written down. after: it is, and nothing was done about it yet.
done: all that was decided on it was done.
"""

import os
import signal
import sys
from typing import Any

from segue.runner import journal, loop
from segue.start import main

STATE, FACT, PLACE = sys.argv[1].rsplit(" ", 2)
_add, _do = journal.Journal.add, loop.Loop._do
_due: list[Any] = []  # the decisions after which it dies


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def add(self: journal.Journal, fact: Any, **more: Any) -> Any:
    is_here = self.run.state == STATE and type(fact).__name__.lower() == FACT
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


journal.Journal.add = add  # type: ignore[method-assign]
loop.Loop._do = do  # type: ignore[method-assign]
sys.argv[1:] = sys.argv[2:]
main()
