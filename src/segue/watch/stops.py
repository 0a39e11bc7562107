"""Sessions that stopped: each is written down, decided on, and decided on again when its time has
come. What is waited for stands in the log, so the next daemon goes on with it."""

import random
import secrets
from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from segue.core import wake
from segue.core.session import Session, State
from segue.core.stop import RateLimitInfo, Stop, StopReason
from segue.io import clock as zone
from segue.watch.world import Kept, World, label

KEEP_S = 8 * 86_400.0
"""The longest limit of a plan is a week; what waits longer was forgotten by everybody."""

_PROMPT_STOPS = frozenset(
    {
        StopReason.RATE_LIMIT,
        StopReason.OVERLOADED,
        StopReason.CONTEXT_EXHAUSTED,
        StopReason.BILLING,
        StopReason.AUTH,
        StopReason.MAX_BUDGET,
        StopReason.MAX_TURNS,
        StopReason.REFUSAL,
        StopReason.CRASH,
        StopReason.TIMEOUT,
        StopReason.ERROR,
    }
)
"""What leaves an agent at its prompt without its work done."""


class Pending(Struct, kw_only=True):
    """A stop about which something is still to be done. All of it is in the log."""

    id: str  # "w-…", of a to z, digits and dashes
    ending: wake.Ending
    draw: float
    verdict: wake.Verdict
    resumes: int = 0
    doing: bool = False  # being resumed just now


class Carrier(Protocol):
    """Who carries a resume out, in a thread of its own; the answer comes to `Stops.carried`."""

    def resume(self, pending: Pending, verdict: wake.Resume) -> None: ...


