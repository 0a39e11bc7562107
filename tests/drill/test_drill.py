"""`segue drill` as a user sees it, with the agent that is always available."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from support.playing import play

from segue.cli import cli
from segue.drill.casts import REAL, Cast, kind_of
from segue.drill.model.ask import Ask, Kind, Part
from segue.drill.plays import enclosure
from segue.drill.plays.director import Director, DrillError
from segue.drill.plays.matrix import Matrix, markdown
from segue.drill.plays.outcome import PlayOutcome
from segue.drill.scenarios import load
from segue.drill.scenarios.types import Expectation, Scenario

# What the bundled agent survives alone, and why it stops where it does not.
WITHOUT_SEGUE = {
    "facts-compacted-away": (False, "completed"),
    "facts-from-the-user": (False, "completed"),
    "facts-never-asked": (False, "context_exhausted"),
    "facts-told-once": (False, "completed"),
    "success": (True, "completed"),
    "window-fills-slowly": (True, "completed"),
    "window-fills-at-once": (True, "completed"),
    "three-exhaustions": (True, "completed"),
    "too-long-first": (False, "context_exhausted"),
    "too-long-no-compaction": (False, "context_exhausted"),
    "short-rate-limit": (True, "completed"),
    "plan-limit": (False, "rate_limit"),
    "overloaded-then-fine": (True, "completed"),
    "dropped-streams": (True, "completed"),
    "silent-hang": (False, "timeout"),
    "crash-in-tool": (False, "crash"),
    "user-interrupt": (True, "user_exit"),
    "turn-limit": (True, "max_turns"),
    "auth-failure": (True, "auth"),
    "billing": (True, "billing"),
}


TELLING = ["plan-limit", "too-long-no-compaction", "crash-in-tool"]


def drill(*words: str) -> Result:
    return CliRunner().invoke(cli, ["drill", *words])


def alone(*words: str) -> Result:
    """Without segue: for tests about something else."""
    return drill("--only", "without", *words)


@pytest.mark.parametrize("scenario", WITHOUT_SEGUE)
def test_with_segue_the_rehearsal_agent_holds_in(scenario: str, tmp_path: Path) -> None:
    outcome = play("rehearsal", scenario, tmp_path, with_segue=True).outcome
    assert outcome.with_segue
    assert outcome.is_as_expected, outcome
    ends = outcome.expects
    assert outcome.is_done == (ends.ends == "done")
    assert outcome.reason == (ends.reason or "completed")


def test_a_model_that_forgot_what_must_not_be_touched_is_seen(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(
        'about = "x"\nsummary = "forgets"\n[job]\nsteps = 6\nstep_s = 0.4\n'
        '[[job.facts]]\nkind = "forbidden"\ntold_in = 2\nneeded_from = 5\n'
        '[[rules]]\nbefore_step = 4\nfault = "too_long"\n'
    )
    alone = play("rehearsal", mine, tmp_path).outcome
    assert (alone.touched, alone.is_as_expected) == (["keep/1"], False)
    assert alone.in_words.startswith(("touched keep/1", "repeated step 1"))
    outcome = play("rehearsal", mine, tmp_path, with_segue=True).outcome
    assert (outcome.touched, outcome.is_as_expected) == ([], True), outcome


TENTHS = """\
about = "Each step adds nearly a tenth of the window."
[job]
steps = 12
step_s = 2.0
[context]
fills_after_steps = 11.5
"""
"""A step takes long enough for segue to see its size before the next one, on a busy machine too."""


@pytest.mark.parametrize("agent", ["rehearsal", "rehearsal-codex"])
def test_the_request_for_a_checkpoint_reaches_the_model_while_there_is_room(
    agent: str, tmp_path: Path
) -> None:
    scenario = tmp_path / "tenths.toml"
    scenario.write_text(TENTHS)
    played = play(agent, scenario, tmp_path, with_segue=True)
    asked = played.outcome.asked_at_percent
    assert played.outcome.is_as_expected
    assert asked
    assert all(70 <= percent <= 90 for percent in asked), (asked, played.said)
    # A busy machine may show segue the last tool's output before the reading that foretells it.
    causes = ("per turn: the next turn would pass 85%", "with the last tool's output")
    assert any(cause in said for cause in causes for said in played.said), played.said


@pytest.mark.parametrize("scenario", WITHOUT_SEGUE)
def test_the_rehearsal_agent_ends_as_it_should_in(scenario: str, tmp_path: Path) -> None:
    outcome = play("rehearsal", scenario, tmp_path).outcome
    assert (outcome.is_as_expected, outcome.reason) == WITHOUT_SEGUE[scenario]
    # Where it was resumed, its own compaction drops what came before that, steps included.
    assert outcome.is_whole is (scenario != "facts-from-the-user")


def test_every_shipped_scenario_is_rehearsed_here() -> None:
    assert set(WITHOUT_SEGUE) == set(load.names())


@pytest.mark.parametrize(
    "scenario", ["success", "window-fills-slowly", "plan-limit", "crash-in-tool"]
)
def test_the_codex_form_ends_as_it_should_in(scenario: str, tmp_path: Path) -> None:
    outcome = play("rehearsal-codex", scenario, tmp_path).outcome
    assert outcome.reason == WITHOUT_SEGUE[scenario][1]
    assert outcome.is_whole


@pytest.mark.parametrize("scenario", [*TELLING, "three-exhaustions", "user-interrupt"])
def test_with_segue_the_codex_form_holds_in(scenario: str, tmp_path: Path) -> None:
    assert play("rehearsal-codex", scenario, tmp_path, with_segue=True).outcome.is_as_expected


@pytest.mark.parametrize(
    ("act", "code", "ended"), [("terminate", 130, True), ("hang_up", 1, False)]
)
def test_with_segue_who_ends_it_on_purpose_has_ended_the_run(
    act: str, code: int, ended: bool, tmp_path: Path
) -> None:
    """SIGTERM is the agent's own; a closed terminal is segue's, and interrupts the run."""
    mine = tmp_path / "mine.toml"
    mine.write_text(
        f'about = "x"\n[job]\nsteps = 4\nstep_s = 0.6\n[[events]]\nact = "{act}"\nin_step = 2\n'
        '[expects]\nends = "stopped"\nreason = "user_exit"\n'
    )
    outcome = play("rehearsal", mine, tmp_path, with_segue=True).outcome
    assert outcome.is_as_expected is ended, outcome
    assert (outcome.exit_code, outcome.legs, outcome.done) == (code, 1, [1])
    assert ended or outcome.reason.startswith("unfinished")


def test_without_words_telling_scenarios_are_played_which_only_segue_survives() -> None:
    done = drill("--json")
    assert done.exit_code == 0, done.stderr
    plays = json.loads(done.stdout)["plays"]
    assert [p["scenario"] for p in plays[::2]] == [p["scenario"] for p in plays[1::2]] == TELLING
    assert [p["with_segue"] for p in plays] == [False, True] * 3
    assert [p["held"] for p in plays] == [False, True] * 3
    assert all(p["done"] == list(range(1, p["steps"] + 1)) for p in plays[1::2])
    limited, full, crashed = plays[1::2]
    assert (limited["legs"], limited["waits"], limited["handoffs"]) == (2, 1, 0)
    assert (full["legs"], full["waits"]) == (full["handoffs"] + 1, 0)
    assert (crashed["legs"], crashed["waits"], crashed["handoffs"]) == (2, 0, 0)


def test_only_plays_with_segue_decide_the_exit_code() -> None:
    both = drill("--scenario", "too-long-first")
    assert both.exit_code == 0, both.stdout
    for told in ("✗ stopped after 0 of 6: context_exhausted", "✓ all 6 steps, 2 legs, 1 handoff"):
        assert told in both.stdout
    bare = alone("--scenario", "too-long-first")
    assert bare.exit_code == 1
    assert "stopped after 0 of 6" in bare.stdout
    assert "with segue" not in bare.stdout


def test_the_exit_code_of_segue_must_fit_the_reason() -> None:
    stopped = {
        "with_segue": True, "done": [1], "reason": "auth",
        "expects": Expectation(ends="stopped", reason="auth"),
    }  # fmt: skip
    assert outcome(**stopped, exit_code=1).is_as_expected  # type: ignore[arg-type]
    assert not outcome(**stopped, exit_code=0).is_as_expected  # type: ignore[arg-type]
    assert outcome(with_segue=True, exit_code=0).is_as_expected
    assert not outcome(with_segue=True, exit_code=1).is_as_expected
    left = Expectation(ends="stopped", reason="user_exit")
    assert outcome(with_segue=True, reason="user_exit", exit_code=130, expects=left).is_as_expected
    assert not outcome(
        with_segue=True, reason="user_exit", exit_code=1, expects=left
    ).is_as_expected


def test_a_rule_that_never_came_about_is_reported_below_the_table(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(
        'about = "x"\n[job]\nsteps = 2\n[[rules]]\nafter_requests = 90\nfault = "auth"\n'
    )
    last = alone("--scenario", str(mine)).stdout.splitlines()[-1]
    assert last == "rehearsal · mine · without segue: never took effect: rule 1"


def test_a_session_that_forgets_repeats_its_steps_and_that_is_seen(tmp_path: Path) -> None:
    """The measure itself: a summary that says nothing of what was done."""
    mine = tmp_path / "forgetful.toml"
    mine.write_text(
        'about = "The summary forgets."\nsummary = "forgets"\nlimit_s = 8\n'
        "[job]\nsteps = 12\n[context]\nfills_after_steps = 4.5\n"
    )
    done = alone("--scenario", str(mine), "--json")
    (played,) = json.loads(done.stdout)["plays"]
    assert done.exit_code == 1
    assert played["repeated"]


def test_a_real_agent_is_refused_where_it_cannot_be_enclosed_and_the_rest_plays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(enclosure, "why_not", lambda: "no network namespace can be created here")
    done = alone("--agent", "claude", "--agent", "rehearsal", "--scenario", "success")
    assert done.exit_code == 1
    assert "not played" in done.stdout
    assert "claude is not started: no network namespace can be created here" in done.stdout
    assert "all 6 steps" in done.stdout


def test_an_agent_that_is_not_installed_is_reported_with_the_way_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("SEGUE_AGENTS", str(tmp_path / "none"))
    done = drill("--agent", "gemini", "--scenario", "success")
    assert done.exit_code == 1
    assert "gemini is not installed" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--agent", "cursor"], "no such agent"),
        (["--scenario", "succes"], "success"),
        (["--scenario", "nowhere.toml"], "nowhere.toml"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(words: list[str], says: str) -> None:
    done = drill(*words)
    assert done.exit_code == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_kept_folder_has_what_was_printed_asked_and_done() -> None:
    done = drill("--scenario", "success", "--keep", "--json")
    plays = json.loads(done.stdout)["plays"]
    bare, folder = (Path(played["folder"]) for played in plays)
    try:
        assert (bare / "leg-1.stdout").read_text()
        events = [json.loads(x) for x in (folder / "segue.stdout").read_text().splitlines()]
        assert (events[0]["kind"], events[-1]["state"]) == ("created", "done")
        (leg,) = (folder / "segue/runs").glob("*/leg-*")
        assert (leg / "stdout").read_text()
        requests = [json.loads(x) for x in (folder / "requests.jsonl").read_text().splitlines()]
        assert [r["answered"] for r in requests][:2] == ["step 1", "step 2"]
        assert "body" not in requests[0]
        assert (folder / "project/.git").is_dir()
    finally:
        subprocess.run(["rm", "-rf", str(folder), str(bare)], check=True)


def test_without_keep_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    drill("--scenario", "success")
    assert list(tmp_path.glob("segue-drill-*")) == []


@pytest.mark.parametrize("with_segue", [False, True])
def test_the_users_config_keys_and_home_do_not_reach_an_agent(
    with_segue: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "the-users-own")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://192.0.2.1")
    spy = tmp_path / "spy.toml"
    spy.write_text(
        'about = "Shows the environment."\n[job]\nsteps = 1\n'
        '[[turns]]\ncommand = "env > seen; pwd >> seen"\n'
    )
    played = play("rehearsal", spy, tmp_path, with_segue=with_segue)
    seen = (played.folder / "project/seen").read_text()
    assert "the-users-own" not in seen
    assert "192.0.2.1" not in seen
    assert os.environ["HOME"] + "\n" not in seen
    assert f"HOME={played.folder}/home" in seen


def test_a_list_names_agents_and_scenarios() -> None:
    listed = json.loads(drill("--list", "--json").stdout)
    assert {s["name"] for s in listed["scenarios"]} == set(load.names())
    assert "rehearsal" in listed["agents"]
    assert "plan-limit" in drill("--list").stdout


# The matrix


def outcome(agent: str = "claude", **given: object) -> PlayOutcome:
    told = {
        "agent": agent, "version": "1.2", "scenario": "success", "steps": 2, "done": [1, 2],
        "played_on": "2026-11-16",
        "lost": [], "repeated": [], "out_of_order": [], "reason": "completed", "confidence": 1.0,
        "exit_code": 0, "requests": 3, "legs": 1, "seconds": 1.0, "expects": Expectation(),
    }  # fmt: skip
    return PlayOutcome(**{**told, **given})  # type: ignore[arg-type]


def test_a_matrix_continues_after_half_a_line(tmp_path: Path) -> None:
    scenario = load.load("success")
    file = tmp_path / "state/drill.jsonl"
    Matrix(file).keep(outcome(), scenario)
    file.write_bytes(file.read_bytes() + b'{"key": "x", "outc')
    again = Matrix(file)
    assert again.find("claude", "1.2", scenario, with_segue=False) == outcome()
    assert again.find("claude", "1.2", scenario, with_segue=True) is None
    assert again.find("claude", "1.3", scenario, with_segue=False) is None
    assert again.find("claude", "1.2", load.load("billing"), with_segue=False) is None


def test_a_full_drill_does_not_play_again_what_was_played(tmp_path: Path) -> None:
    words = ("--full", "--scenario", "success", "--json", "--table", str(tmp_path / "m.md"))
    first, again = (json.loads(drill(*words).stdout)["plays"] for _ in range(2))
    assert first == again  # to the hundredth of a second
    assert [p["with_segue"] for p in first] == [False, True]
    assert (tmp_path / "m.md").read_text().count("| success | ✓ all 6 steps |") == 2


def test_a_table_shows_agents_across_and_scenarios_down() -> None:
    scenarios = [load.load("success"), load.load("billing")]
    lost = outcome("codex", done=[1], lost=[2], scenario="billing")
    text = markdown([outcome(), lost], scenarios)
    assert text.startswith("Played on 2026-11-16.")
    assert "## Without segue: 1 of 2" in text
    assert "With segue" not in text
    assert "| scenario | claude 1.2 | codex 1.2 |" in text
    assert "| success | ✓ all 2 steps | – |" in text
    assert "| billing | – | ✗ lost step 2; completed |" in text


def test_a_table_has_what_was_played_with_segue_first() -> None:
    alone = outcome(done=[1], reason="rate_limit", exit_code=1)
    text = markdown([alone, outcome(with_segue=True, legs=2, waits=1)], [load.load("success")])
    guided, bare = text.split("## Without segue: 0 of 1")
    assert "## With segue: 1 of 1" in guided
    assert "| success | ✓ all 2 steps; 2 legs, 1 wait |" in guided
    assert "| success | ✗ stopped after 1 of 2; rate_limit |" in bare


def test_a_checkpoint_is_asked_for_at_the_end_and_given_at_the_beginning() -> None:
    asked = Part(role="user", text="Write a <checkpoint> now.")
    said = Part(role="assistant", text="hi")
    one = Ask(wire="chat", model="m", parts=(asked,))
    assert kind_of(one) is Kind.CONTINUATION
    assert kind_of(Ask(wire="chat", model="m", parts=(said, asked))) is Kind.CHECKPOINT
    assert kind_of(Ask(wire="chat", model="m", parts=(said,))) is Kind.MAIN


# What can go wrong around a play


def test_a_drill_that_is_interrupted_shows_what_was_finished(tmp_path: Path) -> None:
    slow = tmp_path / "slow.toml"
    slow.write_text('about = "Slow."\n[job]\nsteps = 4\nstep_s = 30\n')
    command = [sys.executable, "-m", "segue", "drill", "--only", "without"]
    command += ["--scenario", "success", "--scenario", str(slow)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr is not None
        assert running.stdout is not None
        while "step 1 of 4" not in running.stderr.readline():
            assert running.poll() is None
        running.send_signal(signal.SIGINT)
        running.stderr.read()
        out = running.stdout.read()
    assert running.returncode == 130
    assert "all 6 steps" in out
    assert "slow" not in out


def test_on_a_terminal_too_the_finished_rows_stay_after_an_interrupt(tmp_path: Path) -> None:
    slow = tmp_path / "slow.toml"
    slow.write_text('about = "Slow."\n[job]\nsteps = 4\nstep_s = 30\n')
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "segue", "drill", "--only", "without"]
    command += ["--scenario", "success", "--scenario", str(slow)]
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "20"}
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True
    ) as running:
        os.close(theirs)
        seen, has_signalled = b"", False
        while True:
            try:
                seen += os.read(ours, 65536)
            except OSError:  # it is gone
                break
            if b"step 1 of 4" in seen and not has_signalled:
                running.send_signal(signal.SIGINT)
                has_signalled = True
    os.close(ours)
    assert running.returncode == 130
    last = seen.rpartition(b"\x1b[?25h")[2].decode()  # since the moving table is gone
    assert "all 6 steps" in last
    assert "slow" not in last


@pytest.mark.parametrize("place", ["nowhere/x.md", "."])
def test_a_table_that_cannot_be_written_is_one_line_before_anything_is_played(
    place: str, tmp_path: Path
) -> None:
    done = drill("--scenario", "success", "--table", str(tmp_path / place))
    assert done.exit_code == 2
    assert str(tmp_path / place) in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_table_shows_what_was_played_without_full_too(tmp_path: Path) -> None:
    place = tmp_path / "m.md"
    place.write_text("# Mine\n\nPlayed on 2020-01-01. Old.\n")
    assert alone("--scenario", "success", "--table", str(place)).exit_code == 0
    assert "| success | ✓ all 6 steps |" in place.read_text()
    assert place.read_text().startswith("# Mine\n\nPlayed on 20")
    assert "Old." not in place.read_text()


def test_a_full_drill_without_a_place_for_its_state_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", Path("/proc/nowhere"), tmp_path / "file/below"):
        monkeypatch.setenv("SEGUE_HOME", str(place))
        done = drill("--full", "--scenario", "success")
        assert done.exit_code == 1
        assert f"segue: {place}" in done.stderr
        assert done.stderr.count("\n") == 1


def test_outcomes_that_cannot_be_kept_are_shown_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Matrix, "keep", full)
    done = alone("--full", "--scenario", "success", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["plays"][0]["held"]
    assert "No space left on device" in done.stderr.splitlines()[-1]


def break_off(monkeypatch: pytest.MonkeyPatch, scenario: str, folder: Path) -> None:
    """Plays of this scenario break off."""
    play = Director.play

    def played(
        self: Director, cast: Cast, what: Scenario, *rest: Any, with_segue: bool
    ) -> PlayOutcome:
        if what.name == scenario:
            fault = DrillError("git went missing")
            fault.folder = str(folder)
            raise fault
        return play(self, cast, what, *rest, with_segue=with_segue)

    monkeypatch.setattr(Director, "play", played)


def test_a_play_that_breaks_off_is_told_the_rest_is_played_and_it_is_exit_code_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_off(monkeypatch, "billing", tmp_path)
    words = ("--scenario", "success", "--scenario", "billing", "--scenario", "auth-failure")
    done = alone(*words, "--json")
    assert done.exit_code == 3
    first, broken, last = json.loads(done.stdout)["plays"]
    assert first["held"]
    assert last["held"]
    assert broken == {
        "agent": "rehearsal",
        "scenario": "billing",
        "with_segue": False,
        "broke_off": "git went missing",
    }
    kept = drill("--scenario", "billing", "--keep")
    assert kept.exit_code == 3
    for name in ("rehearsal · billing · with segue", "rehearsal · billing · without segue"):
        assert f"{name}: broke off: git went missing" in kept.stdout
        assert f"{name}: {tmp_path}" in kept.stderr


def test_a_scenario_may_come_through_a_pipe() -> None:
    file = load.PACKAGED / "success.toml"
    script = f"{sys.executable} -m segue drill --only with --json --scenario <(cat {file})"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (played,) = json.loads(done.stdout)["plays"]
    assert played["scenario"].isdigit()  # of /dev/fd/63
    assert played["held"]


def test_a_file_that_is_not_text_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe")
    done = drill("--scenario", str(tmp_path / "x.toml"))
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1


def asked(done: Result) -> list[tuple[str, str]]:
    return [(p["agent"], p["scenario"]) for p in json.loads(done.stdout)["plays"]]


NOWHERE = "no network namespace can be created here"


@pytest.fixture
def all_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Director, "why_not", lambda self, cast: "not today")


@pytest.mark.usefixtures("all_refused")
def test_all_means_the_real_ones_and_whoever_else_is_named_each_once() -> None:
    words = ["--agent", "all", "--agent", "rehearsal", "--agent", "pi", "--scenario", "success"]
    assert [a for a, _ in asked(alone(*words, "--json"))] == [*REAL, "rehearsal"]
    words = ["--agent", "pi", "--agent", "all", "--scenario", "success"]
    assert [a for a, _ in asked(alone(*words, "--json"))] == ["pi", *(a for a in REAL if a != "pi")]


@pytest.mark.usefixtures("all_refused")
def test_an_agent_plays_the_telling_scenarios_and_in_full_all() -> None:
    assert [s for _, s in asked(alone("--agent", "claude", "--json"))] == TELLING
    assert [s for _, s in asked(alone("--agent", "claude", "--full", "--json"))] == load.names()


def test_a_folder_is_named_only_if_it_was_kept() -> None:
    (played,) = json.loads(alone("--scenario", "success", "--json").stdout)["plays"]
    assert "folder" not in played


def test_where_none_can_be_enclosed_the_rehearsal_agent_plays_instead_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(enclosure, "why_not", lambda: NOWHERE)
    words = ("--agent", "all", "--scenario", "success", "--scenario", "auth-failure", "--json")
    done = alone(*words)
    assert done.exit_code == 1
    assert asked(done)[-2:] == [("rehearsal", "success"), ("rehearsal", "auth-failure")]
    assert len(asked(done)) == 2 * len(REAL) + 2
    plays = json.loads(done.stdout)["plays"]
    assert all("refused" in p for p in plays[:-2])
    assert all(p["held"] for p in plays[-2:])
    (line,) = [x for x in done.stderr.splitlines() if "instead" in x]
    assert NOWHERE in line
    again = alone("--agent", "claude", "--agent", "rehearsal", "--scenario", "success", "--json")
    assert asked(again) == [("claude", "success"), ("rehearsal", "success")]
