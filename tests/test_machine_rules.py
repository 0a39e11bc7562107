"""What holds in every run, whatever happens to it; and the table is what the machine does."""

import random
from collections.abc import Callable
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.json import decode, encode
from msgspec.structs import replace
from runs import AT, Led, new_run, stop

from segue.core.machine import TABLE, step, transitions
from segue.core.policy import Policy
from segue.core.reading import Reading
from segue.core.run import (
    Abilities,
    AnyDecision,
    AnyFact,
    Ask,
    Boundary,
    CancelAsked,
    Checked,
    Composed,
    Created,
    Elapsed,
    Fact,
    Finish,
    LegEnded,
    Looped,
    Named,
    Pressed,
    Read,
    Replied,
    Resumed,
    Run,
    Started,
    StartLeg,
    State,
    Step,
    Timer,
    Told,
    Unstartable,
    WaitUntil,
)
from segue.core.stop import StopReason
from segue.core.timers import Activity, deadlines

FACTS: tuple[type[Fact], ...] = get_args(AnyFact)
TIMERS: tuple[Timer, ...] = ("wait", "stall", "active", "wall", "checkpoint", "finish")
POLICIES = (
    Policy(),
    Policy(idle_legs=100, same_failures=100, most_wall_s=10_000, most_active_s=500),
    Policy(most_legs=6, overload_tries=1, most_limited_s=300, same_failures=2),
    Policy(resume_user_exits=True, most_tokens=500, least_confidence=0.0),
)
ABILITIES = (
    Abilities(talks=True),
    Abilities(),
    Abilities(resume_factor=1.3, enforced_tokens=150_000),
    Abilities(resumes=False),
)


class Dice:
    """Facts by chance: mostly of the newest leg, and mostly such as move a run on."""

    def __init__(self, chance: random.Random) -> None:
        self.of = chance

    def maybe(self, share: float = 0.5) -> bool:
        return self.of.random() < share

    def leg(self, run: Run) -> int:
        return run.leg if self.maybe(0.95) else self.of.randrange(0, 9)

    def stop(self) -> Any:
        retry = self.of.choice((None, None, AT - 100, AT + 50, AT + 5_000, AT + 9e6))
        sure = 0.99 if self.maybe(0.8) else 0.3
        reason = self.of.choice([StopReason.COMPLETED, *StopReason])
        return stop(reason, confidence=sure, retry_at=retry)

    def fact(self, run: Run) -> AnyFact:
        leg = self.leg(run)
        make: dict[type[Fact], Callable[[], AnyFact]] = {
            Created: Created,
            Started: lambda: Started(leg=leg, session_id=run.session_id or f"s{leg}"),
            Named: lambda: Named(leg=leg, session_id=run.session_id or f"s{leg}"),
            Unstartable: lambda: Unstartable(leg=leg, what="?"),
            Replied: lambda: Replied(leg=leg, acted=self.maybe()),
            Read: lambda: Read(
                leg=leg, reading=Reading(input_tokens=self.of.choice((0, 165_000, 180_000)))
            ),
            Boundary: lambda: Boundary(leg=leg),
            Told: lambda: Told(leg=leg, number=run.checkpoint + 1),
            Composed: lambda: Composed(
                number=run.checkpoint + 1 if self.maybe() else 0, has_told=self.maybe()
            ),
            LegEnded: lambda: LegEnded(
                leg=leg,
                stop=self.stop(),
                replied=self.maybe(),
                progressed=self.maybe(),
                failure=self.of.choice(("", "a", "b")),
                tokens=10,
                active_s=20,
            ),
            Checked: lambda: Checked(ok=self.maybe(0.2), exit_code=1),
            Elapsed: lambda: Elapsed(timer=self.of.choice(TIMERS), leg=self.of.choice((0, leg))),
            Looped: lambda: Looped(leg=leg, calls=self.of.choice((1, 500))),
            Pressed: Pressed,
            CancelAsked: CancelAsked,
            Resumed: lambda: Resumed(
                fresh=self.maybe(0.3),
                strict=self.maybe(0.3),
                policy=self.of.choice((None, *POLICIES)),
            ),
        }
        rare = {Created, Unstartable, Looped, Pressed, CancelAsked, Resumed}
        kinds = [kind for kind in FACTS if kind not in rare or self.maybe(0.25)]
        if run.state.is_final and self.maybe(0.7):
            kinds = [Resumed]
        elif run.state is State.CHECKING:
            kinds = [Checked, Elapsed, Pressed, CancelAsked, Resumed]
        elif self.maybe(0.2):
            going_on: type[Fact] = LegEnded if run.is_live else Composed
            likely: dict[State, list[type[Fact]]] = {
                State.WAITING: [Elapsed],
                State.STOPPING: [Resumed, LegEnded, Unstartable],
                State.CHECKPOINTING: [going_on],
            }
            kinds = likely.get(run.state, [Replied])
        return make[self.of.choice(kinds)]()

    def run(self) -> Run:
        return new_run(
            self.of.choice(POLICIES),
            abilities=self.of.choice(ABILITIES),
            check="make" if self.maybe() else "",
        )


