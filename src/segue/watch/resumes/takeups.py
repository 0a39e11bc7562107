"""Resumes runs that no process drives, after a reboot, a kill or a hang-up: each in its own
process, as `segue resume` would. The run's lease ensures that there is only one."""

import os
import random
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from segue.core.resumes import takeups as takeup
from segue.core.resumes.decisions import AskUser, Leave, WaitForReset
from segue.core.resumes.quiet_hours import Local
from segue.core.runs.types import Run
from segue.core.sessions.types import Session
from segue.errors import in_words
from segue.queue import open_queue, queue_path
from segue.runs.starting.detached import Detached
from segue.runs.store import leases, open_store
from segue.runs.store.port import Holder, Store, run_key
from segue.system.files import state
from segue.watch.resumes.pending import local_time
from segue.watch.state import DaemonState

LOOK_S = 10.0
"""How often to check whether a run's segue is gone; more often if one may be."""
_SOON_S = 1.0


class RunsHere:
    """The runs of this machine, and which processes drive them. A simulation replaces it."""

    def store(self) -> AbstractContextManager[Store] | None:
        """The open store; None if there was never a run."""
        if not os.path.exists(os.path.join(state.state_folder(), "runs.db")):
            return None
        return open_store()

    def is_alive(self, holder: Holder) -> bool:
        """Whether that process still exists."""
        return leases.is_alive(holder)

    def is_elsewhere(self, machine: str) -> bool:
        """Whether that is another machine's name."""
        return machine != leases.machine()

    def has_folder(self, run: Run) -> bool:
        """Whether the run's folder is still there."""
        return os.path.isdir(run.cwd)

    def queued(self) -> set[str]:
        """The runs of unfinished tasks: a worker of the queue takes care of those."""
        if not os.path.exists(queue_path()):
            return set()
        with open_queue() as queue:
            return {task.run for task in queue.tasks(unfinished=True)}

    def resume(self, run: Run, env: Mapping[str, str]) -> Detached:
        """Runs `segue resume` in a separate process. Raises OSError."""
        return Detached(run, (), env)


class Takeups:
    """Resumes the runs of this machine. Only for the thread of the daemon's loop."""

    def __init__(
        self,
        state: DaemonState,
        left_at: Callable[[str], float | None] = lambda cwd: None,
        draw: Callable[[], float] = random.random,
        runs: RunsHere | None = None,
        local: Local = local_time,
    ) -> None:
        self.state, self.runs, self.local = state, runs or RunsHere(), local
        self._user_left_at, self._draw = left_at, draw
        self.next_at = 0.0
        self._unattended_since: dict[str, float] = {}  # since when runs were seen without a segue
        self._started: dict[str, Detached] = {}
        self._reported: dict[str, str] = {}  # what was last said about a run
        self._last_at: float | None = None

    def tick(self, now: float) -> None:
        """Looks, if it is time, and resumes runs that may continue."""
        if now < self.next_at:
            return
        self.next_at = now + LOOK_S
        opened = self.runs.store()
        if opened is None:
            return
        with opened as store:
            queued = self.runs.queued()
            unfinished = [run for run in store.runs(unfinished=True) if run.id not in queued]
            found = [run for run in unfinished if not self._is_driven(store, run)]
            self._unattended_since = {
                run.id: self._unattended_since.get(run.id, now) for run in found
            }
            self._reap(store)
            for run in reversed(found):  # the oldest first
                self._look(store, run, now)

    def _is_driven(self, store: Store, run: Run) -> bool:
        holder = store.holder(run_key(run.id))
        return holder is not None and self.runs.is_alive(holder)

    def _look(self, store: Store, run: Run, now: float) -> None:
        if run.id in self._started:
            self.next_at = now + _SOON_S
            return  # it is on its way
        policy = self.state.rules.policy(run.agent, "", run.cwd)
        if not policy.auto_resume:
            return  # its log need not be read to see that it is left alone
        entries = store.log(run.id)
        tries, tried_at = self._tries(run)
        left = takeup.AbandonedRun(
            run=run,
            last_at=entries[-1].at if entries else run.created_at,
            gone_since=self._unattended_since[run.id],
            cancel_asked=any(ask.what == "cancel" for ask in store.asks(run.id)),
            is_elsewhere=bool(entries) and self.runs.is_elsewhere(entries[-1].machine),
            has_folder=self.runs.has_folder(run),
            tries=tries,
            tried_at=tried_at,
            paused=self.state.is_paused(_session(run)),
            user_left_project_at=self._user_left_at(run.cwd),
            last_takeup_at=self._last_at,
        )
        verdict = takeup.decide(left, policy, now=now, local=self.local, draw=self._draw())
        match verdict:
            case takeup.TakeUp(why=why):
                self._take_up(run, why, tries + 1)
            case WaitForReset(until=until, why=why):
                self.next_at = min(self.next_at, max(now + _SOON_S, until))
                if until > now + takeup.SETTLE_S:
                    self._say(run, f"waits: {why}")
            case AskUser(why=why):
                self._say(run, f"{why}; to resume: segue resume {run.id}")
                what = f"{run.id} needs you"
                self.state.notices.tell("needs_you", run.id, what, f"{why}; segue resume {run.id}")
            case Leave():
                pass

    def _take_up(self, run: Run, why: str, number: int) -> None:
        """Resumes a run. The try is logged first, so it counts even if the daemon is killed in
        between."""
        now = self._last_at = self.state.clock.now()
        self.next_at = now + _SOON_S
        self.state.note("takeup", _session(run), {"run": run.id, "try": number, "why": why})
        self._say(run, f"resumed: {why}")
        try:
            self._started[run.id] = self.runs.resume(run, self.state.env)
        except OSError as fault:
            self._say(
                run, f"cannot be resumed: {in_words(fault)}; to resume: segue resume {run.id}"
            )
            return
        self.state.notices.tell("resume", f"{run.id}:{number}", f"{run.id} resumes", why)

    def _reap(self, store: Store) -> None:
        """Reaps the processes that have ended."""
        for run_id, process in list(self._started.items()):
            if (code := process.process.poll()) is None:
                continue
            del self._started[run_id]
            found = store.run(run_id)
            if found is not None and not found.state.is_final:
                self._say(found, f"its segue ended with {code}: {process.last_line()}")

    def _tries(self, run: Run) -> tuple[int, float | None]:
        """How often a run was resumed, and when last, including by previous daemons."""
        notes = self.state.log.of(run.agent, run.id, ("takeup",))
        return len(notes), notes[-1].at if notes else None

    def _say(self, run: Run, line: str) -> None:
        if self._reported.get(run.id) != line:
            self._reported[run.id] = line
            self.state.say(f"{run.id}: {line}")


def _session(run: Run) -> Session:
    """The name of a run in notes and pauses."""
    return Session(agent=run.agent, session_id=run.id, path="", cwd=run.cwd)
