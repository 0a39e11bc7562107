"""kill -9 of segue at each transition of the machine, then `segue resume`: nothing is lost, nothing
is done twice, nothing is left running."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from support.running import stage
from support.runs.killing import check_killed

# State and fact, as they first come in a run of that scenario.
WINDOW = (
    ("starting", "started"),
    ("starting", "replied"),
    ("working", "read"),
    ("working", "boundary"),
    ("checkpointing", "read"),
    ("checkpointing", "told"),
    ("checkpointing", "legended"),
    ("checkpointing", "composed"),
    ("handing over", "started"),
    ("handing over", "replied"),
    ("handing over", "read"),
    ("checkpointing", "arrived"),
    ("working", "legended"),
    ("checking", "checked"),
)
LIMIT = (
    ("working", "legended"),
    ("waiting", "elapsed"),
    ("resuming", "started"),
    ("resuming", "replied"),
)
REFUSED = (("checkpointing", "legended"), ("checkpointing", "composed"))
SHORT_LIMIT = """\
about = "The plan's limit is reached, and there is a new one three seconds later."
[job]
steps = 4
[[rules]]
before_step = 3
fault = "plan_limit"
resets_in_s = 3
[options.rehearsal]
plan = "1"
"""
PLACES = ("before", "after")  # what is before a fact is after all that the last one led to
_POLICY = {
    "reset_jitter_min_s": 0.1,
    "reset_jitter_max_s": 0.3,
    "unknown_reset_wait_s": 1.0,
    "unknown_reset_max_s": 2.0,
    "stall_s": 20.0,
    "soft_mark": 0.5,  # so that there is a boundary between the marks, however quick the agent is
    "hard_mark": 0.95,
}


def check_goes_on(scenario: str, point: str, tmp_path: Path, more: Sequence[str] = ()) -> None:
    with stage(scenario, within=tmp_path, policy=_POLICY) as s:
        check_killed(s, point, more)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("at", WINDOW, ids=" ".join)
def test_killed_in_a_run_with_a_handoff_and_a_check_it_continues_and_repeats_nothing(
    at: tuple[str, str], place: str, tmp_path: Path
) -> None:
    check_goes_on("window-fills-slowly", f"{at[0]} {at[1]} {place}", tmp_path, ("--check", "true"))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("at", LIMIT, ids=" ".join)
def test_killed_in_a_run_with_a_limit_it_waits_on_and_repeats_nothing(
    at: tuple[str, str], place: str, tmp_path: Path
) -> None:
    scenario = tmp_path / "short-limit.toml"
    scenario.write_text(SHORT_LIMIT)
    check_goes_on(str(scenario), f"{at[0]} {at[1]} {place}", tmp_path)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("at", REFUSED, ids=" ".join)
def test_killed_while_a_full_session_is_replaced_it_continues_and_repeats_nothing(
    at: tuple[str, str], place: str, tmp_path: Path
) -> None:
    check_goes_on("too-long-no-compaction", f"{at[0]} {at[1]} {place}", tmp_path)


def test_the_transitions_above_are_all_that_such_runs_have(tmp_path: Path) -> None:
    """Else a new one would never be killed at."""
    listed = {*WINDOW, *LIMIT, *REFUSED, ("", "created"), ("working", "replied")}
    listed.add(("checkpointing", "boundary"))  # if the session was asked while its tool ran
    listed.add(("working", "arrived"))  # if it made its first calls before it was asked
    for scenario, more in (("window-fills-slowly", ("--check", "true")), ("plan-limit", ())):
        with stage(scenario, within=tmp_path, policy=_POLICY) as s:
            ended = s.run("--json", *more)
            assert ended.code == 0, ended.stderr
            states = ["", *(event["state"] for event in ended.events)]
            kinds = [event["kind"] for event in ended.events]
            assert set(zip(states, kinds, strict=False)) <= listed
