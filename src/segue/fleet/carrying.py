"""Carries a task for a fleet: as on one machine, and never longer than this machine is heard.

A process that cannot tell the database that its machine lives ends its agent before anybody else
may take the task, and itself with it.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from segue.core.queue.types import Task, TaskState
from segue.core.runs.types import AnyFact, LegEnded, Run, RunStep
from segue.errors import SegueError, StateError
from segue.fleet import open_accounts, open_queue, open_store, output, sessions
from segue.fleet.accounts import FleetAccounts
from segue.fleet.database import FleetDatabase
from segue.fleet.machines import Beating, Pulse
from segue.fleet.queue import must_hold
from segue.queue import trees
from segue.queue.carrier import Carrier, take
from segue.runs.begin import RunRequest
from segue.runs.folders import RunFolder
from segue.runs.legs.leg import Leash, Leg
from segue.runs.loop import Loop
from segue.runs.store.port import Entry, Lease, LeaseLost, Store
from segue.system.accounts import Accounts
from segue.system.config import config
from segue.system.git import snapshots, worktrees

GONE = 75
_LOOK_S = 0.5
_END_S = 10.0
_PUSH_S = 2.0  # how often it is looked whether there is something new to push

Say = Callable[[str], None]


class LeaseGuard:
    """Beats in threads of its own. If nobody hears it, or another has the task, ends what `run`
    names, and the process."""

    def __init__(self, pulse: Pulse, env: Mapping[str, str], say: Say) -> None:
        self.pulse, self.env, self.say = pulse, env, say
        self.run = ""
        self.lease: Lease | None = None
        pulse.checks.append(self._check)
        self._beating = Beating(pulse, self._lost)

    def __enter__(self) -> "LeaseGuard":
        self._beating.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._beating.over.set()

    def began(self, task: Task) -> None:
        """Which run is about to be driven, and where."""
        self.run = task.run
        if task.is_url:
            Pusher(task, self._beating.over, self.env, self.say).start()

    def may_start(self) -> Leash:
        """Before any process is started: the task is still this process's, as the database says
        now; what holds the new one. Raises LeaseLost, StateError."""
        with open_queue() as queue:
            self._check(queue)
        leash = self.pulse.leash.current() if self.pulse.leash is not None else None
        if leash is None:
            raise StateError("this machine has not been heard for too long: nothing is started")
        return leash

    def _check(self, db: Any) -> None:
        if (lease := self.lease) is not None:
            must_hold(db, lease)

    def _lost(self, why: str) -> None:
        with suppress(Exception):
            self.say(f"{why}: ending the agent")
        end_agent(self.run)
        os._exit(GONE)


class Pusher(threading.Thread):
    """Pushes each new snapshot of a task's tree to its repository, and keeps its session then, for
    whoever takes it over."""

    def __init__(self, task: Task, over: threading.Event, env: Mapping[str, str], say: Say) -> None:
        super().__init__(daemon=True, name="segue-push")
        self.task, self.over, self.env, self.say = task, over, env, say
        self._pushed = self._fault = ""

    def run(self) -> None:
        while not self.over.wait(_PUSH_S):
            try:
                self._pushed = hand_over(self.task, self.env, self._pushed)
            except (SegueError, OSError) as fault:
                if str(fault) != self._fault:
                    self._fault = str(fault)
                    self.say(f"{self.task.id}: not all of its work can be kept: {fault}")


def hand_over(task: Task, env: Mapping[str, str], pushed: str = "") -> str:
    """Gives the newest snapshot of a task's tree, unless it is that one, and the session as it was
    then to whoever takes the task over; which snapshot it is now.

    The session comes first, beside the one before: whenever this is cut off, one of the two belongs
    to the snapshot that the repository has. Raises SegueError, OSError."""
    found = snapshots.list_all(task.tree, task.run)
    if not found or found[-1].commit == pushed:
        return pushed
    commit, fault = found[-1].commit, None
    with _sessions_of(task) as (db, run):
        try:
            if db is not None and run is not None:
                sessions.keep(db, task, run, env, commit)
        except (StateError, OSError) as found_fault:  # the tree must come through all the same
            fault = found_fault
        worktrees.push(task.tree, task.repo, commit, trees.snapshot_ref(task))
        if db is not None:
            sessions.pushed(db, task.id, commit)
    if fault is not None:
        raise fault
    return commit


@contextmanager
def _sessions_of(task: Task) -> Iterator[tuple[FleetDatabase | None, Run | None]]:
    """Where a task's sessions are kept, and its run; nothing if they do not travel."""
    if not config.fleet().carry_sessions:
        yield None, None
        return
    with open_store() as store:
        run = store.run(task.run)
        yield (store, run) if isinstance(store, FleetDatabase) else (None, None)


