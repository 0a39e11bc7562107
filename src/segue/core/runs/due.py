"""Decides whether a session is handed over at its next boundary, and why.

How it works. The model does not read a request for a checkpoint at once: at a boundary, the results
of the last tools are already in the conversation but not yet in any reading. Waiting for one more
boundary means that the request is read one turn later. So this module forecasts the size at which a
request would be read if it were sent one boundary later than the next. If that size is past the
hard mark, the handoff begins now; the hard mark lies before the agent's own limit by the reserve.
What tools printed since the last reading is estimated and counts as read (`pending_tokens`).

A session that jumps past the soft mark may have no room left for another turn. If a request that
waits for the next boundary would be read too late (`is_late`), segue interrupts the turn for it.

A session that must be resumed to be asked, and that grows by being resumed, can be asked only
while it still fits. This is a separate limit, with a soft mark before it in the same proportion.
Past that limit, ending the session early gains nothing, and only the policy's marks apply.
"""

from msgspec import Struct
from msgspec.structs import replace

from segue.core.runs.types import ContextMeasured, Run
from segue.core.sessions.forecasts.adapting import USUAL, adapted
from segue.core.sessions.forecasts.forecast import later
from segue.core.sessions.forecasts.growth import Growth, large_reply
from segue.core.sessions.forecasts.marks import Marks, marks

KEPT_SIZES = 60  # of the last replies, including earlier sessions: a new session starts from these
MIN_REPLIES = 3  # of its own; a session that has just started is not given up for what may come
_PART = 1_000  # a thousandth of the window: parts of one reply, not two replies


def measured(run: Run, fact: ContextMeasured) -> Run:
    """Returns the run with this reading, and with what it adds to the growth."""
    # Where the agent acts by itself is known once its window is.
    known = fact.enforced_tokens or run.abilities.enforced_tokens
    run = _loaded(_read(run, fact), fact)
    run = replace(
        run,
        reading=fact.reading,
        is_timely=fact.is_timely,
        pending_tokens=fact.pending_tokens,
        request_tokens=fact.request_tokens,
        abilities=replace(run.abilities, enforced_tokens=known),
    )
    used, sizes = fact.reading.used_tokens, run.sizes
    if run.asked or run.purpose != "work":
        return run  # answering is not work
    if sizes and run.replies > 0 and abs(used - sizes[-1]) * _PART < fact.reading.window_tokens:
        return replace(run, sizes=(*sizes[:-1], used))
    return replace(run, sizes=(*sizes, used)[-KEPT_SIZES:], replies=run.replies + 1)


def _read(run: Run, fact: ContextMeasured) -> Run:
    """Updates the run with what the reply to a request for a checkpoint shows about the
    look-ahead."""
    reading, before = fact.reading, run.reading
    is_answer = before is None or before.used_tokens != reading.used_tokens
    if not run.asked or not is_answer or reading.window_tokens <= 0:
        return run
    return handed_over_at(run, reading.used_tokens / reading.window_tokens)


def handed_over_at(run: Run, read_at: float) -> Run:
    """Returns the run after a handoff of the live leg whose request was read at this share of
    the window."""
    if not run.policy.adaptive or run.adapted_leg == run.leg:
        return run
    return replace(run, adapted_leg=run.leg, quantile=adapted(run.quantile, read_at))


def _loaded(run: Run, fact: ContextMeasured) -> Run:
    """Records the size that a resumed session has at its first reply. Before that, its file may
    repeat the old size."""
    if run.abilities.resume_factor <= 1 or run.loaded_leg == run.leg:
        return run
    used, before = fact.reading.used_tokens, run.reading
    if run.replies > 0 and before is not None and used == before.used_tokens:
        return run
    return replace(run, loaded_leg=run.leg, loaded_tokens=used if run.replies > 0 else 0)


def marks_of(run: Run) -> Marks:
    """The policy's marks, in this session's window."""
    window = run.reading.window_tokens if run.reading else 0
    return marks(run.policy, window, run.abilities.enforced_tokens)


