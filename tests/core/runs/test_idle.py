"""Whether a session makes progress, judged inside a leg: loops are found, honest work is left
alone."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue import agents
from segue.agents.shared import records
from segue.core.policy import Policy
from segue.core.runs.idle import PATIENCE, RESULTS, Idle, Spun
from segue.core.runs.progress import Mark
from segue.core.stops.events import Compaction, Event, Reply, ToolCall, ToolResult, Usage

SMALL = Policy(same_calls=1_000, max_idle_replies=10, max_idle_tokens=None)
RECORDINGS = Path(__file__).parents[2] / "data/recordings"


def turn(
    number: int, command: str, said: str = "", failed: bool = False, took_s: float = 0.1
) -> Iterator[tuple[Event, float]]:
    """A reply that calls a shell, and the result."""
    at = number * 1_000.0
    yield ToolCall(name="Bash", call_id=str(number), command=command, argument=command), at
    yield ToolResult(call_id=str(number), failed=failed, printed=said), at + took_s


def fed(idle: Idle, number: int, *more: object, **how: object) -> Spun | None:
    last = None
    for event, at in turn(number, *more, **how):  # type: ignore[arg-type]
        last = idle.feed(event, at) or last
    return last


def replies_until(idle: Idle, made: Iterator[tuple[str, str, bool, float]], most: int) -> int:
    """After how many replies it is a loop; 0: it never is."""
    for number in range(1, most + 1):
        command, said, failed, took_s = next(made)
        if fed(idle, number, command, said, failed, took_s):
            return number
    return 0


def test_a_call_that_is_refused_every_time_is_a_loop_however_its_words_change() -> None:
    same = (("rm -f x", "rejected", True, 0.1) for _ in range(99))
    other = ((f"rm -f {word}", f"no: {word}", True, 0.1) for word in map(chr, range(97, 197)))
    assert replies_until(Idle(SMALL), same, 50) == 10
    assert replies_until(Idle(SMALL), other, 50) == 10


def test_two_calls_that_alternate_are_a_loop() -> None:
    made = (("ls" if n % 2 else "pwd", "the same", False, 0.1) for n in range(99))
    assert replies_until(Idle(SMALL), made, 50) == 12  # after the two that were new


def test_calls_that_differ_in_digits_and_blanks_alone_are_a_loop_after_more_patience() -> None:
    made = ((f"echo  {n} {' ' * n}", f"{n}\n", False, 0.1) for n in range(999))
    assert replies_until(Idle(SMALL), made, 999) == 10 * PATIENCE + 1


def test_a_new_file_or_a_new_result_is_progress() -> None:
    files = ((f"cat {word}", f"text of {word}", False, 0.1) for word in map(chr, range(97, 497)))
    build = (("tail log", f"compiling {word}", False, 0.1) for word in map(chr, range(97, 497)))
    assert replies_until(Idle(SMALL), files, 300) == 0
    assert replies_until(Idle(SMALL), build, RESULTS + 40) == 0


def test_the_same_calls_with_ever_other_results_are_a_loop_after_more_patience() -> None:
    """Random names, request ids, what else runs on the machine."""
    words = [f"{a}{b}{c}" for a in "abcdefghij" for b in "abcdefghij" for c in "abcdefghij"]
    made = (("mktemp -u" if n % 2 else "ps", word, False, 0.1) for n, word in enumerate(words))
    found = replies_until(Idle(SMALL), made, 999)
    assert found == 2 * RESULTS + PATIENCE * 10


def test_whoever_waits_has_more_patience() -> None:
    waits = (("sleep 60; tail log", "still linking", False, 60.0) for _ in range(999))
    assert replies_until(Idle(SMALL), waits, 999) == 10 * PATIENCE + 1


def test_a_new_tree_a_closed_todo_and_a_test_that_passes_are_progress_and_an_old_tree_is_none() -> (
    None
):
    idle = Idle(SMALL)
    idle.begin(Mark(tree="a"), anew=False)
    assert not idle.see(Mark(tree="a"))
    assert idle.see(Mark(tree="b"))
    assert not idle.see(Mark(tree="a")), "it was there before"
    assert not idle.see(Mark(tree=""))
    assert idle.see(Mark(tree="a", closed=frozenset({"one"})))
    assert idle.see(Mark(tree="a", closed=frozenset({"one"}), passed=frozenset({"t"})))
    for number in range(1, 10):
        assert not fed(idle, number, "x", "", True)
    assert idle.see(Mark(tree="c"))
    for number in range(1, 10):
        assert not fed(idle, number, "x", "", True)
    assert fed(idle, 10, "x", "", True)


def test_a_handoff_is_not_progress_and_a_session_that_replaces_a_loop_starts_again() -> None:
    idle = Idle(SMALL)
    for number in range(1, 7):
        fed(idle, number, "x", "", True)
    idle.begin(Mark(), anew=False)
    assert [bool(fed(idle, n, "x", "", True)) for n in range(1, 5)] == [False, False, False, True]
    idle.begin(Mark(), anew=True)
    assert not fed(idle, 1, "x", "", True)


def test_tokens_and_compactions_without_progress_are_counted_too_and_none_is_not_a_limit() -> None:
    idle = Idle(Policy(max_idle_replies=None, max_idle_tokens=1_000, max_idle_compactions=2))
    assert idle.feed(Usage(used_tokens=999), 0.0) is None
    assert idle.feed(Usage(used_tokens=1), 0.0) == Spun(kind="tokens", count=1_000)
    idle.forget()
    assert idle.feed(Compaction(phase="done"), 0.0) is None
    assert idle.feed(Compaction(phase="failed"), 0.0) is None
    assert idle.feed(Compaction(phase="done"), 0.0) == Spun(kind="compactions", count=2)
    free = Idle(
        Policy(
            same_calls=10**9,
            max_idle_replies=None,
            max_idle_tokens=None,
            max_idle_compactions=None,
        )
    )
    assert not any(fed(free, number, "x", "", True) for number in range(3_000))


def test_what_was_done_most_is_reported() -> None:
    idle = Idle(SMALL)
    for number in range(1, 10):
        fed(idle, number, "rm -f x" if number % 3 else "ls", "", failed=bool(number % 3))
    idle.forget()
    for number in range(1, 10):
        found = fed(idle, number, "rm -f x" if number % 3 else "ls", "", failed=True)
        assert found is None
    found = fed(idle, 10, "ls", "", True)
    assert found == Spun(kind="replies", count=10, call="rm -f x", made=6, failed=6)


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("xy"), st.booleans()), max_size=200)
)
def test_a_loop_is_never_told_before_so_many_replies_came_to_nothing(
    made: list[tuple[str, str, bool]],
) -> None:
    idle, seen, since = Idle(SMALL), set(), 0
    for number, (command, said, failed) in enumerate(made):
        since += 1
        found = fed(idle, number, command, said, failed)
        if not failed and (command, said) not in seen:
            seen.add((command, said))
            since = 0
        assert bool(found) == (since >= 10 or (found is not None and since == 0))


@pytest.mark.parametrize("agent", ["claude", "codex", "gemini", "opencode", "pi", "qwen"])
def test_no_recorded_session_comes_near_the_limits(agent: str) -> None:
    """Measured: 9 replies at most (a hook that never lets it stop), where 100 are allowed."""
    profile = agents.find(agent)
    assert profile is not None
    policy = Policy(
        same_calls=50, max_idle_replies=10, max_idle_tokens=4_000_000, max_idle_compactions=3
    )
    seen = 0
    for line in (RECORDINGS / f"{agent}.jsonl").read_text(encoding="utf-8").splitlines():
        recorded = json.loads(line)
        for text in (recorded["stdout"], recorded.get("transcript") or ""):
            idle = Idle(policy)
            for event in profile.parse(records.split(text, "x", 1).records):
                seen += isinstance(event, Reply | ToolCall)
                assert idle.feed(event, 0.0) is None, recorded["name"]
    assert seen > 20
