"""A session is asked for its checkpoint while there is room: segue forecasts the next turn."""

import random
from collections.abc import Callable, Iterator
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.runs.stepping import MUTE, TALKS, Led, new_run

from segue.core.policy import PRESETS, Policy
from segue.core.runs.due import KEPT_SIZES
from segue.core.runs.timers import Activity, deadlines
from segue.core.runs.types import (
    Abilities,
    AskCheckpoint,
    Boundary,
    CheckpointComposed,
    Compose,
    ContextMeasured,
    EndLeg,
    Run,
    RunState,
    StartLeg,
)
from segue.core.sessions.reading import Reading
from segue.core.stops.reasons import StopReason

WINDOW = 200_000
GEMINI = Abilities(talks=False, resume_factor=2.0)


def led(policy: Policy | None = None, abilities: Abilities = TALKS) -> Led:
    return Led(policy=policy or Policy(), abilities=abilities).begin()


def tokens(percent: float) -> int:
    return round(percent / 100 * WINDOW)


def read(
    run: Led,
    percent: float,
    *,
    timely: bool = True,
    enforced: float | None = None,
    pending: float = 0.0,
    request: float = 0.0,
    opening: float = 0.0,
    at: float | None = None,
) -> None:
    measured = ContextMeasured(
        leg=run.run.leg,
        reading=Reading(input_tokens=tokens(percent), window_tokens=WINDOW, at=at),
        is_timely=timely,
        enforced_tokens=None if enforced is None else tokens(enforced),
        pending_tokens=tokens(pending),
        request_tokens=tokens(request),
        opening_tokens=tokens(opening),
    )
    run.tell(measured)


def grow(run: Led, *percents: float, timely: bool = True, enforced: float | None = None) -> None:
    for percent in percents:
        read(run, percent, timely=timely, enforced=enforced)


def asked(run: Led) -> AskCheckpoint:
    """What a boundary leads to."""
    run.boundary()
    assert run.state is RunState.CHECKPOINTING
    return run.last(AskCheckpoint)


@pytest.mark.parametrize("abilities", [TALKS, MUTE])
def test_what_the_next_turn_would_take_past_the_hard_mark_is_asked_for_now(
    abilities: Abilities,
) -> None:
    run = led(abilities=abilities)
    grow(run, 35, 47, 59)
    assert not run.run.is_due  # one boundary later it is read at 83%
    read(run, 71)
    ask = asked(run)
    assert ask.now is False
    assert ask.reason == (
        "context at 71%, +12% per turn: the next turn would pass 85%: handing over at this boundary"
    )


@pytest.mark.parametrize(
    ("size", "request_adds", "cuts"),
    [
        (83, 0, False),  # the next boundary's request is read at 89%
        (83, 2, True),
        (84.5, 0, True),
        (79, 2, False),
        (79, 6, True),  # below the soft mark, too
    ],
)
@pytest.mark.parametrize("abilities", [TALKS, MUTE])
def test_a_jump_that_leaves_no_room_for_another_turn_is_interrupted_for_the_request(
    size: float, request_adds: float, cuts: bool, abilities: Abilities
) -> None:
    run = led(abilities=abilities)
    grow(run, 10, 16, 22, 28, 34)
    read(run, size, request=request_adds)
    if cuts:
        ask = run.last(AskCheckpoint)
        assert "no room for another turn: handing over now" in ask.reason
    else:
        assert run.run.is_due
        ask = asked(run)
    assert ask.now is cuts


def test_what_tools_printed_since_the_last_reading_counts_as_read() -> None:
    run = led()
    grow(run, 10, 16, 22, 28, 34)
    assert not run.run.is_due
    run.tell(Boundary(leg=run.run.leg, pending_tokens=tokens(41)))
    ask = run.last(AskCheckpoint)
    assert ask.now is False
    assert ask.reason.startswith("context at about 75% with the last tool's output, +6% per turn")


def test_a_size_that_is_told_after_the_tools_is_no_reason_to_ask_too_late() -> None:
    """opencode reports 34% when the tool has already printed 50%."""
    run = led()
    grow(run, 10, 16, 22, 28, timely=False)
    read(run, 34, timely=False, pending=50, request=1)
    assert run.last(AskCheckpoint).now is True


