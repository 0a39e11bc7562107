"""What each fact does to a run, except for the end of a leg (`leg_over`). There is one function
per row of the machine's table, and each is called only in the states that the table names.

One file: the table names these functions side by side, and they are compared that way.
"""

from msgspec.structs import replace

from segue.core.runs import outcomes
from segue.core.runs.due import measured
from segue.core.runs.machine import relays
from segue.core.runs.machine.leg_over import HOLDS
from segue.core.runs.machine.moves import (
    RunContext,
    compose,
    due_reason,
    end_leg,
    fail,
    finish,
    go_on,
    hand_over,
    is_limited,
    is_too_early,
    limit_cap,
    look,
    relay,
    relayed,
    start,
    take_up,
    user_words,
    wait,
)
from segue.core.runs.outcomes import when
from segue.core.runs.types import (
    AnyFact,
    AskCheckpoint,
    Boundary,
    CancelAsked,
    Checked,
    CheckpointComposed,
    CheckpointReceived,
    Compose,
    ContextMeasured,
    Created,
    Elapsed,
    HowEnded,
    HungUp,
    InterruptRequested,
    LegStarted,
    Looped,
    Outcome,
    Replied,
    Resumed,
    Run,
    RunCheck,
    RunState,
    RunStep,
    SessionNamed,
    SessionReminded,
    Strategy,
    WaitUntil,
    WhyEnded,
)
from segue.core.stops.reasons import StopReason


def nothing(run: Run, fact: AnyFact, context: RunContext) -> RunStep:
    return RunStep(run)


def created(run: Run, fact: Created, context: RunContext) -> RunStep:
    if run.leg > 0:
        return RunStep(run)
    if run.origin is not None:
        return take_up(run, run.origin, context)
    return start(run, context, "a new task", state=RunState.STARTING, prompt="task")


def named(run: Run, fact: LegStarted | SessionNamed, context: RunContext) -> RunStep:
    return RunStep(replace(run, session_id=fact.session_id or run.session_id))


def noted_reply(run: Run, fact: Replied, context: RunContext) -> RunStep:
    return RunStep(_with_reply(run))


def first_reply(run: Run, fact: Replied, context: RunContext) -> RunStep:
    working = replace(_with_reply(run), state=RunState.WORKING, strict=False, circles=None)
    return look(working, context)


def _with_reply(run: Run) -> Run:
    """The model replied. A session that is only asked for a checkpoint acts on nothing else."""
    answered = run.telling if run.purpose == "work" else run.answered_additions
    return replace(run, has_replied=True, leg_replied=True, answered_additions=answered)


def takes_over(run: Run, fact: Replied, context: RunContext) -> RunStep:
    if not fact.acted:
        return noted_reply(run, fact, context)
    return first_reply(replace(run, handoffs=run.handoffs + 1), fact, context)


def noted_size(run: Run, fact: ContextMeasured, context: RunContext) -> RunStep:
    return RunStep(measured(run, fact))


def grows(run: Run, fact: ContextMeasured, context: RunContext) -> RunStep:
    return look(measured(run, fact), context)


def boundary(run: Run, fact: Boundary, context: RunContext) -> RunStep:
    if fact.pending_tokens != run.pending_tokens:
        step = look(replace(run, pending_tokens=fact.pending_tokens), context)
        if step.decisions:
            return step
        run = step.run
    if not run.is_due or run.ended_how or (fact.ahead and not run.abilities.talks):
        return RunStep(run)
    if is_too_early(run):
        return RunStep(replace(run, is_due=False))
    return hand_over(run, context, due_reason(run), now=False, in_tool=fact.ahead)


def reminded(run: Run, fact: SessionReminded, context: RunContext) -> RunStep:
    """An agent that accepts input while it runs is told at once; others are resumed with the
    message, or replaced if that would make their session too large."""
    if run.abilities.talks or run.is_due or run.asked or run.ended_how:
        return RunStep(run)
    if run.abilities.resume_factor > 1 and run.policy.hard_mark <= 1:
        reason = "its own compaction left out something that it needs"
        return hand_over(run, context, reason, now=False, is_asked=False)
    what = "its own compaction left out something it needs: resuming it with that"
    return end_leg(run, "gentle", "recall", what)


