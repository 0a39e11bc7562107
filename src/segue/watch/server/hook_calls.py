"""Handles calls from hooks: `hooks` decides the reply, and this module carries it out."""

import os
import secrets
from collections import Counter
from contextlib import suppress
from typing import Any

import msgspec

from segue.core.handoffs import document as documents
from segue.core.handoffs.digest import Builder, left_out
from segue.core.handoffs.machine.types import HandoffStep
from segue.core.sessions.types import Session
from segue.sessions.digest import read_session
from segue.sessions.documents import Predecessor, own_document
from segue.system.files import documents as handoffs
from segue.system.files import spool, state
from segue.watch.daemon import Watch
from segue.watch.observe import endings
from segue.watch.observe.observer import Sighting
from segue.watch.server import hooks
from segue.watch.state import Name, TrackedSession

AGENT = "claude"
"""The agent of these hooks; others pass their name."""
WRITTEN = "HandoffWritten"
"""The event that `segue mcp` sends when an agent gave it a document. It is not a hook of any
agent."""

_COMPACT_S = 60.0  # the agent may report one compaction several times
_MAX_KEPT = 4_000  # sessions for which segue remembers what they were told
_ASKING = ("permission_prompt", "elicitation_dialog")


class HookCalls:
    """All calls of hooks. Any thread may call."""

    def __init__(self, watch: Watch) -> None:
        self.watch, self.state = watch, watch.state
        self.calls: Counter[str] = Counter()
        self._memories: dict[Name, hooks.HookMemory] = {}
        self._compacted: dict[Name, float] = {}
        self._known: dict[Name, str] = {}  # before a compaction in progress
        watch.on_first_look = self.read_spool

    def hook(self, event: dict[str, Any]) -> tuple[bytes, int]:
        """Handles one call: returns what the hook prints, and its exit code. For an unknown session
        nothing is read or stored, but segue looks for it."""
        name = str(event.get("hook_event_name") or "")
        session_id = str(event.get("session_id") or "")
        if name == WRITTEN:
            return self._wake_handoffs(event, session_id)
        key = (AGENT, session_id)
        reply = hooks.HookReply()
        with self.state.lock:
            self.calls[name if name in hooks.EVENTS else "other"] += 1
            tracked = self.state.tracked.get(key)
            if tracked is not None:
                reply = self._reply(key, tracked, event)
        path = event.get("transcript_path")
        self.watch.observer.nudge(AGENT, session_id, path if isinstance(path, str) else "")
        body = msgspec.json.encode(reply.body) if reply.body is not None else b""
        return body, reply.exit_code

    def _reply(self, key: Name, tracked: TrackedSession, event: dict[str, Any]) -> hooks.HookReply:
        tracked.hooked_at = self.watch.clock.now()
        words = self.state.rules.messages(tracked.session.cwd)
        prompt = event.get("prompt")
        if isinstance(prompt, str) and words.is_own(prompt):
            # Typed by segue: not the user's words, and not to be held back.
            event = {**event, "source": "system"}
        view, policy = self._view(tracked, event), self.state.policy(tracked.session)
        memory = self._memories.get(key, hooks.HookMemory())
        if tracked.reminds:  # as often as its user is reminded
            memory = hooks.HookMemory(file=memory.file)
        reply = hooks.answer(event, view, policy, words, memory)
        tracked.reminds = tracked.reminds and reply.memory.zone is None
        if reply.memory != hooks.HookMemory():
            self._memories.pop(key, None)
            self._memories[key] = reply.memory
            if len(self._memories) > _MAX_KEPT:
                del self._memories[next(iter(self._memories))]
        for fact in reply.facts:
            self._learn(tracked, fact)
        return reply

    def _wake_handoffs(self, event: dict[str, Any], session_id: str) -> tuple[bytes, int]:
        """An agent wrote its document: whoever waits for it looks now."""
        self.watch.observer.nudge(str(event.get("agent") or ""), session_id)
        self.watch.handoffs.do(lambda: None)
        return b"", 0

    def _view(self, tracked: TrackedSession, event: dict[str, Any]) -> hooks.HookView:
        session = tracked.session
        size: int | None = None
        if (named := hooks.file_named(event)) and named.startswith("/"):
            with suppress(OSError, ValueError):
                size = os.stat(named).st_size
        cycle = self.watch.handoffs.of(session)
        asks = cycle is not None and cycle.step in (HandoffStep.WAITING, HandoffStep.RESTING)
        is_compacted = event.get("hook_event_name") == "SessionStart" and (
            event.get("source") == "compact"
        )
        name = (session.agent, session.session_id)
        return hooks.HookView(
            reading=session.reading,
            zone=session.zone,
            enforced_at_tokens=session.enforced_tokens,
            costs=tuple(self.state.costs.get(session.cwd, ())),
            file_bytes=size,
            handoff_file=cycle.file if cycle is not None and asks else "",
            forgotten=self._known.pop(name, "") if is_compacted else "",
            is_left_alone=tracked.in_run or tracked.is_ours or self.state.is_paused(session),
        )

    def _learn(self, tracked: TrackedSession, fact: hooks.Fact) -> None:
        session = tracked.session
        data = {key: value for key, value in msgspec.to_builtins(fact).items() if key != "text"}
        self.state.note("hook", session, data)
        match fact:
            case hooks.SessionStarted():
                tracked.hook_end = ""  # a process may return to a session that it had left
            case hooks.SessionEnded():
                tracked.hook_end = fact.reason
            case hooks.Compacting() if not self.state.is_paused(session):
                self._save_before_compaction(tracked)
            case hooks.HandoffAsked():
                cycle = self.watch.handoffs.of(session)
                if cycle is not None:
                    self.watch.handoffs.asked_by_hook(cycle)
            case hooks.Prompted() if not fact.by_machine:
                self.watch.stops.user_spoke(session)
            case hooks.NeedsUser() if fact.kind in _ASKING:
                self.watch.needs_you(session, "")
            case _:
                pass

    def _save_before_compaction(self, tracked: TrackedSession) -> None:
        """Saves what the agent is about to forget, as a handoff document."""
        key, now = (tracked.session.agent, tracked.session.session_id), self.watch.clock.now()
        if now - self._compacted.get(key, float("-inf")) < _COMPACT_S:
            return
        self._compacted = {k: at for k, at in self._compacted.items() if now - at < _COMPACT_S}
        self._compacted[key] = now
        self.watch.handoffs.do(lambda: self._save(tracked, now))

    def _save(self, tracked: TrackedSession, now: float) -> None:
        session = tracked.session
        self._know(session)
        id = f"c-{secrets.token_hex(4)}"
        folder = handoffs.folder_of(session.cwd, self.state.policy(session).handoff_folder)
        text = own_document(
            agent=session.agent,
            path=session.path,
            earlier=self._predecessors(session),
            session_id=session.session_id,
            cwd=session.cwd,
            id=id,
            at=now,
            percent=session.reading.percent if session.reading else 0.0,
            env=self.state.env,
        )
        path = handoffs.write(folder, documents.name(now, id), text)
        self.state.note("checkpoint", session, {"file": str(path)})

    def _know(self, session: Session) -> None:
        """Remembers what the session has to be told after the compaction. Nothing can be left out
        because the summary has it: there is no summary yet."""
        if not self.state.policy(session).recall_after_compaction:
            return
        builder = Builder()
        for before in self._predecessors(session):
            read_session(builder, before.agent, before.path, before.session_id)
        read_session(builder, session.agent, session.path, session.session_id)
        window = session.reading.window_tokens if session.reading else 0
        known = left_out(
            builder.digest(), "", window_tokens=window, max_chars=hooks.MAX_RECALL_CHARS
        )
        with self.state.lock:
            self._known[session.agent, session.session_id] = known
            if len(self._known) > _MAX_KEPT:
                del self._known[next(iter(self._known))]

    def _predecessors(self, session: Session) -> list[Predecessor]:
        return self.state.predecessors(session.agent, session.session_id, session.path, session.cwd)

    def read_spool(self) -> None:
        """Reads what hooks stored while there was no daemon, once all sessions are known."""
        place = state.spool_path()
        for left in spool.take(place):
            key = (AGENT, str(left.event.get("session_id") or ""))
            with self.state.lock:
                tracked = self.state.tracked.get(key)
                if tracked is None or _is_older(left.at, tracked):
                    continue  # it is gone, or was resumed since
                self.hook(left.event)
                self._left_while_away(tracked, left.at)
        spool.drop(place)

    def _left_while_away(self, tracked: TrackedSession, at: float) -> None:
        """The user left a session that waits for a limit, so segue no longer waits for it."""
        session, stops = tracked.session, self.watch.stops
        pending = stops.pending.get((session.agent, session.session_id))
        if pending is None or session.process is not None or at < pending.ending.at:
            return
        if tracked.hook_end in endings.BY_USER:
            stop = self.watch.observer.ending_of(Sighting(session), hook=tracked.hook_end)
            mid_turn = endings.is_mid_turn(session, None)
            stops.ended(tracked, stop, mid_turn=mid_turn, has_tmux=False)


def _is_older(at: float, tracked: TrackedSession) -> bool:
    process = tracked.session.process
    return process is not None and at < process.started_at
