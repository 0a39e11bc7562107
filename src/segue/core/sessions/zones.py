"""Which zone a session is in, and what segue reports when that changes (docs/watch.md).

How it works. A session enters a zone at its mark, at once, and leaves it only `zone_slack` below
the mark, so a size that fluctuates around a mark is reported once. A session that jumps over
several zones has crossed each of them, in order. If a session's size drops by a tenth of its
peak, it was compacted: that is not a fluctuation, and the zone follows the reading. The state
kept for a session has a fixed size, however long it lives.
"""

from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from segue.core.policy import Policy
from segue.core.sessions.forecasts.forecast import Forecast
from segue.core.sessions.reading import Reading, Zone

CheckType = Literal["context", "handoff"]
Status = Literal["ok", "warning", "critical"]

_ORDER = tuple(Zone)
_PLACE = {zone: place for place, zone in enumerate(_ORDER)}
_STATUS: dict[Zone, Status] = {
    Zone.NORMAL: "ok",
    Zone.MONITOR: "ok",
    Zone.WARNING: "warning",
    Zone.CRITICAL: "critical",
    Zone.HANDOFF: "critical",
}


class ZoneMemory(Struct, frozen=True):
    """What is remembered about a session between readings. A new session starts with an empty
    memory."""

    zone: Zone | None = None  # None: there was no reading yet
    since: float = 0.0
    reminded_at: float | None = None
    peak: float = 0.0  # the largest fraction since the last compaction
    reminders: int = 0  # since the zone was entered


class Crossing(Struct, frozen=True):
    """A session's zone changed. `was` is None for zones passed before the first reading."""

    was: Zone | None
    zone: Zone
    fraction: float
    used_tokens: int
    window_tokens: int
    at: float


class Health(Struct, frozen=True):
    """The record of a health check. `details` has `context_usage` (0 to 1), `zone`,
    `used_tokens` and `window_tokens`; for a handoff also `handoff_triggered`."""

    project: str
    check_type: CheckType
    status: Status
    details: dict[str, Any]
    at: float


class Reminder(Struct, frozen=True):
    """The session must be told again how full it is. `number` counts from 1 in each stay."""

    zone: Zone
    fraction: float
    at: float
    number: int


Noted = Crossing | Health | Reminder


def observe(
    memory: ZoneMemory,
    reading: Reading,
    zone_of_reading: Zone,
    policy: Policy,
    *,
    project: str,
    at: float,
    forecast: Forecast | None = None,
) -> tuple[ZoneMemory, list[Noted]]:
    """The memory after this reading, and what to log, in order. Each crossing is reported once,
    with the health check of the zone that is entered: upwards through all zones in between,
    downwards at once. The same reading again reports nothing, apart from reminders: on
    entering critical, and every `remind_every_s` while it stays there; likewise in the
    handoff zone if segue may not hand over by itself. `forecast` shows where an agent's own
    limit lowers the marks; without one they are the policy's. A window of unknown size
    reports nothing."""
    if reading.window_tokens <= 0:
        return memory, []
    fraction = reading.fraction
    was = memory.zone or Zone.NORMAL
    compacted = fraction * 10 < memory.peak * 9
    zone = zone_of_reading
    if not compacted and _PLACE[zone] < _PLACE[was]:
        zone = _zone_with_slack(was, zone, reading, policy, forecast)
    notes: list[Noted] = []
    for before, entered in _passed(memory.zone, was, zone):
        notes.append(
            Crossing(before, entered, fraction, reading.used_tokens, reading.window_tokens, at)
        )
        notes.append(health(entered, reading, project=project, at=at))
    changed = zone is not memory.zone
    memory = ZoneMemory(
        zone=zone,
        since=at if changed else memory.since,
        reminded_at=memory.reminded_at,
        peak=fraction if compacted else max(memory.peak, fraction),
        reminders=0 if changed else memory.reminders,
    )
    rises = _PLACE[zone] > _PLACE[was]
    return _remind(memory, reading, policy, notes, project=project, at=at, entered=rises)


def health(zone: Zone, reading: Reading, *, project: str, at: float) -> Health:
    """The check of a session in that zone. No handoff is triggered yet: see `triggered`."""
    details: dict[str, Any] = {
        "context_usage": round(min(1.0, max(0.0, reading.fraction)), 4),
        "zone": str(zone),
        "used_tokens": reading.used_tokens,
        "window_tokens": reading.window_tokens,
    }
    if zone is not Zone.HANDOFF:
        return Health(project, "context", _STATUS[zone], details, at)
    return Health(project, "handoff", "critical", details | {"handoff_triggered": False}, at)


def triggered(check: Health) -> Health:
    """The check of a handoff that has begun."""
    return replace(check, details=check.details | {"handoff_triggered": True})


def _zone_with_slack(
    was: Zone, zone: Zone, reading: Reading, policy: Policy, forecast: Forecast | None
) -> Zone:
    """The zone of a size that dropped: each zone is left only at `zone_slack` below its mark."""
    place, least = _PLACE[was], _PLACE[zone]
    while place > least:
        mark = _mark(_ORDER[place], reading, policy, forecast)
        if mark is not None and reading.fraction >= mark - policy.zone_slack:
            break
        place -= 1
    return _ORDER[place]


def _mark(zone: Zone, reading: Reading, policy: Policy, forecast: Forecast | None) -> float | None:
    if forecast is None:
        return policy.marks[_PLACE[zone] - 1]
    at_tokens = forecast.zones[zone].at_tokens
    return None if at_tokens is None else at_tokens / reading.window_tokens


def _passed(first: Zone | None, was: Zone, zone: Zone) -> list[tuple[Zone | None, Zone]]:
    if _PLACE[zone] < _PLACE[was]:
        return [(was, zone)]
    entered = _ORDER[_PLACE[was] + 1 : _PLACE[zone] + 1]
    return list(zip((first, *entered), entered, strict=False))


def _remind(
    memory: ZoneMemory,
    reading: Reading,
    policy: Policy,
    notes: list[Noted],
    *,
    project: str,
    at: float,
    entered: bool,
) -> tuple[ZoneMemory, list[Noted]]:
    zone = memory.zone
    # If segue may hand over by itself, it does so in the handoff zone instead of reminding.
    wanted = zone is Zone.CRITICAL or (zone is Zone.HANDOFF and not policy.auto_handoff)
    if zone is None or not wanted:
        return replace(memory, reminded_at=None), notes
    last = memory.reminded_at
    if last is not None and at < last:
        last = at  # the clock was set back: without this, reminders would stop until then
    if not entered and last is not None and at - last < policy.remind_every_s:
        return replace(memory, reminded_at=last), notes
    number = memory.reminders + 1
    reminder = Reminder(zone, reading.fraction, at, number)
    again = [] if notes else [health(zone, reading, project=project, at=at)]
    return replace(memory, reminded_at=at, reminders=number), [*notes, reminder, *again]
