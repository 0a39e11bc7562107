"""The invariants of every run; and the table describes what the machine does."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.json import decode, encode
from msgspec.structs import replace
from support.runs.machine_rules import ABILITIES, FACTS, Dice, moves, walk
from support.runs.stepping import AT, Led, new_run

from segue.core.policy import Policy
from segue.core.runs.machine import TABLE, step, transitions
from segue.core.runs.timers import Activity, deadlines
from segue.core.runs.types import (
    Abilities,
    AnyDecision,
    AnyFact,
    AskCheckpoint,
    Checked,
    CheckpointComposed,
    CheckpointReceived,
    ContextMeasured,
    Created,
    Elapsed,
    Fact,
    Finish,
    HungUp,
    LegEnded,
    LegNotStarted,
    Limited,
    Member,
    Resumed,
    Run,
    RunState,
    RunStep,
    StartLeg,
    WaitUntil,
)
from segue.core.stops.reasons import StopReason

seeds = st.integers(0, 2**64)


@pytest.fixture(scope="module")
def walks() -> list[Led]:
    """So many that every way is gone; two are too rare to be left to chance."""
    nothing_allowed = Led(new_run(Policy(max_cost_usd=0)))
    nothing_allowed.tell(Created())
    never_right = Led(new_run(Policy(max_checks=0), check="make")).begin()
    never_right.ends(StopReason.COMPLETED)
    never_right.tell(Checked(ok=False))
    checked_too_long = Led(new_run(Policy(max_wall_s=1_000), check="make")).begin()
    checked_too_long.ends(StopReason.COMPLETED)
    checked_too_long.tell(Elapsed(timer="wall"), after_s=1_000)
    by_chance = [walk(Dice(random.Random(seed)), 40) for seed in range(2_500)]
    return [nothing_allowed, never_right, checked_too_long, *interrupted_in_a_limit(), *by_chance]


def interrupted_in_a_limit() -> list[Led]:
    """Whoever resumes a run with a list of agents need not wait for the first of them."""
    relay = (Member(agent="rehearsal"), Member(agent="b"))
    found = []
    for has_work in (False, True):
        led = Led(new_run(relay=relay))
        led.tell(Created())
        if has_work:
            led.up()
            led.ends(StopReason.CONTEXT_EXHAUSTED, progressed=True)
            led.tell(CheckpointComposed(number=1))
        led.tell(HungUp())
        led.ends(StopReason.RATE_LIMIT, retry_at=led.at + 9_000)
        led.tell(Resumed())
        found.append(led)
    return found


# The table


def test_the_table_has_a_rule_for_every_state_and_every_fact() -> None:
    assert set(TABLE) == {(state, fact) for state in RunState for fact in FACTS}
    assert all(rule.leads_to <= set(RunState) for rule in TABLE.values())


def test_the_table_says_exactly_where_each_fact_may_lead(walks: list[Led]) -> None:
    """Both ways: no way but those in the table, and each of those is gone by some run."""
    seen: dict[tuple[RunState, type[Fact]], set[RunState]] = {}
    for led in walks:
        for before, fact, found in moves(led):
            seen.setdefault((before.state, type(fact)), set()).add(found.run.state)
    wrong = {key: seen[key] - TABLE[key].leads_to for key in seen}
    assert not {key: states for key, states in wrong.items() if states}
    # That nothing changes is always possible: an old fact.
    unused = {key: TABLE[key].leads_to - seen.get(key, set()) - {key[0]} for key in TABLE}
    assert not {key: states for key, states in unused.items() if states}


def test_transitions_lists_what_is_not_idle() -> None:
    found = {(state, fact): states for state, fact, states in transitions()}
    assert (RunState.DONE, ContextMeasured) not in found
    assert RunState.CHECKPOINTING in found[RunState.WORKING, ContextMeasured]
    assert all(set(states) == TABLE[key].leads_to for key, states in found.items())


def test_final_states_hear_nothing_but_resumed() -> None:
    for (state, fact), rule in TABLE.items():
        if state.is_final and fact is not Resumed:
            assert rule.leads_to == {state}


# What holds in every run


@given(seeds)
def test_from_any_state_any_fact_leads_to_a_known_state(seed: int) -> None:
    dice = Dice(random.Random(seed))
    state = dice.of.choice(list(RunState))
    live = (
        dice.maybe() and state not in (RunState.WAITING, RunState.CHECKING) and not state.is_final
    )
    run = replace(
        dice.run(),
        state=state,
        leg=3,
        is_live=live,
        has_replied=dice.maybe(),
        has_handed_over=dice.maybe(0.2),
    )
    found = step(run, dice.fact(run), at=AT, draw=dice.of.random())
    assert found.run.state in RunState


@given(seeds)
def test_final_states_absorb_all_but_resumed(seed: int) -> None:
    for before, fact, found in moves(walk(Dice(random.Random(seed)), 40)):
        if before.state.is_final and not isinstance(fact, Resumed):
            assert found == RunStep(before)


@given(seeds)
def test_legs_only_grow_none_starts_twice_and_none_beside_a_live_one(seed: int) -> None:
    last = 0
    for before, fact, found in moves(walk(Dice(random.Random(seed)), 60)):
        started = [d for d in found.decisions if isinstance(d, StartLeg)]
        assert len(started) <= 1
        if started:
            # One that was not begun, because its account is limited, was never there.
            assert not before.is_live or isinstance(fact, LegEnded | LegNotStarted | Limited)
            assert found.run.is_live
            assert started[0].leg in (last, last + 1)
            last = started[0].leg


@given(seeds)
def test_nothing_more_happens_in_a_session_that_told_its_checkpoint(seed: int) -> None:
    told_legs, told_sessions = set(), set()
    for before, fact, found in moves(walk(Dice(random.Random(seed)), 60)):
        for decision in found.decisions:
            if isinstance(decision, AskCheckpoint):
                assert decision.leg not in told_legs
            if isinstance(decision, StartLeg) and decision.session_id:
                assert decision.session_id not in told_sessions
        if found.run.has_handed_over and isinstance(fact, CheckpointReceived) and before.is_live:
            told_legs.add(found.run.leg)
            told_sessions.add(found.run.session_id)


@given(seeds)
def test_the_log_folds_to_the_same_run(seed: int) -> None:
    assert walk(Dice(random.Random(seed)), 60).is_folded()


@given(seeds)
def test_runs_facts_and_decisions_survive_being_written_down(seed: int) -> None:
    led = walk(Dice(random.Random(seed)), 40)
    for fact, _, _ in led.log:
        assert decode(encode(fact), type=AnyFact) == fact
    for found in led.steps:
        assert decode(encode(found.run), type=Run) == found.run
        assert decode(encode(found.decisions), type=tuple[AnyDecision, ...]) == found.decisions


@given(seeds)
def test_every_draw_that_counts_is_in_its_decision(seed: int) -> None:
    led = walk(Dice(random.Random(seed)), 60)
    for (_, fact, found), (_, _, draw) in zip(moves(led), led.log, strict=True):
        for decision in found.decisions:
            if isinstance(decision, WaitUntil) and not isinstance(fact, Resumed):
                assert decision.wait.draw == draw
    still = Led(led.first)
    for fact, at, _ in led.log:
        still.tell(fact, draw=0.5, after_s=at - still.at)
    if not led.all(WaitUntil):
        assert still.run == led.run


@given(seeds)
def test_states_and_what_is_live_agree(seed: int) -> None:
    for _, _, found in moves(walk(Dice(random.Random(seed)), 60)):
        run = found.run
        if run.state.is_final or run.state in (RunState.WAITING, RunState.CHECKING):
            assert not run.is_live
        if run.state in (
            RunState.STARTING,
            RunState.WORKING,
            RunState.RESUMING,
            RunState.HANDING_OVER,
        ):
            assert run.is_live
        assert run.state.is_final == (run.outcome is not None)
        assert (run.state is RunState.WAITING) == (run.wait is not None)
        finished = [d for d in found.decisions if isinstance(d, Finish)]
        assert all((d.state, d.outcome) == (run.state, run.outcome) for d in finished)
        assert bool(finished) == bool(run.state.is_final and found.decisions)


@given(seeds)
def test_every_decision_has_a_reason_and_every_outcome_says_what_to_do(seed: int) -> None:
    for _, _, found in moves(walk(Dice(random.Random(seed)), 60)):
        assert all(decision.reason for decision in found.decisions)
        outcome = found.run.outcome
        if outcome is not None:
            assert "\n" not in outcome.what
            assert "run-1" in outcome.advice
            assert outcome.exit_code in (0, 1, 3, 75, 124, 130)
            if outcome.reason in ("cap", "breaker", "no_progress", "check_failed"):
                assert "[policy], or --set" in outcome.change


@given(seeds)
def test_no_live_leg_and_no_wait_is_without_a_timer(seed: int) -> None:
    """What hangs is ended: by a timer, or by the grace of a leg that is being ended already."""
    for _, _, found in moves(walk(Dice(random.Random(seed)), 60)):
        run, timers = found.run, deadlines(found.run, Activity(last_output_at=AT))
        if run.state.is_final:
            assert timers == []
        elif run.state is RunState.WAITING:
            assert "wait" in {t.timer for t in timers}
        elif run.is_live and run.ended_how not in ("gentle", "kill"):
            assert {t.timer for t in timers} & {"stall", "checkpoint", "finish"}


# Every path ends

STUCK = st.fixed_dictionaries(
    {
        "reason": st.sampled_from([r for r in StopReason if r.resume != "none"])
        | st.sampled_from(list(StopReason)),
        "retry_in_s": st.none() | st.floats(-100, 1_000),
        "replies": st.sampled_from([None, False, True]),
        "reads": st.sampled_from([None, 0.5, 0.82, 0.95]),
        "tells": st.booleans(),
        "number": st.integers(0, 2),
        "failure": st.sampled_from(["", "a", "b", "c"]),
    }
)


def lead_nowhere(led: Led, choose: Callable[[], dict[str, Any]]) -> None:
    """One more try at the run, without any progress."""
    how, run = choose(), led.run
    if run.state is RunState.WAITING:
        led.waits()
    elif run.state is RunState.CHECKING:
        led.tell(Checked(ok=False, exit_code=1))
    elif not run.is_live:
        led.tell(CheckpointComposed(number=how["number"], has_summary=how["tells"]))
    else:
        if how["replies"] is not None:
            led.up(acted=how["replies"])
        if how["reads"] is not None:
            led.reads(how["reads"])
            led.boundary()
        if how["tells"]:
            led.tell(CheckpointReceived(leg=run.leg, number=1))
        retry = None if how["retry_in_s"] is None else led.at + how["retry_in_s"]
        led.ends(how["reason"], retry_at=retry, failure=how["failure"])


@settings(max_examples=300)
@given(
    st.data(),
    st.sampled_from(ABILITIES),
    st.booleans(),
    st.sampled_from(
        [
            Policy(max_limited_s=3_000),
            Policy(max_limited_s=500, reset_jitter_min_s=0, reset_jitter_max_s=0),
            Policy(max_limited_s=3_000, resume_user_exits=True, idle_legs=5, same_failures=4),
        ]
    ),
)
def test_every_path_without_progress_ends(
    data: st.DataObject, abilities: Abilities, checks: bool, policy: Policy
) -> None:
    led = Led(new_run(policy, abilities=abilities, check="make" if checks else ""))
    led.tell(Created())
    waits = 2 + policy.max_limited_s / (policy.unknown_reset_wait_s * (1 - policy.wait_jitter))
    # Between two legs that count: one that asks, and a continuation in three ways.
    max_legs = waits + policy.overload_tries + 5 * (policy.idle_legs + policy.max_checks + 2)
    while not led.state.is_final:
        lead_nowhere(led, lambda: data.draw(STUCK))
        assert led.run.leg <= max_legs
        assert sum(w.wait.until - w.wait.since for w in led.all(WaitUntil)) <= policy.max_limited_s


@pytest.mark.parametrize("reason", list(StopReason))
@pytest.mark.parametrize("abilities", ABILITIES)
@pytest.mark.parametrize("replies", [None, False, True])
def test_the_same_stop_for_ever_ends(
    reason: StopReason, abilities: Abilities, replies: bool | None
) -> None:
    led = Led(new_run(Policy(max_limited_s=86_400), abilities=abilities, check="make"))
    led.tell(Created())
    same: dict[str, Any] = {"reason": reason, "retry_in_s": None, "replies": replies, "reads": None}
    same |= {"tells": False, "number": 1, "failure": "x"}
    while not led.state.is_final:
        lead_nowhere(led, lambda: same)
        assert led.run.leg < 300  # a day of five minutes
