"""Starts a run or continues one: from what the user wants to a loop that is ready to run.

All in one file: everything that is checked before a run exists, in order.
"""

import json
import os
import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from segue.agents import canonical, drives
from segue.agents.contracts.drive import Drive
from segue.agents.custom.drive import Custom, drive_of
from segue.agents.shared.flags import added
from segue.core.nearest import did_you_mean
from segue.core.policy import Policy
from segue.core.runs import machine
from segue.core.runs.types import (
    Abilities,
    AnyFact,
    Created,
    Member,
    Origin,
    Resumed,
    Run,
    RunState,
)
from segue.errors import ConfigError, InputError, SegueError
from segue.runs.briefing.prompts import Prompts
from segue.runs.clock import Clock
from segue.runs.journal import Journal
from segue.runs.legs.leg import Guard, free
from segue.runs.store import leases
from segue.runs.store.port import Held, Holder, Lease, Store, run_key
from segue.system.accounts import Accounts
from segue.system.config import trust
from segue.system.config.settings import Settings
from segue.system.files import tree_lock

if TYPE_CHECKING:
    from segue.runs.loop import Loop

_MODEL_FLAGS = ("--model", "-m")
"""What all agents call it."""


class NoAgent(InputError):  # noqa: N818 - told to the user as it is
    """There is no agent to run, or no way to decide which."""


class CheckNotAccepted(InputError):  # noqa: N818
    """The check comes from a project's file, and the user has not accepted it."""


class TreeTaken(SegueError):  # noqa: N818
    """Another run is working in this tree."""

    exit_code = 2


class RunRequest(Struct, frozen=True, kw_only=True):
    """What the user asks for."""

    task: str
    agent: str
    command: tuple[str, ...]
    drive: Drive
    cwd: str
    policy: Policy
    flags: tuple[str, ...] = ()
    check: str = ""
    share_tree: bool = False
    origin: Origin | None = None  # the session that it continues
    additions: tuple[str, ...] = ()  # what the user added to the task in an earlier run of it
    others: tuple["RunRequest", ...] = ()
    """The same task for each other agent of the list, in order: who may take it over."""

    @property
    def all(self) -> tuple["RunRequest", ...]:
        """One request for each agent of the list."""
        return (self, *self.others)


def register(settings: Settings) -> None:
    """Registers the user's own agents, and their own commands for known ones. Raises
    ConfigError."""
    for name, declared in settings.agents.items():
        try:
            custom = msgspec.convert(declared, Custom)
        except (msgspec.ValidationError, ValueError) as fault:
            raise ConfigError(f"[agents.{name}]: {fault}") from None
        drives.register(name, drive_of(name, custom))


