"""What test_scan and other tests share."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, NamedTuple

from segue.core.sessions.ledger import Ledger
from segue.sessions import find
from segue.sessions.count.count import tally_of
from segue.sessions.count.index import Index
from segue.sessions.count.scan import Scan, scan
from support.agents.counters import (
    compact,
    count_line,
    meta,
    outcome,
    turn,
)

Totals = dict[tuple[str, str], tuple[int, int, int, int]]


def load(path: Path) -> Any:
    """A module that is no part of the package."""
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses look for themselves there
    spec.loader.exec_module(module)
    return module


class Machine:
    """Homes of agents, and an index of them."""

    def __init__(self, folder: Path) -> None:
        self.claude, self.codex = folder / "claude", folder / "codex"
        self.state = folder / "state"
        self.environment = {
            "HOME": str(folder),
            "CLAUDE_CONFIG_DIR": str(self.claude),
            "CODEX_HOME": str(self.codex),
        }
        for place in (self.claude / "projects", self.codex / "sessions"):
            place.mkdir(parents=True, exist_ok=True)
        self.clock_ns = 1_800_000_000_000_000_000
        self.rounds = 0

    def write(self, path: str | Path, *records: Any, how: str = "w") -> Path:
        """Writes records, or bytes as they are; every write has a time of its own."""
        place = self.place(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open(f"{how}b") as file:
            for record in records:
                file.write(record if isinstance(record, bytes) else compact(record))
        self.touch(place)
        return place

    def append(self, path: str | Path, *records: Any) -> Path:
        return self.write(path, *records, how="a")

    def touch(self, place: Path) -> None:
        self.clock_ns += 1_000_000
        os.utime(place, ns=(self.clock_ns, self.clock_ns))

    def place(self, path: str | Path) -> Path:
        """Names that begin with `rollout` are Codex's."""
        if isinstance(path, Path):
            return path
        is_codex = Path(path).name.startswith("rollout")
        return (self.codex / "sessions" if is_codex else self.claude / "projects") / path

    def found(self) -> tuple[list[find.FileOnDisk], list[str]]:
        homes = find.homes(self.environment)
        return find.sessions(homes), [home.path for home in homes]

    def scan(self) -> "Seen":
        """What a scan with the kept index finds."""
        return self._scan(self.state / "sessions.db")

    def anew(self) -> "Seen":
        """What a scan with a new index finds."""
        self.rounds += 1
        folder = self.state / f"anew-{self.rounds}"
        try:
            return self._scan(folder / "sessions.db")
        finally:
            shutil.rmtree(folder)

    def _scan(self, path: Path) -> "Seen":
        found, places = self.found()
        index = Index(path)
        try:
            done = scan(found, index, index.stamps(places))
            totals = index.totals(places)
            files = {}
            for file in found:
                row = index.counted(file.path)
                assert row is not None
                kept = tally_of(row), Ledger(row.ledger, row.models)
                files[file.path] = {**outcome(kept), "as": (row.session_id, row.forked_from)}
        finally:
            index.close()
        return Seen(done, {t[:2]: t[2:6] for t in totals}, files)


class Seen(NamedTuple):
    done: Scan
    totals: Totals
    files: dict[str, dict[str, Any]]

    def input(self, agent: str = "claude") -> dict[str, int]:
        """Input tokens by model."""
        return {model: four[0] for (who, model), four in self.totals.items() if who == agent}


def same(machine: Machine) -> Seen:
    """A scan that goes on, which must find what one from scratch finds."""
    seen, anew = machine.scan(), machine.anew()
    assert seen.totals == anew.totals
    assert seen.files == anew.files
    assert seen.done[:2] == anew.done[:2]
    assert not seen.done.unreadable
    return seen


def segue(*words: str, **environment: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "segue", *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **{name: str(value) for name, value in environment.items()}},
    )


A = "0199f6a2-0000-7e10-8a52-00000000000a"


B = "0199f6a2-0000-7e10-8a52-00000000000b"


C = "0199f6a2-0000-7e10-8a52-00000000000c"


D = "0199f6a2-0000-7e10-8a52-00000000000d"


def rollout(session: str) -> str:
    return f"rollout-2026-11-15T18-17-41-{session}.jsonl"


def session(name: str, counts: Sequence[int], *, parent: str = "", second: float = 0) -> bytes:
    """A session with requests of so many tokens; a fork has those of its parent first."""
    records = [meta(name, parent, second), turn(second=second)]
    total = 0
    for place, tokens in enumerate(counts, 1):
        total += tokens
        four = (tokens, 0, 0, 0)
        records.append(count_line(four, (total, 0, 0, 0), second=second + 10 * place))
    return b"".join(map(compact, records))


FAMILY = {
    A: session(A, [1, 2, 4]),
    B: session(B, [1, 2, 8], parent=A, second=1000),
    C: session(C, [1, 2, 8, 16], parent=B, second=2000),
    D: session(D, [1, 32], parent=A, second=3000),
}
