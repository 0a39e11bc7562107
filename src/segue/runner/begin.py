"""Begins a run, or goes on with one: from what the user wants to a loop that can be run."""

import os
import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Self

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from segue.agents import canonical, drives
from segue.agents.drive import Drive
from segue.agents.drives.custom import Custom, drive_of
from segue.core import machine
from segue.core.policy import Policy
from segue.core.run import Abilities, AnyFact, Created, Resumed, Run, State
from segue.errors import ConfigError, InputError, SegueError
from segue.io.settings import Settings
from segue.runner.clock import Clock
from segue.runner.crew import Crew
from segue.runner.journal import Journal
from segue.runner.loop import Loop
from segue.runner.prompts import Prompts
from segue.store import leases
from segue.store.port import Held, Lease, Store, run_key

_MODEL_FLAGS = ("--model", "-m")
"""What all agents call it."""


class NoAgent(InputError):  # noqa: N818 - told to the user as it is
    """There is no agent to run, or no way to tell which."""


class TreeTaken(SegueError):  # noqa: N818
    """Another run works in this tree."""

    exit_code = 2


class Wanted(Struct, frozen=True, kw_only=True):
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


def register(settings: Settings) -> None:
    """The user's own agents, and their own commands for known ones. Raises ConfigError."""
    for name, said in settings.agents.items():
        try:
            custom = msgspec.convert(said, Custom)
        except (msgspec.ValidationError, ValueError) as fault:
            raise ConfigError(f"[agents.{name}]: {fault}") from None
        drives.register(name, drive_of(name, custom))


