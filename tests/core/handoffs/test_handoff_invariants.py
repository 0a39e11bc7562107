"""What holds in a handoff in a terminal whatever happens: its table, and walks through it."""

import random
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.json import decode, encode
from support.terminals.handoff_cycles import (
    AT,
    FACTS,
    PENDING,
    POLICY,
    WHATS,
    Led,
    new,
    written,
)

from segue.core.handoffs.machine import (
    TABLE,
    AgentGone,
    AnyAct,
    AnyFact,
    AskUser,
    Busy,
    Cancel,
    Cleared,
    Done,
    FileSeen,
    HandoffFact,
    HandoffStep,
    KeyPressed,
    NotInterrupted,
    NotTyped,
    NotWritten,
    OwnWritten,
    Planned,
    PromptSeen,
    ReadFile,
    Ready,
    RecordFigures,
    RetryRequested,
    TerminalHandoff,
    TimeUp,
    TurnInterrupted,
    Typed,
    TypeText,
    Used,
    UserSpoke,
    WentOn,
    What,
    acts_again,
    due,
    fold,
    step,
    transitions,
)

# Whatever happens


class Dice:
    """Facts by chance, mostly such as answer what is awaited."""

    def __init__(self, chance: random.Random) -> None:
        self.of = chance

    def maybe(self, share: float = 0.5) -> bool:
        return self.of.random() < share

    def fact(self, cycle: TerminalHandoff) -> AnyFact:
        what = PENDING.get(cycle.step, "resume" if cycle.is_cleared else "request")
        what = what if self.maybe(0.9) else self.of.choice(WHATS)
        make: dict[type[HandoffFact], Callable[[], AnyFact]] = {
            Typed: lambda: Typed(what),
            NotTyped: lambda: NotTyped(what, "?", self.maybe(0.8)),
            PromptSeen: lambda: PromptSeen(what),
            FileSeen: lambda: FileSeen(
                self.maybe(), "?", 10, self.maybe(0.8), nothing_left=self.maybe(0.05)
            ),
            Ready: lambda: Ready(self.maybe(0.2), self.maybe(0.2)),
            Busy: lambda: Busy(self.maybe(0.2), self.maybe(), self.maybe()),
            TurnInterrupted: lambda: TurnInterrupted(
                self.of.choice((None, AT - 50, cycle.step_at))
            ),
            KeyPressed: KeyPressed,
            NotInterrupted: lambda: NotInterrupted("?"),
            OwnWritten: lambda: OwnWritten(10),
            NotWritten: lambda: NotWritten("?"),
            Cleared: lambda: Cleared(self.of.choice(("", "s2"))),
            AgentGone: lambda: AgentGone("?"),
            Used: lambda: Used(
                self.of.randrange(200_000),
                self.of.choice(("", "a", "b")),
                is_near=self.maybe(),
                is_past=self.maybe(),
            ),
        }
        rare = (AgentGone, Cancel, Cleared, NotWritten, UserSpoke, TurnInterrupted)
        kinds = [kind for kind in FACTS if kind not in rare or self.maybe(0.15)]
        if self.maybe(0.4):
            likely: dict[HandoffStep, tuple[type[HandoffFact], ...]] = {
                HandoffStep.WAITING: (Ready, Busy, NotInterrupted),
                HandoffStep.RESTING: (Busy, RetryRequested),
                HandoffStep.ASKING: (Typed, PromptSeen, FileSeen),
                HandoffStep.ASKED: (FileSeen, TimeUp),
                HandoffStep.WRITING: (OwnWritten, Cleared, UserSpoke),
                HandoffStep.WRITTEN: (Ready, Ready, TimeUp, FileSeen, NotInterrupted),
                HandoffStep.CLEARING: (Typed, Cleared, UserSpoke, FileSeen),
                HandoffStep.CLEARED: (Ready,),
                HandoffStep.RESUMING: (Typed, UserSpoke),
                HandoffStep.RESUMED: (ReadFile, WentOn, TimeUp),
                HandoffStep.NEEDS_USER: (RetryRequested, Cleared, ReadFile),
            }
            kinds = list(likely.get(cycle.step, FACTS))
        kind = self.of.choice(kinds)
        return make.get(kind, kind)()  # type: ignore[return-value]


