"""What reading a history costs: `python -m bench.scan [--megabytes 1024] [--json]`.

CPU time and peak memory of whole processes on generated histories (`bench.support.histories`),
against ccusage on the same files in the same run, interleaved. Goals: cold at most half of
ccusage's CPU time and not more memory; a repeat with nothing changed at most 2.5% of it, after
one appended line 3%; Codex at least 1.5 times faster; and always the same totals, to the token.

"Cold" is without segue's index; the files are in the page cache for both.
"""

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from bench.support import histories
from bench.support.peers import Cost, ccusage, clean_env, run, segue

GOALS = {"cold": 50.0, "memory": 100.0, "unchanged": 2.5, "one line": 3.0, "codex": 66.7}
CACHE = Path(tempfile.gettempdir()) / "segue-bench"


def totals(found: dict[str, Any], agent: str) -> dict[str, int]:
    """Tokens by kind, as segue says."""
    rows = [row for row in found["totals"] if row["agent"] == agent]
    return {
        k: sum(row[k] for row in rows) for k in ("input", "output", "cache_read", "cache_write")
    }


def peers_totals(found: dict[str, Any]) -> dict[str, int]:
    """Tokens by kind, as ccusage says."""
    names = {
        "input": "inputTokens",
        "output": "outputTokens",
        "cache_read": "cacheReadTokens",
        "cache_write": "cacheCreationTokens",
    }
    return {ours: found["totals"][theirs] for ours, theirs in names.items()}


class Bench:
    """One history, one peer."""

    def __init__(self, folder: Path, history: histories.Histories) -> None:
        self.folder, self.history = folder, history
        self.peer = ccusage(CACHE / "ccusage")

    def env(self, agent: str, state: str) -> dict[str, str]:
        nowhere = self.folder / "nowhere"
        nowhere.mkdir(exist_ok=True)
        homes = {"claude": self.history.claude_home, "codex": self.history.codex_home}
        return clean_env(
            nowhere,
            CLAUDE_CONFIG_DIR=str(homes["claude"] if agent == "claude" else nowhere),
            CODEX_HOME=str(homes["codex"] if agent == "codex" else nowhere),
            SEGUE_HOME=str(self.folder / state),
        )

    def theirs(self, agent: str) -> Cost:
        return run([self.peer, agent, "daily", "--json", "-O"], self.env(agent, "none"))

    def ours(self, agent: str, state: str, *, cold: bool = False) -> Cost:
        if cold:
            shutil.rmtree(self.folder / state, ignore_errors=True)
        return run([segue(), "scan", "--json"], self.env(agent, state))

    def same(self, agent: str, ours: Cost) -> bool:
        """Whether the totals are ccusage's, and what the generator knows it wrote."""
        mine = totals(json.loads(ours.out), agent)
        written = getattr(self.history, agent).sum()
        known = {
            "input": written.input,
            "output": written.output,
            "cache_read": written.cache_read,
            "cache_write": written.cache_creation,
        }
        return mine == known == peers_totals(json.loads(self.theirs(agent).out))

    def changed(self, agent: str) -> list[str]:
        """What differs from a scan from scratch after files changed; empty if all is well."""
        wrong = []
        files = sorted(self.history.claude_home.rglob("*.jsonl"), key=os.path.getsize)
        grown, cut, replaced = files[len(files) // 2], files[len(files) // 3], files[-1]
        line = grown.read_bytes().splitlines(keepends=True)
        changes: dict[str, Callable[[], object]] = {
            "half a line": lambda: append(grown, line[-1][: len(line[-1]) // 2]),
            "its other half": lambda: append(grown, line[-1][len(line[-1]) // 2 :]),
            "truncation": lambda: os.truncate(cut, cut.stat().st_size // 2),
            "replacement": lambda: replace(replaced, b"".join(line)),
            "deletion": cut.unlink,
        }
        for name, change in changes.items():
            change()
            after = totals(json.loads(self.ours(agent, "warm").out), agent)
            fresh = totals(json.loads(self.ours(agent, "scratch", cold=True).out), agent)
            wrong += [name] if after != fresh else []
        return wrong


def append(file: Path, data: bytes) -> None:
    with file.open("ab") as out:
        out.write(data)


def replace(file: Path, data: bytes) -> None:
    new = file.with_suffix(".new")
    new.write_bytes(data)
    new.rename(file)


def measure(folder: Path, megabytes: int, files: int, rounds: int) -> dict[str, Any]:
    history = histories.write(folder / "history", megabytes=megabytes, files=files)
    bench = Bench(folder, history)
    taken: dict[str, list[Cost]] = {}

    def took(name: str, cost: Cost) -> None:
        taken.setdefault(name, []).append(cost)

    right = {agent: bench.same(agent, bench.ours(agent, agent)) for agent in ("claude", "codex")}
    line = next(iter(sorted(history.claude_home.rglob("*.jsonl"))))
    last = line.read_bytes().splitlines(keepends=True)[-1]
    for _ in range(rounds):
        took("ccusage claude", bench.theirs("claude"))
        took("cold", bench.ours("claude", "warm", cold=True))
        took("unchanged", bench.ours("claude", "warm"))
        append(line, last)
        took("one line", bench.ours("claude", "warm"))
        took("ccusage codex", bench.theirs("codex"))
        took("codex", bench.ours("codex", "codex", cold=True))
    cpu = {name: median(cost.cpu_s for cost in costs) for name, costs in taken.items()}
    peak = {name: max(cost.peak_mb for cost in costs) for name, costs in taken.items()}
    shares = {
        "cold": 100 * cpu["cold"] / cpu["ccusage claude"],
        "memory": 100 * peak["cold"] / peak["ccusage claude"],
        "unchanged": 100 * cpu["unchanged"] / cpu["ccusage claude"],
        "one line": 100 * cpu["one line"] / cpu["ccusage claude"],
        "codex": 100 * cpu["codex"] / cpu["ccusage codex"],
    }
    return {
        "megabytes": history.size_bytes >> 20,
        "files": history.files,
        "cpu_s": {name: round(value, 3) for name, value in cpu.items()},
        "peak_mb": {name: round(value) for name, value in peak.items()},
        "percent_of_ccusage": {name: round(value, 1) for name, value in shares.items()},
        "goals": GOALS,
        "totals_equal": right,
        "differs_from_scratch_after": bench.changed("claude"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), options.megabytes, options.files, options.rounds)
    if options.json:
        print(json.dumps(found))
        return
    print(f"{found['megabytes']} MB in {found['files']} files")
    for name, value in found["cpu_s"].items():
        print(f"  {name:<16}{value:>8.3f} s CPU {found['peak_mb'][name]:>6} MB")
    print("in percent of ccusage (goal)")
    for name, value in found["percent_of_ccusage"].items():
        print(f"  {name:<16}{value:>8.1f}   ({found['goals'][name]})")
    print(f"totals equal to the token: {found['totals_equal']}")
    print(
        f"differs from a scan from scratch after: {found['differs_from_scratch_after'] or 'never'}"
    )


if __name__ == "__main__":
    main()
