"""A run with a list of agents: while one is limited, the next one goes on, and no step of the work
is lost or done twice."""

import json
from pathlib import Path

import pytest
from support.running import QUICK
from support.runs.relaying import healthy, limited_at, relay_stage


def test_while_the_first_agent_is_limited_the_next_one_finishes(tmp_path: Path) -> None:
    with relay_stage(limited_at(5), within=tmp_path) as s:
        ended = s.run("--json")
        assert ended.code == 0, ended.stderr
        found = s.continuity()
        assert found.is_whole, (found, s.answers)
        (run_id,) = s.run_ids()
        with s.store() as store:
            assert [leg.agent for leg in store.legs(run_id)] == ["claude", "codex"]
            run = store.run(run_id)
        assert run is not None
        assert (run.agent, run.relays) == ("codex", 1)
        told = s.segue("logs", run_id).stdout
        assert told.count("claude's MCP servers, skills and memory files do not carry over") == 1
        assert "leg 2 (codex): a new session continues" in told
        assert "claude → codex" in s.segue("runs").stdout
        (shown,) = json.loads(s.segue("report", run_id, "--format", "json").stdout)["runs"]
        assert (shown["agent"], shown["agents"]) == ("codex", ["claude", "codex"])
        assert [leg["agent"] for leg in shown["legs"]] == ["claude", "codex"]
        assert [(each["agent"], each["model"] != "") for each in shown["spend"]] == [
            ("claude", True),
            ("codex", True),
        ]
        said = s.segue("logs", run_id, "--transcript").stdout
        assert "Bash: sh job/step 4" in said  # claude's own records
        assert "command_execution: sh job/step 5" in said  # and codex's
        assert "1  claude  task  rate limit" in s.segue("show", run_id).stdout


def test_the_work_goes_back_to_the_first_agent_at_the_next_handoff_once_it_is_free(
    tmp_path: Path,
) -> None:
    policy = {**QUICK, "relay_after_s": 0, "soft_mark": 0.5, "hard_mark": 0.95}
    first = limited_at(3, steps=12, resets_in_s=1)
    # The second one's model takes its time, so the first is free when its window is full.
    slow = "[context]\nfills_after_steps = 7.5\n[[rules]]\nbefore_step = 4\ndelay_s = 4\n"
    with relay_stage(first, healthy(12, slow), within=tmp_path, policy=policy) as s:
        ended = s.run("--json")
        assert ended.code == 0, ended.stderr
        found = s.continuity()
        assert found.is_whole, (found, s.answers)
        (run_id,) = s.run_ids()
        with s.store() as store:
            worked = [leg.agent for leg in store.legs(run_id) if leg.purpose == "work"]
        assert worked == ["claude", "codex", "claude"]


def test_it_stays_with_the_second_agent_if_the_user_wants_no_way_back(tmp_path: Path) -> None:
    window = "[context]\nfills_after_steps = 9.5\n"
    policy = {**QUICK, "relay_after_s": 0, "soft_mark": 0.5, "relay_back": "never"}

    first = limited_at(3, steps=12, resets_in_s=2)
    with relay_stage(first, healthy(12, window), within=tmp_path, policy=policy) as s:
        ended = s.run("--json")
        assert ended.code == 0, ended.stderr
        assert s.continuity().is_whole
        (run_id,) = s.run_ids()
        with s.store() as store:
            agents = {leg.agent for leg in store.legs(run_id)[1:]}
        assert agents == {"codex"}


def test_if_all_are_limited_it_waits_for_the_first_reset(tmp_path: Path) -> None:
    """claude for two hours, codex for three seconds: codex goes on, and claude is not asked."""
    second = limited_at(5, resets_in_s=3)
    policy = {**QUICK, "relay_after_s": 1}
    with relay_stage(limited_at(3), second, within=tmp_path, policy=policy) as s:
        ended = s.run("--json")
        assert ended.code == 0, ended.stderr
        found = s.continuity()
        assert found.is_whole, (found, s.answers)
        (run_id,) = s.run_ids()
        with s.store() as store:
            assert [leg.agent for leg in store.legs(run_id)] == ["claude", "codex", "codex"]
        waits = [d for e in ended.events for d in e["decisions"] if d["decision"] == "waituntil"]
        assert len(waits) == 1
        assert waits[0]["wait"]["reset_at"] is not None


@pytest.mark.parametrize("fault", ["billing", "auth"])
def test_an_agent_without_credit_or_login_hands_its_work_on(fault: str, tmp_path: Path) -> None:
    scenario = (
        limited_at(4)
        .replace('"plan_limit"', f'"{fault}"')
        .replace("resets_in_s = 7200", 'times = "for ever"')
    )
    with relay_stage(scenario, within=tmp_path) as s:
        ended = s.run("--json")
        assert ended.code == 0, ended.stderr
        assert s.continuity().is_whole
        (run_id,) = s.run_ids()
        with s.store() as store:
            assert [leg.agent for leg in store.legs(run_id)] == ["claude", "codex"]


def test_the_next_agent_is_told_about_the_instructions_that_it_does_not_read(
    tmp_path: Path,
) -> None:
    with relay_stage(limited_at(3, steps=4), healthy(4), within=tmp_path) as s:
        (s.project / "CLAUDE.md").write_text("Use tabs.\n")
        assert s.run().code == 0
        (run_id,) = s.run_ids()
        told = (s.leg(run_id, 2) / "prompt.md").read_text()
        assert "another agent (claude); you are codex" in told
        assert "This project's instructions are also in CLAUDE.md" in told


def test_each_agent_has_only_its_own_flags(tmp_path: Path) -> None:
    with relay_stage(limited_at(3, steps=4), healthy(4), within=tmp_path) as s:
        s.config('[run.flags]\ncodex = ["-c", "model_reasoning_effort=low"]\n')
        ended = s.segue("run", "--agent", "claude,codex", s.task, "--", "--model", "opus")
        assert ended.code == 0, ended.stderr
        (run_id,) = s.run_ids()
        argvs = [json.loads((s.leg(run_id, n) / "spec.json").read_text()) for n in (1, 2)]
        first, second = (json.dumps(argv) for argv in argvs)
        assert "opus" in first
        assert "reasoning" not in first
        assert "reasoning" in second
        assert "opus" not in second
