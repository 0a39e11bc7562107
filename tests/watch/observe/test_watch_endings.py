"""Why a process ended that nobody of ours had started."""

import pytest

from segue.core.sessions.reading import Reading
from segue.core.sessions.remarks import LimitSeen
from segue.core.sessions.types import Process, Session, SessionState, StopSeen
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import (
    ContextExhaustionInfo,
    FailureInfo,
    RateLimitInfo,
    UserExitInfo,
    UserExitType,
)
from segue.watch.observe.endings import After, Terminal, ending_of, is_mid_turn

R, U = StopReason, UserExitType


def session(reason: StopReason | None, *, retry_at: float | None = None) -> Session:
    seen = StopSeen(reason, 0.9, retry_at, "words") if reason is not None else None
    return Session(
        agent="claude",
        session_id="s",
        path="/x",
        state=SessionState.GONE,
        stop=seen,
        reading=Reading(input_tokens=90, window_tokens=100),
        limits={
            "five_hour": LimitSeen(10.0, 50.0),
            "seven_day": LimitSeen(100.0, 700.0, rejected=True),
        },
    )


def process(status: str = "") -> Process:
    return Process(agent="claude", pid=7, started_at=1.0, start_ticks=1, status=status)


CASES: list[
    tuple[StopReason | None, str, Terminal, int | None, StopReason, UserExitType | None]
] = [
    # the last turn, what it said of itself, its terminal, its exit code: the verdict
    (R.UNKNOWN, "busy", "there", None, R.CRASH, None),
    (R.UNKNOWN, "busy", "there", -9, R.CRASH, None),
    (R.UNKNOWN, "busy", "there", -11, R.CRASH, None),
    (R.UNKNOWN, "busy", "there", 1, R.CRASH, None),
    (R.UNKNOWN, "busy", "there", 137, R.CRASH, None),
    (R.UNKNOWN, "busy", "none", None, R.CRASH, None),
    (R.UNKNOWN, "busy", "unknown", None, R.CRASH, None),
    (R.UNKNOWN, "busy", "gone", None, R.USER_EXIT, U.TERMINAL_CLOSED),
    (R.UNKNOWN, "busy", "own", None, R.USER_EXIT, U.TERMINAL_CLOSED),
    (R.UNKNOWN, "busy", "there", -1, R.USER_EXIT, U.TERMINAL_CLOSED),
    (R.UNKNOWN, "busy", "gone", 129, R.USER_EXIT, U.TERMINAL_CLOSED),
    (R.UNKNOWN, "busy", "own", 129, R.USER_EXIT, U.TERMINAL_CLOSED),
    (R.UNKNOWN, "busy", "gone", 143, R.USER_EXIT, U.TERMINAL_CLOSED),
    (R.UNKNOWN, "busy", "gone", -9, R.USER_EXIT, U.TERMINAL_CLOSED),
    (R.UNKNOWN, "busy", "gone", -11, R.CRASH, None),
    (R.UNKNOWN, "busy", "there", -2, R.USER_EXIT, U.CTRL_C),
    (R.UNKNOWN, "busy", "there", 130, R.USER_EXIT, U.CTRL_C),
    (R.UNKNOWN, "busy", "there", -15, R.USER_EXIT, U.TERMINATED),
    (R.UNKNOWN, "busy", "there", 0, R.USER_EXIT, U.EXIT_COMMAND),
    (R.UNKNOWN, "busy", "none", 0, R.UNKNOWN, None),
    (R.UNKNOWN, "", "there", None, R.CRASH, None),
    (R.UNKNOWN, "idle", "there", 0, R.USER_EXIT, U.CLEAN_EXIT),
    (R.COMPLETED, "idle", "there", 0, R.USER_EXIT, U.CLEAN_EXIT),
    (R.COMPLETED, "idle", "there", None, R.USER_EXIT, U.CLEAN_EXIT),
    (R.COMPLETED, "idle", "own", None, R.USER_EXIT, U.CLEAN_EXIT),
    (R.COMPLETED, "idle", "gone", None, R.USER_EXIT, U.TERMINAL_CLOSED),
    (R.COMPLETED, "busy", "none", 0, R.COMPLETED, None),
    (R.COMPLETED, "idle", "there", -9, R.CRASH, None),
    (R.NEEDS_USER, "waiting", "there", 0, R.USER_EXIT, U.CLEAN_EXIT),
    (R.NEEDS_USER, "waiting", "none", 0, R.NEEDS_USER, None),
    (R.USER_EXIT, "idle", "there", 0, R.USER_EXIT, U.CTRL_C),
    (R.USER_EXIT, "busy", "gone", 0, R.USER_EXIT, U.TERMINAL_CLOSED),
    (None, "idle", "there", 0, R.USER_EXIT, U.CLEAN_EXIT),
    (None, "busy", "there", -9, R.CRASH, None),
    (R.RATE_LIMIT, "idle", "gone", -1, R.RATE_LIMIT, None),
    (R.CONTEXT_EXHAUSTED, "idle", "there", 0, R.CONTEXT_EXHAUSTED, None),
    (R.AUTH, "idle", "there", 1, R.AUTH, None),
]


