"""Why a leg of a run ended."""

from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from segue import api
from segue.core.remedy import remedy
from segue.core.run import Run
from segue.core.stop import EndedBy, Evidence, Stop, StopReason, Tokens
from segue.ending import Channel, Ending, Source
from segue.errors import InputError
from segue.io import files
from segue.io.leg import Exit
from segue.runner.follower import Follower

_BY: dict[str, EndedBy] = {"user": "user", "cancel": "user"}


def verdict(run: Run, follower: Follower, ended: Exit, now: float) -> Stop:
    """Why a leg ended, by all that it left behind and by who ended it."""
    folder = Path(follower.leg.folder)
    sources = [
        source_of(folder / "stdout", "stdout"),
        source_of(folder / "stderr", "stderr"),
    ]
    path = follower.session_path
    if path.endswith(".jsonl"):
        sources.append(source_of(Path(path), "transcript"))
    by: EndedBy = "unknown"
    if run.ending is not None:
        by = _BY.get(run.ending, "segue")
    elif ended.lost or ended.ended_by_command == "SIGTERM":  # the machine goes down
        by = "system"
    ending = Ending(
        sources=tuple(source for source in sources if source is not None),
        agent=follower.profile.name,
        exit_code=ended.exit_code,
        ended_by=by,
    )
    policy = run.policy
    if run.reading is not None:
        policy = replace(policy, default_window_tokens=run.reading.window_tokens)
    stop = api.examine(ending, now=now, policy=policy).stop
    if stop.tokens is None and run.reading is not None:
        told = Tokens(run.reading.used_tokens, run.reading.window_tokens)
        stop = replace(stop, tokens=told)
    if stop.reason is StopReason.COMPLETED and follower.was_denied and run.ending is None:
        return _denied(stop, follower)
    if follower.said == "failed" and stop.reason in (StopReason.COMPLETED, StopReason.UNKNOWN):
        return replace(stop, reason=StopReason.ERROR, resume="none")
    if follower.said == "done" and run.ending is None and ended.exit_code == 0:
        return replace(stop, reason=StopReason.COMPLETED, resume="none")
    return stop


def source_of(path: Path, channel: Channel) -> Source | None:
    """The end of a file, as far as the classifier looks; None if there is none."""
    try:
        found = files.read(path)
    except InputError:
        return None
    return Source(text=found.text, channel=channel, name=channel, first_line=found.first_line)


def active_s(run: Run, follower: Follower, ended: Exit) -> float:
    """The machine's sleep, and the time in which nobody looked after it had ended, don't count."""
    until = ended.ended_at
    if ended.lost:  # nobody knows when: it was alive when it wrote last
        with suppress(OSError):
            until = min(until, follower.leg.stdout.stat().st_mtime)
    by_clock = until - (run.leg_since or until)
    return min(follower.active_s, by_clock) if by_clock > 0 else follower.active_s


def _denied(stop: Stop, follower: Follower) -> Stop:
    """The agent gave up politely: its last tool call needed a permission, and nobody was asked."""
    call = follower.last_call
    what = (call.command or call.name) if call is not None else "a tool"
    reason = StopReason.NEEDS_USER
    return replace(
        stop,
        reason=reason,
        resume="none",
        evidence=(Evidence("run.denied", f"not allowed: {what}", "stdout"), *stop.evidence),
        also=(stop.reason, *stop.also),
        remediation=remedy(reason),
    )