def installed(env: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """The agents that can run here, and their commands."""
    found: dict[str, tuple[str, ...]] = {}
    for name in drives.names():
        drive = drives.find(name)
        if drive is not None and (command := drive.find(env)) is not None:
            found[name] = command
    return found


def none_installed() -> NoAgent:
    """The error for a machine without any agent, with how to install each."""
    hints = [f"  {name}: {drive.install}" for name in drives.NAMES if (drive := drives.find(name))]
    return NoAgent("no agent is installed; to see segue at work without one: segue drill", *hints)


def driven(
    name: str, env: Mapping[str, str], said_by: str = "agent"
) -> tuple[Drive, tuple[str, ...]]:
    """How to drive this agent, and its command. `said_by`: where it was named. Raises NoAgent."""
    drive = drives.find(name)
    if drive is None:
        names = list(drives.names())
        hint = did_you_mean(name, names) or f"segue can drive {', '.join(names)}"
        raise NoAgent(f"{said_by} {name}: no such agent; {hint}")
    command = drive.find(env)
    if command is None:
        raise NoAgent(f"{name} is not installed: {drive.install}")
    return drive, command


def request(
    task: str,
    agent: str,
    settings: Settings,
    env: Mapping[str, str],
    *,
    cwd: str,
    flags: Sequence[str] | None = None,
    policy: Policy | None = None,
    dry: bool = False,
    others: Sequence[str] = (),
) -> RunRequest:
    """The complete request: what the user wants, with the rest from the settings. `flags` are
    only for `agent`; `others` may take over, each with its own configured flags. Raises
    InputError, ConfigError, and CheckNotAccepted unless nothing is to be run."""
    if not dry and needs_yes(settings):
        raise CheckNotAccepted(
            f"{settings.sources['run.check'].at} sets a check that you have not accepted:"
            f" {literal(settings.check)}; accept it with --trust-check, or leave it out with"
            " --no-project-check"
        )
    name = canonical(agent)
    if others:
        _must_be_there((agent, *others), settings, env)
    drive, command = driven(name, env, _agent_source(agent, settings))
    own = settings.flags.get(name, ()) if flags is None else flags
    if fault := drive.refuses(own):
        raise InputError(f"{name}: {fault}")
    return RunRequest(
        task=task,
        agent=name,
        command=command,
        drive=drive,
        cwd=cwd,
        policy=policy or policy_for(settings, name, own),
        flags=tuple(own),
        check=settings.check,
        share_tree=settings.share_tree,
        others=tuple(
            request(task, each, settings, env, cwd=cwd, policy=policy, dry=True) for each in others
        ),
    )


def _must_be_there(names: Sequence[str], settings: Settings, env: Mapping[str, str]) -> None:
    """Raises NoAgent that names all agents that cannot be run, so that one look is enough."""
    faults = []
    for name in names:
        try:
            driven(canonical(name), env, _agent_source(name, settings))
        except NoAgent as fault:
            faults.append(str(fault))
    if faults:
        raise NoAgent("; ".join(faults))


def with_flags(
    drive: Drive, agent: str, before: Sequence[str], more: Sequence[str]
) -> tuple[str, ...]:
    """A run's flags plus those the user adds now. Raises InputError."""
    found = added(before, more, drive)
    if fault := drive.refuses(found):
        raise InputError(f"{agent}: {fault}")
    return found


def needs_yes(settings: Settings) -> bool:
    """Whether the check comes from a project's file, and the user has not accepted this text."""
    if not settings.check or settings.sources["run.check"].kind != "project file":
        return False
    assert settings.project_file is not None
    return not trust.is_accepted(settings.project_file.parent, settings.check)


def literal(command: str) -> str:
    """A command on one line, with everything in it made visible: nobody should accept what a
    terminal hides."""
    return command if command.isascii() and command.isprintable() else json.dumps(command)


def _agent_source(agent: str, settings: Settings) -> str:
    """Where the user named this agent."""
    source = settings.sources.get("run.agent")
    if source is None or agent not in (settings.agent, *settings.relay) or source.kind == "default":
        return "agent"
    is_file = source.kind in ("user file", "project file")
    return f"{source.at}: agent =" if is_file else source.at


def policy_for(settings: Settings, agent: str, flags: Sequence[str]) -> Policy:
    """The policy for this agent and, if its flags name a model, for that model. A model that
    only the agent's own config names is unknown before the agent runs."""
    model = ""
    for place, word in enumerate(flags):
        name, has_value, value = word.partition("=")
        if name in _MODEL_FLAGS:
            model = value if has_value else next(iter(flags[place + 1 :]), "")
    # Agents that know several providers put the provider before it.
    return settings.policy(agent, model.rpartition("/")[2])


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
        relay=tuple(map(member_of, wanted.all)) if wanted.others else (),
        origin=wanted.origin,
    )


def member_of(wanted: RunRequest) -> Member:
    """One agent of a run's list."""
    return Member(
        agent=wanted.agent,
        flags=wanted.flags,
        abilities=Abilities(
            talks=wanted.drive.talks,
            resumes=wanted.drive.resumes,
            resume_factor=wanted.drive.resume_factor,
        ),
        policy=replace(wanted.policy, notify=()),  # addresses may hold keys, and stay out of logs
    )


def with_policies(run: Run, settings: Settings) -> tuple[Member, ...]:
    """The list of a run's agents, each with its currently configured policy."""
    return tuple(
        replace(each, policy=replace(policy_for(settings, each.agent, each.flags), notify=()))
        for each in run.relay
    )


_LAST_RUNS = 100
_COMMAND, _PROGRAM = "segue", "a program's"
"""How the notes of holders begin."""


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
        said: str = "",
    ) -> "tuple[Loop, AnyFact | None]":
        """Continues a run that has ended, or whose segue is gone, with the fact that resumes it,
        if it accepts one. `said`: what the user adds to the task. Raises Held if a segue still
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
        wants_more = wants_more or said != ""
        policy = policy and replace(policy, notify=())
        again = Resumed(
            fresh=fresh, strict=strict, policy=policy, flags=flags, relay=relay, addition=said
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
