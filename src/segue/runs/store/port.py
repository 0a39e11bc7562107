"""The interface of a store: the log of each run, what is derived from it, and who may write.

`segue.testing.stores` has the tests that every store must pass.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self

from msgspec import Struct

from segue.core.runs.types import AnyDecision, AnyFact, Run
from segue.core.sessions.reading import Reading
from segue.core.stops.types import Stop
from segue.errors import InputError, SegueError, StateError

SCHEMA = 1
"""The schema of an entry, as users see it with `--json`."""


class Entry(Struct, frozen=True, kw_only=True):
    """One line of a run's log: a fact, and the decisions made about it before anything was done."""

    schema: int = SCHEMA
    run: str
    seq: int  # from 1 on, without gaps
    at: float
    machine: str
    kind: str  # the fact's tag
    data: dict[str, Any]  # the fact; for the first one also the run before it
    draw: float | None = None  # the random number that was used
    decisions: list[dict[str, Any]]
    state: str  # the run's state afterwards

    def as_object(self) -> dict[str, Any]:
        """The entry as `--json` prints it, without a draw if there was none."""
        names = (name for name in self.__struct_fields__ if name != "draw" or self.draw is not None)
        return {name: getattr(self, name) for name in names}


class StoredLeg(Struct, frozen=True, kw_only=True):
    """What is known about a leg."""

    run: str
    leg: int
    agent: str = ""
    purpose: str = "work"
    prompt: str = "task"
    strategy: str = "checkpoint"
    session_id: str = ""
    planned_at: float | None = None  # the decision to start it
    started_at: float | None = None
    replied_at: float | None = None
    ended_at: float | None = None
    reason: str = ""  # why it stopped; "" while it is running
    progressed: bool = False
    tokens: int = 0
    cost_usd: float = 0.0
    active_s: float = 0.0
    fault: str = ""  # why it could not be started


class StoredReading(Struct, frozen=True, kw_only=True):
    """A reading, and the entry that reported it."""

    run: str
    seq: int
    at: float
    leg: int
    reading: Reading


class StoredStop(Struct, frozen=True, kw_only=True):
    """A stop, and the entry that reported it."""

    run: str
    seq: int
    at: float
    leg: int
    stop: Stop


class StoredDecision(Struct, frozen=True, kw_only=True):
    """A decision, and the entry for which it was made."""

    run: str
    seq: int
    place: int  # the first of an entry is 0
    at: float
    decision: str  # its tag
    reason: str
    data: dict[str, Any]  # the whole decision


class StoredTimer(Struct, frozen=True, kw_only=True):
    """A run that waits: any later process can read it and continue."""

    run: str
    until: float
    since: float
    why: str


class StoredAsk(Struct, frozen=True, kw_only=True):
    """A request of another process to the process that drives a run."""

    number: int  # only grows, and is never reused
    run: str
    what: str
    at: float


class Holder(Struct, frozen=True, kw_only=True):
    """A process, distinguishable from every earlier and later process."""

    machine: str
    boot: str  # which boot of the machine; "" if unknown
    pid: int
    started: float  # when the process was started; only for comparison
    domain: str = ""  # the domain of its pid: containers have their own
    note: str = ""  # for people


class Lease(Struct, frozen=True):
    """The right to write, until a later epoch is granted."""

    key: str  # run:<id>, tree:<realpath> or session:<agent>:<id>
    epoch: int


class Held(SegueError):  # noqa: N818 - a fact about the world, for the caller to tell
    """A live process holds the lease."""

    def __init__(self, key: str, holder: Holder) -> None:
        self.key = key
        self.holder = holder
        note = f" ({holder.note})" if holder.note else ""
        super().__init__(f"{key} is held by process {holder.pid} of {holder.machine}{note}")


class LeaseLost(StateError):  # noqa: N818
    """This process was presumed dead, or released the lease: it must not write any more."""


class UnknownRun(InputError):  # noqa: N818
    """There is no such run."""


