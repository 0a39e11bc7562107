"""The daemon's answers to API requests."""

import os
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from segue import __version__
from segue.core.resumes.decisions import AskUser
from segue.core.sessions import shapes
from segue.core.sessions.types import Session, fit_in
from segue.errors import InputError, SegueError
from segue.system import clock as zone
from segue.system.files import documents as handoffs
from segue.system.files import files
from segue.watch import owners
from segue.watch.daemon import Watch
from segue.watch.log import ARRIVAL, Note
from segue.watch.server.hook_calls import AGENT, HookCalls
from segue.watch.server.status_line import line

_MAX_HANDOFFS = 200
_FIGURES_S = 60.0
GiveFigures = Callable[[float | None], dict[str, Any]]
_COUNTED = {
    "crossing": ("crossings", "zone"),
    "stop": ("stops", "reason"),
    "metrics": ("handoffs", "outcome"),
    ARRIVAL: ("arrivals", "result"),
}
_REPEATS = ("commands", "files", "questions")


class DaemonAnswers:
    """The daemon as `watch.api` and the hooks see it. Any thread may call."""

    def __init__(self, watch: Watch, figures: GiveFigures = lambda since: {}) -> None:
        self.watch, self.state = watch, watch.state
        self.figures = figures
        """How well handoffs have worked since that time, as in `segue report --figures --json`."""
        self._figures: tuple[float, dict[str, float]] = (float("-inf"), {})
        self.hooks = HookCalls(watch)
        self._handoffs: dict[str, dict[str, Any]] = {}
        self._handoffs_seq = 0
        self._line_calls = 0
        self._counts: dict[str, Counter[str]] = {
            name: Counter()
            for name in ("crossings", "stops", "handoffs", "resumes", "arrivals", "repeats")
        }
        self._counted = 0  # from the log's first note, so a restart loses no count

    # Reads

    def status(self) -> dict[str, Any]:
        """The state of the daemon itself."""
        state = self.state
        with state.lock:
            waiting = [
                {
                    "id": pending.id,
                    "agent": pending.ending.agent,
                    "session_id": pending.ending.session_id,
                    "project": pending.ending.project,
                    "verdict": str(pending.verdict.__struct_config__.tag),
                    "until": getattr(pending.verdict, "until", None),
                    "why": pending.verdict.why,
                }
                for pending in self.watch.stops.pending.values()
            ]
            cycles = [_cycle(cycle) for cycle in self.watch.handoffs.cycles.values()]
            return {
                "version": __version__,
                "pid": os.getpid(),
                "uptime_s": round(self.watch.clock.now() - self.watch.began_at, 1),
                "log_seq": state.log.version(),
                "paused": sorted(state.paused),
                "sessions": len(state.tracked),
                "handoffs": cycles,
                "waiting": waiting,
                "degraded": self.watch.observer.degraded,
            }

    def sessions(self) -> list[dict[str, Any]]:
        """The sessions, as in `segue status --json`."""
        found = sorted(
            self.watch.observer.sessions.values(),
            key=lambda s: (not s.state.is_live, -(s.last_at or 0)),
        )
        return self._as_listed(found)

    def changes(self, after: int | None) -> dict[str, Any]:
        """What changed since that revision; everything if it is None or too long ago."""
        found = None if after is None else self.watch.observer.changes(after)
        if found is None:
            # read first: what changes in the meantime is reported again
            revision = self.watch.observer.revision
            return {"revision": revision, "is_whole": True, "sessions": self.sessions(), "gone": []}
        revision, sessions, removed = found
        return {
            "revision": revision,
            "is_whole": False,
            "sessions": self._as_listed(sessions) if sessions else [],
            "gone": [{"agent": agent, "session_id": id} for agent, id in removed],
        }

    def _as_listed(self, sessions: list[Session]) -> list[dict[str, Any]]:
        listed, _ = owners.with_owners(sessions, self.state.log)
        return [shapes.as_dict(session) for session in listed]

    def session(self, name: str) -> dict[str, Any] | None:
        """One session; None if the name matches none or several."""
        try:
            return self._as_listed([self.watch.commands.one(name).session])[0]
        except SegueError:
            return None

    def notes(self, after: int, kinds: tuple[str, ...], limit: int) -> list[Note]:
        """The notes since then."""
        return self.state.log.since(after, kinds, limit)

    def wait_notes(self, after: int, timeout_s: float) -> list[Note]:
        """The same, as soon as there are any."""
        until = time.monotonic() + timeout_s
        while True:
            with self.state.news:
                if found := self.state.log.since(after):
                    return found
                left = until - time.monotonic()
                if left <= 0:
                    return []
                self.state.news.wait(min(left, 5.0))

    def metrics(self) -> dict[str, Any]:
        """Numbers since the log began, except for calls, which are counted since the daemon
        started."""
        self._count()
        sessions: dict[str, Counter[str]] = {}
        for session in self.watch.observer.sessions.values():
            own = session.zone.value if session.zone else ""
            sessions.setdefault(session.state.value, Counter())[own] += 1
        return {
            "info": {__version__: 1},
            "uptime": self.watch.clock.now() - self.watch.began_at,
            "log_seq": self.state.log.version(),
            "sessions": {name: dict(counts) for name, counts in sessions.items()},
            **{name: dict(counts) for name, counts in self._counts.items()},
            "figures": self._known_figures(),
            "hook_calls": dict(self.hooks.calls),
            "statusline_calls": self._line_calls,
        }

    def _count(self) -> None:
        with self.state.lock:
            while notes := self.state.log.since(self._counted, (*_COUNTED, "wake")):
                for note in notes:
                    self._counted = note.seq
                    if note.kind in _COUNTED:
                        name, key = _COUNTED[note.kind]
                        self._counts[name][str(note.data.get(key, ""))] += 1
                        if note.kind == ARRIVAL:
                            self._counts["repeats"].update(
                                {what: int(note.data.get(what) or 0) for what in _REPEATS}
                            )
                    elif note.kind == "wake" and note.data.get("verdict") == "resume":
                        self._counts["resumes"][str(note.data.get("place", ""))] += 1

    def _known_figures(self) -> dict[str, float]:
        """The figures by name. They are computed from whole logs, so not for every request."""
        now = time.monotonic()
        if now - self._figures[0] >= _FIGURES_S:
            listed: list[dict[str, Any]] = []
            # the runs are unreadable, but everything else can be reported
            with suppress(SegueError):
                listed = self.figures(None).get("figures", [])
            values = {each["name"]: each["value"] for each in listed if each["value"] is not None}
            self._figures = (now, values)
        return self._figures[1]

    def fits(self, session: str, tokens: int) -> dict[str, Any]:
        """As in `segue fits --json`."""
        found = self.watch.commands.one(session).session
        fit = fit_in(found, tokens)
        if fit is None:
            raise InputError(
                f"session {found.session_id}: its size is unknown: no reply states its usage yet"
            )
        return {
            "fits": fit.ok,
            "tokens": tokens,
            "room_tokens": fit.room_tokens,
            "because": fit.because,
            "why": fit.why,
            "session": self._as_listed([found])[0],
        }

    def handoffs(self) -> list[dict[str, Any]]:
        """The handoffs in progress and the last that have ended, newest first."""
        with self.state.lock:  # what was read once is cached, because the log only grows
            while notes := self.state.log.since(self._handoffs_seq, ("handoff",)):
                for note in notes:
                    self._handoffs_seq = note.seq
                    if isinstance(note.data.get("cycle"), dict):
                        id = str(note.data.get("id"))
                        self._handoffs[id] = _as_handoff({"id": id, **note.data["cycle"]})
            newest = sorted(self._handoffs.values(), key=_began_at, reverse=True)[:_MAX_HANDOFFS]
            self._handoffs = {each["id"]: each for each in reversed(newest)}
        return newest

    def handoff_text(self, id: str) -> str | None:
        """A handoff's document."""
        for each in self.handoffs():
            if each["id"] == id:
                path = Path(each["file"])
                with suppress(SegueError):
                    return handoffs.read(path.parent, path.name)
        return None

    # Requests

    def pause(self, what: str) -> str:
        """Pauses a session or project."""
        return self.watch.commands.pause(self._target(what))

    def unpause(self, what: str) -> str:
        """Ends a pause. Says what else still holds it back, if anything does."""
        with self.state.lock:
            meant = self._target(what)
            was_there = meant == "all" or meant in self.state.paused
            message = (
                self.watch.commands.pause(meant, on=False)
                if was_there
                else f"{meant} was not paused"
            )
            left = self._above(meant)
        return f"{message}; still paused by: {', '.join(left)}" if left else message

    def _target(self, what: str) -> str:
        """A session by its full id, a folder by its real path, or "all"."""
        if what in ("", "all"):
            return "all"
        if what in self.state.paused:
            return what
        if what.startswith("/"):
            return files.real(what)
        # A paused session may no longer be watched.
        begun = [p for p in self.state.paused if len(what) >= 2 and p.startswith(what)]
        return begun[0] if len(begun) == 1 else self.watch.commands.one(what).session.session_id

    def _above(self, what: str) -> list[str]:
        """Other pauses that include this one."""
        folder = what
        if not what.startswith("/"):
            tracked = next(iter(self.state.find(what)), None)
            folder = tracked.session.cwd if tracked else ""
        return sorted(
            each
            for each in self.state.paused
            if each == "all"
            or (each.startswith("/") and f"{folder}/".startswith(each.rstrip("/") + "/"))
        )

    def handoff(self, session: str, *, retry: bool) -> str:
        """Hands the session over now."""
        return self.watch.commands.hand_over(session, retry=retry)

    def cancel(self, session: str) -> str:
        """Cancels a handoff or a resume."""
        return self.watch.commands.cancel(session)

    def yes(self, what: str) -> str:
        """Allows what the daemon asked about; without a name, all of it."""
        if what not in ("", "all"):
            return self.watch.commands.yes(what)
        with self.state.lock:
            asked = [p for p in self.watch.stops.pending.values() if isinstance(p.verdict, AskUser)]
            answers = [self.watch.commands.yes(pending.ending.session_id) for pending in asked]
        return "; ".join(answers) or "the daemon is not waiting for an answer"

    # For agents

    def statusline(self, payload: dict[str, Any]) -> bytes:
        """The status line."""
        self._line_calls += 1
        session_id = str(payload.get("session_id") or "")
        tracked = self.state.tracked.get((AGENT, session_id))
        terminal = payload.get("segue")
        shown = terminal if isinstance(terminal, dict) else {}
        columns = shown.get("columns")
        text = line(
            payload,
            tracked.session if tracked else None,
            self.state.rules.policy,
            self.watch.clock.now(),
            columns if isinstance(columns, int) else 0,
            shown.get("color") is not False,
            tz=zone.local_zone(),
        )
        return text.encode("utf-8", "replace")

    def hook(self, event: dict[str, Any]) -> tuple[bytes, int]:
        """What a hook prints, and its exit code."""
        return self.hooks.hook(event)


def _began_at(handoff: dict[str, Any]) -> float:
    at = handoff["began_at"]
    return float(at) if isinstance(at, (int, float)) else 0.0


def _cycle(cycle: Any) -> dict[str, Any]:
    return _as_handoff(msgspec.to_builtins(cycle))


def _as_handoff(data: dict[str, Any]) -> dict[str, Any]:
    names = ("id", "agent", "session_id", "new_session_id", "project", "file", "step", "why")
    found: dict[str, Any] = {name: data.get(name) for name in names}
    return found | {
        "began_at": data.get("began_at") or 0.0,
        "source": data.get("source"),
        "used_tokens": data.get("used_tokens"),
        "window_tokens": data.get("window_tokens"),
    }