def _left_behind(task: Task, env: Mapping[str, str]) -> Task:
    """Of a task that is done nothing has to be taken over any more; of another, all."""
    with suppress(SegueError, OSError):
        if task.is_url and task.state is TaskState.DONE:
            with open_queue() as queue:
                if isinstance(queue, FleetDatabase):
                    sessions.forget(queue, task.id)
            worktrees.push(trees.top(task), task.repo, "", trees.snapshot_ref(task))
        elif task.is_url and task.run and not task.is_tree_removed:
            hand_over(task, env)
    return task


def _inherited(store: Store, env: Mapping[str, str], task: Task, wanted: RunRequest) -> RunRequest:
    """With what was kept of the session of a machine that was lost. Nothing that is wrong with it
    keeps the task from being done."""
    former = store.run(task.former_runs[-1])
    if former is None or not isinstance(store, FleetDatabase):
        return wanted
    try:
        kept = sessions.kept(store, task.id, task.salvaged)
        return sessions.inherit(kept, task, wanted, env, former)
    except OSError:
        return wanted


def _mark_sessions(loop: Loop, env: Mapping[str, str]) -> None:
    """Of a session that the agent keeps in a database, its checkpoint is made with each snapshot:
    afterwards nobody could tell what it was then."""
    by_size = loop.crew.snapshots.mark

    def mark() -> Callable[[str], None]:
        return sessions.mark_rows(loop.run, env) or by_size()

    if config.fleet().carry_sessions:
        loop.crew.snapshots.mark = mark


def end_agent(run_id: str) -> None:
    """Ends whatever runs for this run on this machine, at once."""
    folder = RunFolder(run_id).path
    legs = [*folder.glob("leg-*"), *folder.glob("check-*")] if run_id else []
    live = [leg for leg in map(Leg, legs) if leg.status().state in ("starting", "running")]
    for leg in live:
        with suppress(Exception):
            leg.command("fleet-lease", "kill")
    for leg in live:
        with suppress(Exception):
            leg.wait(_END_S)


def _count(
    accounts: Accounts, account: str, run: Run, fact: AnyFact, step: RunStep, entry: Entry
) -> None:
    """What a leg cost, for the caps of its account."""
    if isinstance(fact, LegEnded) and isinstance(accounts, FleetAccounts):
        accounts.spent(account, run.id, fact.leg, fact.tokens, fact.cost_usd)


def carry(task_id: str, epoch: int, pulse: Pulse, *, env: Mapping[str, str], say: Say) -> Task:
    """To its end, or to a wait. An outage of the database that is shorter than half of the lease
    interrupts nothing: the agent works on, and is taken up again. Raises LeaseLost if the task was
    given to another: its agent is ended by then."""
    lease: Lease | None = None
    run = ""
    with LeaseGuard(pulse, env, say) as guard:
        while True:
            try:
                with open_queue() as queue, open_store(queue) as store:
                    accounts = open_accounts(queue)
                    if lease is None:
                        lease, task = take(queue, task_id, epoch, time.time())
                        guard.lease = lease
                    else:
                        task = queue.task(task_id) or task
                    carrier = Carrier(queue, store, lease, task, env=env, say=say, seize=bool(run))
                    carrier.began, carrier.guard = guard.began, guard.may_start
                    carrier.accounts, carrier.inherit = accounts, partial(_inherited, store, env)
                    carrier.ready = partial(_mark_sessions, env=env)
                    carrier.heard.append(partial(_count, accounts, task.account))
                    if (published := output.publisher(store, env)) is not None:
                        carrier.seen, carrier.left = published.see, published.finish
                    run = task.run or run
                    return _left_behind(carrier.carry(), env)
            except LeaseLost:
                end_agent(guard.run)
                raise
            except StateError as fault:
                if lease is None:
                    raise
                run = guard.run or run
                say(f"{task_id}: {fault}")
                time.sleep(_LOOK_S)
