"""A drill as it happens: lines for pipes, a moving table for terminals."""

import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from segue.cli import tables
from segue.drill.outcome import Outcome

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

_GAUGE = 12
_GAP = 2
_NEWS = 40
_STEP = re.compile(r"step (\d+)")


class Row:
    """One play, as far as it is known."""

    def __init__(self, agent: str, scenario: str, steps: int) -> None:
        self.agent, self.scenario, self.steps = agent, scenario, steps
        self.step: int | None = None  # begun last
        self.done: set[int] = set()  # as far as can be told from outside
        self.used: int | None = None
        self.most = 0
        self.window: int | None = None
        self.news = ""
        self.started: float | None = None
        self.outcome: Outcome | None = None
        self.refused = ""
        self.broke_off = ""
        self.folder = ""  # of a play that broke off

    @property
    def is_over(self) -> bool:
        return self.outcome is not None or bool(self.refused or self.broke_off)

    @property
    def in_words(self) -> str:
        """How it ended, for a line of its own."""
        if self.broke_off:
            return f"broke off: {self.broke_off}"
        done = self.outcome
        return f"{done.in_words}; {done.reason}" if done else self.refused

    def hear(self, event: dict[str, Any]) -> str:
        """Takes in what happened; a line about it, if it is worth one."""
        match event["kind"]:
            case "step":
                self._begin(event["step"])
                self.news = f"step {self.step} of {self.steps}"
            case "request":
                request = event["request"]
                self.used = request["tokens"] or self.used
                self.most = max(self.most, self.used or 0)
                self.window = event["window"]
                self.news = _news(request)
                if step := _STEP.match(self.news):
                    self._begin(int(step[1]))  # some are over before they are seen running
                    return ""  # told when it runs
            case "act":
                self.news = f"{event['act']} in step {event['in_step']}"
            case "limit":
                self.news = f"ended by the drill after {event['after_s']:.0f} s"
            case _:
                return ""
        return self.news

    def _begin(self, step: int) -> None:
        """Another step than the last means that this one is done; the same, that it broke off."""
        if self.step is not None and self.step != step:
            self.done.add(self.step)
        self.step = step


def _news(request: dict[str, Any]) -> str:
    """What the model was asked, if it is not the work itself, and what it did about it."""
    said = str(request["answered"]).replace("_", " ")
    if request["delivery"] != "whole":
        said += f" ({request['delivery'].replace('_', ' ')})"
    kind = request["kind"]
    if kind is None:
        said = f"{request['method']} {request['path']}"
    elif kind != "main":
        said = f"{kind}: {said}"
    return "".join(c for c in " ".join(said.split()) if c.isprintable())  # it may be any command


class Picture(Protocol):
    """What shows a drill."""

    def begin(self, row: Row) -> None:
        """A play begins."""

    def news(self, row: Row, said: str) -> None:
        """Something happened in it."""

    def end(self, row: Row) -> None:
        """It is over."""


class Lines:
    """One line for what matters; for pipes."""

    def __init__(self) -> None:
        self.console = tables.console(stderr=True)

    def begin(self, row: Row) -> None:
        if not row.refused:
            self.news(row, "begins")

    def news(self, row: Row, said: str) -> None:
        if said:
            line = f"{row.agent} · {row.scenario}: {said}"
            self.console.print(line, markup=False, soft_wrap=True)

    def end(self, row: Row) -> None:
        self.news(row, row.in_words)


class Moving:
    """The table itself, drawn anew as time goes by; for terminals."""

    def __init__(self, console: "Console | None" = None) -> None:
        from rich.live import Live

        self.rows: list[Row] = []
        self.console = console or tables.console(stderr=True)
        self.live = Live(
            get_renderable=self._table, console=self.console, refresh_per_second=8, transient=True
        )

    def __enter__(self) -> "Moving":
        self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def begin(self, row: Row) -> None:
        self.rows.append(row)

    def news(self, row: Row, said: str) -> None:
        pass  # it is in the row

    def end(self, row: Row) -> None:
        pass

    def _table(self) -> "Table":
        """The last rows that fit: what does not fit cannot be drawn over."""
        fits = max(1, self.console.height - 2)
        return table(self.rows[-fits:], self.console.width)


