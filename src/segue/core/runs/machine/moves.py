"""The possible next moves of a run: each leads from a run to a new run and its decisions.

Legs are started only here, and only if none of the user's limits forbids it.

All in one file: the moves lead to each other.
"""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from segue.core.runs import outcomes
from segue.core.runs.due import (
    expected_tokens,
    is_late,
    marks_of,
    resumed_tokens,
    share,
    why_due,
)
from segue.core.runs.machine import relays
from segue.core.runs.outcomes import Cap, when
from segue.core.runs.types import (
    AskCheckpoint,
    Compose,
    EndLeg,
    Finish,
    HowEnded,
    Origin,
    Outcome,
    PromptKind,
    Purpose,
    Resumed,
    Run,
    RunState,
    RunStep,
    StartLeg,
    Strategy,
    Timer,
    Wait,
    WaitUntil,
    WhyEnded,
)
from segue.core.runs.waits import is_long_window, wait_after
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import Stop


class RunContext(Struct, frozen=True):
    """The inputs besides the fact: the time, and a random number from 0 to 1."""

    at: float
    draw: float


def settle(run: Run) -> Run:
    """The run with nothing in progress in a leg: for all states without a live leg."""
    return replace(
        run,
        asked=False,
        asked_at=None,
        is_in_tool=False,
        ending=None,
        ended_how="",
        outcome_due=None,
        wait=None,
        outcome=None,
    )


def finish(run: Run, state: RunState, outcome: Outcome) -> RunStep:
    """Ends the run."""
    ended = replace(settle(run), state=state, outcome=outcome)
    return RunStep(ended, (Finish(reason=outcome.what, state=state, outcome=outcome),))


def fail(run: Run, outcome: Outcome) -> RunStep:
    """Ends the run as failed."""
    return finish(run, RunState.FAILED, outcome)


def start(
    run: Run,
    context: RunContext,
    reason: str,
    *,
    state: RunState,
    prompt: PromptKind,
    session_id: str = "",
    purpose: Purpose = "work",
    strategy: Strategy | None = None,
) -> RunStep:
    """Starts the next leg, in this session or in a new one; or fails if the run may have no more
    legs. For a new session, only the counts of the old one stay in the run."""
    cap = cap_reached(run, context.at)
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
        telling=len(run.additions),
        reading=run.reading if same else None,
        is_timely=False,
        pending_tokens=0,
        replies=run.replies if same else 0,
        loaded_tokens=run.loaded_tokens if same else 0,
        opened=run.opened if same else None,
        is_due=same and run.is_due,
        asked=asks,
        asked_at=context.at if asks else None,
        has_handed_over=same and run.has_handed_over,
        strategy=strategy or run.strategy,
        leg_since=context.at,
        circles=None if same else run.circles,
        relay_to="",
    )
    decision = StartLeg(
        reason=reason,
        leg=begun.leg,
        purpose=purpose,
        prompt=prompt,
        session_id=session_id,
        strategy=begun.strategy,
        agent=run.agent if run.relay else "",
    )
    return RunStep(begun, (decision,))


def cap_reached(run: Run, at: float) -> Cap | None:
    """The limit that forbids another leg, if there is one."""
    policy = run.policy
    legs = run.leg - run.outage_legs
    if policy.max_legs is not None and legs >= policy.max_legs:
        return Cap("max_legs", f"{legs} legs have ended, and no more are allowed")
    if policy.max_tokens is not None and run.tokens >= policy.max_tokens:
        return Cap("max_tokens", f"{run.tokens:,} tokens are spent: the limit of this run")
    if policy.max_cost_usd is not None and run.cost_usd >= policy.max_cost_usd:
        return Cap("max_cost_usd", f"${run.cost_usd:,.2f} is spent: the limit of this run")
    if policy.max_active_s is not None and run.active_s >= policy.max_active_s:
        return active_cap(run)
    if policy.max_wall_s is not None and at - run.created_at >= policy.max_wall_s:
        return wall_cap(run)
    return None


def limit_cap(run: Run, timer: Timer) -> Cap | None:
    """The limit that this timer belongs to; None if there is none."""
    policy = run.policy
    if timer == "active" and policy.max_active_s is not None:
        return active_cap(run)
    if timer == "wall" and policy.max_wall_s is not None:
        return wall_cap(run)
    if timer == "tokens" and policy.max_tokens is not None:
        return Cap("max_tokens", f"{policy.max_tokens:,} tokens are spent: the limit of this run")
    if timer == "cost" and policy.max_cost_usd is not None:
        what = f"${policy.max_cost_usd:,.2f} is spent: the limit of this run"
        return Cap("max_cost_usd", what)
    if timer == "output" and policy.max_output_bytes is not None:
        what = f"leg {run.leg} printed more than {policy.max_output_bytes:,} bytes"
        return Cap("max_output_bytes", what)
    return None


