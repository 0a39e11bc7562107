"""Verdicts on sessions that the user ended, and the settings of `Policy` that they depend on."""

import logging
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from segue import Policy, Stop, StopReason, classify
from segue.core.stops.types import UserExitInfo, UserExitType

ENDINGS = Path(__file__).parents[3] / "data" / "endings"
NOW = 1_790_000_000.0
SAID = "Session ended by user, not auto-resuming"


def verdict(source: str | Path | None = None, **more: Any) -> Stop:
    return classify(source, now=NOW, tz=UTC, **more)


def exit_info(stop: Stop) -> UserExitInfo:
    assert stop.reason is StopReason.USER_EXIT
    assert isinstance(stop.details, UserExitInfo)
    return stop.details


# AC1: Ctrl+C


def test_ac1_ctrl_c_in_an_opencode_session_is_user_exit() -> None:
    stop = verdict(ENDINGS / "user_exit_ctrl_c.txt", agent="opencode", exit_code=130)
    assert exit_info(stop).exit_type is UserExitType.CTRL_C
    assert exit_info(stop).exit_code == 130


@pytest.mark.parametrize("code", [130, -2])
def test_ac1_sigint_alone_is_user_exit_by_ctrl_c(code: int) -> None:
    stop = verdict("I am going through the tests.", exit_code=code)
    assert exit_info(stop).exit_type is UserExitType.CTRL_C
    assert "SIGINT" in stop.evidence[0].quote


@pytest.mark.parametrize(
    ("code", "how"),
    [
        (143, UserExitType.TERMINATED),
        (-15, UserExitType.TERMINATED),
        (129, UserExitType.TERMINAL_CLOSED),
        (-1, UserExitType.TERMINAL_CLOSED),
    ],
)
def test_ac1_sigterm_and_sighup_are_user_exits_at_low_confidence(
    code: int, how: UserExitType
) -> None:
    """Corrected: a reboot or a lost line sends them too, so they weigh less than Ctrl+C."""
    stop = verdict("I am going through the tests.", exit_code=code)
    assert exit_info(stop).exit_type is how
    assert stop.confidence < Policy().min_confidence
    assert verdict("x", exit_code=130).confidence > stop.confidence


@pytest.mark.parametrize(
    "words",
    [
        "User cancelled",
        "KeyboardInterrupt",
        "Interrupted by user",
        "SIGINT received",
        "[Request interrupted by user]",
    ],
)
def test_ac1_each_sentence_of_an_interrupt_is_user_exit(words: str) -> None:
    assert verdict(f"Reading the parser.\n\n{words}\n").reason is StopReason.USER_EXIT


def test_ac1_keyboard_interrupt_in_two_words_is_user_exit() -> None:
    assert verdict("Keyboard interrupt").reason is StopReason.USER_EXIT


@pytest.mark.parametrize("words", ["Interrupted by user", "SIGINT received"])
def test_ac1_an_interrupt_in_text_is_of_the_type_ctrl_c(words: str) -> None:
    assert exit_info(verdict(words)).exit_type is UserExitType.CTRL_C


# AC2: exit code 0


def test_ac2_exit_0_after_an_answer_is_completed() -> None:
    """Corrected: the seed calls it a user exit first; exit code 0 with a success is completed."""
    stop = verdict(ENDINGS / "clean_exit.txt", exit_code=0)
    assert stop.reason is StopReason.COMPLETED
    assert stop.resume == "none"


def test_ac2_exit_0_weighs_more_where_the_agent_proves_success_by_it() -> None:
    plain = verdict(ENDINGS / "clean_exit.txt", exit_code=0)
    proven = verdict(ENDINGS / "clean_exit.txt", exit_code=0, agent="claude")
    assert proven.reason is plain.reason is StopReason.COMPLETED
    assert proven.confidence > plain.confidence


def test_ac2_exit_0_in_the_middle_of_a_gemini_stream_is_a_clean_user_exit() -> None:
    """gemini ends with 0 and without a result when it is interrupted."""
    opened = (
        '{"type":"init","timestamp":"2026-11-15T20:00:00Z","session_id":"s1","model":"gemini-x"}\n'
    )
    stop = verdict(opened, agent="gemini", exit_code=0)
    assert exit_info(stop).exit_type is UserExitType.CLEAN_EXIT