class Stops:
    """All that stopped and may go on."""

    def __init__(
        self,
        world: World,
        carrier: Carrier,
        *,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.world = world
        self.carrier = carrier
        self.pending: dict[tuple[str, str], Pending] = {}
        self._draw = draw
        self._noted: dict[tuple[str, str], tuple[str, float]] = {}
        self._left_at: dict[str, float] = {}
        self._yes_until: dict[str, float] = {}
        self._last_wake_at: float | None = None
        self._proven = False

    # What is seen

    def ended(self, kept: Kept, stop: Stop, *, mid_turn: bool, has_tmux: bool) -> None:
        """Its process is gone."""
        session, now = kept.session, self.world.clock.now()
        self._note_stop(session, stop, "exited")
        ending = self._ending(kept, stop, "exited", now)
        ending = msgspec.structs.replace(
            ending,
            mid_turn=mid_turn,
            has_pane=kept.seat is not None,
            pane_shell=bool(kept.shell_line) or kept.seat is not None,
            has_tmux=has_tmux,
        )
        if wake.ended_by_user(ending):
            self._left_at[session.cwd] = now
        self._open(kept, ending)

    def at_prompt(self, kept: Kept, stop: Stop, *, continues_at: float | None) -> None:
        """It sits at its prompt, stopped by a limit or a failure."""
        session, now = kept.session, self.world.clock.now()
        key = (session.agent, session.session_id)
        mark = (stop.reason.value, session.last_at or 0.0)
        if self._noted.get(key) == mark:
            return
        self._noted[key] = mark
        self._note_stop(session, stop, "at_prompt")
        ending = self._ending(kept, stop, "at_prompt", session.last_at or now)
        ending = msgspec.structs.replace(
            ending, has_pane=kept.seat is not None, native_continues_at=continues_at
        )
        before = self.pending.get(key)
        if before is not None and before.ending.stop is not None and ending.stop is not None:
            # The same limit told once more does not move the time that is waited for.
            ending = msgspec.structs.replace(ending, stop=_steady(before.ending.stop, stop))
        self._open(kept, ending)

    def is_stop_at_prompt(self, session: Session) -> bool:
        """Whether a live session is stopped, and not just waiting for its user."""
        stop = session.stop
        if stop is None or session.process is None:
            return False
        return session.state is State.WAITING_FOR_LIMIT or (
            session.state is State.WAITING_FOR_USER and stop.reason in _PROMPT_STOPS
        )

    def went_on(self, session: Session) -> None:
        """It works, or its user spoke: nothing is waited for any more."""
        key = (session.agent, session.session_id)
        self._noted.pop(key, None)
        found = self.pending.pop(key, None)
        if found is None or found.doing:
            return
        self._note(found, session, {"verdict": "over", "why": "it went on"})

    def user_spoke(self, session: Session) -> None:
        """The user typed something into it: from now on resumes are counted anew."""
        found = self.pending.get((session.agent, session.session_id))
        if found is not None:
            found.resumes = 0
        self.world.note("hook", session, {"type": "user_spoke"})

    # What is decided

    def tick(self, now: float) -> float | None:
        """Decides on what is due; when the next one is."""
        for pending in list(self.pending.values()):
            due = _due(pending.verdict)
            if due is not None and due <= now and not pending.doing:
                self.decide(pending)
        times = [due for p in self.pending.values() if (due := _due(p.verdict)) is not None]
        return min(times, default=None)

    def decide(self, pending: Pending) -> None:
        """Asks what is done, writes it down, and has it done."""
        world, now = self.world, self.world.clock.now()
        kept = world.kept.get((pending.ending.agent, pending.ending.session_id))
        if kept is None:
            return
        session = kept.session
        pending.ending = msgspec.structs.replace(
            pending.ending, limits=session.limits, is_open=self._is_open(pending, session)
        )
        policy = world.policy(session)
        verdict = wake.decide(
            pending.ending,
            self._history(pending, session, now),
            policy,
            now=now,
            local=_local,
            draw=pending.draw,
        )
        before, pending.verdict = pending.verdict, verdict
        if type(before) is not type(verdict) or before != verdict:
            self._note(pending, session, {"verdict": _tag(verdict), **_data(verdict)})
            self._tell(session, pending, verdict)
        key = (session.agent, session.session_id)
        match verdict:
            case wake.Leave():
                self.pending.pop(key, None)
            case wake.Resume():
                pending.doing = True
                pending.resumes += 1
                self._last_wake_at = now
                self.carrier.resume(pending, verdict)
            case _:
                pass

    def carried(self, pending: Pending, why_not: str) -> None:
        """A resume was carried out, or could not be."""
        pending.doing = False
        key = (pending.ending.agent, pending.ending.session_id)
        kept = self.world.kept.get(key)
        session = kept.session if kept else None
        if not why_not:
            self._proven = True
            self.pending.pop(key, None)
            self._noted.pop(key, None)
            self._note(pending, session, {"verdict": "resumed"})
            if session:
                self.world.notices.tell("resume", pending.id, f"{label(session)} goes on", "")
            return
        self._note(pending, session, {"verdict": "failed", "why": why_not})
        pending.verdict = wake.Ask(f"it could not be resumed: {why_not}")
        if session:
            self._tell(session, pending, pending.verdict)

    # What the user says

    def say_yes(self, session: Session, until: float) -> str:
        """The user allows what is asked about."""
        key = (session.agent, session.session_id)
        self._yes_until[session.cwd] = until
        pending = self.pending.get(key)
        if pending is None:
            return f"{label(session)}: nothing is waited for"
        pending.resumes = 0
        self.decide(pending)
        return f"{label(session)}: {_tag(pending.verdict)}: {getattr(pending.verdict, 'why', '')}"

    def cancel(self, session: Session) -> str:
        """The user wants it left alone."""
        found = self.pending.pop((session.agent, session.session_id), None)
        if found is None:
            return ""
        self._note(found, session, {"verdict": "cancelled"})
        return f"{label(session)} will not be resumed"

    # What is kept

    def restore(self) -> None:
        """What a former daemon was waiting for. One that was being resumed is asked about again:
        its session tells whether it went on."""
        now = self.world.clock.now()
        latest: dict[str, dict[str, Any]] = {}
        seq = 0
        while notes := self.world.log.since(seq, ("wake",)):
            for note in notes:
                seq = note.seq
                if note.at >= now - KEEP_S and isinstance(note.data.get("id"), str):
                    latest[note.data["id"]] = note.data
        for data in latest.values():
            if data.get("verdict") not in ("wait", "stand_by", "ask", "resume"):
                continue
            try:
                ending = msgspec.convert(data["ending"], wake.Ending)
            except (KeyError, msgspec.ValidationError):
                continue
            self.pending[ending.agent, ending.session_id] = Pending(
                id=data["id"],
                ending=ending,
                draw=float(data.get("draw", 0.5)),
                verdict=wake.Wait(now, "the daemon was started again"),
                resumes=int(data.get("resumes", 0)),
            )

    def _open(self, kept: Kept, ending: wake.Ending) -> None:
        key = (ending.agent, ending.session_id)
        before = self.pending.get(key)
        pending = Pending(
            id=before.id if before else f"w-{secrets.token_hex(4)}",
            ending=ending,
            draw=before.draw if before else self._draw(),
            verdict=wake.Wait(self.world.clock.now(), ""),
            resumes=before.resumes if before else self._resumed(kept.session),
        )
        self.pending[key] = pending
        self.decide(pending)

    def _resumed(self, session: Session) -> int:
        """How often it was resumed since the user's last word, by the log."""
        notes = self.world.log.of(session.agent, session.session_id, ("wake", "hook"))
        count = 0
        for note in notes:
            if note.kind == "wake" and note.data.get("verdict") == "resume":
                count += 1
            elif note.kind == "hook" and note.data.get("type") == "user_spoke":
                count = 0
        return count

    def _ending(self, kept: Kept, stop: Stop, state: Any, at: float) -> wake.Ending:
        session = kept.session
        scope = stop.details.scope if isinstance(stop.details, RateLimitInfo) else None
        reading = session.reading
        return wake.Ending(
            agent=session.agent,
            session_id=session.session_id,
            project=session.cwd,
            stop=stop,
            state=state,
            at=at,
            ended_by=stop.ended_by,
            by_hook=kept.hook_end if state == "exited" else "",
            in_run=kept.in_run,
            is_own=kept.is_ours,
            limit_scope=scope or "",
            limits=session.limits,
            idle_s=max(0.0, at - (session.last_at or at)),
            used_tokens=reading.used_tokens if reading else 0,
            window_tokens=reading.window_tokens if reading else 0,
            model=session.model,
        )

    def _is_open(self, pending: Pending, session: Session) -> bool:
        return pending.ending.state == "exited" and session.process is not None

    def _history(self, pending: Pending, session: Session, now: float) -> wake.History:
        return wake.History(
            resumes=pending.resumes,
            last_resume_at=None,
            user_left_project_at=self._left_at.get(session.cwd),
            yes_until=self._yes_until.get(session.cwd),
            paused=self.world.is_paused(session),
            waking_now=sum(p.doing for p in self.pending.values()),
            proven=self._proven,
            last_wake_at=self._last_wake_at,
        )

    def _note_stop(self, session: Session, stop: Stop, state: str) -> None:
        self.world.note("stop", session, {"state": state, **msgspec.to_builtins(stop)})
        self.world.say(f"{label(session)}: {stop.reason.value} ({stop.confidence:.2f}), {state}")
        if stop.reason not in (StopReason.COMPLETED, StopReason.USER_EXIT):
            key = f"{session.session_id}:{stop.reason.value}"
            what = f"{label(session)} stopped: {stop.reason.description}"
            self.world.notices.tell("stop", key, what, stop.remediation)

    def _note(self, pending: Pending, session: Session | None, data: dict[str, Any]) -> None:
        kept = {
            "id": pending.id,
            "draw": pending.draw,
            "resumes": pending.resumes,
            "ending": msgspec.to_builtins(pending.ending),
        }
        self.world.note("wake", session, kept | data)

    def _tell(self, session: Session, pending: Pending, verdict: wake.Verdict) -> None:
        self.world.say(f"{label(session)}: {_tag(verdict)}: {verdict.why}")
        match verdict:
            case wake.Ask():
                self.world.notices.tell(
                    "needs_you", pending.id, f"{label(session)} needs you", verdict.why
                )
            case wake.Wait() | wake.StandBy():
                self.world.notices.tell("wait", pending.id, f"{label(session)} waits", verdict.why)
            case _:
                pass


def _steady(old: Stop, new: Stop) -> Stop:
    if old.reason is not StopReason.RATE_LIMIT or new.reason is not StopReason.RATE_LIMIT:
        return new
    if old.retry_at is None or new.retry_at is None or new.retry_at <= old.retry_at:
        return new
    return msgspec.structs.replace(new, retry_at=old.retry_at)


def _due(verdict: wake.Verdict) -> float | None:
    return verdict.until if isinstance(verdict, wake.Wait | wake.StandBy) else None


def _tag(verdict: wake.Verdict) -> str:
    return str(verdict.__struct_config__.tag)


def _data(verdict: wake.Verdict) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(verdict)
    found.pop("type", None)
    return found


def _local(at: float) -> datetime:
    return datetime.fromtimestamp(at, zone.local_zone())
