"""What each fact does to a handoff in a terminal. One function a row of the table in `core/cycle`;
each is only called in the steps that the table names."""

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from segue.core.handing import (
    AnyAct,
    AnyFact,
    AskUser,
    Blocked,
    Busy,
    Cancel,
    Cleared,
    Cycle,
    Done,
    FileSeen,
    Gone,
    Heard,
    Interrupt,
    NotTyped,
    NotWritten,
    OwnWritten,
    Planned,
    ReadFile,
    Ready,
    Record,
    Retry,
    Source,
    Step,
    TimeUp,
    Type,
    Typed,
    Used,
    UserSpoke,
    WentOn,
    What,
    WriteOwn,
)
from segue.core.metrics import metrics
from segue.core.policy import Policy

MOST_REQUESTS = 3
MOST_INVALID = 2  # documents; then segue writes one
MOST_CLEARS = 3
MOST_RESUMES = 3
MOST_INTERRUPTS = 2  # in one step
WORKS = "the agent works on"
BY_USER = "by_user"
"""Among a cycle's tries: the user asked for it, whatever the zone."""

_PENDING: dict[Step, What] = {
    Step.ASKING: "request",
    Step.CLEARING: "clear",
    Step.RESUMING: "resume",
}

Stepped = tuple[Cycle, list[AnyAct]]


class Moment(Struct, frozen=True):
    """By which rules and when."""

    policy: Policy
    now: float


# Ways that several facts lead


def _to(cycle: Cycle, where: Step, moment: Moment, **changes: Any) -> Cycle:
    """Whether the command to clear was sent matters only while that is awaited, and what was in
    the way in one step may not be in the next."""
    if where is not Step.CLEARING:
        changes["is_typed"] = False
    if where not in (cycle.step, Step.WRITING, Step.NEEDS_USER):
        changes["blocked"] = ""
    return replace(cycle, step=where, step_at=moment.now, **changes)


def _counted(cycle: Cycle, what: str) -> Cycle:
    return replace(cycle, tries={**cycle.tries, what: cycle.tries.get(what, 0) + 1})


def _end(cycle: Cycle, where: Step, moment: Moment, why: str = "") -> Stepped:
    over = _to(cycle, where, moment, why=why, over_at=moment.now)
    return over, [Record(metrics(over, moment.now)), Done()]


def _write_own(cycle: Cycle, moment: Moment, why: str, question: str = "") -> Stepped:
    return _to(cycle, Step.WRITING, moment, why=why, question=question), [WriteOwn()]


def _ask(cycle: Cycle, moment: Moment, why: str) -> Stepped:
    """Never without a document, if one can be had."""
    if not cycle.has_document and not cycle.is_cleared:
        return _write_own(cycle, moment, why, question=why)
    return _ask_now(cycle, moment, why)


def _ask_now(cycle: Cycle, moment: Moment, why: str) -> Stepped:
    where = f"; the handoff document is {cycle.file}" if cycle.has_document else ""
    asked = _to(cycle, Step.NEEDS_USER, moment, why=why + where, question="")
    return asked, [AskUser(asked.why)]


def _written(cycle: Cycle, moment: Moment) -> Stepped:
    """A valid document is on disk."""
    if cycle.question:
        return _ask_now(cycle, moment, cycle.question)
    if cycle.is_cleared:
        return _to(cycle, Step.CLEARED, moment), []
    return _to(cycle, Step.WRITTEN, moment, written_at=moment.now, refused_at=None), []


def _interrupt(cycle: Cycle, moment: Moment) -> Stepped:
    key = f"interrupt_{cycle.step.value}"
    if cycle.tries.get(key, 0) >= MOST_INTERRUPTS:
        return _ask(replace(cycle, blocked=WORKS), moment, f"{WORKS}, and cannot be interrupted")
    return _to(_counted(cycle, key), cycle.step, moment, was_cut=True), [Interrupt()]


def _again(cycle: Cycle, moment: Moment) -> Stepped:
    """The document is out of date: all over, once the turn has ended."""
    fresh = _to(cycle, Step.WAITING, moment, is_stale=True, question="", refused_at=None)
    tries = {key: number for key, number in cycle.tries.items() if not key.startswith("clear")}
    fresh = replace(fresh, has_document=False, source="", stale_before=moment.now)
    return replace(fresh, tries=tries), []


def _seen(cycle: Cycle, fact: FileSeen) -> Cycle:
    ok = fact.ok and fact.stable
    if not ok:
        return replace(cycle, has_document=False)
    source: Source = "segue" if fact.by_segue else "agent"
    return replace(cycle, has_document=True, source=source, document_bytes=fact.bytes)


