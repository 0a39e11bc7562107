"""A drill as it happens: lines for pipes, a live table for terminals."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from segue.drill.plays.outcome import PlayOutcome, requests_of
from segue.views import printing
from segue.views.drill_row import WITH, WITHOUT, DrillRow

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

_GAUGE = 12
_GAP = 2
_NEWS = 40


class DrillPicture(Protocol):
    """Anything that shows a drill."""

    def begin(self, row: DrillRow) -> None:
        """Shows that a play begins."""

    def news(self, row: DrillRow, text: str) -> None:
        """Shows an event of a play; "" is no news."""

    def end(self, row: DrillRow) -> None:
        """Shows that a play has ended."""


class DrillLines:
    """One line for each relevant event; for pipes."""

    def __init__(self) -> None:
        self.console = printing.console(stderr=True)

    def begin(self, row: DrillRow) -> None:
        if not row.refused:
            self.news(row, "begins")

    def news(self, row: DrillRow, text: str) -> None:
        if text:
            self.console.print(f"{row.name}: {text}", markup=False, soft_wrap=True)

    def end(self, row: DrillRow) -> None:
        self.news(row, row.in_words)


class MovingDrill:
    """The table itself, redrawn as the drill goes on; for terminals."""

    def __init__(self, console: "Console | None" = None) -> None:
        from rich.live import Live

        self.rows: list[DrillRow] = []
        self.console = console or printing.console(stderr=True)
        self.live = Live(
            get_renderable=self._table, console=self.console, refresh_per_second=8, transient=True
        )

    def __enter__(self) -> "MovingDrill":
        self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def begin(self, row: DrillRow) -> None:
        self.rows.append(row)

    def news(self, row: DrillRow, text: str) -> None:
        pass  # the table reads it from the row

    def end(self, row: DrillRow) -> None:
        pass

    def _table(self) -> "Table":
        """The last rows that fit on the screen: more could not be redrawn."""
        fits = max(1, self.console.height - 2)
        return table(_flat(_pairs(self.rows)[-fits:]), self.console.width)


class Pair:
    """The plays of one agent in one scenario, without and with segue: a line of the table."""

    def __init__(self, row: DrillRow) -> None:
        self.rows = [row]

    def takes(self, row: DrillRow) -> bool:
        """Whether this is the other play of the pair."""
        first = self.rows[0]
        is_same = (first.agent, first.scenario) == (row.agent, row.scenario)
        return is_same and all(row.with_segue != each.with_segue for each in self.rows)

    @property
    def last(self) -> DrillRow:
        """The play that is running, or was played last."""
        return self.rows[-1]

    def row(self, with_segue: bool) -> DrillRow | None:
        """The play with, or without, segue; None if it has not begun."""
        return next((row for row in self.rows if row.with_segue is with_segue), None)


def _pairs(rows: Sequence[DrillRow]) -> list[Pair]:
    pairs: list[Pair] = []
    for row in rows:
        if pairs and pairs[-1].takes(row):
            pairs[-1].rows.append(row)
        else:
            pairs.append(Pair(row))
    return pairs


def _flat(pairs: Sequence[Pair]) -> list[DrillRow]:
    return [row for pair in pairs for row in pair.rows]


class _Column(NamedTuple):
    """A column: as wide as its fixed cells need, and wider if there is room."""

    name: str
    cells: "list[Text]"
    firm: "list[Text]"

    @property
    def least(self) -> int:
        return _widest(self.name, self.firm)

    @property
    def most(self) -> int:
        return _widest(self.name, self.cells)


def _widest(name: str, cells: "Sequence[Text]") -> int:
    return max([len(name), *(cell.cell_len for cell in cells)])


Form = Literal["long", "short", "least"]


class _Room(NamedTuple):
    """How much of each line to show."""

    form: Form
    bars: int = 0  # length of the gauge
    dropped: frozenset[str] = frozenset()


_ROOM = (
    _Room("long", bars=_GAUGE),
    _Room("long", dropped=frozenset({"context"})),
    _Room("short", dropped=frozenset({"context"})),
    _Room("short", dropped=frozenset({"context", "time"})),
    _Room("short", dropped=frozenset({"context", "time", "agent"})),
    _Room("least", dropped=frozenset({"context", "time", "agent"})),
)
"""What is left out, the narrower the terminal the more; the agent only if there is just one."""


def table(rows: Sequence[DrillRow], width: int) -> "Table":
    """One line for the plays of an agent in a scenario."""
    from rich.table import Table

    drawn = Table(box=None, pad_edge=False, header_style="dim")
    columns, widths = _fitting(_pairs(rows), width)
    for column, wide in zip(columns, widths, strict=True):
        drawn.add_column(
            column.name,
            justify="right" if column.name == "time" else "left",
            no_wrap=True,
            overflow="ellipsis",
            width=wide,
        )
    for cells in zip(*(column.cells for column in columns), strict=True):
        drawn.add_row(*cells)
    return drawn


def below(rows: Sequence[DrillRow]) -> list[str]:
    """The text below the table: when sessions were asked for a checkpoint, why plays were not run,
    each reason once, and which parts of a scenario never took effect."""
    notes = []
    if asked := requests_of(row.outcome for row in rows).in_words:
        notes.append(asked)
    for row in rows:
        if row.refused:
            notes.append(row.refused)
        elif row.broke_off:
            notes.append(f"{row.name}: {row.in_words}")
        elif row.outcome is not None and (missed := _missed(row.outcome)):
            notes.append(f"{row.name}: never took effect: {', '.join(missed)}")
    return list(dict.fromkeys(notes))


def _missed(outcome: PlayOutcome) -> list[str]:
    """Which parts of the scenario never took effect, apart from answers that segue was there to
    avoid."""
    avoided = outcome.with_segue and outcome.is_as_expected
    return [name for name in outcome.unfired if not (avoided and name.startswith("rule "))]


def _fitting(pairs: Sequence[Pair], width: int) -> tuple[list[_Column], list[int]]:
    """The columns for which there is room, and their widths."""
    columns: list[_Column] = []
    is_one = len({pair.last.agent for pair in pairs}) < 2
    for room in _ROOM:
        dropped = room.dropped if is_one else room.dropped - {"agent"}
        columns = [c for c in _columns(pairs, room) if c.name not in dropped]
        left = width - sum(c.least for c in columns) - _GAP * (len(columns) - 1)
        if left >= 0:
            break
    widths = []
    for column in columns:
        more = max(0, min(column.most - column.least, left))
        left -= more
        widths.append(column.least + more)
    while left < 0 and max(widths) > 1:
        widths[widths.index(max(widths))] -= 1
        left += 1
    return columns, widths


def _columns(pairs: Sequence[Pair], room: _Room) -> list[_Column]:
    from rich.text import Text

    found = [
        _firm("agent", [Text(pair.last.agent) for pair in pairs]),
        _firm("scenario", [Text(pair.last.scenario) for pair in pairs]),
        _firm("context", [_gauge(pair.last, room.bars) for pair in pairs]),
    ]
    for name, with_segue in ((WITHOUT, False), (WITH, True)):
        rows = [pair.row(with_segue) for pair in pairs]
        if any(rows):
            cells = [_verdict(row, room.form) if row else Text() for row in rows]
            # News can be long: it gets the rest.
            firm = [c for r, c in zip(rows, cells, strict=True) if r is not None and r.is_over]
            found.append(_Column(name, cells, firm))
    return [*found, _firm("time", [Text(_time(pair.last)) for pair in pairs])]


def _firm(name: str, cells: "list[Text]") -> _Column:
    return _Column(name, cells, cells)


def _gauge(row: DrillRow, bars: int) -> "Text":
    from rich.text import Text

    if row.used is None or not row.window:
        return Text()
    # once it has ended, how full it was at most
    share = (row.most if row.outcome else row.used) / row.window
    full = min(bars, round(share * bars))
    colour = "red" if share >= 0.85 else "yellow" if share >= 0.5 else "green"
    return Text.assemble(
        ("█" * full, colour), ("░" * (bars - full), "bright_black"), f" {share:>4.0%}"
    )


def _verdict(row: DrillRow, form: Form) -> "Text":
    from rich.text import Text

    if row.refused:
        return Text("not played", "yellow")
    if row.broke_off:
        return Text("broke off", "yellow")
    done = row.outcome
    if done is None:
        counted = f"{len(row.done)}/{row.steps}" if row.steps else ""
        news = Text(f"{counted} {row.news}".strip(), "dim")
        news.truncate(_NEWS, overflow="ellipsis")
        return news
    mark, colour = ("✓", "green") if done.is_as_expected else ("✗", "red")
    return Text(f"{mark} {_outcome_text(done, form)}", colour)


def _outcome_text(done: PlayOutcome, form: Form) -> str:
    """How much of the job is done, why the play ended if not all is, and how it got there."""
    why = "" if done.is_done and done.reason == "completed" else done.reason
    if form == "long" or not done.steps:
        text = f"{done.in_words}: {why}" if why else done.in_words
        return ", ".join(filter(None, (text, done.way)))
    counted = f"{len(set(done.done))}/{done.steps}"
    if form == "least":
        return counted
    text = f"{counted} {why if done.is_whole else done.in_words}".strip()
    return ", ".join(filter(None, (text, done.way)))


def _time(row: DrillRow) -> str:
    if row.outcome is not None:
        return f"{row.outcome.seconds:.1f} s"
    if row.started is None or row.is_over:
        return ""
    return f"{time.monotonic() - row.started:.0f} s"
