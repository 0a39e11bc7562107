"""What happened in the last two weeks: stops by reason, handoffs, and spend by day."""

from collections import Counter
from datetime import datetime, tzinfo
from typing import Any

from segue.core.stops.reasons import StopReason
from segue.dashboard import drawing, words
from segue.dashboard.sources import Source
from segue.reports.figures import facts
from segue.reports.figures import figures as made
from segue.system import clock
from segue.views import tables
from segue.views.report.figures import made_from, title, with_unit
from segue.views.run.story import ended_for
from segue.views.verdicts import duration

_DAYS = 14
_NOTES = 20_000
_MET = {True: "met", False: "missed", None: ""}


def figures(source: Source, now: float) -> dict[str, Any]:
    """The content of the page, from the logs of runs and of the daemon. Computed again only after
    new entries, and every hour."""
    version = (*source.versions, now // 3_600)
    return source.cached("history", version, lambda: _figures(source, now))


def _figures(source: Source, now: float) -> dict[str, Any]:
    since, tz = now - _DAYS * 86_400, clock.local_zone()
    days = {_day(now - number * 86_400, tz): [0, 0.0] for number in range(_DAYS - 1, -1, -1)}
    stops: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    runs = handoffs = waits = 0
    waited_s = 0.0
    with source.store() as store:
        for run in store.runs():
            legs = store.legs(run.id)
            if max((leg.ended_at or leg.started_at or 0 for leg in legs), default=0) < since:
                continue
            runs, handoffs = runs + 1, handoffs + run.handoffs
            ends[run.state.value if run.state.is_final else "unfinished"] += 1
            for leg in legs:
                if leg.ended_at is None or leg.ended_at < since:
                    continue
                stops["could not be started"] += leg.fault != ""
                day = _day(leg.ended_at, tz)
                if day in days:
                    days[day][0] += leg.tokens
                    days[day][1] += leg.cost_usd
            for ended in store.stops(run.id):
                if ended.at >= since:
                    stops[ended_for(ended.stop) or ended.stop.reason.description] += 1
            for each in store.decisions(run.id):
                if each.decision == "waituntil" and each.at >= since:
                    waits += 1
                    waited_s += max(0.0, each.data["wait"]["until"] - each.data["wait"]["since"])
    watched: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    for note in source.last_notes(_NOTES, ("stop", "metrics")):
        if note.at >= since and note.kind == "stop":
            watched[str(note.data.get("reason") or "unknown")] += 1
        elif note.at >= since:
            asked[str(note.data.get("outcome") or "unknown")] += 1
    judged = facts(store, source.notes(), since=since)
    has_cost = any(cost for _, cost in days.values())
    return {
        "days": _DAYS,
        "facts": [
            ("runs", f"{runs:,}"),
            ("handoffs in runs", f"{handoffs:,}"),
            ("waits", f"{waits:,}"),
            ("total wait", duration(waited_s) if waits else "–"),
            ("handoffs in terminals", f"{sum(asked.values()):,}"),
        ],
        "judged": [
            {
                "name": title(each),
                "value": with_unit(each),
                "of": made_from(each),
                "target": each.target,
                "met": _MET[each.is_met],
                "about": each.definition,
            }
            for each in made(judged)
        ],
        "ends": _bars(ends, "runs by how they ended"),
        "stops": _bars(+stops, "legs of runs by why they stopped"),
        "watched": _bars(_described(watched), "watched sessions by why they stopped"),
        "handoffs": _bars(asked, "handoffs in terminals by how they ended"),
        "spend": drawing.bars(
            [
                (day, float(cost if has_cost else tokens), _spend_text(int(tokens), cost))
                for day, (tokens, cost) in days.items()
            ],
            "tokens and cost of runs by day",
        )
        if any(tokens for tokens, _ in days.values())
        else "",
    }


def _day(at: float, tz: tzinfo) -> str:
    when = datetime.fromtimestamp(at, tz)
    return f"{when.day} {when:%b}"


def _spend_text(tokens: int, cost: float) -> str:
    if not tokens:
        return "–"
    return f"{tables.short(tokens)} tokens" + (f", {words.dollars(cost)}" if cost else "")


def _described(counts: Counter[str]) -> Counter[str]:
    known = {reason.value: reason.description for reason in StopReason}
    return Counter({known.get(name, name): count for name, count in counts.items()})


def _bars(counts: Counter[str], label: str) -> Any:
    rows = [(words.line(name, 60), float(n), f"{n:,}") for name, n in counts.most_common()]
    return drawing.bars(rows, label) if rows else ""
