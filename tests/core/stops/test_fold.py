"""The fold: only the last turn counts, and an error after which the agent continued is not a
stop."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.core.stops.events import (
    Compaction,
    Ended,
    Event,
    Failure,
    Limit,
    Other,
    Prompt,
    Reply,
    Retry,
    Started,
    ToolCall,
    ToolResult,
    Usage,
)
from segue.core.stops.fold import Turn, fold
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import Tokens

FAILED = Failure(message="API Error: Rate limit reached", reason=StopReason.RATE_LIMIT)
REJECTED = Limit(rejected=True, scope="five_hour", resets_at=1_790_000_000.0)
BEGUN = Compaction(phase="started")
DONE = Compaction(phase="done", used_tokens=30_000)
BROKEN = Compaction(phase="failed", message="Prompt is too long")
OK = Ended(ok=True, code="completed")
BAD = Ended(ok=False, code="error")


def slate(turn: Turn) -> tuple[object, ...]:
    """All that decides how the turn ended."""
    return (
        turn.ended,
        turn.failure,
        turn.limit,
        turn.compaction,
        turn.waiting,
    )


def test_nothing_folds_to_an_empty_turn() -> None:
    assert fold([]) == Turn()
    assert not fold([]).is_cut


# Errors, and going on after them


def test_an_error_at_the_end_counts() -> None:
    assert fold([Started(), Reply(), FAILED]).failure is FAILED


@pytest.mark.parametrize(
    "on", [Reply(text="Back."), ToolCall(name="Bash"), Prompt(text="go on"), Started()]
)
@pytest.mark.parametrize("stop", [FAILED, REJECTED, BEGUN, BROKEN, BAD, OK])
def test_whatever_stopped_it_is_undone_when_the_agent_continues(stop: Event, on: Event) -> None:
    turn = fold([stop, on])
    assert (turn.ended, turn.failure, turn.limit, turn.compaction) == (None, None, None, None)
    assert slate(fold([stop])) != slate(fold([])), "the stop itself must be visible"


@pytest.mark.parametrize(
    "aside",
    [
        ToolResult(call_id="1"),
        Usage(used_tokens=5),
        Other(kind="status"),
        Other(kind="{"),
        Limit(rejected=False),
        DONE,
    ],
)
def test_the_error_stays_unless_the_agent_really_continues(aside: Event) -> None:
    assert fold([FAILED, aside]).failure is FAILED


def test_the_newest_of_several_errors_counts() -> None:
    later = Failure(message="API Error: overloaded")
    assert fold([FAILED, later]).failure is later


# Turns


def test_only_the_last_turn_counts() -> None:
    turn = fold([Started(), FAILED, BAD, Prompt(text="again"), Reply(), OK])
    assert turn.ended is OK
    assert turn.failure is None


def test_a_new_prompt_forgets_a_good_end_too() -> None:
    turn = fold([Reply(), OK, Prompt(text="and now?")])
    assert turn.ended is None
    assert turn.is_cut


# Closing records


def test_of_several_results_the_last_counts() -> None:
    assert fold([Reply(), BAD, OK]).ended is OK
    assert fold([Reply(), OK, BAD]).ended is BAD


def test_a_turn_that_wakes_for_background_work_is_cut_until_its_next_result() -> None:
    woken = [Reply(), OK, Started(), Reply(text="The background task is done.")]
    assert fold(woken).is_cut
    assert fold([*woken, OK]).ended is OK


def test_a_closing_record_does_not_replace_the_error_before_it() -> None:
    turn = fold([FAILED, BAD])
    assert (turn.failure, turn.ended) == (FAILED, BAD)


def test_an_end_is_not_taken_for_a_failure() -> None:
    assert fold([BAD]).failure is None


def test_records_without_a_closing_one_are_cut() -> None:
    assert fold([Started(), Reply()]).is_cut
    assert not fold([Started(), Reply(), OK]).is_cut
    assert not fold([Other(kind="x")]).is_cut


# Limits


def test_only_a_rejected_limit_is_kept() -> None:
    assert fold([Limit(rejected=False, used_percent=91.0)]).limit is None
    assert fold([REJECTED]).limit is REJECTED


def test_a_retry_is_neither_a_stop_nor_a_reply() -> None:
    turn = fold([OK, Retry(message="overloaded", status=529)])
    assert (turn.ended, turn.failure) == (OK, None)


# Compaction


@pytest.mark.parametrize("phase", [BEGUN, BROKEN])
def test_a_compaction_that_began_or_failed_last_is_kept(phase: Compaction) -> None:
    assert fold([Reply(), phase]).compaction is phase


def test_a_failed_compaction_replaces_its_beginning() -> None:
    assert fold([BEGUN, BROKEN]).compaction is BROKEN


@pytest.mark.parametrize("before", [BEGUN, BROKEN])
def test_a_finished_compaction_is_not_a_stop(before: Compaction) -> None:
    assert fold([before, DONE]).compaction is None


def test_a_finished_compaction_is_not_yet_gone_on() -> None:
    """pi compacts after an overflow and may then say nothing: the overflow stands."""
    assert fold([FAILED, BEGUN, DONE]).failure is FAILED
    assert fold([FAILED, BEGUN, DONE, Reply()]).failure is None


def test_after_a_compaction_the_new_size_counts_in_the_same_window() -> None:
    turn = fold([Usage(used_tokens=180_000, window_tokens=200_000), BEGUN, DONE])
    assert turn.tokens == Tokens(30_000, 200_000)


def test_a_compaction_without_a_size_leaves_the_old_one() -> None:
    turn = fold([Usage(used_tokens=9, window_tokens=10), BEGUN, Compaction(phase="done")])
    assert turn.tokens == Tokens(9, 10)


# Sizes, times, counts


def test_the_last_usage_counts_and_is_never_summed() -> None:
    assert fold([Usage(used_tokens=100), Usage(used_tokens=70)]).tokens == Tokens(70, None)


def test_a_window_once_said_is_remembered() -> None:
    first = [Usage(used_tokens=1, window_tokens=200_000), Usage(used_tokens=2)]
    assert fold(first).tokens == Tokens(2, 200_000)


def test_the_size_outlives_the_turn() -> None:
    assert fold([Usage(used_tokens=7), Prompt()]).tokens == Tokens(7, None)


def test_unknown_records_are_counted_and_do_nothing_else() -> None:
    odd: list[Event] = [Other(kind="a", known=False), Other(kind="b")]
    turn = fold([*odd, FAILED, *odd])
    assert (turn.unread, turn.seen) == (2, 1)
    assert turn.failure is FAILED


def test_a_wait_counts_until_something_comes_after_it() -> None:
    wait = Retry(wait_s=7200.0)
    assert fold([Started(), wait]).waiting is wait
    assert fold([Started(), wait, Reply()]).waiting is None
    assert fold([Started(), wait, OK]).waiting is None


def test_of_two_full_windows_the_one_that_opens_last_decides() -> None:
    late, soon = Limit(rejected=True, resets_at=20.0), Limit(rejected=True, resets_at=10.0)
    assert fold([late, soon]).limit is late
    assert fold([soon, late]).limit is late


# Properties

whole = st.integers(-5, 2_000_000)
maybe_time = st.none() | st.floats(allow_nan=False)
reasons = st.none() | st.sampled_from(StopReason)
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(Started, at=maybe_time),
    st.builds(Prompt, text=st.text(max_size=5)),
    st.builds(Reply, at=maybe_time),
    st.builds(ToolCall),
    st.builds(ToolResult, denied=st.booleans()),
    st.builds(Usage, used_tokens=whole, window_tokens=st.none() | whole),
    st.builds(
        Compaction,
        phase=st.sampled_from(["started", "done", "failed"]),
        used_tokens=st.none() | whole,
    ),
    st.builds(Limit, rejected=st.booleans(), resets_at=maybe_time),
    st.builds(Retry),
    st.builds(Failure, message=st.text(max_size=5), reason=reasons, at=maybe_time),
    st.builds(Ended, ok=st.booleans(), reason=reasons),
    st.builds(Other, known=st.booleans()),
)
histories = st.lists(events, max_size=20)


@given(histories, histories)
def test_any_events_fold_and_a_start_wipes_the_slate(
    before: list[Event], after: list[Event]
) -> None:
    assert slate(fold([*before, Started()])) == (None, None, None, None, None)
    assert slate(fold([*before, Started(), *after])) == slate(fold([Started(), *after]))


@given(histories)
def test_every_event_is_seen_unread_or_known_to_be_idle(history: list[Event]) -> None:
    turn = fold(history)
    idle = sum(isinstance(event, Other) and event.known for event in history)
    assert turn.seen + turn.unread + idle == len(history)


@given(histories)
def test_the_end_is_the_last_one_after_which_nothing_continued(history: list[Event]) -> None:
    expected: Ended | None = None
    for event in history:
        if isinstance(event, Ended):
            expected = event
        elif isinstance(event, Started | Prompt | Reply | ToolCall):
            expected = None
    assert fold(history).ended is expected
