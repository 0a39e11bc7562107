"""Several runs at once: a project each, one SEGUE_HOME for all."""

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from segue.runs.legs.leg import Leg
from segue.runs.store.sqlite import SqliteStore
from support.running import QUICK, Staged, stage
from support.waiting import LONG_S

STEPS = """
about = "A limit of the plan, and later a window that is nearly full."
[job]
steps = 9
step_s = 0.3  # no agent works faster than it can be watched
"""
BOTH = f"""{STEPS}
[context]
fills_after_steps = 8.2
[[rules]]
before_step = 3
fault = "plan_limit"
resets_in_s = 2
[options.rehearsal]
plan = "1"
"""
POLICY = {**QUICK, "stall_s": 120.0}  # with so many, it may take long until it is one's turn


@dataclass
class Crowd:
    """Those who run, and what they have in common."""

    home: Path
    staged: list[Staged]

    def left_running(self) -> list[psutil.Process]:
        """Any process of theirs: agents, keepers, tools."""
        homes = {staged.env["HOME"] for staged in self.staged}
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("HOME") in homes:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def faults(self) -> list[str]:
        """What is wrong with the common state, or with what was done."""
        found = []
        with closing(sqlite3.connect(self.home / "runs.db")) as db:
            found += [row[0] for row in db.execute("PRAGMA integrity_check") if row[0] != "ok"]
            found += [f"no parent: {row}" for row in db.execute("PRAGMA foreign_key_check")]
        with SqliteStore(self.home / "runs.db") as store:
            runs = store.runs()
            found += [f"another state: {drift}" for drift in store.rebuild()]
            if store.runs() != runs:
                found.append("the log tells of other runs than the tables did")
            if len(runs) != len(self.staged):
                found.append(f"{len(runs)} runs instead of {len(self.staged)}")
            for run in runs:
                reasons = {kept.stop.reason.value for kept in store.stops(run.id)}
                if run.state.value != "done" or not run.handoffs or "rate_limit" not in reasons:
                    found.append(f"{run.id}: {run.state.value}, {run.handoffs} handoffs, {reasons}")
                if not all(leg.ended_at for leg in store.legs(run.id)):
                    found.append(f"{run.id}: a leg has no end")
        for staged in self.staged:
            if not (done := staged.continuity()).is_whole:
                found.append(f"{staged.project}: {done}")
        found += [f"still runs: {process}" for process in self.left_running()]
        return found


@contextmanager
def crowd(number: int, within: Path, scenario: str = BOTH) -> Iterator[Crowd]:
    """All that so many runs need. Whatever still runs at the end is ended."""
    path = within / "scenario.toml"
    path.write_text(scenario)
    home = within / "common"
    home.mkdir()
    with ExitStack() as stack:
        staged = [
            stack.enter_context(stage(path, within=within, policy=POLICY)) for _ in range(number)
        ]
        (home / "config.toml").write_bytes((staged[0].home / "config.toml").read_bytes())
        for each in staged:
            each.env["SEGUE_HOME"] = str(home)
        stack.callback(_end_legs, home)
        yield Crowd(home, staged)


def _end_legs(home: Path) -> None:
    legs = [Leg(folder) for folder in (home / "runs").glob("*/leg-*")]
    live = [leg for leg in legs if leg.status().state in ("running", "starting")]
    for leg in live:
        leg.command("test-kill", "kill")
    for leg in live:
        leg.wait(LONG_S)