def test_a_session_that_cannot_be_asked_is_not_interrupted_for_the_request() -> None:
    run = led(abilities=GEMINI)
    grow(run, 5, 8, 11, 14)
    read(run, 82, request=12)
    assert (run.state, run.run.is_due) == (RunState.WORKING, True)


def test_output_that_makes_a_session_too_large_to_be_resumed_spares_it_the_request() -> None:
    run = led(abilities=GEMINI)
    grow(run, 10, 20, 30, 38)
    assert run.run.is_due
    run.tell(Boundary(leg=run.run.leg, pending_tokens=tokens(45)))
    assert "it is too full to be asked" in run.last(EndLeg).reason


def test_what_is_read_one_turn_later_is_asked_for_one_turn_earlier() -> None:
    run = led()
    grow(run, 35, 47, timely=False)
    assert not run.run.is_due
    read(run, 59, timely=False)
    assert asked(run).reason.startswith("context at 59%, +12% per turn")


def test_parts_of_one_reply_are_one_reply() -> None:
    run = led()
    grow(run, 35, 47, 47.05, 59, 59.05, 71)
    assert run.run.replies == 4
    assert "+12% per turn" in asked(run).reason


@pytest.mark.parametrize(
    ("percents", "due"),
    [
        ((10, 60), False),  # it has just begun
        ((10, 30, 50), True),
        ((76, 77, 78, 79), False),  # slow growth: the soft mark decides, as ever
        ((76, 77, 78, 79, 80), True),
        ((10, 40, 41, 42, 43, 44), False),  # one spike is no guide
        ((10, 12, 14, 16), False),
        ((2, 20, 38), False),  # not in the first half of the room
        ((60, 70, 75, 30, 31), False),  # it compacted by itself
    ],
)
def test_growth_decides(percents: tuple[float, ...], due: bool) -> None:
    run = led()
    grow(run, *percents)
    assert run.run.is_due is due


def test_the_agents_own_limit_less_the_reserve_counts_as_the_wall() -> None:
    run = led()
    grow(run, 30, 38, 46, enforced=75)  # handed over from 70% on, at the latest
    assert not run.run.is_due
    read(run, 55, enforced=75)
    run.boundary()
    assert "+8% per turn: the next turn would pass 70%" in run.last(AskCheckpoint).reason


def test_a_mark_above_1_switches_the_forecast_off_too() -> None:
    run = led(Policy(soft_mark=1.1, hard_mark=1.1))
    grow(run, 20, 40, 60, 80, 95, enforced=94)
    run.boundary()
    assert (run.state, run.all(AskCheckpoint)) == (RunState.WORKING, [])


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_preset_looks_ahead_to_its_own_mark(name: str) -> None:
    policy = PRESETS[name]
    run = led(policy)
    hard = policy.hard_mark * 100
    grow(run, *(hard - 13 - step for step in (18, 12, 6)))
    assert not run.run.is_due
    read(run, hard - 11.9)
    assert run.run.is_due


# While a tool runs


def test_an_agent_that_talks_is_told_while_its_tool_runs_and_has_time_from_its_end_on() -> None:
    run = led()
    read(run, 81)
    run.tell(Boundary(leg=1, ahead=True))
    assert (run.last(AskCheckpoint).now, run.run.is_in_tool) == (False, True)
    assert "checkpoint" not in timers(run.run)
    run.tell(Boundary(leg=1, ahead=True), after_s=900)
    assert "checkpoint" not in timers(run.run)  # the tool may take its time
    run.boundary()
    assert (run.run.is_in_tool, run.run.asked_at) == (False, run.at)
    assert "checkpoint" in timers(run.run)


def timers(run: Run) -> set[str]:
    found = deadlines(run, Activity(last_output_at=run.created_at))
    return {str(deadline.timer) for deadline in found}


def test_an_agent_that_does_not_talk_is_asked_when_its_tool_has_finished() -> None:
    run = led(abilities=MUTE)
    read(run, 81)
    run.tell(Boundary(leg=1, ahead=True))
    assert (run.state, run.all(AskCheckpoint)) == (RunState.WORKING, [])
    run.boundary()
    assert run.state is RunState.CHECKPOINTING


