"""Sessions that stopped: each stop is logged and decided on, and decided on again when its time has
come. Waits are in the log, so the next daemon continues with them.

All in one file: a stop is logged, decided on and resumed with the same few fields.
"""

import random
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from segue.core.resumes import decisions as wake
from segue.core.resumes.quiet_hours import Local
from segue.core.sessions.types import Session, SessionState
from segue.core.stops.exits import signal_of
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import Stop
from segue.errors import StateError
from segue.system.tmux.typist import TypingRefused
from segue.watch.observe import endings
from segue.watch.resumes import relaying
from segue.watch.resumes.gate import AccountGate
from segue.watch.resumes.pending import (
    Pending,
    ResumeAttempt,
    data_of,
    due_of,
    ending_of,
    from_notes,
    has_replied,
    is_same_stop,
    local_time,
    own_words,
    relayed,
    resumed,
    tag_of,
)
from segue.watch.state import DaemonState, TrackedSession, label

KEEP_S = 8 * 86_400.0
"""The longest limit of a plan is a week; nobody remembers anything that waits longer."""
AGAIN_S = 0.5
"""When to check again what looks like the same stop: agents write some records before the text that
begins the next turn."""
RETRY_S = 15.0
MAX_RETRIES = 40
"""How often, and how many times, typing is retried after a temporary failure."""
REPLY_S = 300.0
"""A resumed session that has not replied by then no longer keeps others waiting."""
FOUND_S = 20.0
"""By this time after its start, a daemon has seen which agents are still running."""

_PROMPT_STOPS = frozenset(reason for reason in StopReason if reason.facts.at_prompt)
"""Reasons that leave an agent at its prompt with its work unfinished."""
_BY_USER_SIGNALS = (None, 1, 2, 3, 15)
"""Exit codes of an agent that its user, or the end of its terminal, has ended."""

Name = tuple[str, str]


class Carrier(Protocol):
    """Carries out a resume in its own thread; the result goes to `Stops.carried`."""

    def resume(self, pending: Pending, verdict: wake.Resume | wake.Relay) -> None: ...


