"""How large a task will be, and whether it may start."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from support.homes import SESSION, START, claude_session, prompt, reply

from segue.cli import cli
from segue.core.policy import Policy
from segue.core.sessions.forecasts.forecast import fits
from segue.core.sessions.forecasts.gate import (
    Gate,
    Sized,
    gate,
    size_of_prompt,
    size_of_tool,
    stated,
)
from segue.core.sessions.reading import Reading, Zone
from segue.system import clock


def at(percent: float, window: int = 200_000) -> Reading:
    return Reading(input_tokens=round(percent * window / 100), window_tokens=window)


def ask(tokens: int, percent: float, policy: Policy | None = None) -> Gate:
    policy, reading = policy or Policy(), at(percent)
    return gate(stated(tokens), reading, reading.zone(policy), policy)


# Sizes


def test_without_a_history_the_words_count_alone() -> None:
    sized = size_of_prompt(400, [9_000] * 9)
    assert (sized.tokens, sized.source) == (100, "prompt")
    assert "9 earlier tasks" in sized.why


def test_with_a_history_the_median_of_the_projects_tasks_is_added() -> None:
    sized = size_of_prompt(400, [1_000] * 4 + [7_000] * 5 + [90_000] * 2)
    assert (sized.tokens, sized.source) == (7_100, "history")
    assert "7,000, the median of 11 earlier tasks" in sized.why


def test_a_file_that_is_read_counts_with_what_the_tool_is_given() -> None:
    assert size_of_tool("Read", 35, 700_000) == Sized(200_010, "file", "Read of 700,000 bytes")
    assert size_of_tool("Bash", 350, None).tokens == 100


@given(st.integers(), st.lists(st.integers(), max_size=30), st.none() | st.integers())
def test_any_counts_have_a_size(count: int, costs: list[int], size: int | None) -> None:
    assert size_of_prompt(count, costs).tokens > 0
    assert size_of_tool("x", count, size).tokens > 0


# The gate


@pytest.mark.parametrize(
    ("percent", "tokens", "verdict"),
    [
        (10, 100_000, "allow"), (30, 50_000, "allow"), (49.9, 40_000, "allow"),
        (50, 4_999, "allow"), (50, 5_000, "warn"), (69.9, 4_999, "allow"),
        (70, 1_999, "allow"), (70, 2_000, "warn"), (79, 1_999, "allow"),
        (85, 1, "warn"), (99, 1, "warn"),
    ],
)  # fmt: skip
def test_small_tasks_in_warning_tiny_ones_in_critical_and_none_at_the_handoff(
    percent: float, tokens: int, verdict: str
) -> None:
    assert ask(tokens, percent).verdict == verdict
    blocked = ask(tokens, percent, Policy(gate="block")).verdict
    assert blocked == ("allow" if verdict == "allow" else "block")
    assert ask(tokens, percent, Policy(gate="off")) == Gate("allow")


def test_blocking_is_opt_in() -> None:
    assert Policy().gate == "warn"


def test_the_text_is_one_fixed_sentence_and_a_statement_with_its_numbers() -> None:
    sized = size_of_prompt(400, [12_000] * 10)
    found = gate(sized, at(65), Zone.WARNING, Policy())
    assert found.text == (
        "Context at 65%, complete large tasks after handoff. This one is estimated at 12,100 tokens"
        " (from its text, plus 12,000, the median of 10 earlier tasks here); in this session, tasks"
        " may take up to 4,999 tokens now."
    )
    assert (found.percent, found.tokens, found.limit_tokens) == (65, 12_100, 4_999)
    assert "no new task should start now" in ask(1, 90).text


def test_what_would_not_leave_the_reserve_is_too_large_in_every_zone() -> None:
    assert ask(139_999, 10).verdict == "allow"
    assert ask(140_000, 10).verdict == "warn"
    low = gate(stated(40_000), at(10), Zone.NORMAL, Policy(), enforced_at_tokens=60_000)
    assert low.verdict == "warn"


def test_a_zone_that_is_held_counts_although_the_reading_fell_below_its_mark() -> None:
    assert gate(stated(5_000), at(49), Zone.MONITOR, Policy()).verdict == "allow"
    assert gate(stated(5_000), at(49), Zone.WARNING, Policy()).verdict == "warn"
    assert gate(stated(1), at(84), Zone.HANDOFF, Policy()).verdict == "warn"


def test_where_the_window_is_unknown_nothing_is_held_up() -> None:
    blocking = Policy(gate="block")
    assert gate(stated(10**9), at(0, window=0), Zone.NORMAL, blocking).verdict == "allow"


@given(st.integers(1, 300_000), st.integers(0, 300_000), st.none() | st.integers(1, 300_000))
def test_the_gate_says_what_fits_says(tokens: int, used: int, enforced: int | None) -> None:
    policy, reading = Policy(), Reading(input_tokens=used)
    fit = fits(tokens, reading, policy, enforced_at_tokens=enforced)
    found = gate(stated(tokens), reading, Zone.NORMAL, policy, enforced_at_tokens=enforced)
    assert (found.verdict == "allow") is fit.ok


# segue fits --prompt


@pytest.fixture
def history(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session at 60% in which twelve tasks have cost 9,000 tokens each."""
    monkeypatch.setattr(clock, "now", lambda: START + 600)
    lines = [reply(0, 12_000)]
    for turn in range(1, 13):
        lines += [prompt(at=START + turn), reply(turn, 12_000 + 9_000 * turn, at=START + turn)]
    claude_session(own_home, *lines)
    other = [reply(n + 50, 500_000 + n, session="other", cwd="/q") for n in range(30)]
    claude_session(own_home, *other, session="other", slug="-q")


def run(*words: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(cli, ["fits", *words], input=stdin)


@pytest.mark.usefixtures("history")
def test_a_prompt_is_sized_by_the_projects_history() -> None:
    result = run("--prompt", "x" * 400, SESSION, "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 1
    assert (found["tokens"], found["source"], found["fits"]) == (9_100, "history", False)
    assert found["because"] == "task_too_large_for_zone"
    shown = run("--prompt", "-", SESSION, stdin="ö".encode() * 400)
    assert shown.stdout.startswith("no: Needs 9,100 tokens; ")
    assert "9,000, the median of 12 earlier tasks here" in shown.stdout


@pytest.mark.usefixtures("history")
def test_a_prompt_may_be_anything_on_stdin() -> None:
    for given_bytes in (b"", b"\xff\x00\xfe", b"$(touch x)`\n"):
        assert run("--prompt", "-", SESSION, stdin=given_bytes).exit_code == 1
    assert run("4K", SESSION).exit_code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "how large is the task?"),
        (["5K", "a", "b"], "only one SESSION is allowed, not a b"),
        (
            ["--prompt", "x", "5K", "a"],
            "only one SESSION is allowed, not 5K a; leave N out with --prompt",
        ),
    ],
)
def test_a_mistake_is_one_line(words: list[str], said: str) -> None:
    from segue.errors import InputError

    result = run(*words)
    assert result.exit_code == 2 or isinstance(result.exception, InputError)
    assert said in result.output + str(result.exception)