def boundary_asked(run: Run, fact: Boundary, context: RunContext) -> RunStep:
    """The tool that was running when the agent was asked has finished: from now on it has time
    to answer."""
    if not run.is_in_tool or fact.ahead:
        return RunStep(run)
    return RunStep(replace(run, is_in_tool=False, asked_at=context.at))


def boundary_ends(run: Run, fact: Boundary, context: RunContext) -> RunStep:
    if run.asked or run.ended_how or fact.ahead:
        return RunStep(run)
    return end_leg(run, "gentle", "user", "its tool has finished: ending it, as asked")


def checkpoint_received(run: Run, fact: CheckpointReceived, context: RunContext) -> RunStep:
    """The session must do nothing more: its input is closed and, if that does not end it, segue
    ends it."""
    updated = replace(run, checkpoint=max(run.checkpoint, fact.number), has_handed_over=True)
    return _close(updated, "checkpoint received: ending this session")


def told_last(run: Run, fact: CheckpointReceived, context: RunContext) -> RunStep:
    updated = replace(run, checkpoint=max(run.checkpoint, fact.number))
    return _close(updated, "checkpoint received: ending it, as asked")


def _close(run: Run, reason: str) -> RunStep:
    if run.ended_how:
        return RunStep(run)
    why: WhyEnded = "user" if run.state is RunState.STOPPING else "handoff"
    return end_leg(run, "close" if run.abilities.talks else "gentle", why, reason)


def composed(run: Run, fact: CheckpointComposed, context: RunContext) -> RunStep:
    if run.is_live:
        return RunStep(run)
    strategy: Strategy = "minimal" if fact.number <= 0 else "rules"
    if fact.has_summary and fact.number > 0:
        strategy = "checkpoint"
    run = replace(run, checkpoint=max(run.checkpoint, fact.number))
    run = relays.limited(run, fact.limits, context.at)
    agent = run.relay_to or relays.back(run, context.at)
    stays = agent in ("", run.agent)
    if stays and run.origin is not None and is_limited(run, context.at):
        ready = replace(run, prompt="continuation", strategy=strategy)
        return wait(ready, context, run.origin.stop, limits=fact.limits)
    whom = "a new session" if stays else agent
    # If a check failed and the last agent was not told, the next one must know.
    unheard = run.prompt == "check" and not run.leg_replied
    return start(
        relays.with_agent(run, agent),
        context,
        f"handing over to {whom}, {HOLDS[strategy]}",
        state=RunState.STARTING if unheard else RunState.HANDING_OVER,
        prompt="check" if unheard else "continuation",
        strategy=strategy,
    )


def checked(run: Run, fact: Checked, context: RunContext) -> RunStep:
    if fact.ok:
        return finish(run, RunState.DONE, outcomes.completed(run))
    if fact.fault:
        return fail(run, outcomes.check_not_run(run, fact.fault))
    if run.check_tries >= run.policy.max_checks:
        return fail(run, outcomes.check_failed(run, fact.exit_code))
    run = replace(run, check_tries=run.check_tries + 1, why=StopReason.COMPLETED)
    can_go_on = run.has_replied and run.abilities.resumes and not run.has_handed_over
    session_id = run.session_id if can_go_on else ""
    return start(
        run,
        context,
        f"the check exited with {fact.exit_code}: telling the agent"
        f" ({run.check_tries} of {run.policy.max_checks})",
        state=RunState.RESUMING if session_id else RunState.STARTING,
        prompt="check",
        session_id=session_id,
    )


def looped(run: Run, fact: Looped, context: RunContext) -> RunStep:
    """Ends the leg; a new session may find another way, until `idle_legs` of them have not."""
    limit = getattr(run.policy, outcomes.IDLE_SETTINGS[fact.kind])
    if limit is None or fact.calls < limit or run.ended_how:
        return RunStep(run)
    what = outcomes.circles(fact)
    if not fact.made and fact.kind == "calls":  # of an older version, which ended the run at once
        due = outcomes.no_progress(run, what, "same_calls")
        return end_leg(_stopping(run, due), "gentle", "loop", what)
    return end_leg(replace(run, circles=fact), "gentle", "loop", f"{what}: ending this leg")


_LIMITS = ("active", "wall", "tokens", "cost", "output")


