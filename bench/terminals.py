"""How full the window is when a session in a terminal reads the request for its handoff document:
`python -m bench.terminals [--json] [--agents claude] [--patterns even] [--times 1]`. Linux only.

The real agents in tmux, a real `segue watch --auto`, a scripted model, default marks. Each play is
one job that fills several windows; the patterns differ in how much a step adds. The model counts
what it is sent, whatever the agent shows. Counted are the sessions that leave room: what they began
with, the request, and three turns of the pattern fit below 90% of the window. Goal: 95 of 100 of
their requests at 90% or less, no step lost or repeated. No peer: without segue nobody asks.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "tests"))

from support.terminals.tui import Tui, open_tui  # noqa: E402 - the tests' own
from support.watching import Watching, begin_work, done, watching  # noqa: E402

from segue.drill.model.ask import Kind  # noqa: E402
from segue.drill.model.log import Logged  # noqa: E402
from segue.drill.plays import job as jobs  # noqa: E402
from segue.drill.scenarios.types import Context, Job, Scenario  # noqa: E402

AGENTS = ("claude", "codex", "opencode")
WINDOW_TOKENS = 200_000
LATEST, ROOM_TURNS = 0.90, 3
GOALS = {"in_time": 0.95}
PATIENCE_S = 420.0
_LOOK_S = 0.5
PATTERNS = {
    "small": (40, 16.0, Job(steps=40, step_s=0.6, output_bytes=6_000)),
    "even": (32, 11.5, Job(steps=32, step_s=0.8, output_bytes=8_000)),
    "large": (24, 8.0, Job(steps=24, step_s=1.0, output_bytes=8_000)),
    "quick": (30, 11.5, Job(steps=30, step_s=0.3, output_bytes=8_000)),
    "slow": (22, 9.5, Job(steps=22, step_s=2.5, output_bytes=8_000)),
    "spike": (28, 12.5, Job(steps=28, step_s=0.8, output_bytes=7_000, spike_step=5,
                            spike_bytes=16_000)),
}  # fmt: skip
"""Steps, after how many of them the window is full, and the job."""


class Asked:
    """The requests for a document in one play, and what the model counted."""

    def __init__(self, requests: list[Logged], turn: float) -> None:
        self.shares: list[float] = []  # of the window, with room
        self.without_room: list[float] = []
        began, before = 0.0, ""
        for request in requests:
            if request.kind is None or request.tokens is None:
                continue
            share = request.tokens / WINDOW_TOKENS
            is_request = request.answered == "handoff: write"
            if is_request and before != request.answered:
                has_room = began + (ROOM_TURNS + _REQUEST_TURNS) * turn <= LATEST
                (self.shares if has_room else self.without_room).append(round(share, 3))
            if request.kind in (Kind.MAIN, Kind.CONTINUATION, Kind.HANDOFF):
                if not began or request.answered == "handoff: read":
                    began = share
                before = request.answered


_REQUEST_TURNS = 0.3  # a request is shorter than a step's output


def play(agent: str, pattern: str) -> dict[str, Any]:
    """One job, to its end."""
    steps, fills, job = PATTERNS[pattern]
    scenario = Scenario(about="", job=job, context=Context(fills_after_steps=fills))
    with (
        tempfile.TemporaryDirectory(prefix="segue-terminals-") as name,
        open_tui(agent, Path(name), scenario, window_tokens=WINDOW_TOKENS) as tui,
        watching(Path(name) / "segue", tui.env, "--auto") as watch,
    ):
        began = time.monotonic()
        begin_work(tui)
        while done(tui, job) < steps and time.monotonic() - began < PATIENCE_S:
            time.sleep(_LOOK_S)
        return _row(agent, pattern, tui, watch, job, time.monotonic() - began, 1 / fills)


def _row(
    agent: str, pattern: str, tui: Tui, watch: Watching, job: Job, took_s: float, turn: float
) -> dict[str, Any]:
    continuity = jobs.check(tui.project, job, finished=False)
    asked = Asked(list(tui.requests), turn)
    outcomes = [str(note.data["outcome"]) for note in watch.notes("metrics")]
    kinds = [request.kind for request in tui.requests]
    return {
        "agent": agent,
        "pattern": pattern,
        "steps": job.steps,
        "done": len(set(continuity.done)),
        "is_whole": continuity.is_whole,
        "handoffs": outcomes.count("done"),
        "unfinished": len(outcomes) - outcomes.count("done"),
        "asked_at": asked.shares,
        "without_room": asked.without_room,
        "compactions": kinds.count(Kind.COMPACTION),
        "seconds": round(took_s),
    }


def plays(agents: list[str], patterns: list[str], times: int) -> Iterator[dict[str, Any]]:
    """All of them, one after the other."""
    for _ in range(times):
        for pattern in patterns:
            for agent in agents:
                yield play(agent, pattern)


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """All plays together."""
    shares = [share for row in rows for share in row["asked_at"]]
    in_time = sum(share <= LATEST for share in shares)
    return {
        "plays": len(rows),
        "whole": sum(row["is_whole"] and row["done"] == row["steps"] for row in rows),
        "handoffs": sum(row["handoffs"] for row in rows),
        "requests": len(shares),
        "in_time": in_time,
        "share": round(in_time / len(shares), 3) if shares else None,
        "highest": max(shares, default=None),
        "without_room": sum(len(row["without_room"]) for row in rows),
        "compactions": sum(row["compactions"] for row in rows),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--agents", nargs="+", default=list(AGENTS), choices=AGENTS)
    parser.add_argument("--patterns", nargs="+", default=list(PATTERNS), choices=list(PATTERNS))
    parser.add_argument("--times", type=int, default=1)
    given = parser.parse_args()
    os.environ["LC_ALL"] = "C.UTF-8"
    rows = []
    for row in plays(given.agents, given.patterns, given.times):
        rows.append(row)
        if not given.json:
            print(json.dumps(row), flush=True)
    total = summary(rows)
    print(json.dumps({"goals": GOALS, "rows": rows, **total}) if given.json else total)


if __name__ == "__main__":
    main()
