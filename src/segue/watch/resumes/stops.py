"""Sessions that stopped: each stop is logged and decided on, and decided on again when its time has
come. Waits are in the log, so the next daemon continues with them.
"""

import random
from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from segue.core.resumes import decisions
from segue.core.resumes.quiet_hours import Local
from segue.core.sessions.types import Session
from segue.core.stops.exits import signal_of
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import Stop
from segue.errors import StateError
from segue.watch.observe import endings
from segue.watch.resumes import circumstances, presence, relaying
from segue.watch.resumes.attempts import ResumeAttempts
from segue.watch.resumes.gate import AccountGate
from segue.watch.resumes.pending import (
    Pending,
    due_of,
    ending_of,
    from_notes,
    is_same_stop,
    is_same_wait,
    local_time,
    relayed,
    tag_of,
)
from segue.watch.resumes.prompt_stops import PromptStops, is_stop_at_prompt
from segue.watch.resumes.reports import StopReports
from segue.watch.resumes.user_answers import UserAnswers
from segue.watch.state import DaemonState, Name, TrackedSession, label

KEEP_S = 8 * 86_400.0
"""The longest limit of a plan is a week; nobody remembers anything that waits longer."""
RETRY_S = 15.0
MAX_RETRIES = 40
"""How often, and how many times, typing is retried after a temporary failure."""
_BY_USER_SIGNALS = (None, 1, 2, 3, 15)
"""Exit codes of an agent that its user, or the end of its terminal, has ended."""


