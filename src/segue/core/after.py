"""What follows when a leg is over, by the state it ended in and by the verdict on its end."""

from msgspec.structs import replace

from segue.core import outcomes
from segue.core.moves import Moment, compose, fail, finish, go_on, no_session, settle, start, wait
from segue.core.run import (
    STRATEGIES,
    LegEnded,
    Outcome,
    Resumed,
    Run,
    RunCheck,
    State,
    Step,
    Unstartable,
)
from segue.core.stop import Stop, StopReason

_PASSING = frozenset({StopReason.RATE_LIMIT, StopReason.OVERLOADED})
_ACCOUNT = frozenset({StopReason.BILLING, StopReason.AUTH, StopReason.MAX_BUDGET})
_FINAL = _ACCOUNT | {
    StopReason.MAX_TURNS,
    StopReason.REFUSAL,
    StopReason.ERROR,
    StopReason.UNKNOWN,
}
"""Nothing follows by itself."""
_NOT_OURS = _PASSING | _ACCOUNT | {StopReason.CONTEXT_EXHAUSTED, StopReason.NEEDS_USER}
"""What a leg that segue ended may have ended of before; all else are traces of our own signals."""
_WILL_NOT_LOAD = frozenset(
    {
        StopReason.CRASH,
        StopReason.ERROR,
        StopReason.UNKNOWN,
        StopReason.CONTEXT_EXHAUSTED,
    }
)
"""Says nothing about the account: without a reply, it is the session that does not load."""


def worked(run: Run, fact: LegEnded, moment: Moment) -> Step:
    """A leg ended that was starting or working."""
    return _by_verdict(_count(run, fact), fact, moment)


def resumed(run: Run, fact: LegEnded, moment: Moment) -> Step:
    """A leg ended that was to go on with an old session."""
    run = _count(run, fact)
    reason = _reason(run, fact.stop)
    if run.leg_replied or reason not in _WILL_NOT_LOAD:
        return _by_verdict(run, fact, moment)
    why = f"the session does not load ({reason.description})"
    if run.strict:
        return no_session(run, why)
    return compose(run, f"{why}: handing over to a new one", run.why)


def handed_over(run: Run, fact: LegEnded, moment: Moment) -> Step:
    """A new session ended before it was seen to act."""
    acted = fact.progressed or (fact.replied and fact.stop.reason is StopReason.COMPLETED)
    if acted:
        return worked(replace(run, handoffs=run.handoffs + 1), fact, moment)
    run = _count(run, fact, guards=False)  # the strategies are few: they need no other guard
    stop, reason = fact.stop, _reason(run, fact.stop)
    if reason in _PASSING and _is_sure(run, stop):
        # Whatever it said is given up: the same continuation begins another session.
        return wait(replace(run, has_replied=False, session_id=""), moment, stop)
    if reason in _ACCOUNT or reason in (
        StopReason.MAX_TURNS,
        StopReason.REFUSAL,
        StopReason.NEEDS_USER,
    ):
        return _by_verdict(run, fact, moment)
    if reason is StopReason.USER_EXIT and not run.policy.resume_user_exits:
        return _by_verdict(run, fact, moment)
    place = STRATEGIES.index(run.strategy) + 1
    if place == len(STRATEGIES):
        return fail(run, outcomes.not_taken_over(run, stop))
    strategy = STRATEGIES[place]
    what = f"the new session did not take over ({reason.description}): next, {HOLDS[strategy]}"
    state = State.HANDING_OVER
    return start(run, moment, what, state=state, prompt="continuation", strategy=strategy)


HOLDS = {
    "checkpoint": "with the checkpoint",
    "rules": "with what is known without the agent's words",
    "minimal": "with the task alone",
}


def checkpointed(run: Run, fact: LegEnded, moment: Moment) -> Step:
    """A leg ended that was asked for a checkpoint, or only started to be asked."""
    asked_alone = run.purpose == "checkpoint"
    run = _count(run, fact, guards=not asked_alone)
    stop, sure = fact.stop, _is_sure(run, fact.stop)
    if not run.told and sure and stop.reason in _ACCOUNT:
        return fail(run, outcomes.stopped(run, stop))
    if not run.told and not asked_alone:
        if sure and stop.reason is StopReason.MAX_TURNS:
            return fail(run, outcomes.stopped(run, stop))
        if sure and stop.reason in _PASSING:
            # The same session goes on after the wait, and is asked again as soon as it replies.
            return wait(run, moment, stop)
        if sure and stop.reason is StopReason.COMPLETED and not run.abilities.talks:
            return _completed(run)  # it was faster than the interrupt
    guard = None if asked_alone else _guard(run)
    if guard is not None:
        return fail(run, guard)
    if run.told:
        return compose(run, "the checkpoint is told: writing down what is handed on", run.why)
    can_ask = run.asked and run.has_replied and run.session_id and not run.abilities.talks
    if can_ask and not asked_alone and stop.reason is not StopReason.CONTEXT_EXHAUSTED:
        return start(
            run,
            moment,
            "asking its session for a checkpoint",
            state=State.CHECKPOINTING,
            prompt="checkpoint",
            session_id=run.session_id,
            purpose="checkpoint",
        )
    what = f"no checkpoint was told ({stop.reason.description}): handing on what is known without"
    return compose(run, what, run.why)


def stopped(run: Run, fact: LegEnded, moment: Moment) -> Step:
    """A leg ended that was ended on purpose."""
    run = _count(run, fact)
    in_time = run.ending == "limit" and fact.stop.reason is StopReason.COMPLETED
    if in_time and not run.presses:
        return _completed(run)
    return _end(run, run.outcome_due or outcomes.user_ended(run, "Ctrl+C"), moment)