def active_cap(run: Run) -> Cap:
    """The limit on the time during which an agent ran."""
    allowed = outcomes.span(run.policy.max_active_s or 0)
    return Cap("max_active_s", f"timed out: {allowed} of active time", outcomes.TIMED_OUT)


def wall_cap(run: Run) -> Cap:
    """The limit on the time since the task was given."""
    allowed = outcomes.span(run.policy.max_wall_s or 0)
    return Cap("max_wall_s", f"timed out: {allowed} since it was created", outcomes.TIMED_OUT)


def go_on(run: Run, context: RunContext, reason: str, *, prompt: PromptKind = "resume") -> RunStep:
    """Resumes the same session, with this prompt. If it never replied, sends its prompt to a new
    session; if it cannot be resumed, hands over."""
    if run.has_replied:
        why = _why_not_resumed(run)
        if why:
            return no_session(run, why) if run.strict else compose(run, f"{reason}; {why}")
        if run.prompt in ("check", "recall") and not run.leg_replied:
            prompt = run.prompt  # unheard
        session_id = run.session_id
        return start(
            run, context, reason, state=RunState.RESUMING, prompt=prompt, session_id=session_id
        )
    if run.strict:
        return no_session(run, "it never replied")
    if run.prompt == "continuation":
        return start(run, context, reason, state=RunState.HANDING_OVER, prompt="continuation")
    again: PromptKind = "check" if run.prompt == "check" else "task"
    return start(run, context, reason, state=RunState.STARTING, prompt=again)


def user_words(run: Run, fact: Resumed) -> tuple[str, ...]:
    """What the user has added to the task so far, including what they add now."""
    return (*run.additions, fact.addition) if fact.addition else run.additions


def take_up(run: Run, origin: Origin, context: RunContext) -> RunStep:
    """Starts from a session that died without segue: resumes it, or writes a checkpoint from its
    records for a new session. If its account is limited, not before the reset."""
    stop = origin.stop
    run = replace(run, stop=stop, why=stop.reason)
    what = f"rescuing {origin.agent} session {origin.session_id} ({stop.reason.description})"
    if not origin.is_same:
        return compose(run, f"{what}: writing a checkpoint from its records", stop.reason)
    run = replace(
        run,
        session_id=origin.session_id,
        has_replied=True,
        reading=origin.reading,
        prompt="resume",
    )
    if is_limited(run, context.at):
        return wait(run, context, stop)
    return go_on(run, context, f"{what}: resuming the same session")


def is_limited(run: Run, at: float) -> bool:
    """Whether the rescued session hit a limit of this run's own agent that has not reset yet."""
    origin = run.origin
    if origin is None or run.leg > 0 or origin.agent != run.agent:
        return False
    is_limit = origin.stop.reason is StopReason.RATE_LIMIT
    return is_limit and (origin.stop.retry_at or 0.0) > at


def _why_not_resumed(run: Run) -> str:
    if run.has_handed_over:
        return "its session has handed its work over"
    stop = run.stop
    if stop is not None and stop.reason is StopReason.CONTEXT_EXHAUSTED and not stop.ended_for:
        return "its context window is full"
    if not run.abilities.resumes:
        return f"{run.agent} cannot resume a session"
    if not run.session_id:
        return "its session id is unknown"
    if run.abilities.resume_factor > 1 and _is_full_once_resumed(run):
        return "once resumed, it would be too large to continue"
    return ""


def no_session(run: Run, why: str) -> RunStep:
    """Fails, because the user wants no other session."""
    return fail(run, outcomes.no_session(run, why))


def compose(run: Run, reason: str, why: StopReason | None = None) -> RunStep:
    """Writes the checkpoint; a new session follows."""
    why = why or (run.stop.reason if run.stop else StopReason.CONTEXT_EXHAUSTED)
    return RunStep(
        replace(settle(run), state=RunState.CHECKPOINTING, why=why),
        (Compose(reason=reason),),
    )


