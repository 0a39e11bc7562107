"""segue's side of a simulated leg: what replaces `LegFollower` and the real verdict."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from segue.core.runs.timers import Activity
from segue.core.runs.types import (
    AnyFact,
    Boundary,
    ContextMeasured,
    LegEnded,
    Replied,
    Run,
    RunState,
    SessionNamed,
)
from segue.core.sessions.reading import Reading
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import FailureInfo, RateLimitInfo, Stop
from segue.testing.simulation.clock import VirtualClock
from segue.testing.simulation.headless.legs import Exit, Leg


class _Answer(Struct):
    text: str = "what matters"
    is_whole: bool = True


class _Compactions(Struct):
    count: int = 0
    works_after: int = 0
    summary: str = ""


class SimulatedFollower:
    """Reads a leg's records from the first one, as any new process must."""

    def __init__(self, leg: Leg, number: int, run: Run, clock: VirtualClock) -> None:
        self.leg, self.number, self.clock = leg, number, clock
        self.session_id = leg.conversation.id
        self.answer: _Answer | None = None
        self.works_on = self.turn_is_over = self.is_flooded = self.is_closed = False
        self.is_ending = self.has_more = self.has_moved = self.has_replied = False
        self.compactions = _Compactions()
        self.limits: dict[str, object] = {}  # its stream reports none
        self._place = 0
        self._is_boundary = False
        self._acted = False
        self._asked = leg.order.purpose == "checkpoint"
        self._missed = leg.model.size_after_tools
        awake = clock.awake()
        self._began = min(awake, leg.began)
        self._output = awake
        self._tool: float | None = None

    def look(self, run: Run, now: float) -> list[AnyFact]:
        """The facts in the records since the last look."""
        self._is_boundary = False
        facts: list[AnyFact] = []
        records = self.leg.records[self._place :]
        self._place += len(records)
        self.has_moved = bool(records)
        window = self.leg.conversation.window_tokens
        for record in records:
            self._output = record.at
            if record.kind == "named":
                facts.append(SessionNamed(leg=self.number, session_id=self.session_id))
            elif record.kind == "reply":
                if not self.has_replied or (record.acted and not self._acted):
                    facts.append(Replied(leg=self.number, acted=record.acted))
                self.has_replied, self._acted = True, self._acted or record.acted
                self._tool = None
                reading = Reading(input_tokens=record.used_tokens, window_tokens=window, at=now)
                facts.append(
                    ContextMeasured(
                        leg=self.number,
                        reading=reading,
                        enforced_tokens=self._enforced(window),
                        is_timely=not self._missed,
                        opening_tokens=self._opening_tokens,
                    )
                )
            elif record.kind == "tool":
                self._tool = record.at
            elif record.kind == "boundary":
                self._is_boundary, self._tool = True, None
            elif record.kind == "answer":
                self.answer = _Answer()
            elif record.kind == "works_on":
                self.works_on = True
            elif record.kind == "over":
                self.turn_is_over = True
                self._tool = None
            elif record.kind == "compaction":
                self.compactions.count += 1
        return facts

    @property
    def _opening_tokens(self) -> int:
        leg = self.leg
        is_new = not leg.order.session_id and leg.model.resume_factor > 1
        return leg.conversation.loaded_tokens if is_new else 0

    def _enforced(self, window: int) -> int | None:
        at = self.leg.model.compacts_at
        return int(at * window) if at is not None else None

    def boundary(self, run: Run) -> Boundary | None:
        """See `LegFollower.boundary`."""
        if self._tool is not None:
            is_wanted = run.is_due and run.state is RunState.WORKING and not run.ended_how
            talks = self.leg.model.talks
            return Boundary(leg=self.number, ahead=True) if is_wanted and talks else None
        is_wanted = run.is_due or run.is_in_tool or run.state is RunState.STOPPING
        return Boundary(leg=self.number) if self._is_boundary and is_wanted else None

    @property
    def is_between_tools(self) -> bool:
        """Whether the last look saw a tool finish, and none is running."""
        return self._is_boundary and self._tool is None

    def finish(self, run: Run, now: float) -> list[AnyFact]:
        """The remaining facts."""
        return self.look(run, now)

    def activity(self, now: float) -> Activity:
        """The leg's activity, for the timers."""
        awake = self.clock.awake()
        return Activity(
            last_output_at=now - (awake - self._output),
            began_at=now - (awake - self._began),
            tool_since=None if self._tool is None else now - (awake - self._tool),
        )

    def output_bytes(self) -> int:
        """A number that grows with the leg's output."""
        return 100 * len(self.leg.records)


