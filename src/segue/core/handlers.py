"""What each fact does to a run, but for the end of a leg (`after`). One function a row of the
machine's table; each is only called in the states that the table names."""

from msgspec.structs import replace

from segue.core import outcomes
from segue.core.after import HOLDS
from segue.core.moves import (
    Moment,
    compose,
    due_reason,
    end_leg,
    fail,
    finish,
    go_on,
    hand_over,
    limit_cap,
    look,
    start,
)
from segue.core.outcomes import when
from segue.core.run import (
    AnyFact,
    Ask,
    Boundary,
    CancelAsked,
    Checked,
    Compose,
    Composed,
    Created,
    Elapsed,
    Looped,
    Named,
    Outcome,
    Pressed,
    Read,
    Replied,
    Resumed,
    Run,
    RunCheck,
    Started,
    State,
    Step,
    Strategy,
    Told,
    WaitUntil,
    WhyEnded,
)


def nothing(run: Run, fact: AnyFact, moment: Moment) -> Step:
    return Step(run)


def created(run: Run, fact: Created, moment: Moment) -> Step:
    if run.leg > 0:
        return Step(run)
    return start(run, moment, "a new task", state=State.STARTING, prompt="task")


def named(run: Run, fact: Started | Named, moment: Moment) -> Step:
    return Step(replace(run, session_id=fact.session_id or run.session_id))


def noted_reply(run: Run, fact: Replied, moment: Moment) -> Step:
    return Step(replace(run, has_replied=True, leg_replied=True))


def first_reply(run: Run, fact: Replied, moment: Moment) -> Step:
    replied = replace(run, has_replied=True, leg_replied=True)
    return look(replace(replied, state=State.WORKING, strict=False), moment)


def takes_over(run: Run, fact: Replied, moment: Moment) -> Step:
    if not fact.acted:
        return noted_reply(run, fact, moment)
    return first_reply(replace(run, handoffs=run.handoffs + 1), fact, moment)


def noted_size(run: Run, fact: Read, moment: Moment) -> Step:
    return Step(_measured(run, fact))


def grows(run: Run, fact: Read, moment: Moment) -> Step:
    return look(_measured(run, fact), moment)


def _measured(run: Run, fact: Read) -> Run:
    """Where the agent acts by itself is known once its window is."""
    known = fact.enforced_tokens or run.abilities.enforced_tokens
    return replace(
        run, reading=fact.reading, abilities=replace(run.abilities, enforced_tokens=known)
    )


def boundary(run: Run, fact: Boundary, moment: Moment) -> Step:
    if not run.is_due or run.ended_how:
        return Step(run)
    return hand_over(run, moment, due_reason(run), now=False)


def boundary_ends(run: Run, fact: Boundary, moment: Moment) -> Step:
    if run.asked or run.ended_how:
        return Step(run)
    return end_leg(run, "gentle", "user", "its tool has finished: ending it, as asked")


def told(run: Run, fact: Told, moment: Moment) -> Step:
    """It does nothing more: its input is closed, and where that does not end it, it is ended."""
    told = replace(run, checkpoint=max(run.checkpoint, fact.number), told=True)
    return _close(told, "the checkpoint is told: ending this session")


def told_last(run: Run, fact: Told, moment: Moment) -> Step:
    kept = replace(run, checkpoint=max(run.checkpoint, fact.number))
    return _close(kept, "the checkpoint is told: ending it, as asked")


def _close(run: Run, reason: str) -> Step:
    if run.ended_how:
        return Step(run)
    why: WhyEnded = "user" if run.state is State.STOPPING else "handoff"
    return end_leg(run, "close" if run.abilities.talks else "gentle", why, reason)


def composed(run: Run, fact: Composed, moment: Moment) -> Step:
    if run.is_live:
        return Step(run)
    strategy: Strategy = "minimal" if fact.number <= 0 else "rules"
    if fact.has_told and fact.number > 0:
        strategy = "checkpoint"
    return start(
        replace(run, checkpoint=max(run.checkpoint, fact.number)),
        moment,
        f"handing over to a new session, {HOLDS[strategy]}",
        state=State.HANDING_OVER,
        prompt="continuation",
        strategy=strategy,
    )


def checked(run: Run, fact: Checked, moment: Moment) -> Step:
    if fact.ok:
        return finish(run, State.DONE, outcomes.done(run))
    if run.check_tries >= run.policy.most_checks:
        return fail(run, outcomes.check_failed(run, fact.exit_code))
    run = replace(run, check_tries=run.check_tries + 1)
    can_go_on = run.has_replied and run.abilities.resumes and not run.told
    session_id = run.session_id if can_go_on else ""
    return start(
        run,
        moment,
        f"the check exits {fact.exit_code}: telling the agent"
        f" ({run.check_tries} of {run.policy.most_checks})",
        state=State.RESUMING if session_id else State.STARTING,
        prompt="check",
        session_id=session_id,
    )


def looped(run: Run, fact: Looped, moment: Moment) -> Step:
    if fact.calls < run.policy.same_calls or run.ended_how:
        return Step(run)
    what = f"made the same calls {fact.calls} times, and nothing changed"
    due = outcomes.no_progress(run, what, "same_calls")
    return end_leg(_stopping(run, due), "gentle", "loop", what)


_LIMITS = ("active", "wall", "tokens", "cost")


def time_in_leg(run: Run, fact: Elapsed, moment: Moment) -> Step:
    if fact.timer in _LIMITS:
        return _time_up(run, fact)
    if fact.timer != "stall" or run.ended_how:
        return Step(run)
    return end_leg(run, "gentle", "stall", "no output for too long: ending this leg")


