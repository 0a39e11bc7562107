"""Accounts: whose limits count. One account, one limit: what one session meets is known to all.

An account is an agent's login, the same in all its sessions. A limit that was met holds until its
reset; after that one session goes first, and the others follow once it got a reply. Pure: times and
names are arguments; `system/accounts` keeps what is known.
"""

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from segue.core.stops.types import RateLimitInfo, Stop

REPLY_S = 300.0
"""Whoever goes first and has not got a reply by then keeps the others waiting no longer."""
STALE_S = 3_600.0
"""So long after a reset nobody has to go first any more."""
KEEP_S = 8 * 86_400.0
"""The longest limit of a plan is a week: what was seen before that says nothing any more."""


class Limit(Struct, frozen=True, kw_only=True):
    """What was last seen of one limit of an account."""

    scope: str = ""  # "five_hour", "seven_day" … as the agent calls it; "": unknown
    used_percent: float | None = None
    resets_at: float | None = None
    is_met: bool = False  # a request was refused because of it
    is_guess: bool = False  # the reset is unknown: segue tries again then
    source: str = ""  # where this comes from: "run", "session", "status line"
    by: str = ""  # which run or session that was
    seen_at: float = 0.0


class Turn(Struct, frozen=True):
    """Who goes first after a reset, and since when."""

    who: str
    at: float


class Account(Struct, frozen=True, kw_only=True):
    """An agent's login. Its id holds nothing but a hash of who that is."""

    id: str
    agent: str
    home: str = ""  # the agent's config home
    kind: str = ""  # "plan" or "key", as far as the agent's files tell
    limits: tuple[Limit, ...] = ()
    first: Turn | None = None


class Answer(Struct, frozen=True):
    """Whether a request may be sent now. `until` None: it may."""

    until: float | None = None
    scope: str = ""
    by: str = ""  # whose word this rests on: who met the limit, or who goes first
    follows: bool = False  # it waits for the first reply of `by`, not for a reset


def limit_of(
    stop: Stop, resets_at: float, *, is_guess: bool, source: str, by: str, now: float
) -> Limit:
    """The limit that a session hit, according to its stop."""
    scope = stop.details.scope if isinstance(stop.details, RateLimitInfo) else None
    return Limit(
        scope=scope or "",
        resets_at=resets_at,
        is_met=True,
        is_guess=is_guess,
        source=source,
        by=by,
        seen_at=now,
    )


def met_limits(account: Account) -> list[Limit]:
    """The limits that were met and that no reply has lifted."""
    return [limit for limit in account.limits if limit.is_met and limit.resets_at is not None]


def limited_until(account: Account, now: float) -> Limit | None:
    """The limit that holds longest; None if none does now."""
    holding = [limit for limit in met_limits(account) if (limit.resets_at or 0.0) > now]
    return max(holding, key=lambda limit: limit.resets_at or 0.0, default=None)


def note(account: Account, limits: Iterable[Limit]) -> Account:
    """The account with what was just seen. What is older than what is known changes nothing, and a
    limit that was met stays met when no more than its use is told again."""
    known = {limit.scope: limit for limit in account.limits}
    first = account.first
    for limit in limits:
        before = known.get(limit.scope)
        if before is not None and before.seen_at > limit.seen_at:
            continue
        if before is not None and _still_holds(before, limit):
            limit = replace(before, used_percent=limit.used_percent or before.used_percent)
        elif limit.is_met:
            first = None  # whoever went first has found out that it has not ended
        known[limit.scope] = limit
    return replace(account, limits=tuple(known.values()), first=first)


def _still_holds(before: Limit, limit: Limit) -> bool:
    """What says less takes nothing back: how much is used, or a guess where a reset was told."""
    is_ahead = before.is_met and (before.resets_at or 0.0) > limit.seen_at
    return is_ahead and (not limit.is_met or (limit.is_guess and not before.is_guess))


def ask(account: Account, who: str, now: float) -> tuple[Account, Answer]:
    """Whether `who` may send a request now, and the account afterwards: who may go first has the
    turn from then on."""
    holding = limited_until(account, now)
    if holding is not None:
        return account, Answer(holding.resets_at, holding.scope, holding.by)
    if unproven_since(account, now) is None:
        return account, Answer()
    first = first_now(account, now)
    if first is None or first.who == who:
        return replace(account, first=Turn(who, now)), Answer()
    return account, Answer(first.at + REPLY_S, by=first.who, follows=True)


def unproven_since(account: Account, now: float) -> float | None:
    """When its last limit was reset, if nobody got a reply since; None while it is limited, and if
    nobody has to go first."""
    over = max((limit.resets_at or 0.0 for limit in met_limits(account)), default=None)
    return over if over is not None and 0 <= now - over <= STALE_S else None


def first_now(account: Account, now: float) -> Turn | None:
    """Who goes first just now, as long as the others wait for that one."""
    first = account.first
    return first if first is not None and 0 <= now - first.at < REPLY_S else None


def without_first(account: Account, who: str) -> Account:
    """The account once `who` does not try after all: another may go first."""
    is_first = account.first is not None and account.first.who == who
    return replace(account, first=None) if is_first else account


def replied(account: Account, who: str, now: float) -> Account:
    """The account once the model answered `who`: a limit whose reset has passed has ended. What
    is said in the middle of a limit (by another model, out of a cache) lifts nothing."""
    is_first = account.first is not None and account.first.who == who
    left = tuple(
        replace(limit, is_met=False, used_percent=None, is_guess=False)
        if limit.is_met and (is_first or (limit.resets_at or 0.0) <= now)
        else limit
        for limit in account.limits
    )
    return replace(account, limits=left, first=None if left != account.limits else account.first)


def current(account: Account, now: float) -> Account:
    """Without what says nothing any more: a window that has passed, and what is older than any."""
    left = tuple(
        limit
        for limit in account.limits
        if now - limit.seen_at < KEEP_S
        and (limit.is_met or limit.resets_at is None or limit.resets_at > now)
    )
    return replace(account, limits=left)
