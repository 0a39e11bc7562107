"""Carries a task for a fleet: as on one machine, and never longer than this machine is heard.

A process that cannot tell the database that its machine lives ends its agent before anybody else
may take the task, and itself with it.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from segue.core.queue.types import Task, TaskState
from segue.core.runs.types import AnyFact, LegEnded, Run, RunStep
from segue.errors import SegueError, StateError
from segue.fleet import open_accounts, open_queue, open_store
from segue.fleet.accounts import FleetAccounts
from segue.fleet.machines import Beating, Pulse
from segue.fleet.queue import must_hold
from segue.queue import trees
from segue.queue.carrier import Carrier, take
from segue.runs.folders import RunFolder
from segue.runs.legs.leg import Leash, Leg
from segue.runs.store.port import Entry, Lease, LeaseLost
from segue.system.accounts import Accounts
from segue.system.git import snapshots, worktrees

GONE = 75
_LOOK_S = 0.5
_END_S = 10.0
_PUSH_S = 2.0  # how often it is looked whether there is something new to push

Say = Callable[[str], None]


class LeaseGuard:
    """Beats in threads of its own. If nobody hears it, or another has the task, ends what `run`
    names, and the process."""

    def __init__(self, pulse: Pulse, say: Say) -> None:
        self.pulse, self.say = pulse, say
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
            Pusher(task, self._beating.over, self.say).start()

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
    """Pushes each new snapshot of a task's tree to its repository, for whoever takes it over."""

    def __init__(self, task: Task, over: threading.Event, say: Say) -> None:
        super().__init__(daemon=True, name="segue-push")
        self.task, self.over, self.say = task, over, say
        self._pushed = self._fault = ""

    def run(self) -> None:
        while not self.over.wait(_PUSH_S):
            try:
                self._pushed = push_newest(self.task, self._pushed)
            except (SegueError, OSError) as fault:
                if str(fault) != self._fault:
                    self._fault = str(fault)
                    self.say(f"{self.task.id}: its work cannot be pushed: {fault}")


def push_newest(task: Task, pushed: str = "") -> str:
    """Pushes the newest snapshot of a task's tree, unless it is that one; which it is now. Raises
    SegueError, OSError."""
    found = snapshots.list_all(task.tree, task.run)
    if found and found[-1].commit != pushed:
        worktrees.push(task.tree, task.repo, found[-1].commit, trees.snapshot_ref(task))
        return found[-1].commit
    return pushed


def _pushed(task: Task) -> Task:
    """Of a task that is done nothing has to be taken over any more; of another, all."""
    with suppress(SegueError, OSError):
        if task.is_url and task.state is TaskState.DONE:
            worktrees.push(trees.top(task), task.repo, "", trees.snapshot_ref(task))
        elif task.is_url and task.run and not task.is_tree_removed:
            push_newest(task)
    return task


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
    accounts = open_accounts()
    with LeaseGuard(pulse, say) as guard:
        while True:
            try:
                with open_queue() as queue, open_store() as store:
                    if lease is None:
                        lease, task = take(queue, task_id, epoch, time.time())
                        guard.lease = lease
                    else:
                        task = queue.task(task_id) or task
                    carrier = Carrier(queue, store, lease, task, env=env, say=say, seize=bool(run))
                    carrier.began, carrier.guard = guard.began, guard.may_start
                    carrier.accounts = accounts
                    carrier.heard.append(partial(_count, accounts, task.account))
                    run = task.run or run
                    return _pushed(carrier.carry())
            except LeaseLost:
                end_agent(guard.run)
                raise
            except StateError as fault:
                if lease is None:
                    raise
                run = guard.run or run
                say(f"{task_id}: {fault}")
                time.sleep(_LOOK_S)