def walk(seed: int, steps: int = 40) -> Led:
    dice = Dice(random.Random(seed))
    led = Led(new(owes=dice.maybe()))
    for _ in range(steps):
        led.tell(dice.fact(led.cycle), after_s=dice.of.choice((0.1, 5.0, 50.0, 400.0)))
    return led


seeds = st.integers(0, 2**64).map(walk)


def test_the_table_has_a_rule_for_every_step_and_every_fact() -> None:
    assert set(TABLE) == {(where, fact) for where in HandoffStep for fact in FACTS}
    found = {(where, fact) for where, fact, _ in transitions()}
    assert not any(where.is_final for where, _ in found)
    assert (HandoffStep.WAITING, Ready) in found


def test_the_table_says_exactly_where_each_fact_may_lead() -> None:
    """Both ways: no way but those in the table, and each of those is gone by some cycle."""
    seen: dict[tuple[HandoffStep, type[HandoffFact]], set[HandoffStep]] = {}
    rare = written()
    rare.tell(Ready(), NotTyped("clear", "draft"), FileSeen(ok=False, stable=False), Cleared("s2"))
    refused = written()
    refused.tell(FileSeen(ok=False, stable=False), *[NotInterrupted("the user types")] * 10)
    for led in (rare, refused, *map(walk, range(6_000))):
        before = led.first
        for (fact, _), (after, _) in zip(led.log, led.steps, strict=True):
            seen.setdefault((before.step, type(fact)), set()).add(after.step)
            before = after
    wrong = {key: seen[key] - TABLE[key].leads_to for key in seen}
    assert not {key: steps for key, steps in wrong.items() if steps}
    unused = {key: TABLE[key].leads_to - seen.get(key, set()) - {key[0]} for key in TABLE}
    assert not {key: steps for key, steps in unused.items() if steps}


@settings(max_examples=100)
@given(seeds)
def test_a_context_is_never_cleared_without_a_valid_document(led: Led) -> None:
    is_valid = False
    for (fact, _), (cycle, acts) in zip(led.log, led.steps, strict=True):
        if isinstance(fact, FileSeen):
            is_valid = fact.ok and fact.stable
        elif isinstance(fact, OwnWritten):
            is_valid = True
        assert is_valid or not cycle.has_document or cycle.step.is_final
        assert is_valid or TypeText("clear") not in (*acts, *acts_again(cycle))


@settings(max_examples=100)
@given(seeds)
def test_never_are_two_different_things_to_be_typed_at_once(led: Led) -> None:
    pending: What | None = None
    before = led.first
    for (fact, at), (cycle, acts) in zip(led.log, led.steps, strict=True):
        answers = "clear" if isinstance(fact, Cleared) else getattr(fact, "what", None)
        if answers == pending:
            pending = None
        elif isinstance(fact, TimeUp):
            when = due(before, led.policy)
            pending = None if when is not None and at >= when else pending
        given_now = [act.what for act in acts if isinstance(act, TypeText)]
        assert len(given_now) < 2
        assert not (given_now and pending) or given_now[0] == pending
        pending = given_now[0] if given_now else pending
        before = cycle


@settings(max_examples=100)
@given(seeds)
def test_nothing_is_done_after_its_end_and_it_is_recorded_once(led: Led) -> None:
    ends = [n for n, (cycle, _) in enumerate(led.steps) if cycle.step.is_final]
    if ends:
        cycle, acts = led.steps[ends[0]]
        assert [type(act) for act in acts] == [RecordFigures, Done]
        assert all(after == (cycle, []) for after in led.steps[ends[0] + 1 :])
        assert acts_again(cycle) == []
        assert due(cycle, led.policy) is None
    assert len(led.all(RecordFigures)) == bool(ends)


@settings(max_examples=100)
@given(seeds)
def test_the_user_is_asked_once_for_each_time_that_it_stops_for_them(led: Led) -> None:
    stops, before = 0, led.first
    for cycle, _ in led.steps:
        stops += cycle.step is HandoffStep.NEEDS_USER and before.step is not HandoffStep.NEEDS_USER
        before = cycle
    assert len(led.all(AskUser)) == stops


