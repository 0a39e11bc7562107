"""The queue as the whole fleet sees it: what its machines together would do with it."""

import os
from collections.abc import Sequence

from msgspec.structs import replace

from segue import fleet
from segue.core.queue.schedule import Conditions, Verdict, plan
from segue.core.queue.types import Caps, Task
from segue.fleet import machines
from segue.fleet.database import FleetDatabase
from segue.queue.limits import AccountLimits
from segue.queue.port import Queue
from segue.queue.worker import Here, conditions
from segue.runs.store.port import Store
from segue.system.config import settings as layered

_NOBODY = "no worker is running; start one on any machine: segue worker"


def verdicts(queue: Queue, store: Store, now: float) -> dict[str, Verdict]:
    """Why unfinished tasks wait, by id, according to the plan that workers use: this machine's,
    or the fleet's."""
    queued = layered.load("/", os.environ).queue
    caps = Caps(
        jobs=queued.jobs,
        max_per_project=queued.max_per_project,
        max_per_account=queued.max_per_account,
    )
    unfinished = queue.tasks(unfinished=True)
    limits = AccountLimits(os.environ, fleet.open_accounts())
    if not fleet.url():
        situation = conditions(queue, store, limits, unfinished, caps, now)
        return {verdict.task.id: verdict for verdict in plan(unfinished, situation)}
    outlook = Outlook(queue)
    caps = replace(caps, jobs=outlook.jobs)
    situation = conditions(queue, store, limits, unfinished, caps, now, outlook.here)
    return outlook.verdicts(unfinished, situation)


class Outlook:
    """The plan, based on what all machines offer that are alive and take new tasks."""

    def __init__(self, queue: Queue) -> None:
        found = machines.machines(queue) if isinstance(queue, FleetDatabase) else []
        at_work = [each for each in found if each.is_alive and not each.is_drained]
        self._machines_at_work = {each.id for each in at_work}
        self.jobs = sum(each.offer.jobs for each in at_work)
        self.here = Here(
            labels=frozenset(name for each in at_work for name in each.offer.labels),
            agents=frozenset(name for each in at_work for name in each.offer.agents),
        )

    def verdicts(self, tasks: Sequence[Task], situation: Conditions) -> dict[str, Verdict]:
        """Why each waiting task waits, by the same plan that workers use."""
        situation = replace(situation, elsewhere=frozenset())
        mine = [replace(t, machine="") if t.machine in self._machines_at_work else t for t in tasks]
        found = {verdict.task.id: verdict for verdict in plan(mine, situation)}
        if not self._machines_at_work:
            return {name: _without_workers(verdict) for name, verdict in found.items()}
        return {
            name: replace(verdict, why="its machine is offline")
            if verdict.task.machine and not verdict.starts
            else verdict
            for name, verdict in found.items()
        }


def _without_workers(verdict: Verdict) -> Verdict:
    if verdict.is_blocked or verdict.until is not None:
        return verdict
    return replace(verdict, agent="", why=_NOBODY)
