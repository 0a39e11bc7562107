"""Resumes runs that no process drives, after a reboot, a kill or a hang-up: each in its own
process, as `segue resume` would. The run's lease ensures that there is only one."""

import os
import random
from collections.abc import Callable

from segue.core.resumes import takeups as takeup
from segue.core.resumes.decisions import AskUser, Leave, WaitForReset
from segue.core.runs.types import Run
from segue.core.sessions.types import Session
from segue.queue import open_queue, queue_path
from segue.runs.detached import Detached
from segue.runs.store import leases, open_store
from segue.runs.store.port import Store, run_key
from segue.system.files import state
from segue.watch.resumes.pending import local_time
from segue.watch.state import DaemonState

LOOK_S = 10.0
"""How often it is looked whether a run's segue is gone; more often if one may be."""
_SOON_S = 1.0


class Takeups:
    """Runs in the thread of the daemon's loop."""

    def __init__(
        self,
        world: DaemonState,
        left_at: Callable[[str], float | None] = lambda cwd: None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.world = world
        self._user_left_at, self._draw = left_at, draw
        self.next_at = 0.0
        self._gone: dict[str, float] = {}  # since when runs were seen without a segue
        self._started: dict[str, Detached] = {}
        self._told: dict[str, str] = {}  # what was last said of a run
        self._last_at: float | None = None

    def tick(self, now: float) -> None:
        """Looks, if it is time, and resumes runs that may continue."""
        if now < self.next_at:
            return
        self.next_at = now + LOOK_S
        if not os.path.exists(os.path.join(state.state_folder(), "runs.db")):
            return
        with open_store() as store:
            queued = _runs_of_tasks()  # which a worker of the queue sees to
            unfinished = [run for run in store.runs(unfinished=True) if run.id not in queued]
            found = [run for run in unfinished if not self._is_driven(store, run)]
            self._gone = {run.id: self._gone.get(run.id, now) for run in found}
            self._reap(store)
            for run in reversed(found):  # the oldest first
                self._look(store, run, now)

    def _is_driven(self, store: Store, run: Run) -> bool:
        holder = store.holder(run_key(run.id))
        return holder is not None and leases.is_alive(holder)

    def _look(self, store: Store, run: Run, now: float) -> None:
        if run.id in self._started:
            self.next_at = now + _SOON_S
            return  # it is on its way
        entries = store.log(run.id)
        policy = self.world.rules.policy(run.agent, "", run.cwd)
        tries, tried_at = self._tries(run)
        left = takeup.Left(
            run=run,
            last_at=entries[-1].at if entries else run.created_at,
            gone_since=self._gone[run.id],
            cancel_asked=any(ask.what == "cancel" for ask in store.asks(run.id)),
            is_elsewhere=bool(entries) and entries[-1].machine != leases.machine(),
            has_folder=os.path.isdir(run.cwd),
            tries=tries,
            tried_at=tried_at,
            paused=self.world.is_paused(_session(run)),
            user_left_project_at=self._user_left_at(run.cwd),
            last_takeup_at=self._last_at,
        )
        verdict = takeup.decide(left, policy, now=now, local=local_time, draw=self._draw())
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
                self.world.notices.tell("needs_you", run.id, what, f"{why}; segue resume {run.id}")
            case Leave():
                pass

    def _take_up(self, run: Run, why: str, number: int) -> None:
        """Resumes a run. The try is logged first, so it counts even if the daemon is killed in
        between."""
        now = self._last_at = self.world.clock.now()
        self.next_at = now + _SOON_S
        self.world.note("takeup", _session(run), {"run": run.id, "try": number, "why": why})
        self._say(run, f"resumed: {why}")
        try:
            self._started[run.id] = Detached(run, (), self.world.env)
        except OSError as fault:
            self._say(run, f"cannot be resumed: {fault}; to resume: segue resume {run.id}")
            return
        self.world.notices.tell("resume", f"{run.id}:{number}", f"{run.id} resumes", why)

    def _reap(self, store: Store) -> None:
        """Reaps the processes that have ended."""
        for run_id, there in list(self._started.items()):
            if (code := there.process.poll()) is None:
                continue
            del self._started[run_id]
            found = store.run(run_id)
            if found is not None and not found.state.is_final:
                self._say(found, f"its segue ended with {code}: {there.said()}")

    def _tries(self, run: Run) -> tuple[int, float | None]:
        """How often it was resumed, and when last, including by previous daemons."""
        notes = self.world.log.of(run.agent, run.id, ("takeup",))
        return len(notes), notes[-1].at if notes else None

    def _say(self, run: Run, line: str) -> None:
        if self._told.get(run.id) != line:
            self._told[run.id] = line
            self.world.say(f"{run.id}: {line}")


def _runs_of_tasks() -> set[str]:
    """The runs of unfinished tasks."""
    if not os.path.exists(queue_path()):
        return set()
    with open_queue() as queue:
        return {task.run for task in queue.tasks(unfinished=True)}


def _session(run: Run) -> Session:
    """The name of a run in notes and pauses."""
    return Session(agent=run.agent, session_id=run.id, path="", cwd=run.cwd)
