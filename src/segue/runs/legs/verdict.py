"""Why a leg of a run ended."""

from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from segue import api
from segue.agents.contracts.permission import RefusedCall
from segue.agents.ending import Channel, Ending, Source
from segue.core.runs import outcomes
from segue.core.runs.types import Run
from segue.core.stops.events import ToolCall
from segue.core.stops.reasons import StopReason
from segue.core.stops.remedies import remedy
from segue.core.stops.types import EndedBy, Evidence, Grant, Stop, Tokens
from segue.errors import InputError
from segue.runs.legs.follower import LegFollower
from segue.runs.legs.leg import Exit
from segue.system import doubts
from segue.system.files import files

_QUOTE_CHARS = 400
_CONFIGURED = 0.99  # as a sentence of the agent's own record
_BY: dict[str, EndedBy] = {"user": "user", "cancel": "user", "hangup": "system"}


def verdict(
    run: Run, follower: LegFollower, ended: Exit, now: float, *, is_unchanged: bool = False
) -> Stop:
    """Why a leg ended, from everything that it left behind and from who ended it. `is_unchanged`:
    the tree is certainly as it was before the leg."""
    sources = [_stream(follower), source_of(follower.leg.stderr, "stderr")]
    path = follower.file.path
    if path.endswith(".jsonl"):
        sources.append(source_of(Path(path), "transcript"))
    by: EndedBy = "unknown"
    if run.ending is not None:
        by = _BY.get(run.ending, "segue")
    elif ended.lost or ended.ended_by_command:
        by = "system"  # the machine is going down, or a segue was killed together with its leg
    ending = Ending(
        sources=tuple(source for source in sources if source is not None),
        agent=follower.profile.name,
        exit_code=ended.exit_code,
        ended_by=by,
        exit_tells=follower.drive.hears is not None,
    )
    policy = run.policy
    if run.reading is not None:
        policy = replace(policy, default_window_tokens=run.reading.window_tokens)
    stop = api.examine(ending, now=now, policy=policy).stop
    if by == "unknown" and doubts.is_doubtful(stop, policy.min_confidence):
        doubts.keep(_doubt(run, follower, ending, stop, now))
    if stop.tokens is None and run.reading is not None:
        tokens = Tokens(run.reading.used_tokens, run.reading.window_tokens)
        stop = replace(stop, tokens=tokens)
    if (own := _own(run, stop)) is not None:
        return own
    if run.ending is None:
        refusals = follower.refusals
        refused = refusals.call if refusals.was_last else None
        if stop.reason is StopReason.NEEDS_USER:
            return _to_be_allowed(run, stop, follower, refused)
        # An agent that was refused an edit and changed nothing has done nothing, whatever it says.
        refused = refused or (refusals.edit if is_unchanged else None)
        if stop.reason is StopReason.COMPLETED and (refused is not None or refusals.was_last):
            return _to_be_allowed(run, stop, follower, refused)
    if follower.stated_outcome == "failed" and stop.reason in (
        StopReason.COMPLETED,
        StopReason.UNKNOWN,
    ):
        return _said_so(stop, StopReason.ERROR, "failed", follower)
    by_itself = ended.exit_code is not None and ended.exit_code >= 0 and run.ending is None
    if follower.stated_outcome == "done" and by_itself:
        return _said_so(stop, StopReason.COMPLETED, "done", follower)
    return stop


def _stream(follower: LegFollower) -> Source | None:
    """The output as evidence: the turn that the follower parsed from its records, otherwise its
    text."""
    turn = follower.stream.turn
    if turn is None:
        return source_of(follower.leg.stdout, "stdout")
    return Source(text="", channel="stdout", name="stdout", turn=turn)


def _doubt(run: Run, follower: LegFollower, ending: Ending, stop: Stop, now: float) -> doubts.Doubt:
    """What the leg printed last, for `segue wordings review`; a session file is its own record."""
    sources = (source_of(follower.leg.stdout, "stdout"), source_of(follower.leg.stderr, "stderr"))
    printed = [source.text.strip() for source in sources if source is not None]
    return doubts.Doubt(
        at=now,
        agent=ending.agent or "",
        reason=stop.reason.value,
        confidence=stop.confidence,
        exit_code=ending.exit_code,
        where=run.id,
        text="\n".join(text for text in printed if text),
    )


_OURS = "ended_by.segue"


