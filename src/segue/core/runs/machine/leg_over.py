"""What happens after a leg has ended, depending on the state it ended in and the verdict on its
end.

All in one file: the rules apply in one fixed order.
"""

from msgspec.structs import replace

from segue.core.runs import outcomes
from segue.core.runs.due import handed_over_at
from segue.core.runs.machine import relays
from segue.core.runs.machine.moves import (
    RunContext,
    cap_reached,
    compose,
    fail,
    finish,
    go_on,
    no_session,
    relayed,
    settle,
    start,
    too_large_to_resume,
    user_words,
    wait,
    wait_for_account,
)
from segue.core.runs.outcomes import when
from segue.core.runs.types import (
    STRATEGIES,
    LegEnded,
    LegNotStarted,
    Limited,
    Outcome,
    Resumed,
    Run,
    RunCheck,
    RunState,
    RunStep,
    Wait,
)
from segue.core.runs.waits import is_outage
from segue.core.stops.reasons import StopReason, of_nature
from segue.core.stops.types import Stop

_PASSING, _ACCOUNT = of_nature("passing"), of_nature("account")
_FINAL = _ACCOUNT | of_nature("final")
"""Stops after which nothing happens automatically."""
_NOT_OURS = _PASSING | _ACCOUNT | {StopReason.CONTEXT_EXHAUSTED, StopReason.NEEDS_USER}
"""Reasons that may be the real cause in a leg that segue ended; all others are traces of segue's
own signals."""
_WILL_NOT_LOAD = frozenset(reason for reason in StopReason if not reason.facts.loads)
"""Says nothing about the account: without a reply, it is the session that cannot be loaded."""


def worked(run: Run, fact: LegEnded, context: RunContext) -> RunStep:
    """A leg that was starting or working has ended."""
    run = _count(run, fact)
    if _circled(run, fact):
        return _another(run)
    if fact.stop.ended_for == "recall":
        what = (
            "what the user added"
            if run.unanswered_additions
            else "what its own compaction left out"
        )
        return go_on(run, context, f"telling the session {what}")
    return _by_verdict(run, fact, context)


def resumed(run: Run, fact: LegEnded, context: RunContext) -> RunStep:
    """A leg that was resuming an old session has ended."""
    run = _count(run, fact)
    if _circled(run, fact):
        return _another(run)
    reason = _reason(run, fact.stop)
    if run.leg_replied or reason not in _WILL_NOT_LOAD:
        return _by_verdict(run, fact, context)
    why = f"the session cannot be loaded ({reason.description})"
    if run.strict:
        return no_session(run, why)
    return compose(run, f"{why}: handing over to a new one", run.why)


def handed_over(run: Run, fact: LegEnded, context: RunContext) -> RunStep:
    """A new session has ended before it was seen to act."""
    acted = fact.progressed or (fact.replied and fact.stop.reason is StopReason.COMPLETED)
    if acted or run.ending == "loop":  # it worked, though without success
        return worked(replace(run, handoffs=run.handoffs + 1), fact, context)
    run = _count(run, fact, guards=False)  # the strategies are few: they need no other guard
    stop, reason = fact.stop, _reason(run, fact.stop)
    if _is_outage(run, stop) and _is_sure(run, stop):
        bare = replace(run, session_id="")
        return wait(bare, context, stop, outage=True, limits=fact.limits)
    if reason in _PASSING and _is_sure(run, stop):
        # Its output is discarded: the same continuation starts another session.
        bare = replace(run, has_replied=False, session_id="")
        return wait(bare, context, stop, limits=fact.limits)
    if reason in _ACCOUNT or reason in (
        StopReason.MAX_TURNS,
        StopReason.REFUSAL,
        StopReason.NEEDS_USER,
    ):
        return _by_verdict(run, fact, context)
    if reason is StopReason.USER_EXIT and not run.policy.resume_user_exits:
        return _by_verdict(run, fact, context)
    place = STRATEGIES.index(run.strategy) + 1
    if place == len(STRATEGIES):
        return fail(run, outcomes.not_taken_over(run, stop))
    strategy = STRATEGIES[place]
    ended = outcomes.how_it_ended(replace(stop, reason=reason))
    what = f"the new session did not take over ({ended}): next, {HOLDS[strategy]}"
    state = RunState.HANDING_OVER
    return start(run, context, what, state=state, prompt="continuation", strategy=strategy)


HOLDS = {
    "checkpoint": "with the checkpoint",
    "rules": "with what is known without the agent's words",
    "minimal": "with the task alone",
}