def _is_old(cycle: Cycle, fact: FileSeen) -> bool:
    """Of an earlier request: not valid then, or the user spoke since."""
    if fact.changed_at is None:
        return cycle.step is Step.WAITING and cycle.is_stale
    return fact.changed_at < cycle.stale_before


def _own(cycle: Cycle, fact: OwnWritten) -> Cycle:
    return replace(cycle, has_document=True, source="segue", document_bytes=fact.bytes)


# What each fact does


def nothing(cycle: Cycle, fact: AnyFact, moment: Moment) -> Stepped:
    return cycle, []


def planned(cycle: Cycle, fact: Planned, moment: Moment) -> Stepped:
    if not fact.forced or cycle.forced:
        return cycle, []
    since = moment.now if cycle.step is Step.WAITING else cycle.step_at
    return replace(cycle, forced=True, step_at=since), []


def busy(cycle: Cycle, fact: Busy, moment: Moment) -> Stepped:
    """The turn gets its whole time from when it begins or goes on."""
    if not cycle.blocked and not fact.is_new:
        return cycle, []
    return replace(cycle, blocked="", step_at=moment.now), []


def blocked(cycle: Cycle, fact: Blocked, moment: Moment) -> Stepped:
    return replace(cycle, blocked=fact.why), []


def unblocked(cycle: Cycle, fact: Busy | Ready, moment: Moment) -> Stepped:
    """The user was asked to take something out of the way, and did; or the turn has ended."""
    waits = not cycle.blocked or (cycle.blocked == WORKS and isinstance(fact, Busy))
    return (cycle, []) if waits else _on(cycle, moment)


def ready_to_be_asked(cycle: Cycle, fact: Ready, moment: Moment) -> Stepped:
    if cycle.tries.get("request", 0) >= MOST_REQUESTS:
        return _write_own(cycle, moment, "asked often enough")
    return _to(cycle, Step.ASKING, moment, is_heard=False, is_stale=False), [Type("request")]


def ready_to_be_cleared(cycle: Cycle, fact: Ready, moment: Moment) -> Stepped:
    if not cycle.has_document:
        return cycle, []
    tried = _counted(cycle, "clear_tried")
    return _to(tried, Step.CLEARING, moment, is_typed=False), [Type("clear")]


def ready_to_resume(cycle: Cycle, fact: Ready, moment: Moment) -> Stepped:
    if not cycle.has_document:
        return cycle, [WriteOwn()]
    return _to(cycle, Step.RESUMING, moment, is_heard=False, is_stale=False), [Type("resume")]


def typed_request(cycle: Cycle, fact: Typed | Heard, moment: Moment) -> Stepped:
    if fact.what != "request":
        return cycle, []
    is_heard = isinstance(fact, Heard)
    asked = replace(_counted(cycle, "request"), is_heard=is_heard, refused_at=None, is_stale=False)
    asked = replace(asked, asked_at=asked.asked_at or moment.now)
    if asked.has_document:  # it was written meanwhile
        return _written(asked, moment)
    return _to(asked, Step.ASKED, moment), []


def typed_clear(cycle: Cycle, fact: Typed | Heard, moment: Moment) -> Stepped:
    if fact.what != "clear" or cycle.is_typed:
        return cycle, []
    sent = _to(_counted(cycle, "clear"), Step.CLEARING, moment, is_typed=True, refused_at=None)
    return sent, [] if sent.has_document else [WriteOwn()]


def typed_resume(cycle: Cycle, fact: Typed | Heard, moment: Moment) -> Stepped:
    if fact.what != "resume" or not cycle.is_cleared:
        return cycle, []
    told = _counted(cycle, "resume") if cycle.step is Step.RESUMING else cycle
    heard = isinstance(fact, Heard)
    return _to(told, Step.RESUMED, moment, is_heard=heard, refused_at=None), []


def asked_otherwise(cycle: Cycle, fact: Heard, moment: Moment) -> Stepped:
    """By a hook, or by what was taken for not typed; a request of before says nothing."""
    return (cycle, []) if cycle.asked_at is not None else typed_request(cycle, fact, moment)


def heard(cycle: Cycle, fact: Heard, moment: Moment) -> Stepped:
    own = "request" if cycle.step is Step.ASKED else "resume"
    if fact.what != own or cycle.is_heard:
        return cycle, []
    return _to(cycle, cycle.step, moment, is_heard=True), []


