"""The live block of a run. Pure: `now`, the width and the zone are arguments; of an agent's
text, only printable characters reach a terminal."""

import re
from collections.abc import Sequence
from datetime import tzinfo

from msgspec import Struct
from msgspec.structs import replace
from rich.cells import cell_len, set_cell_size

from segue.core.runs.types import Run, RunState
from segue.core.sessions.forecasts.forecast import Forecast, forecast
from segue.core.sessions.forecasts.growth import Growth
from segue.core.sessions.reading import Zone
from segue.views import tables
from segue.views.verdicts import duration, local_times, time_of_day

Piece = tuple[str, str]
"""Text and its style: a colour, "dim", "bold" or ""."""

STATE_COLOURS = {
    RunState.STARTING: "cyan",
    RunState.WORKING: "green",
    RunState.CHECKPOINTING: "magenta",
    RunState.HANDING_OVER: "magenta",
    RunState.WAITING: "yellow",
    RunState.RESUMING: "cyan",
    RunState.CHECKING: "cyan",
    RunState.STOPPING: "yellow",
    RunState.DONE: "green",
    RunState.FAILED: "red",
    RunState.CANCELLED: "yellow",
    RunState.NEEDS_YOU: "yellow",
}
_DOT = " · "
_MAX_CHARS = 4_000  # a command may be a whole program, and is drawn four times a second
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -~])?")
_ROOM = ((12, 5), (12, 4), (12, 3), (12, 2), (6, 2), (6, 1), (0, 1), (0, 0))
"""The length of the gauge, and how many optional parts are shown: the narrower, the fewer."""


class LegActivity(Struct, frozen=True):
    """What the agent does now: a command or a tool's name, unchanged."""

    what: str
    since: float


class RunPicture(Struct, frozen=True, kw_only=True):
    """What can be shown of a run at one time."""

    run: Run
    activity: LegActivity | None = None
    forecast: Forecast | None = None  # None: derived from the run's reading, growth and policy
    growth: Growth | None = None
    reason: str = ""  # why segue made its last decision
    words: str = ""  # the agent's last message


def clean(text: str) -> str:
    """One printable line: no control character, no change of direction, no line break."""
    plain = _ESCAPE.sub("", text[:_MAX_CHARS])
    return " ".join("".join(c if c.isprintable() else " " for c in plain).split())


