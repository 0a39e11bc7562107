"""kill -9 of segue at each transition that a relay adds, then `segue resume`: the next agent goes
on, nothing is lost, nothing is done twice."""

from pathlib import Path

import pytest
from support.running import QUICK
from support.runs.killing import PLACES, check_killed
from support.runs.relaying import healthy, limited_at, relay_stage

RELAY = (
    ("working", "legended"),  # claude is limited: what is handed on is written down
    ("checkpointing", "composed"),  # codex is to go on
    ("handing over", "started"),
    ("handing over", "named"),
    ("handing over", "replied"),
)
NOT_STARTED = (("starting", "limited"), ("starting", "started"))
BOTH = (("waiting", "elapsed"),)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("at", RELAY, ids=" ".join)
def test_killed_while_another_agent_takes_over_it_continues_and_repeats_nothing(
    at: tuple[str, str], place: str, tmp_path: Path
) -> None:
    with relay_stage(limited_at(3, steps=5), healthy(5), within=tmp_path) as s:
        run_id = check_killed(s, f"{at[0]} {at[1]} {place}")
        with s.store() as store:
            assert [leg.agent for leg in store.legs(run_id)] == ["claude", "codex"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("at", NOT_STARTED, ids=" ".join)
def test_killed_when_the_first_agent_is_known_to_be_limited_it_begins_with_the_next(
    at: tuple[str, str], place: str, tmp_path: Path
) -> None:
    """An earlier run met the limit: claude is not asked, and leg 1 is codex's."""
    policy = {**QUICK, "max_limited_s": 0}
    with relay_stage(limited_at(1, steps=4), healthy(4), within=tmp_path, policy=policy) as s:
        alone = s.segue("run", "--agent", "claude", s.task)
        assert alone.code == 75, alone.stderr
        (first,) = s.run_ids()
        assert s.segue("forget", first).code == 0
        asked = len(s.server.requests)
        run_id = check_killed(s, f"{at[0]} {at[1]} {place}")
        assert len(s.server.requests) == asked
        with s.store() as store:
            assert [leg.agent for leg in store.legs(run_id)] == ["codex"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("at", BOTH, ids=" ".join)
def test_killed_while_all_agents_are_limited_it_continues_after_the_first_reset(
    at: tuple[str, str], place: str, tmp_path: Path
) -> None:
    policy = {**QUICK, "relay_after_s": 1}
    second = limited_at(4, steps=5, resets_in_s=3)
    with relay_stage(limited_at(3, steps=5), second, within=tmp_path, policy=policy) as s:
        check_killed(s, f"{at[0]} {at[1]} {place}")