def time_in_leg(run: Run, fact: Elapsed, context: RunContext) -> RunStep:
    if fact.timer in _LIMITS:
        return _time_up(run, fact)
    if fact.timer != "stall" or run.ended_how:
        return RunStep(run)
    return end_leg(run, "gentle", "stall", "no output for too long: ending this leg")


def time_to_tell(run: Run, fact: Elapsed, context: RunContext) -> RunStep:
    if fact.timer in _LIMITS:
        return _time_up(run, fact)
    if fact.timer not in ("checkpoint", "stall") or not run.is_live or _is_forced(run):
        return RunStep(run)
    what = f"{_why_unanswered(run, fact, context)}: ending this session"
    return end_leg(run, "gentle", "handoff", what)


def _why_unanswered(run: Run, fact: Elapsed, context: RunContext) -> str:
    """Why a session has not written its checkpoint, as far as segue has seen."""
    if fact.early:
        return "asked for a checkpoint, it called a tool instead"
    if fact.timer == "stall":
        return "no output for too long"
    since = run.asked_at if run.asked_at is not None else context.at
    return f"no checkpoint within {outcomes.span(context.at - since)}"


def time_to_finish(run: Run, fact: Elapsed, context: RunContext) -> RunStep:
    if fact.timer == "wait" or _is_forced(run):
        return RunStep(run)
    what = "it took too long to finish: ending it"
    if fact.early:
        what = "asked to finish, it called a tool instead: ending it"
    return end_leg(run, "gentle", run.ending or "user", what)


def time_to_go_on(run: Run, fact: Elapsed, context: RunContext) -> RunStep:
    wait = run.wait
    if fact.timer == "wall" and wait is not None and run.policy.max_wall_s is not None:
        why = "this run's time limit is reached"
        return fail(run, outcomes.limited(run, wait, "max_wall_s", why))
    if fact.timer != "wait" or wait is None:
        return RunStep(run)
    if context.at < wait.until and not wait.is_relative:
        return RunStep(run)  # never before the reset, whoever asks
    if wait.agent:
        what = f"waited until {when(wait.until)}: {wait.agent} takes over"
        return relay(run, context, wait.agent, what)
    if wait.follows:
        return go_on(run, context, "the account is free again: resuming")
    return go_on(run, context, f"waited until {when(wait.until)}: resuming")


def time_between(run: Run, fact: Elapsed, context: RunContext) -> RunStep:
    return _time_up(run, fact) if fact.timer == "wall" else RunStep(run)


def _time_up(run: Run, fact: Elapsed) -> RunStep:
    """A limit that the user set is reached. If there is no such limit, the timer belongs to an
    older policy."""
    cap = limit_cap(run, fact.timer)
    if cap is None:
        return RunStep(run)
    due = outcomes.capped(run, cap)
    if not run.is_live:
        return fail(run, due)
    # An agent that fills the disk gets no time to finish.
    how: HowEnded = "kill" if fact.timer == "output" else "gentle"
    return end_leg(_stopping(run, due), how, "limit", cap.what)


def interrupt_requested(run: Run, fact: InterruptRequested, context: RunContext) -> RunStep:
    """First Ctrl+C: finish. Second: end. Third: kill."""
    due = outcomes.user_ended(run, "Ctrl+C")
    if not run.is_live:
        return finish(run, RunState.CANCELLED, due)
    first_at = context.at if run.pressed_at is None else run.pressed_at
    run = replace(_stopping(run, due), presses=run.presses + 1, pressed_at=first_at, again="")
    if run.presses > 2:
        return end_leg(run, "kill", "user", "Ctrl+C once more: killing it")
    if run.presses > 1:
        return end_leg(run, "gentle", "user", "second Ctrl+C: ending it now")
    if run.ended_how or run.asked:
        return RunStep(run)  # it is about to end
    if not run.leg_replied:
        return end_leg(run, "gentle", "user", "Ctrl+C before the first reply: ending it")
    if not run.abilities.talks:
        return RunStep(run)  # until the next boundary
    what = "Ctrl+C: asking it to finish and to write a checkpoint"
    return RunStep(
        replace(run, asked=True, asked_at=context.at),
        (AskCheckpoint(reason=what, leg=run.leg, now=False, why=StopReason.USER_EXIT),),
    )


