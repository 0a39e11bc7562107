"""`from segue import run`: runs a task for a program, as `segue run` does, with the same config
and state, and without printing anything."""

import os
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from segue.core.policy import Policy
from segue.core.runs import outcomes
from segue.core.runs.types import AnyFact, Outcome, Run, RunState, RunStep
from segue.core.stops.types import Stop
from segue.errors import InputError, SegueError
from segue.runs.clock import Clock
from segue.runs.loop import Loop
from segue.runs.starting import installed_agents, run_request
from segue.runs.starting.driver import Driver
from segue.runs.starting.installed_agents import NoAgent
from segue.runs.starting.run_request import RunRequest
from segue.runs.store import open_store
from segue.runs.store.port import Entry, Store
from segue.system.config import settings as layered
from segue.system.config import trust
from segue.system.config.settings import Flags, Settings

OnEvent = Callable[[dict[str, Any]], object]
"""Receives every event (docs/json.md), once it is logged."""


class RunUsage(Struct, frozen=True, kw_only=True):
    """The resources that a run used."""

    legs: int
    handoffs: int
    tokens: int
    cost_usd: float  # at list prices, for models on the list
    seconds: float  # from its beginning to its end, including waits
    context_tokens: int | None = None  # of the last session, as far as reported
    window_tokens: int | None = None


class Result(Struct, frozen=True, kw_only=True):
    """A finished run. `answer` is the agent's last message."""

    run_id: str
    answer: str
    legs: int
    handoffs: int
    tokens: int
    cost_usd: float
    seconds: float


class RunFailed(SegueError):  # noqa: N818 - the name is a contract
    """A run that ended without finishing its task: it failed, was cancelled, or needs the user.

    stop: why its last leg ended, with evidence; None if there was none. usage: what the run used.
    outcome: how it ended, with the exit code that the command line has for it, and what to change.
    remediation: what to do, in words. state: "failed", "cancelled" or "needs-you".

    The run is kept, and `segue resume` continues it.
    """

    def __init__(
        self, run_id: str, state: str, outcome: Outcome, usage: RunUsage, stop: Stop | None = None
    ) -> None:
        super().__init__(f"{run_id}: {outcome.what}")
        self.run_id, self.state, self.outcome = run_id, state, outcome
        self.usage, self.stop = usage, stop
        self.exit_code = outcome.exit_code

    @property
    def reason(self) -> str:
        """The cause in one word: a stop reason, or check_failed, no_progress, breaker, cap."""
        return self.outcome.reason

    @property
    def remediation(self) -> str:
        """What the user can do about it."""
        return self.outcome.advice or (self.stop.remediation if self.stop is not None else "")

    def __reduce__(self) -> tuple[Any, ...]:  # it can be pickled completely
        return type(self), (self.run_id, self.state, self.outcome, self.usage, self.stop)


def run(
    task: str,
    *,
    agent: str | None = None,
    cwd: str | os.PathLike[str] | None = None,
    policy: Policy | str | None = None,
    check: str = "",
    flags: Sequence[str] = (),
    on_event: OnEvent | None = None,
    share_tree: bool = False,
    trust_check: bool = False,
) -> Result:
    """Works on `task` until it is finished, whatever happens in between: full windows, limits,
    hangs, crashes.

    Arguments that are not given come from the config. `policy` is a complete policy or the name of
    a preset. Raises RunFailed if the run ends in any other way, and another SegueError if it cannot
    start at all. A check in the project's `.segue.toml` must be accepted first, by `trust_check` or
    once by `segue run`.

    Any thread may call it. In the main thread, Ctrl+C, SIGTERM and SIGHUP end the run as they end
    `segue run`, and RunFailed is raised. If `on_event` raises, the run is ended as by `segue
    cancel`, and then the exception is raised.
    """
    wanted, settings = _request(
        task, agent, cwd, policy, check, tuple(flags), share_tree, trust_check
    )
    clock = Clock()
    with (
        open_store() as store,
        Driver(
            store, env=os.environ, prompts=settings.prompts, clock=clock, is_program=True
        ) as driver,
    ):
        loop = driver.begin(wanted)
        teller = _Teller(loop, on_event)
        teller.tell_all(store)
        ended = loop.go()
        if teller.fault is not None:
            raise teller.fault
        return _result(ended, loop, clock.now())


def _request(
    task: str,
    agent: str | None,
    cwd: str | os.PathLike[str] | None,
    policy: Policy | str | None,
    check: str,
    flags: tuple[str, ...],
    share_tree: bool,
    trust_check: bool,
) -> tuple[RunRequest, Settings]:
    if not task.strip() or "\0" in task:
        raise InputError("the task is empty, or contains a NUL byte")
    folder = os.path.abspath(cwd if cwd is not None else os.getcwd())
    if not os.path.isdir(folder):
        raise InputError(f"{folder}: is not a folder")
    settings = layered.load(
        folder,
        os.environ,
        Flags(
            policy=policy if isinstance(policy, str) else None,
            agent=agent,
            check=check or None,
            share_tree=share_tree or None,
        ),
    )
    installed_agents.register(settings)
    name = settings.agent or _only_one()
    if trust_check and run_request.needs_yes(settings) and settings.project_file is not None:
        trust.accept(settings.project_file.parent, settings.check)
    wanted = run_request.request(
        task,
        name,
        settings,
        os.environ,
        cwd=folder,
        flags=flags or None,
        policy=policy if isinstance(policy, Policy) else None,
        successors=settings.relay[1:],
    )
    return wanted, settings


def _only_one() -> str:
    found = list(installed_agents.installed(os.environ))
    if len(found) == 1:
        return found[0]
    if not found:
        raise installed_agents.none_installed()
    raise NoAgent(f"several agents are installed ({', '.join(found)}): name one, agent=…")


class _Teller:
    """Passes events to the caller. Errors in the caller's code are not the run's: an agent must not
    continue without a segue that looks after it."""

    def __init__(self, loop: Loop, on_event: OnEvent | None) -> None:
        self.run_id, self.on_event = loop.run.id, on_event
        self.fault: BaseException | None = None
        loop.journal.listeners.append(self._hear)

    def tell_all(self, store: Store) -> None:
        """The entries written so far."""
        for entry in store.log(self.run_id):
            self._tell(entry)

    def _hear(self, before: Run, fact: AnyFact, step: RunStep, entry: Entry) -> None:
        self._tell(entry)

    def _tell(self, entry: Entry) -> None:
        if self.on_event is None or self.fault is not None:
            return
        try:
            self.on_event(entry.as_object())
        except BaseException as fault:
            self.fault = fault
            with open_store() as another:  # the loop notices what others have written
                another.ask(self.run_id, "cancel", entry.at)


def _result(ended: Run, loop: Loop, now: float) -> Result:
    seconds = max(0.0, now - ended.created_at)
    if ended.state is RunState.DONE:
        return Result(
            run_id=ended.id,
            answer=loop.executor.answer(ended),
            legs=ended.leg,
            handoffs=ended.handoffs,
            tokens=ended.tokens,
            cost_usd=ended.cost_usd,
            seconds=seconds,
        )
    reading = ended.reading
    usage = RunUsage(
        legs=ended.leg,
        handoffs=ended.handoffs,
        tokens=ended.tokens,
        cost_usd=ended.cost_usd,
        seconds=seconds,
        context_tokens=reading.used_tokens if reading is not None else None,
        window_tokens=reading.window_tokens if reading is not None else None,
    )
    outcome = ended.outcome or outcomes.interrupted(ended)
    raise RunFailed(ended.id, ended.state.value, outcome, usage, ended.stop)
