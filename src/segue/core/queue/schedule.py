"""Decides which tasks may start now, in which order, and why the others may not. Pure: the
worker that starts tasks and the list that people look at use the same plan."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from segue.core.accounts import REPLY_S
from segue.core.queue.types import Caps, Task, TaskState


class Proving(Struct, frozen=True):
    """An account whose limit has reset, and that has had no reply since. `first`: the run or
    session that is trying now; "": none."""

    reset_at: float
    first: str = ""


class Conditions(Struct, frozen=True, kw_only=True):
    """What a plan depends on besides the tasks: the machine, its agents, and their accounts."""

    now: float
    caps: Caps = Caps()
    machine: str = ""  # this machine
    labels: frozenset[str] = frozenset()  # its labels
    agents: frozenset[str] | None = None  # its agents; None: all
    account_of: Callable[[Task, str], str] = lambda task, agent: agent
    limited: Mapping[str, float] = {}
    """Accounts that hit a limit, and until when."""
    proving: Mapping[str, Proving] = {}
    """Accounts whose limit has reset, where one goes first."""
    unreplied: frozenset[str] = frozenset()
    """Running tasks whose agent has not replied since it was started."""
    elsewhere: frozenset[str] = frozenset()
    """Running tasks on other machines: they take no slot here."""
    lost: frozenset[str] = frozenset()
    """Running tasks whose process is gone."""
    known: Mapping[str, Task] = {}
    """Tasks by id, including those that have ended: others may come after them."""


class Verdict(Struct, frozen=True, kw_only=True):
    """What the plan says about one task."""

    task: Task
    agent: str = ""  # start it now, with this agent; "": do not
    account: str = ""
    why: str = ""  # why not
    until: float | None = None  # when to check again, if known
    is_blocked: bool = False  # nothing changes until the user does something

    @property
    def starts(self) -> bool:
        """Whether it may start now."""
        return self.agent != ""


class _Plan:
    def __init__(self, tasks: Sequence[Task], conditions: Conditions) -> None:
        self.there = conditions
        self.jobs = 0
        self.projects: Counter[str] = Counter()
        self.accounts: Counter[str] = Counter()
        self.places: dict[str, str] = {}  # trees that are taken, and by which task
        self.unproven: set[str] = set()  # accounts where one goes first
        limited = {t.account for t in tasks if t.state is TaskState.WAITING and t.is_limited}
        for task in tasks:
            if task.state is TaskState.RUNNING and task.id not in conditions.lost:
                self._count(task, task.account)
                is_first = task.account in limited and task.id in conditions.unreplied
                if is_first or self._tries(task, conditions.proving.get(task.account)):
                    self.unproven.add(task.account)
            elif task.is_half_done and task.here:
                self.places[task.place] = task.id  # half done, so nothing else works there
        self.limited_accounts = limited

    def _count(self, task: Task, account: str) -> None:
        self.jobs += task.id not in self.there.elsewhere
        self.projects[task.project] += 1
        self.accounts[account] += 1
        self.places[task.place] = task.id

    def decide(self, task: Task) -> Verdict:
        conditions, caps = self.there, self.there.caps
        if (blocked := self._after(task)) and not task.cancel_asked:
            return blocked
        if task.machine and task.machine != conditions.machine:
            return Verdict(task=task, why="its folder is on another machine")
        if missing := [name for name in task.labels if name not in conditions.labels]:
            return Verdict(task=task, why=f"needs a machine with the label {missing[0]}")
        if task.not_before > conditions.now and not task.cancel_asked:
            return Verdict(task=task, why=task.why or "not yet due", until=task.not_before)
        if self.places.get(task.place, task.id) != task.id:
            return Verdict(task=task, why=f"{self.places[task.place]} is working in its folder")
        if caps.max_per_project and self.projects[task.project] >= caps.max_per_project:
            return Verdict(task=task, why=f"max_per_project = {caps.max_per_project} is reached")
        chosen = self._agent(task)
        if not chosen.starts:
            return chosen
        if self.jobs >= caps.jobs:
            return Verdict(task=task, why="waiting for a free slot")
        self._count(task, chosen.account)
        if chosen.account in self.limited_accounts or chosen.account in conditions.proving:
            self.unproven.add(chosen.account)
        return chosen

    def _tries(self, task: Task, proving: Proving | None) -> bool:
        """Whether a running task went first after its account's limit has reset, and is still the
        one that others wait for."""
        if proving is None or task.tried_at < proving.reset_at:
            return False
        return self.there.now - task.tried_at < REPLY_S

    def _is_tried(self, account: str, task: Task) -> bool:
        """Whether another run or session goes first on this account."""
        proving = self.there.proving.get(account)
        return proving is not None and proving.first not in ("", task.run)

    def _after(self, task: Task) -> Verdict | None:
        for name in task.after:
            before = self.there.known.get(name)
            if before is None:
                return Verdict(task=task, why=f"it must wait for {name}, which no longer exists",
                               is_blocked=True)  # fmt: skip
            if before.state is TaskState.DONE:
                continue
            why = f"waits for {name}"
            if before.state.is_final:
                how = f"segue queue retry {name}"
                why = f"{why}, which {before.how}: {how}"
            return Verdict(task=task, why=why, is_blocked=before.state.is_final)
        return None

    def _agent(self, task: Task) -> Verdict:
        """The verdict with the first agent of the task's list that may work now, or with the reason
        why none may. A run that has started stays with its own agent, because the run itself knows
        when to hand over. A cancelled task is only ended, which needs no account."""
        why, until = "", None
        if task.cancel_asked:
            agent = task.agent or task.agents[0]
            return Verdict(task=task, agent=agent, account=self.there.account_of(task, agent))
        for agent in (task.agent,) if task.run and task.agent else task.agents:
            account = self.there.account_of(task, agent)
            if self.there.agents is not None and agent not in self.there.agents:
                why = why or f"{agent} is not installed here"
                continue
            cap = self.there.caps.max_per_account
            reset = self.there.limited.get(account, 0.0)
            if reset > self.there.now:
                until = reset if until is None else min(until, reset)
                why = why or f"{agent} is limited"
            elif account in self.unproven or self._is_tried(account, task):
                why = why or f"{agent} was limited: one task goes first"
            elif cap and self.accounts[account] >= cap:
                why = why or f"max_per_account = {cap} is reached for {agent}"
            else:
                return Verdict(task=task, agent=agent, account=account)
        return Verdict(task=task, why=why, until=until)


def plan(tasks: Sequence[Task], conditions: Conditions) -> list[Verdict]:
    """A verdict on each unfinished task without a live process, in the order in which they
    start: tasks that have already started, then higher priorities, then older tasks."""
    open_tasks = [t for t in tasks if not t.state.is_final]
    laid_out = _Plan(open_tasks, conditions)
    idle = [t for t in open_tasks if t.state is not TaskState.RUNNING or t.id in conditions.lost]
    idle.sort(key=lambda t: (t.state is TaskState.QUEUED, -t.priority, t.number))
    return [laid_out.decide(task) for task in idle]
