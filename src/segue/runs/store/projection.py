"""Derives everything else from the log. Pure: a store applies the changes that an entry makes,
and the same log always produces the same tables."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import isfinite
from typing import Any, NamedTuple

import msgspec
from msgspec import to_builtins
from msgspec.structs import replace

from segue.core.runs.types import AnyDecision, AnyFact, Created, Run, RunState, RunStep
from segue.core.sessions.reading import Reading
from segue.runs.store.coding import convert_any, pack, pack_whole, unpack
from segue.runs.store.port import Entry

TABLES: dict[str, tuple[str, ...]] = {
    "run": ("id",),
    "snapshot": ("run",),
    "leg": ("run", "leg"),
    "reading": ("run", "seq"),
    "stop": ("run", "seq"),
    "decision": ("run", "seq", "place"),
    "timer": ("run",),
}
"""The tables derived from the log, each with its key, in an order in which they can be filled."""

StepFunction = Callable[..., RunStep]
"""`core.machine.step(run, fact, *, at, draw)`."""


class TableChange(NamedTuple):
    """A change of one row: these columns get these values, the others stay; None: the row is
    deleted. `once`: only columns that have no value yet."""

    table: str
    key: tuple[object, ...]
    values: dict[str, object] | None
    once: dict[str, object] = {}  # noqa: RUF012 - never changed


class Drift(NamedTuple):
    """An entry for which today's machine would decide differently."""

    run: str
    seq: int
    state: str  # as it is stored
    now: str  # as it would be now


def entry_of(
    run_after: Run,
    fact: AnyFact,
    *,
    seq: int,
    at: float,
    machine: str,
    draw: float | None,
    decisions: Sequence[AnyDecision],
    before: Run | None = None,
) -> Entry:
    """Encodes a fact as an entry; `before` only for the first. Raises ValueError for data that
    could not be read back: the log must stay readable forever."""
    pack_whole(run_after, Run)
    if before is not None:
        pack_whole(before, Run)
    pack_whole(fact, AnyFact)
    if decisions:
        pack_whole(tuple(decisions), tuple[AnyDecision, ...])
    if not isfinite(at) or (draw is not None and not isfinite(draw)):
        raise ValueError(f"an entry cannot be stored with the time {at} and the draw {draw}")
    data = to_builtins(fact)
    tag = data.pop("fact")
    if before is not None:
        data["run"] = to_builtins(before)
    entry = Entry(
        run=run_after.id,
        seq=seq,
        at=at,
        machine=machine,
        kind=tag,
        data=data,
        draw=draw,
        decisions=[to_builtins(decision) for decision in decisions],
        state=run_after.state.value,
    )
    return unpack(pack(entry), Entry)  # as any later reader sees it


def first_entry(
    run: Run,
    after: Run,
    *,
    at: float | None,
    machine: str,
    draw: float | None,
    decisions: Sequence[AnyDecision],
) -> Entry:
    """The entry of `Created`, with the run as it was before it."""
    return entry_of(
        after,
        Created(),
        seq=1,
        at=run.created_at if at is None else at,
        machine=machine,
        draw=draw,
        decisions=decisions,
        before=run,
    )


def fact_of(entry: Entry) -> AnyFact:
    """The fact in an entry; raises ValueError if this version does not know it."""
    fact: AnyFact = convert_any({**entry.data, "fact": entry.kind}, AnyFact)
    return fact


def first_run(entry: Entry) -> Run:
    """The run before its first entry, which this must be."""
    return msgspec.convert(entry.data["run"], Run)


def changes(entry: Entry, run: Run) -> Iterator[TableChange]:
    """The changes that an entry makes; `run` is the run after it."""
    if entry.seq == 1:
        values: dict[str, object] = {
            name: getattr(run, name) for name in ("agent", "cwd", "created_at", "task")
        }
        values["origin"] = run.origin.session_id if run.origin is not None else ""
        yield TableChange("run", (run.id,), values)
    yield _snapshot(entry, run)
    yield from _of_fact(entry)
    for place, decision in enumerate(entry.decisions):
        yield from _of_decision(entry, place, decision, run.agent)
    wait = run.wait if run.state is RunState.WAITING else None
    if wait is not None:
        values = {"until": wait.until, "since": wait.since, "why": wait.why.value}
        yield TableChange("timer", (run.id,), values)
    else:
        yield TableChange("timer", (run.id,), None)


def _snapshot(entry: Entry, run: Run) -> TableChange:
    # The task may be long and never changes: it is not written again with every entry.
    values: dict[str, object] = {
        "seq": entry.seq,
        "at": entry.at,
        "state": run.state.value,
        "is_final": run.state.is_final,
        "data": replace(run, task=""),
    }
    return TableChange("snapshot", (run.id,), values)


def _of_fact(entry: Entry) -> Iterator[TableChange]:
    fact, key = entry.data, (entry.run, entry.seq)
    leg = (entry.run, fact.get("leg"))
    match entry.kind:
        case "started":
            named = {"session_id": fact["session_id"]} if fact["session_id"] else {}
            yield TableChange("leg", leg, {**named}, {"started_at": entry.at})
        case "named":
            yield TableChange("leg", leg, {"session_id": fact["session_id"]})
        case "replied":
            yield TableChange("leg", leg, {}, {"replied_at": entry.at})
        case "limited":
            yield TableChange("leg", leg, None)  # it never existed
        case "unstartable":
            yield TableChange("leg", leg, {"ended_at": entry.at, "fault": fact["what"]})
        case "read":
            reading = msgspec.convert(fact["reading"], Reading)
            values: dict[str, object] = {
                "at": entry.at,
                "leg": fact["leg"],
                "used_tokens": reading.used_tokens,
                "window_tokens": reading.window_tokens,
                "reading": reading,
            }
            yield TableChange("reading", key, values)
        case "legended":
            reason = fact["stop"]["reason"]
            names = ("progressed", "tokens", "cost_usd", "active_s")
            fields = {name: fact[name] for name in names}
            yield TableChange("leg", leg, {"ended_at": entry.at, "reason": reason, **fields})
            stop = {"at": entry.at, "leg": fact["leg"], "reason": reason, "stop": fact["stop"]}
            yield TableChange("stop", key, stop)


def _of_decision(
    entry: Entry, place: int, decision: dict[str, Any], agent: str
) -> Iterator[TableChange]:
    kind = decision["decision"]
    values = {"at": entry.at, "decision": kind, "reason": decision["reason"], "data": decision}
    yield TableChange("decision", (entry.run, entry.seq, place), values)
    if kind == "startleg":
        names = ("purpose", "prompt", "strategy", "session_id")
        plan = {name: decision[name] for name in names} | {"agent": agent}
        yield TableChange("leg", (entry.run, decision["leg"]), plan, {"planned_at": entry.at})


def todays_machine() -> StepFunction:
    """The machine of this version; imported only for a replay."""
    from segue.core.runs.machine import step

    return step


def replay(entries: Iterable[Entry], step: StepFunction) -> Iterator[tuple[Entry, Run]]:
    """Each entry of one run from its first, with the run after it."""
    run: Run | None = None
    for entry in entries:
        run = first_run(entry) if run is None else run
        fact = Created() if entry.seq == 1 else fact_of(entry)
        run = step(run, fact, at=entry.at, draw=entry.draw or 0.0).run
        yield entry, run


def drift(entry: Entry, run: Run) -> list[Drift]:
    """Whether a replayed entry leads to a different result than it did."""
    state = run.state.value
    return [] if state == entry.state else [Drift(entry.run, entry.seq, entry.state, state)]
