"""Makes a run from a session that died without segue: what the run must know about it, and the
prompt of its first leg. Sends nothing to a model and writes nothing."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from segue.agents.contracts.drive import Drive
from segue.core.handoffs.checkpoint import clean
from segue.core.handoffs.digest import Builder
from segue.core.handoffs.prompts import Relay
from segue.core.handoffs.quoting import name
from segue.core.resumes.rescues import Way
from segue.core.runs import machine
from segue.core.runs.progress import Progress
from segue.core.runs.types import (
    CheckpointComposed,
    Compose,
    Created,
    Elapsed,
    Origin,
    StartLeg,
    WaitUntil,
)
from segue.core.secrets.redact import redact
from segue.core.sessions.types import Session
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import Evidence, RateLimitInfo, Stop
from segue.runs.briefing import handoff
from segue.runs.briefing.instructions import unread_after
from segue.runs.briefing.prompts import Prompts
from segue.runs.starting.driver import new_run
from segue.runs.starting.run_request import RunRequest
from segue.sessions.documents import KnownWork, Predecessor
from segue.system.files import tree

_SLACK_S = 2.0  # a tool may write a little after the last record
_NAMED = 3  # files of those that changed
_LOOK_S = 2.0


class FirstLeg(Struct, frozen=True, kw_only=True):
    """How a rescue would start."""

    way: Way
    prompt: str
    session_id: str = ""  # that it continues in; "": a new one
    waits_until: float | None = None


def origin_of(
    session: Session,
    reason: StopReason,
    known: KnownWork,
    *,
    cwd: str,
    is_same: bool,
    is_cut: bool,
    earlier: Iterable[Predecessor] = (),
) -> Origin:
    """What a run must know about the session. `is_same`: the run continues in it; `is_cut`: the
    last record of its file is incomplete, so its content is unknown; `earlier`: the sessions whose
    work it took over, the oldest first."""
    stop, doubt = session.stop, known.salvaged.last_call
    if doubt is None and is_cut:
        doubt = ""
    return Origin(
        agent=session.agent,
        session_id=session.session_id,
        path=session.path,
        stop=Stop(
            reason=reason,
            confidence=stop.confidence if stop is not None else 0.0,
            evidence=(Evidence("session", stop.why, session.path),) if stop and stop.why else (),
            resume=reason.resume,
            retry_at=stop.retry_at if stop is not None else None,
            details=RateLimitInfo(retry_source=stop.retry_source)
            if stop is not None and reason is StopReason.RATE_LIMIT
            else None,
        ),
        stopped_at=session.last_at,
        reading=session.reading if is_same else None,
        is_same=is_same,
        doubt=None if doubt is None else redact(doubt)[0],
        changed=_changed(cwd, session.last_at),
        earlier=tuple((each.agent, each.session_id, each.path) for each in earlier),
    )


def _changed(cwd: str, at: float | None) -> str:
    """The files written in the tree since then, in a few words."""
    if at is None:
        return ""
    found = tree.changed_since(cwd, at + _SLACK_S, max_s=_LOOK_S)
    if not found:
        return ""
    named = ", ".join(name(path) for path in found[:_NAMED])
    more = f" and {len(found) - _NAMED:,} more" if len(found) > _NAMED else ""
    return f"{named}{more}"


def can_resume(drive: Drive, session: Session, env: Mapping[str, str], cwd: str) -> bool:
    """Whether the agent, started now, would find the session: it may be in another home, or have
    been started in another folder."""
    if not drive.resumes or drive.agent != session.agent:
        return False
    if drive.session_file is None:
        return True
    path = drive.session_file(session.session_id, env, cwd)
    return bool(path) and os.path.realpath(path) == os.path.realpath(session.path)


def first_leg(wanted: RunRequest, prompts: Mapping[str, Path], now: float) -> FirstLeg:
    """How the run would start, by the same rules. Raises ConfigError for prompts that cannot be
    filled."""
    origin, words = wanted.origin, Prompts(dict(prompts))
    assert origin is not None
    step = machine.step(new_run(wanted, now), Created(), at=now, draw=0.5)
    checkpoint, waits_until = None, None
    if any(isinstance(decision, Compose) for decision in step.decisions):
        digest = Builder([wanted.task])
        handoff.prime_origin(Progress(), digest, origin, now)
        checkpoint = clean(handoff.collect_rescued(step.run, digest.digest()))[0]
        step = machine.step(step.run, CheckpointComposed(number=1), at=now, draw=0.5)
    for decision in step.decisions:
        if isinstance(decision, WaitUntil):
            waits_until = decision.wait.until
            step = machine.step(step.run, Elapsed(timer="wait"), at=waits_until, draw=0.5)
            break
    way: Way = "same_session" if origin.is_same else "new_session"
    if wanted.drive.agent != origin.agent:
        way = "other_agent"
    for decision in step.decisions:
        if isinstance(decision, StartLeg):
            prompt = words.of(
                step.run,
                decision,
                checkpoint=checkpoint,
                doubt=origin.doubt,
                checked=(0, ""),
                relay=_relay(wanted, origin) if way == "other_agent" else None,
            )
            return FirstLeg(
                way=way, prompt=prompt, session_id=decision.session_id, waits_until=waits_until
            )
    return FirstLeg(way=way, prompt="", waits_until=waits_until)  # a limit of the user's forbids it


def _relay(wanted: RunRequest, origin: Origin) -> Relay:
    """What a session of another agent has to know about the change of agents."""
    unread = unread_after(wanted.cwd, wanted.drive, origin.agent)
    return Relay(before=origin.agent, agent=wanted.agent, unread=unread)
