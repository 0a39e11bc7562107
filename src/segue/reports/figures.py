"""Figures that show how well handoffs work (docs/report.md), from the logs of runs and of the
daemon. Each has a definition and, where there is one, a target. Reads only those logs."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, pstdev
from typing import Any

from msgspec import Struct

from segue.core.runs.types import Run
from segue.reports.watched import notes_since
from segue.runs.store.port import Entry, Store, StoredLeg, StoredReading
from segue.watch.log import Log, Note

BAND = (0.85, 0.90)
"""How full a window should be when a handoff is requested."""
_KINDS = ("stop", "metrics", "wake", "crossing", "arrival")


class Handoff(Struct, frozen=True, kw_only=True):
    """A handoff in a run or in a terminal. Fractions are of the window; None means unknown."""

    asked_fraction: float | None = None
    answered_fraction: float | None = None
    cycle_s: float | None = None  # in a run: from the request to the next session's first reply
    was_needed: bool | None = None  # False: it was unnecessary, or early


class Facts(Struct, kw_only=True):
    """What happened in a period, from both logs."""

    sessions: set[tuple[str, str]]
    exhausted: set[tuple[str, str]]
    handoffs: list[Handoff]
    stops: Counter[str]
    arrivals: list[int] = []  # for each examined continuation: what it repeated
    resumes: int = 0
    resumes_worked: int = 0
    waits: int = 0
    waited_s: float = 0.0
    saved_s: float = 0.0


class Figure(Struct, frozen=True, kw_only=True):
    """A number, its definition and its target. `value` is None if there is nothing to count yet."""

    name: str
    value: float | None
    unit: str  # share, number, seconds
    of: int  # the number of things that it counts or averages
    definition: str
    target: str = ""
    is_met: bool | None = None


def facts(store: Store | None, log: Log | None, *, since: float = 0.0, project: str = "") -> Facts:
    """What happened since a time and, if `project` is given, in that folder. Sessions of runs count
    once, by the run's log. Without a store or log, its part is empty."""
    found = Facts(sessions=set(), exhausted=set(), handoffs=[], stops=Counter())
    own: set[str] = set()
    for run in store.runs() if store is not None else ():
        if project and run.cwd != project:
            continue
        entries = [entry for entry in store.log(run.id) if entry.at >= since] if store else []
        if store is not None and entries:
            _add_run(found, run, store.legs(run.id), entries, _sizes(store.readings(run.id)))
            own |= {leg.session_id for leg in store.legs(run.id)}
    if log is not None:
        notes = (
            note
            for note in notes_since(log, since, _KINDS)
            if note.session_id not in own and (not project or note.project == project)
        )
        _add_notes(found, notes)
    return found


