"""The state machine of a handoff in a terminal: a fact in a step leads to the next step and acts.

How it works:

1. `TABLE` has a rule for every step and every kind of fact: a function, and the steps that it may
   lead to. Where a row names no rule for a step, nothing changes. `types` has the types.
2. The context is cleared only while the last look at the document's file found a valid document.
   `has_document` says so, and every look at the file updates it.
3. segue asks a session for its document, waits for it, and asks again if it is not valid; then
   segue writes one. If segue cannot type, it retries for a while; then it asks the user, once, with
   a document on disk.
4. segue types to ask, to clear or to resume, and each is answered before the next: by what was
   typed or seen, or by a timeout.
5. The user has priority. Anything they say before the context is cleared makes a document stale,
   and segue does not interfere with what they do in the new session.
6. A session at its prompt belongs to its user. If its turn ended, or the user interrupted it, the
   handoff rests until the session works again; segue resumes only work that it stopped itself. If
   the user interrupts what segue asked for, the handoff is cancelled.
7. A turn has `busy_wait_s` to end by itself. A turn that comes near the agent's own limit is
   interrupted earlier, between two tools.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec import Struct

from segue.core.handoffs.machine import handlers as on
from segue.core.handoffs.machine.handlers import HandoffContext, Stepped
from segue.core.handoffs.machine.types import (
    Act,
    AgentGone,
    AnyAct,
    AnyFact,
    AskUser,
    Blocked,
    Busy,
    Cancel,
    Cleared,
    Done,
    FileSeen,
    HandoffFact,
    HandoffStep,
    Interrupt,
    KeyPressed,
    Metrics,
    NotInterrupted,
    NotTyped,
    NotWritten,
    OwnWritten,
    Planned,
    PromptSeen,
    ReadFile,
    Ready,
    RecordFigures,
    RetryRequested,
    TerminalHandoff,
    TimeUp,
    TurnInterrupted,
    Typed,
    TypeText,
    Used,
    UserSpoke,
    WentOn,
    What,
    WriteOwn,
)
from segue.core.handoffs.metrics import metrics
from segue.core.policy import Policy

__all__ = [
    "TABLE",
    "Act",
    "AgentGone",
    "AnyAct",
    "AnyFact",
    "AskUser",
    "Blocked",
    "Busy",
    "Cancel",
    "Cleared",
    "Done",
    "FileSeen",
    "HandoffFact",
    "HandoffStep",
    "Interrupt",
    "KeyPressed",
    "Metrics",
    "NotInterrupted",
    "NotTyped",
    "NotWritten",
    "OwnWritten",
    "Planned",
    "PromptSeen",
    "ReadFile",
    "Ready",
    "RecordFigures",
    "RetryRequested",
    "TerminalHandoff",
    "TimeUp",
    "TurnInterrupted",
    "TypeText",
    "Typed",
    "Used",
    "UserSpoke",
    "WentOn",
    "What",
    "WriteOwn",
    "acts_again",
    "due",
    "fold",
    "metrics",
    "step",
    "transitions",
]  # fmt: skip

TYPE_S = 180.0  # text that was not confirmed by then was not typed
CLEAR_S = 30.0  # for a new session to be seen
QUIET_S = 20.0  # at least, for a turn after its document, or a new session, to come to its prompt
CUT_S = 5.0  # for a turn to come to its prompt that was interrupted: a key may be swallowed
LAND_S = 60.0  # for what was typed to be seen in the transcript


def step(cycle: TerminalHandoff, fact: AnyFact, policy: Policy, now: float) -> Stepped:
    """Returns the handoff after this fact, and the acts that follow. The same arguments always
    give the same answer."""
    if isinstance(fact, TimeUp):
        when = due(cycle, policy)
        if when is None or now < when:
            return cycle, []
    return TABLE[cycle.step, type(fact)].handle(cycle, fact, HandoffContext(policy, now))


def fold(
    cycle: TerminalHandoff, entries: Iterable[tuple[AnyFact, float]], policy: Policy
) -> TerminalHandoff:
    """Returns the handoff that results from these facts, each with its time."""
    for fact, at in entries:
        cycle, _ = step(cycle, fact, policy, at)
    return cycle


def due(cycle: TerminalHandoff, policy: Policy) -> float | None:
    """When to report `TimeUp`; None if the handoff waits for nothing."""
    match cycle.step:
        case HandoffStep.WAITING:
            wait: float | None = policy.busy_wait_s
            if cycle.cut_at is not None:
                wait = CUT_S
        case HandoffStep.ASKED:
            wait = policy.handoff_wait_s
        case HandoffStep.WRITTEN | HandoffStep.CLEARED:
            wait = max(policy.busy_wait_s, QUIET_S)
        case HandoffStep.CLEARING:
            wait = CLEAR_S if cycle.is_typed else TYPE_S
        case HandoffStep.ASKING | HandoffStep.RESUMING:
            wait = TYPE_S
        case HandoffStep.RESUMED:
            wait = policy.handoff_wait_s if cycle.is_received else LAND_S
        case _:
            wait = None
    return None if wait is None else cycle.step_at + wait


def acts_again(cycle: TerminalHandoff) -> list[AnyAct]:
    """The acts that were decided and not answered, for a process that continues another's
    handoff."""
    match cycle.step:
        case HandoffStep.ASKING:
            return [TypeText("request")]
        case HandoffStep.WRITING:
            return [WriteOwn()]
        case HandoffStep.CLEARING if not cycle.has_document:
            return [WriteOwn()]
        case HandoffStep.CLEARING if not cycle.is_typed:
            return [TypeText("clear")]
        case HandoffStep.CLEARED | HandoffStep.RESUMED if (
            not cycle.has_document and not cycle.is_read
        ):
            return [WriteOwn()]
        case HandoffStep.RESUMING:
            return [TypeText("resume")]
        case HandoffStep.NEEDS_USER:
            return [AskUser(cycle.why)]
        case _:
            return []


# The table


class HandoffRule(Struct, frozen=True):
    """What a fact does in a step, and the steps that it may lead to."""

    handle: Callable[[TerminalHandoff, Any, HandoffContext], Stepped]
    leads_to: frozenset[HandoffStep]


WAITING, RESTING = HandoffStep.WAITING, HandoffStep.RESTING
ASKING, ASKED, WRITING = HandoffStep.ASKING, HandoffStep.ASKED, HandoffStep.WRITING
WRITTEN, CLEARING, CLEARED = HandoffStep.WRITTEN, HandoffStep.CLEARING, HandoffStep.CLEARED
RESUMING, RESUMED = HandoffStep.RESUMING, HandoffStep.RESUMED
DONE, NEEDS_USER, CANCELLED = HandoffStep.DONE, HandoffStep.NEEDS_USER, HandoffStep.CANCELLED

_Rows = dict[
    tuple[HandoffStep, ...],
    tuple[Callable[[TerminalHandoff, Any, HandoffContext], Stepped], tuple[HandoffStep, ...]],
]

_OPEN = tuple(step for step in HandoffStep if not step.is_final)
_STAYS: tuple[HandoffStep, ...] = ()

# For each fact: in which steps, what is done, and where that may lead besides the same step.
_ROWS: dict[type[HandoffFact], _Rows] = {
    Planned: {_OPEN: (on.nothing, _STAYS)},
    Busy: {
        (WAITING, WRITTEN, CLEARED): (on.busy, _STAYS),
        (RESTING,): (on.works_again, (WAITING,)),
        (NEEDS_USER,): (on.unblocked, (WAITING, CLEARED)),
    },
    TurnInterrupted: {
        (WAITING,): (on.interrupted, (RESTING, CANCELLED)),
        (ASKED,): (on.interrupted, (WAITING, CANCELLED)),
        (ASKING, WRITING, WRITTEN): (on.interrupted, (CANCELLED,)),
        (CLEARING, CLEARED, RESUMING, RESUMED): (on.interrupted, (CANCELLED,)),
    },
    KeyPressed: {(WAITING, WRITTEN): (on.key_pressed, _STAYS)},
    NotInterrupted: {
        (WAITING,): (on.not_interrupted, (WRITING,)),
        (WRITTEN,): (on.not_interrupted, (WRITING, NEEDS_USER)),
    },
    Blocked: {(WAITING, WRITTEN, CLEARED): (on.blocked, _STAYS)},
    Used: {_OPEN: (on.used, _STAYS)},
    Cancel: {_OPEN: (on.cancel, (CANCELLED,))},
    RetryRequested: {
        (RESTING,): (on.retry, (WAITING,)),
        (NEEDS_USER,): (on.retry, (WAITING, CLEARED, RESUMED)),
    },
    Ready: {
        (WAITING,): (on.ready_to_be_asked, (ASKING, RESTING, WRITING)),
        (WRITTEN,): (on.ready_to_be_cleared, (CLEARING,)),
        (CLEARED,): (on.ready_to_resume, (RESUMING,)),
        (NEEDS_USER,): (on.unblocked, (WAITING, CLEARED)),
    },
    TimeUp: {
        (WAITING,): (on.time_for_turn, (WRITING,)),
        (WRITTEN,): (on.time_for_turn, (WRITING, NEEDS_USER)),
        (ASKED,): (on.time_for_document, (WRITING,)),
        (ASKING,): (on.time_to_type, (WAITING, WRITING, WRITTEN)),
        (CLEARING,): (on.time_to_type, (WAITING, WRITING, WRITTEN, NEEDS_USER)),
        (RESUMING,): (on.time_to_type, (CLEARED, NEEDS_USER)),
        (CLEARED,): (on.time_for_new_session, (NEEDS_USER,)),
        (RESUMED,): (on.time_to_go_on, (CLEARED, NEEDS_USER)),
    },
    Typed: {
        (ASKING,): (on.typed_request, (ASKED, WRITTEN)),
        (CLEARING,): (on.typed_clear, _STAYS),
        (RESUMING,): (on.typed_resume, (RESUMED,)),
    },
    PromptSeen: {
        (WAITING,): (on.asked_otherwise, (ASKED,)),
        (ASKING,): (on.typed_request, (ASKED, WRITTEN)),
        (CLEARING,): (on.typed_clear, _STAYS),
        (ASKED, RESUMED): (on.prompt_received, _STAYS),
        (CLEARED, RESUMING, NEEDS_USER): (on.typed_resume, (RESUMED,)),
    },
    NotTyped: {
        (ASKING,): (on.refused, (WAITING, WRITING, WRITTEN)),
        (CLEARING,): (on.refused, (WAITING, WRITING, WRITTEN, NEEDS_USER)),
        (RESUMING,): (on.refused, (CLEARED, NEEDS_USER)),
    },
    FileSeen: {
        (WAITING,): (on.file_comes, (WRITTEN, CANCELLED)),
        (ASKED,): (on.file_comes, (WAITING, WRITING, WRITTEN, CANCELLED)),
        (WRITING,): (on.file_comes, (WRITTEN, CLEARED, NEEDS_USER)),
        (WRITTEN,): (on.file_changes, (WRITING,)),
        (ASKING, CLEARING, NEEDS_USER): (on.file_meanwhile, _STAYS),
        (CLEARED, RESUMING, RESUMED): (on.file_after_clearing, _STAYS),
    },
    OwnWritten: {
        (WRITING,): (on.own_document_written, (WRITTEN, CLEARED, NEEDS_USER)),
        (CLEARING,): (on.own_while_clearing, _STAYS),
        (WRITTEN, CLEARED, RESUMING, RESUMED, NEEDS_USER): (on.own_noted, _STAYS),
    },
    NotWritten: {(WRITING, CLEARED, RESUMING): (on.document_not_written, (NEEDS_USER,))},
    Cleared: {
        (WAITING, RESTING, ASKING, ASKED): (on.cleared, (CANCELLED,)),
        (WRITING,): (on.cleared, (CANCELLED,)),
        (WRITTEN,): (on.cleared, (CLEARED, WRITING, CANCELLED)),
        (CLEARING,): (on.cleared, (CLEARED, WRITING)),
        (NEEDS_USER,): (on.cleared, _STAYS),
        (CLEARED, RESUMING, RESUMED): (on.named, _STAYS),
    },
    ReadFile: {(CLEARED, RESUMING, RESUMED, NEEDS_USER): (on.goes_on, (RESUMED, DONE))},
    WentOn: {
        (CLEARED, RESUMING): (on.goes_on, _STAYS),
        (RESUMED, NEEDS_USER): (on.goes_on, (DONE,)),
    },
    AgentGone: {
        (WAITING, RESTING, ASKING, ASKED): (on.agent_gone, (CANCELLED,)),
        (WRITING, WRITTEN, CLEARING): (on.agent_gone, (CANCELLED, NEEDS_USER)),
        (CLEARED, RESUMING, RESUMED): (on.agent_gone, (NEEDS_USER,)),
        (NEEDS_USER,): (on.agent_gone, (CANCELLED,)),
    },
    UserSpoke: {
        (WAITING,): (on.user_spoke, _STAYS),
        (ASKED, WRITTEN): (on.user_spoke, (WAITING,)),
        (WRITING,): (on.user_spoke, (WAITING, NEEDS_USER)),
        (CLEARING, RESUMING): (on.user_spoke, _STAYS),
        (CLEARED,): (on.user_spoke, (NEEDS_USER,)),
        (NEEDS_USER,): (on.user_goes_on, (CANCELLED,)),
    },
}


def _table() -> dict[tuple[HandoffStep, type[HandoffFact]], HandoffRule]:
    table = {
        (where, fact): HandoffRule(on.nothing, frozenset({where}))
        for fact in _ROWS
        for where in HandoffStep
    }
    for fact, row in _ROWS.items():
        for steps, (handle, leads_to) in row.items():
            for where in steps:
                table[where, fact] = HandoffRule(handle, frozenset({where, *leads_to}))
    return table


TABLE = _table()
"""The rule for every step and every kind of fact."""


def transitions() -> Iterator[tuple[HandoffStep, type[HandoffFact], tuple[HandoffStep, ...]]]:
    """Every pair of step and fact that can have an effect, with the steps that it may lead to."""
    for (where, fact), rule in TABLE.items():
        if rule.handle is not on.nothing:
            yield where, fact, tuple(step for step in HandoffStep if step in rule.leads_to)