def time_to_tell(run: Run, fact: Elapsed, moment: Moment) -> Step:
    if fact.timer in _LIMITS:
        return _time_up(run, fact)
    if fact.timer not in ("checkpoint", "stall") or not run.is_live or _is_forced(run):
        return Step(run)
    allowed = outcomes.span(run.policy.checkpoint_s)
    what = f"the checkpoint took longer than {allowed}: ending this session"
    return end_leg(run, "gentle", "handoff", what)


def time_to_finish(run: Run, fact: Elapsed, moment: Moment) -> Step:
    if fact.timer == "wait" or _is_forced(run):
        return Step(run)
    return end_leg(run, "gentle", run.ending or "user", "it took too long to finish: ending it")


def time_to_go_on(run: Run, fact: Elapsed, moment: Moment) -> Step:
    wait = run.wait
    if fact.timer == "wall" and wait is not None and run.policy.most_wall_s is not None:
        why = "the time of this run is over"
        return fail(run, outcomes.limited(run, wait, "most_wall_s", why))
    if fact.timer != "wait" or wait is None:
        return Step(run)
    if moment.at < wait.until and not wait.is_relative:
        return Step(run)  # not before the reset, whoever says so
    return go_on(run, moment, f"waited until {when(wait.until)}: going on")


def time_between(run: Run, fact: Elapsed, moment: Moment) -> Step:
    return _time_up(run, fact) if fact.timer == "wall" else Step(run)


def _time_up(run: Run, fact: Elapsed) -> Step:
    """A limit that the user set. Without one, the timer is of an older policy."""
    cap = limit_cap(run, fact.timer)
    if cap is None:
        return Step(run)
    due = outcomes.capped(run, cap)
    if not run.is_live:
        return fail(run, due)
    return end_leg(_stopping(run, due), "gentle", "limit", cap.what)


def pressed(run: Run, fact: Pressed, moment: Moment) -> Step:
    """Finish; then end; then kill."""
    due = outcomes.user_ended(run, "Ctrl+C")
    if not run.is_live:
        return finish(run, State.CANCELLED, due)
    first_at = moment.at if run.pressed_at is None else run.pressed_at
    run = replace(_stopping(run, due), presses=run.presses + 1, pressed_at=first_at)
    if run.presses > 2:
        return end_leg(run, "kill", "user", "third Ctrl+C: killing it")
    if run.presses > 1:
        return end_leg(run, "gentle", "user", "second Ctrl+C: ending it now")
    if run.ended_how or run.asked:
        return Step(run)  # it is about to end
    if not run.leg_replied:
        return end_leg(run, "gentle", "user", "Ctrl+C before the first reply: ending it")
    if not run.abilities.talks:
        return Step(run)  # until the next boundary
    what = "Ctrl+C: asking it to finish and to write a checkpoint"
    return Step(
        replace(run, asked=True, asked_at=moment.at), (Ask(reason=what, leg=run.leg, now=False),)
    )


def cancelled(run: Run, fact: CancelAsked, moment: Moment) -> Step:
    due = outcomes.user_ended(run, fact.by)
    if not run.is_live:
        return finish(run, State.CANCELLED, due)
    first_at = moment.at if run.pressed_at is None else run.pressed_at
    was_forced = _is_forced(run)
    run = replace(_stopping(run, due), presses=max(2, run.presses), pressed_at=first_at)
    if was_forced:
        return Step(run)
    return end_leg(run, "gentle", "cancel", f"ended by {fact.by}")


def resumed_live(run: Run, fact: Resumed, moment: Moment) -> Step:
    """Its segue was gone, and the leg is still there, or its end is to be read: it is adopted."""
    run = _with_policy(run, fact)
    if run.leg == 0:
        return start(run, moment, "a new task", state=State.STARTING, prompt="task")
    if fact.fresh and run.state is State.WORKING and not run.ended_how:
        return hand_over(run, moment, "the user asked for a new session", now=True)
    return Step(run)


def resumed_composing(run: Run, fact: Resumed, moment: Moment) -> Step:
    run = _with_policy(run, fact)
    what = "resumed by the user: writing down what is handed on"
    return Step(run) if run.is_live else Step(run, (Compose(reason=what),))


def resumed_waiting(run: Run, fact: Resumed, moment: Moment) -> Step:
    run = _with_policy(run, fact)
    if fact.fresh and (run.has_replied or run.checkpoint > 0):
        return compose(run, "resumed by the user, in a new session", run.why)
    if run.wait is None:
        return go_on(run, moment, "resumed by the user")
    what = f"resumed by the user: still waiting until {when(run.wait.until)}"
    return Step(run, (WaitUntil(reason=what, wait=run.wait),))


def resumed_checking(run: Run, fact: Resumed, moment: Moment) -> Step:
    what = "resumed by the user: checking it again"
    return Step(_with_policy(run, fact), (RunCheck(reason=what),))


def resumed_stopping(run: Run, fact: Resumed, moment: Moment) -> Step:
    """It goes on as soon as the leg that is being ended is over."""
    again = replace(run, again="fresh" if fact.fresh else "strict" if fact.strict else "same")
    return Step(_with_policy(again, fact))


def _with_policy(run: Run, fact: Resumed) -> Run:
    return replace(run, policy=fact.policy or run.policy)


def _stopping(run: Run, due: Outcome) -> Run:
    return replace(run, state=State.STOPPING, outcome_due=due, is_due=False)


def _is_forced(run: Run) -> bool:
    return run.ended_how in ("gentle", "kill")