def cut(text: str, width: int) -> str:
    """At most this many columns; "…" marks a cut."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(0, width - 1)).rstrip() + "…" if width > 0 else ""


def block(picture: RunPicture, *, now: float, width: int, tz: tzinfo) -> list[list[Piece]]:
    """Two to four lines, none wider than `width`: the state, what the agent does and says, and
    why."""
    picture = replace(picture, forecast=picture.forecast or _forecast(picture))
    lines = [_head(picture, now, width), _now(picture, now, width, tz), _words(picture, width)]
    if picture.reason and picture.run.state is not RunState.WAITING:  # that line says why
        why = clean(local_times(picture.reason, now, tz))
        lines.append([("  " + cut(why, width - 2), "dim")])
    return [_cut(line, width) for line in lines if line]


def _forecast(picture: RunPicture) -> Forecast | None:
    run = picture.run
    if run.reading is None:
        return None
    return forecast(
        run.reading,
        picture.growth,
        run.policy,
        reserve_tokens=run.policy.reserve_tokens,
        enforced_at_tokens=run.abilities.enforced_tokens,
    )


def _head(picture: RunPicture, now: float, width: int) -> list[Piece]:
    run = picture.run
    firm = [
        [(clean(run.agent), "bold")],
        [(f"leg {max(1, run.leg)}", "")],
        [(run.state.value, STATE_COLOURS[run.state])],
    ]
    # In order of importance: the last ones are dropped first.
    lesser = [_until_handoff(picture), _counts(picture), _growth(picture), _handoffs(run)]
    lesser.append(f"{duration(now - run.created_at)} so far")
    for bars, shown in _ROOM:
        groups = [*firm, _gauge(picture, bars)]
        groups += [[(text, "")] for text in lesser[:shown] if text]
        line = [piece for group in groups if group for piece in ((_DOT, "dim"), *group)][1:]
        if _width(line) <= width:
            return line
    return _cut(line, width)


def _gauge(picture: RunPicture, bars: int) -> list[Piece]:
    reading = picture.run.reading
    if reading is None:
        return []
    zone = picture.forecast.zone if picture.forecast else Zone.NORMAL
    colour, full = tables.ZONE_COLOURS[zone], max(0, min(bars, round(reading.fraction * bars)))
    bar = [("█" * full, colour), ("░" * (bars - full), "dim"), (" ", "")] if bars else []
    return [*bar, (f"{min(reading.fraction, 99):.0%}", colour)]


def _counts(picture: RunPicture) -> str:
    reading = picture.run.reading
    if reading is None:
        return ""
    return f"{tables.short(reading.used_tokens)} of {tables.short(reading.window_tokens)}"


def _growth(picture: RunPicture) -> str:
    pace = picture.growth
    if pace is None or not picture.run.is_live:
        return ""
    if pace.tokens_per_minute:
        return f"+{tables.short(pace.tokens_per_minute)}/min"
    return f"+{tables.short(pace.tokens_per_reply)}/reply" if pace.tokens_per_reply else ""


def _until_handoff(picture: RunPicture) -> str:
    """How far away the handoff is; "" if unknown, or if the run is not working."""
    run, future = picture.run, picture.forecast
    if run.state not in (RunState.WORKING, RunState.STARTING, RunState.RESUMING):
        return ""
    if run.is_due:
        return "handoff at the next pause"
    if run.policy.hard_mark > 1:
        return "no handoffs"
    if future is None:
        return ""
    ahead = future.handoff
    if future.zone is Zone.HANDOFF:
        return "handoff now"
    if ahead.seconds is not None:
        return f"handoff in {duration(_coarse(ahead.seconds))}"
    return f"handoff in {tables.short(ahead.tokens)} tokens" if ahead.tokens is not None else ""


def _coarse(seconds: float) -> float:
    """An estimate of over a minute, in whole minutes: seconds would only flicker."""
    return seconds if seconds < 60 else round(seconds / 60) * 60


def _handoffs(run: Run) -> str:
    return counted(run.handoffs, "handoff") if run.handoffs else ""


def _now(picture: RunPicture, now: float, width: int, tz: tzinfo) -> list[Piece]:
    """What is happening now, and for how long or until when."""
    run, doing = picture.run, picture.activity
    if run.state is RunState.WAITING and run.wait is not None:
        left = f"{countdown(run.wait.until - now)} left"
        guess = "" if run.wait.reset_at is not None else "; no reset time is known"
        why = f"{run.wait.why.description}{guess}"
        if run.wait.outage_since is not None:
            why = f"network unreachable since {time_of_day(run.wait.outage_since, now, tz)}"
        rest = f", until {time_of_day(run.wait.until, now, tz)}: {why}"
        tries = f", try {run.wait.tries}" if run.wait.tries > 1 else ""
        return [("  ", ""), *_cut([(left, "yellow"), (rest + tries, "")], width - 2)]
    if run.state is RunState.CHECKING:
        return [("  ", ""), (cut(f"check: {clean(run.check)}", width - 2), "")]
    if doing is None:
        return []
    since = f"{_DOT}{duration(now - doing.since)}" if now - doing.since >= 1 else ""
    what = cut(clean(doing.what), width - 2 - cell_len(since))
    return [("  ", ""), (what, ""), (since, "dim")]


def _words(picture: RunPicture, width: int) -> list[Piece]:
    """The agent's own latest line, while it works."""
    line = next(filter(None, map(clean, picture.words[:_MAX_CHARS].splitlines())), "")
    if not line or not picture.run.is_live:
        return []
    return [("  “", "dim"), (cut(line, width - 4), ""), ("”", "dim")]


def countdown(seconds: float) -> str:
    """ "1:12:03", with days before it."""
    whole = max(0, round(seconds))
    days, rest = divmod(whole, 86_400)
    hours, minutes = rest // 3600, rest // 60 % 60
    clock = f"{hours}:{minutes:02}:{rest % 60:02}" if days or hours else f"{minutes}:{rest % 60:02}"
    return f"{days} d {clock}" if days else clock


def counted(count: int, what: str) -> str:
    """ "1 leg", "2 legs"."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _width(line: Sequence[Piece]) -> int:
    return sum(cell_len(text) for text, _ in line)


def _cut(line: Sequence[Piece], width: int) -> list[Piece]:
    left, found = width, []
    for text, style in line:
        if left > 0:
            found.append((cut(text, left), style))
        left -= cell_len(text)
    return found
