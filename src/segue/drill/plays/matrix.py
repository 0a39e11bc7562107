"""The full matrix, every agent in every scenario, without segue and with it: saved as it grows,
so that it can be resumed, and written as a table."""

import json
import os
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from segue import __version__
from segue.drill.plays.outcome import PlayOutcome
from segue.drill.scenarios.types import Scenario

_BEGINS = "Played on "


class Matrix:
    """Outcomes in a file, one per line. `find` ignores those of another version of segue or the
    agent, and those of a scenario that has changed since."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known: dict[str, PlayOutcome] = {}
        try:
            lines = path.read_bytes().splitlines()
        except FileNotFoundError:
            lines = []
        for line in lines:
            try:
                entry = json.loads(line)
                self.known[entry["key"]] = msgspec.convert(entry["outcome"], PlayOutcome)
            except (ValueError, KeyError, TypeError):
                continue  # half a line, from a drill that was killed

    def find(
        self, agent: str, version: str, scenario: Scenario, *, with_segue: bool
    ) -> PlayOutcome | None:
        """The stored outcome of this play, or None."""
        return self.known.get(_key(agent, version, scenario, with_segue))

    def keep(self, outcome: PlayOutcome, scenario: Scenario) -> None:
        """Stores an outcome at once."""
        key = _key(outcome.agent, outcome.version, scenario, outcome.with_segue)
        if self.known.get(key) == outcome:
            return
        self.known[key] = outcome
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        line = json.dumps({"key": key, "outcome": msgspec.to_builtins(outcome)})
        private = partial(os.open, mode=0o600)
        with open(self.path, "a", encoding="utf-8", opener=private) as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())


def _key(agent: str, version: str, scenario: Scenario, with_segue: bool) -> str:
    form = msgspec.json.encode(scenario, order="deterministic").decode()
    return json.dumps([__version__, agent, version, form, with_segue])


def markdown(outcomes: Iterable[PlayOutcome], scenarios: Sequence[Scenario]) -> str:
    """The plays with segue and those without as tables, each with a column per agent and a row per
    scenario."""
    outcomes = list(outcomes)
    days = sorted({outcome.played_on for outcome in outcomes})
    when = " to ".join(dict.fromkeys((days[0], days[-1]))) if days else "no day"
    lines = [
        f"{_BEGINS}{when}. ✓: every step once and in order, or stopped for the right reason.",
    ]
    for with_segue in (True, False):
        found = [outcome for outcome in outcomes if outcome.with_segue is with_segue]
        if found:
            held = sum(outcome.is_as_expected for outcome in found)
            title = "With segue" if with_segue else "Without segue"
            lines += ["", f"## {title}: {held} of {len(found)}", "", *_table(found, scenarios)]
    return "\n".join(lines) + "\n"


def renewed(text: str, tables: str) -> str:
    """The text of a file with new tables in place of the old ones. The text above them stays; a
    text without tables is replaced."""
    above, found, _ = text.partition(_BEGINS)
    return above + tables if found else tables


def _table(outcomes: Sequence[PlayOutcome], scenarios: Sequence[Scenario]) -> Iterable[str]:
    found = {(o.agent, o.scenario): o for o in outcomes}
    versions = {o.agent: o.version for o in outcomes}
    heads = ["scenario", *(f"{agent} {version}".strip() for agent, version in versions.items())]
    yield _line(heads)
    yield _line(["---"] * len(heads))
    for scenario in scenarios:
        cells = [_cell(found.get((agent, scenario.name))) for agent in versions]
        yield _line([scenario.name, *cells])


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(outcome: PlayOutcome | None) -> str:
    if outcome is None:
        return "–"
    mark = "✓" if outcome.is_as_expected else "✗"
    # "All steps" already says why it ended.
    reason = "" if outcome.is_done and outcome.reason == "completed" else outcome.reason
    return f"{mark} " + "; ".join(filter(None, (outcome.in_words, reason, outcome.way)))
