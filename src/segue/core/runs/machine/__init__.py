"""The state machine of a run: a fact in a state leads to the next state and to decisions.

How it works:

1. `TABLE` has a rule for every state and every kind of fact: a function, and the states that it may
   lead to. Where a row has no rule for a state, nothing changes.
2. A fact about a leg that is not the newest, or that has ended, changes nothing. So reporting a
   fact twice does no harm.
3. A leg is live from the decision to start it (intent before act) until the fact that it ended. No
   leg is started while another is live, and leg numbers only grow.
4. A run is checkpointing from the decision to ask until the checkpoint is written, even after the
   leg has ended. While it waits or its check runs, no leg is live.
5. A run that was interrupted (`HungUp`) has no live leg and has not ended: the process that drives
   it next reports `Resumed` and continues from the run's state.
6. Final states accept only `Resumed`. A run ends only when no leg is live: ending a live leg is a
   decision, and its end is a fact.
7. Every path leads to an end, because every path without progress is counted: waits by their
   length and number, failures by the breaker, legs by `idle_legs`, continuations by the strategies,
   checks by `max_checks`.

`handlers` and `leg_over` have the functions, `moves` what they share, and `outcomes` the texts.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec import Struct

from segue.core.runs.machine import handlers as on
from segue.core.runs.machine import leg_over as after
from segue.core.runs.machine.moves import RunContext
from segue.core.runs.types import (
    AnyFact,
    Arrived,
    Boundary,
    CancelAsked,
    Checked,
    CheckpointComposed,
    CheckpointReceived,
    ContextMeasured,
    Created,
    Elapsed,
    Fact,
    HungUp,
    InterruptRequested,
    LegEnded,
    LegNotStarted,
    LegStarted,
    Limited,
    Looped,
    Replied,
    Resumed,
    Run,
    RunState,
    RunStep,
    SessionNamed,
    SessionReminded,
)

Handler = Callable[[Run, Any, RunContext], RunStep]


def step(run: Run, fact: AnyFact, *, at: float, draw: float) -> RunStep:
    """Returns the run after this fact, and the decisions that follow. The same arguments always
    give the same answer. `at`: unix time; `draw`: a random number from 0 to 1, which is
    stored in the decision that uses it."""
    if _is_old(run, fact):
        return RunStep(run)
    return TABLE[run.state, type(fact)].handle(run, fact, RunContext(at, draw))


def fold(run: Run, entries: Iterable[tuple[AnyFact, float, float]]) -> Run:
    """Returns the run that results from these facts, each with its time and its draw."""
    for fact, at, draw in entries:
        run = step(run, fact, at=at, draw=draw).run
    return run


def _is_old(run: Run, fact: AnyFact) -> bool:
    if isinstance(fact, Elapsed):
        return fact.leg not in (0, run.leg)
    leg: int | None = getattr(fact, "leg", None)
    return leg is not None and (leg != run.leg or not run.is_live)


class Rule(Struct, frozen=True):
    """What a fact does in a state, and the states that it may lead to."""

    handle: Handler
    leads_to: frozenset[RunState]


STARTING, WORKING, RESUMING = RunState.STARTING, RunState.WORKING, RunState.RESUMING
CHECKPOINTING, HANDING_OVER = RunState.CHECKPOINTING, RunState.HANDING_OVER
WAITING, CHECKING, STOPPING = RunState.WAITING, RunState.CHECKING, RunState.STOPPING
DONE, FAILED, CANCELLED, NEEDS_YOU = (
    RunState.DONE,
    RunState.FAILED,
    RunState.CANCELLED,
    RunState.NEEDS_YOU,
)

_Rows = dict[tuple[RunState, ...], tuple[Handler, tuple[RunState, ...]]]

_LIVE = (STARTING, WORKING, CHECKPOINTING, HANDING_OVER, RESUMING, STOPPING)
_FINAL = tuple(state for state in RunState if state.is_final)
_STAYS: tuple[RunState, ...] = ()
# After a verdict: continues in the same session, in a new one, after a wait; or not at all.
_VERDICT = (RESUMING, CHECKPOINTING, WAITING, CHECKING, *_FINAL)

# For each fact: in which states, what is done, and where that may lead besides the same state.
_ROWS: dict[type[Fact], _Rows] = {
    Created: {(STARTING,): (on.created, (RESUMING, CHECKPOINTING, WAITING, FAILED))},
    LegStarted: {_LIVE: (on.named, _STAYS)},
    SessionNamed: {_LIVE: (on.named, _STAYS)},
    LegNotStarted: {
        (STARTING, WORKING, RESUMING, HANDING_OVER): (after.unstartable, (FAILED,)),
        (CHECKPOINTING,): (after.unstartable, _STAYS),
        (STOPPING,): (
            after.unstartable,
            (CANCELLED, FAILED, WAITING, STARTING, RESUMING, CHECKPOINTING),
        ),
    },
    Limited: {
        (STARTING, HANDING_OVER): (after.limited, (WAITING, FAILED)),
        (RESUMING,): (after.limited, (WAITING, CHECKPOINTING, FAILED)),
        (CHECKPOINTING,): (after.limited, _STAYS),
        (STOPPING,): (
            after.limited,
            (CANCELLED, FAILED, WAITING, STARTING, RESUMING, CHECKPOINTING),
        ),
    },
    Replied: {
        (STARTING, RESUMING): (on.first_reply, (WORKING, CHECKPOINTING)),
        (HANDING_OVER,): (on.takes_over, (WORKING, CHECKPOINTING)),
        (WORKING, CHECKPOINTING, STOPPING): (on.noted_reply, _STAYS),
    },
    ContextMeasured: {
        (WORKING,): (on.grows, (CHECKPOINTING,)),
        (STARTING, RESUMING, HANDING_OVER, CHECKPOINTING, STOPPING): (on.noted_size, _STAYS),
    },
    Boundary: {
        (WORKING,): (on.boundary, (CHECKPOINTING,)),
        (CHECKPOINTING,): (on.boundary_asked, _STAYS),
        (STOPPING,): (on.boundary_ends, _STAYS),
    },
    CheckpointReceived: {
        (CHECKPOINTING,): (on.checkpoint_received, _STAYS),
        (STOPPING,): (on.told_last, _STAYS),
    },
    CheckpointComposed: {
        (CHECKPOINTING,): (on.composed, (HANDING_OVER, STARTING, WAITING, FAILED))
    },
    LegEnded: {
        (STARTING, WORKING): (after.worked, _VERDICT),
        (RESUMING,): (after.resumed, _VERDICT),
        (HANDING_OVER,): (after.handed_over, _VERDICT),
        (CHECKPOINTING,): (after.checkpointed, (RESUMING, WAITING, CHECKING, DONE, FAILED)),
        (STOPPING,): (
            after.stopped,
            (CANCELLED, FAILED, DONE, CHECKING, WAITING, STARTING, RESUMING, CHECKPOINTING),
        ),
    },
    Checked: {(CHECKING,): (on.checked, (DONE, RESUMING, STARTING, FAILED))},
    Elapsed: {
        (STARTING, WORKING, RESUMING, HANDING_OVER): (on.time_in_leg, (STOPPING,)),
        (CHECKPOINTING,): (on.time_to_tell, (STOPPING, FAILED)),
        (STOPPING,): (on.time_to_finish, _STAYS),
        (WAITING,): (
            on.time_to_go_on,
            (RESUMING, STARTING, HANDING_OVER, CHECKPOINTING, FAILED),
        ),
        (CHECKING,): (on.time_between, (FAILED,)),
    },
    Looped: {(STARTING, WORKING, RESUMING, HANDING_OVER): (on.looped, (STOPPING,))},
    SessionReminded: {(WORKING,): (on.reminded, (CHECKPOINTING,))},
    Arrived: {},
    InterruptRequested: {
        (STARTING, WORKING, RESUMING, HANDING_OVER): (on.interrupt_requested, (STOPPING,)),
        (CHECKPOINTING,): (on.interrupt_requested, (STOPPING, CANCELLED)),
        (STOPPING,): (on.interrupt_requested, _STAYS),
        (WAITING, CHECKING): (on.interrupt_requested, (CANCELLED,)),
    },
    CancelAsked: {
        (STARTING, WORKING, RESUMING, HANDING_OVER): (on.cancelled, (STOPPING,)),
        (CHECKPOINTING,): (on.cancelled, (STOPPING, CANCELLED)),
        (STOPPING,): (on.cancelled, _STAYS),
        (WAITING, CHECKING): (on.cancelled, (CANCELLED,)),
    },
    HungUp: {
        (STARTING, WORKING, RESUMING, HANDING_OVER): (on.hung_up, (STOPPING,)),
        (CHECKPOINTING,): (on.hung_up, (STOPPING,)),
        (STOPPING,): (on.hung_up_late, _STAYS),
        (WAITING, CHECKING): (on.hung_up, _STAYS),
    },
    Resumed: {
        (STARTING, RESUMING, HANDING_OVER): (on.resumed_live, _STAYS),
        (WORKING,): (on.resumed_live, (CHECKPOINTING,)),
        (CHECKPOINTING,): (on.resumed_composing, _STAYS),
        (STOPPING,): (on.resumed_stopping, _STAYS),
        (WAITING,): (on.resumed_waiting, (CHECKPOINTING, STARTING, HANDING_OVER)),
        (CHECKING,): (on.resumed_checking, (RESUMING, CHECKPOINTING, FAILED)),
        _FINAL: (after.user_resumes, (STARTING, RESUMING, CHECKPOINTING, FAILED)),
    },
}


def _table() -> dict[tuple[RunState, type[Fact]], Rule]:
    table = {
        (state, fact): Rule(on.nothing, frozenset({state})) for fact in _ROWS for state in RunState
    }
    for fact, row in _ROWS.items():
        for states, (handle, leads_to) in row.items():
            for state in states:
                table[state, fact] = Rule(handle, frozenset({state, *leads_to}))
    return table


TABLE = _table()
"""The rule for every state and every kind of fact."""


def transitions() -> Iterator[tuple[RunState, type[Fact], tuple[RunState, ...]]]:
    """Every pair of state and fact that can have an effect, with the states that it may lead to."""
    for (state, fact), rule in TABLE.items():
        if rule.handle is not on.nothing:
            yield state, fact, tuple(other for other in RunState if other in rule.leads_to)
