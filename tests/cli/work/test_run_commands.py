"""`runs`, `show`, `logs`, `cancel`, `rerun` and `--dry-run`, through the real command line."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from support.running import QUICK, Staged, stage

from segue.runs.legs.leg import Leg


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Staged, str]]:
    """A run with handoffs that is over, for all who only look at it."""
    with stage("three-exhaustions", within=tmp_path_factory.mktemp("done")) as s:
        ended = s.run("--json")
        assert ended.code == 0, ended.stderr
        yield s, ended.events[0]["run"]


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[Staged]:
    """The model hangs in the middle of the first run: it stays as it is until something is done."""
    with stage("silent-hang", within=tmp_path, policy={**QUICK, "stall_s": 120.0}) as s:
        yield s


def hung(s: Staged) -> bool:
    return bool(s.answers) and s.answers[-1] not in ("step 1", "step 2")


# Events


def test_events_are_numbered_without_gaps_and_end_in_a_final_state(
    done: tuple[Staged, str],
) -> None:
    s, run = done
    events = s.segue("logs", run, "--json").events
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
    assert {e["run"] for e in events} == {run}
    assert {e["schema"] for e in events} == {1}
    assert events[0]["kind"] == "created"
    assert events[-1]["state"] == "done"
    assert events[-1]["decisions"][-1]["decision"] == "finish"


def test_logs_as_json_are_what_run_printed(tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        ended = s.run("--json")
        again = s.segue("logs", "--json", ended.events[0]["run"])
        assert again.stdout == ended.stdout


# logs


def legs_of(s: Staged, run: str) -> int:
    """How often a handoff is due depends on how fast the machine lets the agent grow."""
    return len(json.loads(s.segue("show", "--json", run).stdout)["leg_list"])


def test_logs_are_dated_lines_from_the_beginning_to_the_outcome(done: tuple[Staged, str]) -> None:
    s, run = done
    legs = legs_of(s, run)
    assert legs >= 4
    lines = s.segue("logs", run).lines
    assert f"{run}: claude in {s.project}" in lines[0]
    assert "leg 1" in lines[1]
    assert lines[-1].endswith(f"done: completed in {legs} legs")
    for number in range(1, legs):
        assert any(f"handoff {number}" in line for line in lines)


def test_logs_of_one_leg_tell_of_no_other(done: tuple[Staged, str]) -> None:
    s, run = done
    lines = s.segue("logs", run, "--leg", "2").lines
    assert lines
    assert not [line for line in lines if "leg 3" in line or "leg 1" in line]
    assert s.segue("logs", run, "--leg", "99").code == 2


def test_agent_output_is_what_the_legs_wrote_byte_for_byte(done: tuple[Staged, str]) -> None:
    s, run = done
    files = [s.leg(run, number) / "stdout" for number in range(1, legs_of(s, run) + 1)]
    assert s.segue("logs", run, "--agent-output").stdout == "".join(f.read_text() for f in files)
    one = s.segue("logs", run, "--agent-output", "--leg", "3")
    assert one.stdout == files[2].read_text()
    errors = s.segue("logs", run, "--stderr", "--leg", "1")
    assert (errors.code, errors.stdout) == (0, (s.leg(run) / "stderr").read_text())


def test_following_from_another_process_ends_with_the_run(tmp_path: Path) -> None:
    with stage("three-exhaustions", within=tmp_path) as s:
        process, run = s.new_run()
        follower = s.start("logs", "-f", run)
        output = s.start("logs", "-f", "--agent-output", run)
        followed = s.end(follower)
        assert (followed.code, s.end(process).code) == (0, 0)
        assert followed.stdout == s.segue("logs", run).stdout
        assert s.end(output).stdout == s.segue("logs", run, "--agent-output").stdout


def test_ctrl_c_ends_following_quietly_and_leaves_the_run_alone(hanging: Staged) -> None:
    process, run = hanging.new_run()
    follower = hanging.start("logs", "-f", run)
    assert follower.stdout is not None
    assert run in follower.stdout.readline()
    os.kill(follower.pid, signal.SIGINT)
    ended = hanging.end(follower)
    assert (ended.code, ended.stderr) == (130, "")
    assert process.poll() is None
    assert hanging.state(run) == "working"


def test_ctrl_c_ends_following_also_when_a_library_swallows_the_exception(
    hanging: Staged, tmp_path: Path
) -> None:
    script = tmp_path / "swallowing.py"
    script.write_text(
        "import signal\n"
        "from segue.cli.work import logs\n"
        "lines = logs.Teller.lines\n"
        "def swallowing(*args):\n"
        "    try:\n"
        "        signal.raise_signal(signal.SIGINT)\n"
        "    except KeyboardInterrupt:\n"
        "        pass\n"
        "    return lines(*args)\n"
        "logs.Teller.lines = swallowing\n"
        "from segue.start import main\n"
        "main()\n"
    )
    _, run = hanging.new_run()
    ended = hanging.end(hanging.start_script(script, "logs", "-f", run))
    assert (ended.code, ended.stderr) == (130, "")


def test_following_does_not_keep_a_processor_busy(hanging: Staged) -> None:
    _, run = hanging.new_run()
    hanging.until(lambda: hung(hanging))
    follower = hanging.start("logs", "-f", run)
    assert follower.stdout is not None
    assert follower.stdout.readline()

    def ticks() -> int:
        fields = Path(f"/proc/{follower.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    before, switches = ticks(), 0

    def looked() -> bool:
        nonlocal switches
        switches += 1
        return switches > 75  # 20 ms each

    hanging.until(looked)
    assert ticks() - before < 0.2 * 1.5 * os.sysconf("SC_CLK_TCK")


# runs


def test_unfinished_runs_come_first_with_the_way_to_resume_them(hanging: Staged) -> None:
    process, run = hanging.new_run()
    hanging.until(lambda: hung(hanging))
    listed = json.loads(hanging.segue("runs", "--json").stdout)["runs"]
    assert [(r["run"], r["state"], r["driven_by"]) for r in listed] == [
        (run, "working", process.pid)
    ]
    process.kill()
    process.wait()
    assert hanging.run("--json", "--share-tree").code == 0  # a newer one, which is done
    gone = hanging.segue("runs")
    assert gone.lines[1].startswith(run)
    assert "working, unattended" in gone.lines[1]
    assert f"segue resume {run}" in gone.stderr
    listed = json.loads(hanging.segue("runs", "--json").stdout)["runs"]
    assert [(r["run"] == run, r["driven_by"]) for r in listed] == [(True, None), (False, None)]


def test_runs_are_readable_at_80_columns(done: tuple[Staged, str]) -> None:
    s, run = done
    shown = s.segue("runs", COLUMNS="80", FORCE_COLOR="1", NO_COLOR="1", TERM="xterm").lines
    assert all(len(click.unstyle(line)) <= 80 for line in shown)
    assert run in shown[1]
    assert "done" in shown[1]
    legs = legs_of(s, run)
    assert f"{legs}/{legs - 1}" in shown[1]


def test_a_pipe_gets_plain_lines(done: tuple[Staged, str]) -> None:
    s, run = done
    for words in (("runs",), ("show", run), ("logs", run)):
        said = s.segue(*words)
        assert said.code == 0
        assert "\x1b" not in said.stdout
        assert not [line for line in said.lines if line != line.rstrip()]


def test_here_lists_this_folder_alone(done: tuple[Staged, str]) -> None:
    s, run = done
    assert run in s.segue("runs", "--here").stdout
    elsewhere = s.segue("runs", "--here", cwd=s.root)
    assert (elsewhere.code, elsewhere.stdout) == (0, "")
    assert json.loads(s.segue("runs", "--here", "--json", cwd=s.root).stdout)["runs"] == []


# show


def test_show_tells_all_about_a_run(done: tuple[Staged, str]) -> None:
    s, run = done
    told = s.segue("show", run)
    assert told.code == 0, told.stderr
    for words in (
        "done",
        "This repository has a job",
        "stall_s = 8",
        "leg",
        "at most",
    ):
        assert words in told.stdout
    assert str(s.home / "runs" / run) in told.stdout
    found = json.loads(s.segue("show", "--json", run).stdout)
    numbers = [leg["leg"] for leg in found["leg_list"]]
    assert numbers == list(range(1, len(numbers) + 1))
    assert all(leg["session_id"] and leg["ended_at"] for leg in found["leg_list"])
    assert sum(leg["tokens"] for leg in found["leg_list"]) == found["tokens"] > 0
    assert found["policy"] == {"name": "graduated", "changed": QUICK}
    assert found["readings"]
    assert found["decisions"]
    assert found["stops"]
    assert found["checkpoint"].startswith("##")
    assert found["answer"] == "All 19 steps are done."
    assert (found["state"], found["exit_code"], found["handoffs"]) == ("done", 0, len(numbers) - 1)


def test_show_of_a_wait_tells_until_when_and_why(tmp_path: Path) -> None:
    with stage("plan-limit", within=tmp_path) as s:
        process = s.start_run("--json")
        run = s.until(lambda: next(iter(s.run_ids()), ""))
        s.until(lambda: s.state(run) == "waiting")
        listed = json.loads(s.segue("runs", "--json").stdout)["runs"][0]
        assert (listed["state"], listed["driven_by"]) == ("waiting", process.pid)
        assert listed["waits_until"]
        (wait,) = json.loads(s.segue("show", "--json", run).stdout)["waits"]
        assert wait["why"] == "rate_limit"
        assert wait["reset_at"]
        assert "until" in s.segue("show", run).stdout
        assert s.segue("cancel", run).code == 0
        assert s.end(process).code == 130


def test_show_of_a_session_stays_what_it_was(done: tuple[Staged, str]) -> None:
    s, run = done
    session = json.loads(s.segue("show", "--json", run).stdout)["session_id"]
    told = json.loads(s.segue("show", "--json", session).stdout)
    assert (told["session_id"], told["agent"]) == (session, "claude")


# cancel


def test_cancel_asks_the_segue_that_drives_it(hanging: Staged) -> None:
    process, run = hanging.new_run()
    hanging.until(lambda: hung(hanging))
    cancelled = hanging.segue("cancel", run)
    assert cancelled.code == 0
    assert f"{run} is cancelled" in cancelled.stdout
    assert hanging.end(process).code == 130
    assert Leg(hanging.leg(run)).status().state == "ended"
    again = hanging.segue("cancel", run)
    assert (again.code, again.lines) == (0, [f"{run} has already ended: cancelled"])


def test_cancel_ends_the_agent_of_a_segue_that_is_gone(hanging: Staged) -> None:
    process, run = hanging.new_run()
    hanging.until(lambda: hung(hanging))
    process.kill()
    process.wait()
    assert Leg(hanging.leg(run)).status().state == "running"
    requests = len(hanging.server.requests)
    cancelled = hanging.segue("cancel", run)
    assert cancelled.code == 0, cancelled.stderr
    assert f"{run} is cancelled" in cancelled.stdout
    assert Leg(hanging.leg(run)).status().state == "ended"
    assert hanging.state(run) == "cancelled"
    assert len(hanging.server.requests) == requests  # nothing was started to be ended


def test_cancel_works_without_the_agent_and_with_a_broken_config(hanging: Staged) -> None:
    process, run = hanging.new_run()
    hanging.until(lambda: hung(hanging))
    process.kill()
    process.wait()
    (hanging.home / "config.toml").write_text("what is this")
    assert hanging.segue("cancel", run).code == 0
    assert Leg(hanging.leg(run)).status().state == "ended"


def test_cancel_starts_no_agent_that_was_only_decided_on(tmp_path: Path) -> None:
    """As after a kill between the decision and the start."""
    with stage("success", within=tmp_path) as s:
        from segue.core.policy import Policy
        from segue.core.runs import machine
        from segue.core.runs.types import Abilities, Created, Run

        run = Run(
            id="run-00000001", task=s.task, agent="claude", cwd=str(s.project), created_at=1.0,
            policy=Policy(), abilities=Abilities(talks=True),
        )  # fmt: skip
        step = machine.step(run, Created(), at=1.0, draw=0.0)
        with s.store() as store:
            store.create(run, after=step.run, at=1.0, draw=0.0, decisions=step.decisions)
        cancelled = s.segue("cancel", run.id)
        assert cancelled.code == 0, cancelled.stderr
        assert (s.state(run.id), s.server.requests) == ("cancelled", [])
        assert not (s.leg(run.id) / "keeper.json").exists()


def test_a_cancelled_run_can_be_resumed(hanging: Staged) -> None:
    process, run = hanging.new_run()
    hanging.until(lambda: hung(hanging))
    assert hanging.segue("cancel", run).code == 0
    hanging.end(process)
    resumed = hanging.segue("resume", run)
    assert resumed.code == 0, resumed.stderr
    assert hanging.continuity().is_whole


def test_what_the_user_adds_reaches_the_session_and_every_later_one(tmp_path: Path) -> None:
    words = "Use port 8081.\nDo not touch legacy/."
    mine = tmp_path / "full.toml"
    hangs = "[[rules]]\nbefore_step = 3\ndelivery = 'hang'\n"
    mine.write_text(f"about = 'x'\n[job]\nsteps = 6\n{hangs}")
    with stage(mine, within=tmp_path, policy={**QUICK, "stall_s": 120.0}) as s:
        s.server.server.bodies = True
        process, run = s.new_run()
        s.until(lambda: hung(s))
        assert s.segue("cancel", run).code == 0
        s.end(process)
        before = len(s.server.requests)
        assert s.segue("resume", run, "--say", "  ").code == 2
        resumed = s.segue("resume", run, "--say", words)
        assert resumed.code == 0, resumed.stderr
        again = s.segue("resume", run, "--fresh", "--say", "And one more thing.")
        assert again.code == 0, again.stderr
        for number, told in ((2, [words]), (3, [words, "And one more thing."])):
            prompt = (s.leg(run, number) / "prompt.md").read_text()
            assert all(prompt.count(each) == 1 for each in told), prompt
        bodies = [json.dumps(r.body) for r in s.server.requests[before:] if r.body]
        assert all("Use port 8081." in body for body in bodies)
        as_json = json.loads(s.segue("show", "--json", run).stdout)
        assert as_json["said"] == [words, "And one more thing."]
        shown = s.segue("show", run).stdout
        assert "Use port 8081." in shown
        assert "And one more thing." in shown


# rerun


def test_rerun_begins_the_same_task_as_a_new_run(tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        words = ["run", "--agent", s.agent, "--check", "test -d steps", "--set", "max_legs=7"]
        assert s.segue(*words, s.task, "--", "--model", "sonnet").code == 0
        (first,) = s.run_ids()
        again = s.segue("rerun", first, "--json", cwd=s.root)
        assert again.code == 0, again.stderr
        second = again.events[0]["run"]
        assert second != first
        with s.store() as store:
            old, new = store.run(first), store.run(second)
        assert old is not None
        assert new is not None
        for name in ("task", "agent", "cwd", "flags", "check", "policy"):
            assert getattr(old, name) == getattr(new, name)
        assert old.flags == ("--model", "sonnet")
        assert old.policy.max_legs == 7


def test_rerun_carries_what_the_user_added(tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        assert s.run().code == 0
        (first,) = s.run_ids()
        words = ["Use port 8081.", "Do not touch legacy/."]
        for each in words:
            resumed = s.segue("resume", first, "--fresh", "--say", each)
            assert resumed.code == 0, resumed.stderr
        s.server.server.bodies = True
        before = len(s.server.requests)
        again = s.segue("rerun", first, "--json")
        assert again.code == 0, again.stderr
        second = again.events[0]["run"]
        prompt = (s.leg(second, 1) / "prompt.md").read_text()
        assert prompt.startswith(s.task)
        assert [prompt.count(each) for each in words] == [1, 1]
        requests = [json.dumps(each.body) for each in s.server.requests[before:] if each.body]
        assert [request.count(words[0]) for request in requests] == [1] * len(requests)
        assert json.loads(s.segue("show", "--json", second).stdout)["said"] == words
        resumed = s.segue("resume", second, "--fresh")
        assert resumed.code == 0, resumed.stderr
        assert (s.leg(second, 2) / "prompt.md").read_text().count(words[1]) == 1


# --dry-run


def test_a_dry_run_writes_nothing_and_starts_nothing(tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        before = sorted(s.root.rglob("*"))
        told = s.run("--dry-run", "--set", "max_legs=4")
        assert told.code == 0, told.stderr
        assert "max_legs = 4 (flag --set max_legs; default none)" in told.stdout
        assert "segue.drill.rehearsal -p --input-format stream-json" in told.stdout
        assert "SEGUE_RUN=" in told.stdout
        assert str(s.home / "runs.db") in told.stdout
        assert sorted(s.root.rglob("*")) == before
        assert s.server.requests == []


def test_a_dry_run_as_json_names_command_policy_and_marks(tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        words = ["run", "--agent", "claude", "--dry-run", "--json", "--policy", "early", "x y"]
        found = json.loads(s.segue(*words, "--", "--model", "claude-sonnet-4-5").stdout)
        assert found["argv"][-2:] == ["--session-id", "SESSION-ID"]
        assert "--model" in found["argv"]
        assert found["task"] == "x y"
        assert found["policy"]["hard_mark"] == {
            "value": 0.7, "default": 0.85, "source": "preset early",
        }  # fmt: skip
        marks = found["marks"]
        assert marks["soft"] <= marks["hard"] <= 0.7 * marks["window"]
        assert found["prompts"] == dict.fromkeys(found["prompts"])


def test_a_dry_run_shows_no_secret_of_an_agents_environment(tmp_path: Path) -> None:
    more = (
        '[agents.mine]\ncommand = ["sh", "-c", "true"]\n'
        'env = {API_KEY = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789", PLAIN = "x"}\n'
    )
    with stage("success", within=tmp_path, more=more) as s:
        told = s.segue("run", "--agent", "mine", "--dry-run", "a task")
        assert told.code == 0, told.stderr
        assert "abcdefghijklmnopqrstuvwxyz" not in told.stdout
        assert "PLAIN=x" in told.stdout


# What is documented


def test_every_kind_of_event_and_decision_is_documented() -> None:
    from typing import get_args

    from segue.core.runs.types import AnyDecision, AnyFact, RunState

    text = (Path(__file__).parents[3] / "docs/json.md").read_text()
    for kind in (*get_args(AnyFact), *get_args(AnyDecision)):
        tag = kind.__struct_config__.tag
        row = next(line for line in text.splitlines() if line.startswith(f"| `{tag}` |"))
        for name in kind.__struct_encode_fields__:
            assert name == "reason" or f"`{name}`" in row, (tag, name)
    for state in RunState:
        assert f"`{state.value}`" in text


def test_every_field_of_a_run_is_documented(done: tuple[Staged, str]) -> None:
    s, run = done
    text = (Path(__file__).parents[3] / "docs/json.md").read_text()
    found = json.loads(s.segue("show", "--json", run).stdout)
    for name in (*found, *found["leg_list"][0], *found["readings"][0]):
        assert name in text
    assert set(json.loads(s.segue("runs", "--json").stdout)["runs"][0]) < set(found)