def installed(env: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """The agents that could be run here, and by which command."""
    found: dict[str, tuple[str, ...]] = {}
    for name in drives.names():
        drive = drives.find(name)
        if drive is not None and (command := drive.find(env)) is not None:
            found[name] = command
    return found


def how_to_install() -> str:
    """For a machine without any agent."""
    hints = [f"  {name}: {drive.install}" for name in drives.NAMES if (drive := drives.find(name))]
    told = "\n".join(hints)
    return f"no agent is installed. Any of these will do:\n{told}\nUntil then: segue drill"


def driven(name: str, env: Mapping[str, str]) -> tuple[Drive, tuple[str, ...]]:
    """How this agent is driven, and its command. Raises NoAgent."""
    drive = drives.find(name)
    if drive is None:
        known = ", ".join(drives.names())
        raise NoAgent(f"--agent {name}: no such agent; segue can drive {known}")
    command = drive.find(env)
    if command is None:
        raise NoAgent(f"{name} is not installed: {drive.install}")
    return drive, command


def wanted(
    task: str,
    agent: str,
    settings: Settings,
    env: Mapping[str, str],
    *,
    cwd: str,
    flags: Sequence[str] | None = None,
    policy: Policy | None = None,
) -> Wanted:
    """What the user wants, where the settings say the rest. Raises InputError, ConfigError."""
    name = canonical(agent)
    drive, command = driven(name, env)
    own = settings.flags.get(name, ()) if flags is None else flags
    if fault := drive.refuses(own):
        raise InputError(f"{name}: {fault}")
    return Wanted(
        task=task,
        agent=name,
        command=command,
        drive=drive,
        cwd=cwd,
        policy=policy or policy_for(settings, name, own),
        flags=tuple(own),
        check=settings.check,
        share_tree=settings.share_tree,
    )


def policy_for(settings: Settings, agent: str, flags: Sequence[str]) -> Policy:
    """The one for this agent and, if its flags name one, for that model. A model that only the
    agent's own config names is not known before it runs."""
    model = ""
    for place, word in enumerate(flags):
        name, has_value, value = word.partition("=")
        if name in _MODEL_FLAGS:
            model = value if has_value else next(iter(flags[place + 1 :]), "")
    # Agents that know several providers put the provider before it.
    return settings.policy(agent, model.rpartition("/")[2])


def new_run(wanted: Wanted, now: float) -> Run:
    """A run that nothing has happened to."""
    return Run(
        id=f"run-{secrets.token_hex(4)}",
        task=wanted.task,
        agent=wanted.agent,
        cwd=wanted.cwd,
        created_at=now,
        policy=replace(wanted.policy, notify=()),  # addresses may hold keys, and stay out of logs
        abilities=Abilities(
            talks=wanted.drive.talks,
            resumes=wanted.drive.resumes,
            resume_factor=wanted.drive.resume_factor,
        ),
        flags=wanted.flags,
        check=wanted.check,
    )


class Driver:
    """Who drives a run: a loop, and all that it holds of the store. A context manager."""

    def __init__(
        self,
        store: Store,
        *,
        env: Mapping[str, str],
        prompts: Mapping[str, Path],
        clock: Clock | None = None,
        draw: Callable[[], float] = random.random,
        seize: bool = False,
    ) -> None:
        self.store, self.env, self.clock, self.draw = store, env, clock or Clock(), draw
        self.prompts, self.seize = Prompts(dict(prompts)), seize
        self._stack = ExitStack()
        self._held: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def begin(self, wanted: Wanted) -> Loop:
        """A new run. It is written down, and its first leg decided on, when this returns."""
        now = self.clock.now()
        run = new_run(wanted, now)
        while self.store.find(run.id):
            run = new_run(wanted, now)
        if not wanted.share_tree:
            self._hold_tree(run)
        draw = self.draw()
        step = machine.step(run, Created(), at=now, draw=draw)
        lease = self._hold(run_key(run.id), f"segue run {run.id}")
        self.store.create(run, after=step.run, at=now, draw=draw, decisions=step.decisions)
        return self._loop(step.run, wanted.drive, wanted.command, lease)

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
    ) -> tuple[Loop, AnyFact | None]:
        """A run that ended, or whose segue is gone; with the fact that begins it anew, if it takes
        one. Raises Held if a segue still drives it."""
        lease = self._hold(run_key(run.id), f"segue resume {run.id}")
        if not share_tree:
            self._hold_tree(run)
        run = self.store.run(run.id) or run  # as it is now that nobody else writes
        is_over = run.state.is_final or run.state is State.STOPPING
        wants_more = is_over or fresh or strict or policy is not None
        policy = policy and replace(policy, notify=())
        fact = Resumed(fresh=fresh, strict=strict, policy=policy) if wants_more else None
        return self._loop(run, drive, command, lease), fact

    def _loop(self, run: Run, drive: Drive, command: tuple[str, ...], lease: Lease) -> Loop:
        journal = Journal(self.store, run, lease, clock=self.clock.now, draw=self.draw)
        crew = Crew(
            run,
            drive=drive,
            command=command,
            prompts=self.prompts,
            store=self.store,
            env=self.env,
            hold=partial(self._hold_once, note=f"segue run {run.id}"),
        )
        return Loop(journal, crew, clock=self.clock)

    def _hold_tree(self, run: Run) -> None:
        tree = _tree_of(run.cwd)
        try:
            self._hold(f"tree:{tree}", f"segue run {run.id}")
        except Held as held:
            raise TreeTaken(
                f"another run works in {tree} ({held.holder.note}, process {held.holder.pid});"
                " wait for it, or use --share-tree"
            ) from None

    def _hold_once(self, key: str, note: str) -> None:
        if key not in self._held:
            self._hold(key, note)

    def _hold(self, key: str, note: str) -> Lease:
        lease = self.store.acquire(key, leases.me(note), self.clock.now(), seize=self.seize)
        self._stack.callback(self.store.release, lease)
        self._held.add(key)
        return lease


def _tree_of(cwd: str) -> str:
    """The working tree that a folder is in; without git, the folder itself."""
    real = Path(os.path.realpath(cwd))
    return str(next((p for p in (real, *real.parents) if (p / ".git").exists()), real))
