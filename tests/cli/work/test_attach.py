"""What `segue attach` copies, wherever the run is when somebody looks."""

import os
from pathlib import Path
from typing import Any

import pytest
from support.running import Staged, stage

from segue.cli.support.run.stage import RunStage
from segue.cli.work import attach
from segue.core.runs.types import LegStarted, Run
from segue.runs.store import projection
from segue.runs.store.port import Entry
from segue.runs.store.sqlite import SqliteStore
from segue.system.config import settings


class Growing:
    """A store of a run that is still being written when it is first read: then `run_entries` of
    its entries make the run, and `log_entries` are in its log."""

    def __init__(self, store: SqliteStore, run_id: str, run_entries: int, log_entries: int) -> None:
        self.store, self.is_old = store, True
        self.entries = store.log(run_id)
        self.first = run_after(self.entries[:run_entries])
        self.log_entries = log_entries

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def run(self, run_id: str) -> Run | None:
        return self.first if self.is_old else self.store.run(run_id)

    def log(self, run_id: str, after_seq: int = 0) -> list[Entry]:
        if not self.is_old:
            return self.store.log(run_id, after_seq)
        self.is_old = False
        return self.entries[: self.log_entries]


def run_after(entries: list[Entry]) -> Run:
    *_, (_, run) = projection.replay(entries, projection.todays_machine())
    return run


def starts(entries: list[Entry]) -> list[int]:
    """The places of the entries with which legs have started."""
    return [
        number
        for number, entry in enumerate(entries)
        if entry.seq > 1 and isinstance(projection.fact_of(entry), LegStarted)
    ]


def raw_of(s: Staged, store: Growing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attaches with `--raw`."""
    for name, value in s.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(attach, "driver", lambda *_: 1)
    raw = RunStage(settings.load(str(s.project), os.environ), as_json=False, raw=True)
    assert attach._View(store, store.first, raw).show() == 0
    raw.finish()


def stdout_of(s: Staged, run_id: str, *legs: int) -> str:
    return "".join(s.leg(run_id, leg).joinpath("stdout").read_text() for leg in legs)


def test_raw_copies_a_leg_once_that_was_decided_on_and_starts_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with stage("success", within=tmp_path) as s, s.store() as store:
        assert s.run().code == 0
        (run_id,) = s.run_ids()
        before = starts(store.log(run_id))[0]
        growing = Growing(store, run_id, before, before)
        assert growing.first.leg == 1
        raw_of(s, growing, monkeypatch)
        assert capfd.readouterr().out == stdout_of(s, run_id, 1)


def test_raw_copies_a_leg_that_starts_after_the_run_was_read_and_before_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with stage("three-exhaustions", within=tmp_path) as s, s.store() as store:
        assert s.run().code == 0
        (run_id,) = s.run_ids()
        second, third = starts(store.log(run_id))[1:3]
        growing = Growing(store, run_id, second, third)
        assert growing.first.leg == 2
        raw_of(s, growing, monkeypatch)
        legs = range(2, store.run(run_id).leg + 1)  # type: ignore[union-attr]
        assert capfd.readouterr().out == stdout_of(s, run_id, *legs)