def _own(run: Run, stop: Stop) -> Stop | None:
    """The stop of a leg that segue ended, with segue's own reason. None if the leg ended by itself,
    or because of something else."""
    is_trace = bool(stop.evidence) and stop.evidence[0].rule == _OURS
    # A session that has handed its work over has completed nothing but its last answer.
    has_told = stop.reason is StopReason.COMPLETED and (
        run.has_handed_over or run.purpose == "checkpoint"
    )
    match run.ending:
        case "handoff" if is_trace or has_told:
            reason = run.why or StopReason.CONTEXT_EXHAUSTED
            quote, advice = "handed over", "Nothing: a new session continues the work."
        case "recall" if is_trace or stop.reason is StopReason.CONTEXT_EXHAUSTED:
            reason = StopReason.CONTEXT_EXHAUSTED
            quote = "ended so that segue can tell it what its own compaction left out"
            advice = "Nothing: the same session is resumed."
        case "stall" if is_trace:
            reason = StopReason.TIMEOUT
            quote, advice = "no output for too long", stop.remediation
        case "loop" if is_trace:
            reason = StopReason.UNKNOWN
            quote = outcomes.circles(run.circles) if run.circles else "no progress"
            advice = f"To see what it tried: segue logs {run.id}"
        case "limit" | "cap" if is_trace and run.outcome_due is not None:
            timed = run.outcome_due.exit_code == outcomes.TIMED_OUT
            reason = StopReason.TIMEOUT if timed else StopReason.MAX_BUDGET
            quote, advice = run.outcome_due.what, run.outcome_due.advice
        case _:
            return None
    return replace(
        stop,
        reason=reason,
        confidence=1.0,
        resume="none" if run.ending in ("limit", "cap", "loop") else stop.resume,
        evidence=(Evidence(f"run.{run.ending}", quote, "segue"), *stop.evidence),
        also=tuple(r for r in (stop.reason, *stop.also) if r is not reason),
        remediation=advice,
        ended_for=run.ending,
    )


def source_of(path: Path, channel: Channel) -> Source | None:
    """The end of a file, as far as the classifier looks; None if there is no file."""
    try:
        found = files.read(path)
    except InputError:
        return None
    return Source(text=found.text, channel=channel, name=channel, first_line=found.first_line)


def active_s(run: Run, follower: LegFollower, ended: Exit) -> float:
    """How long the leg was active, without the machine's sleep and without the time after its end
    in which nobody looked."""
    until = ended.ended_at
    if ended.lost:  # unknown: it was alive when it last wrote
        with suppress(OSError):
            until = min(until, follower.leg.stdout.stat().st_mtime)
    by_clock = until - (run.leg_since or until)
    return min(follower.times.active_s, by_clock) if by_clock > 0 else follower.times.active_s


def _said_so(stop: Stop, reason: StopReason, setting: str, follower: LegFollower) -> Stop:
    """The stop that the user's config names for a line of output. Users know their own agents
    best."""
    line = follower.stated_in.strip()
    return replace(
        stop,
        reason=reason,
        confidence=_CONFIGURED,
        resume="none",
        evidence=(Evidence(f"config.{setting}", line[:_QUOTE_CHARS], "stdout"),),
        also=(() if stop.reason is reason else (stop.reason,)) + stop.also,
        details=None,
        remediation=remedy(reason),
    )


def _to_be_allowed(
    run: Run, stop: Stop, follower: LegFollower, refused: ToolCall | None = None
) -> Stop:
    """The stop of an agent that lacked a permission: which one, and what would grant it. `refused`
    is the call that nobody was there to allow, for an agent that then gave up politely."""
    is_polite = stop.reason is StopReason.COMPLETED
    call = refused or (follower.work.call if is_polite or follower.has_open_call else None)
    reason = StopReason.NEEDS_USER
    evidence = stop.evidence
    if is_polite or call is not None:
        named = "a tool"
        if call is not None:
            writes = f"writing {', '.join(call.files[:2])}" if call.files else ""
            named = writes or call.command or call.name
        evidence = (Evidence("run.denied", f"not allowed: {named}", "stdout"), *evidence)
    return replace(
        stop,
        reason=reason,
        resume="none",
        evidence=evidence,
        also=(stop.reason, *stop.also) if is_polite else stop.also,
        remediation=remedy(reason),
        grants=_grants(run, call, follower),
    )


def _grants(run: Run, call: ToolCall | None, follower: LegFollower) -> tuple[Grant, ...]:
    permissions = follower.drive.permissions
    if permissions is None:
        return ()
    refused = RefusedCall(
        tool=call.name if call else "",
        command=call.command if call else "",
        files=call.files if call else (),
        cwd=run.cwd,
        env=follower.env,
        flags=run.flags,
    )
    had = set(run.flags)
    return tuple(
        grant
        for grant in permissions.grants(refused)
        if grant.env or not set(grant.flags) <= had  # otherwise it was not enough
    )
