"""Decides whether a session is handed over at its next boundary, and why.

How it works. The model does not read a request for a checkpoint at once: at a boundary, the results
of the last tools are already in the conversation but not yet in any reading. Waiting for one more
boundary means that the request is read one turn later. So this module forecasts the size at which a
request would be read if it were sent one boundary later than the next. If that size is past the
hard mark, the handoff begins now; the hard mark lies before the agent's own limit by the reserve.
What tools printed since the last reading is estimated and counts as read (`pending_tokens`), and
so does the request itself: it must be read by `Marks.asked_by_tokens`.

In the first half of the room only a usual turn counts, not a large one, and only if the session's
own last turn was about as large: a single jump must not end a session that has hardly begun, but
turns that are all large leave no other time to ask.

A session that jumps past the soft mark may have no room left for another turn. If a request that
waits for the next boundary would be read too late (`is_late`), segue interrupts the turn for it.

A session that must be resumed to be asked, and that grows by being resumed, can be asked only
while it still fits. This is a separate limit, with a soft mark before it in the same proportion.
Past that limit, ending the session early gains nothing, and only the policy's marks apply; they
also apply alone if fewer than two turns of work fit below it.
"""

from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from segue.core.runs.types import ContextMeasured, Run
from segue.core.sessions.forecasts.adapting import USUAL, adapted
from segue.core.sessions.forecasts.forecast import later
from segue.core.sessions.forecasts.growth import Growth, large_reply
from segue.core.sessions.forecasts.marks import Marks, marks

KEPT_SIZES = 60  # of the last replies, including earlier sessions: a new session starts from these
MIN_REPLIES = 3  # of its own; a session that has just started is not given up for what may come
MIN_CONTINUED_REPLIES = 2  # of its own, if the run's earlier sessions show how large turns are
MIN_TURNS = 2  # of work before a session is asked: its words are not worth a leg for each turn
ENDING_S = 0.5  # from a boundary until an agent has ended that must be resumed to be asked
MAX_WORKED_ON_TURNS = 2
MIN_USUAL_TURNS = 2  # that are known before what is usual decides
_USUAL_TURN = 0.5  # half of the turns add no more
_PART = 1_000  # a thousandth of the window: parts of one reply, not two replies


def measured(run: Run, fact: ContextMeasured) -> Run:
    """Returns the run with this reading, and with what it adds to the growth."""
    # Where the agent acts by itself is known once its window is.
    known = fact.enforced_tokens or run.abilities.enforced_tokens
    loaded_leg = run.loaded_leg
    run = _loaded(_read(run, fact), fact)
    run = replace(
        run,
        reading=fact.reading,
        is_timely=fact.is_timely,
        pending_tokens=fact.pending_tokens,
        request_tokens=fact.request_tokens,
        abilities=replace(run.abilities, enforced_tokens=known),
    )
    if run.loaded_leg != loaded_leg and not fact.opening_tokens:
        run = _without_jump(run, fact.reading.used_tokens)
    used, sizes = fact.reading.used_tokens, run.sizes
    if run.opened is None and fact.reading.at is not None:
        run = replace(run, opened=(fact.reading.at, used))
    if run.asked or run.purpose != "work":
        return run  # answering is not work
    if sizes and run.replies > 0 and abs(used - sizes[-1]) * _PART < fact.reading.window_tokens:
        return replace(run, sizes=(*sizes[:-1], used))
    if used in sizes[len(sizes) - min(run.replies, len(sizes)) : -1]:
        return run  # another segue took the run up, and reads what was read before
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
    """Records the size that a session has at its first reply: resuming it doubles what tools
    answered, not what it began with. Before that reply, a resumed one may repeat its old size."""
    if run.abilities.resume_factor <= 1 or run.loaded_leg == run.leg:
        return run
    if fact.opening_tokens:
        return replace(run, loaded_leg=run.leg, loaded_tokens=fact.opening_tokens)
    used, before = fact.reading.used_tokens, run.reading
    if run.replies > 0 and before is not None and used == before.used_tokens:
        return run
    return replace(run, loaded_leg=run.leg, loaded_tokens=used if run.replies > 0 else 0)


def _without_jump(run: Run, used_tokens: int) -> Run:
    """The session was resumed, and has grown by that: no turn of its work did. Its earlier sizes
    are what they would have been had it been resumed before."""
    jump = used_tokens - run.sizes[-1] if run.sizes and run.replies > 0 else 0
    if jump <= 0:
        return run
    first = len(run.sizes) - min(run.replies, len(run.sizes))
    raised = (size + jump for size in run.sizes[first:])
    return replace(run, sizes=(*run.sizes[:first], *raised))


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
    if room.is_passed:
        return ""
    is_early = used * 2 < room.limit_tokens
    if is_early and _turns(run) < MIN_USUAL_TURNS:
        return ""  # one jump does not show what is usual
    pace = _pace(run, _USUAL_TURN if is_early else _quantile(run))
    if is_early and pace is not None and not _is_usual(run, pace):
        return ""  # earlier sessions had large turns, and this one has none
    if pace is None or not _passes_later(run, pace, room, found):
        return ""
    added = share(run, pace.large_reply_tokens or 0)
    turn = f"+{added} per turn"
    if run.policy.adaptive and used * 2 >= room.limit_tokens:
        turn += f" (adaptive: {_quantile(run):.0%} of turns add no more)"
    return f"{_at(run, used)}, {turn}: the next turn would pass {share(run, room.limit_tokens)}"


