"""A line for each event of a run, and a summary of all of them. Pure."""

from datetime import tzinfo

from msgspec import Struct
from msgspec.structs import replace

from segue.core.handoffs.digest import Repeats
from segue.core.runs.outcomes import circles
from segue.core.runs.types import (  # fmt: skip
    AnyFact,
    Arrived,
    AskCheckpoint,
    CancelAsked,
    Checked,
    CheckpointComposed,
    Compose,
    ContextMeasured,
    Elapsed,
    EndLeg,
    HungUp,
    InterruptRequested,
    LegEnded,
    LegNotStarted,
    Looped,
    Resumed,
    Run,
    RunCheck,
    RunState,
    RunStep,
    SessionReminded,
    StartLeg,
    WaitUntil,
)
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import Stop
from segue.views.run.block import clean, cut
from segue.views.verdicts import duration, time_of_day

_PROMPTS = {
    "task": "a new session starts with the task",
    "resume": "resuming the same session",
    "recall": "telling the session what its own compaction left out",
    "check": "telling the session that the check failed",
    "checkpoint": "asking its session for a checkpoint",
    "continuation": "a new session continues",
}
_STRATEGIES = {
    "checkpoint": " with the checkpoint",
    "rules": " with a checkpoint made without the old session",
    "minimal": " with only the task",
}
_TIMERS = {
    "stall": "no output for too long",
    "active": "the limit on active time is reached",
    "wall": "the limit on time is reached",
    "tokens": "the limit on tokens is reached",
    "cost": "the limit on cost is reached",
    "output": "the limit on output is reached",
    "checkpoint": "the checkpoint took too long",
    "works_on": "asked for a checkpoint, the session called a tool instead",
    "finish": "what was running took too long to finish",
}
_PRESSED = (
    "Ctrl+C: the agent finishes its step and writes a checkpoint; a second ends it, a third"
    " kills it",
    "Ctrl+C again: ending the agent; once more kills it",
    "Ctrl+C again: killing the agent",
)


_ENDED_FOR = {
    "handoff": "handed over",
    "recall": "to tell it what its own compaction left out",
    "stall": "no output for too long",
    "loop": "no progress",
    "limit": "a limit of this run is reached",
    "cap": "a limit of this run is reached",
}
_TRACES = (StopReason.COMPLETED, StopReason.TIMEOUT, StopReason.USER_EXIT, StopReason.CRASH)
"""The stop reasons that a leg shows if segue itself ended it."""


class Story(Struct, frozen=True, kw_only=True):
    """What happened in a run, for the report; the same facts make the same story."""

    waits: int = 0
    waited_s: float = 0.0
    tried: tuple[str, ...] = ()  # one line per leg whose end was not the run's

    def add(self, before: Run, fact: AnyFact, step: RunStep, at: float) -> "Story":
        """The story with one more fact, which was logged at that time."""
        found = self
        was, now = before.state is RunState.WAITING, step.run.state is RunState.WAITING
        if was and not now and before.wait is not None:
            waited = max(0.0, at - before.wait.since)
            found = replace(found, waited_s=found.waited_s + waited)
        elif now and not was:
            found = replace(found, waits=found.waits + 1)
        if isinstance(fact, LegEnded) and fact.leg == before.leg and not step.run.state.is_final:
            then = next((clean(d.reason) for d in step.decisions if d.reason), "")
            line = _ended(before, fact, step.run) + (f"; then: {then}" if then else "")
            found = replace(found, tried=(*found.tried, line))
        return found


def news(before: Run, fact: AnyFact, step: RunStep, *, now: float, tz: tzinfo) -> list[str]:
    """The lines that are worth printing, in order: what happened, then what segue does about it.
    Most facts have none."""
    run, line = step.run, _happened(before, fact, step)
    for decision in step.decisions:
        reason = f": {clean(decision.reason)}" if decision.reason else ""
        match decision:
            case StartLeg():
                how = _PROMPTS[decision.prompt]
                if decision.prompt == "continuation":
                    how += _STRATEGIES[decision.strategy]
                whose = f" ({clean(decision.agent)})" if decision.agent else ""
                line.append(f"leg {decision.leg}{whose}: {how}")
            case AskCheckpoint():
                line.append(f"asking leg {decision.leg} for a checkpoint{reason}")
            case EndLeg() if decision.how != "close" and not line:
                verb = "killing" if decision.how == "kill" else "ending"
                line.append(f"{verb} leg {decision.leg}{reason}")
            case WaitUntil():
                wait = decision.wait
                length = duration(wait.until - now)
                why = wait.why.description
                if wait.outage_since is not None:
                    since = time_of_day(wait.outage_since, now, tz)
                    why = f"network unreachable since {since}"
                line.append(f"waiting {length} (until {time_of_day(wait.until, now, tz)}): {why}")
            case Compose() if before.state is RunState.RESUMING:
                line.append(clean(decision.reason))  # why the planned action is impossible
            case RunCheck():
                line.append(f"running the check: {clean(run.check)}")
            case _:
                # writing is reported once it is done, and the end has a report of its own
                pass
    if run.relays == 1 and not before.relays:
        line.append(not_carried_over(before.agent, run.agent))
    return line


