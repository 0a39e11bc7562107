"""Coordinates the daemon's sessions with their accounts: one account, one limit.

A limit that one session hits is known at once to every run, task and session of its account. The
daemon checks the account before it resumes a session; after a reset one goes first, and its
reply lets the others follow. `system/accounts` stores this for all of segue on this machine.
"""

from segue.core import accounts
from segue.core.accounts import Account, Answer, limit_of
from segue.core.runs.waits import backoff_s
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import Stop
from segue.system.accounts import Accounts, account_at
from segue.watch.state import DaemonState, TrackedSession

_FRESH_S = 5.0
"""How long segue assumes that no account of an agent has hit a limit, because every reply checks
that."""
_GUESS_S = 600.0
"""A limit without a stated end that was hit longer ago than this says nothing."""


class AccountGate:
    """Coordinates with accounts. The caller holds the daemon's lock."""

    def __init__(self, state: DaemonState) -> None:
        self.state = state
        self.accounts = Accounts()
        self._met: frozenset[str] = frozenset()  # agents that have hit a limit
        self._met_at = float("-inf")

    def account(self, tracked: TrackedSession) -> Account | None:
        """The account whose limits apply to it; None if its file is outside its agent's home."""
        session = tracked.session
        return account_at(session.agent, session.path, self.state.env, flags=tracked.flags)

    def limited(self, tracked: TrackedSession, stop: Stop, tries: int) -> None:
        """A session hit a limit. `tries`: how often it was resumed since the user's last prompt."""
        session, now = tracked.session, self.state.clock.now()
        policy = self.state.policy(session)
        if stop.reason is not StopReason.RATE_LIMIT or not policy.is_sure(stop):
            return
        until = stop.retry_at
        if until is None and stop.retry_after_s is not None:
            until = (session.last_at or now) + stop.retry_after_s
        is_guess = until is None
        if until is None and now - (session.last_at or now) < _GUESS_S:
            until = now + backoff_s(policy, tries + 1, 0.0)
        if until is None or until <= now or (account := self.account(tracked)) is None:
            return
        by = session.session_id
        limit = limit_of(stop, until, is_guess=is_guess, source="session", by=by, now=now)
        self.accounts.note_limit(account, limit)
        self._met_at = float("-inf")

    def ask(self, tracked: TrackedSession, *, takes_turn: bool) -> Answer:
        """Whether the session may send a request now. `takes_turn`: it does so at once; otherwise
        the sender, such as a run, asks again."""
        account, now = self.account(tracked), self.state.clock.now()
        if account is None:
            return Answer()
        if takes_turn:
            return self.accounts.ask(account, tracked.session.session_id, now)
        return accounts.ask(self.accounts.find(account), tracked.session.session_id, now)[1]

    def yield_first(self, tracked: TrackedSession) -> None:
        """The session is not resumed after all, so another may go first."""
        if (account := self.account(tracked)) is not None:
            self.accounts.yield_first(account, tracked.session.session_id)

    def replied(self, tracked: TrackedSession) -> None:
        """The session works: if it got a reply since the reset, whoever started it, the others may
        follow."""
        session, now = tracked.session, self.state.clock.now()
        at = session.reading.at if session.reading is not None else None
        if at is None or session.agent not in self._agents_met(now):
            return
        account = self.account(tracked)
        if account is None:
            return
        reset_at = accounts.unproven_since(self.accounts.find(account), now)
        if reset_at is not None and reset_at < at:
            self.accounts.replied(account, session.session_id, at)

    def is_free(self, account: Account) -> bool:
        """Whether another agent's account accepts work now."""
        now = self.state.clock.now()
        return accounts.ask(self.accounts.find(account), "", now)[1].until is None

    def _agents_met(self, now: float) -> frozenset[str]:
        if not 0 <= now - self._met_at < _FRESH_S:
            self._met_at = now
            known = self.accounts.all(now)
            self._met = frozenset(each.agent for each in known if accounts.met_limits(each))
        return self._met
