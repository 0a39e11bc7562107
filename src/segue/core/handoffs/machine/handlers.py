"""What each fact does to a handoff in a terminal. There is one function per row of the table in the
package, and each is called only in the steps that the table names.

All in one file: the machine is read from top to bottom.
"""

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from segue.core.handoffs.machine.types import (
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
    HandoffStep,
    Interrupt,
    KeyPressed,
    NotInterrupted,
    NotTyped,
    NotWritten,
    OwnWritten,
    PromptSeen,
    ReadFile,
    Ready,
    RecordFigures,
    RetryRequested,
    Source,
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

MAX_REQUESTS = 3
MAX_INVALID = 2  # documents; then segue writes one
MAX_CLEARS = 3
MAX_RESUMES = 3
MAX_INTERRUPTS = 3  # of one turn
MAX_REFUSED = 10  # of those, because the user typed just then or a question was open
LATE_S = 10.0  # by then, an interrupt is in the records whose key was pressed
SOON_S = 3.0  # by then, the key is pressed that was decided on
BEFORE_S = 1.0  # records are as exact as their agent's clock
WORKS = "the agent is still working"
REFUSED = "refused_interrupt"

_PENDING: dict[HandoffStep, What] = {
    HandoffStep.ASKING: "request",
    HandoffStep.CLEARING: "clear",
    HandoffStep.RESUMING: "resume",
}

Stepped = tuple[TerminalHandoff, list[AnyAct]]


class HandoffContext(Struct, frozen=True):
    """The policy and the time."""

    policy: Policy
    now: float


# Ways that several facts lead


def _to(
    cycle: TerminalHandoff, where: HandoffStep, context: HandoffContext, **changes: Any
) -> TerminalHandoff:
    """Moves to a step. Whether the clear command was sent matters only while segue waits for its
    effect, and an obstacle in one step may be gone in the next."""
    if where is not HandoffStep.CLEARING:
        changes["is_typed"] = False
    if where is not cycle.step:
        changes["cuts"] = 0
    if where not in (cycle.step, HandoffStep.WRITING, HandoffStep.NEEDS_USER):
        changes["blocked"] = ""
    return replace(cycle, step=where, step_at=context.now, **changes)


def _counted(cycle: TerminalHandoff, what: str) -> TerminalHandoff:
    return replace(cycle, tries={**cycle.tries, what: cycle.tries.get(what, 0) + 1})


def _end(
    cycle: TerminalHandoff, where: HandoffStep, context: HandoffContext, why: str = ""
) -> Stepped:
    over = _to(cycle, where, context, why=why, over_at=context.now)
    return over, [RecordFigures(metrics(over, context.now)), Done()]


def _write_own(
    cycle: TerminalHandoff, context: HandoffContext, why: str, question: str = ""
) -> Stepped:
    return _to(cycle, HandoffStep.WRITING, context, why=why, question=question), [WriteOwn()]


def _ask(cycle: TerminalHandoff, context: HandoffContext, why: str) -> Stepped:
    """Asks the user, with a document on disk if possible."""
    if not cycle.has_document and not cycle.is_cleared:
        return _write_own(cycle, context, why, question=why)
    return _ask_now(cycle, context, why)


def _ask_now(cycle: TerminalHandoff, context: HandoffContext, why: str) -> Stepped:
    where = f"; the handoff document is {cycle.file}" if cycle.has_document else ""
    asked = _to(cycle, HandoffStep.NEEDS_USER, context, why=why + where, question="")
    return asked, [AskUser(asked.why)]


def _document_ready(cycle: TerminalHandoff, context: HandoffContext) -> Stepped:
    """A valid document is on disk."""
    if cycle.question:
        return _ask_now(cycle, context, cycle.question)
    if cycle.is_cleared:
        return _to(cycle, HandoffStep.CLEARED, context), []
    return _to(cycle, HandoffStep.WRITTEN, context, written_at=context.now, refused_at=None), []


def _interrupt(cycle: TerminalHandoff, context: HandoffContext) -> Stepped:
    if cycle.cuts >= MAX_INTERRUPTS:
        return _ask(replace(cycle, blocked=WORKS), context, f"{WORKS}, and cannot be interrupted")
    counted = _counted(cycle, f"interrupt_{cycle.step.value}")
    counted = replace(
        counted, was_cut=True, cut_at=context.now, is_pressed=False, cuts=cycle.cuts + 1
    )
    return _to(counted, cycle.step, context), [Interrupt()]


def _is_near_cut(cycle: TerminalHandoff, fact: Busy) -> bool:
    """Whether to interrupt now a turn that comes near the agent's own limit: between two tools;
    or while a tool runs, if that moment was missed once or its result may make the request
    late."""
    if cycle.cut_at is not None or cycle.near_tokens is None:
        return False
    is_late = cycle.is_past or cycle.last_used_tokens > cycle.near_tokens
    return not fact.is_hooked and (fact.at_boundary or is_late)


def _rest(cycle: TerminalHandoff, context: HandoffContext, why: str) -> Stepped:
    """It is the user's move. What was seen of the finished turn says nothing about the next one."""
    resting = replace(cycle, cut_at=None, owes=False, near_tokens=None, refused_at=None)
    return _to(resting, HandoffStep.RESTING, context, why=why), []


def _decline(cycle: TerminalHandoff, context: HandoffContext) -> Stepped:
    """The user stopped what segue had started, so segue does not start it again."""
    where = f"; the handoff document is {cycle.file}" if cycle.has_document else ""
    why = f"the user interrupted it{where}"
    return _end(replace(cycle, is_declined=True), HandoffStep.CANCELLED, context, why)


def _is_ours(cycle: TerminalHandoff, fact: TurnInterrupted) -> bool:
    """Whether segue ended that turn: it had decided to, and nothing was typed since. A record
    that comes much later belongs to another keystroke. If segue was killed before it logged the
    key, the key may have been the user's: then the record has to be of that very moment."""
    if cycle.cut_at is None:
        return False
    if fact.at is None:
        return True
    if cycle.is_pressed:
        return fact.at <= cycle.cut_at + LATE_S
    return cycle.cut_at - BEFORE_S <= fact.at <= cycle.cut_at + SOON_S


def _again(cycle: TerminalHandoff, context: HandoffContext) -> Stepped:
    """The document is out of date: start over once the turn has ended."""
    fresh = _to(
        cycle,
        HandoffStep.WAITING,
        context,
        is_stale=True,
        question="",
        refused_at=None,
        cut_at=None,
    )
    tries = {key: number for key, number in cycle.tries.items() if not key.startswith("clear")}
    fresh = replace(fresh, has_document=False, source="", stale_before=context.now)
    return replace(fresh, tries=tries), []


def _with_document(cycle: TerminalHandoff, fact: FileSeen) -> TerminalHandoff:
    ok = fact.ok and fact.stable
    if not ok:
        return replace(cycle, has_document=False)
    source: Source = "segue" if fact.by_segue else "agent"
    return replace(cycle, has_document=True, source=source, document_bytes=fact.bytes)


def _is_old(cycle: TerminalHandoff, fact: FileSeen) -> bool:
    """Whether it belongs to an earlier request: it was not valid then, or the user has spoken
    since."""
    if fact.changed_at is None:
        return cycle.step is HandoffStep.WAITING and cycle.is_stale
    return fact.changed_at < cycle.stale_before


def _own(cycle: TerminalHandoff, fact: OwnWritten) -> TerminalHandoff:
    return replace(cycle, has_document=True, source="segue", document_bytes=fact.bytes)


# What each fact does


def nothing(cycle: TerminalHandoff, fact: AnyFact, context: HandoffContext) -> Stepped:
    return cycle, []


def busy(cycle: TerminalHandoff, fact: Busy, context: HandoffContext) -> Stepped:
    """A turn gets its full time from when it begins or continues."""
    if cycle.blocked or fact.is_new:
        cycle = replace(cycle, blocked="", step_at=context.now)
    if cycle.step is HandoffStep.WAITING and _is_near_cut(cycle, fact):
        return _interrupt(cycle, context)
    return cycle, []


def works_again(cycle: TerminalHandoff, fact: Busy, context: HandoffContext) -> Stepped:
    """The session works on the user's next prompt: that turn gets its full time."""
    return _to(cycle, HandoffStep.WAITING, context, why=""), []


def interrupted(cycle: TerminalHandoff, fact: TurnInterrupted, context: HandoffContext) -> Stepped:
    if _is_ours(cycle, fact):
        if (
            cycle.step is HandoffStep.ASKED
        ):  # its hook asked it in the very moment: it heard nothing
            return _to(cycle, HandoffStep.WAITING, context, owes=True, is_pressed=True), []
        return replace(cycle, owes=True, is_pressed=True), []
    if cycle.by_user:
        # Once the session has the request, its last turn is that one, whatever the clock says.
        is_known = cycle.asked_at is not None and cycle.is_received
        is_before = fact.at is None or fact.at < cycle.began_at - BEFORE_S
        if is_before and not is_known:
            return cycle, []  # before they asked for the handoff
        if cycle.step is HandoffStep.WAITING and not cycle.owes:
            return cycle, []  # so that it comes sooner
    if cycle.step is HandoffStep.WAITING and not cycle.owes:
        return _rest(cycle, context, "the user interrupted it: it is waiting for the user")
    return _decline(cycle, context)


def key_pressed(cycle: TerminalHandoff, fact: KeyPressed, context: HandoffContext) -> Stepped:
    if cycle.cut_at is None:
        return cycle, []
    return replace(cycle, cut_at=context.now, is_pressed=True), []


def not_interrupted(
    cycle: TerminalHandoff, fact: NotInterrupted, context: HandoffContext
) -> Stepped:
    key = f"interrupt_{cycle.step.value}"
    count = max(0, cycle.tries.get(key, 0) - 1)
    tries = {**cycle.tries, key: count, REFUSED: cycle.tries.get(REFUSED, 0) + 1}
    was_cut = any(n for name, n in tries.items() if name.startswith("interrupt"))
    cuts = max(0, cycle.cuts - 1)
    # An earlier key may have ended the turn: its record is still segue's own.
    cut_at = cycle.cut_at if cuts or cycle.owes else None
    refused = replace(
        cycle, tries=tries, cut_at=cut_at, is_pressed=cut_at is not None, was_cut=was_cut, cuts=cuts
    )
    if tries[REFUSED] >= MAX_REFUSED:
        refused = replace(refused, blocked=refused.blocked or WORKS)
        return _ask(refused, context, f"{WORKS}, and cannot be interrupted: {fact.why}")
    return refused, []


def blocked(cycle: TerminalHandoff, fact: Blocked, context: HandoffContext) -> Stepped:
    return replace(cycle, blocked=fact.why), []


def unblocked(cycle: TerminalHandoff, fact: Busy | Ready, context: HandoffContext) -> Stepped:
    """The user was asked to remove an obstacle, and did; or the turn has ended."""
    waits = not cycle.blocked or (cycle.blocked == WORKS and isinstance(fact, Busy))
    return (cycle, []) if waits else _on(cycle, context)


def ready_to_be_asked(cycle: TerminalHandoff, fact: Ready, context: HandoffContext) -> Stepped:
    """segue types into a session at its prompt only to continue work that it stopped itself, or
    what the user asked for."""
    if not cycle.owes and not cycle.by_user:
        # It may have come to its end just before it was to be interrupted.
        was_cut = cycle.cut_at is not None and not fact.is_over
        if not was_cut and (fact.is_over or fact.is_long):
            return _rest(cycle, context, "its turn has ended: it is waiting for the user")
        if not (was_cut and fact.is_long):
            return cycle, []
    if cycle.cannot_be_asked or cycle.tries.get("request", 0) >= MAX_REQUESTS:
        return _write_own(cycle, context, "asked the maximum number of times")
    return _to(cycle, HandoffStep.ASKING, context, is_received=False, is_stale=False), [
        TypeText("request")
    ]


def ready_to_be_cleared(cycle: TerminalHandoff, fact: Ready, context: HandoffContext) -> Stepped:
    if not cycle.has_document:
        return cycle, []
    tried = _counted(cycle, "clear_tried")
    return _to(tried, HandoffStep.CLEARING, context, is_typed=False), [TypeText("clear")]


def ready_to_resume(cycle: TerminalHandoff, fact: Ready, context: HandoffContext) -> Stepped:
    if not cycle.has_document:
        return cycle, [WriteOwn()]
    return _to(cycle, HandoffStep.RESUMING, context, is_received=False, is_stale=False), [
        TypeText("resume")
    ]


def typed_request(
    cycle: TerminalHandoff, fact: Typed | PromptSeen, context: HandoffContext
) -> Stepped:
    if fact.what != "request":
        return cycle, []
    got_it = isinstance(fact, PromptSeen)
    asked = replace(_counted(cycle, "request"), is_received=got_it, refused_at=None, is_stale=False)
    asked = replace(asked, asked_at=asked.asked_at or context.now, owes=True)
    if not got_it:  # at its prompt: what was to be interrupted has ended
        asked = replace(asked, cut_at=None)
    if asked.has_document:  # it was written meanwhile
        return _document_ready(asked, context)
    return _to(asked, HandoffStep.ASKED, context), []


def typed_clear(
    cycle: TerminalHandoff, fact: Typed | PromptSeen, context: HandoffContext
) -> Stepped:
    if fact.what != "clear" or cycle.is_typed:
        return cycle, []
    sent = _to(
        _counted(cycle, "clear"), HandoffStep.CLEARING, context, is_typed=True, refused_at=None
    )
    return sent, [] if sent.has_document else [WriteOwn()]


def typed_resume(
    cycle: TerminalHandoff, fact: Typed | PromptSeen, context: HandoffContext
) -> Stepped:
    if fact.what != "resume" or not cycle.is_cleared:
        return cycle, []
    if cycle.step is HandoffStep.NEEDS_USER and cycle.is_received:
        return cycle, []  # heard before the user was asked: they are not asked again for that
    counted = _counted(cycle, "resume") if cycle.step is HandoffStep.RESUMING else cycle
    got_it = isinstance(fact, PromptSeen)
    return _to(counted, HandoffStep.RESUMED, context, is_received=got_it, refused_at=None), []


def asked_otherwise(cycle: TerminalHandoff, fact: PromptSeen, context: HandoffContext) -> Stepped:
    """Asked by a hook, or by text that was believed not to have been typed; an earlier request
    does not count."""
    return (cycle, []) if cycle.asked_at is not None else typed_request(cycle, fact, context)


def prompt_received(cycle: TerminalHandoff, fact: PromptSeen, context: HandoffContext) -> Stepped:
    own = "request" if cycle.step is HandoffStep.ASKED else "resume"
    if fact.what != own or cycle.is_received:
        return cycle, []
    return _to(cycle, cycle.step, context, is_received=True), []


def refused(cycle: TerminalHandoff, fact: NotTyped, context: HandoffContext) -> Stepped:
    if fact.what != _PENDING[cycle.step] or cycle.is_typed:
        return cycle, []
    return _not_typed(cycle, context, fact.why, retry=fact.retry)


def _not_typed(
    cycle: TerminalHandoff, context: HandoffContext, why: str, *, retry: bool
) -> Stepped:
    since = context.now if cycle.refused_at is None else cycle.refused_at
    cycle = replace(cycle, refused_at=since, why=why)
    patience = context.policy.draft_wait_s + context.policy.busy_wait_s
    waits = retry and context.now - since < patience
    match cycle.step:
        case HandoffStep.ASKING if cycle.has_document:
            return _document_ready(cycle, context)
        case HandoffStep.ASKING:
            if waits:
                return _to(cycle, HandoffStep.WAITING, context), []
            question = "" if retry else f"nothing can be typed: {why}"
            return _write_own(replace(cycle, refused_at=None), context, why, question)
        case HandoffStep.CLEARING:
            if cycle.is_stale:
                return _again(cycle, context)
            if not cycle.has_document:
                return _write_own(cycle, context, "the document is gone or no longer valid")
            if waits:
                return _to(cycle, HandoffStep.WRITTEN, context), []
            return _ask(cycle, context, f"the context cannot be cleared: {why}")
        case _:
            if waits and not cycle.is_stale:
                return _to(cycle, HandoffStep.CLEARED, context), []
            return _ask(cycle, context, f"the new session cannot be told to continue: {why}")


def file_comes(cycle: TerminalHandoff, fact: FileSeen, context: HandoffContext) -> Stepped:
    if _is_old(cycle, fact):
        return cycle, []
    updated = _with_document(cycle, fact)
    is_asked = cycle.step in (HandoffStep.WAITING, HandoffStep.ASKED)
    if updated.has_document and fact.nothing_left and is_asked and not cycle.by_user:
        why = f"nothing is left to do; the handoff document is {cycle.file}"
        return _end(updated, HandoffStep.CANCELLED, context, why)
    if updated.has_document:
        return _document_ready(updated, context)
    if cycle.step is not HandoffStep.ASKED or fact.ok or not fact.stable:
        return updated, []
    updated = _counted(updated, "invalid")
    if updated.tries["invalid"] >= MAX_INVALID:
        return _write_own(updated, context, f"the session's document is not valid: {fact.why}")
    why = f"the document is not valid: {fact.why}"
    return _to(updated, HandoffStep.WAITING, context, why=why, stale_before=context.now), []


def file_meanwhile(cycle: TerminalHandoff, fact: FileSeen, context: HandoffContext) -> Stepped:
    return (cycle, []) if fact.ok and _is_old(cycle, fact) else (_with_document(cycle, fact), [])


def file_changes(cycle: TerminalHandoff, fact: FileSeen, context: HandoffContext) -> Stepped:
    updated = _with_document(cycle, fact)
    if updated.has_document or not fact.stable:
        return updated, []
    return _write_own(updated, context, f"the document is no longer valid: {fact.why}")


def file_after_clearing(cycle: TerminalHandoff, fact: FileSeen, context: HandoffContext) -> Stepped:
    updated = _with_document(cycle, fact)
    if updated.has_document or not fact.stable or cycle.is_read:
        return updated, []
    return updated, [WriteOwn()]


def own_document_written(
    cycle: TerminalHandoff, fact: OwnWritten, context: HandoffContext
) -> Stepped:
    return _document_ready(_own(cycle, fact), context)


def own_noted(cycle: TerminalHandoff, fact: OwnWritten, context: HandoffContext) -> Stepped:
    return _own(cycle, fact), []


def own_while_clearing(
    cycle: TerminalHandoff, fact: OwnWritten, context: HandoffContext
) -> Stepped:
    return _own(cycle, fact), [] if cycle.is_typed else [TypeText("clear")]


def document_not_written(
    cycle: TerminalHandoff, fact: NotWritten, context: HandoffContext
) -> Stepped:
    return _ask_now(cycle, context, f"no handoff document can be written: {fact.why}")


def cleared(cycle: TerminalHandoff, fact: Cleared, context: HandoffContext) -> Stepped:
    if cycle.is_cleared:  # it is seen at every look
        return named(cycle, fact, context)
    cleared_cycle = replace(
        cycle,
        is_cleared=True,
        cleared_at=context.now,
        new_session_id=fact.new_session_id,
        is_stale=False,
        refused_at=None,
    )
    if cycle.step is HandoffStep.NEEDS_USER:
        return cleared_cycle, []
    if not cycle.tries.get("clear_tried"):
        return _end(cycle, HandoffStep.CANCELLED, context, "the user cleared the context")
    if cycle.has_document:
        return _to(cleared_cycle, HandoffStep.CLEARED, context), []
    return _write_own(cleared_cycle, context, "the document is gone or no longer valid")


def named(cycle: TerminalHandoff, fact: Cleared, context: HandoffContext) -> Stepped:
    return replace(cycle, new_session_id=cycle.new_session_id or fact.new_session_id), []


def goes_on(cycle: TerminalHandoff, fact: ReadFile | WentOn, context: HandoffContext) -> Stepped:
    if not cycle.is_cleared:
        return cycle, []
    is_read = cycle.is_read or isinstance(fact, ReadFile)
    went_on = cycle.went_on or isinstance(fact, WentOn)
    on = replace(cycle, is_read=is_read, went_on=went_on, is_received=True)
    if is_read and went_on:
        return _end(on, HandoffStep.DONE, context)
    if not is_read or cycle.is_read:  # seen once more: its time does not start again
        return on, []
    return _to(on, HandoffStep.RESUMED, context), []


def agent_gone(cycle: TerminalHandoff, fact: AgentGone, context: HandoffContext) -> Stepped:
    why = f"the agent's process ended{f': {fact.why}' if fact.why else ''}"
    if not cycle.is_cleared and not cycle.tries.get("clear"):
        return _end(cycle, HandoffStep.CANCELLED, context, why)
    if cycle.step is HandoffStep.NEEDS_USER:
        return cycle, []
    return _ask_now(cycle, context, why)


def user_spoke(cycle: TerminalHandoff, fact: UserSpoke, context: HandoffContext) -> Stepped:
    if cycle.step is HandoffStep.WAITING:  # instead of what was interrupted
        return _to(cycle, HandoffStep.WAITING, context, cut_at=None, cuts=0, owes=False), []
    if cycle.step in (HandoffStep.CLEARING, HandoffStep.RESUMING):
        return replace(cycle, is_stale=True), []
    if cycle.is_cleared:
        return _ask(cycle, context, "the user told the new session something else")
    return _again(cycle, context)


def user_goes_on(cycle: TerminalHandoff, fact: UserSpoke, context: HandoffContext) -> Stepped:
    """The user continues in the new session, instead of doing what segue asked for."""
    if not cycle.is_cleared:
        return cycle, []
    return _end(cycle, HandoffStep.CANCELLED, context, "the user continued the work")


def used(cycle: TerminalHandoff, fact: Used, context: HandoffContext) -> Stepped:
    if cycle.is_cleared:
        return replace(cycle, new_used_tokens=fact.used_tokens), []
    path = cycle.zone_path
    if fact.zone and (not path or path[-1] != fact.zone):
        path = (*path, fact.zone)
    fits = cycle.next_fits if fact.next_fits is None else fact.next_fits
    near = fact.used_tokens if cycle.near_tokens is None else cycle.near_tokens
    return replace(
        cycle,
        last_used_tokens=fact.used_tokens,
        zone_path=path,
        next_fits=fits,
        near_tokens=near if fact.is_near else None,
        is_past=fact.is_past,
    ), []


def cancel(cycle: TerminalHandoff, fact: Cancel, context: HandoffContext) -> Stepped:
    return _end(cycle, HandoffStep.CANCELLED, context, fact.why)


def retry(cycle: TerminalHandoff, fact: RetryRequested, context: HandoffContext) -> Stepped:
    return _on(replace(cycle, by_user=True), context)


def _on(cycle: TerminalHandoff, context: HandoffContext) -> Stepped:
    """Continues from where the user was asked. Much may have happened since: a context that is
    not cleared needs a new document."""
    # That asking is useless is remembered.
    asked = cycle.tries.get("request", 0)
    tries = {"request": asked} if asked >= MAX_REQUESTS else {}
    fresh = replace(cycle, tries=tries, refused_at=None, why="")
    if not cycle.is_cleared:
        return _again(fresh, context)
    where = HandoffStep.RESUMED if cycle.is_read else HandoffStep.CLEARED
    return _to(fresh, where, context, is_stale=False), []


def time_for_document(cycle: TerminalHandoff, fact: TimeUp, context: HandoffContext) -> Stepped:
    wait = f"{context.policy.handoff_wait_s:g} s"
    return _write_own(cycle, context, f"the session wrote no document in {wait}")


def time_for_turn(cycle: TerminalHandoff, fact: TimeUp, context: HandoffContext) -> Stepped:
    if cycle.step is HandoffStep.WRITTEN and not cycle.has_document:
        return _write_own(cycle, context, "the document is no longer valid")
    if cycle.blocked:
        return _ask(cycle, context, f"nothing can be typed: {cycle.blocked}")
    return _interrupt(cycle, context)


def time_to_type(cycle: TerminalHandoff, fact: TimeUp, context: HandoffContext) -> Stepped:
    if not cycle.is_typed:
        return _not_typed(cycle, context, "no answer", retry=True)
    if cycle.is_stale:
        return _again(cycle, context)
    if not cycle.has_document:
        return _write_own(cycle, context, "the document is gone or no longer valid")
    if cycle.tries["clear"] < MAX_CLEARS:
        return _to(cycle, HandoffStep.WRITTEN, context), []
    return _ask(cycle, context, "the context was not cleared")


def time_for_new_session(cycle: TerminalHandoff, fact: TimeUp, context: HandoffContext) -> Stepped:
    return _ask(cycle, context, f"the new session is not ready: {cycle.blocked or 'it works'}")


def time_to_go_on(cycle: TerminalHandoff, fact: TimeUp, context: HandoffContext) -> Stepped:
    if not cycle.is_received and cycle.tries.get("resume", 0) < MAX_RESUMES:
        return _to(cycle, HandoffStep.CLEARED, context), []
    reason = (
        "read the document, but did not continue" if cycle.is_read else "did not read the document"
    )
    return _ask(cycle, context, f"the new session {reason}")