# Who grows by being resumed


def test_a_session_that_doubles_when_it_is_resumed_is_asked_before_half_of_its_window() -> None:
    run = led(abilities=GEMINI)
    grow(run, 35, 36, 37, 38, 39)
    assert not run.run.is_due
    read(run, 40)  # 42.5% becomes 85%, and the soft mark lies before it as ever
    run.boundary()
    assert run.last(AskCheckpoint).reason == (
        "context at 40%, and it can be asked up to 42.5%: handing over at this boundary"
    )
    assert not run.all(EndLeg)
    run.ends(StopReason.USER_EXIT)
    assert (run.last(StartLeg).purpose, run.last(StartLeg).session_id) == ("checkpoint", "s1")


def test_its_growth_counts_too() -> None:
    run = led(abilities=GEMINI)
    grow(run, 18, 23, 28)
    assert not run.run.is_due
    read(run, 33)
    run.boundary()
    assert "the next turn would pass 42.5%" in run.last(AskCheckpoint).reason


def test_once_it_cannot_be_asked_it_works_up_to_the_marks() -> None:
    run = led(abilities=GEMINI)
    grow(run, 20, 21, 55, 56, 57)
    assert not run.run.is_due
    read(run, 80)
    run.boundary()
    assert "soft mark 80%" in run.last(EndLeg).reason


def test_what_a_session_began_with_does_not_grow_by_being_resumed() -> None:
    for opening, due in ((0, True), (20, False)):
        run = led(abilities=GEMINI)
        for size in (20, 23, 26, 29, 32, 35, 38):
            read(run, size, opening=opening)
        # 42.5% may be asked, or 52.5% if 20% of that is not doubled
        assert run.run.is_due is bool(due)


def test_what_a_resume_added_is_no_turn_of_its_work() -> None:
    """Otherwise sessions would be handed over after two turns, because one might be that large."""
    run = led(abilities=GEMINI)
    read(run, 1, opening=1)
    grow(run, 4, 7, 10)
    run.ends(StopReason.CRASH, progressed=True)
    run.up()
    grow(run, 10, 22, 25, 28)
    assert not run.run.is_due
    assert [after - before for before, after in pairwise(run.run.sizes)].count(tokens(12)) == 0
    run.ends(StopReason.CONTEXT_EXHAUSTED, progressed=True)
    run.hands_over()
    read(run, 2, opening=2)
    grow(run, 5, 8, 11, 14, 17, 20, 23)
    assert not run.run.is_due


def test_sizes_that_another_segue_reads_once_more_are_no_turns() -> None:
    run = led()
    grow(run, 12, 14, 80)
    sizes = run.run.sizes
    read(run, 12)
    assert (run.run.sizes, run.run.is_due) == (sizes, False)
    read(run, 14)
    assert (run.run.sizes, run.run.is_due) == (sizes, False)


@pytest.mark.parametrize(("request_adds", "due"), [(0, False), (12, True)])
def test_a_resumed_session_needs_room_for_the_request_too(request_adds: float, due: bool) -> None:
    run = led(abilities=GEMINI)
    for size in (34, 35, 36, 37, 38):
        read(run, size, request=request_adds)
    assert run.run.is_due is due  # its soft mark is at 40%, or at 37% with 78% before the request


def test_a_session_that_could_do_hardly_any_work_before_it_is_asked_works_up_to_the_marks() -> None:
    """Turns of 18% of the window count twice: it could be asked after one of them."""
    run = led(abilities=GEMINI)
    for size in (1, 19, 37, 55, 73, 91):
        read(run, size, opening=1)
        run.boundary()
    run.ends(StopReason.USER_EXIT, progressed=True)
    run.tell(CheckpointComposed(number=0))
    run.up()
    asked_before = len(run.all(AskCheckpoint))
    for size in (22, 40, 58):
        read(run, size, opening=22)
        run.boundary()
        assert (run.state, run.run.is_due) == (RunState.WORKING, False)
    assert len(run.all(AskCheckpoint)) == asked_before


