"""Data for the pages on runs: all runs over time, and one run in full."""

import os
from contextlib import suppress
from typing import Any

import msgspec

from segue.core.handoffs.checkpoint import Checkpoint, render
from segue.core.queue.schedule import Verdict
from segue.core.queue.types import Task
from segue.core.runs.types import Run, RunState
from segue.core.stops.reasons import StopReason
from segue.dashboard import drawing, words
from segue.dashboard.drawing import Piece
from segue.dashboard.sources import RunRow, Source
from segue.errors import SegueError
from segue.fleet.database import FleetDatabase
from segue.runs.folders import RunFolder, read
from segue.runs.results import is_here
from segue.runs.store.port import Store, StoredDecision, StoredLeg
from segue.system import clock
from segue.views import tables, tasks
from segue.views.lines.runs import Teller
from segue.views.run.outcome import commands
from segue.views.verdicts import duration, local_times

_DAY_S = 86_400.0
_WORDS = 30
_TAIL_BYTES = 96_000
_DECISIONS = 100
_STORY = 200
_MARGIN = 0.02  # of a timeline's length, before its first leg


def overview(source: Source, now: float) -> dict[str, Any]:
    """The tasks of the queue and all runs; unfinished and recent runs have a timeline of at most
    the last 24 hours."""
    now_minute = now // 60 * 60 + 60  # the axis moves once a minute
    since = now_minute - _DAY_S
    rows = source.picture.runs
    with source.store() as store:
        pieces = {
            row.run.id: _pieces(store, row.run, now_minute)
            for row in rows
            if not row.run.state.is_final or _is_recent(row.run, since)
        }
    if pieces:
        first = min(min((p.since for p in each), default=now) for each in pieces.values())
        since = max(since, first - (now_minute - first) * _MARGIN)
    return {
        "tasks": [_task(task, verdict) for task, verdict in source.tasks(now)],
        "axis": drawing.hours(since, now_minute, clock.local_zone()),
        "runs": [
            {
                **_line(row),
                "timeline": drawing.timeline(
                    [pieces[row.run.id]], since, now_minute, f"what {row.run.id} went through"
                )
                if row.run.id in pieces
                else "",
            }
            for row in rows
        ],
    }


def _task(task: Task, verdict: Verdict | None) -> dict[str, Any]:
    """A task of the queue, for the page."""
    why, until = tasks.waiting(task, verdict)
    return {
        "id": task.id,
        "title": words.line(task.text, 140),
        "agent": words.line(task.agent or ", ".join(task.agents), 40),
        "folder": words.tilde(task.repo or task.cwd),
        "state": task.state.value,
        "class": task.state.value.replace(" ", "-"),
        "why": words.line(why, 120),
        "waits_until": until,
        "created_at": task.created_at,
        "run": task.run,
    }


def _is_recent(run: Run, since: float) -> bool:
    return run.created_at >= since


def _line(row: RunRow) -> dict[str, Any]:
    run = row.run
    wait = run.wait if run.state is RunState.WAITING else None
    reading = run.reading
    return {
        "id": run.id,
        "title": words.line(run.task, 140),
        "agent": words.line(run.agent, 30),
        "folder": words.tilde(run.cwd),
        "state": words.line(row.state, 60),
        "class": run.state.value.replace(" ", "-"),
        "waits_until": wait.until if wait is not None else None,
        "created_at": run.created_at,
        "legs": run.leg,
        "handoffs": run.handoffs,
        "tokens": tables.short(run.tokens),
        "cost": words.dollars(run.cost_usd),
        "percent": "" if reading is None else f"{reading.percent:.0f}%",
        "is_final": run.state.is_final,
        "is_driven": row.is_driven,
        "can_resume": run.state is not RunState.DONE and not row.is_driven,
        "can_cancel": not run.state.is_final,
    }


def _pieces(store: Store, run: Run, now: float) -> list[Piece]:
    """A run's legs, then its waits, as bars."""
    found = []
    for leg in store.legs(run.id):
        begin = leg.started_at or leg.planned_at
        if begin is None:
            continue
        end = leg.ended_at or (now if run.is_live and leg.leg == run.leg else begin)
        found.append(Piece(begin, end, f"leg {_kind(leg)}", _leg_title(leg, end - begin)))
    for wait in waits(store.decisions(run.id)):
        end = min(wait["until"], now)
        title = f"waited for {words.line(wait['why'])}, {duration(end - wait['since'])}"
        found.append(Piece(wait["since"], end, "wait", title))
    return found


def _kind(leg: StoredLeg) -> str:
    if leg.purpose == "checkpoint":
        return "checkpoint"
    if not leg.ended_at:
        return "running"
    return "fine" if leg.reason in ("completed", "context_exhausted", "") else "cut"


def _leg_title(leg: StoredLeg, length_s: float) -> str:
    ended = leg.fault or leg.reason.replace("_", " ") or "running"
    return words.line(f"leg {leg.leg}: {ended}, {duration(length_s)}", 120)


def waits(decisions: list[StoredDecision]) -> list[dict[str, Any]]:
    """The waits that a run decided on, as its log has them."""
    return [each.data["wait"] for each in decisions if each.decision == "waituntil"]