def test_ac2_exit_0_with_an_error_is_neither_completed_nor_user_exit() -> None:
    stop = verdict("Error: something broke", exit_code=0)
    assert stop.reason is StopReason.ERROR


@pytest.mark.parametrize("given", [{}, {"source": ""}, {"source": "Reading on.", "channel": "tui"}])
def test_ac2_exit_0_without_errors_is_user_exit_or_completed(given: dict[str, str]) -> None:
    stop = verdict(**given, exit_code=0)
    assert stop.reason in (StopReason.USER_EXIT, StopReason.COMPLETED)


# AC3: no resuming


@pytest.mark.parametrize("code", [129, 130, 131, 143])
def test_ac3_a_user_exit_is_not_resumed(code: int) -> None:
    stop = verdict("Reading.", exit_code=code)
    assert stop.reason is StopReason.USER_EXIT
    assert stop.resume == "none"
    assert not Policy().may_resume_alone(stop)
    assert SAID in stop.remediation


def test_ac3_a_user_exit_is_logged_in_the_seeds_words(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "segue"):
        verdict(ENDINGS / "user_exit_command.txt")
    assert SAID in [record.getMessage() for record in caplog.records]


def test_ac3_nothing_is_logged_for_other_stops(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "segue"):
        verdict("Error: Rate limit reached")
        verdict(ENDINGS / "clean_exit.txt", exit_code=0)
    assert SAID not in caplog.text


@pytest.mark.parametrize(
    ("reason", "resumes"),
    [
        (StopReason.RATE_LIMIT, True),
        (StopReason.CONTEXT_EXHAUSTED, True),
        (StopReason.USER_EXIT, False),
        (StopReason.COMPLETED, False),
        (StopReason.UNKNOWN, False),
    ],
)
def test_ac3_should_auto_resume_is_the_seeds_table(reason: StopReason, resumes: bool) -> None:
    assert reason.should_auto_resume is resumes
    assert (Policy().resume_after(reason) != "none") is resumes


def test_ac3_every_reason_has_a_description_of_its_own() -> None:
    assert len({reason.description for reason in StopReason}) == len(StopReason)
    assert StopReason.RATE_LIMIT.description == "rate limited"
    assert StopReason.CONTEXT_EXHAUSTED.description == "context window exhausted"