def walk(dice: Dice, steps: int) -> Led:
    led = Led(dice.run())
    led.tell(Created())
    for _ in range(steps):
        led.tell(
            dice.fact(led.run), draw=dice.of.random(), after_s=dice.of.choice((0.1, 10.0, 400.0))
        )
    return led


seeds = st.integers(0, 2**64)


@pytest.fixture(scope="module")
def walks() -> list[Led]:
    """So many that every way is gone; two are too rare to be left to chance."""
    nothing_allowed = Led(new_run(Policy(most_cost_usd=0)))
    nothing_allowed.tell(Created())
    never_right = Led(new_run(Policy(most_checks=0), check="make")).begin()
    never_right.ends(StopReason.COMPLETED)
    never_right.tell(Checked(ok=False))
    by_chance = [walk(Dice(random.Random(seed)), 40) for seed in range(2_500)]
    return [nothing_allowed, never_right, *by_chance]


def moves(led: Led) -> list[tuple[Run, AnyFact, Step]]:
    before = [led.first, *(step.run for step in led.steps)]
    return [(b, fact, s) for b, (fact, _, _), s in zip(before, led.log, led.steps, strict=False)]


# The table


def test_the_table_has_a_rule_for_every_state_and_every_fact() -> None:
    assert set(TABLE) == {(state, fact) for state in State for fact in FACTS}
    assert all(rule.leads_to <= set(State) for rule in TABLE.values())


def test_the_table_says_exactly_where_each_fact_may_lead(walks: list[Led]) -> None:
    """Both ways: no way but those in the table, and each of those is gone by some run."""
    seen: dict[tuple[State, type[Fact]], set[State]] = {}
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
    assert (State.DONE, Read) not in found
    assert State.CHECKPOINTING in found[State.WORKING, Read]
    assert all(set(states) == TABLE[key].leads_to for key, states in found.items())


def test_final_states_hear_nothing_but_resumed() -> None:
    for (state, fact), rule in TABLE.items():
        if state.is_final and fact is not Resumed:
            assert rule.leads_to == {state}


# What holds in every run


@given(seeds)
def test_from_any_state_any_fact_leads_to_a_known_state(seed: int) -> None:
    dice = Dice(random.Random(seed))
    state = dice.of.choice(list(State))
    live = dice.maybe() and state not in (State.WAITING, State.CHECKING) and not state.is_final
    run = replace(
        dice.run(), state=state, leg=3, is_live=live, has_replied=dice.maybe(), told=dice.maybe(0.2)
    )
    found = step(run, dice.fact(run), at=AT, draw=dice.of.random())
    assert found.run.state in State


@given(seeds)
def test_final_states_absorb_all_but_resumed(seed: int) -> None:
    for before, fact, found in moves(walk(Dice(random.Random(seed)), 40)):
        if before.state.is_final and not isinstance(fact, Resumed):
            assert found == Step(before)