def _passes_later(run: Run, pace: Growth, room: "_Room", found: Marks) -> bool:
    """Whether a request that is sent one boundary later than the next would be read too late."""
    turns = 2 + _worked_on_turns(run)
    if run.is_timely:
        read_at = later(expected_tokens(run), pace, turns=turns)
    else:  # the tools of the last reply have finished, and no reading shows what they printed
        read_at = later(filled_tokens(run, pace), pace, turns=turns)
    if read_at >= room.limit_tokens:
        return True
    # A resumed session's own limit has room for the request.
    latest = found.asked_by_tokens if room.limit_tokens == found.hard_tokens else None
    return latest is not None and read_at + run.request_tokens > latest


def _worked_on_turns(run: Run) -> int:
    """How many turns a session takes until it has ended, where that must come before the request
    and costs more than one turn's room: none while a model thinks, two at most."""
    reading, usual = run.reading, _pace(run, _USUAL_TURN)
    if run.abilities.talks or run.abilities.resume_factor <= 1 or usual is None:
        return 0
    if run.opened is None or reading is None or reading.at is None:
        return 0
    since_s, grown = reading.at - run.opened[0], reading.used_tokens - run.opened[1]
    if since_s <= 0 or grown <= 0:
        return 0
    # Sizes that were read late or not at all change neither the time nor the growth as a whole.
    turn_s = since_s * (usual.large_reply_tokens or 0) / grown
    return MAX_WORKED_ON_TURNS if turn_s <= 0 else min(MAX_WORKED_ON_TURNS, int(ENDING_S / turn_s))


def _at(run: Run, used_tokens: int) -> str:
    if run.pending_tokens:
        return f"context at about {share(run, used_tokens)} with the last tool's output"
    return f"context at {share(run, used_tokens)}"


def expected_tokens(run: Run) -> int:
    """The session's size, with what its tools printed since the last reading."""
    return run.reading.used_tokens + run.pending_tokens if run.reading is not None else 0


def filled_tokens(run: Run, pace: Growth | None) -> int:
    """The session's size once the tools of its last reply have finished: their output as far as it
    was seen, and no less than what a turn of this pace adds."""
    return max(
        expected_tokens(run), later(run.reading.used_tokens if run.reading else 0, pace, turns=1)
    )


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
    read_at = later(expected_tokens(run), _pace(run, _quantile(run)), turns=1) + run.request_tokens
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
    # it is too large to be resumed and asked, or would be before it did any work worth a handoff
    is_passed: bool = False


def _room(run: Run, found: Marks) -> _Room:
    hard, soft = found.hard_tokens or 0, found.soft_tokens or 0
    able, reading = run.abilities, run.reading
    if able.talks or not able.resumes or able.resume_factor <= 1 or reading is None:
        return _Room(hard, soft)
    # A resumed session must also be read before the hard mark, and the request in time.
    most = min(hard, reading.window_tokens - run.policy.reserve_tokens)
    if found.asked_by_tokens is not None:
        most = min(most, found.asked_by_tokens - run.request_tokens)
    grown = run.loaded_tokens * (able.resume_factor - 1)
    askable = int((most + grown) / able.resume_factor)
    if askable >= hard:
        return _Room(hard, soft)
    least = later(run.loaded_tokens, _pace(run, _USUAL_TURN), turns=MIN_TURNS)
    is_short = run.loaded_tokens > 0 and least > askable
    if expected_tokens(run) > askable or is_short:
        return _Room(hard, soft, is_passed=True)
    return _Room(askable, askable * soft // hard)


def resumed_tokens(run: Run, *, at_boundary: bool = False) -> int | None:
    """How large the session is once it is resumed; None if that is unknown. `at_boundary`: after
    the tools of its last reply."""
    reading, factor = run.reading, run.abilities.resume_factor
    if reading is None or reading.window_tokens <= 0:
        return None
    used = expected_tokens(run)
    if at_boundary and not run.pending_tokens:
        used = filled_tokens(run, _pace(run, _USUAL_TURN))
    new = max(0, used - run.loaded_tokens)
    return used + int(new * (factor - 1))


def _pace(run: Run, quantile: float) -> Growth | None:
    """How this session and the run's earlier ones grow; None if it has just started. `quantile`:
    this share of its turns add no more."""
    earlier = len(run.sizes) - run.replies
    if run.replies < (MIN_CONTINUED_REPLIES if earlier >= MIN_REPLIES else MIN_REPLIES):
        return None
    return large_reply(run.sizes, large=quantile)


def _is_usual(run: Run, pace: Growth) -> bool:
    """Whether the session's last turn was about as large as that."""
    last, before = run.sizes[-1], run.sizes[-2]
    is_old = run.reading is not None and run.reading.used_tokens < last  # it is read once more
    return not is_old and (last - before) * 2 >= (pace.large_reply_tokens or 0)


def _turns(run: Run) -> int:
    """How many turns with which this session and the run's earlier ones grew are known."""
    return sum(later > earlier for earlier, later in pairwise(run.sizes))


def _quantile(run: Run) -> float:
    return run.quantile or USUAL if run.policy.adaptive else USUAL