def why_due(run: Run, found: Marks | None = None) -> str:
    """Why the session is handed over at the next boundary, in a few words; "" if it is not.
    `found`: its marks, if the caller knows them."""
    reading, found = run.reading, found or marks_of(run)
    if reading is None or found.soft_tokens is None or found.hard_tokens is None:
        return ""
    used, room = expected_tokens(run), _room(run, found)
    if used >= found.soft_tokens:
        return f"{_at(run, used)}, soft mark {share(run, found.soft_tokens)}"
    if used >= room.soft_tokens:
        return f"{_at(run, used)}, and it can be asked up to {share(run, room.limit_tokens)}"
    if room.is_passed or used * 2 < room.limit_tokens:
        return ""
    pace = _pace(run)
    if pace is None:
        return ""
    turns = 2 if run.is_timely or run.pending_tokens else 3
    if later(used, pace, turns=turns) < room.limit_tokens:
        return ""
    added = share(run, pace.large_reply_tokens or 0)
    turn = f"+{added} per turn"
    if run.policy.adaptive:
        turn += f" (adaptive: {_quantile(run):.0%} of turns add no more)"
    return f"{_at(run, used)}, {turn}: the next turn would pass {share(run, room.limit_tokens)}"


def _at(run: Run, used_tokens: int) -> str:
    if run.pending_tokens:
        return f"context at about {share(run, used_tokens)} with the last tool's output"
    return f"context at {share(run, used_tokens)}"


def expected_tokens(run: Run) -> int:
    """The session's size, with what its tools printed since the last reading."""
    return run.reading.used_tokens + run.pending_tokens if run.reading is not None else 0


def is_passed_with(run: Run, pending_tokens: int) -> bool:
    """Whether the session has passed the soft mark once this much is added to its last reading."""
    soft = marks_of(run).soft_tokens
    if not pending_tokens or soft is None or run.reading is None:
        return False
    return run.reading.used_tokens + pending_tokens >= soft


def is_late(run: Run, found: Marks) -> bool:
    """Whether a session that is due has no room for another turn before the request: at its next
    boundary, the request would be read later than it should be. `found`: its marks."""
    latest = found.asked_by_tokens
    if latest is None or run.reading is None:
        return False
    able, resumed = run.abilities, resumed_tokens(run)
    if not able.talks and (not able.resumes or (resumed or 0) > run.reading.window_tokens):
        return False  # it is not asked at all
    read_at = later(expected_tokens(run), _pace(run), turns=1) + run.request_tokens
    return read_at > latest


def share(run: Run, tokens: int) -> str:
    """A size for people: as a share of the window, if that is known."""
    window = run.reading.window_tokens if run.reading else 0
    if window <= 0:
        return f"{tokens:,} tokens"
    return f"{f'{tokens / window * 100:.1f}'.removesuffix('.0')}%"


class _Room(Struct, frozen=True):
    """The size up to which a request may be read, and the size from which segue uses the next
    boundary for it."""

    limit_tokens: int
    soft_tokens: int
    # it is too large to be resumed and asked, so looking ahead does not help
    is_passed: bool = False


def _room(run: Run, found: Marks) -> _Room:
    hard, soft = found.hard_tokens or 0, found.soft_tokens or 0
    able, reading = run.abilities, run.reading
    if able.talks or not able.resumes or able.resume_factor <= 1 or reading is None:
        return _Room(hard, soft)
    # A resumed session must also be read before the hard mark.
    most = min(hard, reading.window_tokens - run.policy.reserve_tokens)
    grown = run.loaded_tokens * (able.resume_factor - 1)
    askable = int((most + grown) / able.resume_factor)
    if askable >= hard:
        return _Room(hard, soft)
    if expected_tokens(run) > askable:
        return _Room(hard, soft, is_passed=True)
    return _Room(askable, askable * soft // hard)


def resumed_tokens(run: Run) -> int | None:
    """How large the session is once it is resumed; None if that is unknown."""
    reading, factor = run.reading, run.abilities.resume_factor
    if reading is None or reading.window_tokens <= 0:
        return None
    used = expected_tokens(run)
    new = max(0, used - run.loaded_tokens)
    return used + int(new * (factor - 1))


def _pace(run: Run) -> Growth | None:
    """How this session and the run's earlier ones grow; None if it has just started."""
    if run.replies < MIN_REPLIES:
        return None
    return large_reply(run.sizes, large=_quantile(run))


def _quantile(run: Run) -> float:
    return run.quantile or USUAL if run.policy.adaptive else USUAL