def cancelled(run: Run, fact: CancelAsked, context: RunContext) -> RunStep:
    due = outcomes.user_ended(run, fact.by)
    if not run.is_live:
        return finish(run, RunState.CANCELLED, due)
    first_at = context.at if run.pressed_at is None else run.pressed_at
    was_forced = _is_forced(run)
    # Whatever was requested before, this is the user's latest command.
    run = replace(_stopping(run, due), presses=max(2, run.presses), pressed_at=first_at, again="")
    if was_forced:
        return RunStep(run)
    return end_leg(run, "gentle", "cancel", f"ended by {fact.by}")


def hung_up(run: Run, fact: HungUp, context: RunContext) -> RunStep:
    """Ends the leg, because nobody is left to look after it; the run has not ended."""
    cut = replace(run, interrupted=fact.by)
    if not run.is_live:
        return RunStep(cut)
    was_forced = _is_forced(run)
    cut = replace(
        cut, state=RunState.STOPPING, is_due=False, outcome_due=None, pressed_at=context.at
    )
    if was_forced:
        return RunStep(replace(cut, ending="hangup"))
    return end_leg(
        cut, "gentle", "hangup", f"interrupted by {fact.by}: ending this leg; the run has not ended"
    )


def hung_up_late(run: Run, fact: HungUp, context: RunContext) -> RunStep:
    """What the user ended stays ended. A SIGTERM together with a hang-up does not come from the
    user: that is how a login session or the machine goes down."""
    if run.outcome_due != outcomes.user_ended(run, "SIGTERM"):
        return RunStep(run)
    return hung_up(replace(run, presses=0), fact, context)


def resumed_live(run: Run, fact: Resumed, context: RunContext) -> RunStep:
    """The run had lost its segue, and the leg is still there, or its end has to be read: this
    process adopts it."""
    run = _with_changes(run, fact)
    if run.leg == 0:
        return start(run, context, "a new task", state=RunState.STARTING, prompt="task")
    if fact.fresh and run.state is RunState.WORKING and not run.ended_how:
        what = "the user asked for a new session"
        return hand_over(run, context, what, now=True, why=StopReason.USER_EXIT)
    if fact.addition and run.state is RunState.WORKING and not run.ended_how:
        return end_leg(run, "gentle", "recall", "the user has something to add: resuming with it")
    return RunStep(run)


def resumed_composing(run: Run, fact: Resumed, context: RunContext) -> RunStep:
    run = _with_changes(run, fact)
    what = "resumed by the user: writing the checkpoint"
    return RunStep(run) if run.is_live else RunStep(run, (Compose(reason=what),))


def resumed_waiting(run: Run, fact: Resumed, context: RunContext) -> RunStep:
    run = _with_changes(run, fact)
    if fact.fresh and (run.has_replied or run.checkpoint > 0):
        return compose(run, "resumed by the user, in a new session", run.why)
    if run.wait is None:
        return go_on(run, context, "resumed by the user")
    reset_at, why = run.wait.reset_at, run.wait.why
    if reset_at is not None and reset_at - context.at > run.policy.relay_after_s:
        relay = relayed(run, context, why, until=reset_at, limits={})
        if relay is not None:
            return relay
    what = f"resumed by the user: still waiting until {when(run.wait.until)}"
    return RunStep(run, (WaitUntil(reason=what, wait=run.wait),))


def resumed_checking(run: Run, fact: Resumed, context: RunContext) -> RunStep:
    run = _with_changes(run, fact)
    if fact.addition:
        return go_on(run, context, "resumed by the user, who has something to add")
    return RunStep(run, (RunCheck(reason="resumed by the user: checking it again"),))


def resumed_stopping(run: Run, fact: Resumed, context: RunContext) -> RunStep:
    """The run continues as soon as the leg that is being ended has ended."""
    again = replace(run, again="fresh" if fact.fresh else "strict" if fact.strict else "same")
    return RunStep(_with_changes(again, fact))


def _with_changes(run: Run, fact: Resumed) -> Run:
    return replace(
        relays.changed(run, fact.relay, fact.flags),
        policy=fact.policy or run.policy,
        flags=run.flags if fact.flags is None else fact.flags,
        additions=user_words(run, fact),
        interrupted="",
    )


def _stopping(run: Run, due: Outcome) -> Run:
    return replace(run, state=RunState.STOPPING, outcome_due=due, is_due=False, interrupted="")


def _is_forced(run: Run) -> bool:
    return run.ended_how in ("gentle", "kill")