def checkpointed(run: Run, fact: LegEnded, context: RunContext) -> RunStep:
    """A leg has ended that was asked for a checkpoint, or that was started only to be asked."""
    asked_alone = run.purpose == "checkpoint"
    run = _count(run, fact, guards=not asked_alone)
    stop, sure = fact.stop, _is_sure(run, fact.stop)
    if not run.has_handed_over and sure and stop.reason in _ACCOUNT:
        return _out_of(run, fact, context)
    if not run.has_handed_over and not asked_alone:
        if sure and stop.reason is StopReason.MAX_TURNS:
            return fail(run, outcomes.stopped(run, stop))
        if sure and (stop.reason in _PASSING or _is_outage(run, stop)):
            # The same session continues after the wait, and is asked again as soon as it replies.
            outage = _is_outage(run, stop)
            return wait(run, context, stop, outage=outage, limits=fact.limits)
        if sure and stop.reason is StopReason.COMPLETED and not run.abilities.talks:
            return _completed(run, context)  # it was faster than the interrupt
    guard = None if asked_alone else _guard(run)
    if guard is not None:
        return fail(run, guard)
    if run.has_handed_over:
        return compose(run, "checkpoint received: writing the checkpoint", run.why)
    can_ask = run.asked and run.has_replied and run.session_id and not run.abilities.talks
    is_full = stop.reason is StopReason.CONTEXT_EXHAUSTED and not stop.ended_for
    # It may have worked on until it was ended.
    if can_ask and not asked_alone and not is_full and not too_large_to_resume(run):
        return start(
            run,
            context,
            "asking its session for a checkpoint",
            state=RunState.CHECKPOINTING,
            prompt="checkpoint",
            session_id=run.session_id,
            purpose="checkpoint",
        )
    # If segue ended a leg, what its end says is not the cause.
    own = stop.ended_for or run.ending == "handoff" or stop.reason is StopReason.COMPLETED
    cause = "" if own else f" ({stop.reason.description})"
    what = f"no checkpoint arrived{cause}: handing over what is known without it"
    return compose(run, what, run.why)


def stopped(run: Run, fact: LegEnded, context: RunContext) -> RunStep:
    """A leg that segue was ending on purpose has ended."""
    run = _count(run, fact, guards=not run.interrupted)  # a hang-up is not its fault
    in_time = run.ending == "limit" and fact.stop.reason is StopReason.COMPLETED
    if in_time and not run.presses:
        return _completed(run, context)
    if run.interrupted and not run.again:
        return _interrupted(run, fact.stop, context)
    return _end(run, run.outcome_due or outcomes.user_ended(run, "Ctrl+C"), context)


def _interrupted(run: Run, stop: Stop, context: RunContext) -> RunStep:
    """The leg has ended but the run has not: it continues as soon as a process drives it."""
    if stop.reason is StopReason.COMPLETED:
        return _completed(run, context)
    if stop.reason in _PASSING and _is_sure(run, stop):
        return wait(run, context, stop)
    return _rest(replace(run, why=StopReason.CRASH), context)


def _rest(run: Run, context: RunContext) -> RunStep:
    now = Wait(until=context.at, since=context.at, why=StopReason.CRASH)
    return RunStep(replace(settle(run), state=RunState.WAITING, wait=now))


def unstartable(run: Run, fact: LegNotStarted, context: RunContext) -> RunStep:
    """A leg could not be started at all."""
    run = replace(run, is_live=False, leg_since=None)
    if run.state is RunState.STOPPING and run.interrupted and not run.again:
        return _rest(run, context)
    if run.state is RunState.STOPPING:
        return _end(run, run.outcome_due or outcomes.user_ended(run, "Ctrl+C"), context)
    if run.state is RunState.CHECKPOINTING:
        what = f"the session could not be asked: {fact.what}; handing over what is known without it"
        return compose(run, what, run.why)
    return fail(run, outcomes.unstartable(run, fact.what))


def limited(run: Run, fact: Limited, context: RunContext) -> RunStep:
    """A leg was not started, because its account is limited: another agent of the list takes
    over, or the run waits. The next leg reuses this one's number, because it never existed."""
    if run.leg_replied:
        return RunStep(run)
    run = replace(run, is_live=False, leg_since=None, leg=run.leg - 1)
    if run.state is RunState.STOPPING and run.interrupted and not run.again:
        return _rest(run, context)
    if run.state is RunState.STOPPING:
        return _end(run, run.outcome_due or outcomes.user_ended(run, "Ctrl+C"), context)
    if run.state is RunState.CHECKPOINTING:
        what = (
            "the session cannot be asked while its account is limited: handing over what is known"
        )
        return compose(run, what, run.why)
    if fact.follows:
        what = f"{run.agent}: {fact.by} goes first after the limit"
        return wait_for_account(run, context, fact.until, what, follows=fact.by)
    run = replace(run, why=run.why or StopReason.RATE_LIMIT)
    if fact.until - context.at > run.policy.relay_after_s:
        reason = StopReason.RATE_LIMIT
        relay = relayed(run, context, reason, until=fact.until, limits=fact.limits)
        if relay is not None:
            return relay
    met = f" (seen by {fact.by})" if fact.by else ""
    what = f"{run.agent}: the account is limited until {when(fact.until)}{met}"
    return wait_for_account(run, context, fact.until, what)