class _Column(NamedTuple):
    """A column: it is as wide as its firm cells need, and wider if there is room."""

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


_ROOM: tuple[tuple[int, frozenset[str]], ...] = (
    (_GAUGE, frozenset()),
    (0, frozenset()),
    (0, frozenset({"time"})),
    (0, frozenset({"time", "steps"})),
    (0, frozenset({"time", "steps", "context"})),
)
"""What is given up, the narrower the terminal the more: the gauge's bar, and columns."""


def table(rows: Sequence[Row], width: int) -> "Table":
    """One line a play."""
    from rich.table import Table

    drawn = Table(box=None, pad_edge=False, header_style="dim")
    columns, widths = _fitting(rows, width)
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


def below(rows: Sequence[Row], width: int) -> list[str]:
    """Why plays were not played, where the table of this width has no room for it: each once."""
    cut = [
        str(cell)
        for column, wide in zip(*_fitting(rows, width), strict=True)
        for row, cell in zip(rows, column.cells, strict=True)
        if (row.refused or row.broke_off) and column.name in _TEXTS and cell.cell_len > wide
    ]
    return list(dict.fromkeys(cut))


def _fitting(rows: Sequence[Row], width: int) -> tuple[list[_Column], list[int]]:
    """The columns that there is room for, and how wide they are."""
    columns: list[_Column] = []
    for bars, dropped in _ROOM:
        columns = [c for c in _columns(rows, bars) if c.name not in dropped]
        room = width - sum(c.least for c in columns) - _GAP * (len(columns) - 1)
        if room >= 0:
            break
    widths = []
    for column in columns:
        more = max(0, min(column.most - column.least, room))
        room -= more
        widths.append(column.least + more)
    while room < 0 and max(widths) > 1:
        widths[widths.index(max(widths))] -= 1
        room += 1
    return columns, widths


_TEXTS = ("without segue", "why it ended")


def _columns(rows: Sequence[Row], bars: int) -> list[_Column]:
    from rich.text import Text

    verdict, why = _TEXTS
    whole = {
        "agent": [Text(row.agent) for row in rows],
        "scenario": [Text(row.scenario) for row in rows],
        "context": [_gauge(row, bars) for row in rows],
        "steps": [Text(_steps(row)) for row in rows],
        verdict: [_verdict(row) for row in rows],
        why: [Text(row.outcome.reason if row.outcome else row.refused) for row in rows],
        "time": [Text(_time(row)) for row in rows],
    }
    return [
        _Column(
            name,
            cells,
            # News and faults can be long: they get what is left.
            [c for r, c in zip(rows, cells, strict=True) if name not in _TEXTS or r.outcome],
        )
        for name, cells in whole.items()
    ]


def _gauge(row: Row, bars: int) -> "Text":
    from rich.text import Text

    if row.used is None or not row.window:
        return Text()
    share = (row.most if row.outcome else row.used) / row.window  # at the end: the fullest it was
    full = min(bars, round(share * bars))
    colour = "red" if share >= 0.85 else "yellow" if share >= 0.5 else "green"
    return Text.assemble(
        ("█" * full, colour),
        ("░" * (bars - full), "bright_black"),
        (f" {share:>4.0%}", "") if bars else (f"{share:>4.0%}", colour),
    )


def _steps(row: Row) -> str:
    if not row.steps or row.refused or row.broke_off:
        return ""
    done = row.done if row.outcome is None else set(row.outcome.done)
    return f"{len(done)}/{row.steps}"


def _verdict(row: Row) -> "Text":
    from rich.text import Text

    if row.refused:
        return Text("not played", "yellow")
    if row.broke_off:
        return Text(row.in_words, "yellow")
    if row.outcome is None:
        news = Text(row.news, "dim")
        news.truncate(_NEWS, overflow="ellipsis")
        return news
    mark, colour = ("✓", "green") if row.outcome.held else ("✗", "red")
    return Text(f"{mark} {row.outcome.in_words}", colour)


def _time(row: Row) -> str:
    if row.outcome is not None:
        return f"{row.outcome.seconds:.1f} s"
    if row.started is None or row.is_over:
        return ""
    return f"{time.monotonic() - row.started:.0f} s"
