"""`segue simulate` and `segue tune` as a user runs them."""

import json
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace
from support.homes import START, claude_session, prompt, reply

from segue.cli import cli
from segue.core.runs.machine import moves
from segue.core.runs.types import Run, RunStep
from segue.system import clock
from segue.system.config.marks_file import with_marks
from segue.testing.simulation.world import Plan, play
from segue.testing.simulation.world import Result as WorldResult


def run(*args: str) -> Result:
    return CliRunner().invoke(cli, list(args))


def test_simulate_says_that_every_invariant_held_and_compares_marks() -> None:
    done = run("simulate", "--sessions", "4", "--days", "4", "--jobs", "1", "--policy", "graduated")
    assert done.exit_code == 0, done.output
    assert "4 sessions × 4 days, seed 7: every invariant held\n" in done.stdout
    assert "Policy graduated: handoff at 80/85% of the window" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "65/70%" in done.stdout
    assert "90/90%" in done.stdout


def test_simulate_json_has_the_figures_and_is_the_same_each_time() -> None:
    args = ("simulate", "--sessions", "4", "--days", "4", "--no-compare", "--json")
    first, again = json.loads(run(*args).stdout), json.loads(run(*args).stdout)
    assert first == again
    assert first["schema"] == 1
    assert first["ok"] is True
    assert first["broken"] is None
    assert set(first["figures"]) >= {
        "exhaustions", "handoffs", "waited_s", "context_at_request", "context_unused",
    }  # fmt: skip


def test_a_broken_invariant_is_reported_with_its_seed_and_the_shortest_trace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(run: Run, moment: object) -> RunStep:
        return RunStep(run)

    monkeypatch.setattr("segue.core.runs.machine.handlers.look", never)
    monkeypatch.setattr("segue.cli.tools.simulate._SHRINKING", 5)
    assert moves.look is not never
    args = ("simulate", "--sessions", "4", "--days", "30", "--no-compare")
    done = run(*args)
    assert done.exit_code == 1
    assert "broken: the " in done.stdout
    assert "seed 7, world 0; the shortest trace has " in done.stdout
    assert "--sessions 4 --days 30 --seed 7 --world 0" in done.stdout
    told = json.loads(run(*args, "--json").stdout)
    assert told["ok"] is False
    assert told["broken"]["trace"][-1].endswith(told["broken"]["what"])


def test_keep_going_lists_every_broken_world_and_any_of_them_can_be_played_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def breaks(plan: Plan) -> WorldResult:
        result = play(replace(plan, days=0.1, faults=()))
        number = int(plan.seed.split(":")[1])
        if number % 2:
            result.rule, result.what = "odd worlds", f"number {number}"
        return result

    monkeypatch.setattr("segue.testing.simulation.search.play", breaks)
    monkeypatch.setattr("segue.cli.tools.simulate._SHRINKING", 1)
    args = ("simulate", "--sessions", "18", "--no-compare", "--jobs", "1")
    first, done = run(*args), run(*args, "--keep-going")
    assert (first.exit_code, done.exit_code) == (1, 1)
    assert "seed 7, world 1; " in first.stdout
    assert "worlds broke an invariant" not in first.stdout
    assert "seed 7, world 1; " in done.stdout
    assert "2 of 5 worlds broke an invariant:\n" in done.stdout
    assert "  world 1: odd worlds: number 1\n  world 3: odd worlds: number 3\n" in done.stdout
    assert "Policy graduated: handoff at 80/85% of the window" in done.stdout
    told = json.loads(run(*args, "--keep-going", "--json").stdout)
    assert [each["world"] for each in told["broken_worlds"]] == [1, 3]
    assert told["broken"]["world"] == 1
    assert "world 3: " in run(*args, "--keep-going", "--world", "3").stdout
    alone = run(*args, "--world", "4")
    assert alone.exit_code == 0
    assert "2 sessions × 30 days, seed 7: every invariant held" in alone.stdout
    assert "--world 5: 18 sessions make only 5 worlds" in run(*args, "--world", "5").stderr


def test_an_unknown_preset_is_one_line() -> None:
    done = run("simulate", "--policy", "gradated")
    assert done.exit_code == 2
    assert "did you mean graduated" in done.stderr