@given(seeds)
def test_legs_only_grow_none_starts_twice_and_none_beside_a_live_one(seed: int) -> None:
    led = walk(Dice(random.Random(seed)), 60)
    numbers = [leg[0] for leg in led.legs()]
    assert numbers == list(range(1, len(numbers) + 1))
    for before, fact, found in moves(led):
        started = [d for d in found.decisions if isinstance(d, StartLeg)]
        assert len(started) <= 1
        if started:
            assert not before.is_live or isinstance(fact, LegEnded | Unstartable)
            assert found.run.is_live


@given(seeds)
def test_nothing_more_happens_in_a_session_that_told_its_checkpoint(seed: int) -> None:
    told_legs, told_sessions = set(), set()
    for before, fact, found in moves(walk(Dice(random.Random(seed)), 60)):
        for decision in found.decisions:
            if isinstance(decision, Ask):
                assert decision.leg not in told_legs
            if isinstance(decision, StartLeg) and decision.session_id:
                assert decision.session_id not in told_sessions
        if found.run.told and isinstance(fact, Told) and before.is_live:
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
        if run.state.is_final or run.state in (State.WAITING, State.CHECKING):
            assert not run.is_live
        if run.state in (State.STARTING, State.WORKING, State.RESUMING, State.HANDING_OVER):
            assert run.is_live
        assert run.state.is_final == (run.outcome is not None)
        assert (run.state is State.WAITING) == (run.wait is not None)
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
        elif run.state is State.WAITING:
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
    if run.state is State.WAITING:
        led.waits()
    elif run.state is State.CHECKING:
        led.tell(Checked(ok=False, exit_code=1))
    elif not run.is_live:
        led.tell(Composed(number=how["number"], has_told=how["tells"]))
    else:
        if how["replies"] is not None:
            led.up(acted=how["replies"])
        if how["reads"] is not None:
            led.reads(how["reads"])
            led.boundary()
        if how["tells"]:
            led.tell(Told(leg=run.leg, number=1))
        retry = None if how["retry_in_s"] is None else led.at + how["retry_in_s"]
        led.ends(how["reason"], retry_at=retry, failure=how["failure"])


@settings(max_examples=300)
@given(
    st.data(),
    st.sampled_from(ABILITIES),
    st.booleans(),
    st.sampled_from(
        [
            Policy(most_limited_s=3_000),
            Policy(most_limited_s=500, reset_jitter_least_s=0, reset_jitter_most_s=0),
            Policy(most_limited_s=3_000, resume_user_exits=True, idle_legs=5, same_failures=4),
        ]
    ),
)
def test_every_path_without_progress_ends(
    data: st.DataObject, abilities: Abilities, checks: bool, policy: Policy
) -> None:
    led = Led(new_run(policy, abilities=abilities, check="make" if checks else ""))
    led.tell(Created())
    waits = 2 + policy.most_limited_s / (policy.unknown_reset_wait_s * (1 - policy.wait_jitter))
    # Between two legs that count: one that asks, and a continuation in three ways.
    most_legs = waits + policy.overload_tries + 5 * (policy.idle_legs + policy.most_checks + 2)
    while not led.state.is_final:
        lead_nowhere(led, lambda: data.draw(STUCK))
        assert led.run.leg <= most_legs
        assert sum(w.wait.until - w.wait.since for w in led.all(WaitUntil)) <= policy.most_limited_s


@pytest.mark.parametrize("reason", list(StopReason))
@pytest.mark.parametrize("abilities", ABILITIES)
@pytest.mark.parametrize("replies", [None, False, True])
def test_the_same_stop_for_ever_ends(
    reason: StopReason, abilities: Abilities, replies: bool | None
) -> None:
    led = Led(new_run(Policy(most_limited_s=86_400), abilities=abilities, check="make"))
    led.tell(Created())
    same: dict[str, Any] = {"reason": reason, "retry_in_s": None, "replies": replies, "reads": None}
    same |= {"tells": False, "number": 1, "failure": "x"}
    while not led.state.is_final:
        lead_nowhere(led, lambda: same)
        assert led.run.leg < 300  # a day of five minutes
