"""A line for what happened in a run, and the story of all of it. Pure, as `telling` is."""

from datetime import tzinfo

from msgspec import Struct
from msgspec.structs import replace

from segue.cli.render import duration
from segue.cli.telling import clean, cut, moment
from segue.core.run import (
    AnyFact,
    Ask,
    CancelAsked,
    Checked,
    Compose,
    Composed,
    Elapsed,
    EndLeg,
    LegEnded,
    Looped,
    Pressed,
    Read,
    Resumed,
    Run,
    RunCheck,
    StartLeg,
    State,
    Step,
    Unstartable,
    WaitUntil,
)  # fmt: skip

_PROMPTS = {
    "task": "a new session begins with the task",
    "resume": "the same session goes on",
    "check": "the session is told that the check failed",
    "checkpoint": "its session is asked for a checkpoint",
    "continuation": "a new session goes on with the checkpoint",
}
_STRATEGIES = {
    "checkpoint": "",
    "rules": ", without the old session's own words",
    "minimal": ", with the task alone",
}
_TIMERS = {
    "stall": "no output for too long",
    "active": "the limit on active time is reached",
    "wall": "the limit on time is reached",
    "tokens": "the limit on tokens is reached",
    "cost": "the limit on money is reached",
    "checkpoint": "the checkpoint took too long",
    "finish": "what was running took too long to finish",
}
_PRESSED = (
    "Ctrl+C: it finishes what it is at and writes a checkpoint; again ends it, a third time kills",
    "Ctrl+C again: the agent is ended; once more kills it",
    "Ctrl+C a third time: the agent is killed",
)


class Story(Struct, frozen=True, kw_only=True):
    """What a run went through, for the report; the same facts make the same story."""

    waits: int = 0
    waited_s: float = 0.0
    tried: tuple[str, ...] = ()  # one line a leg that did not end it

    def add(self, before: Run, fact: AnyFact, step: Step, at: float) -> "Story":
        """The story with one more fact, which came at that time."""
        found = self
        was, now = before.state is State.WAITING, step.run.state is State.WAITING
        if was and not now and before.wait is not None:
            waited = max(0.0, at - before.wait.since)
            found = replace(found, waited_s=found.waited_s + waited)
        elif now and not was:
            found = replace(found, waits=found.waits + 1)
        if isinstance(fact, LegEnded) and fact.leg == before.leg and not step.run.state.is_final:
            then = next((clean(d.reason) for d in step.decisions if d.reason), "")
            line = _ended(before, fact) + (f"; then: {then}" if then else "")
            found = replace(found, tried=(*found.tried, line))
        return found


def news(before: Run, fact: AnyFact, step: Step, *, now: float, tz: tzinfo) -> list[str]:
    """What is worth a line of its own, in order: what happened, then what is done about it. Most
    facts are not."""
    run, said = step.run, _happened(before, fact, step)
    for decision in step.decisions:
        reason = f": {clean(decision.reason)}" if decision.reason else ""
        match decision:
            case StartLeg():
                how = _PROMPTS[decision.prompt]
                if decision.prompt == "continuation":
                    how += _STRATEGIES[decision.strategy]
                said.append(f"leg {decision.leg}: {how}")
            case Ask():
                said.append(f"leg {decision.leg} is asked for a checkpoint{reason}")
            case EndLeg() if decision.how != "close" and not said:
                verb = "killed" if decision.how == "kill" else "ended"
                said.append(f"leg {decision.leg} is {verb}{reason}")
            case WaitUntil():
                wait = decision.wait
                length = duration(wait.until - now)
                why = wait.why.description
                said.append(f"waits {length}, until {moment(wait.until, now, tz)}: {why}")
            case Compose() if before.state is State.RESUMING:
                said.append(clean(decision.reason))  # what was to be done cannot be
            case RunCheck():
                said.append(f"runs the check: {clean(run.check)}")
            case _:
                pass  # what is composed is told once it is, and the end has a report of its own
    return said


def _happened(before: Run, fact: AnyFact, step: Step) -> list[str]:
    run = step.run
    match fact:
        case LegEnded() if fact.leg == before.leg:
            return [_ended(before, fact)]
        case Unstartable():
            return [f"leg {fact.leg} could not be started: {clean(fact.what)}"]
        case Composed():
            own = "with" if fact.has_told else "without"
            return [f"checkpoint {fact.number} is written, {own} the session's own words"]
        case Checked():
            return [
                "the check passed" if fact.ok else f"the check failed, exit code {fact.exit_code}"
            ]
        case Looped():
            return [f"leg {fact.leg} made the same call {fact.calls} times"]
        case Elapsed() if fact.timer in _TIMERS and step.decisions:
            return [_TIMERS[fact.timer]]
        case Pressed():
            return [_PRESSED[min(run.presses, 3) - 1]] if run.presses else []
        case CancelAsked():
            return [f"cancelled by {clean(fact.by)}"]
        case Resumed():
            return ["goes on" + (", in a new session" if fact.fresh else "")]
        case Read() if before.is_live and _has_shrunk(before, fact):
            was = f"{before.reading.fraction:.0%}" if before.reading else "?"
            return [f"the agent made room by itself: {was} → {fact.reading.fraction:.0%}"]
        case Read() if run.is_due and not before.is_due:
            share = f"{fact.reading.fraction:.0%}"
            return [f"the window is {share} full: handoff at the next pause"]
        case _:
            if run.handoffs > before.handoffs:
                return [f"handoff {run.handoffs} is done: leg {run.leg} works on"]
            if before.state is State.RESUMING and run.state is State.WORKING:
                return [f"leg {run.leg} works on"]
    return []


def _has_shrunk(before: Run, fact: Read) -> bool:
    """By a compaction of the agent's own, which is not fought."""
    if before.reading is None or not before.leg_replied or before.asked:
        return False
    return fact.reading.used_tokens * 2 < before.reading.used_tokens


def _ended(before: Run, fact: LegEnded) -> str:
    stop = fact.stop
    why = "handed over" if before.ending == "handoff" else stop.reason.description
    quote = next((clean(e.quote) for e in stop.evidence if e.quote), "")
    said = f"leg {fact.leg} ended: {why}"
    if before.ending or not quote or quote == why:
        return said
    return f"{said} ({cut(quote, 80)})"
