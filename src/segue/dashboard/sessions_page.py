"""Data for the pages on sessions: cards, what needs the user, limits, and one session in full."""

import os
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from typing import Any

import msgspec

from segue.core.runs.types import RunState
from segue.core.sessions.reading import Reading, Zone
from segue.dashboard import drawing, words
from segue.dashboard.sources import Picture, RunRow, Source
from segue.errors import InputError, SegueError
from segue.sessions import evidence
from segue.system import clock
from segue.views import tables
from segue.views.machine import list_sessions, with_machine
from segue.views.verdicts import duration

_LIVE = ("working", "waiting_for_user", "waiting_for_limit")
_ORDER = {zone.value: place for place, zone in enumerate(reversed(Zone))}
_READINGS = 1_000
_WORDS = 20
_STATES = {"waiting_for_user": "waiting for you", "waiting_for_limit": "waiting for its limit"}
_SCOPES = {"five_hour": "5 hours", "seven_day": "week"}


def key_of(agent: str, session_id: str) -> str:
    """A session's key in URLs. Ids are not used, because they may contain any character."""
    return sha256(f"{agent}\0{session_id}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


def split(sessions: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Sessions with a live agent, then the others. Live ones are sorted by zone, the fullest first,
    and by folder, so that they do not move with every reply. Sessions that were handed over are
    left out."""
    live = [s for s in sessions if s["state"] in _LIVE and not s["handed_over_to"]]
    live.sort(key=lambda s: (_ORDER.get(_zone(s), 9), str(s["cwd"]), str(s["session_id"])))
    known = {id(s) for s in live}
    return live, [s for s in sessions if id(s) not in known and not s["handed_over_to"]]


def _zone(session: dict[str, Any]) -> str:
    return str((session["context"] or {}).get("zone") or "")


def is_paused(session: dict[str, Any], paused: Iterable[str]) -> bool:
    """Whether the daemon is paused for this session: for its id, its folder or one above it, or
    everything."""
    above = str(session["cwd"] or "").rstrip("/") + "/"
    return any(
        what in ("all", session["session_id"])
        or (what.startswith("/") and above.startswith(what.rstrip("/") + "/"))
        for what in paused
    )


def card(session: dict[str, Any], *, is_watched: bool, is_paused: bool = False) -> dict[str, Any]:
    """A session's card. `is_watched`: a daemon is there to carry out actions."""
    context, handoff = session["context"] or {}, session["handoff"] or {}
    percent, window = context.get("percent"), context.get("window")
    mark = handoff.get("at_tokens")
    marks = [mark / window * 100] if mark and window else []
    zone = _zone(session)
    is_live = session["state"] in _LIVE
    label = f"{percent:.0f}% full, zone {zone}" if percent is not None else "size unknown"
    stop = session["stop"] or {}
    # No actions for an id with hidden characters: its command would not be what it looks like.
    own = session["session_id"]
    name = own if words.line(own) == own else ""
    state = _STATES.get(session["state"], session["state"])
    if session["unreadable"]:
        state = f"unreadable: {words.line(session['unreadable'], 120)}"
    elif session["handed_over_to"]:
        state = "handed over"
    elif session["run"] and not is_live:
        state = words.line(session["run_state"], 40)
    elif not is_live and stop:
        state = stop["reason"].replace("_", " ")
    return {
        "key": key_of(session["agent"], session["session_id"]),
        "name": name,
        "short": words.line(session["session_id"][:8], 8),
        "agent": words.line(session["agent"], 30),
        "model": words.line(session["model"] or "unknown model", 60),
        "project": words.project(session["cwd"]),
        "folder": words.tilde(session["cwd"] or session["path"]),
        "gauge": drawing.gauge(percent, marks, zone, label),
        "percent": "?" if percent is None else f"{percent:.0f}%",
        "zone": zone or "unknown",
        "counts": ""
        if percent is None
        else f"{tables.short(context['used'])} of {tables.short(window or 0)}",
        "ahead": _ahead(handoff, zone, is_working=session["state"] == "working") if is_live else "",
        "growth": _growth(session["growth"] or {}) if is_live else "",
        "state": state,
        "is_live": is_live,
        "last_at": words.when(session["last_activity"]),
        "retry_at": words.when(stop.get("retry_at")),
        "why": words.line(stop.get("why"), 160) if stop.get("reason") != "completed" else "",
        "run": session["run"] or "",
        "can_act": is_watched and is_live and not session["run"] and name != "",
        "is_paused": is_paused,
        "doing": _doing(session) if is_live else None,
    }


def _doing(session: dict[str, Any]) -> dict[str, str] | None:
    """What was last said or done in the session, on one line; None if unknown."""
    path = str(session["path"])
    try:
        changed_at = os.stat(path).st_mtime_ns
    except (OSError, ValueError):
        return None
    return _last_message(
        session["agent"], path, session["session_id"], changed_at, session["last_activity"]
    )


@lru_cache(maxsize=4_000)
def _last_message(
    agent: str, path: str, session_id: str, changed_at: int, active_at: str | None
) -> dict[str, str] | None:
    """Cached until the file changes or, for a session in a database, until it is active again."""
    found = words.conversation(evidence.recent(agent, path, session_id), with_prompts=True)
    return {**found[-1], "text": words.line(found[-1]["text"], 160)} if found else None


def _ahead(handoff: dict[str, Any], zone: str, *, is_working: bool) -> str:
    if zone == Zone.HANDOFF.value:
        return "handoff due now"
    if not handoff or handoff.get("at_tokens") is None:
        return ""
    if handoff.get("seconds") is not None:
        seconds = handoff["seconds"]
        left = duration(seconds if seconds < 60 else round(seconds / 60) * 60)
        return f"handoff in {left}" if is_working else f"handoff after {left} of work"
    if handoff.get("turns") is not None:
        turns = round(handoff["turns"])
        return f"handoff in {turns:,} {'turn' if turns == 1 else 'turns'}"
    tokens = handoff.get("tokens")
    return f"handoff in {tables.short(tokens)} tokens" if tokens is not None else ""


def _growth(growth: dict[str, Any]) -> str:
    if growth.get("tokens_per_minute"):
        return f"+{tables.short(growth['tokens_per_minute'])}/min"
    return (
        f"+{tables.short(growth['tokens_per_turn'])}/turn" if growth.get("tokens_per_turn") else ""
    )


def counts(live: list[dict[str, Any]], runs: list[RunRow]) -> dict[str, Any]:
    """How many live sessions and unfinished runs there are, by zone and by state."""
    zones = {zone.value: 0 for zone in Zone}
    for session in live:
        zone = _zone(session)
        if zone in zones:
            zones[zone] += 1
    return {
        "live": len(live),
        "working": sum(s["state"] == "working" for s in live),
        "waiting": sum(s["state"] != "working" for s in live),
        "runs": sum(not row.run.state.is_final for row in runs),
        "zones": [(zone, count) for zone, count in zones.items() if count],
    }


def limits(sessions: list[dict[str, Any]], now: float) -> list[dict[str, Any]]:
    """The limits of each agent, as the session that saw them last reports them. Limits that have
    reset since are left out."""
    newest: dict[tuple[str, str], dict[str, Any]] = {}
    for session in sessions:
        for limit in session["limits"]:
            key = (session["agent"], limit["scope"])
            seen_at = words.when(limit["seen_at"]) or 0.0
            if key not in newest or seen_at > newest[key]["seen_at"]:
                newest[key] = {**limit, "seen_at": seen_at}
    found = []
    for (agent, scope), limit in sorted(newest.items()):
        resets_at = words.when(limit["resets_at"])
        if resets_at is not None and resets_at <= now:
            continue
        used = limit["used_percent"]
        label = "unknown" if used is None else f"{used:.0f}% used"
        zone = "handoff" if limit["rejected"] or (used or 0) >= 100 else "normal"
        found.append(
            {
                "agent": words.line(agent, 30),
                "scope": words.line(_SCOPES.get(scope, scope.replace("_", " ")), 40),
                "used": "limit reached" if limit["rejected"] else label,
                "gauge": drawing.gauge(100 if limit["rejected"] else used, (), zone, label),
                "resets_at": resets_at,
            }
        )
    return found


def needs(picture: Picture) -> dict[str, Any]:
    """Everything that waits for the user, each with an action to offer."""
    found = []
    for row in picture.runs:
        run = row.run
        is_left = not run.state.is_final and not row.is_driven
        if run.state is not RunState.NEEDS_YOU and not is_left:
            continue
        outcome = run.outcome
        why = (
            outcome.what
            if outcome
            else f"interrupted by {run.interrupted}"
            if run.interrupted
            else "its segue process is gone"
        )
        found.append(
            {
                "href": f"/runs/{run.id}",
                "who": f"{run.id}: {words.line(run.task, 80)}",
                "why": words.line(why, 200),
                "what": "resume",
                "label": "Resume",
                "name": run.id,
                "command": f"segue resume {run.id}",
            }
        )
    daemon = picture.daemon or {}
    agents = {s["session_id"]: s["agent"] for s in picture.sessions}
    found += [
        _action_row(each, each["why"], agents, "allow", "Allow")
        for each in daemon.get("waiting", [])
        if each["verdict"] == "ask"
    ]
    found += [
        _action_row(each, each["why"], agents, "cancel", "Cancel the handoff")
        for each in daemon.get("handoffs", [])
        if each["step"] == "needs_user"
    ]
    return {"needs": found}


def _action_row(
    each: dict[str, Any], why: Any, agents: dict[str, str], what: str, label: str
) -> dict[str, Any]:
    name = str(each["session_id"])
    agent = str(each.get("agent") or agents.get(name, ""))
    return {
        "href": f"/sessions/{key_of(agent, name)}",
        "who": f"{words.line(agent, 30)} in {words.project(each.get('project'))}",
        "why": words.line(why, 200),
        "what": what,
        "label": label,
        "name": name,
        "command": words.line(f"segue {what} {name}", 120),
    }


def one(source: Source, key: str) -> dict[str, Any]:
    """Everything about one session. Raises InputError if no recent session has this key."""
    picture = source.picture
    found = next((s for s in picture.sessions if key_of(s["agent"], s["session_id"]) == key), None)
    if found is None:
        raise InputError("no such session in the last 24 hours; `segue sessions` lists all")
    daemon = picture.daemon or {}
    shown = card(
        found,
        is_watched=picture.daemon is not None,
        is_paused=is_paused(found, daemon.get("paused", [])),
    )
    utterances = evidence.recent(found["agent"], found["path"], found["session_id"], _WORDS)
    since, until = (points[0][0], points[-1][0]) if (points := _readings(source, found)) else (0, 1)
    context = found["context"] or {}
    mark = (found["handoff"] or {}).get("at_tokens")
    levels = [("handoff", mark / context["window"])] if mark and context else []
    return {
        "card": shown,
        "id_line": words.line(found["session_id"], 100),
        "file": words.tilde(found["path"]),
        "started_at": words.when(found["started_at"]),
        "pid": found["pid"],
        "subagents": found["subagents"],
        "notes": [words.line(note) for note in found["notes"]],
        "words": words.conversation(utterances, with_prompts=True)[-_WORDS:],
        "is_asked": any(
            each["session_id"] == found["session_id"] and each["verdict"] == "ask"
            for each in daemon.get("waiting", [])
        ),
        "curve": drawing.curve(points, levels, "how full the window was over time", since, until)
        if len(points) > 1
        else "",
        "axis": drawing.hours(since, max(until, since + 4), clock.local_zone()),
        "mark": f"{levels[0][1]:.0%}" if levels else "",
        "story": _story(source, found),
        "task": _task(found["agent"], found["path"], found["session_id"], found["cwd"]),
        **_account(found["agent"], found["session_id"], found["last_activity"]),
    }


@lru_cache(maxsize=256)
def _task(agent: str, path: str, session_id: str, cwd: str) -> str:
    """The session's task: what its user asked for first."""
    from segue.sessions.documents import known_task

    return words.line(known_task(agent, path, session_id, cwd), 300)


def _readings(source: Source, session: dict[str, Any]) -> list[tuple[float, float]]:
    log = source.notes()
    if log is None:
        return []
    found = []
    for note in log.of(session["agent"], session["session_id"], ("reading",), _READINGS):
        with suppress(msgspec.ValidationError):  # written by another version
            found.append((note.at, msgspec.convert(note.data, Reading).fraction))
    return found


def _story(source: Source, session: dict[str, Any]) -> list[dict[str, Any]]:
    from segue.views.lines import notes as note_lines

    log = source.notes()
    if log is None:
        return []
    notes = log.of(session["agent"], session["session_id"], limit=200)
    return [
        {"at": note.at, "said": words.line("; ".join(note_lines.parts(note)))}
        for note in reversed(notes)
        if note.kind not in note_lines.QUIET
    ][:50]


@lru_cache(maxsize=32)
def _account(agent: str, session_id: str, active_at: str | None) -> dict[str, Any]:
    """The session's todos, changed files and tokens, from its own records. Cached until it is
    active again."""
    from segue.sessions.count.account import account
    from segue.system.config import prices

    empty: dict[str, Any] = {"todos": [], "files": [], "spend": [], "trouble": ""}
    try:
        machine, details = with_machine(
            lambda m: next(
                (
                    account(s, m.found, m.index, m.homes)
                    for s in list_sessions(m, m.now - 2 * 86_400)
                    if s.agent == agent and s.session_id == session_id
                ),
                None,
            ),
            with_processes=False,
        )
        machine.index.close()
    except SegueError as fault:
        return {**empty, "trouble": words.line(fault)}
    if details is None:
        return empty
    spend = []
    for model, spent in details.spend.items():
        cost = prices.cost_usd(model, spent)
        spend.append(
            {
                "model": words.line(model or "unknown model", 60),
                "input": f"{spent.input_tokens:,}",
                "cache": f"{spent.cache_read_tokens + spent.cache_write_tokens:,}",
                "output": f"{spent.output_tokens:,}",
                "cost": "unknown" if cost is None else words.dollars(cost) or "$0.00",
            }
        )
    return {
        "todos": [{"text": words.line(t.text, 200), "status": t.status} for t in details.todos],
        "files": [words.tilde(path) for path in details.files[:100]],
        "spend": spend,
        "trouble": "",
    }
