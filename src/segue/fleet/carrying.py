"""Runs a task for a fleet: as on one machine, but only while the fleet hears from this machine.

A process that cannot send its machine's heartbeat ends its agent, and then itself, before another
machine may take the task.
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
from segue.runs.folders import RunFolder
from segue.runs.legs.leg import Leash, Leg
from segue.runs.loop import Loop
from segue.runs.starting.run_request import RunRequest
from segue.runs.store.port import Entry, Lease, LeaseLost, Store
from segue.system.accounts import Accounts
from segue.system.config import config
from segue.system.git import snapshots, worktrees

EXIT_OUT_OF_CONTACT = 75
_LOOK_S = 0.5
_END_S = 10.0
_PUSH_S = 2.0  # how often to check for a new snapshot to push
_LAST_TRIES = 3
_NOT_STORED = "some of its work cannot be stored"

Say = Callable[[str], None]


class LeaseGuard:
    """Sends heartbeats from its own threads. If they do not arrive, or another process has the
    task, it ends the agent of `run` and this process."""

    def __init__(self, pulse: Pulse, env: Mapping[str, str], say: Say) -> None:
        self.pulse, self.env, self.say = pulse, env, say
        self.run = ""
        self.lease: Lease | None = None
        self._pusher: Pusher | None = None
        pulse.checks.append(self._check)
        self._beating = Beating(pulse, self._end_agent)

    def __enter__(self) -> "LeaseGuard":
        self._beating.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._beating.over.set()
        if self._pusher is not None:
            self._pusher.over.set()

    def began(self, task: Task) -> None:
        """Records which run is about to start, and where."""
        self.run = task.run
        self.settle()
        if task.is_url:
            self._pusher = Pusher(task, self.env, self.say)
            self._pusher.start()

    def settle(self) -> None:
        """Ends the pushing of snapshots. One that is being pushed is pushed first: it must not
        replace a newer one later."""
        if self._pusher is not None:
            self._pusher.over.set()
            self._pusher.join()
            self._pusher = None

    def may_start(self) -> Leash:
        """Checks with the database, before a process is started, that the task still belongs to
        this process. Returns the leash for the new process. Raises LeaseLost, StateError."""
        with open_queue() as queue:
            self._check(queue)
        leash = self.pulse.leash.current() if self.pulse.leash is not None else None
        if leash is None:
            raise StateError(
                "the fleet has not heard from this machine for too long: starting nothing"
            )
        return leash

    def _check(self, db: Any) -> None:
        if (lease := self.lease) is not None:
            must_hold(db, lease)

    def _end_agent(self, why: str) -> None:
        with suppress(Exception):
            self.say(f"{why}: ending the agent")
        end_agent(self.run)
        os._exit(EXIT_OUT_OF_CONTACT)


class Pusher(threading.Thread):
    """Pushes each new snapshot of a task's tree to its repository and stores the session with it,
    for a machine that may take the task over."""

    def __init__(self, task: Task, env: Mapping[str, str], say: Say) -> None:
        super().__init__(daemon=True, name="segue-push")
        self.task, self.env, self.say = task, env, say
        self.over = threading.Event()
        self._pushed = self._fault = ""

    def run(self) -> None:
        while not self.over.wait(_PUSH_S):
            try:
                self._pushed = hand_over(self.task, self.env, self._pushed)
            except (SegueError, OSError) as fault:
                if str(fault) != self._fault:
                    self._fault = str(fault)
                    self.say(f"{self.task.id}: {_NOT_STORED}: {fault}")


def hand_over(task: Task, env: Mapping[str, str], pushed: str = "") -> str:
    """Stores the newest snapshot of a task's tree (unless it is `pushed`) and the session as it was
    then, for a machine that may take the task over. Returns the snapshot that is stored now.

    The session is stored first, next to the previous one, so that after an interruption at any
    point one of the two belongs to the snapshot in the repository. Raises SegueError, OSError.
    """
    found = snapshots.list_all(task.tree, task.run)
    if not found or found[-1].commit == pushed:
        return pushed
    commit, fault = found[-1].commit, None
    with _sessions_of(task) as (db, run):
        try:
            if db is not None and run is not None:
                sessions.keep(db, task, run, env, commit)
        except (StateError, OSError) as found_fault:  # the tree must be pushed all the same
            fault = found_fault
        worktrees.push(task.tree, task.repo, commit, trees.snapshot_ref(task))
        if db is not None:
            sessions.pushed(db, task.id, commit)
    if fault is not None:
        raise fault
    return commit


@contextmanager
def _sessions_of(task: Task) -> Iterator[tuple[FleetDatabase | None, Run | None]]:
    """Where a task's sessions are stored, and its run; (None, None) if sessions do not travel."""
    if not config.fleet().carry_sessions:
        yield None, None
        return
    with open_store() as store:
        run = store.run(task.run)
        yield (store, run) if isinstance(store, FleetDatabase) else (None, None)


