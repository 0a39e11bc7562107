"""Starts a run or continues one. It holds the run, its session and its working tree in the store:
no other process works on them meanwhile."""

import os
import random
import secrets
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from msgspec.structs import replace

from segue.agents.contracts.drive import Drive
from segue.core.policy import Policy
from segue.core.runs import machine
from segue.core.runs.types import (
    AnyFact,
    Created,
    Member,
    Resumed,
    Run,
    RunState,
)
from segue.errors import SegueError
from segue.runs.briefing.prompts import Prompts
from segue.runs.clock import Clock
from segue.runs.journal import Journal
from segue.runs.legs.leg import Guard, free
from segue.runs.starting.run_request import RunRequest, member_of
from segue.runs.store import leases
from segue.runs.store.port import Held, Holder, Lease, Store, run_key
from segue.system.accounts import Accounts
from segue.system.files import tree_lock

if TYPE_CHECKING:
    from segue.runs.loop import Loop

_LAST_RUNS = 100
_COMMAND, _PROGRAM = "segue", "a program's"
"""How the notes of holders begin."""


class TreeTaken(SegueError):  # noqa: N818
    """Another run is working in this tree."""

    exit_code = 2


def new_id() -> str:
    """A new run's id."""
    return f"run-{secrets.token_hex(4)}"


def new_run(wanted: RunRequest, now: float, run_id: str = "") -> Run:
    """A run to which nothing has happened yet."""
    first = member_of(wanted)
    return Run(
        id=run_id or new_id(),
        task=wanted.task,
        additions=wanted.additions,
        agent=wanted.agent,
        cwd=wanted.cwd,
        created_at=now,
        policy=first.policy,
        abilities=first.abilities,
        flags=wanted.flags,
        check=wanted.check,
        relay=tuple(map(member_of, wanted.all)) if wanted.successors else (),
        origin=wanted.origin,
    )


def is_command(holder: Holder) -> bool:
    """Whether a holder is one of segue's own commands, which may be ended, and not a program
    that runs tasks through the library."""
    return holder.note.startswith(_COMMAND)


