"""How soon a run decides: parts 4 and 5 of `bench.overhead`.

Real `segue run` processes with the rehearsal agent, in the form that tells its size in the stream
(claude) and in the one that tells it in its session file (codex). Each hands over once, so a run
has two legs or more. A decision counts once it is written down and printed (`--json`).

The exit: from the time in exit.json, when the keeper was told that the agent is gone; `swept` is
when exit.json is there, `judged` when the verdict is. The mark: from the time that the agent gave
the record with the size that crosses it.
"""

import json
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from segue.agents import find
from segue.agents.shared import records
from segue.core.stops.events import Usage

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "tests"))

from support.running import Staged, stage  # noqa: E402 - the tests' own

Row = dict[str, Any]
FORMS = {"claude": "rehearsal", "codex": "rehearsal-codex"}
SCENARIO = """
about = "The window is nearly full once."
[job]
steps = 9
step_s = 0.3  # no agent works faster than it can be watched
[context]
fills_after_steps = 8.2
"""


def measured(rounds: int) -> tuple[Row, Row]:
    """From the exit (4) and from the mark (5), in ms: the worst of all, and more by form."""
    exits: Row = {"exit_ms": 0.0}
    marks: Row = {"mark_ms": 0.0}
    for form, cast in FORMS.items():
        ends: list[list[float]] = []
        crossed: list[float] = []
        for _ in range(rounds):
            with TemporaryDirectory(prefix="segue-bench-") as folder:
                scenario = Path(folder, "nearly-full.toml")
                scenario.write_text(SCENARIO)
                with stage(scenario, cast, within=Path(folder)) as staged:
                    entries = one_run(staged)
                    ends += ended(staged, entries)
                    crossed += crossing(staged, form, entries)
        columns = [*zip(*ends, strict=True)]
        parts = ("swept", "judged", "written", "all")
        exits[form] = {part: summary(ms) for part, ms in zip(parts, columns, strict=True)}
        exits["exit_ms"] = max(exits["exit_ms"], exits[form]["all"]["max"])
        marks[form] = summary(crossed)
        marks["mark_ms"] = max(marks["mark_ms"], marks[form]["max"])
    return exits, marks


def one_run(staged: Staged) -> list[Row]:
    """What a run wrote down, each entry with the time at which it was seen."""
    process = staged.start_run("--json")
    found = []
    for line in process.stdout or ():
        seen_at = time.time()
        found.append({**json.loads(line), "seen_at": seen_at})
    if staged.end(process).code != 0 or not staged.continuity().is_whole:
        sys.exit(f"a run went wrong: {found[-1:]}")
    return found


def ended(staged: Staged, entries: list[Row]) -> Iterator[list[float]]:
    """Of each leg: how long each part took, and all of it."""
    for entry in entries:
        if entry["kind"] == "legended":
            path = staged.leg(entry["run"], entry["data"]["leg"]) / "exit.json"
            times = [json.loads(path.read_bytes())["ended_at"], path.stat().st_ctime]
            times += [entry["at"], entry["seen_at"]]
            parts = [later - earlier for earlier, later in pairwise(times)]
            yield [1e3 * each for each in (*parts, times[-1] - times[0])]


def crossing(staged: Staged, form: str, entries: list[Row]) -> Iterator[float]:
    """How long it took from the record that crosses the hard mark to the request."""
    profile = find(form)
    if profile is None:
        raise RuntimeError("no profile")
    told: list[tuple[float, int]] = []
    for path in (staged.root / "home").rglob("*.jsonl"):
        split = records.split(path.read_text("utf-8"), "transcript").records
        sizes = (event for event in profile.parse(split) if isinstance(event, Usage))
        told += [(event.at, event.used_tokens) for event in sizes if event.at is not None]
    for entry in entries:
        if entry["kind"] == "read" and any(d["decision"] == "ask" for d in entry["decisions"]):
            size = entry["data"]["reading"]["input_tokens"]
            # A stream counts fewer tokens of the answer than the file does in the end.
            yield 1e3 * (entry["seen_at"] - min(at for at, used in told if used >= size))


def summary(found_ms: list[float] | tuple[float, ...]) -> Row:
    return {
        "median": round(median(found_ms), 1),
        "max": round(max(found_ms), 1),
        "number": len(found_ms),
    }