@pytest.mark.parametrize(("turn_s", "due"), [(10.0, False), (0.3, True)])
def test_a_session_that_works_on_while_it_is_ended_is_ended_earlier(
    turn_s: float, due: bool
) -> None:
    run = led(abilities=GEMINI)
    for number, size in enumerate((5, 10, 15, 20, 25, 30)):
        read(run, size, at=100 + number * turn_s)
    assert run.run.is_due is due  # two turns more take it to 40%, three past 42.5%


def test_a_session_that_worked_on_until_it_is_too_large_is_not_asked() -> None:
    """Seen in a drill: two more turns while gemini ended, and the request was refused at 124%."""
    run = led(abilities=GEMINI)
    grow(run, 20, 25, 30, 35)
    run.boundary()
    assert run.last(AskCheckpoint)
    read(run, 52)
    run.ends(StopReason.USER_EXIT, progressed=True)
    assert "handing over what is known" in run.last(Compose).reason
    assert len(run.legs()) == 1


# Sessions that follow one another


def test_a_new_session_is_judged_by_the_growth_of_the_earlier_ones() -> None:
    run = led()
    grow(run, 35, 47, 59, 71)
    run.boundary()
    run.hands_over()
    grow(run, 58.5, 59)
    assert not run.run.is_due  # it has just begun, however large it is
    read(run, 64)
    assert run.run.is_due


def test_a_new_session_that_is_large_already_is_not_handed_over_before_it_worked() -> None:
    run = led()
    grow(run, 22, 40, 58)
    for _ in range(5):
        run.boundary()
        assert run.state is RunState.CHECKPOINTING
        run.hands_over()
        read(run, 40)
        assert not run.run.is_due  # it has done nothing yet
        read(run, 58)


def test_large_turns_of_earlier_sessions_are_enough_to_ask_at_the_second_reply() -> None:
    """opencode reports a size once the tools have run: a request at the third reply of a session
    that begins at 20% would be read at 98%."""
    run = led()
    grow(run, 10, 27.5, 45, timely=False)
    run.boundary()
    run.hands_over()
    read(run, 20, timely=False)
    assert not run.run.is_due
    read(run, 37.5, timely=False, pending=2)  # what the tools printed is estimated far too low
    assert run.run.is_due


def test_one_jump_in_the_first_half_is_no_reason_to_ask_but_large_turns_are() -> None:
    jump = led()
    grow(jump, 5, 7, 9, 37, timely=False)
    assert not jump.run.is_due
    steady = led()
    grow(steady, 4, 20.5, 37, timely=False)
    assert steady.run.is_due


@pytest.mark.parametrize(("request_adds", "due"), [(0, False), (6, False), (9, True)])
def test_the_request_itself_must_be_read_in_time(request_adds: float, due: bool) -> None:
    run = led()
    grow(run, 35, 47)
    read(run, 58, request=request_adds)  # one boundary later it is read at 82% and what it adds
    assert run.run.is_due is due


def test_a_session_whose_moment_to_be_asked_has_passed_works_up_to_the_marks() -> None:
    """gemini shows no output of its tools: what a turn adds is in the session all the same."""
    run = led(abilities=GEMINI)
    grow(run, 2, 20, 38)
    assert (run.state, run.run.is_due) == (RunState.WORKING, True)
    run.boundary()
    assert (run.state, run.run.is_due) == (RunState.WORKING, False)
    read(run, 56)
    assert (run.state, run.run.is_due) == (RunState.WORKING, False)
    read(run, 81)
    run.boundary()
    assert run.last(EndLeg).reason.endswith("it is too full to be asked")


def test_memory_is_bounded_and_an_answer_does_not_grow_it() -> None:
    run = led(Policy(hard_mark=2.0))
    grow(run, *range(1, 90))
    assert len(run.run.sizes) == KEPT_SIZES
    other = led()
    grow(other, 35, 47, 59, 71)
    other.boundary()
    read(other, 90)
    assert other.run.sizes[-1] == round(0.71 * WINDOW)


