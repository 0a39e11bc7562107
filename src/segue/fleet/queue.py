"""The queue in PostgreSQL; see `segue.queue.port`."""

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from segue.core.queue.types import Caps, Task, TaskState
from segue.fleet import accounts, machines
from segue.fleet.database import FleetDatabase, encode, raw, read
from segue.queue import rules
from segue.queue.base import BaseQueue
from segue.queue.port import Candidate, task_key
from segue.runs.store import leases
from segue.runs.store.port import Holder, IsAlive, Lease

_CLAIM = 7_302_114_200_418
"""An advisory lock that serialises claims, so that caps hold across all machines."""


_TRIES = 10
"""How many candidates are tried in one transaction, which blocks all other claims."""
_GRACE_S = 5.0
"""How long the slots of a machine that was just lost are kept for its tasks."""
PART = 100
"""How many waiting tasks are read at a time."""


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


class PostgresQueue(FleetDatabase, BaseQueue):
    """See `port.Queue`."""

    def __init__(self, url: str, *, is_alive: IsAlive | None = None) -> None:
        super().__init__(url)
        self._is_alive = is_alive or partial(machines.is_alive, self)
        self._has_place = is_alive or partial(machines.is_alive, self, grace_s=_GRACE_S)
        self._from = 0  # how many of the waiting tasks have been returned so far

    # Queries

    def task(self, task_id: str) -> Task | None:
        for (data,) in self.rows("SELECT data FROM segue.task WHERE id = %s", (task_id,)):
            return self._task(data)
        return None

    def tasks(self, *, unfinished: bool = False) -> list[Task]:
        where = " WHERE NOT is_over" if unfinished else ""
        sql = f"SELECT data FROM segue.task{where} ORDER BY number"  # noqa: S608
        return [self._task(data) for (data,) in self.rows(sql)]

    def upcoming(self, machine: str, now: float) -> list[Task]:
        """The tasks that a machine has or has lost, and a part of the waiting tasks, in the order
        in which they start. Each call returns another part, until all were returned."""
        sql = (
            "SELECT data FROM segue.task WHERE NOT is_over AND holder IS NOT NULL AND"
            " (holder_machine IS NULL OR holder_machine = %s OR holder_machine NOT IN (SELECT id"
            " FROM segue.machine WHERE now() - beat_at <= lease_s * interval '1 second'))"
        )
        held = self.rows(sql, (machine,))
        sql = (
            "SELECT data FROM segue.task WHERE NOT is_over AND holder IS NULL"
            " AND coalesce(not_before, 0) <= %s"
            " ORDER BY (state = 'queued'), coalesce(priority, 0) DESC, number LIMIT %s OFFSET %s"
        )
        due = now + self.ahead_s
        first = self.rows(sql, (due, PART, 0))
        more = self.rows(sql, (due, PART, self._from)) if self._from else []
        is_end = len(more if self._from else first) < PART
        self._from = 0 if is_end else self._from + PART
        tasks = {
            task.id: task for (data,) in (*held, *first, *more) for task in (self._task(data),)
        }
        return sorted(tasks.values(), key=lambda task: task.number)

    def with_trees(self, machine: str) -> list[Task]:
        sql = "SELECT data FROM segue.task WHERE is_over AND tree_machine = %s ORDER BY number"
        return [self._task(data) for (data,) in self.rows(sql, (machine,))]

    def version(self) -> int:
        # Machines become late and tasks become due without any write.
        sql = (
            "SELECT (SELECT last_value FROM segue.change), (SELECT count(*) FROM segue.machine"
            " WHERE now() - beat_at > lease_s * interval '1 second'), (SELECT count(*) FROM"
            " segue.task WHERE NOT is_over AND holder IS NULL AND not_before > 0"
            " AND not_before <= extract(epoch FROM now())::float)"
        )
        ((changes, silent, due),) = self.rows(sql)
        return hash((changes, silent, due))

    # Claims and leases

    def claim(
        self, task_id: str, holder: Holder, now: float, *, agent: str, account: str, caps: Caps
    ) -> Lease | None:
        with self.alone():
            self.rows("SELECT pg_advisory_xact_lock(%s)", (_CLAIM,))
            return self._claim(Candidate(task_id, agent, account), holder, now, caps)

    def claim_first(
        self, wanted: Sequence[Candidate], holder: Holder, now: float, *, caps: Caps
    ) -> tuple[Candidate, Lease] | None:
        with self.alone():
            self.rows("SELECT pg_advisory_xact_lock(%s)", (_CLAIM,))
            # Other machines read the same list, so most of its beginning may be gone.
            sql = (
                "SELECT id FROM segue.task WHERE id = ANY(%s) AND NOT is_over AND (holder IS NULL"
                " OR holder_machine IS NULL OR holder_machine = %s OR holder_machine NOT IN (SELECT"
                " id FROM segue.machine WHERE now() - beat_at <= lease_s * interval '1 second'))"
            )
            ids = [each.task for each in wanted]
            free = {name for (name,) in self.rows(sql, (ids, holder.machine))}
            for each in [each for each in wanted if each.task in free][:_TRIES]:
                if (lease := self._claim(each, holder, now, caps)) is not None:
                    return each, lease
        return None

    def _claim(self, wanted: Candidate, holder: Holder, now: float, caps: Caps) -> Lease | None:
        task = self._known_task(wanted.task)
        most = accounts.max_tasks(self, wanted.account)
        if most is not None and (caps.max_per_account is None or most < caps.max_per_account):
            caps = replace(caps, max_per_account=most)
        rows = self._that_count(task, holder.machine, wanted.account, caps)
        if not task.run and machines.is_drained(self, holder.machine):
            return None  # tasks that have started continue
        # Started work comes first, even before tasks that were listed before it was lost.
        is_new = task.state is TaskState.QUEUED
        is_alive = self._has_place if is_new else self._is_alive
        if not rules.may_claim(
            task, rows, me=holder, account=wanted.account, caps=caps, is_alive=is_alive
        ):
            return None
        before = self._lease(task.id)[1]
        if before is not None and before.machine != holder.machine:
            # Losing a machine is not the task's fault.
            task = replace(task, tries=0, tried_at=0.0)
        self._put(rules.claimed(task, now, agent=wanted.agent, account=wanted.account))
        return self._give(task.id, holder)

    def _that_count(
        self, task: Task, machine: str, account: str, caps: Caps
    ) -> list[tuple[Task, Holder | None]]:
        # Thousands of others may be waiting.
        sql = (
            "SELECT data, holder FROM segue.task WHERE NOT is_over AND (place = %s OR id = %s"
            " OR holder IS NOT NULL AND (holder_machine IS NULL OR holder_machine = %s"
            " OR %s AND project = %s OR %s AND account = %s))"
        )
        found = self.rows(
            sql,
            (raw(task.place), task.id, machine, bool(caps.max_per_project), _hash(task.project),
             bool(caps.max_per_account), account),
        )  # fmt: skip
        return [(self._task(data), _holder(held)) for data, held in found]

    def _locked(self, task_id: str) -> Task | None:
        sql = "SELECT data FROM segue.task WHERE id = %s FOR UPDATE"
        for (data,) in self.rows(sql, (task_id,)):
            return self._task(data)
        return None

    def _insert(self, task: Task) -> int:
        sql = (
            "INSERT INTO segue.task (id, state, is_over, place, data)"
            " VALUES (%s, '', false, %s, '') RETURNING number"
        )
        ((number,),) = self.rows(sql, (task.id, raw(task.place)))
        return int(number)

    def _delete(self, task_id: str) -> None:
        self.rows("DELETE FROM segue.task WHERE id = %s", (task_id,))

    def _release(self, task_id: str) -> None:
        sql = "UPDATE segue.task SET holder = NULL, holder_machine = NULL WHERE id = %s"
        self.rows(sql, (task_id,))

    def _lease(self, task_id: str) -> tuple[int, Holder | None]:
        sql = "SELECT epoch, holder FROM segue.task WHERE id = %s"
        for epoch, data in self.rows(sql, (task_id,)):
            return epoch, _holder(data)
        return 0, None

    def _give(self, task_id: str, holder: Holder) -> Lease:
        sql = (
            "UPDATE segue.task SET epoch = epoch + 1, holder = %s, holder_machine = %s"
            " WHERE id = %s RETURNING epoch"
        )
        ((epoch,),) = self.rows(sql, (encode(holder), holder.machine, task_id))
        return Lease(task_key(task_id), epoch)

    def _put(self, task: Task) -> Task:
        stays = task.tree_machine if task.tree and not task.is_tree_removed else None
        self.rows(
            "UPDATE segue.task SET state = %s, is_over = %s, place = %s, data = %s, project = %s,"
            " account = %s, priority = %s, not_before = %s, tree_machine = %s WHERE id = %s",
            (task.state.value, task.state.is_final, raw(task.place),
             encode(_shifted(task, self.ahead_s)), _hash(task.project), task.account, task.priority,
             task.not_before + self.ahead_s, stays, task.id),
        )  # fmt: skip
        self._changed()
        return task

    def _changed(self) -> None:
        self.rows("SELECT nextval('segue.change')")

    def _task(self, data: Any) -> Task:
        return _shifted(read(data, Task), -self.ahead_s)

    def _ids(self) -> list[str]:
        return [name for (name,) in self.rows("SELECT id FROM segue.task")]


def _shifted(task: Task, by_s: float) -> Task:
    """The task with the times that other machines use shifted. They are stored by the database's
    clock, because no machine's clock is reliable."""
    if not by_s:
        return task
    return replace(
        task,
        not_before=task.not_before + by_s if task.not_before else 0.0,
        tried_at=task.tried_at + by_s if task.tried_at else 0.0,
    )


def must_hold(db: FleetDatabase, lease: Lease) -> None:
    """Raises LeaseLost if the task was given to another process."""
    sql = "SELECT epoch, holder FROM segue.task WHERE id = %s"
    found = db.rows(sql, (lease.key.removeprefix(task_key("")),))
    epoch, data = found[0] if found else (0, None)
    if epoch != lease.epoch or data is None:
        raise leases.lease_lost(lease.key, _holder(data))


def _holder(data: Any) -> Holder | None:
    return None if data is None else read(data, Holder)