def refused(cycle: Cycle, fact: NotTyped, moment: Moment) -> Stepped:
    if fact.what != _PENDING[cycle.step] or cycle.is_typed:
        return cycle, []
    return _not_typed(cycle, moment, fact.why, retry=fact.retry)


def _not_typed(cycle: Cycle, moment: Moment, why: str, *, retry: bool) -> Stepped:
    since = moment.now if cycle.refused_at is None else cycle.refused_at
    cycle = replace(cycle, refused_at=since, why=why)
    patience = moment.policy.draft_wait_s + moment.policy.busy_wait_s
    waits = retry and moment.now - since < patience
    match cycle.step:
        case Step.ASKING if cycle.has_document:
            return _written(cycle, moment)
        case Step.ASKING:
            if waits:
                return _to(cycle, Step.WAITING, moment), []
            question = "" if retry else f"nothing can be typed: {why}"
            return _write_own(replace(cycle, refused_at=None), moment, why, question)
        case Step.CLEARING:
            if cycle.is_stale:
                return _again(cycle, moment)
            if not cycle.has_document:
                return _write_own(cycle, moment, "the document is gone or not valid any more")
            if waits:
                return _to(cycle, Step.WRITTEN, moment), []
            return _ask(cycle, moment, f"the context cannot be cleared: {why}")
        case _:
            if waits and not cycle.is_stale:
                return _to(cycle, Step.CLEARED, moment), []
            return _ask(cycle, moment, f"the new session cannot be told to go on: {why}")


def file_comes(cycle: Cycle, fact: FileSeen, moment: Moment) -> Stepped:
    if _is_old(cycle, fact):
        return cycle, []
    seen = _seen(cycle, fact)
    if seen.has_document:
        return _written(seen, moment)
    if cycle.step is not Step.ASKED or fact.ok or not fact.stable:
        return seen, []
    seen = _counted(seen, "invalid")
    if seen.tries["invalid"] >= MOST_INVALID:
        return _write_own(seen, moment, f"the session's document is not valid: {fact.why}")
    why = f"the document is not valid: {fact.why}"
    return _to(seen, Step.WAITING, moment, why=why, stale_before=moment.now), []


def file_meanwhile(cycle: Cycle, fact: FileSeen, moment: Moment) -> Stepped:
    return (cycle, []) if fact.ok and _is_old(cycle, fact) else (_seen(cycle, fact), [])


def file_changes(cycle: Cycle, fact: FileSeen, moment: Moment) -> Stepped:
    seen = _seen(cycle, fact)
    if seen.has_document or not fact.stable:
        return seen, []
    return _write_own(seen, moment, f"the document is not valid any more: {fact.why}")


def file_after_clearing(cycle: Cycle, fact: FileSeen, moment: Moment) -> Stepped:
    seen = _seen(cycle, fact)
    if seen.has_document or not fact.stable or cycle.is_read:
        return seen, []
    return seen, [WriteOwn()]


def own_written(cycle: Cycle, fact: OwnWritten, moment: Moment) -> Stepped:
    return _written(_own(cycle, fact), moment)


def own_noted(cycle: Cycle, fact: OwnWritten, moment: Moment) -> Stepped:
    return _own(cycle, fact), []


def own_while_clearing(cycle: Cycle, fact: OwnWritten, moment: Moment) -> Stepped:
    return _own(cycle, fact), [] if cycle.is_typed else [Type("clear")]


def not_written(cycle: Cycle, fact: NotWritten, moment: Moment) -> Stepped:
    return _ask_now(cycle, moment, f"no handoff document can be written: {fact.why}")


def cleared(cycle: Cycle, fact: Cleared, moment: Moment) -> Stepped:
    gone = replace(
        cycle,
        is_cleared=True,
        cleared_at=moment.now,
        new_session_id=fact.new_session_id,
        is_stale=False,
        refused_at=None,
    )
    if cycle.step is Step.NEEDS_USER:
        return gone, []
    if not cycle.tries.get("clear_tried"):
        return _end(cycle, Step.CANCELLED, moment, "the context was cleared by hand")
    if cycle.has_document:
        return _to(gone, Step.CLEARED, moment), []
    return _write_own(gone, moment, "the document is gone or not valid any more")


def named(cycle: Cycle, fact: Cleared, moment: Moment) -> Stepped:
    return replace(cycle, new_session_id=cycle.new_session_id or fact.new_session_id), []


def goes_on(cycle: Cycle, fact: ReadFile | WentOn, moment: Moment) -> Stepped:
    if not cycle.is_cleared:
        return cycle, []
    is_read = cycle.is_read or isinstance(fact, ReadFile)
    went_on = cycle.went_on or isinstance(fact, WentOn)
    on = replace(cycle, is_read=is_read, went_on=went_on, is_heard=True)
    if is_read and went_on:
        return _end(on, Step.DONE, moment)
    return _to(on, Step.RESUMED, moment) if is_read else on, []