IsAlive = Callable[[Holder], bool]
"""Whether a holder lives, as far as this process can tell; True if it cannot."""


def run_key(run_id: str) -> str:
    """The lease that a process needs to append to a run."""
    return f"run:{run_id}"


class Store(Protocol):
    """Stores runs. Each writing call is one transaction: everything is stored, or nothing; once
    the call has returned, the data is durable. Raises StateError with one line if the machine
    prevents that."""

    def close(self) -> None:
        """Releases all resources."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...

    # The log

    def create(
        self,
        run: Run,
        *,
        after: Run | None = None,
        at: float | None = None,
        draw: float | None = None,
        decisions: Sequence[AnyDecision] = (),
    ) -> Entry:
        """Writes the first entry, for the fact `Created`: `run` is the run before it, `after`
        the run after it. Raises ValueError if a run with that id exists."""

    def append(
        self,
        run_after: Run,
        fact: AnyFact,
        *,
        at: float,
        draw: float | None = None,
        decisions: Sequence[AnyDecision] = (),
        epoch: int,
        taken: int = 0,
    ) -> Entry:
        """Writes the next entry. `taken`: the requests up to this number led to it, and are
        removed. Raises LeaseLost unless the run's lease is held in this epoch, UnknownRun,
        and ValueError for data that could not be read back unchanged (such as NaN): nothing
        is written then."""

    def log(self, run_id: str, after_seq: int = 0) -> list[Entry]:
        """The entries from the first one; none for an unknown run."""

    # Derived from the log

    def run(self, run_id: str) -> Run | None:
        """The run as its last entry left it."""

    def runs(
        self, cwd: str | None = None, *, unfinished: bool = False, limit: int | None = None
    ) -> list[Run]:
        """All runs, the newest first; those that this version cannot read are left out."""

    def find(self, prefix: str) -> list[str]:
        """The ids that begin like this, in order."""

    def legs(self, run_id: str) -> list[StoredLeg]:
        """The legs, by number."""

    def sessions(self) -> list[tuple[str, str]]:
        """The id of each session that was in a run, or that a run continues, with the run's id;
        in no particular order."""

    def readings(self, run_id: str) -> list[StoredReading]:
        """The readings, in order."""

    def stops(self, run_id: str) -> list[StoredStop]:
        """The stops, in order."""

    def decisions(self, run_id: str) -> list[StoredDecision]:
        """The decisions, in order."""

    def timers(self, due_before: float | None = None) -> list[StoredTimer]:
        """The waiting runs, the first due first; `due_before` is inclusive."""

    # What is too large for the log

    def keep_checkpoint(
        self, run_id: str, number: int, checkpoint: dict[str, Any], at: float
    ) -> None:
        """Stores a checkpoint before the fact that names it; the same number replaces it."""

    def checkpoint(self, run_id: str, number: int) -> dict[str, Any] | None:
        """The checkpoint as it was stored."""

    def forget(self, run_id: str, *, epoch: int) -> None:
        """Deletes everything stored about a run, including its lease. Raises LeaseLost unless
        the run's lease is held in this epoch, and UnknownRun."""

    # Requests of other processes

    def ask(self, run_id: str, what: str, at: float) -> int:
        """Sends a request to the process that drives the run, and returns the request's number."""

    def asks(self, run_id: str, after: int = 0) -> list[StoredAsk]:
        """The requests that no entry has taken yet."""

    def version(self) -> int:
        """A number that changes once another process has written. Costs next to nothing."""

    # Leases

    def acquire(self, key: str, holder: Holder, now: float, *, seize: bool = False) -> Lease:
        """Acquires the lease, in a new epoch. Raises Held if a live process has it, even this one.
        `seize` takes it anyway: for users who know better, for example that a container is gone."""

    def release(self, lease: Lease) -> None:
        """Releases the lease; does nothing if it was lost."""

    def holder(self, key: str) -> Holder | None:
        """The last holder that has not released the lease; it may be dead."""
