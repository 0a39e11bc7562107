"""The worker of a world: a process that may be killed, working on the world's queue."""

from functools import partial
from random import Random
from typing import Any, cast

from msgspec.structs import replace

from segue.core.queue.types import Caps, Task
from segue.core.runs.types import AnyFact
from segue.errors import SegueError, StateError
from segue.queue.carrier import Carrier
from segue.queue.limits import AccountLimits
from segue.queue.memory import MemoryQueue
from segue.queue.worker import QueueState, Worker
from segue.runs.loop import Loop
from segue.runs.starting.driver import Driver
from segue.runs.starting.run_request import RunRequest
from segue.runs.store.port import Holder
from segue.system.git.worktrees import GitError
from segue.testing.simulation.accounts import known_account
from segue.testing.simulation.invariants import must

_STIRRED_S = 0.7  # a worker looks twice a second
_LOOK_S = 900.0  # if nothing wakes it
_AGAIN_S = 180.0  # until a killed worker is restarted
PARK_S = 30.0


class MachineLimits(AccountLimits):
    """What the world's machine knows about its accounts."""

    def __init__(self, world: Any) -> None:
        super().__init__({}, world.known_limits)
        self._world = world

    def account_of(self, task: Task, agent: str) -> str:
        """The world's account."""
        return known_account(number_of(task.id) % len(self._world.accounts)).id


class SimulatedWorker(Worker):
    """The real worker, except for its processes and git."""

    def __init__(self, world: Any, me: Holder) -> None:
        self._world = world
        super().__init__(
            world.queue, world.store, MachineLimits(world), Caps(jobs=world.workers.jobs),
            env={}, say=lambda line: None, me=me,
        )  # fmt: skip

    def _spawn(self, task_id: str, epoch: int) -> Any:
        return self._world.sessions[number_of(task_id)].spawned(task_id, epoch)

    def _clean(self, now: float) -> None:
        """Does nothing, because no branch is ever merged."""


class SimulatedTrees:
    """Worktrees, for which git fails now and then."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def make(self, task: Task, start_ref: str = "") -> Task:
        """Gives the task its own tree."""
        if self._random.random() < 0.03:
            raise GitError("the repository cannot be reached")
        return replace(
            task, tree=f"/trees/{task.id}", tree_machine="m", branch=f"segue/{task.id}",
            is_tree_removed=False, is_ready=False, setups=task.setups + 1,
        )  # fmt: skip

    def link(self, task: Task) -> Task:
        """Links nothing."""
        return task

    def salvage(self, task: Task) -> Task:
        """Does nothing, because there is one machine."""
        return task

    def finish(self, task: Task) -> Task:
        """Measures nothing."""
        return task


class SimulatedCarrier(Carrier):
    """The real carrier, driving the session's run."""

    def __init__(self, session: Any, lease: Any, task: Task, driver: Any) -> None:
        world = session.world
        super().__init__(world.queue, driver.store, lease, task, env={})
        self.session, self._own, self.clock = session, driver, world.machine.clock
        self.trees, self.machine = SimulatedTrees(session.random), "m"
        self.new_run_id, self.draw = session.next_run_id, session.random.random

    def _request(self) -> RunRequest:
        self.park_s = PARK_S
        return cast("RunRequest", None)

    def _driver(self) -> Driver:
        driver: Driver = self._own
        return driver

    def _loop(self, driver: Driver, wanted: RunRequest) -> tuple[Loop, AnyFact | None]:
        found = self.store.run(self.task.run)
        if found is None:
            return self.session.first_loop(self.task, driver), None
        is_over = found.state.is_final and not self.task.again
        must(not is_over, "what is over stays over", f"{found.id} is {found.state}")
        is_ended = self._is_ended(found)
        loop, first = driver.go_on(found, cast("Any", None), ())
        self.session.goes_on(found, by_user=first is not None and not is_ended)
        return loop, None if is_ended else first