def figures(known: Facts) -> list[Figure]:
    """All figures, in a fixed order."""
    sessions, handoffs = len(known.sessions), known.handoffs
    asked = [h.asked_fraction for h in handoffs if h.asked_fraction is not None]
    answered = [h.answered_fraction for h in handoffs if h.answered_fraction is not None]
    cycles = sorted(h.cycle_s for h in handoffs if h.cycle_s is not None)
    judged = [h.was_needed for h in handoffs if h.was_needed is not None]
    in_band = [BAND[0] <= each <= BAND[1] for each in asked]
    arrived = known.arrivals
    return [
        _figure(
            "exhaustion_rate", _share(len(known.exhausted), sessions), "share", sessions,
            "share of sessions that hit a full window in the middle of their task",
            "0%", lambda v: v == 0,
        ),
        _figure(
            "handoffs_per_session", len(handoffs) / sessions if sessions else None, "number",
            sessions, "handoffs, divided by sessions", "below 1 in 20 tasks",
        ),
        _figure(
            "false_positives", _share(judged.count(False), len(judged)), "share", len(judged),
            "handoffs after which the remaining work would have fitted into the old session,"
            " or, in terminals, that came below 90% of what the session could use", "0%",
            lambda v: v == 0,
        ),
        _figure(
            "context_when_asked", fmean(asked) if asked else None, "share", len(asked),
            "mean context when the handoff was asked for", "85 to 90%",
            lambda v: BAND[0] <= v <= BAND[1],
        ),
        _figure(
            "context_when_asked_spread", pstdev(asked) if asked else None, "share", len(asked),
            "standard deviation of the same",
        ),
        _figure(
            "context_when_answered", fmean(answered) if answered else None, "share",
            len(answered), "mean context when the session had handed its work over",
            "below 100%", lambda v: v < 1,
        ),
        _figure(
            "in_band", _share(sum(in_band), len(in_band)), "share", len(in_band),
            "handoffs asked for between 85 and 90%", "above 90%", lambda v: v > 0.9,
        ),
        _figure(
            "arrived", _share(arrived.count(0), len(arrived)), "share", len(arrived),
            "continuations whose first actions repeat no command, re-read no file and ask no"
            " question again",
        ),
        _figure(
            "repeated", fmean(arrived) if arrived else None, "number", len(arrived),
            "commands, files and questions repeated in those first actions, on average",
        ),
        _figure(
            "cycle_p50", _quantile(cycles, 0.5), "seconds", len(cycles),
            "from the request to the next session's first reply, median", "below 5 min",
            lambda v: v < 300,
        ),
        _figure(
            "cycle_p95", _quantile(cycles, 0.95), "seconds", len(cycles),
            "the same, 95th percentile", "below 5 min", lambda v: v < 300,
        ),
        _figure(
            "resumes_worked", _share(known.resumes_worked, known.resumes), "share", known.resumes,
            "resumes after which the session replied, of all resumes",
        ),
        _figure(
            "waits", float(known.waits), "number", known.waits,
            "times that a run waited for a limit or an outage",
        ),
        _figure("waited", known.waited_s, "seconds", known.waits, "how long these took in all"),
        _figure(
            "saved", known.saved_s, "seconds", sessions,
            "work done after the first stop of each run: without segue it would have ended there",
        ),
    ]  # fmt: skip