def gone(cycle: Cycle, fact: Gone, moment: Moment) -> Stepped:
    why = f"the agent's process ended{f': {fact.why}' if fact.why else ''}"
    if not cycle.is_cleared and not cycle.tries.get("clear"):
        return _end(cycle, Step.CANCELLED, moment, why)
    if cycle.step is Step.NEEDS_USER:
        return cycle, []
    return _ask_now(cycle, moment, why)


def user_spoke(cycle: Cycle, fact: UserSpoke, moment: Moment) -> Stepped:
    if cycle.step in (Step.CLEARING, Step.RESUMING):
        return replace(cycle, is_stale=True), []
    if cycle.is_cleared:
        return _ask(cycle, moment, "the new session was told something else by hand")
    return _again(cycle, moment)


def user_goes_on(cycle: Cycle, fact: UserSpoke, moment: Moment) -> Stepped:
    """In the new session, instead of what they were asked for."""
    if not cycle.is_cleared:
        return cycle, []
    return _end(cycle, Step.CANCELLED, moment, "the user went on by hand")


def used(cycle: Cycle, fact: Used, moment: Moment) -> Stepped:
    if cycle.is_cleared:
        return replace(cycle, new_used_tokens=fact.used_tokens), []
    path = cycle.zone_path
    if fact.zone and (not path or path[-1] != fact.zone):
        path = (*path, fact.zone)
    fits = cycle.next_fits if fact.next_fits is None else fact.next_fits
    return replace(cycle, last_used_tokens=fact.used_tokens, zone_path=path, next_fits=fits), []


def cancel(cycle: Cycle, fact: Cancel, moment: Moment) -> Stepped:
    return _end(cycle, Step.CANCELLED, moment, fact.why)


def retry(cycle: Cycle, fact: Retry, moment: Moment) -> Stepped:
    return _on(cycle, moment)


def _on(cycle: Cycle, moment: Moment) -> Stepped:
    """From where the user was asked. Much may have been done since: a context that is not cleared
    needs a new document."""
    tries = {key: number for key, number in cycle.tries.items() if _lasts(key, number)}
    fresh = replace(cycle, tries=tries, refused_at=None, why="", forced=True)
    if not cycle.is_cleared:
        return _again(fresh, moment)
    where = Step.RESUMED if cycle.is_read else Step.CLEARED
    return _to(fresh, where, moment, is_stale=False), []


def _lasts(key: str, number: int) -> bool:
    """That the user wanted it is not forgotten, nor that there is no use in asking."""
    return key == BY_USER or (key == "request" and number >= MOST_REQUESTS)


def time_for_document(cycle: Cycle, fact: TimeUp, moment: Moment) -> Stepped:
    wait = f"{moment.policy.handoff_wait_s:g} s"
    return _write_own(cycle, moment, f"the session wrote no document in {wait}")


def time_for_turn(cycle: Cycle, fact: TimeUp, moment: Moment) -> Stepped:
    if cycle.step is Step.WRITTEN and not cycle.has_document:
        return _write_own(cycle, moment, "the document is not valid any more")
    if cycle.blocked:
        return _ask(cycle, moment, f"nothing can be typed: {cycle.blocked}")
    return _interrupt(cycle, moment)


def time_to_type(cycle: Cycle, fact: TimeUp, moment: Moment) -> Stepped:
    if not cycle.is_typed:
        return _not_typed(cycle, moment, "no answer", retry=True)
    if cycle.is_stale:
        return _again(cycle, moment)
    if not cycle.has_document:
        return _write_own(cycle, moment, "the document is gone or not valid any more")
    if cycle.tries["clear"] < MOST_CLEARS:
        return _to(cycle, Step.WRITTEN, moment), []
    return _ask(cycle, moment, "the context was not cleared")


def time_for_new_session(cycle: Cycle, fact: TimeUp, moment: Moment) -> Stepped:
    return _ask(cycle, moment, f"the new session is not ready: {cycle.blocked or 'it works'}")


def time_to_go_on(cycle: Cycle, fact: TimeUp, moment: Moment) -> Stepped:
    if not cycle.is_heard and cycle.tries.get("resume", 0) < MOST_RESUMES:
        return _to(cycle, Step.CLEARED, moment), []
    said = "read the document, but did not go on" if cycle.is_read else "did not read the document"
    return _ask(cycle, moment, f"the new session {said}")
