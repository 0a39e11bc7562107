"""`segue drill`: rehearse full windows, limits and crashes against a scripted model."""

import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from segue.core.nearest import did_you_mean
from segue.drill import casts
from segue.drill.plays.director import Director, DrillError
from segue.drill.plays.matrix import Matrix, markdown, renewed
from segue.drill.plays.outcome import requests_of
from segue.drill.scenarios import load
from segue.drill.scenarios.types import Scenario
from segue.errors import InputError, StateError
from segue.system.files import state
from segue.views import printing
from segue.views.drill_row import DrillRow
from segue.views.drill_table import (
    DrillLines,
    DrillPicture,
    MovingDrill,
    below,
    table,
)

TELLING = ("plan-limit", "too-long-no-compaction", "crash-in-tool")
"""The default scenarios: those in which an agent without segue gives up."""

_INSTEAD = "rehearsal"
"""The agent to use if real ones cannot be isolated."""

_INTERRUPTED = 130


@click.command()
@click.option(
    "--agent",
    "agents",
    multiple=True,
    metavar="NAME",
    help="The agent to drill; `all` for all real ones.",
)
@click.option(
    "--scenario", "scenarios", multiple=True, metavar="NAME|FILE", help="The scenario to play."
)
@click.option(
    "--only", type=click.Choice(["with", "without"]), help="Play only with, or only without, segue."
)
@click.option("--full", is_flag=True, help="All scenarios, including the slow ones.")
@click.option("--list", "only_list", is_flag=True, help="List agents and scenarios.")
@click.option("--keep", is_flag=True, help="Keep the scratch folders, and print where they are.")
@click.option("--again", is_flag=True, help="With --full: repeat what was played before.")
@click.option(
    "--table",
    "table_file",
    type=click.Path(path_type=Path),
    help="Also write the results as a Markdown table.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(
    *,
    agents: tuple[str, ...],
    scenarios: tuple[str, ...],
    only: str | None,
    full: bool,
    only_list: bool,
    keep: bool,
    again: bool,
    table_file: Path | None,
    as_json: bool,
) -> None:
    """Rehearse the failures that end a night's work, without an account or a network.

    A scripted model on this machine gives an agent numbered steps to do; then its window fills
    up, it hits a limit, or its process is killed: first without segue, then with `segue run`. At
    the end the repository shows whether each step was done exactly once. Exit code 0 means that,
    with segue, every scenario ended as well as it could.
    """
    if only_list:
        _list(as_json)
        return
    names = _agents(agents or (_INSTEAD,))
    if table_file is not None:
        _check_place(table_file)
    with ExitStack() as stack:
        chosen = scenarios or (load.names() if full else TELLING)
        scripts = [_script(source, stack) for source in chosen]
        matrix = _matrix() if full else None
        director = Director(keep=keep)
        plays = [(casts.find(n), script) for n in _able(names, director) for script in scripts]
        picture: DrillPicture = DrillLines()
        if sys.stderr.isatty() and not as_json:
            picture = stack.enter_context(MovingDrill())
        drill = Drill(director, picture, matrix, again)
        modes = (only == "with",) if only else (False, True)
        with _tidy_ends():
            exit_code = drill.play(plays, modes)
    _show(drill.rows, keep, as_json)
    if exit_code != _INTERRUPTED:
        if table_file is not None:
            _write_table(table_file, drill.rows, [script.scenario for script in scripts])
        if drill.fault is not None:
            raise drill.fault
    sys.exit(exit_code)


