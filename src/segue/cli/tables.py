"""Sessions for machines and for people."""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from segue.cli.render import duration, iso
from segue.core.reading import Zone
from segue.core.session import Session, State
from segue.core.stop import StopReason

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

ZONE_COLOURS = {
    Zone.NORMAL: "green",
    Zone.MONITOR: "cyan",
    Zone.WARNING: "yellow",
    Zone.CRITICAL: "magenta",
    Zone.HANDOFF: "red",
}
_STATE_COLOURS = {
    State.WORKING: "green",
    State.WAITING_FOR_USER: "cyan",
    State.WAITING_FOR_LIMIT: "yellow",
    State.STOPPED: "bright_black",
    State.GONE: "bright_black",
}
_CALM = {StopReason.COMPLETED, StopReason.USER_EXIT}
_GAUGE = 12


def as_dict(session: Session) -> dict[str, Any]:
    """A session in its documented form (docs/sessions.md)."""
    reading, stop, ahead = session.reading, session.stop, session.forecast
    found: dict[str, Any] = {
        "agent": session.agent,
        "session_id": session.session_id,
        "path": session.path,
        "cwd": session.cwd or None,
        "model": session.model or None,
        "context": None,
        "state": session.state.value,
        "last_activity": iso(session.last_at),
        "started_at": iso(session.started_at),
        "stop": None,
        "growth": None,
        "handoff": None,
        "limits": [
            {
                "scope": scope,
                "used_percent": limit.used_percent,
                "resets_at": iso(limit.resets_at),
                "seen_at": iso(limit.seen_at),
                "rejected": limit.rejected,
            }
            for scope, limit in session.limits.items()
        ],
        "pid": session.process.pid if session.process is not None else None,
        "subagents": session.children,
        "notes": list(session.notes),
    }
    if reading is not None:
        found["context"] = {
            "used": reading.used_tokens,
            "window": reading.window_tokens,
            "percent": reading.percent,
            "zone": session.zone.value if session.zone is not None else None,
        }
    if stop is not None:
        found["stop"] = {
            "reason": stop.reason.value,
            "confidence": stop.confidence,
            "retry_at": iso(stop.retry_at),
            "why": stop.why,
        }
    if session.growth is not None:
        found["growth"] = {
            "tokens_per_minute": _rounded(session.growth.tokens_per_minute),
            "tokens_per_turn": _rounded(session.growth.tokens_per_turn),
        }
    if ahead is not None:
        handoff = ahead.zones[Zone.HANDOFF]
        found["handoff"] = {
            "at_tokens": handoff.at_tokens,
            "tokens": handoff.tokens,
            "seconds": _rounded(handoff.seconds),
            "turns": None if handoff.turns is None else round(handoff.turns, 1),
        }
    return found


def _rounded(value: float | None) -> int | None:
    return None if value is None else round(value)


def console(*, stderr: bool = False) -> "Console":
    """A terminal's width and colours; a pipe gets plain lines that are never cut."""
    from rich.console import Console

    plain = Console(stderr=stderr, highlight=False)  # reads COLUMNS, else asks the terminal
    if plain.is_terminal:
        return plain
    return Console(stderr=stderr, highlight=False, width=400, color_system=None)


def show(sessions: Sequence[Session], now: float) -> None:
    """Prints the table."""
    screen = console()
    screen.print(table(sessions, now, screen.width))


class _Column(NamedTuple):
    """One column, and what it can do without when a terminal is narrow."""

    name: str
    cells: list[Any]
    most: int = 400
    least: int = 400
    is_number: bool = False
    style: str = ""

    @property
    def wide(self) -> int:
        return min(self.most, max(map(len, (self.name, *self.cells))))

    @property
    def narrow(self) -> int:
        return min(self.least, self.wide)