def _out_of(run: Run, fact: LegEnded, context: RunContext) -> RunStep:
    """The account does not let this agent continue: another agent of the list takes over, or
    none."""
    stop = fact.stop
    if _is_sure(run, stop):
        relay = relayed(run, context, stop.reason, until=None, limits=fact.limits)
        if relay is not None:
            return relay
    return fail(run, outcomes.stopped(run, stop))


def user_resumes(run: Run, fact: Resumed, context: RunContext) -> RunStep:
    """The user resumes a run that has ended: what was counted against it is reset, but not what
    was spent."""
    stop = run.stop
    run = replace(
        relays.changed(run, fact.relay, fact.flags),
        out=(),
        relay_to="",
        policy=fact.policy or run.policy,
        flags=run.flags if fact.flags is None else fact.flags,
        additions=user_words(run, fact),
        strict=fact.strict,
        why=stop.reason if stop else StopReason.USER_EXIT,
        limit_tries=0,
        limited_s=0.0,
        overload_tries=0,
        outage_tries=0,
        outage_since=None,
        failure="",
        failures=0,
        idle_legs=0,
        idle_relays=0,
        check_tries=0,
        presses=0,
        pressed_at=None,
        again="",
        interrupted="",
        outcome=None,
        outcome_due=None,
    )
    is_full = stop is not None and stop.reason is StopReason.CONTEXT_EXHAUSTED
    has_work = run.has_replied or run.checkpoint > 0 or run.prompt in ("continuation", "check")
    has_work = has_work or run.origin is not None
    if fact.strict and (is_full or not run.has_replied):
        why = "its context window is full" if is_full else "it never replied"
        return no_session(run, why)
    if run.has_replied and not fact.fresh and not is_full:
        return go_on(run, context, "resumed by the user, in the same session")
    if has_work:
        return compose(run, "resumed by the user, in a new session", run.why)
    what = "started again by the user: there was no reply yet"
    return start(run, context, what, state=RunState.STARTING, prompt="task")


def _end(run: Run, outcome: Outcome, context: RunContext) -> RunStep:
    if run.again:
        again = Resumed(fresh=run.again == "fresh", strict=run.again == "strict")
        return user_resumes(run, again, context)
    is_users = outcome.exit_code == outcomes.USER_ENDED
    return finish(run, RunState.CANCELLED if is_users else RunState.FAILED, outcome)


def _by_verdict(run: Run, fact: LegEnded, context: RunContext) -> RunStep:
    """Applies the table of stop reasons."""
    stop, reason = fact.stop, _reason(run, fact.stop)
    if reason is StopReason.COMPLETED:
        return _completed(run, context)
    if reason is StopReason.NEEDS_USER:
        return finish(run, RunState.NEEDS_YOU, outcomes.needs_user(run, stop))
    if reason is StopReason.USER_EXIT and not run.policy.resume_user_exits:
        return finish(run, RunState.CANCELLED, outcomes.user_ended(run, stop=stop))
    if reason in _ACCOUNT:
        return _out_of(run, fact, context)
    if reason in _FINAL:
        return fail(run, outcomes.stopped(run, stop))
    is_stall = run.ending == "stall"
    if not is_stall and not _is_sure(run, stop):
        return fail(run, outcomes.unsure(run, stop))
    if reason in _PASSING or _is_outage(run, stop):
        return wait(run, context, stop, outage=_is_outage(run, stop), limits=fact.limits)
    if reason is StopReason.TIMEOUT and not fact.progressed:
        return fail(run, outcomes.timed_out(run, stop, stalled=is_stall))
    guard = _guard(run)
    if guard is not None:
        return fail(run, guard)
    run = replace(run, why=reason)
    if reason is StopReason.CONTEXT_EXHAUSTED:
        return compose(run, f"{reason.description}: handing over to a new session", reason)
    return go_on(run, context, f"{reason.description}: resuming")