class Driver:
    """Drives a run: a loop, and everything it holds in the store. A context manager."""

    def __init__(
        self,
        store: Store,
        *,
        env: Mapping[str, str],
        prompts: Mapping[str, Path],
        clock: Clock | None = None,
        draw: Callable[[], float] = random.random,
        seize: bool = False,
        is_program: bool = False,
        guard: Guard = free,
        accounts: Accounts | None = None,
    ) -> None:
        """`is_program`: the process is not a segue command, so nobody may end it. `guard` is
        called before any process of the run is started. `accounts`: the source of their
        limits."""
        self._guard, self._accounts = guard, accounts
        self.store, self.env, self.clock, self.draw = store, env, clock or Clock(), draw
        self.prompts, self.seize = Prompts(dict(prompts)), seize
        self._holder_name = _PROGRAM if is_program else _COMMAND
        self._stack = ExitStack()
        self._held: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def begin(self, wanted: RunRequest, run_id: str = "") -> "Loop":
        """Starts a new run. When this returns, the run is stored and its first leg is decided.
        `run_id` is for callers who reserved one; no run may have it."""
        now = self.clock.now()
        run = new_run(wanted, now, run_id)
        while not run_id and self.store.find(run.id):
            run = new_run(wanted, now)
        run = replace(run, quantile=self._quantile(run))
        if not wanted.share_tree:
            self._hold_tree(run)
        if (origin := wanted.origin) is not None:  # two rescues of it would do its work twice
            self._hold(
                f"session:{origin.agent}:{origin.session_id}", f"{self._holder_name} run {run.id}"
            )
        draw = self.draw()
        step = machine.step(run, Created(), at=now, draw=draw)
        lease = self._hold(run_key(run.id), f"{self._holder_name} run {run.id}")
        self.store.create(run, after=step.run, at=now, draw=draw, decisions=step.decisions)
        return self._loop(step.run, wanted.drive, wanted.command, lease)

    def _quantile(self, run: Run) -> float | None:
        """With `adaptive`, the initial look-ahead: as the agent's last run left it."""
        if not run.policy.adaptive:
            return None
        last = self.store.runs(limit=_LAST_RUNS)
        known = [each.quantile for each in last if each.agent == run.agent]
        return next((each for each in known if each is not None), None)

    def go_on(
        self,
        run: Run,
        drive: Drive,
        command: tuple[str, ...],
        *,
        fresh: bool = False,
        strict: bool = False,
        share_tree: bool = False,
        policy: Policy | None = None,
        flags: tuple[str, ...] | None = None,
        relay: tuple[Member, ...] | None = None,
        addition: str = "",
    ) -> "tuple[Loop, AnyFact | None]":
        """Continues a run that has ended, or whose segue is gone, with the fact that resumes it,
        if it accepts one. `addition`: what the user adds to the task. Raises Held if a segue still
        drives it."""
        lease = self._hold(run_key(run.id), f"{self._holder_name} resume {run.id}")
        if not share_tree:
            self._hold_tree(run)
        run = self.store.run(run.id) or run  # its current state, now that nobody else writes
        is_over = run.state.is_final or run.state is RunState.STOPPING
        # A resume withdraws requests to a segue that is gone.
        was_asked = bool(self.store.asks(run.id))
        is_over = is_over or run.interrupted != "" or was_asked
        wants_more = is_over or fresh or strict or policy is not None or flags is not None
        wants_more = wants_more or addition != ""
        policy = policy and replace(policy, notify=())
        again = Resumed(
            fresh=fresh, strict=strict, policy=policy, flags=flags, relay=relay, addition=addition
        )
        fact = again if wants_more else None
        return self._loop(run, drive, command, lease), fact

    def _loop(self, run: Run, drive: Drive, command: tuple[str, ...], lease: Lease) -> "Loop":
        # Slow to import, and not needed where a run is only looked at, refused or submitted.
        from segue.runs.executor import Executor
        from segue.runs.loop import Loop

        journal = Journal(self.store, run, lease, clock=self.clock.now, draw=self.draw)
        executor = Executor(
            run,
            drive=drive,
            command=command,
            prompts=self.prompts,
            store=self.store,
            env=self.env,
            hold=partial(self._hold_once, note=f"{self._holder_name} run {run.id}"),
            accounts=self._accounts,
        )
        loop = Loop(journal, executor, clock=self.clock)
        guard = self._guard

        def ask() -> None:
            executor.leash = guard()

        loop.guard = ask
        return loop

    def _hold_tree(self, run: Run) -> None:
        tree = _tree_of(run.cwd)
        try:
            self._hold(f"tree:{tree}", f"{self._holder_name} run {run.id}")
        except Held as held:
            raise TreeTaken(
                f"another run works in {tree} ({held.holder.note}, process {held.holder.pid});"
                " wait for it, or use --share-tree"
            ) from None
        try:
            lock = tree_lock.hold(tree)  # against runs of another SEGUE_HOME
        except tree_lock.TreeLocked as taken:
            raise TreeTaken(
                f"another run works in {tree} (process {taken.pid or 'unknown'}, of another"
                " SEGUE_HOME); wait for it, or use --share-tree"
            ) from None
        if lock is not None:
            self._stack.callback(lock.release)

    def _hold_once(self, key: str, note: str) -> None:
        if key not in self._held:
            self._hold(key, note)

    def _release(self, lease: Lease) -> None:
        """Releases the lease; one that cannot be released ends with this process. An exception
        in flight, such as how to continue once the disk has room again, must not be lost
        because of it."""
        with suppress(SegueError, OSError):
            self.store.release(lease)

    def _hold(self, key: str, note: str) -> Lease:
        lease = self.store.acquire(key, leases.me(note), self.clock.now(), seize=self.seize)
        self._stack.callback(self._release, lease)
        self._held.add(key)
        return lease


def _tree_of(cwd: str) -> str:
    """The working tree of a folder; without git, the folder itself."""
    real = Path(os.path.realpath(cwd))
    return str(next((p for p in (real, *real.parents) if (p / ".git").exists()), real))
