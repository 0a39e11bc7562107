"""One account, one limit, through `segue run`: when one run hits a limit, the other does not
try."""

import json
from pathlib import Path

import pytest
from support.running import QUICK, Staged, stage
from support.runs.relaying import limited_at

from segue.drill.plays import job


def second_project(s: Staged) -> Path:
    folder = s.root / "second"
    folder.mkdir()
    job.make(folder, s.scenario.job)
    return folder


def begin_second(s: Staged, folder: Path) -> str:
    """Another run of the same account, elsewhere; its id, once it waits."""
    (first,) = s.run_ids()
    s.start("run", "--json", "--agent", s.agent, s.task, cwd=folder)
    run_id = s.until(lambda: next((i for i in s.run_ids() if i != first), ""))
    s.until(lambda: s.state(run_id) == "waiting")
    return str(run_id)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    scenario = tmp_path / "limited.toml"
    scenario.write_text(limited_at(3, steps=4, resets_in_s=6))
    return scenario


def test_the_other_run_sends_not_one_request_before_the_reset(place: Path, tmp_path: Path) -> None:
    with stage(place, within=tmp_path) as s:
        folder = second_project(s)
        process, run_id = s.new_run("--json")
        s.until(lambda: s.state(run_id) == "waiting")
        asked = len(s.server.requests)
        other = begin_second(s, folder)
        with s.store() as store:
            first, second = store.run(run_id), store.run(other)
        assert first is not None
        assert second is not None
        assert first.wait is not None
        assert second.wait is not None
        reset_at = first.wait.reset_at
        assert second.wait.reset_at == reset_at
        for each in s.started:
            assert s.end(each).code == 0
        requests = s.server.requests
        assert reset_at is not None
        assert all(request.at >= reset_at for request in requests[asked:])
        for project in (s.project, folder):
            assert job.check(project, s.scenario.job, finished=True).is_whole
        assert process.returncode == 0


def test_a_run_says_before_it_starts_that_the_account_is_limited_and_so_do_limits_and_status(
    place: Path, tmp_path: Path
) -> None:
    place.write_text(limited_at(3, steps=4))
    with stage(place, within=tmp_path, policy={**QUICK, "max_limited_s": 0}) as s:
        assert s.run().code == 75
        said = s.run("--strict")
        assert said.code == 2
        assert "claude is limited until " in said.stderr
        told = s.segue("limits", "--json")
        found = json.loads(told.stdout)
        (account,) = found["accounts"]
        (limit,) = [each for each in account["limits"] if each["met"]]
        assert (found["schema"], account["agent"], account["kind"]) == (1, "claude", "plan")
        assert account["limited_until"] == limit["resets_at"]
        assert limit["by"] in s.run_ids()
        assert "limits: claude: limited until " in s.segue("status").stderr
        assert s.segue("limits").stdout.startswith(account["account"])
        asked = len(s.server.requests)
        assert s.run().code == 75  # it does not even try
        assert len(s.server.requests) == asked
        assert s.segue("limits", "--clear", "nobody").code == 2
        assert s.segue("limits", "--clear").code == 0
        (left,) = json.loads(s.segue("limits", "--json").stdout)["accounts"]
        assert {each["source"] for each in left["limits"]} == {"session"}  # its own file says so
        s.run()
        assert len(s.server.requests) > asked


def test_another_account_is_not_kept_waiting(place: Path, tmp_path: Path) -> None:
    place.write_text(limited_at(3, steps=4))
    with stage(place, within=tmp_path, policy={**QUICK, "max_limited_s": 0}) as s:
        assert s.run().code == 75
        asked = len(s.server.requests)
        assert s.run(CLAUDE_CODE_OAUTH_TOKEN="another").code == 75
        assert len(s.server.requests) > asked
