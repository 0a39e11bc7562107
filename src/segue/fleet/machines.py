"""The machines of a fleet: each says now and then that it lives. One that has not for longer than
its lease has lost its work to whoever asks first; by then it has ended its agents itself.

Whether a beat is late is judged by the database's clock alone, and how long a beat could not be
sent by a clock of the machine's own that nobody sets: clocks that are wrong move nothing.
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
"""How often a machine beats within its lease."""
_LOOK_S = 0.25
GIVE_UP = 0.5
"""After this share of the lease without a beat that was heard, a machine ends its agents: there is
time left for them to go before anybody else may begin."""


class Offer(Struct, frozen=True, kw_only=True):
    """What a machine has for tasks, as its worker says."""

    labels: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()  # hashes
    jobs: int = 0  # tasks at once; 0: no worker has said so yet


class SameId(StateError):  # noqa: N818 - told to the user as it is
    """Two machines have one id."""


class Machine(Struct, frozen=True, kw_only=True):
    """One machine, as the database knows it."""

    id: str
    name: str
    silent_s: float  # since its last beat
    lease_s: float
    is_drained: bool = False
    offer: Offer = Offer()
    protocol: int = PROTOCOL

    @property
    def is_alive(self) -> bool:
        """Whether its work is still its own."""
        return self.silent_s <= self.lease_s


def beat(
    db: FleetDatabase,
    machine: str,
    *,
    lease_s: float = LEASE_S,
    offer: Offer | None = None,
    boot: str = "",
) -> None:
    """Says that a machine lives. Without an `offer`, what it offered stays. Raises SameId if
    another start of a machine with its id is heard: a clone, or itself before a restart."""
    told = offer or Offer()
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
        (machine, os.uname().nodename, boot, lease_s, PROTOCOL, _kept(told.labels),
         _kept(told.agents), _kept(told.accounts), told.jobs),
    )  # fmt: skip
    if not found:
        raise SameId(
            f"machine {machine} was heard just now in another start of it; if this one was not just"
            " restarted, it is a clone: give it an /etc/machine-id of its own"
        )


def _kept(names: "Iterable[str]") -> str:
    return ",".join(names)


def _read(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)


def machines(db: FleetDatabase) -> list[Machine]:
    """All that ever worked, by name."""
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


def is_alive(db: FleetDatabase, holder: Holder, *, grace_s: float = 0.0) -> bool:
    """Whether a process may still do its work: one of this machine by its pid and start time, one
    of another by that machine's beats. `grace_s`: how long that machine may be late."""
    if holder.machine == leases.machine():
        return leases.is_alive(holder)
    sql = (
        "SELECT now() - beat_at <= (lease_s + %s) * interval '1 second' FROM segue.machine"
        " WHERE id = %s"
    )
    return any(is_there for (is_there,) in db.rows(sql, (grace_s, holder.machine)))


def may_live(db: FleetDatabase, holder: Holder, run_id: str) -> bool:
    """Whether a process of another machine may still drive that run. A machine without a worker
    never beats; then its run's words tell that it lives."""
    sql = (
        "SELECT now() - greatest(beat_at, (SELECT max(at) FROM segue.words WHERE run = %s))"
        " <= lease_s * interval '1 second' FROM segue.machine WHERE id = %s"
    )
    return all(is_so for (is_so,) in db.rows(sql, (raw(run_id), holder.machine)))


class Pulse:
    """Beats for one machine, and knows when it has not been heard for too long.

    `look` may wait for the database; `is_late` never does, and may be asked by another thread."""

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
        """Asked on every beat that was heard; who has lost what it works on raises LeaseLost."""
        self._heard_at = clock()
        self._next_at = 0.0
        self.fault = ""

    @property
    def max_s(self) -> float:
        """How long agents may work on without a beat that was heard."""
        return self.lease_s * GIVE_UP

    @property
    def is_late(self) -> bool:
        """Whether the machine was not heard for so long that its agents must end."""
        return self._clock() - self._heard_at >= self.max_s

    def look(self) -> bool:
        """Beats if it is time; False if that was too late, also if it was heard now. A beat counts
        from when it was sent: the answer may take long. Raises LeaseLost by `checks`."""
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
    """Beats as long as the block lasts. `lost` is called once, from another thread, as soon as the
    agents of this process must end, with the reason."""

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
                    self._tell(f"not heard for too long: {self.pulse.fault or 'the machine slept'}")
            except LeaseLost as fault:
                self._tell(str(fault))
            self.over.wait(_LOOK_S)

    def _wait(self) -> None:
        # Apart from who beats: a database that does not answer must not keep anybody waiting.
        while not self.over.wait(_LOOK_S):
            if self.pulse.is_late:
                self._tell(f"not heard for too long: {self.pulse.fault or 'no answer'}")

    def _tell(self, why: str) -> None:
        if not self.over.is_set() and self._once.acquire(blocking=False):
            self._lost(why)
