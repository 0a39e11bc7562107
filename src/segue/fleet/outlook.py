"""The queue as the whole fleet sees it: what its machines together would do with it."""

from collections.abc import Sequence

from msgspec.structs import replace

from segue.core.queue.schedule import Conditions, Verdict, plan
from segue.core.queue.types import Task
from segue.fleet import machines
from segue.fleet.database import FleetDatabase
from segue.queue.port import Queue
from segue.queue.worker import Here

_NOBODY = "no worker is running; start one on any machine: segue worker"


class Outlook:
    """The plan, based on what all machines offer that are alive and take new tasks."""

    def __init__(self, queue: Queue) -> None:
        found = machines.machines(queue) if isinstance(queue, FleetDatabase) else []
        at_work = [each for each in found if each.is_alive and not each.is_drained]
        self._heard = {each.id for each in at_work}
        self.jobs = sum(each.offer.jobs for each in at_work)
        self.here = Here(
            labels=frozenset(name for each in at_work for name in each.offer.labels),
            agents=frozenset(name for each in at_work for name in each.offer.agents),
        )

    def verdicts(self, tasks: Sequence[Task], there: Conditions) -> dict[str, Verdict]:
        """Why each waiting task waits, by the same plan that workers use."""
        there = replace(there, elsewhere=frozenset())
        mine = [replace(t, machine="") if t.machine in self._heard else t for t in tasks]
        found = {verdict.task.id: verdict for verdict in plan(mine, there)}
        if not self._heard:
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
