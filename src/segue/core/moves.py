"""What a run can do next: each move leads from a run to a run and its decisions.

A leg is started here and nowhere else, and only if no limit of the user's forbids it.
"""

from msgspec import Struct
from msgspec.structs import replace

from segue.core import outcomes
from segue.core.marks import marks
from segue.core.outcomes import Cap, when
from segue.core.run import (
    Ask,
    Compose,
    EndLeg,
    Finish,
    HowEnded,
    Outcome,
    PromptKind,
    Purpose,
    Run,
    StartLeg,
    State,
    Step,
    Strategy,
    Timer,
    WaitUntil,
    WhyEnded,
)
from segue.core.stop import Stop, StopReason
from segue.core.waits import wait_after


class Moment(Struct, frozen=True):
    """What the world adds to a fact: the time, and a random number from 0 to 1."""

    at: float
    draw: float


def settle(run: Run) -> Run:
    """The run with nothing under way in a leg: for all states in which none is live."""
    return replace(
        run,
        asked=False,
        asked_at=None,
        ending=None,
        ended_how="",
        outcome_due=None,
        wait=None,
        outcome=None,
    )


def finish(run: Run, state: State, outcome: Outcome) -> Step:
    """It is over."""
    ended = replace(settle(run), state=state, outcome=outcome)
    return Step(ended, (Finish(reason=outcome.what, state=state, outcome=outcome),))


def fail(run: Run, outcome: Outcome) -> Step:
    """It is over, and not done."""
    return finish(run, State.FAILED, outcome)


def start(
    run: Run,
    moment: Moment,
    reason: str,
    *,
    state: State,
    prompt: PromptKind,
    session_id: str = "",
    purpose: Purpose = "work",
    strategy: Strategy | None = None,
) -> Step:
    """Starts the next leg, in this session or in a new one; or fails if the run may have no more.

    Nothing of the old session is left in a new one's run but the counts.
    """
    cap = cap_reached(run, moment.at)
    if cap is not None:
        return fail(run, outcomes.capped(run, cap))
    same = session_id != ""
    asks = purpose == "checkpoint"
    begun = replace(
        settle(run),
        state=state,
        leg=run.leg + 1,
        is_live=True,
        purpose=purpose,
        prompt=prompt,
        session_id=session_id,
        has_replied=same and run.has_replied,
        leg_replied=False,
        reading=run.reading if same else None,
        is_due=same and run.is_due,
        asked=asks,
        asked_at=moment.at if asks else None,
        told=same and run.told,
        strategy=strategy or run.strategy,
        leg_since=moment.at,
    )
    decision = StartLeg(
        reason=reason,
        leg=begun.leg,
        purpose=purpose,
        prompt=prompt,
        session_id=session_id,
        strategy=begun.strategy,
    )
    return Step(begun, (decision,))


def cap_reached(run: Run, at: float) -> Cap | None:
    """The limit that forbids another leg, if there is one."""
    policy = run.policy
    if policy.most_legs is not None and run.leg >= policy.most_legs:
        return Cap("most_legs", f"{run.leg} legs are over, and no more are allowed")
    if policy.most_tokens is not None and run.tokens >= policy.most_tokens:
        return Cap("most_tokens", f"{run.tokens:,} tokens are spent: the limit of this run")
    if policy.most_cost_usd is not None and run.cost_usd >= policy.most_cost_usd:
        return Cap("most_cost_usd", f"${run.cost_usd:,.2f} is spent: the limit of this run")
    if policy.most_active_s is not None and run.active_s >= policy.most_active_s:
        return active_cap(run)
    if policy.most_wall_s is not None and at - run.created_at >= policy.most_wall_s:
        return wall_cap(run)
    return None


def limit_cap(run: Run, timer: Timer) -> Cap | None:
    """The limit that this timer is of; None if there is none."""
    policy = run.policy
    if timer == "active" and policy.most_active_s is not None:
        return active_cap(run)
    if timer == "wall" and policy.most_wall_s is not None:
        return wall_cap(run)
    if timer == "tokens" and policy.most_tokens is not None:
        return Cap("most_tokens", f"{policy.most_tokens:,} tokens are spent: the limit of this run")
    if timer == "cost" and policy.most_cost_usd is not None:
        what = f"${policy.most_cost_usd:,.2f} is spent: the limit of this run"
        return Cap("most_cost_usd", what)
    return None


def active_cap(run: Run) -> Cap:
    """The limit on time in which an agent ran."""
    allowed = outcomes.span(run.policy.most_active_s or 0)
    return Cap("most_active_s", f"timed out: {allowed} of active time", outcomes.TIMED_OUT)


def wall_cap(run: Run) -> Cap:
    """The limit on time since the task was given."""
    allowed = outcomes.span(run.policy.most_wall_s or 0)
    return Cap("most_wall_s", f"timed out: {allowed} since it was created", outcomes.TIMED_OUT)


def go_on(run: Run, moment: Moment, reason: str) -> Step:
    """The same session again; what it was told, in a new one, if it never replied; and a handoff if
    it cannot be resumed."""
    if run.has_replied:
        why = _why_not_resumed(run)
        if why:
            return no_session(run, why) if run.strict else compose(run, f"{reason}; {why}")
        unheard = run.prompt == "check" and not run.leg_replied
        prompt: PromptKind = "check" if unheard else "resume"
        session_id = run.session_id
        return start(
            run, moment, reason, state=State.RESUMING, prompt=prompt, session_id=session_id
        )
    if run.strict:
        return no_session(run, "it never replied")
    if run.prompt == "continuation":
        return start(run, moment, reason, state=State.HANDING_OVER, prompt="continuation")
    again: PromptKind = "check" if run.prompt == "check" else "task"
    return start(run, moment, reason, state=State.STARTING, prompt=again)


