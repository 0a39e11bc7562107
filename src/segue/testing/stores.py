"""Tests of what every store must do, for authors of other stores:

    class TestMine(StoreTests):
        def open(self, folder: Path, is_alive: IsAlive) -> Store:
            return MyStore(folder / "runs", is_alive=is_alive)

`open` with the same folder must open the same store again, as another process would.

All in one file, because authors derive their tests from one class.
"""

from pathlib import Path

import pytest
from msgspec.structs import replace

from segue.core.policy import Policy
from segue.core.runs.types import (
    AnyDecision,
    AnyFact,
    Boundary,
    CancelAsked,
    ContextMeasured,
    Created,
    Elapsed,
    Finish,
    LegEnded,
    LegNotStarted,
    LegStarted,
    Origin,
    Outcome,
    Replied,
    Run,
    RunState,
    RunStep,
    SessionNamed,
    StartLeg,
    Wait,
    WaitUntil,
)
from segue.core.sessions.reading import Reading
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import Evidence, FailureInfo, Stop
from segue.runs.store.port import (
    Entry,
    Held,
    Holder,
    IsAlive,
    Lease,
    LeaseLost,
    Store,
    UnknownRun,
    run_key,
)
from segue.runs.store.projection import StepFunction, fact_of, replay

START = 1_794_800_000.0
ODD_TEXTS = (
    "plain",
    "",
    "\0 and \x1b[31m",
    "naïve – 漢字 🙂",
    "bytes of a command line: \udcff\udc80",
    "two halves that are no pair: \ud83d" + "\ude00",
    '"quotes" \\ and\nlines\r\n\u2028',
    "null",
)


def make_run(name: str = "run-1", **changes: object) -> Run:
    """A run before its first fact."""
    run = Run(id=name, task="Do it", agent="claude", cwd="/p", created_at=START, policy=Policy())
    return replace(run, **changes)


def make_holder(pid: int = 1, **changes: object) -> Holder:
    """A holder of a lease: the process with this pid on a machine "m"."""
    return replace(Holder(machine="m", boot="b", pid=pid, started=float(pid)), **changes)


def step(run: Run, fact: AnyFact, *, at: float, draw: float | None) -> RunStep:
    """A machine, much simpler than segue's, that fills all tables."""
    match fact:
        case Created():
            return _start(run, 1, "it was asked for")
        case LegStarted():
            return RunStep(replace(run, is_live=True, leg_since=at))
        case SessionNamed():
            return RunStep(replace(run, session_id=fact.session_id))
        case Replied():
            return RunStep(replace(run, state=RunState.WORKING, has_replied=True))
        case ContextMeasured():
            return RunStep(replace(run, reading=fact.reading))
        case LegEnded(stop=Stop(reason=StopReason.RATE_LIMIT)):
            until = at + 30 * (1 + (draw or 0.0))
            wait = Wait(until=until, since=at, why=StopReason.RATE_LIMIT, draw=draw or 0.0)
            waiting = replace(run, state=RunState.WAITING, wait=wait, stop=fact.stop, is_live=False)
            return RunStep(waiting, (WaitUntil(reason="limited", wait=wait),))
        case LegEnded():
            return _finish(replace(run, stop=fact.stop), RunState.DONE, 0)
        case Elapsed():
            return _start(
                replace(run, state=RunState.RESUMING, wait=None), run.leg + 1, "it is time"
            )
        case CancelAsked():
            return _finish(run, RunState.CANCELLED, 130)
    return RunStep(run)


def _start(run: Run, leg: int, reason: str) -> RunStep:
    decision = StartLeg(reason=reason, leg=leg, session_id=run.session_id)
    return RunStep(replace(run, leg=leg), (decision,))


def _finish(run: Run, state: RunState, exit_code: int) -> RunStep:
    outcome = Outcome(exit_code=exit_code, reason="completed", what="over")
    decision = Finish(reason="over", state=state, outcome=outcome)
    return RunStep(replace(run, state=state, outcome=outcome), (decision,))


