"""Notifies the user about a run when the user is not looking. The process that drives the run does
this, through the same services as the daemon; the daemon leaves driven runs to their drivers.

segue first records in the run's folder that a notice is to be sent, so a notice is never sent
twice; if the process is killed in between, it counts as sent.
"""

import os
from collections.abc import Callable
from datetime import datetime, tzinfo
from pathlib import Path

from msgspec import Struct

from segue.core.policy import Policy
from segue.core.runs.types import AnyFact, Run, RunState, RunStep
from segue.core.stops.reasons import StopReason
from segue.runs.folders import RunFolder
from segue.runs.store.port import Entry
from segue.system.notices import Kind, Notices

LONG_RUN_S = 600.0
"""For a finished run: a user who waited less than this is still there."""
LONG_WAIT_S = 1_800.0
_PATIENCE_S = 5.0
_GAVE_UP = (75, 124)


class RunNotice(Struct, frozen=True):
    """A notice for the user."""

    kind: Kind
    title: str
    body: str
    detail: str = ""


def notice_of(before: Run, run: Run, at: float, tz: tzinfo) -> RunNotice | None:
    """The notice that a step of a run calls for, if any; pure."""
    who = _label(run)
    if run.state is before.state:
        return None
    if run.state is RunState.WAITING and run.wait is not None:
        wait = run.wait
        if wait.why is not StopReason.RATE_LIMIT or wait.until - at <= LONG_WAIT_S:
            return None
        until = datetime.fromtimestamp(wait.until, tz).strftime("%a %H:%M")
        return RunNotice("wait", f"{who} waits", f"{wait.why.description}, until {until}")
    outcome = run.outcome
    if outcome is None or not run.state.is_final:
        return None
    advice = next(iter(outcome.advice.splitlines()), "")
    body = "; ".join(part for part in (outcome.what, advice) if part)
    match run.state:
        case RunState.NEEDS_YOU:
            return RunNotice("needs_you", f"{who} needs you", body, outcome.advice)
        case RunState.FAILED:
            how = "gave up" if outcome.exit_code in _GAVE_UP else "failed"
            return RunNotice("stop", f"{who} {how}", body, outcome.advice)
        case RunState.DONE if at - run.created_at > LONG_RUN_S:
            return RunNotice("done", f"{who} is done", outcome.what)
    return None


class RunNotices:
    """The notices of one run, for `Journal.heard`. Delays nothing."""

    def __init__(self, policy: Policy, tz: tzinfo, notices: Notices | None = None) -> None:
        self._tz = tz
        self._notices = notices or Notices(policy.notify, terse=policy.notify_terse)

    def hear(self, before: Run, fact: AnyFact, step: RunStep, entry: Entry) -> None:
        """Takes in an entry, once it is logged."""
        found = notice_of(before, step.run, entry.at, self._tz)
        if found is None or not self._notices.has_ways:
            return
        if _claim(RunFolder(step.run.id).path / "notices", f"{entry.seq:06}-{found.kind}"):
            key = f"{step.run.id}:{entry.seq}"
            self._notices.tell(found.kind, key, found.title, found.body, detail=found.detail)

    def close(self, say: Callable[[str], None]) -> None:
        """Waits a moment for notices that are being sent. Says once why something was not sent."""
        if not self._notices.wait(_PATIENCE_S):
            say(
                "a notice has not been sent yet: the service does not respond; to test it: segue"
                " notify test"
            )
        elif self._notices.notes:
            say(f"{self._notices.notes[0]}; segue notify test")
        self._notices.close(0)


def _claim(folder: Path, name: str) -> bool:
    """Whether this process is the one to send it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(folder / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        os.fsync(handle)
        os.close(handle)
    except FileExistsError:
        return False
    except OSError:
        return True  # a full disk: better twice than never
    return True


def _label(run: Run) -> str:
    folder = run.cwd.rstrip("/").rpartition("/")[2] or "/"
    label = f"{run.agent} in {folder} ({run.id})"
    return "".join(c if c.isprintable() else "?" for c in label)  # a name may be chosen to mislead