class Workers:
    """One worker at a time, and the queue, which outlives it."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.random = Random(f"{world.plan.seed}:worker")
        self.jobs = 1 + int(self.random.random() * 3)
        self.worker: SimulatedWorker | None = None
        self.life = 0
        self.state = QueueState()
        self.seen_at = 0.0
        self._look_at: float | None = None

    def queue(self, folder: str) -> Any:
        """The queue, in memory or on disk."""
        if not folder:
            return MemoryQueue(is_alive=self.world.is_holder_alive)
        from pathlib import Path

        from segue.queue.sqlite import SqliteQueue

        return SqliteQueue(Path(folder) / "queue.db", is_alive=self.world.is_holder_alive)

    def start(self) -> None:
        """Starts a new process, unless one is running."""
        world = self.world
        if self.worker is not None:
            return
        if world.machine.awake_at > world.schedule.now:
            world.schedule.at(world.machine.awake_at + 60.0, self.start)
            return
        me = world.machine.spawn()
        world.alive.add(me.pid)
        self.life += 1
        self.worker = SimulatedWorker(world, me)
        self.stir()

    def kill(self, again_s: float = _AGAIN_S) -> None:
        """kill -9: its tasks continue."""
        if self.worker is None:
            return
        self.world.say(0, "the worker is killed")
        self.world.alive.discard(self.worker._me.pid)
        self.worker, self._look_at = None, None
        self.world.schedule.at(self.world.schedule.now + again_s, self.start)

    def stir(self) -> None:
        """Wakes the worker, because the queue changed."""
        self._plan(self.world.schedule.now + _STIRRED_S)

    def _plan(self, at: float) -> None:
        if self.worker is None or (self._look_at is not None and self._look_at <= at):
            return
        self._look_at = at
        self.world.schedule.at(at, partial(self._look, self.life, at))

    def _look(self, life: int, at: float) -> None:
        worker, world = self.worker, self.world
        if worker is None or life != self.life or self._look_at != at:
            return
        self._look_at = None
        if (awake_at := world.machine.awake_at) > world.schedule.now:
            self._plan(awake_at + 0.5)
            return
        now = world.machine.clock.now()
        try:
            if world.is_disk_full:
                raise StateError("the queue: no space left on the disk")
            self.state = worker.look(now)
        except SegueError:  # the command reports it, and looks again
            self._plan(world.schedule.now + 60.0)
            return
        self.seen_at = world.schedule.now
        self._within_caps()
        times = [v.until - now for v in self.state.verdicts if v.until is not None]
        if self.state.running or self.state.verdicts:
            times.append(60.0 if any(not v.is_blocked for v in self.state.verdicts) else _LOOK_S)
        if times:
            self._plan(world.schedule.now + max(1.0, min(times)))

    # The invariants

    def _within_caps(self) -> None:
        live = [s for s in self.world.queued_sessions if s.is_carried]
        must(len(live) <= self.jobs, "caps hold", f"{len(live)} tasks at once, {self.jobs} allowed")

    def look(self) -> None:
        """Called from time to time: checks that every task ends or waits for a reason that the
        worker names."""
        world, machine = self.world, self.world.machine
        quiet_s = world.schedule.now - max(
            machine.awake_at, machine.jumped_at, machine.disk_full_until
        )
        if self.worker is None or quiet_s < 7_200.0:
            return
        named = {v.task.id: v.why for v in self.state.verdicts}
        running = {task.id for task in self.state.running}
        for session in world.queued_sessions:
            task = world.queue.task(session.task_id) if session.task_id else None
            if task is None or task.state.is_final or session.is_carried:
                continue
            if world.schedule.now - session.moved_at < 7_200.0:
                continue
            what = f"{task.id} is {task.state.value}, and nobody has it"
            is_named = bool(named.get(task.id)) and task.id not in running
            must(is_named, "every task ends or waits for something named", what)
            late_s = machine.clock.now() - task.not_before
            why = named.get(task.id, "")
            is_late = task.not_before and late_s > 3_600.0 and why == task.why
            must(not is_late, "waits end within their bound", f"{task.id}: {why}")


def number_of(name: str) -> int:
    """The session that a task or run belongs to."""
    return int(name.split("-")[1])