def limited(leg: int, text: str = "429") -> LegEnded:
    """The end of a leg that ran into a limit."""
    stop = Stop(
        reason=StopReason.RATE_LIMIT,
        confidence=0.9,
        evidence=(Evidence("rule", text, "stderr"),),
        details=FailureInfo(message=text, code="null"),
    )
    return LegEnded(leg=leg, stop=stop, progressed=True, tokens=700, cost_usd=0.5, active_s=9.5)


def completed(leg: int) -> LegEnded:
    """The end of a leg that completed the task."""
    return LegEnded(leg=leg, stop=Stop(reason=StopReason.COMPLETED, confidence=1.0), replied=True)


def story(text: str = "session-1") -> list[AnyFact]:
    """The facts of a run of two legs with a wait between them, from the first leg's start to the
    end. `text` is the id of the session, and the text of the limit."""
    return [
        LegStarted(leg=1),
        SessionNamed(leg=1, session_id=text),
        Replied(leg=1),
        Replied(leg=1, acted=True),
        ContextMeasured(leg=1, reading=Reading(input_tokens=5, cache_read_tokens=900, at=START)),
        Boundary(leg=1),
        limited(1, text),
        Elapsed(timer="wait"),
        LegStarted(leg=2, session_id=text),
        Replied(leg=2),
        completed(2),
    ]


class Driver:
    """Writes facts into a run's log, one per second, with the states and decisions of a machine.
    Creates the run, unless the store has it already."""

    def __init__(self, store: Store, run: Run, by: StepFunction = step, pid: int = 1) -> None:
        self.store = store
        self.by = by
        self.at = run.created_at
        self.lease: Lease = store.acquire(run_key(run.id), make_holder(pid), self.at)
        known = store.run(run.id)
        if known is None:
            first = by(run, Created(), at=self.at, draw=0.5)
            store.create(run, after=first.run, draw=0.5, decisions=first.decisions)
            known = first.run
        self.run = known

    def tell(self, *facts: AnyFact) -> Entry:
        """Writes these facts; returns the last entry."""
        for fact in facts:
            self.at += 1
            done = self.by(self.run, fact, at=self.at, draw=0.25)
            decisions: tuple[AnyDecision, ...] = done.decisions
            entry = self.store.append(
                done.run,
                fact,
                at=self.at,
                draw=0.25,
                decisions=decisions,
                epoch=self.lease.epoch,
            )
            self.run = done.run
        return entry


