"""Stops that still need a decision or an action, and how they are stored in the log."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec import Struct

from segue.agents import terminals
from segue.core.resumes import decisions
from segue.core.sessions.types import Session
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import RateLimitInfo, Stop
from segue.system import clock as zone
from segue.system.tmux.panes import AgentPane
from segue.watch.handoffs.messages import Messages
from segue.watch.log import Log, Note
from segue.watch.outside import SessionRecords
from segue.watch.state import ORDER, TrackedSession

DOUBT_S = 45.0
"""How long a session that was being resumed when its daemon was killed may take to show it."""
_OVER = frozenset({"leave", "over", "resumed", "relayed", "cancelled", "rest"})


@dataclass(kw_only=True)
class Pending:
    """One such stop. The log has everything about it, except for what is in progress right now."""

    id: str  # "w-…", with a to z, digits and dashes
    ending: decisions.StoppedSession
    tracked: TrackedSession
    draw: float
    verdict: decisions.Verdict
    resumes: int = 0
    last_resume_at: float | None = None
    allowed: bool = False  # the user has allowed this one
    doing: bool = False  # being resumed just now
    retries: int = 0  # it could not be typed
    in_the_way_since: float | None = None  # the user's draft
    missing_since: float | None = None  # its agent, whose end was not seen
    was_restored: bool = False
    relay_failed: bool = False  # another agent was asked to take over

    @property
    def counted(self) -> tuple[int, float | None]:
        """How often it was resumed, and when last."""
        return self.resumes, self.last_resume_at

    def noted(self) -> dict[str, Any]:
        """The data of its notes: everything that the next daemon needs to continue."""
        tracked = self.tracked
        return {
            "id": self.id,
            "draw": self.draw,
            "resumes": self.resumes,
            "last_resume_at": self.last_resume_at,
            "allowed": self.allowed,
            "ending": msgspec.to_builtins(self.ending),
            "sat": msgspec.to_builtins(
                PaneBefore(
                    path=tracked.session.path,
                    seat=tracked.seat,
                    socket=tracked.socket,
                    shell_line=tracked.shell_line,
                    program=tracked.program,
                    flags=tracked.flags,
                )
            ),
        }


class PaneBefore(Struct, frozen=True, kw_only=True):
    """Where and how the session's agent ran."""

    path: str = ""
    seat: AgentPane | None = None
    socket: str = ""
    shell_line: str | None = None
    program: str = ""
    flags: tuple[str, ...] = ()


def from_notes(log: Log, now: float, since: float) -> list[Pending]:
    """The stops that a previous daemon left unfinished, by the last note on each."""
    latest: dict[str, Note] = {}
    seq = 0
    while notes := log.since(seq, ("wake",)):
        for note in notes:
            seq = note.seq
            if note.at >= since and isinstance(note.data.get("id"), str):
                latest[note.data["id"]] = note
    began = {n.data.get("id"): n.seq for n in log.since(0, ("back",), 1_000_000)}
    taken = _taken_over(log, since)
    found = []
    for note in latest.values():
        if note.data.get("verdict") == "relay" and note.data["id"] in taken:
            continue  # its new agent was started
        was_begun = began.get(note.data["id"], 0) > note.seq
        if (pending := _restored(note, now, was_begun=was_begun)) is not None:
            pending.relay_failed = note.data["id"] in taken  # started, but without success
            found.append(pending)
    return found


def relayed(log: Log, since: float) -> dict[tuple[str, str], float]:
    """The sessions that another agent took over, and when."""
    notes = _taken_over(log, since).values()
    return {(note.agent, note.session_id): note.at for note in notes}


def _taken_over(log: Log, since: float) -> dict[str, Note]:
    """The relay orders that were carried out, by id: `segue back` became the new agent."""
    relays = {
        note.data.get("id")
        for note in log.since(0, (ORDER,), 1_000_000)
        if note.at >= since and note.data.get("relay_to")
    }
    return {
        str(note.data["id"]): note
        for note in log.since(0, ("back",), 1_000_000)
        if note.data.get("id") in relays and "error" not in note.data
    }


def _restored(note: Note, now: float, *, was_begun: bool) -> Pending | None:
    data = note.data
    if data.get("verdict") in _OVER:
        return None
    try:
        ending = msgspec.convert(data["ending"], decisions.StoppedSession)
        sat = msgspec.convert(data.get("sat", {}), PaneBefore)
        last_at = msgspec.convert(data.get("last_resume_at"), float | None)
    except (KeyError, msgspec.ValidationError):
        return None
    session = Session(
        agent=ending.agent,
        session_id=ending.session_id,
        path=sat.path,
        cwd=ending.project,
        model=ending.model,
        limits=ending.limits,
    )
    tracked = TrackedSession(
        session,
        seat=sat.seat,
        socket=sat.socket,
        terminal=terminals.find(ending.agent),
        program=sat.program,
        flags=sat.flags,
        in_run=ending.in_run,
        shell_line=sat.shell_line,
    )
    resumes = int(data.get("resumes", 0))
    is_begun_later = data.get("verdict") == "relay" or (
        data.get("verdict") == "resume" and data.get("place") != "headless"
    )
    if is_begun_later and not was_begun:
        # No agent was started, so nothing was tried.
        resumes, last_at = max(0, resumes - 1), None
    return Pending(
        id=data["id"],
        ending=ending,
        tracked=tracked,
        draw=float(data.get("draw", 0.5)),
        verdict=_verdict(data, note.at, now),
        resumes=resumes,
        last_resume_at=last_at,
        allowed=bool(data.get("allowed")),
        was_restored=True,
    )


