"""Accounts across machines: a limit that one machine hits is known to all of them at once.

The database stores each account under its id, a hash of who is signed in: the same on every
machine, and useless to anybody else. Keys, tokens, names and paths stay on their machine. Times are
stored by the database's clock, so a machine with a wrong clock misleads nobody. While the database
is unreachable, the machine uses its own file, as if it were alone.
"""

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from segue.core import accounts
from segue.core.accounts import Account, Answer, Limit, Turn
from segue.errors import StateError
from segue.fleet.database import FleetDatabase, encode, raw, read
from segue.system.accounts import Accounts

CAP_SCOPE = "max_cost_usd"
_AGAIN_S = 5.0  # before an unreachable database is tried again
_LOOK_S = 0.5  # how long callers that only look may use what was read before
_SKEW_S = 60.0
T = TypeVar("T")


class AccountCap(Struct, frozen=True, kw_only=True):
    """What an account may do on all machines together, and what it has done. None means no cap."""

    account: str
    max_tasks: int | None = None  # at once
    max_cost_usd: float | None = None  # in 24 hours
    cost_usd: float = 0.0  # in the last 24 hours
    free_at: float | None = None  # when spending drops below the cap again; None if it is below now


class FleetAccounts(Accounts):
    """See `system/accounts.Accounts`. Database errors raise nothing here either."""

    def __init__(
        self,
        open_database: Callable[[], FleetDatabase],
        folder: str | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(folder)
        self._open, self._clock = open_database, clock
        self._db: FleetDatabase | None = None
        self._try_at = 0.0
        self._ahead_s = 0.0  # the database's clock minus this machine's
        self._last_look: tuple[float, list[Account]] | None = None

    # The interface of `Accounts`

    def all_accounts(self) -> list[Account]:
        own = super().all_accounts()
        now = time.monotonic()
        if self._last_look is None or now - self._last_look[0] > _LOOK_S:
            found = self._query(lambda db: db.rows("SELECT data FROM segue.account"))
            if found is None:
                return own
            rows = [self._own(read(data, Account)) for (data,) in found]
            self._last_look = (now, self._with_caps(rows))
        here = {each.id: each for each in own}
        shared = [
            each
            if (mine := here.get(each.id)) is None
            else replace(accounts.note(each, accounts.met_limits(mine)), home=mine.home)
            for each in self._last_look[1]
        ]
        ids = {each.id for each in shared}
        return [*shared, *(each for each in own if each.id not in ids)]

    def note_limit(self, account: Account, *limits: Limit) -> None:
        if limits:
            super().note_limit(account, *limits)
            self._share(account, lambda known: accounts.note(known, map(self._shared, limits)))

    def ask(self, account: Account, who: str, now: float) -> Answer:
        found = Answer()

        mine = self._met_here(account, now)

        def change(known: Account) -> Account:
            nonlocal found
            known = accounts.note(known, map(self._shared, mine))
            at, first = now + self._ahead_s, known.first
            if first is not None and first.at - _SKEW_S < at:
                at = max(at, first.at)  # two readings of one clock never agree exactly
            known, found = accounts.ask(known, who, at)
            return known

        if not self._share(account, change):
            return super().ask(account, who, now)
        if found.until is not None:
            return Answer(found.until - self._ahead_s, found.scope, found.by, found.follows)
        until = self.capped().get(account.id)
        return found if until is None else Answer(until, CAP_SCOPE, "the fleet's cap")

    def replied(self, account: Account, who: str, now: float) -> None:
        if accounts.met_limits(self.find(account)):
            super().replied(account, who, now)
            self._share(account, lambda known: accounts.replied(known, who, now + self._ahead_s))

    def clear(self, ids: Iterable[str] | None = None) -> list[str]:
        wanted = None if ids is None else set(ids)
        limited = [each for each in self.all_accounts() if each.limits]
        cleared = set(super().clear(wanted))
        for account in limited:
            if wanted is None or account.id in wanted:
                self._share(account, self._lifted)
                cleared.add(account.id)
        return sorted(cleared)

    def _met_here(self, account: Account, now: float) -> list[Limit]:
        """Limits that other processes on this machine hit and that were not reported to the fleet,
        because the daemon never waits for a database."""
        found = [each for each in super().all_accounts() if each.id == account.id]
        return [
            limit
            for each in found
            for limit in accounts.met_limits(each)
            if (limit.resets_at or 0.0) > now
        ]

    def _lifted(self, known: Account) -> Account:
        """The account without limits, with earlier observations made obsolete."""
        now = self._clock() + self._ahead_s
        limits = tuple(
            replace(limit, is_met=False, used_percent=None, resets_at=None, seen_at=now)
            for limit in known.limits
        )
        return replace(known, limits=limits, first=None)

    def _shared(self, limit: Limit) -> Limit:
        """The limit by the database's clock. A reset time that was stated is real time, not the
        machine's, so it is not converted."""
        until = limit.resets_at
        if limit.is_guess and until is not None:
            until += self._ahead_s
        return replace(limit, seen_at=limit.seen_at + self._ahead_s, resets_at=until)

    def _own(self, account: Account) -> Account:
        """The account by this machine's clock."""
        ahead_s, first = self._ahead_s, account.first
        limits = tuple(
            replace(
                limit,
                seen_at=limit.seen_at - ahead_s,
                resets_at=None if limit.resets_at is None else limit.resets_at - ahead_s,
            )
            for limit in account.limits
        )
        turn = None if first is None else Turn(first.who, first.at - ahead_s)
        return replace(account, limits=limits, first=turn)

    # Caps and costs

    def _with_caps(self, found: list[Account]) -> list[Account]:
        """Adds a limit to each account that has spent its cap, so that callers see it like any
        other limit."""
        capped = self.capped()
        return [
            each
            if (until := capped.get(each.id)) is None
            else replace(each, limits=(*each.limits, self._cap_limit(until)))
            for each in found
        ]

    def _cap_limit(self, until: float) -> Limit:
        return Limit(
            scope=CAP_SCOPE, used_percent=100.0, resets_at=until, is_met=True, source="fleet",
            seen_at=self._clock(),
        )  # fmt: skip

    def capped(self) -> dict[str, float]:
        """The accounts that have spent their cap, and until when."""
        found = self._query(caps) or []
        return {cap.account: cap.free_at - self._ahead_s for cap in found if cap.free_at}

    def record_spend(self, account: str, run: str, leg: int, tokens: int, cost_usd: float) -> None:
        """Records what a leg cost. Recording it twice counts it once."""
        sql = (
            "INSERT INTO segue.spent (account, run, leg, tokens, cost_usd)"
            " VALUES (%s, %s, %s, %s, %s) ON CONFLICT (run, leg) DO UPDATE"
            " SET tokens = excluded.tokens, cost_usd = excluded.cost_usd"
        )
        self._query(lambda db: db.rows(sql, (account, raw(run), leg, tokens, cost_usd)))

    # The database

    def _share(self, account: Account, change: Callable[[Account], Account]) -> bool:
        """Changes what all machines know about an account. Returns False if the database is
        unreachable."""

        def put(db: FleetDatabase) -> bool:
            with db.alone():
                new = Account(id=account.id, agent=account.agent, kind=account.kind)
                db.rows(
                    "INSERT INTO segue.account (id, agent, data) VALUES (%s, %s, %s)"
                    " ON CONFLICT (id) DO NOTHING",
                    (account.id, account.agent, encode(new)),
                )
                sql = "SELECT data FROM segue.account WHERE id = %s FOR UPDATE"
                ((data,),) = db.rows(sql, (account.id,))
                before = read(data, Account)
                after = change(before)
                if after != before:
                    sql = "UPDATE segue.account SET data = %s WHERE id = %s"
                    db.rows(sql, (encode(after), account.id))
            return True

        self._last_look = None
        return bool(self._query(put))

    def _query(self, ask: Callable[[FleetDatabase], T]) -> T | None:
        """The database's answer, or None while it is unreachable."""
        if time.monotonic() < self._try_at:
            return None
        try:
            if self._db is None:
                self._db = self._open()
                self._ahead_s = self._db.ahead_s + time.time() - self._clock()
            return ask(self._db)
        except StateError:
            self._db, self._try_at = None, time.monotonic() + _AGAIN_S
            return None

    def close(self) -> None:
        """Closes the connection."""
        if self._db is not None:
            self._db.close()
            self._db = None


def caps(db: FleetDatabase) -> list[AccountCap]:
    """The caps that are set, and how much of each is spent."""
    sql = (
        "SELECT c.account, c.max_tasks, c.max_cost_usd, coalesce(max(s.later), 0),"
        " extract(epoch FROM max(s.at) FILTER (WHERE s.later >= c.max_cost_usd)"
        " + interval '24 hours')::float FROM segue.cap c LEFT JOIN"
        " (SELECT account, at, sum(cost_usd) OVER (PARTITION BY account ORDER BY at DESC) AS later"
        " FROM segue.spent WHERE at > now() - interval '24 hours') s ON s.account = c.account"
        " GROUP BY c.account ORDER BY c.account"
    )
    return [
        AccountCap(account=row[0], max_tasks=row[1], max_cost_usd=row[2], cost_usd=row[3],
                   free_at=row[4])
        for row in db.rows(sql)
    ]  # fmt: skip


def spend_by_account(db: FleetDatabase) -> dict[str, float]:
    """What each account cost in the last 24 hours, in dollars."""
    sql = (
        "SELECT account, sum(cost_usd) FROM segue.spent WHERE at > now() - interval '24 hours'"
        " GROUP BY account"
    )
    return {account: float(cost) for account, cost in db.rows(sql)}


def set_cap(db: FleetDatabase, cap: AccountCap) -> None:
    """Sets a cap for all machines from now on. A cap without values is removed."""
    if cap.max_tasks is None and cap.max_cost_usd is None:
        db.rows("DELETE FROM segue.cap WHERE account = %s", (cap.account,))
        return
    db.rows(
        "INSERT INTO segue.cap (account, max_tasks, max_cost_usd) VALUES (%s, %s, %s)"
        " ON CONFLICT (account) DO UPDATE SET max_tasks = excluded.max_tasks,"
        " max_cost_usd = excluded.max_cost_usd",
        (cap.account, cap.max_tasks, cap.max_cost_usd),
    )


def max_tasks(db: FleetDatabase, account: str) -> int | None:
    """How many tasks of an account may run at once; None means no cap."""
    sql = "SELECT max_tasks FROM segue.cap WHERE account = %s"
    return next((most for (most,) in db.rows(sql, (account,))), None)