def one(source: Source, run_id: str, now: float) -> dict[str, Any]:
    """Everything about one run. Raises InputError if there is no such run."""
    row = source.run(run_id)
    run = row.run
    with source.store() as store:
        legs, decisions = store.legs(run_id), store.decisions(run_id)
        readings, stops = (
            store.readings(run_id),
            {ended.leg: ended.stop for ended in store.stops(run_id)},
        )
        ended = store.checkpoint(run_id, run.checkpoint) if run.checkpoint else None
        teller = Teller(clock.local_zone())
        story = [line for entry in store.log(run_id) for line in teller.lines(entry)]
        pieces = _pieces(store, run, now // 5 * 5 + 5)
        answer, utterances = _answer_and_words(store, run)
    is_over = run.state.is_final
    since = min((piece.since for piece in pieces), default=run.created_at)
    until = max((piece.until for piece in pieces), default=run.created_at + 1)
    outcome = run.outcome
    policy, tz = run.policy, clock.local_zone()
    return {
        **_line(row),
        "title": words.line(run.task.strip().partition("\n")[0], 90) or run.id,
        "task": words.text(run.task, 4_000),
        "check": words.line(run.check),
        "outcome": words.line(local_times(outcome.what, now, tz)) if outcome else "",
        "advice": [words.line(line) for line in outcome.advice.splitlines()] if outcome else [],
        "next": [words.line(line) for line in commands(run)] if is_over else [],
        "worked": duration(run.active_s),
        "works_since": _works_since(run, legs) if row.is_driven else None,
        "timeline": drawing.timeline([pieces], since, until, "legs and waits over time"),
        "axis": drawing.hours(since, max(until, since + 4), clock.local_zone()),
        "curve": drawing.curve(
            [(each.at, each.reading.fraction) for each in readings],
            [("soft", policy.soft_mark), ("hard", policy.hard_mark)],
            "how full the window was, with the marks for a handoff",
            since,
            until,
        )
        if len(readings) > 1
        else "",
        "marks": [
            (name, f"{mark:.0%}")
            for name, mark in (("soft", policy.soft_mark), ("hard", policy.hard_mark))
            if mark <= 1
        ],
        "leg_list": [_leg(leg, stops.get(leg.leg)) for leg in legs],
        "decisions": [
            {"at": each.at, "reason": words.line(local_times(each.reason, each.at, tz))}
            for each in decisions[::-1]
            if each.reason
        ][:_DECISIONS],
        "words": utterances,
        "answer": words.text(answer, 8_000) if is_over else "",
        "checkpoint": _checkpoint(ended),
        "checkpoint_number": run.checkpoint,
        "story": [words.line(line) for line in story[-_STORY:]],
    }


def _works_since(run: Run, legs: list[StoredLeg]) -> float | None:
    """The start from which the browser counts the time worked: that of the running leg, minus the
    time worked before. None if no leg is running."""
    live = next((leg for leg in legs if leg.started_at and leg.ended_at is None), None)
    return None if live is None or live.started_at is None else live.started_at - run.active_s


def _leg(leg: StoredLeg, stop: Any) -> dict[str, Any]:
    from segue.views.run.story import ended_for

    own = ended_for(stop) if stop is not None else ""
    ended = leg.fault or own or (StopReason(leg.reason).description if leg.reason else "running")
    return {
        "number": leg.leg,
        "what": "checkpoint" if leg.purpose == "checkpoint" else leg.prompt,
        "ended": words.line(ended, 120),
        "tokens": tables.short(leg.tokens) if leg.ended_at else "",
        "cost": words.dollars(leg.cost_usd),
        "length": duration(leg.active_s) if leg.ended_at else "",
        "started_at": leg.started_at,
        "is_live": leg.ended_at is None and leg.started_at is not None,
    }


def _checkpoint(checkpoint: dict[str, Any] | None) -> str:
    if checkpoint is None:
        return ""
    try:
        return words.text(render(msgspec.convert(checkpoint, Checkpoint), with_task=False))
    except (msgspec.ValidationError, ValueError):
        return "written by another version of segue; `segue show` of that version prints it"


def _answer_and_words(store: Store, run: Run) -> tuple[str, list[dict[str, str]]]:
    """The answer and the agent's last words: from the run's files or, if it is on another machine,
    as that machine published them."""
    if is_here(run) or not isinstance(store, FleetDatabase):
        return RunFolder(run.id).answer(run.leg), live_words(run)
    from segue.fleet import output
    from segue.fleet.conversations import whole

    result = output.result(store, run.id)
    utterances = whole(store, run).get(run.leg, [])[-_WORDS:]
    shown = []
    for each in utterances:
        if each.who == "agent":
            shown.append({"who": "says", "text": words.text(each.text, 2_000)})
        elif each.who == "tool":
            shown.append({"who": "calls", "text": words.line(f"{each.tool} {each.text}", 200)})
        elif each.who == "note":
            shown.append({"who": "error", "text": words.line(each.text, 300)})
    return (result.answer if result is not None else ""), shown


def live_words(run: Run) -> list[dict[str, str]]:
    """The agent's last messages and tool calls, from the end of the newest leg's output; empty if
    it cannot be read."""
    if run.leg == 0:
        return []
    folder = RunFolder(run.id).path / f"leg-{run.leg:03}"
    try:
        with open(folder / "stdout", "rb") as file:
            size = os.fstat(file.fileno()).st_size
            start = max(0, size - _TAIL_BYTES)
            data = os.pread(file.fileno(), size - start, start)
    except OSError:
        return []
    found = _of_records(run, data, is_whole=start == 0)
    if not found and (text := read(folder / "answer.md")):
        found = [{"who": "says", "text": words.text(text, 2_000)}]
    return found[-_WORDS:]


def _of_records(run: Run, data: bytes, *, is_whole: bool) -> list[dict[str, str]]:
    from segue import agents
    from segue.runs.starting import installed_agents
    from segue.sessions.tail import records
    from segue.system.config import settings as layered

    with suppress(SegueError):
        installed_agents.register(layered.load(run.cwd, os.environ))
    profile = agents.find(run.agent)
    if profile is None:
        return []
    return words.conversation(profile.parse(records(data, whole=is_whole)))