def _completed(run: Run, context: RunContext) -> RunStep:
    if run.unanswered_additions and run.has_replied:
        return go_on(run, context, "completed, but the user has something to add: resuming")
    if _must_look_again(run, context):
        what = "completed, but its own compaction left out something it was not told: resuming"
        return go_on(run, context, what, prompt="recall")
    if not run.check:
        return finish(run, RunState.DONE, outcomes.completed(run))
    return RunStep(
        replace(settle(run), state=RunState.CHECKING), (RunCheck(reason="completed: checking it"),)
    )


def _must_look_again(run: Run, context: RunContext) -> bool:
    """Whether a session that says it is done has to look once more, because it said so on nothing
    but the summary of its own compaction. The user's check, if there is one, looks better."""
    if not run.is_untold or run.check or run.strict or not run.has_replied:
        return False
    return cap_reached(run, context.at) is None and _guard(run) is None


def _reason(run: Run, stop: Stop) -> StopReason:
    """The reason of the stop, unless segue ended the leg because it hung."""
    if run.ending != "stall" or stop.reason is StopReason.COMPLETED:
        return stop.reason
    if stop.reason in _NOT_OURS and _is_sure(run, stop):
        return stop.reason
    return StopReason.TIMEOUT


def _is_outage(run: Run, stop: Stop) -> bool:
    """Whether the model did not respond at all in this leg because there was no connection. A
    stream that broke off shows that there was one."""
    is_own = run.ending is None and stop.reason in (StopReason.OVERLOADED, StopReason.TIMEOUT)
    return is_own and not run.leg_replied and is_outage(stop)


def _is_sure(run: Run, stop: Stop) -> bool:
    return run.policy.is_sure(stop)


def _count(run: Run, fact: LegEnded, *, guards: bool = True) -> Run:
    """Returns the run after this leg, with its cost. `guards`: whether the leg counts against
    the run if it changed nothing."""
    run = replace(
        run,
        is_live=False,
        leg_since=None,
        stop=fact.stop,
        is_untold=fact.is_untold,
        has_replied=run.has_replied or fact.replied,
        leg_replied=run.leg_replied or fact.replied,
        active_s=run.active_s + max(0.0, fact.active_s),
        tokens=run.tokens + max(0, fact.tokens),
        cost_usd=run.cost_usd + max(0.0, fact.cost_usd),
    )
    if fact.stop.reason is StopReason.CONTEXT_EXHAUSTED and not fact.stop.ended_for:
        run = handed_over_at(run, 1.0)
    if fact.progressed:
        run = replace(
            run,
            limit_tries=0,
            limited_s=0.0,
            overload_tries=0,
            failure="",
            failures=0,
            idle_legs=0,
            idle_relays=0,
        )
    if run.leg_replied:
        run = replace(run, outage_tries=0, outage_since=None)
    if not guards or _reason(run, fact.stop) in _PASSING or _is_outage(run, fact.stop):
        return run
    if run.ending == "loop":  # whatever it did before
        return replace(run, idle_legs=run.idle_legs + 1)
    idle_legs = 0 if fact.progressed else run.idle_legs + 1
    if run.ending not in (None, "stall"):  # segue ended it, which is not the agent's failure
        return replace(run, idle_legs=idle_legs)
    failure = "" if fact.stop.reason is StopReason.COMPLETED else fact.failure
    is_same = failure != "" and failure == run.failure
    return replace(
        run,
        idle_legs=idle_legs,
        failure=failure,
        failures=run.failures + 1 if is_same else int(failure != ""),
    )


def _circled(run: Run, fact: LegEnded) -> bool:
    """Whether segue ended the leg because it made no progress, and the leg had not just ended by
    itself."""
    ended_itself = fact.stop.reason is StopReason.COMPLETED or (
        fact.stop.reason in _NOT_OURS and _is_sure(run, fact.stop)
    )
    return run.ending == "loop" and not ended_itself


def _another(run: Run) -> RunStep:
    """Starts a new session and tells it what led nowhere; or none, once that was tried often
    enough."""
    if run.idle_legs >= run.policy.idle_legs:
        return fail(run, outcomes.went_in_circles(run))
    what = outcomes.circles(run.circles) if run.circles else "no progress"
    return compose(run, f"{what}: handing over to a new session", StopReason.TIMEOUT)


def _guard(run: Run) -> Outcome | None:
    """How the run ends if it only goes round in circles."""
    if run.failures >= run.policy.same_failures:
        return outcomes.breaker(run)
    if run.idle_legs >= run.policy.idle_legs:
        what = f"{run.idle_legs} legs in a row changed nothing"
        return outcomes.no_progress(run, what, "idle_legs")
    return None
