"""What can go wrong, and when: planned from a world's seed before the world starts."""

from collections.abc import Sequence
from enum import StrEnum
from random import Random

from msgspec import Struct

DAY_S = 86_400.0
_IN_HANDOFF = 0.25
"""The share of faults that strike during a handoff. A handoff takes a minute of a day, and faults
in it matter most."""


class Fault(StrEnum):
    """A kind of fault. People read the values."""

    KILL_SEGUE = "segue is killed"
    KILL_AT_WRITE = "segue is killed while it writes"
    KILL_AT_ACT = "segue is killed while it acts"
    KILL_AGENT = "the agent is killed"
    REBOOT = "the machine reboots"
    SLEEP = "the machine sleeps"
    CLOCK_JUMP = "the clock jumps"
    DISK_FULL = "the disk is full"
    NO_CHECKPOINT = "no checkpoint can be written"
    OUTAGE = "the network is gone"
    OVERLOAD = "the provider is overloaded"
    LIMIT = "the account's limit is used up"
    HANG = "the agent hangs"
    CRASH = "the agent crashes"
    NOT_LOADED = "the session cannot be loaded"
    DISOBEYS = "the agent works on although it is asked for a checkpoint"
    MUTE = "the agent does not answer the request"
    SPIKE = "a tool prints very much"
    REFUSED = "the account is refused"
    CTRL_C = "the user presses Ctrl+C"
    CANCEL = "the user runs segue cancel"
    HANG_UP = "the terminal is closed"
    SECOND_SEGUE = "a second segue tries to drive the same run"
    USER_TYPES = "the user types"
    USER_EXIT = "the user ends the session"
    BAD_DOCUMENT = "the agent writes an unusable document"
    SPOILS_DOCUMENT = "the user spoils the document while reading it"
    DECLINES = "the model declines the task"
    FAILS_ANEW = "the agent fails in every leg, each time otherwise"


_PER_DAY = {
    Fault.KILL_SEGUE: 0.10,
    Fault.KILL_AT_WRITE: 0.10,
    Fault.KILL_AT_ACT: 0.10,
    Fault.KILL_AGENT: 0.08,
    Fault.REBOOT: 0.03,
    Fault.SLEEP: 0.15,
    Fault.CLOCK_JUMP: 0.05,
    Fault.DISK_FULL: 0.03,
    Fault.NO_CHECKPOINT: 0.05,
    Fault.OUTAGE: 0.08,
    Fault.OVERLOAD: 0.15,
    Fault.LIMIT: 0.25,
    Fault.HANG: 0.10,
    Fault.CRASH: 0.12,
    Fault.NOT_LOADED: 0.08,
    Fault.DISOBEYS: 0.10,
    Fault.MUTE: 0.10,
    Fault.SPIKE: 0.05,
    Fault.REFUSED: 0.03,
    Fault.CTRL_C: 0.05,
    Fault.CANCEL: 0.04,
    Fault.HANG_UP: 0.05,
    Fault.SECOND_SEGUE: 0.15,
    Fault.USER_TYPES: 0.30,
    Fault.USER_EXIT: 0.05,
    Fault.BAD_DOCUMENT: 0.20,
    Fault.SPOILS_DOCUMENT: 0.10,
    Fault.DECLINES: 0.02,
    Fault.FAILS_ANEW: 0.02,
}
"""How often each happens in a session of a busy day: far more often than in real life, so that
faults occur together."""


class PlannedFault(Struct, frozen=True):
    """One fault: its time, its session, and its severity (0 to 1)."""

    at_s: float
    fault: Fault
    session: int
    size: float
    in_handoff: bool = False  # strikes in the middle of the next handoff instead


def swarm(seed: str) -> tuple[Fault, ...]:
    """The kinds of faults that a world has: about two thirds of all kinds."""
    return tuple(each for each in Fault if Random(f"{seed}:swarm:{each.name}").random() < 0.65)


def plan(
    seed: str, sessions: int, days: float, allowed: Sequence[Fault]
) -> tuple[PlannedFault, ...]:
    """The faults of a world, in order. Each kind has its own random stream, so adding or removing a
    kind, here or in a later version, moves no other fault."""
    found = []
    for fault in allowed:
        own = Random(f"{seed}:{fault.name}")
        at_s = own.expovariate(_PER_DAY[fault] * sessions) * DAY_S
        while at_s < days * DAY_S:
            session, size = own.randrange(sessions), own.random()
            found.append(PlannedFault(at_s, fault, session, size, own.random() < _IN_HANDOFF))
            at_s += own.expovariate(_PER_DAY[fault] * sessions) * DAY_S
    return tuple(sorted(found, key=lambda each: (each.at_s, each.fault.name, each.session)))