@settings(max_examples=100)
@given(seeds)
def test_a_cycle_is_what_its_facts_made_of_it_also_when_they_were_written_down(led: Led) -> None:
    kept = [(decode(encode(fact), type=AnyFact), at) for fact, at in led.log]
    assert fold(led.first, kept, led.policy) == led.cycle
    assert decode(encode(led.cycle), type=TerminalHandoff) == led.cycle
    acts = [act for _, acts in led.steps for act in acts]
    assert decode(encode(acts), type=list[AnyAct]) == acts


@settings(max_examples=100)
@given(seeds)
def test_whatever_happened_a_silent_world_leads_to_an_end_or_to_the_user(led: Led) -> None:
    """With time alone: nothing waits for ever."""
    led.tell(Planned())
    for _ in range(60):
        if not led.cycle.step.is_active:
            return
        if led.at(HandoffStep.WRITING):
            led.tell(NotWritten("?"))
        elif led.cycle.step in PENDING and not led.cycle.is_typed:
            led.tell(NotTyped("request", "?"), NotTyped("clear", "?"), NotTyped("resume", "?"))
        else:
            led.time_up()
    raise AssertionError(led.cycle)


@settings(max_examples=100)
@given(seeds)
def test_whatever_happened_an_agent_that_does_as_told_leads_to_the_end(led: Led) -> None:
    answers: dict[HandoffStep, tuple[AnyFact, ...]] = {
        HandoffStep.WAITING: (Ready(),),
        HandoffStep.RESTING: (RetryRequested(),),
        HandoffStep.ASKING: (Typed("request"),),
        HandoffStep.ASKED: (FileSeen(ok=True),),
        HandoffStep.WRITING: (OwnWritten(9),),
        HandoffStep.WRITTEN: (FileSeen(ok=True), Ready()),
        HandoffStep.CLEARING: (FileSeen(ok=True), Typed("clear"), Cleared("s2")),
        HandoffStep.CLEARED: (FileSeen(ok=True), Ready()),
        HandoffStep.RESUMING: (Typed("resume"),),
        HandoffStep.RESUMED: (ReadFile(), WentOn()),
        HandoffStep.NEEDS_USER: (RetryRequested(),),
    }
    for _ in range(30):
        if led.cycle.step.is_final:
            return
        if led.at(HandoffStep.WAITING) and not led.cycle.owes:
            led.tell(Planned())
            led.time_up()
            led.tell(TurnInterrupted(led.now))
        if not led.cycle.step.is_final:
            led.tell(*answers[led.cycle.step])
    raise AssertionError(led.cycle)


def test_what_is_seen_again_of_a_new_session_does_not_begin_its_time_again() -> None:
    """A session that has read its document and hangs is asked about in the end: each look shows
    once more that it has read it."""
    cycle = new(step=HandoffStep.RESUMED, is_cleared=True, is_received=True, has_document=True)
    cycle, _ = step(cycle, ReadFile(), POLICY, AT + 10)
    assert (cycle.is_read, cycle.step_at) == (True, AT + 10)
    again, acts = step(cycle, ReadFile(), POLICY, AT + 200)
    assert (again, acts) == (cycle, [])
    asked, _ = step(again, TimeUp(), POLICY, AT + 10 + POLICY.handoff_wait_s)
    assert asked.step is HandoffStep.NEEDS_USER


def test_a_user_who_was_asked_is_not_asked_again_for_what_was_heard_before() -> None:
    """The records still show that the new session was told: that is no news, and its user is not
    asked every five minutes."""
    cycle = new(step=HandoffStep.RESUMED, is_cleared=True, is_received=True, has_document=True)
    asked, acts = step(cycle, TimeUp(), POLICY, AT + POLICY.handoff_wait_s)
    assert asked.step is HandoffStep.NEEDS_USER
    assert any(isinstance(act, AskUser) for act in acts)
    assert step(asked, PromptSeen("resume"), POLICY, AT + 1_000) == (asked, [])
    read, _ = step(asked, ReadFile(), POLICY, AT + 1_001)
    assert read.step is HandoffStep.RESUMED


def test_a_cleared_context_that_is_seen_at_every_look_is_no_news() -> None:
    """A handoff that waits for its user is looked at for days: the log must not grow with it."""
    cycle = new(
        step=HandoffStep.NEEDS_USER, is_cleared=True, cleared_at=AT, has_document=True,
        new_session_id="s2",
    )  # fmt: skip
    assert step(cycle, Cleared("s2"), POLICY, AT + 1_000) == (cycle, [])
