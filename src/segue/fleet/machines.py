"""The machines of a fleet: each says now and then that it lives. One that has not for longer than
its lease has lost its work to whoever asks first; by then it has ended its agents itself.

Whether a beat is late is judged by the database's clock alone, and how long a beat could not be
sent by a clock of the machine's own that nobody sets: clocks that are wrong move nothing.
"""

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from segue.errors import StateError
from segue.fleet.database import PROTOCOL, FleetDatabase, read
from segue.runs.store import leases
from segue.runs.store.port import Holder

if TYPE_CHECKING:
    from collections.abc import Iterable

LEASE_S = 60.0
BEATS = 6
"""How often a machine beats within its lease."""
GIVE_UP = 0.5
"""After this share of the lease without a beat that was heard, a machine ends its agents: there is
time left for them to go before anybody else may begin."""


class Machine(Struct, frozen=True, kw_only=True):
    """One machine, as the database knows it."""

    id: str
    name: str
    silent_s: float  # since its last beat
    lease_s: float
    is_drained: bool = False
    agents: tuple[str, ...] = ()
    protocol: int = PROTOCOL

    @property
    def is_alive(self) -> bool:
        """Whether its work is still its own."""
        return self.silent_s <= self.lease_s


def beat(
    db: FleetDatabase, machine: str, *, lease_s: float = LEASE_S, agents: "Iterable[str]" = ()
) -> None:
    """Says that a machine lives."""
    db.rows(
        "INSERT INTO segue.machine (id, name, beat_at, lease_s, agents, protocol)"
        " VALUES (%s, %s, now(), %s, %s, %s)"
        " ON CONFLICT (id) DO UPDATE SET beat_at = now(), lease_s = excluded.lease_s,"
        " agents = excluded.agents, name = excluded.name, protocol = excluded.protocol",
        (machine, os.uname().nodename, lease_s, ",".join(agents), PROTOCOL),
    )


def machines(db: FleetDatabase) -> list[Machine]:
    """All that ever worked, by name."""
    sql = (
        "SELECT id, name, extract(epoch FROM now() - beat_at)::float, lease_s, is_drained, agents,"
        " protocol FROM segue.machine ORDER BY name, id"
    )
    return [
        Machine(
            id=row[0],
            name=row[1],
            silent_s=row[2],
            lease_s=row[3],
            is_drained=row[4],
            agents=tuple(name for name in row[5].split(",") if name),
            protocol=row[6],
        )
        for row in db.rows(sql)
    ]


def carried(db: FleetDatabase) -> dict[str, list[str]]:
    """The tasks that each machine carries."""
    found: dict[str, list[str]] = {}
    sql = "SELECT id, holder FROM segue.task WHERE holder IS NOT NULL ORDER BY number"
    for task_id, holder in db.rows(sql):
        found.setdefault(read(holder, Holder).machine, []).append(task_id)
    return found


def is_drained(db: FleetDatabase, machine: str) -> bool:
    """Whether a machine takes no new work."""
    sql = "SELECT is_drained FROM segue.machine WHERE id = %s"
    return any(is_so for (is_so,) in db.rows(sql, (machine,)))


def drain(db: FleetDatabase, machine: str, *, is_drained: bool) -> None:
    """Makes a machine take no new work, or take it again."""
    db.rows("UPDATE segue.machine SET is_drained = %s WHERE id = %s", (is_drained, machine))


def forget(db: FleetDatabase, machine: str) -> None:
    """Deletes a machine that is gone for good: what it held is another's from now on."""
    db.rows("DELETE FROM segue.machine WHERE id = %s", (machine,))


def is_alive(db: FleetDatabase, holder: Holder) -> bool:
    """Whether a process may still do its work: one of this machine by its pid and start time, one
    of another by that machine's beats."""
    if holder.machine == leases.machine():
        return leases.is_alive(holder)
    sql = "SELECT now() - beat_at <= lease_s * interval '1 second' FROM segue.machine WHERE id = %s"
    return any(is_there for (is_there,) in db.rows(sql, (holder.machine,)))


class Pulse:
    """Beats for one machine, and knows when it has not been heard for too long."""

    def __init__(
        self,
        open_database: Callable[[], FleetDatabase],
        machine: str,
        *,
        lease_s: float = LEASE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open, self._machine, self.lease_s, self._clock = (
            open_database,
            machine,
            lease_s,
            clock,
        )
        self._db: FleetDatabase | None = None
        self._heard_at = clock()
        self._next_at = 0.0
        self.fault = ""

    def look(self) -> bool:
        """Beats if it is time; whether the machine may go on. A beat counts from when it was sent:
        the answer may take long."""
        now = self._clock()
        if now >= self._next_at:
            self._next_at = now + self.lease_s / BEATS
            try:
                if self._db is None:
                    self._db = self._open()
                beat(self._db, self._machine, lease_s=self.lease_s)
                self._heard_at, self.fault = now, ""
            except StateError as fault:
                self._db, self.fault = None, str(fault)
        return self._clock() - self._heard_at < self.lease_s * GIVE_UP
