"""The full matrix, every agent in every scenario: kept as it grows, so that it can be gone on with,
and written as a table."""

import json
import os
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from segue import __version__
from segue.drill.outcome import Outcome
from segue.drill.scenario import Scenario


class Matrix:
    """Outcomes in a file, one a line. What was played with another version of the agent or another
    form of the scenario does not count."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known: dict[str, Outcome] = {}
        try:
            lines = path.read_bytes().splitlines()
        except FileNotFoundError:
            lines = []
        for line in lines:
            try:
                entry = json.loads(line)
                self.known[entry["key"]] = msgspec.convert(entry["outcome"], Outcome)
            except (ValueError, KeyError, TypeError):
                continue  # half a line, of a drill that was killed

    def find(self, agent: str, version: str, scenario: Scenario) -> Outcome | None:
        """What came of this play before."""
        return self.known.get(_key(agent, version, scenario))

    def keep(self, outcome: Outcome, scenario: Scenario) -> None:
        """Writes it down at once."""
        key = _key(outcome.agent, outcome.version, scenario)
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


def _key(agent: str, version: str, scenario: Scenario) -> str:
    form = msgspec.json.encode(scenario, order="deterministic").decode()
    return json.dumps([__version__, agent, version, form])


def markdown(outcomes: Iterable[Outcome], scenarios: Sequence[Scenario]) -> str:
    """Agents across, scenarios down: what became of the job without segue."""
    outcomes = list(outcomes)
    days = sorted({outcome.played_on for outcome in outcomes})
    when = " to ".join(dict.fromkeys((days[0], days[-1]))) if days else "no day"
    found = {(o.agent, o.scenario): o for o in outcomes}
    agents = list(dict.fromkeys(agent for agent, _ in found))
    versions = {o.agent: o.version for o in found.values()}
    heads = ["scenario", *(f"{agent} {versions[agent]}".strip() for agent in agents)]
    lines = [
        f"Played on {when}, without segue. ✓: every step once, or stopped for the right reason.",
        "",
        _line(heads),
        _line(["---"] * len(heads)),
    ]
    for scenario in scenarios:
        cells = [_cell(found.get((agent, scenario.name))) for agent in agents]
        lines.append(_line([scenario.name, *cells]))
    return "\n".join(lines) + "\n"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(outcome: Outcome | None) -> str:
    if outcome is None:
        return "–"
    mark = "✓" if outcome.held else "✗"
    return f"{mark} {outcome.in_words}; {outcome.reason}"