_GAP = 2
_FEW = frozenset({"growth", "model", "active"})
_FEWER = _FEW | {"handoff in"}
_ROOM: tuple[tuple[frozenset[str], int, bool], ...] = (
    (frozenset(), _GAUGE, True),
    (_FEW - {"model", "active"}, _GAUGE, True),
    (_FEW - {"active"}, _GAUGE, True),
    (_FEW, _GAUGE, True),
    (_FEW, _GAUGE, False),
    (_FEW, _GAUGE // 2, False),
    (_FEWER, _GAUGE, False),
    (_FEWER, _GAUGE // 2, False),
    (_FEWER, 0, False),
    (_FEWER | {"session"}, 0, False),
)
"""What is given up, the narrower the terminal the more: columns, the gauge's counts, its length.
Project, agent, percent and state stay."""


def table(sessions: Sequence[Session], now: float, width: int) -> "Table":
    """One line a session, with as many columns as there is room for."""
    from rich.table import Table

    columns = _fitting(sessions, now, width)
    room = width - _needed(columns)
    rows = Table(box=None, pad_edge=False, header_style="dim", show_edge=False)
    for column in columns:
        more = min(column.wide - column.narrow, max(0, room))
        room -= more
        rows.add_column(
            column.name,
            justify="right" if column.is_number else "left",
            overflow="ellipsis",
            no_wrap=True,
            width=column.narrow + more,
            style=column.style,
        )
    for cells in zip(*(column.cells for column in columns), strict=True):
        rows.add_row(*cells)
    return rows


def _fitting(sessions: Sequence[Session], now: float, width: int) -> list[_Column]:
    """As many columns as there is room for."""
    columns, found = _columns(sessions, now), []
    for dropped, bars, with_counts in _ROOM:
        context = [gauge(session, bars, with_counts=with_counts) for session in sessions]
        found = [
            column._replace(cells=context) if column.name == "context" else column
            for column in columns
            if column.name not in dropped
        ]
        if _needed(found) <= width:
            break
    return found


def _needed(columns: Sequence[_Column]) -> int:
    return sum(column.narrow for column in columns) + _GAP * (len(columns) - 1)


def _columns(sessions: Sequence[Session], now: float) -> list[_Column]:
    from rich.text import Text

    def of(cell: Callable[[Session], Any]) -> list[Any]:
        return [Text(said) if isinstance(said := cell(s), str) else said for s in sessions]

    return [
        _Column("project", of(project), most=28, least=14),
        _Column("agent", of(lambda s: s.agent)),
        _Column("model", of(lambda s: s.model or "?"), most=22, least=12),
        _Column("context", []),
        _Column("growth", of(growth), is_number=True),
        _Column("handoff in", of(handoff), is_number=True),
        _Column("state", of(lambda s: state(s, now)), least=17),
        _Column("active", of(lambda s: ago(s.last_at, now)), is_number=True),
        _Column("session", of(lambda s: s.session_id[:8] or "?"), style="dim"),
    ]


def project(session: Session) -> str:
    """The last part of the folder's path."""
    return os.path.basename(session.cwd.rstrip("/")) or session.cwd or "?"


def gauge(session: Session, bars: int = _GAUGE, *, with_counts: bool = True) -> Any:
    """How full, with the zone's colour."""
    from rich.text import Text

    reading = session.reading
    if reading is None:
        return Text("not known", style="dim")
    colour = ZONE_COLOURS[session.zone or Zone.NORMAL]
    filled = min(bars, round(reading.fraction * bars))
    counts = f" {short(reading.used_tokens)} of {short(reading.window_tokens)}"
    return Text.assemble(
        ("█" * filled, colour),
        ("░" * (bars - filled), "dim"),
        (f"{' ' if bars else ''}{reading.fraction:>4.0%}", colour),
        counts if with_counts else "",
    )


def growth(session: Session) -> str:
    """Tokens per minute of active time, else per turn."""
    pace = session.growth
    if pace is None:
        return ""
    if pace.tokens_per_minute:
        return f"+{short(pace.tokens_per_minute)}/min"
    return f"+{short(pace.tokens_per_turn)}/turn" if pace.tokens_per_turn else ""


def handoff(session: Session) -> str:
    """The time, else the turns or the tokens that are left before the handoff."""
    if session.forecast is None:
        return ""
    ahead = session.forecast.zones[Zone.HANDOFF]
    if session.zone is Zone.HANDOFF:
        return "now"
    if ahead.at_tokens is None:
        return "off"
    if ahead.seconds is not None and session.state.is_live:
        return duration(ahead.seconds)
    if ahead.turns is not None:
        return f"{ahead.turns:,.0f} {'turn' if round(ahead.turns) == 1 else 'turns'}"
    return f"{short(ahead.tokens)} tokens" if ahead.tokens is not None else ""


def state(session: Session, now: float) -> Any:
    """What it is doing, or why it does nothing."""
    from rich.text import Text

    said = session.state.value.replace("_", " ")
    colour = _STATE_COLOURS[session.state]
    stop = session.stop
    if session.state is State.STOPPED and stop is not None:
        said = stop.reason.value.replace("_", " ")
        colour = "bright_black" if stop.reason in _CALM else "red"
    if stop is not None and stop.retry_at is not None and stop.retry_at > now:
        said += f", until {duration(stop.retry_at - now)} from now"
    return Text(said, style=colour)


def ago(at: float | None, now: float) -> str:
    """How long ago, in one unit."""
    if at is None:
        return "?"
    return "now" if now - at < 5 else duration(now - at).split(" ", 2)[0] + _unit(now - at)


def _unit(seconds: float) -> str:
    return " " + duration(seconds).split(" ", 2)[1] + " ago"


def short(count: float) -> str:
    """A count of tokens in three digits: 950, 9.5K, 118K, 1.2M."""
    for size, unit in ((1_000_000, "M"), (1_000, "K")):
        if count >= size * 0.9995:
            value = count / size
            whole = value >= 99.5 or value == int(value)
            return f"{value:.0f}{unit}" if whole else f"{value:.1f}{unit}"
    return f"{count:.0f}"
