"""Sessions, for programs and for people."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from segue.core.sessions.reading import Zone
from segue.core.sessions.shapes import as_dict as as_dict
from segue.core.sessions.shapes import countdown as countdown
from segue.core.sessions.shapes import duration
from segue.core.sessions.shapes import growth as growth
from segue.core.sessions.shapes import short as short
from segue.core.sessions.types import RunSeen, Session, SessionState
from segue.core.stops.reasons import StopReason
from segue.views import printing

if TYPE_CHECKING:
    from rich.table import Table

ZONE_COLOURS = {
    Zone.NORMAL: "green",
    Zone.MONITOR: "cyan",
    Zone.WARNING: "yellow",
    Zone.CRITICAL: "magenta",
    Zone.HANDOFF: "red",
}
_STATE_COLOURS = {
    SessionState.WORKING: "green",
    SessionState.WAITING_FOR_USER: "cyan",
    SessionState.WAITING_FOR_LIMIT: "yellow",
    SessionState.STOPPED: "bright_black",
    SessionState.GONE: "bright_black",
}
_CALM = frozenset(reason for reason in StopReason if not reason.facts.is_noticed)
_GAUGE = 12


def show(sessions: Sequence[Session], now: float) -> None:
    """Prints the table."""
    screen = printing.console()
    screen.print(table(sessions, now, screen.width))


def show_by_run(sessions: Sequence[Session], now: float) -> None:
    """Prints the table with one line for each run."""
    screen = printing.console()
    screen.print(table_by_run(sessions, now, screen.width))


def table_by_run(sessions: Sequence[Session], now: float, width: int) -> "Table":
    """The table with one line for each run, which shows the run's id instead of a session's."""
    shown = _by_run(sessions)
    runs = {s.session_id: s.run.id for s in shown if s.run is not None and _is_run_line(s)}
    return table(shown, now, width, names=runs)


def _by_run(sessions: Sequence[Session]) -> list[Session]:
    """The sessions with only one for each run: the one that continues it, otherwise the newest, at
    the place of the run's first. A session that is open again although its run has ended belongs to
    its user, and stays."""
    best: dict[str, Session] = {}
    for session in filter(_is_run_line, sessions):
        run = session.run.id if session.run is not None else ""
        if run not in best or _carries(session) > _carries(best[run]):
            best[run] = session
    found, listed = [], set()
    for session in sessions:
        if not _is_run_line(session) or session.run is None:
            found.append(session)
        elif session.run.id not in listed:
            listed.add(session.run.id)
            found.append(best[session.run.id])
    return found


def _is_run_line(session: Session) -> bool:
    """Whether the state of the session's run describes the session."""
    return session.run is not None and not (session.run.is_final and session.state.is_live)


def _carries(session: Session) -> tuple[bool, float]:
    return not session.handed_over_to, session.last_at or 0


class _Column(NamedTuple):
    """One column, with its largest width, and its width on a narrow terminal."""

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
_MAX_CELL_CHARS = 400  # characters; no column is wider
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
"""What is left out, the narrower the terminal the more: columns, the gauge's counts, its length.
Project, agent, percent and state stay."""


def table(
    sessions: Sequence[Session], now: float, width: int, *, names: Mapping[str, str] | None = None
) -> "Table":
    """The table: one line per session, with as many columns as fit into `width`. `names`: names to
    show instead of session ids, by id."""
    from rich.table import Table

    columns = _fitting(sessions, now, width, names or {})
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


def _fitting(
    sessions: Sequence[Session], now: float, width: int, names: Mapping[str, str]
) -> list[_Column]:
    """As many columns as fit into `width`."""
    columns, found = _columns(sessions, now, names), []
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


def _columns(sessions: Sequence[Session], now: float, names: Mapping[str, str]) -> list[_Column]:
    def of(cell: Callable[[Session], Any]) -> list[Any]:
        return [
            printing.cell(value[:_MAX_CELL_CHARS]) if isinstance(value := cell(s), str) else value
            for s in sessions
        ]

    return [
        _Column("project", of(project), most=28, least=14),
        _Column("agent", of(lambda s: s.agent)),
        _Column("model", of(lambda s: s.model or "?"), most=22, least=12),
        _Column("context", []),
        _Column("growth", of(growth), is_number=True),
        _Column("handoff in", of(handoff), is_number=True),
        _Column("state", of(lambda s: state(s, now)), least=17),
        _Column("active", of(lambda s: ago(s.last_at, now)), is_number=True),
        _Column(
            "session", of(lambda s: names.get(s.session_id) or s.session_id[:8] or "?"), style="dim"
        ),
    ]


def project(session: Session) -> str:
    """The last part of the session folder's path; "?" if unknown."""
    return os.path.basename(session.cwd.rstrip("/")) or session.cwd or "?"


def gauge(session: Session, bars: int = _GAUGE, *, with_counts: bool = True) -> Any:
    """How full a session is, in its zone's colour."""
    from rich.text import Text

    reading = session.reading
    if reading is None:
        return Text("" if session.unreadable else "unknown", style="dim")
    colour = ZONE_COLOURS[session.zone or Zone.NORMAL]
    filled = min(bars, round(reading.fraction * bars))
    counts = f" {short(reading.used_tokens)} of {short(reading.window_tokens)}"
    return Text.assemble(
        ("█" * filled, colour),
        ("░" * (bars - filled), "dim"),
        (f"{' ' if bars else ''}{reading.fraction:>4.0%}", colour),
        counts if with_counts else "",
    )


def handoff(session: Session) -> str:
    """The time, otherwise the turns or tokens, left before the handoff; "" for a session that has
    ended."""
    return "" if session.ahead is None else countdown(session)


def state(session: Session, now: float) -> Any:
    """What a session is doing, or why it has stopped."""
    from rich.text import Text

    if session.unreadable:
        return printing.cell(f"unreadable: {session.unreadable}", "red")
    if session.handed_over_to and session.is_over:
        return Text("handed over", style="bright_black")
    if session.run is not None and _is_run_line(session):
        return Text(run_state(session.run, now), style=_run_colour(session.run))
    label = session.state.value.replace("_", " ")
    colour = _STATE_COLOURS[session.state]
    stop = session.stop
    if session.state is SessionState.STOPPED and stop is not None:
        label = stop.reason.value.replace("_", " ")
        colour = "bright_black" if stop.reason in _CALM else "red"
    if stop is not None and stop.retry_at is not None and stop.retry_at > now:
        label += f", retry in {duration(stop.retry_at - now)}"
    return Text(label, style=colour)


def run_state(run: RunSeen, now: float) -> str:
    """The state of a run, in a few words: what it does, and whether a process drives it."""
    label = run.state
    if run.is_final:
        return label
    if run.waits_until is not None and run.waits_until > now:
        label += f" {duration(run.waits_until - now)}"
    if run.is_driven:
        return label
    return "interrupted" if run.interrupted else f"{label}, unattended"


def _run_colour(run: RunSeen) -> str:
    from segue.views.run.block import STATE_COLOURS

    return next((colour for state, colour in STATE_COLOURS.items() if state.value == run.state), "")


def ago(at: float | None, now: float) -> str:
    """How long ago a time was, in one unit; "?" for None."""
    if at is None:
        return "?"
    return "now" if now - at < 5 else duration(now - at).split(" ", 2)[0] + _unit(now - at)


def _unit(seconds: float) -> str:
    return " " + duration(seconds).split(" ", 2)[1] + " ago"