def _why_not_resumed(run: Run) -> str:
    if run.told:
        return "its session has handed its work over"
    if not run.abilities.resumes:
        return f"{run.agent} cannot resume a session"
    return "" if run.session_id else "its session's id is not known"


def no_session(run: Run, why: str) -> Step:
    """Fails, because the user wants no other session."""
    return fail(run, outcomes.no_session(run, why))


def compose(run: Run, reason: str, why: StopReason | None = None) -> Step:
    """Writes down what is handed on; a new session follows."""
    why = why or (run.stop.reason if run.stop else StopReason.CONTEXT_EXHAUSTED)
    return Step(
        replace(settle(run), state=State.CHECKPOINTING, why=why),
        (Compose(reason=reason),),
    )


def wait(run: Run, moment: Moment, stop: Stop) -> Step:
    """Waits for a limit or an overload to pass; or gives up, at once if that is sure to come."""
    policy, overloaded = run.policy, stop.reason is StopReason.OVERLOADED
    tries = (run.overload_tries if overloaded else run.limit_tries) + 1
    planned = wait_after(stop, policy, at=moment.at, draw=moment.draw, tries=tries)
    wait_s = planned.until - moment.at
    run = replace(run, why=stop.reason)
    if overloaded and tries > policy.overload_tries:
        why = f"tried {policy.overload_tries} times"
        return fail(run, outcomes.limited(run, planned, "overload_tries", why))
    if run.limited_s + wait_s > policy.most_limited_s:
        why = f"it would be {outcomes.span(run.limited_s + wait_s)} of waiting without progress"
        return fail(run, outcomes.limited(run, planned, "most_limited_s", why))
    if policy.most_wall_s is not None and planned.until >= run.created_at + policy.most_wall_s:
        why = "the time of this run is over before"
        return fail(run, outcomes.limited(run, planned, "most_wall_s", why))
    waiting = replace(
        settle(run),
        state=State.WAITING,
        wait=planned,
        limited_s=run.limited_s + wait_s,
        limit_tries=run.limit_tries if overloaded else tries,
        overload_tries=tries if overloaded else run.overload_tries,
    )
    what = stop.reason.description
    if planned.reset_at is None:
        reason = f"{what}, reset unknown: try {tries} at {when(planned.until)}"
    else:
        reason = f"{what} until {when(planned.reset_at)}: going on at {when(planned.until)}"
    return Step(waiting, (WaitUntil(reason=reason, wait=planned),))


def end_leg(run: Run, how: HowEnded, ending: WhyEnded, reason: str) -> Step:
    """Ends the live leg."""
    ended = replace(run, ending=ending, ended_how=how)
    return Step(ended, (EndLeg(reason=reason, leg=run.leg, how=how or "gentle"),))


def hand_over(run: Run, moment: Moment, reason: str, *, now: bool) -> Step:
    """Begins a handoff: asks the live session for its checkpoint, if it can be asked."""
    run = replace(run, state=State.CHECKPOINTING, is_due=False, why=StopReason.CONTEXT_EXHAUSTED)
    asking = replace(run, asked=True, asked_at=moment.at)
    ask = Ask(reason=reason, leg=run.leg, now=now)
    if run.abilities.talks:
        return Step(asking, (ask,))
    if not run.abilities.resumes or _too_large_to_resume(run):
        why = "it is too large to be asked" if run.abilities.resumes else "it cannot be asked"
        return end_leg(run, "gentle", "handoff", f"{reason}; {why}")
    # Asking means ending it here: its session is resumed with the request.
    return Step(replace(asking, ending="handoff", ended_how="gentle"), (ask,))


def _too_large_to_resume(run: Run) -> bool:
    reading = run.reading
    if reading is None or reading.window_tokens <= 0:
        return False
    return reading.used_tokens * run.abilities.resume_factor > reading.window_tokens


def look(run: Run, moment: Moment) -> Step:
    """Compares the newest reading with the marks."""
    reading = run.reading
    if reading is None or run.ended_how:
        return Step(run)
    found = marks(run.policy, reading.window_tokens, run.abilities.enforced_tokens)
    used = reading.used_tokens
    if found.hard_tokens is not None and used >= found.hard_tokens:
        at = f"context at {_share(run, used)}, hard mark {_share(run, found.hard_tokens)}"
        return hand_over(run, moment, f"{at}: handing over now", now=True)
    return Step(replace(run, is_due=found.soft_tokens is not None and used >= found.soft_tokens))


def due_reason(run: Run) -> str:
    """Why a handoff is due."""
    reading = run.reading
    if reading is None:
        return "handing over at this boundary"
    found = marks(run.policy, reading.window_tokens, run.abilities.enforced_tokens)
    at = f"context at {_share(run, reading.used_tokens)}"
    mark = f", soft mark {_share(run, found.soft_tokens)}" if found.soft_tokens is not None else ""
    return f"{at}{mark}: handing over at this boundary"


def _share(run: Run, tokens: int) -> str:
    window = run.reading.window_tokens if run.reading else 0
    if window <= 0:
        return f"{tokens:,} tokens"
    return f"{f'{tokens / window * 100:.1f}'.removesuffix('.0')} %"