def test_ac3_resume_user_exits_overrides_and_is_off_by_default(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert Policy().resume_user_exits is False
    policy = Policy(resume_user_exits=True)
    with caplog.at_level(logging.INFO, "segue"):
        stop = verdict(ENDINGS / "user_exit_command.txt", policy=policy)
    assert stop.reason is StopReason.USER_EXIT
    assert stop.resume == "same_session"
    assert policy.may_resume_alone(stop)
    assert SAID not in caplog.text


def test_ac3_the_remediation_does_not_deny_a_resume_that_the_policy_orders() -> None:
    stop = verdict(ENDINGS / "user_exit_command.txt", policy=Policy(resume_user_exits=True))
    assert "not auto-resuming" not in stop.remediation


def test_ac3_grace_and_wait_have_defaults() -> None:
    assert Policy().user_exit_grace_s == 600.0
    assert Policy().unknown_reset_wait_s == 30.0
    assert Policy(user_exit_grace_s=5.0).user_exit_grace_s == 5.0


# AC4: exit commands


def test_ac4_bye_as_the_last_thing_typed_is_user_exit_by_command() -> None:
    stop = verdict(ENDINGS / "user_exit_command.txt", exit_code=0)
    assert exit_info(stop).exit_type is UserExitType.EXIT_COMMAND
    assert exit_info(stop).message == "/bye"


@pytest.mark.parametrize("command", ["exit", "quit", "/bye", "/exit", "/quit", "goodbye", "EXIT"])
@pytest.mark.parametrize("prompt", [">", "❯", "›"])
def test_ac4_each_exit_command_typed_at_a_prompt_is_user_exit(prompt: str, command: str) -> None:
    stop = verdict(f"● I fixed the parser.\n\n{prompt} {command}\n", exit_code=0)
    assert exit_info(stop).exit_type is UserExitType.EXIT_COMMAND


@pytest.mark.parametrize(
    "text",
    [
        "I fixed the parser.\nexit\n",
        "The menu has three entries:\n- open\n- save\n- quit\n",
        "> add an exit command\n\nThe command is there now.",
        "> exit with code 3 if the file is missing\n\nIt does now.",
        "● Bash(./run.sh)\n  ⎿  exit\n\nThe script ran.",
    ],
)
def test_ac4_the_word_exit_elsewhere_is_not_a_user_exit(text: str) -> None:
    """`exit` on a line of its own is not enough: the user must have typed that line."""
    assert verdict(text, exit_code=0).reason is StopReason.COMPLETED


def test_ac4_exit_patterns_add_the_users_own_words() -> None:
    text = "● I fixed the parser.\n\n> tschüss\n"
    assert Policy().exit_patterns == ()
    without = verdict(text, exit_code=0)
    assert all(e.rule != "policy.exit_patterns.1" for e in without.evidence)
    stop = verdict(text, exit_code=0, policy=Policy(exit_patterns=("tsch(ü|ue)ss",)))
    assert exit_info(stop).exit_type is UserExitType.EXIT_COMMAND


def test_ac4_a_bad_exit_pattern_is_logged_and_the_others_work(
    caplog: pytest.LogCaptureFixture,
) -> None:
    policy = Policy(exit_patterns=("(never closed", "tschau"))
    with caplog.at_level(logging.WARNING, "segue"):
        stop = verdict("● I fixed the parser.\n\n> tschau\n", policy=policy)
    assert stop.reason is StopReason.USER_EXIT
    assert "bad pattern" in caplog.text


# AC5: errors are no user exits


@pytest.mark.parametrize("code", [1, 2, 127, 255])
def test_ac5_a_non_zero_exit_with_an_error_is_not_user_exit(code: int) -> None:
    stop = verdict("Error: something broke", exit_code=code)
    assert stop.reason is StopReason.ERROR
    assert StopReason.USER_EXIT not in stop.also


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Error: Rate limit reached", StopReason.RATE_LIMIT),
        ("Error: Prompt is too long", StopReason.CONTEXT_EXHAUSTED),
        ("API Error: 529 overloaded_error", StopReason.OVERLOADED),
        ("Error: Invalid API key", StopReason.AUTH),
    ],
)
def test_ac5_an_error_goes_on_to_the_other_patterns(text: str, reason: StopReason) -> None:
    assert verdict(text, exit_code=1).reason is reason


def test_ac5_a_forced_kill_is_a_crash_not_a_user_exit() -> None:
    assert verdict("Reading.", exit_code=137).reason is StopReason.CRASH


# AC6: user exit is the lower priority


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("Error: Rate limit reached", StopReason.RATE_LIMIT),
        ("Error: context_length_exceeded", StopReason.CONTEXT_EXHAUSTED),
    ],
)
def test_ac6_an_error_before_ctrl_c_wins_and_the_exit_is_kept(
    error: str, reason: StopReason
) -> None:
    stop = verdict(f"{error}\n", exit_code=130)
    assert stop.reason is reason
    assert stop.also == (StopReason.USER_EXIT,)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("Error: Rate limit reached", StopReason.RATE_LIMIT),
        ("Error: context_length_exceeded", StopReason.CONTEXT_EXHAUSTED),
    ],
)
@pytest.mark.parametrize("farewell", ["> /exit", "> quit", "^C", "Interrupted by user"])
def test_ac6_an_error_before_an_exit_command_wins(
    error: str, reason: StopReason, farewell: str
) -> None:
    assert verdict(f"{error}\n\n{farewell}\n").reason is reason


def test_ac6_an_exit_command_below_an_error_is_kept_as_secondary() -> None:
    assert StopReason.USER_EXIT in verdict("Error: Rate limit reached\n\n> /exit\n").also


def test_ac6_an_error_wins_even_when_the_driver_knows_that_the_user_ended_it() -> None:
    stop = verdict("Error: Rate limit reached", ended_by="user")
    assert stop.reason is StopReason.RATE_LIMIT
    assert stop.also == (StopReason.USER_EXIT,)
    assert stop.ended_by == "user"