def unstartable(run: Run, fact: Unstartable, moment: Moment) -> Step:
    """A leg was never there."""
    run = replace(run, is_live=False, leg_since=None)
    if run.state is State.STOPPING:
        return _end(run, run.outcome_due or outcomes.user_ended(run, "Ctrl+C"), moment)
    if run.state is State.CHECKPOINTING:
        what = f"the session could not be asked: {fact.what}; handing on what is known without"
        return compose(run, what, run.why)
    return fail(run, outcomes.unstartable(run, fact.what))


def user_resumes(run: Run, fact: Resumed, moment: Moment) -> Step:
    """The user asks to go on with a run that has ended: what was counted against it is forgotten,
    what was spent is not."""
    stop = run.stop
    run = replace(
        run,
        policy=fact.policy or run.policy,
        strict=fact.strict,
        why=stop.reason if stop else StopReason.USER_EXIT,
        limit_tries=0,
        limited_s=0.0,
        overload_tries=0,
        failure="",
        failures=0,
        idle_legs=0,
        check_tries=0,
        presses=0,
        pressed_at=None,
        again="",
        outcome=None,
        outcome_due=None,
    )
    is_full = stop is not None and stop.reason is StopReason.CONTEXT_EXHAUSTED
    has_work = run.has_replied or run.checkpoint > 0 or run.prompt == "continuation"
    if fact.strict and (is_full or not run.has_replied):
        why = "its context window is full" if is_full else "it never replied"
        return no_session(run, why)
    if run.has_replied and not fact.fresh and not is_full:
        return go_on(run, moment, "resumed by the user, in the same session")
    if has_work:
        return compose(run, "resumed by the user, in a new session", run.why)
    what = "started again by the user: there was no reply yet"
    return start(run, moment, what, state=State.STARTING, prompt="task")


def _end(run: Run, outcome: Outcome, moment: Moment) -> Step:
    if run.again:
        again = Resumed(fresh=run.again == "fresh", strict=run.again == "strict")
        return user_resumes(run, again, moment)
    is_users = outcome.exit_code == outcomes.USER_ENDED
    return finish(run, State.CANCELLED if is_users else State.FAILED, outcome)


def _by_verdict(run: Run, fact: LegEnded, moment: Moment) -> Step:
    """Design's table of reasons."""
    stop, reason = fact.stop, _reason(run, fact.stop)
    if reason is StopReason.COMPLETED:
        return _completed(run)
    if reason is StopReason.NEEDS_USER:
        return finish(run, State.NEEDS_YOU, outcomes.stopped(run, stop))
    if reason is StopReason.USER_EXIT and not run.policy.resume_user_exits:
        return finish(run, State.CANCELLED, outcomes.user_ended(run, "in the agent"))
    if reason in _FINAL:
        return fail(run, outcomes.stopped(run, stop))
    is_stall = run.ending == "stall"
    if not is_stall and not _is_sure(run, stop):
        return fail(run, outcomes.unsure(run, stop))
    if reason in _PASSING:
        return wait(run, moment, stop)
    if reason is StopReason.TIMEOUT and not fact.progressed:
        return fail(run, outcomes.timed_out(run, stop, stalled=is_stall))
    guard = _guard(run)
    if guard is not None:
        return fail(run, guard)
    run = replace(run, why=reason)
    if reason is StopReason.CONTEXT_EXHAUSTED:
        return compose(run, f"{reason.description}: handing over to a new session", reason)
    return go_on(run, moment, f"{reason.description}: going on")


def _completed(run: Run) -> Step:
    if not run.check:
        return finish(run, State.DONE, outcomes.done(run))
    return Step(
        replace(settle(run), state=State.CHECKING), (RunCheck(reason="completed: checking it"),)
    )


def _reason(run: Run, stop: Stop) -> StopReason:
    """The stop's, unless segue ended the leg because it hung."""
    if run.ending != "stall" or stop.reason is StopReason.COMPLETED:
        return stop.reason
    if stop.reason in _NOT_OURS and _is_sure(run, stop):
        return stop.reason
    return StopReason.TIMEOUT


def _is_sure(run: Run, stop: Stop) -> bool:
    return stop.confidence >= run.policy.least_confidence


def _count(run: Run, fact: LegEnded, *, guards: bool = True) -> Run:
    """The run with this leg over, and with what it cost. `guards`: whether the leg counts against
    the run if nothing changed in it."""
    run = replace(
        run,
        is_live=False,
        leg_since=None,
        stop=fact.stop,
        has_replied=run.has_replied or fact.replied,
        leg_replied=run.leg_replied or fact.replied,
        active_s=run.active_s + max(0.0, fact.active_s),
        tokens=run.tokens + max(0, fact.tokens),
        cost_usd=run.cost_usd + max(0.0, fact.cost_usd),
    )
    if fact.progressed:
        run = replace(
            run,
            limit_tries=0,
            limited_s=0.0,
            overload_tries=0,
            failure="",
            failures=0,
            idle_legs=0,
        )
    if not guards or _reason(run, fact.stop) in _PASSING:
        return run
    is_same = fact.failure != "" and fact.failure == run.failure
    return replace(
        run,
        idle_legs=0 if fact.progressed else run.idle_legs + 1,
        failure=fact.failure,
        failures=run.failures + 1 if is_same else int(fact.failure != ""),
    )


def _guard(run: Run) -> Outcome | None:
    """How the run ends if it only turns in circles."""
    if run.failures >= run.policy.same_failures:
        return outcomes.breaker(run)
    if run.idle_legs >= run.policy.idle_legs:
        what = f"{run.idle_legs} legs in a row changed nothing"
        return outcomes.no_progress(run, what, "idle_legs")
    return None
