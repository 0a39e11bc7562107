"""What the daemon answers over its API, and what hooks tell it."""

import os
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from segue import __version__, agents
from segue.cli import tables
from segue.core.forecast import fits
from segue.core.handing import Step
from segue.errors import InputError, SegueError
from segue.io import clock as zone
from segue.io import handoffs, spool, state
from segue.transcripts.handoffs import own_document
from segue.watch import hooks
from segue.watch.daemon import Watch
from segue.watch.line import line
from segue.watch.log import Note
from segue.watch.world import Kept

_COMPACT_S = 60.0  # the agent may tell several times of one compaction
_COUNTED = {
    "crossing": ("crossings", "zone"),
    "stop": ("stops", "reason"),
    "metrics": ("handoffs", "outcome"),
}
_AGENT = "claude"  # whose hooks these are; others' come with their name


class Link:
    """The daemon as `watch.api` and the hooks see it. Any thread may call."""

    def __init__(self, watch: Watch) -> None:
        self.watch, self.world = watch, watch.world
        self._told: dict[tuple[str, str], hooks.Told] = {}
        self._compacted: dict[str, float] = {}
        self._hook_calls: Counter[str] = Counter()
        self._line_calls = 0
        self._counts: dict[str, Counter[str]] = {
            name: Counter() for name in ("crossings", "stops", "handoffs", "resumes")
        }
        self._counted = watch.world.log.version()

    # Reads

    def status(self) -> dict[str, Any]:
        """The daemon itself."""
        world = self.world
        with world.lock:
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
            cycles = [_cycle(cycle) for cycle in self.watch.hands.cycles.values()]
            return {
                "version": __version__,
                "pid": os.getpid(),
                "uptime_s": round(self.watch.clock.now() - self.watch.began_at, 1),
                "log_seq": world.log.version(),
                "paused": sorted(world.paused),
                "sessions": len(world.kept),
                "handoffs": cycles,
                "waiting": waiting,
                "degraded": self.watch.observer.degraded,
            }

    def sessions(self) -> list[dict[str, Any]]:
        """As `segue status --json` has them."""
        found = sorted(
            self.watch.observer.sessions.values(),
            key=lambda s: (not s.state.is_live, -(s.last_at or 0)),
        )
        return [tables.as_dict(session) for session in found]

    def session(self, name: str) -> dict[str, Any] | None:
        """One of them; None if the name means none or several."""
        try:
            return tables.as_dict(self.watch.one(name).session)
        except SegueError:
            return None

    def notes(self, after: int, kinds: tuple[str, ...], limit: int) -> list[Note]:
        """What was noted since."""
        return self.world.log.since(after, kinds, limit)

    def wait_notes(self, after: int, timeout_s: float) -> list[Note]:
        """The same, as soon as there is something."""
        until = time.monotonic() + timeout_s
        while True:
            with self.world.news:
                if found := self.world.log.since(after):
                    return found
                left = until - time.monotonic()
                if left <= 0:
                    return []
                self.world.news.wait(min(left, 5.0))

    def metrics(self) -> dict[str, Any]:
        """Numbers since the daemon was started."""
        self._count()
        sessions: dict[str, Counter[str]] = {}
        for session in self.watch.observer.sessions.values():
            own = session.zone.value if session.zone else ""
            sessions.setdefault(session.state.value, Counter())[own] += 1
        return {
            "info": {__version__: 1},
            "uptime": self.watch.clock.now() - self.watch.began_at,
            "log_seq": self.world.log.version(),
            "sessions": {name: dict(counts) for name, counts in sessions.items()},
            **{name: dict(counts) for name, counts in self._counts.items()},
            "hook_calls": dict(self._hook_calls),
            "statusline_calls": self._line_calls,
        }

    def _count(self) -> None:
        with self.world.lock:
            while notes := self.world.log.since(self._counted):
                for note in notes:
                    self._counted = note.seq
                    if note.kind in _COUNTED:
                        name, key = _COUNTED[note.kind]
                        self._counts[name][str(note.data.get(key, ""))] += 1
                    elif note.kind == "wake" and note.data.get("verdict") == "resume":
                        self._counts["resumes"][str(note.data.get("place", ""))] += 1

    def fits(self, session: str, tokens: int) -> dict[str, Any]:
        """As `segue fits --json` has it."""
        kept = self.watch.one(session)
        found = kept.session
        if found.reading is None:
            raise InputError(f"session {found.session_id}: how full it is is not known yet")
        policy = self.world.policy(found)
        fit = fits(
            tokens,
            found.reading,
            policy,
            reserve_tokens=policy.reserve_tokens,
            enforced_at_tokens=_enforced(kept),
        )
        return {
            "fits": fit.ok,
            "tokens": tokens,
            "room_tokens": fit.room_tokens,
            "because": fit.because,
            "why": fit.why,
            "session": tables.as_dict(found),
        }

    def handoffs(self) -> list[dict[str, Any]]:
        """Those that are under way, and the last that are over; the newest first."""
        latest: dict[str, dict[str, Any]] = {}
        seq = 0
        while notes := self.world.log.since(seq, ("handoff",)):
            for note in notes:
                seq = note.seq
                if isinstance(note.data.get("cycle"), dict):
                    latest[str(note.data["id"])] = note.data["cycle"]
        found = [_shown(data) for data in latest.values()]
        return sorted(found, key=lambda each: each["began_at"], reverse=True)[:200]

    def handoff_text(self, id: str) -> str | None:
        """A handoff's document."""
        for each in self.handoffs():
            if each["id"] == id:
                path = Path(each["file"])
                with suppress(SegueError):
                    return handoffs.read(path.parent, path.name)
        return None

    # What is asked for

    def pause(self, what: str) -> str:
        """Leaves that alone."""
        return self.watch.pause(self._meant(what))

    def unpause(self, what: str) -> str:
        """No longer."""
        return self.watch.pause(self._meant(what), on=False)

    def _meant(self, what: str) -> str:
        """A session by its whole id; a folder, and "all", as they are."""
        if what in ("", "all"):
            return "all"
        if what.startswith("/") or what in self.world.paused:
            return what
        return self.watch.one(what).session.session_id

    def handoff(self, session: str, *, retry: bool) -> str:
        """Hands it over now."""
        return self.watch.hand_over(session, retry=retry)

    def cancel(self, session: str) -> str:
        """Takes a handoff or a resume back."""
        return self.watch.cancel(session)

    def yes(self, what: str) -> str:
        """Allows what was asked about."""
        return self.watch.yes(what)

    # Hooks

    def statusline(self, payload: dict[str, Any]) -> bytes:
        """One line."""
        self._line_calls += 1
        session_id = str(payload.get("session_id") or "")
        kept = self.world.kept.get((_AGENT, session_id))
        policy = self.world.rules.policy(
            _AGENT, kept.session.model if kept else "", kept.session.cwd if kept else ""
        )
        told = payload.get("segue")
        shown = told if isinstance(told, dict) else {}
        columns = shown.get("columns")
        text = line(
            payload,
            kept.session if kept else None,
            policy,
            self.watch.clock.now(),
            columns if isinstance(columns, int) else 0,
            shown.get("color") is not False,
            tz=zone.local_zone(),
        )
        return text.encode("utf-8", "replace")

    def hook(self, event: dict[str, Any]) -> tuple[bytes, int]:
        """What a hook prints, and its exit code."""
        name = str(event.get("hook_event_name") or "")
        session_id = str(event.get("session_id") or "")
        self._hook_calls[name if name in hooks.EVENTS else "other"] += 1
        key = (_AGENT, session_id)
        with self.world.lock:
            kept = self.world.kept.get(key)
            if kept is not None:
                kept.hooked_at = self.watch.clock.now()
            cwd = kept.session.cwd if kept else str(event.get("cwd") or "")
            policy = self.world.rules.policy(_AGENT, kept.session.model if kept else "", cwd)
            words = self.world.rules.messages(cwd)
            view = self._view(kept, event) if kept else None
            reply = hooks.answer(event, view, policy, words, self._told.get(key, hooks.Told()))
            self._told[key] = reply.told
            for fact in reply.facts:
                self._learn(kept, fact)
        path = event.get("transcript_path")
        self.watch.observer.nudge(_AGENT, session_id, path if isinstance(path, str) else "")
        body = msgspec.json.encode(reply.body) if reply.body is not None else b""
        return body, reply.exit_code

    def _view(self, kept: Kept, event: dict[str, Any]) -> hooks.View:
        session = kept.session
        size: int | None = None
        if (named := hooks.file_named(event)) and named.startswith("/"):
            with suppress(OSError):
                size = os.stat(named).st_size
        cycle = self.watch.hands.of(session)
        asks = cycle is not None and cycle.step is Step.WAITING
        return hooks.View(
            reading=session.reading,
            zone=session.zone,
            enforced_at_tokens=_enforced(kept),
            costs=tuple(self.world.costs.get(session.cwd, ())),
            file_bytes=size,
            handoff_file=cycle.file if cycle is not None and asks else "",
            is_left_alone=kept.in_run or kept.is_ours or self.world.is_paused(session),
        )

    def _learn(self, kept: Kept | None, fact: hooks.Fact) -> None:
        if kept is None:
            return
        session = kept.session
        data = {key: value for key, value in msgspec.to_builtins(fact).items() if key != "text"}
        self.world.note("hook", session, data)
        match fact:
            case hooks.Ended():
                kept.hook_end = fact.reason
            case hooks.Compacting():
                self._save_before_compaction(kept)
            case hooks.Asked():
                cycle = self.watch.hands.of(session)
                if cycle is not None:
                    self.watch.hands.asked_by_hook(cycle)
            case hooks.Prompted() if not fact.by_machine:
                self.watch.stops.user_spoke(session)
            case _:
                pass

    def _save_before_compaction(self, kept: Kept) -> None:
        """What the agent is about to forget, as a handoff document."""
        session, now = kept.session, self.watch.clock.now()
        if now - self._compacted.get(session.session_id, 0.0) < _COMPACT_S:
            return
        self._compacted[session.session_id] = now
        self.watch.hands.do(lambda: self._save(kept, now))

    def _save(self, kept: Kept, now: float) -> None:
        session = kept.session
        name = f"before-compaction-{int(now)}.md"
        folder = handoffs.folder_of(session.cwd, self.world.policy(session).handoff_folder)
        text = own_document(
            agent=session.agent,
            path=session.path,
            session_id=session.session_id,
            cwd=session.cwd,
            id=f"c-{int(now)}",
            at=now,
            percent=session.reading.percent if session.reading else 0.0,
            env=self.world.env,
        )
        path = handoffs.write(folder, name, text)
        self.world.note("checkpoint", session, {"file": str(path)})

    def read_spool(self) -> None:
        """What hooks left while there was no daemon."""
        place = state.spool_path()
        for left in spool.take(place):
            self.hook(left.event)
        spool.drop(place)


def _enforced(kept: Kept) -> int | None:
    """Where the agent itself compacts or refuses."""
    profile, reading = agents.find(kept.session.agent), kept.session.reading
    return profile.enforced(reading.window_tokens) if profile and reading else None


def _cycle(cycle: Any) -> dict[str, Any]:
    return _shown(msgspec.to_builtins(cycle))


def _shown(data: dict[str, Any]) -> dict[str, Any]:
    names = ("id", "agent", "session_id", "new_session_id", "project", "file", "step", "why")
    found: dict[str, Any] = {name: data.get(name) for name in names}
    return found | {
        "began_at": data.get("began_at") or 0.0,
        "source": data.get("source"),
        "used_tokens": data.get("used_tokens"),
        "window_tokens": data.get("window_tokens"),
    }