def _verdict(data: dict[str, Any], at: float, now: float) -> decisions.Verdict:
    why, until = str(data.get("why", "")), data.get("until")
    if data.get("verdict") in ("resume", "relay"):
        why = "it was being resumed when the daemon ended"
        return decisions.WaitForReset(max(now, at + DOUBT_S), why)
    if not isinstance(until, float | int):
        return decisions.AskUser(why)
    if data.get("verdict") == "stand_by":
        return decisions.StandBy(float(until), why)
    return decisions.WaitForReset(float(until), why)


def resumed(
    notes: Iterable[Note],
    *,
    session: Session | None = None,
    words: str = "",
    records: SessionRecords | None = None,
) -> tuple[int, float | None, float | None]:
    """How often a session was resumed since the user's last message, when it was resumed first
    since then, and when it was last resumed at all. Its notes are enough to count. With `session`,
    its own `records` count too: they show messages of the user that no hook reported, which are the
    prompts without `words`, the words that all of segue's prompts contain."""
    times: list[float] = []
    last_at: float | None = None
    for note in notes:
        if note.kind == "hook" and note.data.get("type") == "user_spoke":
            times = []
        elif note.kind == "wake" and note.data.get("verdict") in ("resume", "relay"):
            times.append(note.at)
            last_at = note.at
        elif note.kind == "wake" and note.data.get("verdict") == "failed":
            times = times[:-1]
    if times and session is not None and words and records is not None:
        received = records.look(session.agent, session.path, session.session_id, words, times[0])
        if received.spoken_at is not None:
            times = [at for at in times if at > received.spoken_at]
    return len(times), times[0] if times else None, last_at


def own_words(messages: Messages) -> str:
    """The words with which all resume prompts begin; "" if the user's own template begins with a
    placeholder."""
    some = [
        messages.resume(reason=reason, leg=leg, call_in_doubt=None)
        for reason, leg in ((StopReason.CRASH, 1), (StopReason.RATE_LIMIT, 9))
    ]
    common = os.path.commonprefix(some).strip()  # noqa: RUF071 - letters are meant
    return common.splitlines()[0] if common else ""


def ending_of(
    tracked: TrackedSession, stop: Stop, state: Literal["exited", "at_prompt"], at: float
) -> decisions.StoppedSession:
    """What is known about a stopped session, without what has yet to be looked up."""
    session = tracked.session
    scope = stop.details.scope if isinstance(stop.details, RateLimitInfo) else None
    reading = session.reading
    return decisions.StoppedSession(
        agent=session.agent,
        session_id=session.session_id,
        project=session.cwd,
        stop=stop,
        state=state,
        at=at,
        ended_by=stop.ended_by,
        by_hook=tracked.hook_end if state == "exited" else "",
        in_run=tracked.in_run,
        is_own=tracked.is_ours,
        limit_scope=scope or "",
        limits=session.limits,
        idle_s=max(0.0, at - (session.last_at or at)),
        used_tokens=reading.used_tokens if reading else 0,
        window_tokens=reading.window_tokens if reading else 0,
        model=session.model,
    )


def has_replied(session: Session, since: float) -> bool:
    """Whether the agent has said something since."""
    reading = session.reading
    return reading is not None and (reading.at or 0.0) > since


def is_same_stop(one: decisions.StoppedSession, other: decisions.StoppedSession) -> bool:
    """Whether these are one stop, reported twice: by a previous daemon, and by this one."""
    if one.stop is None or other.stop is None or one.state != other.state:
        return False
    return one.at == other.at and one.stop.reason is other.stop.reason


def is_same_wait(before: decisions.Verdict, verdict: decisions.Verdict) -> bool:
    """Whether both wait for the same thing, the second for a few seconds longer."""
    if not isinstance(before, decisions.WaitForReset) or not isinstance(
        verdict, decisions.WaitForReset
    ):
        return False
    return before.why == verdict.why and abs(verdict.until - before.until) <= 2 * decisions.FOLLOW_S


def due_of(verdict: decisions.Verdict) -> float | None:
    """When to decide again."""
    return (
        verdict.until if isinstance(verdict, decisions.WaitForReset | decisions.StandBy) else None
    )


def tag_of(verdict: decisions.Verdict) -> str:
    """What a decision is called, in the log and for users."""
    return str(verdict.__struct_config__.tag)


def data_of(verdict: decisions.Verdict) -> dict[str, Any]:
    """The fields of a decision, without its tag."""
    found: dict[str, Any] = msgspec.to_builtins(verdict)
    found.pop("type", None)
    return found


def local_time(at: float) -> datetime:
    """The time on the user's clock."""
    return datetime.fromtimestamp(at, zone.local_zone())
