"""The machines of a fleet and their heartbeats. A machine that is silent for longer than its lease
loses its tasks to the first machine that asks; by then it has ended its own agents.

Only the database's clock decides whether a heartbeat is late. How long a machine could not send one
is measured with its monotonic clock. So wrong clocks have no effect.
"""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct

from segue.errors import StateError
from segue.fleet.database import PROTOCOL, FleetDatabase, raw, read
from segue.fleet.leash import Leash, clock
from segue.runs.store import leases
from segue.runs.store.port import Holder, LeaseLost

if TYPE_CHECKING:
    from collections.abc import Iterable

LEASE_S = 60.0
BEATS = 6
"""Heartbeats per lease."""
_LOOK_S = 0.25
GIVE_UP = 0.5
"""After this share of the lease without a heartbeat that arrived, a machine ends its agents. The
rest of the lease is for them to end before another machine may start."""


class Offer(Struct, frozen=True, kw_only=True):
    """What a machine offers to tasks, according to its worker."""

    labels: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()  # hashes
    jobs: int = 0  # tasks at once; 0 if no worker has said so yet


class SameId(StateError):  # noqa: N818 - told to the user as it is
    """Two machines have the same id."""


class Machine(Struct, frozen=True, kw_only=True):
    """One machine, as stored in the database."""

    id: str
    name: str
    silent_s: float  # since its last beat
    lease_s: float
    is_drained: bool = False
    offer: Offer = Offer()
    protocol: int = PROTOCOL

    @property
    def is_alive(self) -> bool:
        """Whether its tasks still belong to it."""
        return self.silent_s <= self.lease_s


def beat(
    db: FleetDatabase,
    machine: str,
    *,
    lease_s: float = LEASE_S,
    offer: Offer | None = None,
    boot: str = "",
) -> None:
    """Records a heartbeat. Without `offer`, the stored offer stays. Raises SameId if another boot
    of a machine with this id is alive: a clone, or the machine itself before a restart."""
    offered = offer or Offer()
    found = db.rows(
        "INSERT INTO segue.machine AS m"  # noqa: S608 - only our own words
        " (id, name, boot, beat_at, lease_s, protocol, labels, agents, accounts, jobs)"
        " VALUES (%s, %s, %s, now(), %s, %s, %s, %s, %s, %s)"
        " ON CONFLICT (id) DO UPDATE SET beat_at = now(), lease_s = excluded.lease_s,"
        " name = excluded.name, protocol = excluded.protocol, boot = excluded.boot"
        + (", labels = excluded.labels, agents = excluded.agents,"
           " accounts = excluded.accounts, jobs = excluded.jobs" if offer else "")
        + " WHERE m.boot IN ('', excluded.boot)"
        " OR now() - m.beat_at > m.lease_s * interval '1 second' RETURNING 1",
        (machine, os.uname().nodename, boot, lease_s, PROTOCOL, _joined_names(offered.labels),
         _joined_names(offered.agents), _joined_names(offered.accounts), offered.jobs),
    )  # fmt: skip
    if not found:
        raise SameId(
            f"another running machine has the id {machine}; unless this machine was just restarted,"
            " one of them is a clone: give it its own /etc/machine-id"
        )


def _joined_names(names: "Iterable[str]") -> str:
    return ",".join(names)


def _read(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)


def machines(db: FleetDatabase) -> list[Machine]:
    """All machines that ever sent a heartbeat, by name."""
    sql = (
        "SELECT id, name, extract(epoch FROM now() - beat_at)::float, lease_s, is_drained,"
        " protocol, labels, agents, accounts, jobs FROM segue.machine ORDER BY name, id"
    )
    return [
        Machine(
            id=row[0],
            name=row[1],
            silent_s=row[2],
            lease_s=row[3],
            is_drained=row[4],
            protocol=row[5],
            offer=Offer(
                labels=_read(row[6]), agents=_read(row[7]), accounts=_read(row[8]), jobs=row[9]
            ),
        )
        for row in db.rows(sql)
    ]


def carried(db: FleetDatabase) -> dict[str, list[str]]:
    """The unfinished tasks that each machine holds."""
    found: dict[str, list[str]] = {}
    sql = "SELECT id, holder FROM segue.task WHERE holder IS NOT NULL ORDER BY number"
    for task_id, holder in db.rows(sql):
        found.setdefault(read(holder, Holder).machine, []).append(task_id)
    return found


def is_drained(db: FleetDatabase, machine: str) -> bool:
    """Whether a machine takes no new tasks."""
    sql = "SELECT is_drained FROM segue.machine WHERE id = %s"
    return any(is_so for (is_so,) in db.rows(sql, (machine,)))


def drain(db: FleetDatabase, machine: str, *, is_drained: bool) -> None:
    """Stops a machine from taking new tasks, or lets it take them again."""
    db.rows("UPDATE segue.machine SET is_drained = %s WHERE id = %s", (is_drained, machine))