@contextmanager
def _tidy_ends() -> Iterator[None]:
    """SIGTERM and a closed terminal end a drill like an exception: its play is ended first."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = {each: signal.signal(each, leave) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


class DrillScript(NamedTuple):
    """A scenario, and the file that the play loads."""

    scenario: Scenario
    source: str


class Drill:
    """Runs plays, one after the other; `rows` has those that have ended."""

    def __init__(
        self, director: Director, picture: DrillPicture, matrix: Matrix | None, again: bool
    ) -> None:
        self.director, self.picture, self.matrix, self.again = director, picture, matrix, again
        self.rows: list[DrillRow] = []
        self.fault: StateError | None = None
        """Why outcomes could not be saved. It is raised only at the end, after they have been
        printed."""

    def play(self, plays: Sequence[tuple[casts.Cast, DrillScript]], modes: Sequence[bool]) -> int:
        """Runs all plays, or until Ctrl+C; returns the exit code. `modes`: with segue, without it,
        or both. For exit code 0, the plays of the last mode must end as expected."""
        try:
            for cast, script in plays:
                for with_segue in modes:
                    self.rows.append(self._row(cast, script, with_segue))
        except KeyboardInterrupt:
            return _INTERRUPTED
        if any(row.broke_off for row in self.rows):
            return DrillError.exit_code
        count = [row.outcome for row in self.rows if row.with_segue is modes[-1]]
        return 0 if all(outcome is not None and outcome.is_as_expected for outcome in count) else 1

    def _row(self, cast: casts.Cast, script: DrillScript, with_segue: bool) -> DrillRow:
        scenario = script.scenario
        steps = 0 if scenario.turns else scenario.job.steps
        row = DrillRow(cast.name, scenario.name, steps, with_segue=with_segue)
        row.refused = self.director.why_not(cast)
        row.started = time.monotonic()
        self.picture.begin(row)
        if not row.refused and self.matrix is not None and not self.again:
            version = self.director.version(cast)
            row.outcome = self.matrix.find(cast.name, version, scenario, with_segue=with_segue)
        if not row.is_over:
            self._play(row, cast, script)
        self.picture.end(row)
        return row

    def _play(self, row: DrillRow, cast: casts.Cast, script: DrillScript) -> None:
        def tell(event: dict[str, Any]) -> None:
            self.picture.news(row, row.hear(event))

        try:
            row.outcome = self.director.play(
                cast, script.scenario, script.source, tell, with_segue=row.with_segue
            )
        except DrillError as fault:
            row.broke_off, row.folder = str(fault) or "for an unknown reason", fault.folder
            return
        row.folder = row.outcome.folder
        if self.matrix is not None:
            try:
                self.matrix.keep(row.outcome, script.scenario)
            except OSError as fault:
                self.fault = _no_state(self.matrix.path, fault)


def _agents(given: Sequence[str]) -> list[str]:
    """The named agents, each once, in the order of their names on the command line. Raises
    InputError for an unknown one."""
    names = list(
        dict.fromkeys(n for name in given for n in (casts.REAL if name == "all" else (name,)))
    )
    for name in names:
        if name not in casts.NAMES:
            known = (*casts.NAMES, "all")
            hint = did_you_mean(name, known) or f"choose one of {', '.join(known)}"
            raise InputError(f"--agent {name}: no such agent; {hint}")
    return names


def _able(names: Sequence[str], director: Director) -> list[str]:
    """If none of these agents can be started, adds the rehearsal agent."""
    if not director.no_enclosure or not all(casts.find(name).needs_namespace for name in names):
        return list(names)
    printing.say(
        f"segue: real agents are not started: {director.no_enclosure}; "
        f"using the {_INSTEAD} agent instead",
        err=True,
    )
    return [*names, _INSTEAD]


def _script(source: str, stack: ExitStack) -> DrillScript:
    """Reads a scenario by its name or from a file. A file may be a pipe, so it is read once and
    copied for the play."""
    if source in load.names() or not ("/" in source or source.endswith(".toml")):
        return DrillScript(load.load(source), source)
    try:
        text = Path(source).read_bytes().decode("utf-8")
    except OSError:
        return DrillScript(load.load(source), source)  # raises an error that says what is wrong
    except ValueError as fault:
        raise InputError(f"{source}: cannot be read: {fault}") from None
    scenario = load.parse(text, Path(source))
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="segue-drill-"))
    own = Path(folder, f"{scenario.name}.toml")
    own.write_text(text, encoding="utf-8")
    return DrillScript(scenario, str(own))


def _matrix() -> Matrix:
    """The results of earlier plays. Raises StateError if new ones cannot be added."""
    path = Path(state.state_folder()) / "drill.jsonl"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
        return Matrix(path)
    except OSError as fault:
        raise _no_state(path, fault) from None


def _no_state(path: Path, fault: OSError) -> StateError:
    why = fault.strerror or str(fault)
    return StateError(
        f"{path}: segue cannot keep its state here: {why}; to keep it elsewhere, set SEGUE_HOME"
    )


def _check_place(place: Path) -> None:
    """Raises InputError if the table cannot be written there: a drill may take half an hour."""
    if os.path.isdir(place):
        raise InputError(f"--table {place} is a folder")
    if not os.path.isdir(place.parent):
        raise InputError(f"--table {place}: there is no folder {place.parent}")
    if not os.access(place if os.path.exists(place) else place.parent, os.W_OK):
        raise InputError(f"--table {place} is not writable")


def _write_table(place: Path, rows: list[DrillRow], scenarios: list[Scenario]) -> None:
    outcomes = [row.outcome for row in rows if row.outcome is not None]
    each = {scenario.name: scenario for scenario in scenarios}
    tables = markdown(outcomes, list(each.values()))
    try:
        old = place.read_text(encoding="utf-8", errors="replace") if place.is_file() else ""
        place.write_text(renewed(old, tables), encoding="utf-8")
    except OSError as fault:
        raise InputError(f"--table {place} cannot be written: {fault.strerror}") from None


def _show(rows: list[DrillRow], keep: bool, as_json: bool) -> None:
    if as_json:
        plays = [_as_dict(row, keep) for row in rows]
        printing.say_json(
            {"plays": plays, "asked": requests_of(row.outcome for row in rows)._asdict()}
        )
    elif rows:
        console = printing.console()
        console.print(table(rows, console.width))
        for line in below(rows):
            console.print(line, markup=False, soft_wrap=True)
    for row in rows:
        if keep and row.folder:
            printing.say(f"{row.name}: {row.folder}", err=True)


def _as_dict(row: DrillRow, keep: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "agent": row.agent,
        "scenario": row.scenario,
        "with_segue": row.with_segue,
    }
    if row.outcome is not None:
        done = row.outcome
        found = {
            **msgspec.to_builtins(done),
            "asked_in_time": done.asked_in_time,
            "held": done.is_as_expected,
        }
        found.pop("folder", None)
    elif row.broke_off:
        found["broke_off"] = row.broke_off
    else:
        found["refused"] = row.refused
    # Only with --keep: the folder of an earlier drill may be gone.
    return {**found, "folder": row.folder} if keep and row.folder else found


def _list(as_json: bool) -> None:
    scenarios = [load.load(name) for name in load.names()]
    if as_json:
        listed = [{"name": s.name, "about": s.about, "slow_for": s.slow_for} for s in scenarios]
        printing.say_json({"agents": list(casts.NAMES), "scenarios": listed})
        return
    width = max(len(scenario.name) for scenario in scenarios)
    printing.say(f"agents     {', '.join(casts.NAMES)}")
    for scenario in scenarios:
        printing.say(f"{scenario.name:<{width}}  {scenario.about}")
