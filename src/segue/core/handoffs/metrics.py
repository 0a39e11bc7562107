"""The permanent record of a handoff, from which the figures in docs/report.md are computed."""

from collections.abc import Iterable

from segue.core.handoffs.machine.types import Metrics, TerminalHandoff
from segue.core.sessions.forecasts.growth import typical_task
from segue.core.sessions.reading import Reading

JUSTIFIED = 0.90  # of what the session could use: with less, the handoff was not needed
_TOKEN_BYTES = 4


def next_fits(
    reading: Reading, enforced_tokens: int | None, costs: Iterable[int], reserve_tokens: int
) -> bool | None:
    """Whether a typical task of the project would still have fitted, with the reserve for a
    checkpoint after it; None if too little is known about the project's tasks."""
    usual = typical_task(costs)
    if usual is None or reading.window_tokens <= 0:
        return None
    end = min(reading.window_tokens, enforced_tokens or reading.window_tokens) - reserve_tokens
    return reading.used_tokens + usual.median_tokens <= end


def metrics(cycle: TerminalHandoff, now: float) -> Metrics:
    """The permanent record of a handoff, even of one that has not ended."""
    last = cycle.last_used_tokens or cycle.used_tokens
    window = max(1, cycle.window_tokens)
    usable = min(window, cycle.limit_tokens or window)
    asked, written = cycle.asked_at, cycle.written_at
    return Metrics(
        id=cycle.id,
        agent=cycle.agent,
        session_id=cycle.session_id,
        new_session_id=cycle.new_session_id,
        project=cycle.project,
        outcome=cycle.step,
        why=cycle.why,
        began_at=cycle.began_at,
        by_user=cycle.by_user,
        source=cycle.source,
        trigger_tokens=cycle.used_tokens,
        trigger_fraction=round(cycle.fraction, 4),
        window_tokens=cycle.window_tokens,
        last_tokens=last,
        last_fraction=round(last / window, 4),
        document_bytes=cycle.document_bytes,
        document_tokens=cycle.document_bytes // _TOKEN_BYTES,
        new_tokens=cycle.new_used_tokens,
        zone_path=cycle.zone_path,
        waited_s=None if asked is None else round(asked - cycle.began_at, 3),
        written_s=None if asked is None or written is None else round(written - asked, 3),
        duration_s=round((cycle.over_at or now) - cycle.began_at, 3),
        interrupts=sum(n for key, n in cycle.tries.items() if key.startswith("interrupt")),
        tries=cycle.tries,
        went_on=cycle.went_on and cycle.is_read,
        justified=None
        if cycle.cleared_at is None
        else last / usable >= JUSTIFIED or cycle.next_fits is False,
    )
