"""A project whose user gives its tasks to the queue. The worker starts a process for each task,
which drives its run as `segue run` would."""

from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, cast

from msgspec.structs import replace

from segue.core.queue.types import Task, TaskState
from segue.core.runs.types import Run, StartLeg
from segue.errors import SegueError
from segue.queue.port import task_key
from segue.runs.loop import Loop
from segue.runs.store.port import Holder, Lease, LeaseLost
from segue.testing.simulation import models
from segue.testing.simulation.faults import Fault, PlannedFault
from segue.testing.simulation.headless.legs import Leg, Project
from segue.testing.simulation.headless.session import HeadlessSession, SimulatedDriver
from segue.testing.simulation.invariants import must
from segue.testing.simulation.queued.worker import SimulatedCarrier
from segue.testing.simulation.stores import Killed

_CARRIED_S = 0.8
_HEARD_S = 10.0  # by then, a live process knows that its task is cancelled
_SHARED = "/shared"


class Child:
    """A process, as its parent sees it."""

    def __init__(self, world: Any, holder: Holder) -> None:
        self._world, self.holder = world, holder

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        return None if self.holder.pid in self._world.alive else 1


class QueuedSession(HeadlessSession):
    """One project, one agent, and one user who submits one task after another."""

    task_id = ""
    carrier: SimulatedCarrier | None = None
    child: Child | None = None
    moved_at = 0.0
    cwd_now = ""
    cancelled = False
    cancelled_at = 0.0

    @property
    def is_carried(self) -> bool:
        """Whether a live process has its task."""
        return self.child is not None and self.child.poll() is None

    # The user

    def new_task(self) -> None:
        """The user submits the next task."""
        world = self.world
        if world.machine.awake_at > world.schedule.now or world.is_disk_full:
            self._later(3_600.0, self.new_task)
            return
        self._forget()
        self.run_id = ""
        self.runs += 1
        self.project = Project(steps=models.steps_of_task(self.random))
        here = self.random.random() < 0.5
        cwd = _SHARED if self.random.random() < 0.4 else f"/p{self.number}"
        other_tasks = [s.task_id for s in world.queued_sessions if s is not self and s.task_id]
        after = (other_tasks[0],) if other_tasks and self.random.random() < 0.15 else ()
        self.task_id, self.cancelled = f"task-{self.number}-{self.runs}", False
        task = Task(
            id=self.task_id, text=f"{self.project.steps} steps", agents=(self.model.name,),
            cwd=cwd, project=cwd, created_at=world.machine.clock.now(), here=here,
            check="make test" if self.random.random() < 0.2 else "",
            priority=int(self.random.random() * 3), after=after,
        )  # fmt: skip
        world.queue.submit([task])
        world.figures.tasks += 1
        self.moved_at = world.schedule.now
        self.say(f"the user submits {self.task_id} of {self.project.steps} steps")
        world.workers.stir()

    def cancel(self) -> bool:
        """The user runs `segue queue cancel`. Returns whether there was a task to cancel."""
        world, now = self.world, self.world.machine.clock.now()
        task = world.queue.task(self.task_id) if self.task_id else None
        if task is None or task.state.is_final or world.is_disk_full:
            return False
        found = world.queue.cancel(task.id, now)
        self.cancelled, self.cancelled_at = True, world.schedule.now
        if found.state.is_final:
            must(not self.is_carried, "a task in one process at a time", f"{task.id} is over")
            if found.run and world.store.run(found.run) is not None:
                world.store.ask(found.run, "cancel", now)
            live = self.live_leg()
            if live is not None:  # the command itself ends a leg that nobody drives
                live.stop("gentle")
            self._task_over(found)
        elif found.run and world.store.run(found.run) is not None:
            world.store.ask(found.run, "cancel", now)
            if self.loop is not None:
                self.loop._store_version = -1
                self.wake()
        return True

    def _task_over(self, task: Task) -> None:
        """The user looks at the result, then retries the task or submits the next one."""
        self.moved_at = self.world.schedule.now
        what = task.outcome.what if task.outcome else ""
        self.say(f"{task.id} is {task.state.value}: {what}")
        tries_again = task.state is not TaskState.DONE and self.random.random() < 0.4
        wait_s = self.random.expovariate(1 / (40_000.0 if tries_again else 150_000.0))
        again = partial(self._retry, task.id) if tries_again else self.new_task
        self._later(wait_s + 60.0, again)

    def _retry(self, task_id: str) -> None:
        world = self.world
        if world.machine.awake_at > world.schedule.now or world.is_disk_full:
            self._later(3_600.0, partial(self._retry, task_id))
            return
        if self.live_leg() is not None:  # it is being ended
            self._later(60.0, partial(self._retry, task_id))
            return
        world.queue.retry(task_id, world.machine.clock.now())
        self.cancelled = False
        self.moved_at = world.schedule.now
        self.watch.ended_by_user = False
        world.workers.stir()

    def resume(self, *, by_user: bool, seizes: bool = False) -> bool:
        """Refused: the worker drives a task's run."""
        return False

    # The process that runs its task

    def spawned(self, task_id: str, epoch: int) -> Child:
        """The worker starts a process for a task."""
        world = self.world
        must(not self.is_carried, "a task in one process at a time", f"{task_id} is started again")
        task = world.queue.task(task_id)
        is_to_end = task.cancel_asked  # its former process ended before it could do that
        must(not self.cancelled or is_to_end, "the user's end stays", f"{task_id} was cancelled")
        states = [world.queue.task(name) for name in task.after]
        is_first = all(each is not None and each.state is TaskState.DONE for each in states)
        must(is_first, "tasks keep their order", f"{task_id} comes after {task.after}")
        if self.random.random() < 0.01:
            raise OSError("no more processes")
        holder = world.machine.spawn()
        world.alive.add(holder.pid)
        self.child = Child(world, holder)
        self.moved_at = world.schedule.now
        self._later(_CARRIED_S, partial(self._carry, task_id, epoch, holder))
        return self.child

    def _carry(self, task_id: str, epoch: int, holder: Holder) -> None:
        world = self.world
        if holder.pid not in world.alive:
            return
        if world.machine.awake_at > world.schedule.now:
            world.schedule.at(
                world.machine.awake_at + 0.5, partial(self._carry, task_id, epoch, holder)
            )
            return
        driver = SimulatedDriver(self, holder)
        driver.faulty.is_full = world.is_disk_full
        try:
            if world.is_disk_full:
                raise LeaseLost("nothing can be written")
            now = world.machine.clock.now()
            lease = world.queue.take_over(Lease(task_key(task_id), epoch), holder, now)
            task = world.queue.task(task_id)
            self.carrier = SimulatedCarrier(self, lease, task, driver)
            stack = ExitStack()
            begun = self.carrier.guarded(lambda: cast("Any", self.carrier).prepare(stack))
        except Killed:
            self._ends(holder)
            return
        except SegueError as fault:  # its worker tries again
            self.say(f"{task_id} cannot be carried: {fault}")
            driver._stack.close()
            self._ends(holder)
            return
        if begun is None:
            driver._stack.close()
            self._ends(holder)
            self._if_over()
            return
        loop, first = begun
        self._drive(driver, loop, first)

    def next_run_id(self) -> str:
        """The next id, the same every time this world is played."""
        return f"run-{self.number}-{self.runs}"

    def first_loop(self, task: Task, driver: Any) -> Loop:
        """The run of a task that has none yet."""
        self.run_id = task.run
        policy = self.policy
        if self.random.random() < 0.15:
            policy = replace(policy, max_tokens=self.random.randrange(200_000, 4_000_000))
        cwd = task.cwd if task.here else task.tree
        run = Run(
            id=task.run, task=task.text, agent=self.model.name, cwd=cwd,
            created_at=self.world.machine.clock.now(), policy=policy,
            abilities=self.model.abilities, check=task.check,
        )  # fmt: skip
        driver._hold_tree(run)
        self.watch.begin(run)
        loop: Loop = driver.begin_run(run)
        return loop

    def begin_leg(self, run: Run, order: StartLeg, store: Any) -> Leg:
        """Starts a leg as for any run, and checks that nobody else works in its tree."""
        for other in self.world.queued_sessions:
            is_there = other is not self and other.cwd_now == run.cwd
            is_shared = is_there and other.live_leg() is not None
            must(not is_shared, "a tree is never shared", f"{run.cwd}: {run.id}, {other.run_id}")
        is_late = self.cancelled and self.world.schedule.now - self.cancelled_at > _HEARD_S
        must(not is_late, "the user's end stays", f"{run.id} starts a leg, and was cancelled")
        self.cwd_now = run.cwd
        return super().begin_leg(run, order, store)

    def goes_on(self, run: Run, *, by_user: bool) -> None:
        """Another process continues the run."""
        self.watch.resumed(run, by_user=by_user, takes_back=by_user)

    def _left(self, run: Run) -> None:
        """The loop of its process ended or has to wait."""
        carrier, child = self.carrier, self.child
        assert carrier is not None
        if not self.world.is_disk_full:  # otherwise the worker finds the task without a process
            with suppress(SegueError, Killed):
                carrier.guarded(lambda: carrier.settle(run))
        if child is not None:
            self._ends(child.holder)
        self._if_over()

    def _ends(self, holder: Holder) -> None:
        self.world.alive.discard(holder.pid)
        self.carrier = None
        self.moved_at = self.world.schedule.now
        self.world.workers.stir()

    def _if_over(self) -> None:
        task = self.world.queue.task(self.task_id)
        if task is not None and task.state.is_final:
            if task.state is TaskState.DONE:
                self.world.figures.tasks_done += 1
                left = self.project.steps - self.project.last
                must(left <= 0, "no step is lost", f"{task.id} is done, {left} steps are missing")
            self._task_over(task)

    def _over(self, run: Run) -> None:
        self.watch.over(run)
        self._left(run)

    def _parked(self, run: Run) -> None:
        self._left(run)

    def _gone(self) -> None:
        """Its process is gone but its task has not ended; the worker handles that."""
        for leg in self.legs.values():
            leg.is_alone = True
        self.carrier = None
        self.moved_at = self.world.schedule.now
        self.world.workers.stir()

    # What goes wrong

    def suffer(self, planned: PlannedFault) -> bool:
        """Lets a fault happen as for any run, except for the faults of terminals."""
        fault = planned.fault
        if fault is Fault.CANCEL:
            return self.cancel()
        if fault in (Fault.CTRL_C, Fault.HANG_UP, Fault.SECOND_SEGUE):
            return False
        if fault is Fault.KILL_SEGUE and planned.size < 0.4:
            self.world.workers.kill()
            return True
        return super().suffer(planned)