def forget(db: FleetDatabase, machine: str) -> None:
    """Deletes a machine that is gone for good. Its tasks can be taken over from now on."""
    db.rows("DELETE FROM segue.machine WHERE id = %s", (machine,))


def is_alive(db: FleetDatabase, holder: Holder, *, grace_s: float = 0.0) -> bool:
    """Whether a process may still be working: on this machine by pid and start time, on another one
    by that machine's heartbeats. `grace_s`: how late that machine may be."""
    if holder.machine == leases.machine():
        return leases.is_alive(holder)
    sql = (
        "SELECT now() - beat_at <= (lease_s + %s) * interval '1 second' FROM segue.machine"
        " WHERE id = %s"
    )
    return any(is_there for (is_there,) in db.rows(sql, (grace_s, holder.machine)))


def may_live(db: FleetDatabase, holder: Holder, run_id: str) -> bool:
    """Whether a process on another machine may still drive that run. A machine without a worker
    sends no heartbeats; what it publishes of the run counts instead."""
    sql = (
        "SELECT now() - greatest(beat_at, (SELECT max(at) FROM segue.words WHERE run = %s))"
        " <= lease_s * interval '1 second' FROM segue.machine WHERE id = %s"
    )
    return all(is_so for (is_so,) in db.rows(sql, (raw(run_id), holder.machine)))


class Pulse:
    """Sends the heartbeats of one machine, and knows when none has arrived for too long.

    `look` may wait for the database; `is_late` never does, and any thread may call it.
    """

    def __init__(
        self,
        open_database: Callable[[], FleetDatabase],
        machine: str,
        *,
        lease_s: float = LEASE_S,
        clock: Callable[[], float] = clock,
        leash: Leash | None = None,
        boot: str = "",
    ) -> None:
        self._open, self._machine, self.lease_s, self._clock = (
            open_database,
            machine,
            lease_s,
            clock,
        )
        self._db: FleetDatabase | None = None
        self.leash, self._boot = leash, boot
        self.offer: Offer | None = None
        self.checks: list[Callable[[FleetDatabase], None]] = []
        """Called after every heartbeat that arrived; a check raises LeaseLost if its work was given
        away."""
        self._heard_at = clock()
        self._next_at = 0.0
        self.fault = ""

    @property
    def max_s(self) -> float:
        """How long agents may keep working without a heartbeat that arrived."""
        return self.lease_s * GIVE_UP

    @property
    def is_late(self) -> bool:
        """Whether no heartbeat has arrived for so long that the agents must end."""
        return self._clock() - self._heard_at >= self.max_s

    def look(self) -> bool:
        """Sends a heartbeat if one is due. Returns False if the machine was late, even if this
        heartbeat arrived. A heartbeat counts from when it was sent, because the answer may take
        long. Raises LeaseLost from `checks`."""
        now, was_late = self._clock(), self.is_late
        if now >= self._next_at:
            self._next_at = now + self.lease_s / BEATS
            try:
                if self._db is None:
                    self._db = self._open()
                beat(
                    self._db, self._machine, lease_s=self.lease_s, offer=self.offer, boot=self._boot
                )
                for check in self.checks:
                    check(self._db)
                if self.leash is not None:
                    self.leash.renew(now, self.max_s)
                self._heard_at, self.fault = now, ""
            except LeaseLost:
                raise
            except (StateError, OSError) as fault:
                self._drop()
                self.fault = str(fault)
        return not (was_late or self.is_late)

    def _drop(self) -> None:
        if self._db is not None:
            with suppress(Exception):
                self._db.close()
        self._db = None


class Beating(threading.Thread):
    """Sends heartbeats for the duration of the block. Calls `lost` once, from another thread and
    with the reason, as soon as the agents of this process must end."""

    def __init__(self, pulse: Pulse, lost: Callable[[str], None] = lambda why: None) -> None:
        super().__init__(daemon=True, name="segue-beat")
        self.pulse, self._lost = pulse, lost
        self.over = threading.Event()
        self._once = threading.Lock()
        self._watch = threading.Thread(target=self._wait, daemon=True, name="segue-lease")

    def __enter__(self) -> "Beating":
        self.start()
        self._watch.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.over.set()

    def run(self) -> None:
        while not self.over.is_set():
            try:
                if not self.pulse.look():
                    why = self.pulse.fault or "the machine slept"
                    self._tell(f"no contact with the fleet for too long: {why}")
            except LeaseLost as fault:
                self._tell(str(fault))
            self.over.wait(_LOOK_S)

    def _wait(self) -> None:
        # A separate thread, because a database that does not answer must not delay this.
        while not self.over.wait(_LOOK_S):
            if self.pulse.is_late:
                self._tell(
                    f"no contact with the fleet for too long: {self.pulse.fault or 'no answer'}"
                )

    def _tell(self, why: str) -> None:
        if not self.over.is_set() and self._once.acquire(blocking=False):
            self._lost(why)