def grow(count: int, *, turn_tokens: int, cwd: str = "/p") -> None:
    """Sessions of claude, each of which grew by that much with every reply."""
    for number in range(count):
        name = f"{number:08}-2222-4333-8444-555555555555"
        lines = [prompt("go", session=name, cwd=cwd)]
        for place in range(130_000 // turn_tokens):
            used = 20_000 + number * turn_tokens // count + place * turn_tokens
            lines.append(reply(number * 1_000 + place, used, session=name, cwd=cwd))
        claude_session(Path.home(), *lines, session=name)


@pytest.fixture(autouse=True)
def midnight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "now", lambda: START + 600)


def test_simulate_grows_as_the_users_own_sessions_did() -> None:
    """Turns of 20,000 tokens fill a window that the built-in model's leave half empty."""
    args = ("simulate", "--sessions", "4", "--days", "6", "--no-compare", "--jobs", "1", "--json")
    small = run(*args, "--history")
    assert small.exit_code == 2
    assert "--history: 0 turns in the last 30 days" in small.stderr
    grow(40, turn_tokens=20_000)
    own, usual = json.loads(run(*args, "--history").stdout), json.loads(run(*args).stdout)
    assert (own["growth"], usual["growth"]) == ("history", "model")
    assert own["figures"]["handoffs"] > usual["figures"]["handoffs"]


def test_tune_without_any_session_says_so() -> None:
    done = run("tune")
    assert done.exit_code == 0
    assert "there is nothing to base marks on" in done.stdout


@pytest.mark.parametrize("turn_tokens", [8_000, 10_000, 12_000])
def test_tune_finds_the_mark_of_a_history_that_grows_evenly(turn_tokens: int) -> None:
    """The request is read between one and two turns after the mark, and comes late above 90%."""
    grow(24, turn_tokens=turn_tokens)
    told = json.loads(run("tune", "--json").stdout)
    agent = told["advice"][0]
    assert (agent["of"], agent["name"], agent["sessions"]) == ("agent", "claude", 24)
    best = 0.90 - 2 * turn_tokens / 200_000
    assert agent["hard_mark"] == pytest.approx(best, abs=0.02)
    assert agent["late_then"] <= 0.05
    written = tomllib.loads(told["toml"])["policy"]["agents"]["claude"]["hard_mark"]
    assert written == agent["hard_mark"]


def test_tune_changes_a_mark_by_one_point_if_too_many_handoffs_are_late_with_it() -> None:
    """Turns of 3% from 85% on are read above 90%; from 84% on they are not."""
    grow(12, turn_tokens=6_000)
    done = run("tune")
    assert done.exit_code == 0, done.stderr
    assert "as it is now" not in done.stdout
    assert "79/84%, now 80/85%" in done.stdout
    assert "79/84%, as for its agent" in done.stdout
    assert "hard_mark = 0.84" in done.stdout


def test_tune_on_a_history_too_small_says_so_and_has_nothing_to_paste() -> None:
    grow(2, turn_tokens=10_000)
    done = run("tune")
    assert "not enough history" in done.stdout
    assert "[policy." not in done.stdout


def test_tune_apply_shows_the_diff_and_writes_it_so_that_it_counts() -> None:
    grow(16, turn_tokens=10_000)
    done = run("tune", "--apply", "--yes")
    assert done.exit_code == 0, done.output
    assert "+[policy.agents." in done.stdout
    shown = json.loads(run("config", "show", "--agent", "claude", "--json").stdout)
    mark = shown["values"]["policy.hard_mark"]["value"]
    again = json.loads(run("tune", "--json").stdout)["advice"][0]
    assert again["hard_mark"] == pytest.approx(mark)
    assert again["is_needed"] is False


@pytest.mark.parametrize(
    "text",
    [
        "",
        '[run]\nagent = "claude"',
        '[policy.agents.claude]\nsoft_mark = 0.5 # mine\nmax_legs = 3\n\n[run]\nagent = "x"\n',
        '[policy.agents."claude"]\n',
    ],
)
def test_marks_are_written_and_nothing_else_changes(text: str) -> None:
    before = tomllib.loads(text)
    after = tomllib.loads(
        with_marks(text, "agents", "claude", {"soft_mark": 0.7, "hard_mark": 0.75})
    )
    marks = {"soft_mark": 0.7, "hard_mark": 0.75}
    own = before.get("policy", {}).get("agents", {}).get("claude", {})
    assert after["policy"]["agents"]["claude"] == {**own, **marks}
    assert after.get("run") == before.get("run")