def _figure(
    name: str,
    value: float | None,
    unit: str,
    of: int,
    definition: str,
    target: str = "",
    is_met: Callable[[float], bool] | None = None,
) -> Figure:
    met = None if value is None or is_met is None else is_met(value)
    return Figure(
        name=name,
        value=None if value is None else round(value, 4),
        unit=unit,
        of=of,
        definition=definition,
        target=target,
        is_met=met,
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _quantile(ordered: Sequence[float], share: float) -> float | None:
    """The smallest of the values that at least this share of them does not exceed; None for
    none."""
    if not ordered:
        return None
    place = max(0, -(-len(ordered) * share // 1) - 1)
    return ordered[int(place)]


# Runs


class _Size(Struct, frozen=True):
    seq: int
    leg: int
    used: int
    window: int

    @property
    def fraction(self) -> float:
        return self.used / self.window


def _add_run(
    found: Facts, run: Run, legs: list[StoredLeg], entries: list[Entry], sizes: Sequence[_Size]
) -> None:
    sessions = {
        leg.leg: (leg.agent or run.agent, leg.session_id or f"{run.id}/{leg.leg}") for leg in legs
    }
    found.sessions |= set(sessions.values())
    asked_at: float | None = None
    asked = answered = None
    waiting_since: float | None = None
    for entry in entries:
        leg = entry.data.get("leg")
        if entry.state != "waiting" and waiting_since is not None:
            found.waited_s += max(0.0, entry.at - waiting_since)
            waiting_since = None
        if any(each["decision"] == "ask" for each in entry.decisions):
            asked_at, asked = entry.at, _before(sizes, entry.seq)
        match entry.kind:
            case "told":
                answered = _before(sizes, entry.seq)
            case "arrived":
                found.arrivals.append(_repeats(entry.data))
            case "legended":
                stop = entry.data["stop"]
                if not stop.get("ended_for"):
                    found.stops[str(stop["reason"])] += 1
                    if stop["reason"] == "context_exhausted" and isinstance(leg, int):
                        found.exhausted.add(sessions.get(leg, (run.agent, "")))
        if entry.state == "waiting" and waiting_since is None:
            waiting_since = entry.at
            found.waits += 1
        for each in entry.decisions:
            if each["decision"] != "startleg" or each["purpose"] != "work":
                continue
            if each["prompt"] == "continuation":
                found.handoffs.append(
                    _handoff(run, legs, sizes, each["leg"], entry, asked_at, asked, answered)
                )
                asked_at = asked = answered = None
    for ended in legs:
        if ended.prompt == "resume" and ended.started_at is not None:
            found.resumes += 1
            found.resumes_worked += ended.replied_at is not None
        found.saved_s += ended.active_s if ended.leg > 1 else 0.0


def _sizes(readings: Iterable[StoredReading]) -> list[_Size]:
    return [
        _Size(each.seq, each.leg, each.reading.used_tokens, each.reading.window_tokens)
        for each in readings
        if each.reading.window_tokens > 0
    ]


def _before(sizes: Sequence[_Size], seq: int) -> _Size | None:
    return next((size for size in reversed(sizes) if size.seq <= seq), None)


def _handoff(
    run: Run,
    legs: Sequence[StoredLeg],
    sizes: Sequence[_Size],
    leg: int,
    entry: Entry,
    asked_at: float | None,
    asked: _Size | None,
    answered: _Size | None,
) -> Handoff:
    new = next((each for each in legs if each.leg == leg), None)
    replied = new.replied_at if new is not None else None
    cycle = None if asked_at is None or replied is None else max(0.0, replied - asked_at)
    old = asked or _before(sizes, entry.seq)
    return Handoff(
        asked_fraction=asked.fraction if asked else None,
        answered_fraction=answered.fraction if answered else None,
        cycle_s=cycle,
        was_needed=_was_needed(run, sizes, leg, old),
    )


def _was_needed(run: Run, sizes: Sequence[_Size], leg: int, old: _Size | None) -> bool | None:
    """Whether the work of the later sessions would have been too much for the old one. None if
    unknown: the run is not done, or the old session was not measured."""
    if run.state.value != "done" or old is None:
        return None
    added = 0
    for number in {size.leg for size in sizes if size.leg >= leg}:
        own = [size.used for size in sizes if size.leg == number]
        added += max(0, own[-1] - own[0])
    end = min(old.window, run.abilities.enforced_tokens or old.window)
    return old.used + added > end - run.policy.reserve_tokens


# The daemon


def _add_notes(found: Facts, notes: Iterable[Note]) -> None:
    for note in notes:
        name = (note.agent, note.session_id)
        data = note.data
        if note.session_id:
            found.sessions.add(name)
        match note.kind:
            case "stop":
                found.stops[str(data.get("reason") or "unknown")] += 1
                if data.get("reason") == "context_exhausted":
                    found.exhausted.add(name)
            case "metrics" if data.get("outcome") == "done":
                found.handoffs.append(
                    Handoff(
                        asked_fraction=_number(data.get("trigger_fraction")),
                        answered_fraction=_number(data.get("last_fraction")),
                        cycle_s=_number(data.get("duration_s")),
                        was_needed=data.get("justified"),
                    )
                )
            case "arrival" if data.get("actions"):
                found.arrivals.append(_repeats(data))
            case "wake":
                found.resumes += data.get("verdict") == "resume"
                found.resumes_worked += data.get("verdict") == "resume"
                found.resumes_worked -= data.get("verdict") == "failed"
    found.resumes_worked = max(0, found.resumes_worked)


def _repeats(data: Mapping[str, Any]) -> int:
    """How many commands, files and questions a session repeated."""
    return sum(int(_number(data.get(key)) or 0) for key in ("commands", "files", "questions"))


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None
