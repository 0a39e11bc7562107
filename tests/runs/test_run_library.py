"""`from segue import run`: in any thread, with results and failures as data."""

import os
import pickle
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.running import Staged, stage

import segue
from segue import Policy, Result, RunFailed, run
from segue.errors import ConfigError, InputError


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes this process one that could run segue in a stage."""
    from contextlib import ExitStack

    with ExitStack() as stack:

        def enter(scenario: str, **more: Any) -> Staged:
            s = stack.enter_context(stage(scenario, within=tmp_path, **more))
            for name in os.environ:
                monkeypatch.delenv(name)
            for name, value in s.env.items():
                monkeypatch.setenv(name, value)
            monkeypatch.chdir(s.project)
            return s

        yield enter


_PARTS = ("input_tokens", "cache_write_tokens", "cache_read_tokens", "output_tokens")


def one_step_later(events: list[dict[str, Any]]) -> list[float]:
    """How full the window had been at each request for a checkpoint that waited for a boundary, had
    it been sent one step later."""
    found: list[float] = []
    sizes: list[int] = []
    request_tokens = 0
    for event in events:
        data = event["data"]
        if event["kind"] == "started":
            sizes = []
        elif event["kind"] == "read":
            sizes.append(sum(data["reading"][part] for part in _PARTS))
            request_tokens = data["request_tokens"]
        for decision in event["decisions"]:
            if decision["decision"] == "ask" and not decision["now"]:
                step = max(after - before for before, after in pairwise(sizes))
                found.append((sizes[-1] + 2 * step + request_tokens) / 200_000)
    return found


def test_a_run_over_full_windows_comes_back_as_a_result(here: Any) -> None:
    s = here("three-exhaustions")
    events: list[dict[str, Any]] = []
    found = run(s.task, agent="claude", on_event=events.append)
    assert isinstance(found, Result)
    assert found.legs == found.handoffs + 1
    # A step adds 16% of the window, what each session begins with a few percent more than the one
    # before. Below 90% there is room for 4 steps, then for 3, and for 2 in the last sessions.
    assert 5 <= found.handoffs <= 7
    assert all(size > 0.9 for size in one_step_later(events))
    assert found.answer == "All 19 steps are done."
    assert found.tokens > 0
    assert found.cost_usd > 0
    assert found.seconds > 0
    assert s.continuity().is_whole
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
    assert {e["run"] for e in events} == {found.run_id}
    assert events[-1]["state"] == "done"


def test_it_works_outside_the_main_thread_and_leaves_signals_alone(here: Any) -> None:
    import signal

    s = here("success")
    before = signal.getsignal(signal.SIGINT)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(run(s.task, agent="claude")))
    thread.start()
    thread.join(60)
    assert found[0].legs == 1
    assert signal.getsignal(signal.SIGINT) is before


def test_a_failure_carries_stop_usage_outcome_and_remediation_as_data(here: Any) -> None:
    s = here("auth-failure")
    with pytest.raises(RunFailed) as caught:
        run(s.task, agent="claude")
    failed = caught.value
    assert failed.stop is not None
    assert failed.stop.reason is segue.StopReason.AUTH
    assert failed.stop.evidence
    assert (failed.state, failed.reason, failed.outcome.exit_code) == ("failed", "auth", 1)
    assert failed.usage.legs == 1
    assert failed.usage.tokens > 0
    assert failed.usage.window_tokens == 200_000
    assert "API key" in failed.remediation
    assert failed.run_id in str(failed)
    assert s.state(failed.run_id) == "failed"


def test_a_failure_comes_whole_out_of_another_process(here: Any) -> None:
    s = here("auth-failure")
    with pytest.raises(RunFailed) as caught:
        run(s.task, agent="claude")
    failed, copy = caught.value, pickle.loads(pickle.dumps(caught.value))
    for name in ("run_id", "state", "stop", "usage", "outcome", "remediation", "exit_code"):
        assert getattr(copy, name) == getattr(failed, name)


def test_a_policy_is_given_whole_or_by_name(here: Any) -> None:
    s = here("success")
    own = Policy(max_legs=9)
    for policy, marks in ((own, own.hard_mark), ("early", 0.70)):
        found = run(s.task, agent="claude", policy=policy)
        with s.store() as store:
            kept = store.run(found.run_id)
        assert kept.policy.hard_mark == marks
    with pytest.raises(ConfigError):
        run(s.task, agent="claude", policy="none such")


def test_a_check_that_fails_is_a_failure(here: Any) -> None:
    s = here("success")
    with pytest.raises(RunFailed) as caught:
        run(s.task, agent="claude", check="exit 7", policy=Policy(max_checks=0))
    assert caught.value.reason == "check_failed"


def test_if_the_listener_raises_the_run_is_ended_and_the_exception_comes_out(here: Any) -> None:
    s = here("silent-hang")

    def listen(event: dict[str, Any]) -> None:
        if event["kind"] == "read":
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run(s.task, agent="claude", on_event=listen)
    (run_id,) = s.run_ids()
    assert s.state(run_id) == "cancelled"


@pytest.mark.parametrize(
    ("task", "more"),
    [
        (" ", {}),
        ("a\0b", {}),
        ("x", {"cwd": "/does/not/exist"}),
        ("x", {"agent": "nobody"}),
        ("x", {"flags": ("--resume", "y")}),
    ],
)
def test_what_cannot_be_begun_is_an_error_of_the_caller(
    here: Any, task: str, more: dict[str, Any]
) -> None:
    s = here("success")
    with pytest.raises(InputError):
        run(task, **{"agent": "claude", **more})
    assert s.run_ids() == []


def test_the_names_are_public_and_loaded_when_used() -> None:
    import subprocess
    import sys

    code = (
        "import sys, segue\n"
        "assert {'run', 'RunFailed', 'Result'} <= set(segue.__all__)\n"
        "assert 'segue.runs' not in sys.modules\n"
        "from segue import run, RunFailed, Result\n"
        "print(run.__module__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "segue.runs.library"
