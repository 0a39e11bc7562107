"""Carries out one task: creates its worktree, drives its run, and records the result.

It has its own process, which outlives the worker that started it. It takes over the worker's
claim before it does anything, so no two processes carry out one task. Whatever it is doing when
it is killed, the queue and the run's log show how far it came, and the next process continues
from there.
"""

import random
import shlex
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from segue.core.policy import Policy
from segue.core.queue.types import Task, TaskState
from segue.core.runs import outcomes
from segue.core.runs.types import AnyFact, Outcome, Run, RunState
from segue.core.runs.waits import backoff_s
from segue.core.stops.reasons import StopReason
from segue.errors import InputError
from segue.queue import trees
from segue.queue.port import Queue, task_key
from segue.runs.clock import Clock
from segue.runs.journal import Hear
from segue.runs.legs.check import CheckCommand
from segue.runs.legs.leg import Guard, free
from segue.runs.loop import Loop
from segue.runs.notices import RunNotices
from segue.runs.starting import driver, installed_agents, run_request
from segue.runs.starting.driver import Driver, TreeTaken
from segue.runs.starting.run_request import RunRequest
from segue.runs.store import leases
from segue.runs.store.port import Held, Lease, Store, run_key
from segue.runs.telemetry import reporter
from segue.system import clock
from segue.system.accounts import Accounts
from segue.system.config import settings as layered
from segue.system.config.settings import Flags, Settings
from segue.system.git.worktrees import GitError

SETUP_S = 3_600.0
_LOOK_S = 0.2
_FOLLOW_S = 2.0
_AGAIN_S = 10.0  # until a folder or a run that another process has is asked for again
_STATES = {
    RunState.DONE: TaskState.DONE,
    RunState.FAILED: TaskState.FAILED,
    RunState.CANCELLED: TaskState.CANCELLED,
    RunState.NEEDS_YOU: TaskState.NEEDS_YOU,
}

Say = Callable[[str], None]
T = TypeVar("T")