class Carrier(Protocol):
    """Carries out a resume in its own thread; the result goes to `Stops.carried`."""

    def resume(self, pending: Pending, verdict: decisions.Resume | decisions.Relay) -> None: ...


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
        self.attempts = ResumeAttempts(state)
        self.user_answers = UserAnswers(state)
        self.prompts = PromptStops(state)
        self.reports = StopReports(state)
        self._draw = draw
        self._relayed: dict[Name, float] = {}  # sessions that another agent took over, and when
        self._restored_at = state.clock.now()

    # What was observed

    def ended(
        self,
        tracked: TrackedSession,
        stop: Stop,
        *,
        mid_turn: bool,
        has_tmux: bool,
        exit_code: int | None = None,
    ) -> None:
        """The session's process is gone: reports why, and decides whether to resume it."""
        session, now = tracked.session, self.state.clock.now()
        key = (session.agent, session.session_id)
        was_at_prompt = self.prompts.is_stopped(key)
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
        if decisions.ended_by_user(ending):
            self.user_answers.leave(session.cwd, now)
        if not self._is_relayed(session):
            self._open(tracked, ending)
        self.prompts.left(key)

    def at_prompt(self, tracked: TrackedSession) -> None:
        """The session seems to be stopped at its prompt (`is_stop_at_prompt`): reports the stop
        once, and decides what to do about it."""
        session = tracked.session
        found = self.prompts.find(tracked)
        if found is None:
            return
        stop = endings.ending_of(session, None, endings.After(terminal="there"))
        if not self.prompts.is_logged(session, found):
            self._note_stop(tracked, stop, "at_prompt")
        if not self._is_relayed(session):
            self._stopped_at_prompt(tracked, stop)
        self.prompts.handled(session, found)

    def _stopped_at_prompt(self, tracked: TrackedSession, stop: Stop) -> None:
        session = tracked.session
        ending = ending_of(tracked, stop, "at_prompt", session.last_at or self._now())
        ending = msgspec.structs.replace(ending, has_pane=tracked.seat is not None)
        waiting = self.pending.get((session.agent, session.session_id))
        if waiting is not None and (waiting.doing or is_same_stop(waiting.ending, ending)):
            return
        if waiting is not None and waiting.ending.stop is not None:
            again = decisions.reported_again(waiting.ending.stop, stop)
            ending = msgspec.structs.replace(ending, stop=again)
        self._open(tracked, ending)

    def _is_relayed(self, session: Session) -> bool:
        """Whether another agent does its work, and nobody continued it since."""
        at = self._relayed.get((session.agent, session.session_id))
        return at is not None and (session.last_at or 0.0) <= at

    def went_on(self, session: Session) -> None:
        """The session works, or its user has spoken: nothing is pending any more."""
        key = (session.agent, session.session_id)
        if (tracked := self.state.tracked.get(key)) is not None:
            self.gate.replied(tracked)
        self.prompts.left(key)
        self.attempts.works(session, self.user_answers.yes_until(session.cwd))
        found = self.pending.get(key)
        if found is None or found.doing:
            return
        del self.pending[key]
        self.reports.note(found, session, {"verdict": "over", "why": "it continued"})

    def user_spoke(self, session: Session) -> None:
        """The user typed something into it: the count of resumes starts again."""
        self.attempts.forget(session)
        found = self.pending.get((session.agent, session.session_id))
        if found is not None:
            found.resumes = 0
        self.state.note("hook", session, {"type": "user_spoke"})

    # What is decided

    def tick(self, now: float) -> float | None:
        """Decides on what is due; returns when the next one is."""
        for key, due in list(self.prompts.check_at.items()):
            if due <= now:
                tracked = self.state.tracked.get(key)
                if tracked is not None and is_stop_at_prompt(tracked.session):
                    self.at_prompt(tracked)
                else:
                    self.prompts.check_at.pop(key, None)
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
        return min([*times, *self.prompts.check_at.values()], default=None)

    def decide(self, pending: Pending) -> None:
        """Decides, logs the decision, and has it carried out."""
        state, now = self.state, self.state.clock.now()
        tracked = self.tracked_of(pending)
        session = tracked.session
        missed = presence.missed(state, pending, tracked, self._restored_at)
        if missed is not None:
            self._missed(pending, session, missed)
            return
        pending.ending = circumstances.updated(state, self.gate, pending, tracked)
        verdict = decisions.decide(
            pending.ending,
            self._history(pending, session, now),
            state.policy(session),
            now=now,
            local=self.local,
            draw=pending.draw,
        )
        if isinstance(verdict, decisions.Resume):
            verdict = self._at_gate(tracked, pending, verdict, now)
        before, counted, last_at = pending.verdict, pending.counted, self.attempts.last_at
        if isinstance(verdict, decisions.Resume | decisions.Relay):
            pending.doing = True
            pending.resumes += 1
            pending.last_resume_at = self.attempts.last_at = now
        try:
            self._decided(pending, session, verdict)
        except StateError:  # what is not logged is not done: it is decided again later
            pending.verdict, pending.doing, self.attempts.last_at = before, False, last_at
            pending.resumes, pending.last_resume_at = counted
            self.gate.yield_first(tracked)
            raise
        if isinstance(verdict, decisions.Leave):
            self.pending.pop((session.agent, session.session_id), None)
        elif isinstance(verdict, decisions.Resume | decisions.Relay):
            self.carrier.resume(pending, verdict)

    def _at_gate(
        self, tracked: TrackedSession, pending: Pending, verdict: decisions.Resume, now: float
    ) -> decisions.Resume | decisions.WaitForReset:
        """The same decision if the account allows it now, otherwise a wait. Runs ask for their
        account themselves."""
        answer = self.gate.ask(tracked, takes_turn=verdict.place != "headless")
        if answer.until is None:
            return verdict
        policy = self.state.policy(tracked.session)
        return decisions.held_by_account(answer, policy, now=now, draw=pending.draw)

    def tracked_of(self, pending: Pending) -> TrackedSession:
        """What is known about the session, even if nobody has looked at it for days."""
        tracked = self.state.tracked.get((pending.ending.agent, pending.ending.session_id))
        if tracked is None:
            return pending.tracked
        was_seen = tracked.session.process is not None or tracked.seen_pid
        if tracked is not pending.tracked and not was_seen:
            # It ended before this daemon started: the log knows where.
            for name in ("seat", "socket", "terminal", "program", "flags", "shell_line"):
                setattr(tracked, name, getattr(pending.tracked, name))
        pending.tracked = tracked
        return tracked

    def _missed(self, pending: Pending, session: Session, verdict: decisions.Verdict) -> None:
        if isinstance(verdict, decisions.WaitForReset):
            pending.verdict = verdict  # for a moment: not worth a note
            return
        self._decided(pending, session, verdict)
        if isinstance(verdict, decisions.Leave):
            self.pending.pop((session.agent, session.session_id), None)

    def _decided(self, pending: Pending, session: Session, verdict: decisions.Verdict) -> None:
        before, pending.verdict = pending.verdict, verdict
        if type(before) is type(verdict) and before == verdict:
            return
        if is_same_wait(before, verdict):
            return  # it is only checked again, and what segue waits for was already reported
        self.reports.decision(pending, session)

    def carried(
        self, pending: Pending, why_not: str, *, retry: bool = False, is_begun: bool = False
    ) -> None:
        """A resume was carried out or, if `why_not` says why, failed. `retry`: it failed only for
        the moment. `is_begun`: an agent was started nevertheless."""
        pending.doing = False
        now = self._now()
        key = (pending.ending.agent, pending.ending.session_id)
        session = self.tracked_of(pending).session
        if not why_not and isinstance(pending.verdict, decisions.Relay):
            self._carried_over(pending, pending.verdict, session)
            return
        if not why_not:
            verdict = pending.verdict
            self.pending.pop(key, None)
            is_headless = isinstance(verdict, decisions.Resume) and verdict.place == "headless"
            self.attempts.add(session, pending.id, now, has_replied=is_headless)
            self.reports.note(pending, session, {"verdict": "resumed"})
            self.state.notices.tell("resume", pending.id, f"{label(session)} resumes", verdict.why)
            return
        self.gate.yield_first(self.tracked_of(pending))
        pending.resumes = max(0, pending.resumes - 1)
        pending.retries += 1
        if isinstance(pending.verdict, decisions.Relay) and is_begun:
            # Whatever delays it, a question or a slow machine: nobody else starts its work.
            pending.relay_failed = True
            agent = pending.verdict.agent
            pending.verdict = decisions.AskUser(
                f"{agent} was started in a new window but has not read its handoff: see there"
            )
            self.reports.failed(pending, session)
            self.reports.announce(pending, session)
            return
        again = retry and pending.retries < MAX_RETRIES
        if isinstance(pending.verdict, decisions.Relay):
            pending.relay_failed = not again  # its own agent continues it, once it may
            pending.verdict = decisions.WaitForReset(
                now + (RETRY_S if again else 0.0), f"the relay failed: {why_not}"
            )
            self.reports.failed(pending, session)
            self.state.say(f"{label(session)}: it could not be relayed: {why_not}")
            return
        pending.verdict = decisions.AskUser(f"it could not be resumed: {why_not}")
        if again:
            pending.verdict = decisions.WaitForReset(now + RETRY_S, f"trying again soon: {why_not}")
        self.reports.failed(pending, session)
        if key in self.pending:
            self.reports.announce(pending, session)

    def _carried_over(self, pending: Pending, verdict: decisions.Relay, session: Session) -> None:
        """Another agent has the work: the session is left to its user."""
        key = (session.agent, session.session_id)
        self.pending.pop(key, None)
        self._relayed[key] = self._now()
        why = f"{verdict.agent} took over"
        self.reports.note(pending, session, {"verdict": "relayed", "why": why})
        what = f"{label(session)}: {why}"
        self.state.say(f"{what}; {relaying.NOT_CARRIED_OVER}")
        self.state.notices.tell("resume", pending.id, what, relaying.NOT_CARRIED_OVER)

    # What the user says

    def say_yes(self, session: Session, until: float) -> str:
        """The user allows what was asked."""
        self.user_answers.allow(session, until)
        pending = self.pending.get((session.agent, session.session_id))
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
        self.reports.note(found, session, {"verdict": "cancelled"})
        return f"{label(session)} will not be resumed"

    # Start

    def restore(self) -> None:
        """Loads what a previous daemon was waiting for, and its user's answers. A session that
        was being resumed gets time to show whether it continued."""
        now = self._restored_at = self._now()
        for pending in from_notes(self.state.log, now, now - KEEP_S):
            self.pending[pending.ending.agent, pending.ending.session_id] = pending
            if pending.last_resume_at is not None:
                self.attempts.last_at = max(self.attempts.last_at or 0.0, pending.last_resume_at)
        self._relayed = relayed(self.state.log, now - KEEP_S)
        self.user_answers.restore(now - KEEP_S)

    def _open(self, tracked: TrackedSession, ending: decisions.StoppedSession) -> None:
        key = (ending.agent, ending.session_id)
        before = self.pending.get(key)
        count, last_at = before.counted if before else self.attempts.count(tracked.session)
        pending = Pending(
            id=before.id if before else self.state.new_id("w"),
            ending=ending,
            tracked=tracked,
            draw=before.draw if before else self._draw(),
            verdict=decisions.WaitForReset(self._now(), ""),
            resumes=count,
            last_resume_at=last_at,
        )
        self.pending[key] = pending
        self.decide(pending)

    def _history(self, pending: Pending, session: Session, now: float) -> decisions.ResumeHistory:
        resuming = sum(each.doing for each in self.pending.values())
        return decisions.ResumeHistory(
            resumes=pending.resumes,
            last_resume_at=pending.last_resume_at,
            user_left_project_at=self.user_answers.left_at(session.cwd),
            yes_until=self.user_answers.yes_until(session.cwd),
            allowed=pending.allowed,
            paused=self.state.is_paused(session),
            waking_now=resuming + self.attempts.unanswered(now),
            proven=self.attempts.is_proven,
            last_wake_at=self.attempts.last_at,
        )

    def _now(self) -> float:
        return self.state.clock.now()

    def _note_stop(
        self, tracked: TrackedSession, stop: Stop, state: Literal["exited", "at_prompt"]
    ) -> None:
        session = tracked.session
        self.attempts.stopped(session, stop.reason)
        if stop.reason is StopReason.RATE_LIMIT:  # known to its whole account before it is decided
            self.gate.limited(tracked, stop, self.attempts.count(session)[0])
        self.reports.stop(session, stop, state)