def test_the_same_facts_make_the_same_run_and_old_ones_are_understood() -> None:
    run = led()
    grow(run, 35, 47, 59, 71)
    run.boundary()
    assert run.is_folded()
    old = {"fact": "read", "leg": 1, "reading": {"input_tokens": 5, "window_tokens": 10}}
    fact = msgspec.convert(old, ContextMeasured)
    assert fact.is_timely is False
    plain = msgspec.to_builtins(new_run())
    for name in ("sizes", "replies", "is_timely", "is_in_tool"):
        plain.pop(name)
    assert msgspec.convert(plain, Run) == new_run()


# Many sessions

Draw = Callable[[random.Random], float]
GROWTHS: dict[str, Draw] = {
    "even": lambda of: 7.0,
    "large": lambda of: 12.0,
    "largest": lambda of: 16.5,
    "slow": lambda of: 1.0,
    "anything": lambda of: of.uniform(0.2, 15.0),
    "around ten": lambda of: of.uniform(5.0, 15.0),
    "long tail": lambda of: min(15.0, 0.2 + of.expovariate(1 / 3)),
    "longer tail": lambda of: min(15.0, 0.2 + of.expovariate(1 / 6)),
    "often much": lambda of: 12.0 if of.random() < 0.3 else 2.0,
}


def asked_at(
    run: Led, draw: Draw, of: random.Random, *, is_slow: bool, enforced: float | None
) -> float:
    """At which size the model reads the request. `is_slow`: the agent tells a size only once the
    tools have run, so that what is said then is read a turn later."""
    size = of.uniform(5.0, 20.0)
    while True:
        result = draw(of)
        read(run, size, timely=not is_slow, enforced=enforced)
        if run.state is RunState.WORKING and run.run.is_due:
            if is_slow and run.run.abilities.talks:
                size, result = size + result, draw(of)
            run.tell(Boundary(leg=run.run.leg, ahead=run.run.abilities.talks))
        if run.state is RunState.CHECKPOINTING:
            return size + result
        size += result


def sessions(
    draw: Draw, seed: int, abilities: Abilities, *, is_slow: bool, enforced: float | None
) -> Iterator[float]:
    of, run = random.Random(seed), led(abilities=abilities)
    for _ in range(4):
        yield asked_at(run, draw, of, is_slow=is_slow, enforced=enforced)
        if run.run.is_live and not abilities.talks:
            run.ends(StopReason.USER_EXIT, progressed=True)
        run.hands_over()


@pytest.mark.parametrize("enforced", [None, 85.0])
@pytest.mark.parametrize("is_slow", [False, True])
@pytest.mark.parametrize("growth", GROWTHS)
def test_the_request_is_read_in_time_in_95_of_100_sessions(
    growth: str, is_slow: bool, enforced: float | None
) -> None:
    wall = 90.0 if enforced is None else enforced
    found = [
        size
        for seed in range(50)
        for size in sessions(GROWTHS[growth], seed, TALKS, is_slow=is_slow, enforced=enforced)
    ]
    late = sorted(size for size in found if size > wall)
    assert len(late) <= len(found) * 0.05, late


@given(
    step=st.floats(0.3, 15.0),
    spread=st.floats(0.0, 0.5),
    seed=st.integers(0, 10_000),
    talks=st.booleans(),
    is_slow=st.booleans(),
)
def test_a_session_that_grows_about_evenly_is_always_asked_in_time(
    step: float, spread: float, seed: int, talks: bool, is_slow: bool
) -> None:
    """The fifth that a turn may be larger than any before it is the room between the marks."""

    def draw(of: random.Random) -> float:
        return min(15.0, step * of.uniform(1 - spread, 1.0))

    abilities = TALKS if talks else MUTE
    found = list(sessions(draw, seed, abilities, is_slow=is_slow and talks, enforced=None))
    late = [size for size in found if size > 90.0]
    assert len(late) <= (1 if spread > 0.2 else 0), found


@given(step=st.floats(0.1, 2.4), seed=st.integers(0, 1_000))
def test_ordinary_sessions_are_handed_over_where_they_were(step: float, seed: int) -> None:
    (first, *_) = sessions(lambda of: step, seed, TALKS, is_slow=False, enforced=None)
    assert 80.0 - 0.01 <= first - step < 80.0 + step + 0.01  # tokens are whole