def _left_behind(task: Task, env: Mapping[str, str], say: Say) -> Task:
    """Deletes what was stored for a takeover if the task is done; otherwise stores the rest."""
    if task.is_url and task.state is TaskState.DONE:
        with suppress(SegueError, OSError):
            with open_queue() as queue:
                if isinstance(queue, FleetDatabase):
                    sessions.forget(queue, task.id)
            worktrees.push(trees.top(task), task.repo, "", trees.snapshot_ref(task))
    elif task.is_url and task.run and not task.is_tree_removed:
        for left in reversed(range(_LAST_TRIES)):
            try:
                hand_over(task, env)
                break
            except (SegueError, OSError) as fault:
                if not left:
                    say(f"{task.id}: {_NOT_STORED}: {fault}")
                else:
                    time.sleep(_LOOK_S)
    return task


def _inherited(store: Store, env: Mapping[str, str], task: Task, wanted: RunRequest) -> RunRequest:
    """The request with the stored session of a machine that was lost. A problem with the session
    never prevents the task from running."""
    former = store.run(task.former_runs[-1])
    if former is None or not isinstance(store, FleetDatabase):
        return wanted
    try:
        conversation = sessions.stored_session(store, task.id, task.salvaged)
        return sessions.inherit(conversation, task, wanted, env, former)
    except OSError:
        return wanted


def _mark_sessions(loop: Loop, env: Mapping[str, str]) -> None:
    """Makes a checkpoint with each snapshot if the agent keeps its session in a database, because
    later nobody could tell what the session was like at that moment."""
    by_size = loop.executor.snapshots.mark

    def mark() -> Callable[[str], None]:
        return sessions.mark_rows(loop.run, env) or by_size()

    if config.fleet().carry_sessions:
        loop.executor.snapshots.mark = mark


def end_agent(run_id: str) -> None:
    """Ends everything that runs for this run on this machine, at once."""
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
    """Records what a leg cost, for its account's caps."""
    if isinstance(fact, LegEnded) and isinstance(accounts, FleetAccounts):
        accounts.record_spend(account, run.id, fact.leg, fact.tokens, fact.cost_usd)


def carry(task_id: str, epoch: int, pulse: Pulse, *, env: Mapping[str, str], say: Say) -> Task:
    """Runs a task until it ends or has to wait. A database outage of less than half a lease
    interrupts nothing: the agent keeps working and is adopted again. Raises LeaseLost if the task
    was given to another process; the agent has ended by then."""
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
                    carrier.listeners.append(partial(_count, accounts, task.account))
                    if (published := output.publisher(store, env)) is not None:
                        carrier.on_look, carrier.left = published.see, published.finish
                    run = task.run or run
                    task = carrier.carry()
                    guard.settle()
                    return _left_behind(task, env, say)
            except LeaseLost:
                end_agent(guard.run)
                raise
            except StateError as fault:
                if lease is None:
                    raise
                run = guard.run or run
                say(f"{task_id}: {fault}")
                time.sleep(_LOOK_S)