def judged(
    run: Run, follower: SimulatedFollower, ended: Exit, reset_at: Callable[[], float]
) -> LegEnded:
    """How a leg ended, as the real verdict would say. `reset_at` returns the account's reset in
    wall time."""
    leg = follower.leg
    stop = _own(run, ended) or _stop(leg, ended, reset_at)
    progressed = len(leg.project.done) > leg.done_before
    return LegEnded(
        leg=follower.number,
        stop=stop,
        replied=follower.has_replied,
        progressed=progressed,
        failure=""
        if stop.reason is StopReason.COMPLETED
        else f"{stop.reason}:{ended.cause}{ended.more}",
        tokens=leg.spent_tokens,
        cost_usd=leg.spent_tokens * 1e-6,
        active_s=max(0.0, follower.clock.awake() - leg.began),
    )


def _own(run: Run, ended: Exit) -> Stop | None:
    """The stop of a leg that segue ended."""
    has_told = ended.cause == "completed" and (run.has_handed_over or run.purpose == "checkpoint")
    if ended.cause != "ended" and not has_told:
        return None
    match run.ending:
        case "handoff":
            reason = run.why or StopReason.CONTEXT_EXHAUSTED
        case "recall":
            reason = StopReason.CONTEXT_EXHAUSTED
        case "stall":
            reason = StopReason.TIMEOUT
        case "loop":
            reason = StopReason.UNKNOWN
        case "limit" | "cap":
            reason = StopReason.MAX_BUDGET
        case "user" | "cancel" | "hangup":
            return Stop(reason=StopReason.USER_EXIT, confidence=0.95, ended_by="user")
        case _:
            return None
    return Stop(
        reason=reason,
        confidence=1.0,
        resume=reason.resume,
        ended_by="segue",
        ended_for=run.ending,
    )


def _stop(leg: Leg, ended: Exit, reset_at: Callable[[], float]) -> Stop:
    reasons = {
        "completed": StopReason.COMPLETED,
        "context": StopReason.CONTEXT_EXHAUSTED,
        "limited": StopReason.RATE_LIMIT,
        "overloaded": StopReason.OVERLOADED,
        "outage": StopReason.OVERLOADED,
        "refused": StopReason.AUTH,
        "declined": StopReason.REFUSAL,
        "crash": StopReason.CRASH,
        "killed": StopReason.CRASH,
        "lost": StopReason.CRASH,
        "ended": StopReason.CRASH,
    }
    reason = reasons[ended.cause]
    more: dict[str, Any] = {}
    if ended.cause == "limited":
        more["details"] = RateLimitInfo(scope="five_hour", retry_source="record")
        left_s = leg.account.limited_until - ended.at
        if leg.account.limit_told == "time":
            more["retry_at"] = reset_at()
        elif leg.account.limit_told == "seconds" and left_s > 0:
            more["retry_after_s"] = left_s
    elif ended.cause == "outage":
        more["details"] = FailureInfo(message="no connection", scope="network")
    return Stop(
        reason=reason,
        confidence=0.95,
        resume=reason.resume,
        ended_by="system" if ended.cause in ("killed", "lost", "ended") else "unknown",
        **more,
    )