def wait(
    run: Run,
    context: RunContext,
    stop: Stop,
    *,
    outage: bool = False,
    limits: Mapping[str, float] | None = None,
) -> RunStep:
    """Waits for a limit, an overload or an outage to pass; or gives up, at once if waiting
    cannot succeed. An outage is nobody's refusal: the run waits for it as long as for a
    limit. A run with a list of agents relays to another one if this one cannot continue for
    too long. `limits`: until when others of the list are limited."""
    policy, overloaded = run.policy, stop.reason is StopReason.OVERLOADED and not outage
    tries = (run.overload_tries if overloaded else run.limit_tries) + 1
    if outage:
        since = context.at if run.outage_since is None else run.outage_since
        tries = run.outage_tries + 1
        run = replace(run, outage_since=since, outage_tries=tries, outage_legs=run.outage_legs + 1)
    planned = wait_after(stop, policy, at=context.at, draw=context.draw, tries=tries)
    planned = replace(planned, outage_since=run.outage_since if outage else None)
    wait_s = planned.until - context.at
    run = replace(run, why=stop.reason)
    in_vain = tries > policy.overload_tries and (overloaded or outage)
    is_limit = not overloaded and not outage
    is_long = is_limit and (
        run.limited_s + wait_s > policy.relay_after_s
        or (planned.reset_at is None and is_long_window(stop))
    )
    if (in_vain or is_long) and not run.interrupted:
        until = planned.reset_at or max(planned.until, context.at + policy.relay_after_s)
        relay = relayed(run, context, stop.reason, until=until, limits=limits or {})
        if relay is not None:
            return relay
    if overloaded and tries > policy.overload_tries:
        why = f"tried {policy.overload_tries} times"
        return fail(run, outcomes.limited(run, planned, "overload_tries", why))
    if (given_up := _too_long(run, planned, context)) is not None:
        return given_up
    waiting = replace(
        settle(run),
        state=RunState.WAITING,
        wait=planned,
        limited_s=run.limited_s + wait_s,
        limit_tries=run.limit_tries if overloaded or outage else tries,
        overload_tries=tries if overloaded else run.overload_tries,
    )
    what = stop.reason.description
    if outage:
        reason = f"{outcomes.outage(planned)}; next try at {when(planned.until)}"
    elif planned.reset_at is None:
        reason = f"{what}, reset unknown: try {tries} at {when(planned.until)}"
    else:
        reason = f"{what} until {when(planned.reset_at)}: resuming at {when(planned.until)}"
    return RunStep(waiting, (WaitUntil(reason=reason, wait=planned),))


def _too_long(run: Run, planned: Wait, context: RunContext) -> RunStep | None:
    """Fails if the user does not want to wait this long."""
    policy, wait_s = run.policy, planned.until - context.at
    if run.limited_s + wait_s > policy.max_limited_s:
        waited = outcomes.span(run.limited_s + wait_s)
        why = f"the run would have waited {waited} without progress"
        return fail(run, outcomes.limited(run, planned, "max_limited_s", why))
    if policy.max_wall_s is not None and planned.until >= run.created_at + policy.max_wall_s:
        why = "this run's time limit comes first"
        return fail(run, outcomes.limited(run, planned, "max_wall_s", why))
    return None


def wait_for_account(
    run: Run, context: RunContext, until: float, reason: str, *, agent: str = "", follows: str = ""
) -> RunStep:
    """Waits until an account is free: for a reset that another run or session learned about, or
    for its first reply after that. `agent`: who continues then, if not the current agent."""
    policy, draw = run.policy, min(1.0, max(0.0, context.draw))
    spread_s = policy.reset_jitter_max_s - policy.reset_jitter_min_s
    pause_s = 0.0 if follows else policy.reset_jitter_min_s + spread_s * draw
    planned = Wait(
        until=max(until, context.at) + pause_s,
        since=context.at,
        why=StopReason.RATE_LIMIT,
        reset_at=None if follows else until,
        is_relative=follows != "",
        draw=draw,
        agent=agent if agent != run.agent else "",
        follows=follows,
    )
    if (given_up := _too_long(run, planned, context)) is not None:
        return given_up
    limited_s = run.limited_s if follows else run.limited_s + planned.until - context.at
    waiting = replace(settle(run), state=RunState.WAITING, wait=planned, limited_s=limited_s)
    if not follows:
        reason = f"{reason}: resuming at {when(planned.until)}"
    return RunStep(waiting, (WaitUntil(reason=reason, wait=planned),))


def relayed(
    run: Run,
    context: RunContext,
    why: StopReason,
    *,
    until: float | None,
    limits: Mapping[str, float],
) -> RunStep | None:
    """Another agent of the list takes over, now or as soon as the first of them is free; None if
    there is none, or none before this one. `until`: when this one is free again; None: not in
    this run."""
    if not run.relay or why.value not in run.policy.relay_on:
        return None
    run = relays.limited(replace(run, why=why), limits, context.at)
    run = relays.without(run, run.agent, until, why)
    what = f"{run.agent}: {why.description}"
    if until is not None:
        what = f"{what} until {when(until)}"
    if agent := relays.next_free(run, context.at):
        return relay(run, context, agent, f"{what}; {agent} takes over")
    first = relays.first_free(run)
    if first is None or (until is not None and until <= first[1]):
        return None
    agent, free_at = first
    reason = f"{what}, and {agent} is limited until {when(free_at)}"
    return wait_for_account(run, context, free_at, reason, agent=agent)


