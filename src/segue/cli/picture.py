"""A drill as it happens: lines for pipes, a moving table for terminals."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from segue.cli import tables
from segue.drill.outcome import Outcome

if TYPE_CHECKING:
    from rich.table import Table

_GAUGE = 12


class Row:
    """One play, as far as it is known."""

    def __init__(self, agent: str, scenario: str, steps: int) -> None:
        self.agent, self.scenario, self.steps = agent, scenario, steps
        self.step = 0
        self.used: int | None = None
        self.most = 0
        self.window: int | None = None
        self.news = ""
        self.started: float | None = None
        self.outcome: Outcome | None = None
        self.refused = ""

    def hear(self, event: dict[str, Any]) -> str:
        """Takes in what happened; a line about it, if it is worth one."""
        match event["kind"]:
            case "step":
                self.step = event["step"]
                self.news = f"step {self.step} of {self.steps}"
            case "request":
                request = event["request"]
                self.used = request["tokens"] or self.used
                self.most = max(self.most, self.used or 0)
                self.window = event["window"]
                self.news = _news(request)
                if self.news.startswith("step "):  # told when it runs
                    return ""
            case "act":
                self.news = f"{event['act']} in step {event['in_step']}"
            case "limit":
                self.news = f"ended by the drill after {event['after_s']:.0f} s"
            case _:
                return ""
        return self.news


def _news(request: dict[str, Any]) -> str:
    """What the model was asked, if it is not the work itself, and what it did about it."""
    said = str(request["answered"]).replace("_", " ")
    if request["delivery"] != "whole":
        said += f" ({request['delivery'].replace('_', ' ')})"
    kind = request["kind"]
    if kind is None:
        return f"{request['method']} {request['path']}"
    return said if kind == "main" else f"{kind}: {said}"


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
        self.console.print(f"{row.agent} · {row.scenario}: begins", markup=False)

    def news(self, row: Row, said: str) -> None:
        if said:
            self.console.print(f"{row.agent} · {row.scenario}: {said}", markup=False)

    def end(self, row: Row) -> None:
        done = row.outcome
        said = row.refused or (f"{done.in_words}; {done.reason}" if done else "")
        self.console.print(f"{row.agent} · {row.scenario}: {said}", markup=False)


class Moving:
    """The table itself, drawn anew as things happen; for terminals."""

    def __init__(self) -> None:
        from rich.live import Live

        self.rows: list[Row] = []
        self.live = Live(console=tables.console(stderr=True), refresh_per_second=8, transient=True)

    def __enter__(self) -> "Moving":
        self.live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.__exit__(None, None, None)

    def begin(self, row: Row) -> None:
        self.rows.append(row)
        self._draw()

    def news(self, row: Row, said: str) -> None:
        self._draw()

    def end(self, row: Row) -> None:
        self._draw()

    def _draw(self) -> None:
        self.live.update(table(self.rows))


def table(rows: Sequence[Row]) -> "Table":
    """One line a play."""
    from rich.table import Table

    drawn = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("agent", "scenario", "context", "steps", "without segue", "why it ended", "time"):
        drawn.add_column(name, justify="right" if name == "time" else "left", no_wrap=True)
    for row in rows:
        drawn.add_row(
            row.agent, row.scenario, _gauge(row), _steps(row), _verdict(row), _why(row), _time(row)
        )
    return drawn


def _gauge(row: Row) -> Any:
    from rich.text import Text

    if row.used is None or not row.window:
        return ""
    share = (row.most if row.outcome else row.used) / row.window  # at the end: the fullest it was
    full = min(_GAUGE, round(share * _GAUGE))
    colour = "red" if share >= 0.85 else "yellow" if share >= 0.5 else "green"
    return Text.assemble(
        ("█" * full, colour), ("░" * (_GAUGE - full), "bright_black"), f" {share:>4.0%}"
    )


def _steps(row: Row) -> str:
    done = len(set(row.outcome.done)) if row.outcome else max(0, row.step - 1)
    return f"{done}/{row.steps}"


def _verdict(row: Row) -> Any:
    from rich.text import Text

    if row.refused:
        return Text("not played", "yellow")
    if row.outcome is None:
        return Text(row.news, "dim")
    mark, colour = ("✓", "green") if row.outcome.held else ("✗", "red")
    return Text(f"{mark} {row.outcome.in_words}", colour)


def _why(row: Row) -> str:
    if row.outcome is None:
        return row.refused
    return row.outcome.reason


def _time(row: Row) -> str:
    if row.outcome is not None:
        return f"{row.outcome.seconds:.1f} s"
    return "" if row.started is None else f"{time.monotonic() - row.started:.0f} s"