class Stops:
    """All stopped sessions that may continue. The caller holds the daemon's lock."""

    def __init__(
        self,
        state: DaemonState,
        carrier: Carrier,
        *,
        draw: Callable[[], float] = random.random,
        local: Local = local_time,
    ) -> None:
        self.state = state
        self.carrier = carrier
        self.local = local
        self.gate = AccountGate(state)
        self.pending: dict[Name, Pending] = {}
        self.woken: dict[Name, ResumeAttempt] = {}
        """Sessions that segue resumed and whose user has not taken over again."""
        self._draw = draw
        self._noted: dict[Name, tuple[str, float | None, float]] = {}
        self._at_prompt: set[Name] = set()  # stopped there, whether or not that could be logged
        self._again: dict[Name, float] = {}  # when to check again whether it is stopped
        self._relayed: dict[Name, float] = {}  # sessions that another agent took over, and when
        self._left_at: dict[str, float] = {}
        self._yes_until: dict[str, float] = {}
        self._last_wake_at: float | None = None
        self._proven = False
        self._restored_at = state.clock.now()

    # What is seen

    def ended(
        self,
        tracked: TrackedSession,
        stop: Stop,
        *,
        mid_turn: bool,
        has_tmux: bool,
        exit_code: int | None = None,
    ) -> None:
        """Its process is gone."""
        session, now = tracked.session, self.state.clock.now()
        key = (session.agent, session.session_id)
        was_at_prompt = key in self._at_prompt
        by_system = stop.ended_by == "system" or signal_of(exit_code) not in _BY_USER_SIGNALS
        if was_at_prompt and stop.ended_by == "unknown" and not by_system:
            # Whatever had stopped it there: an agent leaves its prompt only if its user does.
            stop = msgspec.structs.replace(stop, ended_by="user")
        self._note_stop(tracked, stop, "exited")
        ending = msgspec.structs.replace(
            ending_of(tracked, stop, "exited", now),
            mid_turn=mid_turn,
            has_pane=tracked.seat is not None,
            pane_shell=tracked.seat is not None and tracked.shell_line is not None,
            has_tmux=has_tmux,
        )
        if wake.ended_by_user(ending):
            self._left_at[session.cwd] = now
        if not self._is_relayed(session):
            self._open(tracked, ending)
        self._left_prompt(key)

    def at_prompt(self, tracked: TrackedSession) -> None:
        """It may be at its prompt, stopped by a limit or a failure: `is_stop_at_prompt`."""
        session, now = tracked.session, self.state.clock.now()
        key = (session.agent, session.session_id)
        assert session.stop is not None
        mark = (session.stop.reason.value, session.stop.retry_at, session.last_at or 0.0)
        before = self._noted.get(key)
        if before == mark:
            self._again.pop(key, None)
            return
        pane = self.state.look(tracked)
        is_busy = not isinstance(pane, TypingRefused) and pane.state == "busy"
        if is_busy or (before is not None and before[:2] == mark[:2]):
            # It is still working, or just beginning its next turn: that will show soon.
            due = self._again.setdefault(key, now + AGAIN_S)
            if now < due:
                return
            if is_busy:
                self._again[key] = now + AGAIN_S
                return
        self._at_prompt.add(key)
        stop = endings.ending_of(session, None, endings.After(terminal="there"))
        if before is not None or not self._is_noted(session, mark):
            self._note_stop(tracked, stop, "at_prompt")
        if not self._is_relayed(session):
            self._stopped_at_prompt(tracked, stop)
        self._noted[key] = mark
        self._again.pop(key, None)

    def _stopped_at_prompt(self, tracked: TrackedSession, stop: Stop) -> None:
        session, now = tracked.session, self._now()
        key = (session.agent, session.session_id)
        ending = ending_of(tracked, stop, "at_prompt", session.last_at or now)
        ending = msgspec.structs.replace(ending, has_pane=tracked.seat is not None)
        waiting = self.pending.get(key)
        if waiting is not None and (waiting.doing or is_same_stop(waiting.ending, ending)):
            return
        if waiting is not None and waiting.ending.stop is not None:
            again = wake.reported_again(waiting.ending.stop, stop)
            ending = msgspec.structs.replace(ending, stop=again)
        self._open(tracked, ending)

    def _left_prompt(self, key: Name) -> None:
        self._at_prompt.discard(key)
        self._noted.pop(key, None)
        self._again.pop(key, None)

    def _is_relayed(self, session: Session) -> bool:
        """Whether another agent does its work, and nobody continued it since."""
        at = self._relayed.get((session.agent, session.session_id))
        return at is not None and (session.last_at or 0.0) <= at

    def _is_noted(self, session: Session, mark: tuple[str, float | None, float]) -> bool:
        """Whether a previous daemon logged this very stop."""
        last = self.state.log.latest("stop", agent=session.agent, session_id=session.session_id)
        names = ("reason", "retry_at", "last_at")
        return last is not None and tuple(last.data.get(name) for name in names) == mark

    def is_stop_at_prompt(self, session: Session) -> bool:
        """Whether a live session is stopped, and not just waiting for its user."""
        stop = session.stop
        if stop is None or session.process is None:
            return False
        return session.state is SessionState.WAITING_FOR_LIMIT or (
            session.state is SessionState.WAITING_FOR_USER and stop.reason in _PROMPT_STOPS
        )

    def went_on(self, session: Session) -> None:
        """It works, or its user spoke: nothing is pending any more."""
        key = (session.agent, session.session_id)
        if (tracked := self.state.tracked.get(key)) is not None:
            self.gate.replied(tracked)
        self._left_prompt(key)
        self._attend_woken(session)
        found = self.pending.get(key)
        if found is None or found.doing:
            return
        del self.pending[key]
        self._note(found, session, {"verdict": "over", "why": "it continued"})

    def user_spoke(self, session: Session) -> None:
        """The user typed something into it: the count of resumes starts again."""
        key = (session.agent, session.session_id)
        self.woken.pop(key, None)
        found = self.pending.get(key)
        if found is not None:
            found.resumes = 0
        self.state.note("hook", session, {"type": "user_spoke"})

    def _attend_woken(self, session: Session) -> None:
        """A session that segue resumed is working: decides whether it may, and what that proves."""
        key = (session.agent, session.session_id)
        woken = self.woken.get(key)
        if woken is None:
            return
        if not woken.replied and has_replied(session, woken.at):
            woken.replied = self._proven = True
        now = self.state.clock.now()
        history = wake.ResumeHistory(yes_until=self._yes_until.get(session.cwd))
        why = wake.unattended(session.limits, history, self.state.policy(session), now=now)
        if why and not woken.rests:
            woken.rests = True
            self.state.note("wake", session, {"verdict": "rest", "why": why})
            self.state.say(f"{label(session)}: {why}; segue no longer resumes it without you")
            what = f"{label(session)} is working without you"
            self.state.notices.tell("needs_you", f"{woken.id}:rest", what, why)

    # What is decided

    def tick(self, now: float) -> float | None:
        """Decides on what is due; returns when the next one is."""
        for key, due in list(self._again.items()):
            if due <= now:
                tracked = self.state.tracked.get(key)
                if tracked is not None and self.is_stop_at_prompt(tracked.session):
                    self.at_prompt(tracked)
                else:
                    self._again.pop(key, None)
        for pending in list(self.pending.values()):
            due_at = due_of(pending.verdict)
            if due_at is not None and due_at <= now and not pending.doing:
                self.decide(pending)
        return self.next_at()

    def next_at(self) -> float | None:
        """When `tick` has something to do."""
        times = [
            due
            for pending in self.pending.values()
            if not pending.doing and (due := due_of(pending.verdict)) is not None
        ]
        return min([*times, *self._again.values()], default=None)

    def decide(self, pending: Pending) -> None:
        """Decides, logs the decision, and has it carried out."""
        state, now = self.state, self.state.clock.now()
        tracked = self.kept_of(pending)
        session = tracked.session
        if not self._still_there(pending, tracked, now):
            return
        pending.ending = self._updated(pending, tracked)
        verdict = wake.decide(
            pending.ending,
            self._history(pending, session, now),
            state.policy(session),
            now=now,
            local=self.local,
            draw=pending.draw,
        )
        if isinstance(verdict, wake.Resume):
            verdict = self._at_gate(tracked, pending, verdict, now)
        before, counted, last_wake_at = pending.verdict, pending.counted, self._last_wake_at
        if isinstance(verdict, wake.Resume | wake.Relay):
            pending.doing = True
            pending.resumes += 1
            pending.last_resume_at = self._last_wake_at = now
        try:
            self._decided(pending, session, verdict)
        except StateError:  # what is not logged is not done: it is decided again later
            pending.verdict, pending.doing, self._last_wake_at = before, False, last_wake_at
            pending.resumes, pending.last_resume_at = counted
            self.gate.yield_first(tracked)
            raise
        if isinstance(verdict, wake.Leave):
            self.pending.pop((session.agent, session.session_id), None)
        elif isinstance(verdict, wake.Resume | wake.Relay):
            self.carrier.resume(pending, verdict)

    def _at_gate(
        self, tracked: TrackedSession, pending: Pending, verdict: wake.Resume, now: float
    ) -> wake.Resume | wake.WaitForReset:
        """The same, if its account allows it. A run asks again under its own name."""
        answer = self.gate.ask(tracked, takes_turn=verdict.place != "headless")
        if answer.until is None:
            return verdict
        policy = self.state.policy(tracked.session)
        return wake.held_by_account(answer, policy, now=now, draw=pending.draw)

    def kept_of(self, pending: Pending) -> TrackedSession:
        """What is known about its session, even if nobody has looked at it for days."""
        tracked = self.state.tracked.get((pending.ending.agent, pending.ending.session_id))
        if tracked is None:
            return pending.tracked
        if (
            tracked is not pending.tracked
            and tracked.session.process is None
            and not tracked.seen_pid
        ):
            # It ended before this daemon started: the log knows where.
            for name in ("seat", "socket", "terminal", "program", "flags", "shell_line"):
                setattr(tracked, name, getattr(pending.tracked, name))
        pending.tracked = tracked
        return tracked

    def _still_there(self, pending: Pending, tracked: TrackedSession, now: float) -> bool:
        """Whether it is as it was left: at its prompt, or gone. Otherwise, handles what follows
        from that."""
        if pending.ending.state != "at_prompt" or tracked.session.process is not None:
            pending.missing_since = None
            return True
        if self._has_moved_on(tracked):
            self._decided(
                pending, tracked.session, wake.Leave("its agent switched to another session")
            )
            self.pending.pop((tracked.session.agent, tracked.session.session_id), None)
            return False
        missing_since = pending.missing_since = pending.missing_since or now
        if now < (self._restored_at if pending.was_restored else missing_since) + FOUND_S:
            pending.verdict = wake.WaitForReset(now + 1, "looking for its agent")
            return False  # its end is about to be seen
        if not pending.was_restored:  # it was not: the process may have had another session then
            self._decided(
                pending, tracked.session, wake.AskUser("its agent ended, and segue did not see how")
            )
            return False
        booted_at = now - self.state.clock.elapsed()
        if not pending.allowed and booted_at <= pending.ending.at:
            self._decided(
                pending,
                tracked.session,
                wake.AskUser("its agent ended while no daemon was running"),
            )
            return False
        tracked.seat = None
        pending.ending = msgspec.structs.replace(
            pending.ending, state="exited", ended_by="system", mid_turn=False, has_pane=False
        )
        return True

    def _has_moved_on(self, tracked: TrackedSession) -> bool:
        """Whether its process has switched to another session: after `/clear`, or because its user
        chose another one. In that case, no process end will ever be seen."""
        pid = tracked.seen_pid or (tracked.seat.pid if tracked.seat is not None else 0)
        everyone = (each.session for each in self.state.tracked.values() if each is not tracked)
        return any(s.process is not None and s.process.pid == pid for s in everyone)

    def _decided(self, pending: Pending, session: Session, verdict: wake.Verdict) -> None:
        before, pending.verdict = pending.verdict, verdict
        if type(before) is type(verdict) and before == verdict:
            return
        if _is_same_wait(before, verdict):
            return  # it is only checked again, and what segue waits for was already reported
        data = {"verdict": tag_of(verdict), **data_of(verdict)}
        if isinstance(verdict, wake.AskUser | wake.WaitForReset | wake.StandBy):
            price = wake.price_of(pending.ending, getattr(verdict, "until", None) or self._now())
            data["price"] = msgspec.to_builtins(price)
        self._note(pending, session, data)
        self._tell(session, pending, verdict)

    def carried(
        self, pending: Pending, why_not: str, *, retry: bool = False, is_begun: bool = False
    ) -> None:
        """A resume was carried out, or could not be; with `retry`, only for the moment.
        `is_begun`: an agent was started nevertheless."""
        pending.doing = False
        now = self._now()
        key = (pending.ending.agent, pending.ending.session_id)
        session = self.kept_of(pending).session
        if not why_not and isinstance(pending.verdict, wake.Relay):
            self._carried_over(pending, pending.verdict, session)
            return
        if not why_not:
            verdict = pending.verdict
            self.pending.pop(key, None)
            is_headless = isinstance(verdict, wake.Resume) and verdict.place == "headless"
            self.woken[key] = ResumeAttempt(id=pending.id, at=now, replied=is_headless)
            self._note(pending, session, {"verdict": "resumed"})
            self.state.notices.tell("resume", pending.id, f"{label(session)} resumes", verdict.why)
            return
        self.gate.yield_first(self.kept_of(pending))
        pending.resumes = max(0, pending.resumes - 1)
        pending.retries += 1
        if isinstance(pending.verdict, wake.Relay) and is_begun:
            # Whatever delays it, a question or a slow machine: nobody else starts its work.
            pending.relay_failed = True
            agent = pending.verdict.agent
            pending.verdict = wake.AskUser(
                f"{agent} was started in a new window and has not read its handoff: look there"
            )
            self._note(pending, session, {"verdict": "failed", **data_of(pending.verdict)})
            self._tell(session, pending, pending.verdict)
            return
        if isinstance(pending.verdict, wake.Relay):
            again = retry and pending.retries < MAX_RETRIES
            pending.relay_failed = not again  # its own agent continues it, once it may
            pending.verdict = wake.WaitForReset(
                now + (RETRY_S if again else 0.0), f"no relay: {why_not}"
            )
            self._note(pending, session, {"verdict": "failed", **data_of(pending.verdict)})
            self.state.say(f"{label(session)}: it could not be relayed: {why_not}")
            return
        pending.verdict = wake.AskUser(f"it could not be resumed: {why_not}")
        if retry and pending.retries < MAX_RETRIES:
            pending.verdict = wake.WaitForReset(now + RETRY_S, f"not just now: {why_not}")
        self._note(pending, session, {"verdict": "failed", **data_of(pending.verdict)})
        if key in self.pending:
            self._tell(session, pending, pending.verdict)

    def _carried_over(self, pending: Pending, verdict: wake.Relay, session: Session) -> None:
        """Another agent has the work: the session is left to its user."""
        key = (session.agent, session.session_id)
        self.pending.pop(key, None)
        self._relayed[key] = self._now()
        self._note(pending, session, {"verdict": "relayed", "why": f"{verdict.agent} took over"})
        what = f"{label(session)}: {verdict.agent} took over"
        self.state.say(f"{what}; {relaying.NOT_CARRIED_OVER}")
        self.state.notices.tell("resume", pending.id, what, relaying.NOT_CARRIED_OVER)

    # What the user says

    def say_yes(self, session: Session, until: float) -> str:
        """The user allows what was asked."""
        key = (session.agent, session.session_id)
        self._yes_until[session.cwd] = until
        self.state.note("yes", session, {"until": until})
        pending = self.pending.get(key)
        if pending is None:
            return f"{label(session)}: nothing is pending"
        if not pending.doing:
            pending.resumes = pending.retries = 0
            pending.allowed = True
            self.decide(pending)
        return f"{label(session)}: {tag_of(pending.verdict)}: {pending.verdict.why}"

    def cancel(self, session: Session) -> str:
        """The user wants the session left alone."""
        found = self.pending.pop((session.agent, session.session_id), None)
        if found is None:
            return ""
        self._note(found, session, {"verdict": "cancelled"})
        return f"{label(session)} will not be resumed"

    def left_at(self, project: str) -> float | None:
        """When the user last ended a session there."""
        return self._left_at.get(project)

    # What is stored

    def restore(self) -> None:
        """Loads what a previous daemon was waiting for, and its user's answers. A session that
        was being resumed gets time to show whether it continued."""
        now = self._restored_at = self._now()
        for pending in from_notes(self.state.log, now, now - KEEP_S):
            self.pending[pending.ending.agent, pending.ending.session_id] = pending
            if pending.last_resume_at is not None:
                self._last_wake_at = max(self._last_wake_at or 0.0, pending.last_resume_at)
        self._relayed = relayed(self.state.log, now - KEEP_S)
        for note in self.state.log.since(0, ("yes",), 100_000):
            until = note.data.get("until")
            if isinstance(until, float | int) and until > now:
                self._yes_until[note.project] = float(until)
        stops = self.state.log.since(0, ("stop",), 1_000_000)
        for note in stops:
            if note.data.get("ended_by") == "user" and note.at >= now - KEEP_S:
                self._left_at[note.project] = note.at

    def _open(self, tracked: TrackedSession, ending: wake.StoppedSession) -> None:
        key = (ending.agent, ending.session_id)
        before = self.pending.get(key)
        count, last_at = before.counted if before else self._resumed(tracked.session)
        pending = Pending(
            id=before.id if before else self.state.new_id("w"),
            ending=ending,
            tracked=tracked,
            draw=before.draw if before else self._draw(),
            verdict=wake.WaitForReset(self._now(), ""),
            resumes=count,
            last_resume_at=last_at,
        )
        self.pending[key] = pending
        self.decide(pending)

    def _resumed(self, session: Session) -> tuple[int, float | None]:
        """How often it was resumed since the user's last prompt, and when last."""
        notes = self.state.log.of(session.agent, session.session_id, ("wake", "hook"))
        count, first_at, last_at = resumed(notes)
        if count and first_at is not None:
            words = own_words(self.state.rules.messages(session.cwd))
            records = self.state.records
            count, _, _ = resumed(notes, session=session, words=words, records=records)
            return count, last_at
        return count, last_at

    def _updated(self, pending: Pending, tracked: TrackedSession) -> wake.StoppedSession:
        """The ending with what has become known since."""
        session, ending = tracked.session, pending.ending
        is_exited = ending.state == "exited"
        newer = (session.last_at or 0.0) > ending.at
        last_at = pending.last_resume_at
        return msgspec.structs.replace(
            ending,
            others=() if pending.relay_failed else self._successors(ending, session),
            in_run=ending.in_run or self.state.records.is_carried_on(session),
            limits=session.limits or ending.limits,
            is_open=is_exited and session.process is not None,
            has_file=self.state.records.has_file(session),
            went_on=newer and (is_exited or not self.is_stop_at_prompt(session)),
            replied=last_at is None or has_replied(session, last_at),
            native_continues_at=ending.native_continues_at or self._continues_at(pending, tracked),
            can_cancel_native=bool(
                tracked.seat and tracked.terminal and tracked.terminal.cancel_continue
            ),
        )

    def _successors(self, ending: wake.StoppedSession, session: Session) -> tuple[str, ...]:
        is_limit = ending.stop is not None and ending.stop.reason is StopReason.RATE_LIMIT
        if not is_limit or not self.state.policy(session).relay:
            return ()
        return tuple(each.agent for each in relaying.successors(self.state, self.gate, session))

    def _continues_at(self, pending: Pending, tracked: TrackedSession) -> float | None:
        """When the agent continues by itself, if its screen says that it will."""
        stop = pending.ending.stop
        if pending.ending.state != "at_prompt" or stop is None:
            return None
        pane = self.state.look(tracked)
        if isinstance(pane, TypingRefused) or not pane.continues_at:
            return None
        return max(stop.retry_at or 0.0, self._now())

    def _history(self, pending: Pending, session: Session, now: float) -> wake.ResumeHistory:
        silent = sum(not w.replied and now < w.at + REPLY_S for w in self.woken.values())
        return wake.ResumeHistory(
            resumes=pending.resumes,
            last_resume_at=pending.last_resume_at,
            user_left_project_at=self._left_at.get(session.cwd),
            yes_until=self._yes_until.get(session.cwd),
            allowed=pending.allowed,
            paused=self.state.is_paused(session),
            waking_now=sum(p.doing for p in self.pending.values()) + silent,
            proven=self._proven,
            last_wake_at=self._last_wake_at,
        )

    def _now(self) -> float:
        return self.state.clock.now()

    def _note_stop(self, tracked: TrackedSession, stop: Stop, state: str) -> None:
        session = tracked.session
        self.woken.pop((session.agent, session.session_id), None)
        if stop.reason in (StopReason.RATE_LIMIT, StopReason.OVERLOADED):
            self._proven = False
        if stop.reason is StopReason.RATE_LIMIT:  # known to its whole account before it is decided
            self.gate.limited(tracked, stop, self._resumed(session)[0])
        data = {"state": state, **msgspec.to_builtins(stop), "last_at": session.last_at or 0.0}
        self.state.note("stop", session, data)
        self.state.say(f"{label(session)}: {stop.reason.value} ({stop.confidence:.2f}), {state}")
        if stop.reason.facts.is_told:
            key = f"{session.session_id}:{stop.reason.value}"
            what = f"{label(session)} stopped: {stop.reason.description}"
            self.state.notices.tell("stop", key, what, stop.remediation)

    def _note(self, pending: Pending, session: Session | None, data: dict[str, Any]) -> None:
        self.state.note("wake", session, pending.noted() | data)

    def _tell(self, session: Session, pending: Pending, verdict: wake.Verdict) -> None:
        why = verdict.why
        if isinstance(verdict, wake.AskUser) and pending.ending.used_tokens:
            why = f"{why}; resuming now: {wake.price_of(pending.ending, self._now()).in_words}"
        self.state.say(f"{label(session)}: {tag_of(verdict)}: {why}")
        match verdict:
            case wake.AskUser():
                self.state.notices.tell("needs_you", pending.id, f"{label(session)} needs you", why)
            case wake.WaitForReset() | wake.StandBy():
                self.state.notices.tell("wait", pending.id, f"{label(session)} waits", why)
            case _:
                pass


def _is_same_wait(before: wake.Verdict, verdict: wake.Verdict) -> bool:
    """Whether it waits for the same thing as before, for a few seconds longer."""
    if not isinstance(before, wake.WaitForReset) or not isinstance(verdict, wake.WaitForReset):
        return False
    return before.why == verdict.why and abs(verdict.until - before.until) <= 2 * wake.FOLLOW_S