def not_carried_over(before: str, agent: str) -> str:
    """What the next agent does not get from the one before it, in a line."""
    before, agent = clean(before), clean(agent)
    return f"{before}'s MCP servers, skills and memory files do not carry over to {agent}"


def repeats(fact: Arrived | Repeats) -> bool:
    """Whether the session repeated anything."""
    return bool(fact.commands or fact.files or fact.questions)


def repeated(fact: Arrived | Repeats) -> str:
    """What a session that took over repeated, in words."""
    commands, files, questions = (
        f"{number} {name}{'' if number == 1 else 's'}"
        for number, name in (
            (fact.commands, "command"),
            (fact.files, "file"),
            (fact.questions, "question"),
        )
    )
    first = "first action" if fact.actions == 1 else f"first {fact.actions} actions"
    return f"repeated {commands}, re-read {files}, asked again {questions} ({first})"


def _happened(before: Run, fact: AnyFact, step: RunStep) -> list[str]:
    run = step.run
    match fact:
        case LegEnded() if fact.leg == before.leg:
            return [_ended(before, fact, run)]
        case LegNotStarted():
            return [f"leg {fact.leg} could not be started: {clean(fact.what)}"]
        case CheckpointComposed() if fact.number <= 0:
            return ["no checkpoint could be written"]
        case CheckpointComposed():
            own = "with" if fact.has_summary else "without"
            return [f"checkpoint {fact.number} written, {own} the session's own summary"]
        case Checked() if fact.fault:
            return [f"the check could not be run: {clean(fact.fault)}"]
        case Checked():
            return [
                "the check passed" if fact.ok else f"the check failed, exit code {fact.exit_code}"
            ]
        case Arrived():
            return [f"leg {fact.leg} {repeated(fact)}"] if repeats(fact) else []
        case SessionReminded():
            return [f"telling leg {fact.leg} what its own compaction left out"]
        case Looped():
            return [f"leg {fact.leg}: {clean(circles(fact))}"]
        case Elapsed() if fact.timer in _TIMERS and step.decisions:
            return [_TIMERS[fact.early or fact.timer]]
        case InterruptRequested():
            return [_PRESSED[min(run.presses, 3) - 1]] if run.presses else []
        case CancelAsked():
            return [f"cancelled by {clean(fact.by)}"]
        case HungUp() if run.interrupted and not before.interrupted:
            return [f"interrupted by {clean(fact.by)}; to resume: segue resume {run.id}"]
        case Resumed():
            return ["resumed" + (", in a new session" if fact.fresh else "")]
        case ContextMeasured() if before.is_live and _has_shrunk(before, fact):
            was = f"{before.reading.fraction:.0%}" if before.reading else "?"
            return [f"the agent compacted its context: {was} → {fact.reading.fraction:.0%}"]
        case ContextMeasured() if run.is_due and not before.is_due:
            share = f"{fact.reading.fraction:.0%}"
            return [f"the window is {share} full: handoff at the next pause"]
        case _:
            if run.handoffs > before.handoffs:
                return [f"handoff {run.handoffs} done: leg {run.leg} is working"]
            if before.state is RunState.RESUMING and run.state is RunState.WORKING:
                return [f"leg {run.leg} is working"]
    return []


def _has_shrunk(before: Run, fact: ContextMeasured) -> bool:
    """Whether the agent has compacted its context by itself: less than half of it is left."""
    if before.reading is None or not before.leg_replied or before.asked:
        return False
    return fact.reading.used_tokens * 2 < before.reading.used_tokens


def ended_for(stop: Stop) -> str:
    """Why segue ended a leg, in a few words; "" if it ended by itself or by the user."""
    return _ENDED_FOR.get(stop.ended_for, "")


def _ended(before: Run, fact: LegEnded, after: Run) -> str:
    stop = fact.stop
    why = ended_for(stop) or stop.reason.description
    # If the stop has no `ended_for`: in older runs, or if the agent was faster than segue.
    goes_over = after.state in (RunState.CHECKPOINTING, RunState.HANDING_OVER)
    if before.ending == "handoff" and goes_over and stop.reason in _TRACES:
        why = "handed over"
    quote = next((clean(e.quote) for e in stop.evidence if e.quote), "")
    line = f"leg {fact.leg} ended: {why}"
    if before.ending or not quote or quote == why:
        return line
    return f"{line} ({cut(quote, 80)})"