@pytest.mark.parametrize(("seen", "status", "terminal", "code", "reason", "kind"), CASES)
def test_the_verdict_on_an_end(
    seen: StopReason | None,
    status: str,
    terminal: Terminal,
    code: int | None,
    reason: StopReason,
    kind: UserExitType | None,
) -> None:
    after = After(terminal=terminal, exit_code=code)
    stop = ending_of(session(seen), process(status), after)
    assert stop.reason is reason
    assert stop.evidence
    assert stop.remediation
    assert 0 < stop.confidence < 1
    if kind is not None:
        assert isinstance(stop.details, UserExitInfo)
        assert stop.details.exit_type is kind
        assert stop.resume == "none"


@pytest.mark.parametrize(
    ("terminal", "code", "ended_by"),
    [
        ("gone", -1, "user"),
        ("there", 129, "user"),
        ("gone", None, "user"),
        ("gone", 1, "unknown"),  # it ended by itself, and its shell after it
        ("there", None, "unknown"),
        ("there", 1, "unknown"),
        ("gone", -9, "unknown"),
    ],
)
def test_who_closes_the_terminal_right_after_an_error_ends_the_session(
    terminal: Terminal, code: int | None, ended_by: str
) -> None:
    """A daemon that had not seen it at its prompt yet resumed it after the reset."""
    after = After(terminal=terminal, exit_code=code)
    stop = ending_of(session(R.RATE_LIMIT, retry_at=700.0), process("idle"), after)
    assert (stop.reason, stop.retry_at, stop.ended_by) == (R.RATE_LIMIT, 700.0, ended_by)


def test_a_closed_terminal_in_the_middle_of_a_turn_is_not_sure() -> None:
    guessed = ending_of(session(R.UNKNOWN), process("busy"), After(terminal="gone"))
    told = ending_of(session(R.UNKNOWN), process("busy"), After(terminal="gone", exit_code=-1))
    assert guessed.confidence < 0.5 < told.confidence
    assert "may look the same" in guessed.remediation


@pytest.mark.parametrize("hook", ["prompt_input_exit", "logout"])
def test_a_hook_that_says_the_user_left_is_believed(hook: str) -> None:
    stop = ending_of(session(R.UNKNOWN), process("busy"), After(terminal="there"), hook=hook)
    assert stop.reason is R.USER_EXIT
    assert stop.confidence > 0.9
    assert stop.remediation == "Session ended by user, not auto-resuming."
    limited = ending_of(session(R.RATE_LIMIT), process("idle"), After(), hook=hook)
    assert (limited.reason, limited.ended_by) == (R.RATE_LIMIT, "user")


@pytest.mark.parametrize("hook", ["other", "clear", "", "anything\n$(x)"])
def test_other_words_of_a_hook_say_nothing(hook: str) -> None:
    stop = ending_of(session(R.UNKNOWN), process("busy"), After(terminal="there"), hook=hook)
    assert stop.reason is R.CRASH


def test_a_machine_that_was_restarted_ended_the_work_and_not_what_was_over() -> None:
    cut = ending_of(session(R.UNKNOWN), None, After(), other_boot=True)
    assert (cut.reason, cut.ended_by, cut.resume) == (R.CRASH, "system", "same_session")
    over = ending_of(session(R.COMPLETED), None, After(), other_boot=True)
    assert (over.reason, over.ended_by) == (R.COMPLETED, "system")


@pytest.mark.parametrize("seen", [R.UNKNOWN, R.COMPLETED, R.RATE_LIMIT])
def test_who_left_before_the_machine_went_down_has_left(seen: StopReason) -> None:
    stop = ending_of(session(seen), None, After(), hook="prompt_input_exit", other_boot=True)
    assert stop.ended_by == "user"
    assert stop.reason is (R.RATE_LIMIT if seen is R.RATE_LIMIT else R.USER_EXIT)
    limited = ending_of(session(R.RATE_LIMIT, retry_at=700.0), None, After(), other_boot=True)
    assert (limited.reason, limited.retry_at) == (R.RATE_LIMIT, 700.0)


def test_a_limit_keeps_its_reset_and_which_it_was() -> None:
    stop = ending_of(session(R.RATE_LIMIT, retry_at=700.0), process("idle"), After())
    assert stop.retry_at == 700.0
    assert isinstance(stop.details, RateLimitInfo)
    assert stop.details.scope == "seven_day"
    assert stop.resume == "same_session"


def test_a_full_window_keeps_how_full_it_was() -> None:
    stop = ending_of(session(R.CONTEXT_EXHAUSTED), process("idle"), After())
    assert isinstance(stop.details, ContextExhaustionInfo)
    assert (stop.details.used_tokens, stop.details.percent) == (90, 90.0)
    assert stop.resume == "new_session"


def test_a_crash_keeps_its_signal() -> None:
    stop = ending_of(session(R.UNKNOWN), process("busy"), After(exit_code=-11))
    assert isinstance(stop.details, FailureInfo)
    assert (stop.details.signal, stop.details.exit_code) == (11, -11)
    assert stop.resume == "same_session"


@pytest.mark.parametrize(
    ("seen", "status", "expected"),
    [
        (R.UNKNOWN, "busy", True),
        (R.UNKNOWN, "", True),
        (R.UNKNOWN, "idle", False),
        (R.UNKNOWN, "waiting", False),
        (R.COMPLETED, "busy", False),
        (R.RATE_LIMIT, "busy", False),
        (None, "busy", True),
        (None, "", False),
    ],
)
def test_whether_it_was_at_work(seen: StopReason | None, status: str, expected: bool) -> None:
    assert is_mid_turn(session(seen), process(status)) is expected
