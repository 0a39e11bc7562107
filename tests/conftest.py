"""Every test in its own home: no config of the user's is read, no state is left behind."""

import json
import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from msgspec.structs import replace

from segue.core.event import Event, Usage

# Time is measured in bench/, not here; and CI must say the same of the same commit twice.
settings.register_profile("segue", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("segue")

DATA = Path(__file__).parent / "data"

# Whoever starts the tests in the background hands an ignored SIGINT down to all that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A private HOME and SEGUE_HOME, and a fixed time zone."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("SEGUE_HOME", str(home / "segue"))
    monkeypatch.setenv("TZ", "UTC")
    for name in ("XDG_CONFIG_HOME", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return home


def bare(events: Iterable[Event]) -> list[Event]:
    """Events without what a usage is made of: for tests about something else."""
    return [
        replace(event, parts=None, model=None) if isinstance(event, Usage) else event
        for event in events
    ]


def lines(name: str) -> list[dict[str, Any]]:
    """The JSON lines of a data file."""
    with (DATA / name).open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Shows what a scored test recorded, also when it ran in a worker."""
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, value in report.user_properties:
            if name == "summary" and report.when == "call":
                terminalreporter.write_line(str(value))
