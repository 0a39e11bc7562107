"""Every test has its own home: no config of the user is read, and no state is left behind."""

import gc
import json
import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from msgspec.structs import replace
from support.orphans import no_orphans as no_orphans  # a fixture

from segue.agents import drives
from segue.core.stops.events import Event, Summary, ToolCall, ToolResult, Usage

if TYPE_CHECKING:
    from support.files.scan import Machine

# Time is measured in bench/, not here; and CI must say the same of the same commit twice.
settings.register_profile("segue", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.register_profile("quick", settings.get_profile("segue"), max_examples=25)
settings.load_profile("segue")

DATA = Path(__file__).parent / "data"

# Whoever starts the tests in the background, or under nohup, hands ignored signals down to all that
# they start; and segue honours what it inherits.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


SLOW = (
    *("cli", "dashboard", "drill", "fleet", "queue", "runs", "system", "watch"),
    *("test_readme", "test_docs_elsewhere", "test_plugins", "test_simulation"),
    *("test_follow", "test_follow_folders", "test_follow_events", "test_any_file_change"),
    *("test_scan", "test_index", "test_broken_index", "test_secrets", "test_any_shape"),
    *("test_hard_codes", "test_ordinary_files", "test_trigger_files", "test_mutations"),
    *("test_any_input", "test_any_transcript", "test_user_wordings", "test_circles"),
    *("test_dead_code",),
)
"""Folders of tests/ and files that play with processes, terminals, agents or much data."""
LONG = (
    *("test_watch_stops", "test_watch_memory", "test_watch_interrupts", "test_open_agents"),
    *("test_watch_handoffs", "test_rescue_real", "test_real_agents", "test_watch_kills"),
    *("test_three_machines", "test_watch_relay", "test_real_queue", "test_pane_notices"),
    *("test_real_takeover", "test_drive_opencode", "test_real_terminals", "test_permissions"),
    *("test_drives_real", "test_loops", "test_readme", "test_rescue", "test_worker"),
)
"""Files whose tests take longest, mostly by waiting for a real agent; the longest first."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`scripts/test --quick`: the loop while editing."""
    parser.addoption("--quick", action="store_true", help="leave out what takes long")


def pytest_configure(config: pytest.Config) -> None:
    """With --quick a property is tried on fewer examples: the whole suite has them all."""
    if config.getoption("--quick"):
        settings.load_profile("quick")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Does not even read, with --quick, what stands in `SLOW` and what plays with real agents."""
    here = Path(__file__).parent
    if not config.getoption("--quick") or not collection_path.is_relative_to(here):
        return None
    first = collection_path.relative_to(here).parts[:1]
    name = collection_path.stem if collection_path.suffix == ".py" else ""
    return True if {*first, name} & {*SLOW} or "real" in name else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out, with --quick, the single tests that start a real agent. The rest is put into an
    order in which the workers end together."""
    if config.getoption("--quick"):
        real = [item for item in items if item.get_closest_marker("real_agent")]
        config.hook.pytest_deselected(items=real)
        items[:] = [item for item in items if item not in real]
    items[:] = dealt(items, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


def dealt(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """`--dist worksteal` gives each worker a piece of the list, all of one length; a worker that
    has nothing left takes from the end of another's. So what takes long is at the beginning of
    every other piece: it starts early, and at most half of the workers wait for agents at once."""
    if workers == 1:
        return items
    place = {name: number for number, name in enumerate(LONG)}
    long = sorted(
        (item for item in items if item.path.stem in place), key=lambda item: place[item.path.stem]
    )
    rest = [item for item in items if item.path.stem not in place]
    pieces = [len(items) * n // workers for n in range(workers + 1)]
    first = range(0, workers, 2)
    files = list(dict.fromkeys(item.path.stem for item in long))
    found: list[pytest.Item] = []
    for n in range(workers):
        own = {*files[n // 2 :: len(first)]} if n in first else set()
        found += [item for item in long if item.path.stem in own]
        more = max(0, pieces[n + 1] - len(found))
        found += rest[:more]
        del rest[:more]
    return found + rest


def pytest_collection_finish() -> None:
    """What was loaded up to here stays. Left out of the garbage collection, it does not have to be
    walked through each time, which is most of what a collection costs in a worker."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A private HOME and SEGUE_HOME, a fixed time zone, and only the agents that segue knows."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("SEGUE_HOME", str(home / "segue"))
    monkeypatch.setenv("TZ", "UTC")
    # What a command registers from the config of one test is unknown to the next one.
    monkeypatch.setattr(drives, "_loaded", {})
    for name in ("XDG_CONFIG_HOME", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture
def machine(tmp_path: Path) -> "Machine":
    """A machine with session files of several agents."""
    from support.files.scan import Machine

    return Machine(tmp_path)


def bare(events: Iterable[Event]) -> list[Event]:
    """Events without what a usage is made of, and without what only the digest reads: for tests
    about something else."""
    return [_bare(event) for event in events if not isinstance(event, Summary)]


def _bare(event: Event) -> Event:
    match event:
        case Usage():
            return replace(event, parts=None, model=None)
        case ToolCall():
            return replace(event, given=None)
        case ToolResult():
            return replace(event, printed="")
    return event


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