class Carrier:
    """One task, in this process."""

    def __init__(
        self,
        queue: Queue,
        store: Store,
        lease: Lease,
        task: Task,
        *,
        env: Mapping[str, str],
        say: Say = lambda line: None,
        seize: bool = False,
    ) -> None:
        """`seize`: this process held the run before, and could not release it."""
        self.queue, self.store, self.lease, self.task = queue, store, lease, task
        self.env, self.say, self.clock, self.seize = env, say, Clock(), seize
        self.began: Callable[[Task], None] = lambda task: None
        """Called when the task's run is about to be driven."""
        self.guard: Guard = free
        """Asked before any process is started for the task."""
        self.accounts: Accounts | None = None
        self.inherit: Callable[[Task, RunRequest], RunRequest] = lambda task, wanted: wanted
        """What a run is asked for that takes over from another machine's."""
        self.ready: Callable[[Loop], None] = lambda loop: None
        """Is given the loop before it goes."""
        self.on_look: Callable[[Run], None] = lambda run: None
        """Is shown the run after every look at it."""
        self.left: Callable[[Run], None] = lambda run: None
        """Is shown it before the result is written into the queue."""
        self.listeners: list[Hear] = []
        """Called with every entry of the run's log."""
        self.trees: Any = trees
        """Who makes, links, salvages and finishes trees."""
        self.machine = leases.machine()
        self.new_run_id: Callable[[], str] = driver.new_id
        self.draw: Callable[[], float] = random.random  # spreads tries
        self.park_s: float | None = None
        self._notify, self._prompts = Policy(), dict[str, Path]()

    def carry(self) -> Task:
        """Carries the task out until it has ended or has to wait; returns its new state. Raises
        LeaseLost if the task was given to another process, and StateError or OSError if nothing can
        be written: then the worker tries again."""
        self.guarded(self._carry)
        return self.task

    def guarded(self, act: Callable[[], T]) -> T | None:
        """Runs a step of the work. Whatever prevents it is stored with the task."""
        try:
            return act()
        except (TreeTaken, Held) as fault:
            self._put_back(str(fault), self.clock.now() + _AGAIN_S)
        except GitError as fault:
            self._try_later(str(fault))
        except OSError as fault:  # a full disk, most often; if that is the queue's too, this raises
            self._try_later(f"{fault.filename or 'this machine'}: {fault.strerror or fault}")
        except InputError as fault:  # also of the settings: they changed since it was submitted
            self._end(TaskState.FAILED, _failed(self.task, str(fault)))
        return None

    def _carry(self) -> None:
        with ExitStack() as stack:
            begun = self.prepare(stack)
            if begun is None:
                return
            run = self._drive(*begun)
        self.settle(run)

    def prepare(self, stack: ExitStack) -> tuple[Loop, AnyFact | None] | None:
        """Makes the worktree and the run, up to a loop that is ready to be driven, and the fact
        that starts or resumes it. None if nothing is left to do. The stack releases what the loop
        holds."""
        if self._is_cancelled() and not self.task.run:
            self._end(TaskState.CANCELLED, None)
            return None
        self._leave_other_machine()
        if not self.task.here and (not self.task.tree or self.task.is_tree_removed):
            self._save(self.trees.make(self.task, self._base()))
        if not self.task.here and not self.task.is_ready:
            self._save(self.trees.link(self.task))
            if not self._set_up():
                return None
            self._save(replace(self.task, is_ready=True))
        found = self.store.run(self.task.run) if self.task.run else None
        if found is not None and found.state.is_final and not self.task.again:
            self.settle(found)  # it was carried by a process that was killed right then
            return None
        if found is not None and found.state.is_final and self._is_cancelled():
            self._end(TaskState.CANCELLED, None)  # before its run was resumed
            return None
        return self._begin(stack)

    def _leave_other_machine(self) -> None:
        """The work of a lost machine is on its disk: the task starts again here."""
        task = self.task
        if not task.tree_machine or task.tree_machine == self.machine:
            return
        former = (*task.former_runs, task.run) if task.run else task.former_runs
        if task.run:  # what comes from there too late is not written any more
            held = self.store.acquire(
                run_key(task.run), leases.me(self.task.id), self.clock.now(), seize=True
            )
            self.store.release(held)
        anew = replace(
            task, run="", tree="", tree_machine="", again=False, is_ready=False,
            former_runs=former, salvaged="", salvaged_at=None,
        )  # fmt: skip
        self._save(self.trees.salvage(anew))

    def _settings(self) -> Settings:
        """The settings of the folder where the task was submitted, because that is what the user
        saw then."""
        task = self.task
        flags = Flags(
            policy=task.policy or None, set=task.sets, agent=task.agent, project_check=False
        )
        settings = layered.load(task.cwd, self.env, flags)
        installed_agents.register(settings)
        return settings

    def _base(self) -> str:
        """A task that comes after another one of the same repository starts from its work."""
        for name in reversed(self.task.after):
            before = self.queue.task(name)
            if before is None or before.project != self.task.project or before.is_tree_removed:
                continue
            if before.branch:
                return f"refs/heads/{before.branch}"
        return ""

    # The tree

    def _set_up(self) -> bool:
        """Runs the worktree's setup command. False if that has ended the task."""
        command = self.task.setup
        if not command:
            return True
        self.say(f"{self.task.id}: setting up: {command}")
        before = trees.before_setup(self.task)
        folder = Path(trees.folder(self.task.id), f"setup-{self.task.setups}")
        check = CheckCommand(folder, SETUP_S, self.clock.awake)
        with self.clock.beating():
            check.start(command, self.task.tree, self.env, grace_s=3.0, leash=self.guard())
            while (code := check.poll()) is None:
                if self._is_cancelled():
                    check.finish(10.0)
                    self._end(TaskState.CANCELLED, None)
                    return False
                time.sleep(_LOOK_S)
        if code == 0:
            self.task = trees.after_setup(self.task, before)
            return True
        self.task = replace(self.task, setups=self.task.setups + 1)
        what = f"the setup of its worktree exited with {code}: {run_request.literal(command)}"
        self._end(
            TaskState.FAILED,
            Outcome(
                exit_code=1,
                reason="setup_failed",
                what=what,
                advice=f"What it printed: cat {shlex.quote(str(check.output))}\n"
                f"Then: segue queue retry {self.task.id}",
            ),
        )
        return False

    # The run

    def _request(self) -> RunRequest:
        task, settings = self.task, self._settings()
        self._notify = settings.policy(task.agent)
        self.park_s = settings.queue.park_s
        wanted = run_request.request(
            prompt_of(task), task.agent, settings, self.env, cwd=trees.cwd(task), flags=task.flags
        )
        self._prompts = settings.prompts
        return replace(wanted, check=task.check)

    def _driver(self) -> Driver:
        return Driver(
            self.store,
            env=self.env,
            prompts=self._prompts,
            clock=self.clock,
            seize=self.seize,
            guard=self.guard,
            accounts=self.accounts,
        )

    def _begin(self, stack: ExitStack) -> tuple[Loop, AnyFact | None]:
        wanted = self._request()
        if not self.task.run:
            self._save(replace(self.task, run=self.new_run_id()))
        if self.task.former_runs and self.store.run(self.task.run) is None:
            wanted = self.inherit(self.task, wanted)
        driver = stack.enter_context(self._driver())
        self.began(self.task)
        loop, first = self._loop(driver, wanted)
        if self.task.again:
            self._save(replace(self.task, again=False))
        if self._is_cancelled():
            self.store.ask(loop.run.id, "cancel", self.clock.now())
        loop.park_s = self.park_s
        self.ready(loop)
        loop.say, loop.on_look = self.say, lambda run, follower: self.on_look(run)
        return loop, first

    def _drive(self, loop: Loop, first: AnyFact | None) -> Run:
        notices = RunNotices(self._notify, clock.local_zone())
        loop.journal.listeners += [notices.hear, *self.listeners]
        sent = reporter.attach(loop.journal, self.env, self.say)
        try:
            return loop.go(first)
        finally:
            notices.close(self.say)
            if sent is not None:
                sent.close()

    def _loop(self, driver: Driver, wanted: RunRequest) -> tuple[Loop, AnyFact | None]:
        found = self.store.run(self.task.run)
        if found is None:
            return driver.begin(wanted, self.task.run), None
        drive, program = installed_agents.driven(found.agent, self.env)
        is_ended = self._is_ended(found)
        loop, first = driver.go_on(found, drive, program)
        return loop, None if is_ended else first

    def _is_ended(self, run: Run) -> bool:
        """Whether the user wants to end a run that has not ended yet. Then it is not resumed: that
        would withdraw the user's request."""
        is_asked = bool(self.store.asks(run.id)) or self._is_cancelled()
        return is_asked and not run.state.is_final

    def settle(self, run: Run) -> None:
        """Stores what the state of the run means for the task."""
        self.left(run)
        state = _STATES.get(run.state)
        if state is not None:
            self._end(state, run.outcome)
        elif run.state is RunState.WAITING and run.wait is not None:
            is_limit = run.wait.why is StopReason.RATE_LIMIT
            # The one that goes first may get its reply within a second: the plan holds this one
            # back until then.
            until = self.clock.now() + _FOLLOW_S if run.wait.follows else run.wait.until
            why = f"{run.agent}: {run.wait.why.description}"
            self._save(
                replace(
                    self.task, state=TaskState.WAITING, not_before=until, why=why,
                    is_limited=is_limit, tries=0,
                ),
                release=True,
            )  # fmt: skip
        else:
            self._put_back(f"interrupted by {run.interrupted}", self.clock.now())

    # Storing results

    def _is_cancelled(self) -> bool:
        now = self.queue.task(self.task.id)
        return now is not None and now.cancel_asked

    def _save(self, task: Task, *, release: bool = False) -> None:
        self.queue.save(task, self.lease, release=release)
        self.task = task

    def _put_back(self, why: str, until: float) -> None:
        state = TaskState.WAITING if self.task.run else TaskState.QUEUED
        self._save(replace(self.task, state=state, why=why, not_before=until), release=True)

    def _try_later(self, why: str) -> None:
        """The repository cannot be reached now: retries as often and as long as after a limit."""
        tries = self.task.tries + 1
        wait_s = backoff_s(Policy(), tries, self.draw())
        until = self.clock.now() + wait_s
        if tries > Policy().max_resumes:
            self._end(TaskState.FAILED, _failed(self.task, why))
            return
        self.task = replace(self.task, tries=tries)
        self._put_back(why, until)

    def _end(self, state: TaskState, outcome: Outcome | None) -> None:
        ended = replace(
            self.task, state=state, outcome=outcome, ended_at=self.clock.now(), why="", tries=0
        )
        self._save(self.trees.finish(ended), release=True)


def prompt_of(task: Task) -> str:
    """The prompt for the agent: the task and, if it was taken over from a lost machine, what is
    left of its work."""
    if not task.former_runs:
        return task.text
    what = "None of the work done there is here: start over."
    if task.salvaged_at is not None:
        what = (
            f"The work done there until {outcomes.when(task.salvaged_at)} is in this folder,"
            " committed or not; later work is lost. Look at what is there first, and continue"
            " from it."
        )
    return (
        f"{task.text}\n\n[segue, automatically: this task was started on another machine, which was"
        f" lost. {what}]"
    )


def take(queue: Queue, task_id: str, epoch: int, now: float) -> tuple[Lease, Task]:
    """Takes the claim over from the worker, for this process. Raises LeaseLost, UnknownTask."""
    lease = queue.take_over(
        Lease(task_key(task_id), epoch), leases.me(f"segue worker: {task_id}"), now
    )
    task = queue.task(task_id)
    assert task is not None
    return lease, task


def _failed(task: Task, what: str) -> Outcome:
    return Outcome(
        exit_code=outcomes.FAILED, reason="error", what=what,
        advice=f"Then: segue queue retry {task.id}",
    )  # fmt: skip