def relay(run: Run, context: RunContext, agent: str, reason: str) -> RunStep:
    """This agent takes over in its own session: with a checkpoint, or with the original task if
    nothing was done yet."""
    if run.has_replied:
        return compose(replace(run, relay_to=agent), reason, run.why)
    # Nobody has acted on the last prompt.
    state = RunState.HANDING_OVER if run.prompt == "continuation" else RunState.STARTING
    return start(relays.with_agent(run, agent), context, reason, state=state, prompt=run.prompt)


def end_leg(run: Run, how: HowEnded, ending: WhyEnded, reason: str) -> RunStep:
    """Ends the live leg."""
    ended = replace(run, ending=ending, ended_how=how)
    return RunStep(ended, (EndLeg(reason=reason, leg=run.leg, how=how or "gentle"),))


def hand_over(
    run: Run,
    context: RunContext,
    reason: str,
    *,
    now: bool,
    in_tool: bool = False,
    is_asked: bool = True,
    why: StopReason = StopReason.CONTEXT_EXHAUSTED,
) -> RunStep:
    """Begins a handoff: asks the live session for its checkpoint, if it can be asked and knows more
    than segue does (`is_asked`). `in_tool`: while a tool runs that is not interrupted."""
    run = replace(run, state=RunState.CHECKPOINTING, is_due=False, why=why)
    asking = replace(run, asked=True, asked_at=context.at, is_in_tool=in_tool)
    ask = AskCheckpoint(reason=reason, leg=run.leg, now=now, why=why)
    if not is_asked:
        return end_leg(run, "gentle", "handoff", reason)
    if run.abilities.talks:
        return RunStep(asking, (ask,))
    if not _can_be_asked(run):
        cause = "it is too full to be asked" if run.abilities.resumes else "it cannot be asked"
        return end_leg(run, "gentle", "handoff", f"{reason}; {cause}")
    # Asking means ending it here: its session is resumed with the request.
    return RunStep(replace(asking, ending="handoff", ended_how="gentle"), (ask,))


def is_too_early(run: Run) -> bool:
    """Whether it was to be asked before resuming makes it too large, and that moment has passed:
    ending it now gains nothing, so it works up to the policy's marks."""
    if run.abilities.resume_factor <= 1 or _can_be_asked(run):
        return False
    soft = marks_of(run).soft_tokens
    return soft is not None and expected_tokens(run) < soft


def _can_be_asked(run: Run) -> bool:
    """Whether the live session can be asked for a checkpoint at this boundary."""
    if run.abilities.talks:
        return True
    return run.abilities.resumes and not too_large_to_resume(run, at_boundary=True)


def _is_full_once_resumed(run: Run) -> bool:
    """Whether resuming it would take it past its hard mark: it would be handed over at once, and
    asked for its checkpoint when there is hardly any room for the answer."""
    size, hard = resumed_tokens(run), marks_of(run).hard_tokens
    passes = size is not None and hard is not None and expected_tokens(run) < hard <= size
    return passes or too_large_to_resume(run)


def too_large_to_resume(run: Run, *, at_boundary: bool = False) -> bool:
    """Whether a request for a checkpoint would be refused once the session is resumed for it.
    `at_boundary`: after the tools of its last reply."""
    reading, size = run.reading, resumed_tokens(run, at_boundary=at_boundary)
    return reading is not None and size is not None and size > reading.window_tokens


def look(run: Run, context: RunContext) -> RunStep:
    """Compares the newest reading with the marks."""
    reading = run.reading
    if reading is None or run.ended_how:
        return RunStep(run)
    marks = marks_of(run)
    hard = marks.hard_tokens
    if hard is not None and reading.used_tokens >= hard:
        at = f"context at {share(run, reading.used_tokens)}, hard mark {share(run, hard)}"
        return hand_over(run, context, f"{at}: handing over now", now=True)
    why = why_due(run, marks)
    if why and is_late(run, marks):
        reason = f"{why}, no room for another turn: handing over now"
        return hand_over(run, context, reason, now=True)
    return RunStep(replace(run, is_due=why != ""))


def due_reason(run: Run) -> str:
    """Why a handoff is due."""
    what, why = "handing over at this boundary", why_due(run)
    return f"{why}: {what}" if why else what
