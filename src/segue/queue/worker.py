"""Works through the queue: starts tasks that may start, each in its own process, and restarts
tasks that lost their process. It holds no state: if it is killed, the tasks continue, and the
next worker finds them."""

import os
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from segue.core.policy import Policy
from segue.core.queue.schedule import Conditions, Verdict, plan
from segue.core.queue.types import Caps, Task, TaskState
from segue.core.runs.types import Outcome
from segue.core.runs.waits import backoff_s
from segue.errors import in_words
from segue.queue import trees
from segue.queue.limits import Limits
from segue.queue.port import Candidate, Queue
from segue.runs.starting.detached import deaf
from segue.runs.store import leases
from segue.runs.store.port import Holder, Lease, LeaseLost, Store
from segue.system import units
from segue.system.files import state

LOG_NAME = "segue.log"
_CLEAN_S = 60.0

Say = Callable[[str], None]


class QueueState(Struct, frozen=True, kw_only=True):
    """The state of the queue: the plan of all waiting tasks, and what is running."""

    verdicts: tuple[Verdict, ...] = ()
    running: tuple[Task, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is running, and nothing will start without the user."""
        return not self.running and all(verdict.is_blocked for verdict in self.verdicts)


class Here(Struct, frozen=True, kw_only=True):
    """What this machine offers to tasks. If `agents` is None, it can run any agent."""

    labels: frozenset[str] = frozenset()
    agents: frozenset[str] | None = None


ANYTHING = Here()


def conditions(
    queue: Queue,
    store: Store,
    limits: Limits,
    tasks: list[Task],
    caps: Caps,
    now: float,
    here: Here = ANYTHING,
    machine: str = "",
) -> Conditions:
    """The conditions under which these tasks are planned now. `machine`: this machine's name."""
    running = [task for task in tasks if task.state is TaskState.RUNNING]
    lost, unreplied, elsewhere = set(), set(), set()
    machine = machine or leases.machine()
    for task in running:
        holder = queue.holder(task.id)
        if holder is None or not queue.is_alive(holder):
            lost.add(task.id)
        elif holder.machine != machine:
            elsewhere.add(task.id)
        run = store.run(task.run) if task.run else None
        if run is None or not run.leg_replied:
            unreplied.add(task.id)
    after = {name for task in tasks for name in task.after}
    known = {task.id: task for task in tasks}
    known |= {name: found for name in after - set(known) if (found := queue.task(name))}
    return Conditions(
        now=now,
        caps=caps,
        machine=machine,
        elsewhere=frozenset(elsewhere),
        labels=here.labels,
        agents=here.agents,
        account_of=limits.account_of,
        limited=limits.limited(now),
        proving=limits.proving(now),
        lost=frozenset(lost),
        unreplied=frozenset(unreplied),
        known=known,
    )


class Worker:
    """A worker in one process. `look` does everything that is due, and returns at once."""

    def __init__(
        self,
        queue: Queue,
        store: Store,
        limits: Limits,
        caps: Caps,
        *,
        env: Mapping[str, str],
        say: Say,
        here: Here = ANYTHING,
        me: Holder | None = None,
    ) -> None:
        """`me`: the process that claims tasks; None: this one."""
        self.queue, self.store, self.limits, self.caps = queue, store, limits, caps
        self.here = here
        self.env, self.say = env, say
        self._me = me or leases.me("segue worker")
        self._children: dict[str, tuple[subprocess.Popen[bytes], Lease]] = {}
        self._reported: dict[str, str] = {}
        self._clean_at = 0.0
        self.ended: dict[str, TaskState] = {}
        """What became of the tasks that were not over when it began."""

    def look(self, now: float, *, whole: bool = True) -> QueueState:
        """Starts what may start now. Without `whole`, it looks at a part of a long queue each
        time, and does not know whether the queue is empty."""
        self._reap()
        if whole:
            tasks = self.queue.tasks(unfinished=True)
        else:
            tasks = self.queue.upcoming(self._me.machine, now)
        situation = conditions(
            self.queue, self.store, self.limits, tasks, self.caps, now, self.here, self._me.machine
        )
        verdicts = [self._bounded(verdict, now) for verdict in plan(tasks, situation)]
        if whole:
            failed = [self._start(verdict, now) for verdict in verdicts if verdict.starts]
        else:
            failed = self._start_first(tasks, situation, now)
        not_started = {each.task.id: each for each in failed if each is not None}
        verdicts = [not_started.get(verdict.task.id, verdict) for verdict in verdicts]
        running = tuple(
            t for t in tasks if t.state is TaskState.RUNNING and t.id not in situation.lost
        )
        self._tell(tasks, verdicts)
        self._clean(now)
        waiting = tuple(v for v in verdicts if not v.starts)
        started = tuple(v.task for v in verdicts if v.starts)
        return QueueState(verdicts=waiting, running=(*running, *started))

    def _start_first(
        self, tasks: list[Task], situation: Conditions, now: float
    ) -> list[Verdict | None]:
        """Fills the free places from all tasks that could start: others look at the same list,
        and only the queue knows when a cap is reached. Returns the same as `_begin` for each."""
        own = [t for t in tasks if t.state is TaskState.RUNNING and t.id not in situation.elsewhere]
        places = self.caps.jobs - len([task for task in own if task.id not in situation.lost])
        failed: list[Verdict | None] = []
        if places <= 0:
            return failed
        any_number = replace(situation, caps=replace(self.caps, jobs=len(tasks) + self.caps.jobs))
        verdicts = [self._bounded(verdict, now) for verdict in plan(tasks, any_number)]
        wanted = [Candidate(v.task.id, v.agent, v.account) for v in verdicts if v.starts]
        known = {task.id: task for task in tasks}
        for _ in range(places):
            found = self.queue.claim_first(wanted, self._me, now, caps=self.caps)
            if found is None:
                break
            chosen, lease = found
            failed.append(self._begin(known[chosen.task], chosen.agent, lease, now))
            wanted = wanted[wanted.index(chosen) + 1 :]
        return failed

    def _bounded(self, verdict: Verdict, now: float) -> Verdict:
        """Delays a task whose process is lost again and again, longer each time, and finally gives
        it up."""
        task = verdict.task
        if not verdict.starts or task.state is not TaskState.RUNNING or not task.tries:
            return verdict
        holder = self.queue.holder(task.id)
        if holder is not None and holder.machine != self._me.machine:
            return verdict  # its machine was lost, which is not the task's fault
        policy = Policy()
        due = task.tried_at + backoff_s(policy, task.tries, 0.5)
        if task.tries >= policy.max_resumes:
            self._give_up(task, now)
            return replace(verdict, agent="", why="its process was lost too many times")
        if now < due:
            return replace(verdict, agent="", why="its process was lost", until=due)
        return verdict

    def _give_up(self, task: Task, now: float) -> None:
        lease = self.queue.claim(
            task.id, self._me, now, agent=task.agent, account=task.account,
            caps=replace(self.caps, jobs=1_000_000, max_per_project=None, max_per_account=None),
        )  # fmt: skip
        if lease is None:
            return
        log = os.path.join(trees.folder(task.id), LOG_NAME)
        outcome = Outcome(
            exit_code=1, reason="crash",
            what=f"its process ended {task.tries} times in a row without a result",
            advice=f"See {log}\nThen: segue queue retry {task.id}",
        )  # fmt: skip
        over = replace(task, state=TaskState.FAILED, outcome=outcome, ended_at=now)
        self.queue.save(over, lease, release=True)

    def _start(self, verdict: Verdict, now: float) -> Verdict | None:
        task = verdict.task
        lease = self.queue.claim(
            task.id, self._me, now, agent=verdict.agent, account=verdict.account, caps=self.caps
        )
        if lease is None:  # another worker was faster, or the user changed their mind
            return None
        return self._begin(task, verdict.agent, lease, now)

    def _begin(self, task: Task, agent: str, lease: Lease, now: float) -> Verdict | None:
        """Starts the task's process. If that fails, it returns when to try again."""
        try:
            self._children[task.id] = self._spawn(task.id, lease.epoch), lease
        except OSError as fault:
            self.say(f"{task.id}: cannot be started: {in_words(fault)}")
            back = replace(task, why=in_words(fault), not_before=now + backoff_s(Policy(), 1, 0.5))
            self.queue.save(back, lease, release=True)
            return Verdict(task=back, why=back.why, until=back.not_before)
        verb = "continues" if task.run else "starts"
        self.say(f"{task.id} {verb} with {agent}")
        return None

    def _spawn(self, task_id: str, epoch: int) -> "subprocess.Popen[bytes]":
        """Starts a process for the task. It outlives the process that started it."""
        folder = trees.folder(task_id)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        own = dict(self.env)
        if own.get("SEGUE_HOME"):
            own["SEGUE_HOME"] = os.path.abspath(state.state_folder())
        words = units.own_argv("worker", f"--task={task_id}", f"--epoch={epoch}")
        with open(os.path.join(folder, LOG_NAME), "ab", opener=_private) as log:
            return subprocess.Popen(  # noqa: S603 - ourselves
                deaf(words),
                cwd="/",
                env=own,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _reap(self) -> None:
        """Collects the processes that have ended. If one ended before it took over this worker's
        claim, the claim is released, so that its task counts as lost and not as this worker's for
        as long as the worker lives."""
        for task_id, (child, lease) in list(self._children.items()):
            if child.poll() is None:
                continue
            task = self.queue.task(task_id)
            if task is not None:
                with suppress(LeaseLost):  # it had taken over
                    self.queue.save(task, lease, release=True)
            del self._children[task_id]

    def _tell(self, tasks: list[Task], verdicts: list[Verdict]) -> None:
        """Reports what has changed since the last report."""
        open_ids = {task.id for task in tasks}
        for task_id in [name for name in self._reported if name not in open_ids]:
            del self._reported[task_id]
            task = self.queue.task(task_id)
            if task is not None and task.state.is_final:
                self.ended[task_id] = task.state
                self.say(f"{task_id} {task.ending}")
        for task in tasks:
            self._reported.setdefault(task.id, "")
        for verdict in verdicts:
            why, name = verdict.why, verdict.task.id
            if self._reported[name] != why:
                self._reported[name] = why
                if why and (verdict.task.run or verdict.task.tries):
                    self.say(f"{name} waits: {why}")

    def _clean(self, now: float) -> None:
        """Removes, from time to time, worktrees of tasks whose branch was merged in the
        meantime."""
        if now < self._clean_at:
            return
        self._clean_at = now + _CLEAN_S
        for task in trees.refreshed(self.queue.with_trees(self._me.machine)):
            self.queue.note(task)
            if task.is_tree_removed:
                self.say(f"{task.id}: its branch is merged, so its worktree was removed")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