class StoreTests:
    """Derive from this class, and define `open`."""

    def open(self, folder: Path, is_alive: IsAlive) -> Store:
        raise NotImplementedError

    @pytest.fixture
    def dead(self) -> set[int]:
        """The pids of holders that are dead; tests add to it."""
        return set()

    @pytest.fixture
    def store(self, tmp_path: Path, dead: set[int]) -> Store:
        return self.open(tmp_path, lambda holder: holder.pid not in dead)

    @pytest.fixture
    def other(self, tmp_path: Path, dead: set[int], store: Store) -> Store:
        """The same store, as another process opens it."""
        return self.open(tmp_path, lambda holder: holder.pid not in dead)

    # The log

    def test_a_run_is_what_its_last_entry_left(self, store: Store, other: Store) -> None:
        driver = Driver(store, make_run())
        for fact in story():
            driver.tell(fact)
            assert other.run("run-1") == store.run("run-1") == driver.run
        assert driver.run.state is RunState.DONE

    def test_the_log_has_every_fact_in_order_and_no_gaps(self, store: Store, other: Store) -> None:
        Driver(store, make_run()).tell(*story())
        log = other.log("run-1")
        assert [entry.seq for entry in log] == list(range(1, len(story()) + 2))
        assert [fact_of(entry) for entry in log[1:]] == story()
        assert log[0].kind == "created"
        assert log[0].decisions[0]["decision"] == "startleg"
        assert other.log("run-1", after_seq=5) == log[5:]
        assert other.log("run-1", after_seq=99) == []

    def test_an_entry_tells_what_append_gave(self, store: Store) -> None:
        entry = Driver(store, make_run()).tell(limited(1))
        assert store.log("run-1")[-1] == entry
        assert list(entry.as_object()) == list(Entry.__struct_fields__)
        assert (entry.kind, entry.state, entry.draw) == ("legended", "waiting", 0.25)

    def test_the_log_alone_leads_to_the_same_run(self, store: Store) -> None:
        driver = Driver(store, make_run())
        driver.tell(*story())
        *_, (_, run) = replay(store.log("run-1"), step)
        assert run == driver.run

    @pytest.mark.parametrize("text", ODD_TEXTS)
    def test_any_text_comes_back_as_it_was(self, store: Store, other: Store, text: str) -> None:
        run = make_run(task=text, cwd=f"/{text}", flags=(text,))
        driver = Driver(store, run)
        driver.tell(*story(text)[:7])
        assert other.run("run-1") == driver.run
        assert driver.run.task == text
        assert other.runs(cwd=f"/{text}") == [driver.run]
        assert [fact_of(entry) for entry in other.log("run-1")[1:]] == story(text)[:7]
        assert other.legs("run-1")[0].session_id == text
        (stop,) = other.stops("run-1")
        assert stop.stop == limited(1, text).stop
        other.keep_checkpoint("run-1", 1, {text: [text]}, START)
        assert store.checkpoint("run-1", 1) == {text: [text]}
        store.ask("run-1", text, START)
        assert other.asks("run-1")[0].what == text
        key, holder = f"tree:/{text}", make_holder(note=text)
        store.acquire(key, holder, START)
        assert other.holder(key) == holder

    @pytest.mark.parametrize("number", [float("nan"), float("inf")])
    def test_what_could_not_be_read_back_is_refused(self, store: Store, number: float) -> None:
        driver = Driver(store, make_run())
        with pytest.raises(ValueError, match="cannot be stored"):
            driver.tell(replace(completed(1), cost_usd=number))
        assert len(store.log("run-1")) == 1
        assert driver.tell(LegStarted(leg=1)).seq == 2

    def test_numbers_may_be_larger_than_any_column(self, store: Store) -> None:
        fact = replace(completed(1), tokens=1 << 70)
        Driver(store, make_run()).tell(fact)
        assert fact_of(store.log("run-1")[-1]) == fact

    def test_a_run_is_created_once(self, store: Store) -> None:
        driver = Driver(store, make_run())
        with pytest.raises(ValueError, match="already exists"):
            store.create(make_run())
        with pytest.raises(ValueError, match="created once"):
            driver.tell(Created())
        assert len(store.log("run-1")) == 1

    def test_of_an_unknown_run_nothing_is_known_and_nothing_kept(self, store: Store) -> None:
        assert store.run("run-x") is None
        assert not store.log("run-x")
        assert not store.legs("run-x")
        assert not store.asks("run-x")
        lease = store.acquire(run_key("run-x"), make_holder(), START)
        with pytest.raises(UnknownRun):
            store.append(make_run("run-x"), LegStarted(leg=1), at=START, epoch=lease.epoch)
        with pytest.raises(UnknownRun):
            store.ask("run-x", "cancel", START)
        with pytest.raises(UnknownRun):
            store.keep_checkpoint("run-x", 1, {}, START)
        assert store.runs() == []

    # What is made from it

    def test_runs_are_listed_newest_first(self, store: Store) -> None:
        made = [
            make_run(f"run-{n}", created_at=START + n, cwd=f"/{n % 2}", task=f"task {n}")
            for n in range(4)
        ]
        drivers = [Driver(store, run) for run in made]
        drivers[3].tell(completed(1))
        assert [run.id for run in store.runs()] == ["run-3", "run-2", "run-1", "run-0"]
        assert [run.id for run in store.runs(unfinished=True, limit=2)] == ["run-2", "run-1"]
        assert [run.task for run in store.runs(cwd="/1")] == ["task 3", "task 1"]
        assert [run.id for run in store.runs("/1", unfinished=True)] == ["run-1"]

    def test_ids_are_found_by_how_they_begin(self, store: Store) -> None:
        for name in ("run-ab", "run-abc", "run-b", "run-%", "run-a_"):
            Driver(store, make_run(name))
        assert store.find("run-ab") == ["run-ab", "run-abc"]
        assert store.find("run-%") == ["run-%"]
        assert store.find("run-_") == store.find("x") == []
        assert len(store.find("")) == 5

    def test_legs_tell_their_life(self, store: Store) -> None:
        driver = Driver(store, make_run())
        driver.tell(*story())
        first, second = store.legs("run-1")
        assert store.sessions() == [("session-1", "run-1")]
        times = (first.planned_at, first.started_at, first.replied_at, first.ended_at)
        assert times == (START, START + 1, START + 3, START + 7)
        assert (first.session_id, first.reason, first.progressed) == (
            "session-1",
            "rate_limit",
            True,
        )
        assert (first.tokens, first.cost_usd, first.active_s) == (700, 0.5, 9.5)
        assert (second.leg, second.session_id, second.reason) == (2, "session-1", "completed")

    def test_the_session_that_a_run_continues_is_one_of_its_sessions(self, store: Store) -> None:
        stop = Stop(reason=StopReason.RATE_LIMIT, confidence=1.0)
        origin = Origin(agent="claude", session_id="rescued", path="/s.jsonl", stop=stop)
        Driver(store, make_run("run-1", origin=origin)).tell(*story())
        Driver(store, make_run("run-2"))
        assert sorted(store.sessions()) == [("rescued", "run-1"), ("session-1", "run-1")]

    def test_a_leg_that_could_not_be_started_says_why(self, store: Store) -> None:
        Driver(store, make_run()).tell(LegNotStarted(leg=1, what="no program"))
        (leg,) = store.legs("run-1")
        assert (leg.fault, leg.started_at, leg.reason) == ("no program", None, "")

    def test_readings_stops_and_decisions_come_in_order(self, store: Store) -> None:
        Driver(store, make_run()).tell(*story())
        (reading,) = store.readings("run-1")
        assert (reading.seq, reading.leg, reading.reading.used_tokens) == (6, 1, 905)
        first, second = store.stops("run-1")
        assert (first.stop, first.leg) == (limited(1, "session-1").stop, 1)
        assert (second.stop, second.leg) == (completed(2).stop, 2)
        kinds = [decision.decision for decision in store.decisions("run-1")]
        assert kinds == ["startleg", "waituntil", "startleg", "finish"]
        assert store.decisions("run-1")[1].data["wait"]["draw"] == 0.25

    def test_a_wait_is_a_row_until_it_is_over(self, store: Store, other: Store) -> None:
        driver = Driver(store, make_run())
        later = Driver(store, make_run("run-2", created_at=START + 100))
        driver.tell(limited(1))
        later.tell(limited(1))
        due = START + 1 + 37.5
        assert [timer.run for timer in other.timers()] == ["run-1", "run-2"]
        assert [timer.until for timer in other.timers(due_before=due)] == [due]
        assert other.timers(due_before=due - 0.1) == []
        driver.tell(Elapsed(timer="wait"))
        later.tell(CancelAsked())
        assert other.timers() == []

    # Checkpoints

    def test_a_checkpoint_is_kept_by_number_and_may_be_replaced(self, store: Store) -> None:
        Driver(store, make_run())
        assert store.checkpoint("run-1", 1) is None
        store.keep_checkpoint("run-1", 1, {"a": 1}, START)
        store.keep_checkpoint("run-1", 2, {"b": [1.5, None, {"c": "x" * 100_000}]}, START)
        store.keep_checkpoint("run-1", 1, {"a": 2}, START)
        assert store.checkpoint("run-1", 1) == {"a": 2}
        assert store.checkpoint("run-1", 2) == {"b": [1.5, None, {"c": "x" * 100_000}]}

    def test_a_run_that_is_forgotten_leaves_nothing(self, store: Store, other: Store) -> None:
        one = Driver(store, make_run())
        two = Driver(store, make_run("run-2"))
        for name in ("run-1", "run-2"):
            store.keep_checkpoint(name, 1, {"a": 1}, START)
            store.ask(name, "cancel", START)
        with pytest.raises(LeaseLost):
            store.forget("run-1", epoch=one.lease.epoch + 1)
        store.forget("run-1", epoch=one.lease.epoch)
        assert other.run("run-1") is None
        assert not other.log("run-1")
        assert not other.legs("run-1")
        assert not other.asks("run-1")
        assert not other.decisions("run-1")
        assert other.checkpoint("run-1", 1) is None
        assert other.holder(run_key("run-1")) is None
        assert [run.id for run in other.runs()] == other.find("run-") == ["run-2"]
        assert other.checkpoint("run-2", 1) == {"a": 1}
        assert two.tell(LegStarted(leg=1)).seq == 2
        with pytest.raises(UnknownRun):
            store.forget("run-1", epoch=1)

    # Asks

    def test_an_ask_of_another_process_is_seen_and_taken_once(
        self, store: Store, other: Store
    ) -> None:
        driver = Driver(store, make_run())
        Driver(store, make_run("run-2"))
        before = store.version()
        assert store.version() == before
        first = other.ask("run-1", "cancel", START)
        assert store.version() != before
        other.ask("run-2", "cancel", START)
        second = other.ask("run-1", "again", START)
        assert [ask.what for ask in store.asks("run-1")] == ["cancel", "again"]
        assert [ask.number for ask in store.asks("run-1", after=first)] == [second]
        store.append(driver.run, CancelAsked(), at=START, epoch=driver.lease.epoch, taken=first)
        assert [ask.number for ask in other.asks("run-1")] == [second]
        assert len(other.asks("run-2")) == 1
        store.append(driver.run, CancelAsked(), at=START, epoch=driver.lease.epoch, taken=second)
        assert other.ask("run-1", "cancel", START) > second

    def test_an_ask_is_not_in_the_log(self, store: Store) -> None:
        Driver(store, make_run())
        store.ask("run-1", "cancel", START)
        assert len(store.log("run-1")) == 1

    # Leases

    def test_a_lease_has_one_holder(self, store: Store, other: Store) -> None:
        lease = store.acquire("tree:/p", make_holder(1, note="run-1"), START)
        with pytest.raises(Held, match=r"tree:/p is held by process 1 of m \(run-1\)") as fault:
            other.acquire("tree:/p", make_holder(2), START)
        assert fault.value.holder == other.holder("tree:/p") == make_holder(1, note="run-1")
        with pytest.raises(Held):
            store.acquire("tree:/p", make_holder(1), START)
        other.acquire("tree:/q", make_holder(2), START)
        store.release(lease)
        assert other.holder("tree:/p") is None

    def test_no_epoch_comes_twice(self, store: Store, other: Store, dead: set[int]) -> None:
        first = store.acquire("k", make_holder(1), START)
        store.release(first)
        second = other.acquire("k", make_holder(2), START)
        dead.add(2)
        third = store.acquire("k", make_holder(3), START)
        fourth = other.acquire("k", make_holder(4), START, seize=True)
        assert [lease.epoch for lease in (first, second, third, fourth)] == [1, 2, 3, 4]
        for old in (first, second, third):
            store.release(old)
        assert store.holder("k") == make_holder(4)

    def test_who_was_presumed_dead_cannot_write(
        self, store: Store, other: Store, dead: set[int]
    ) -> None:
        driver = Driver(store, make_run())
        driver.tell(LegStarted(leg=1))
        dead.add(1)
        lease = other.acquire(run_key("run-1"), make_holder(2), START)
        with pytest.raises(LeaseLost, match="process 2 of m"):
            driver.tell(Replied(leg=1))
        assert len(store.log("run-1")) == 2
        assert store.run("run-1") == driver.run
        other.append(driver.run, Replied(leg=1), at=START, epoch=lease.epoch)
        assert len(store.log("run-1")) == 3

    def test_nobody_writes_without_a_lease(self, store: Store) -> None:
        driver = Driver(store, make_run())
        for epoch in (0, 2):
            with pytest.raises(LeaseLost):
                store.append(driver.run, LegStarted(leg=1), at=START, epoch=epoch)
        store.release(driver.lease)
        with pytest.raises(LeaseLost, match="no process holds it"):
            driver.tell(LegStarted(leg=1))
        assert len(store.log("run-1")) == 1
