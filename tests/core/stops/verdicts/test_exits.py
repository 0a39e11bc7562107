"""What exit codes, signals and the one who ended it say, alone and in a verdict."""

import signal
from datetime import UTC
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue import Stop, StopReason, classify
from segue.agents.gemini import profile as gemini
from segue.core.stops import exits
from segue.core.stops.exits import ExitFlags
from segue.core.stops.types import EndedBy, FailureInfo, Rank, Strength, UserExitInfo, UserExitType

HTTP = ExitFlags(reasons={}, cut_reasons={}, silent_reasons={}, is_http_status=True)
TEXT = "I am going through the tests."


def verdict(text: str | None = TEXT, **more: Any) -> Stop:
    return classify(text, now=1_790_000_000.0, tz=UTC, **more)


def only(
    code: int | None, ended_by: EndedBy = "unknown", **more: Any
) -> tuple[StopReason, Strength]:
    (sign,) = exits.signs(code, ended_by, **more)
    assert sign.rank is Rank.EXIT
    return sign.reason, sign.strength


# Codes of shells


@pytest.mark.parametrize(
    ("code", "reason", "strength"),
    [
        (124, StopReason.TIMEOUT, Strength.CODE),
        (129, StopReason.USER_EXIT, Strength.HINT),
        (130, StopReason.USER_EXIT, Strength.CODE),
        (131, StopReason.USER_EXIT, Strength.CODE),
        (134, StopReason.CRASH, Strength.CODE),
        (137, StopReason.CRASH, Strength.CODE),
        (139, StopReason.CRASH, Strength.CODE),
        (142, StopReason.TIMEOUT, Strength.CODE),
        (143, StopReason.USER_EXIT, Strength.HINT),
        (1, StopReason.ERROR, Strength.HINT),
        (127, StopReason.ERROR, Strength.HINT),
        (128, StopReason.ERROR, Strength.HINT),
        (255, StopReason.ERROR, Strength.HINT),
    ],
)
def test_a_code_alone_says_this_much(code: int, reason: StopReason, strength: Strength) -> None:
    assert only(code) == (reason, strength)
    assert verdict(exit_code=code).reason is reason


def test_zero_and_no_code_say_nothing_by_themselves() -> None:
    assert exits.signs(0, "unknown") == []
    assert exits.signs(None, "unknown") == []


def test_zero_after_an_answer_is_completed_and_without_a_code_it_is_not() -> None:
    assert verdict(exit_code=0).reason is StopReason.COMPLETED
    assert verdict().reason is StopReason.UNKNOWN


@pytest.mark.parametrize(
    ("code", "how"),
    [
        (129, UserExitType.TERMINAL_CLOSED),
        (130, UserExitType.CTRL_C),
        (131, UserExitType.CTRL_C),
        (143, UserExitType.TERMINATED),
        (-1, UserExitType.TERMINAL_CLOSED),
        (-2, UserExitType.CTRL_C),
        (-3, UserExitType.CTRL_C),
        (-15, UserExitType.TERMINATED),
    ],
)
def test_a_signal_tells_how_the_user_ended_it(code: int, how: UserExitType) -> None:
    assert exits.exit_type(code) is how
    details = verdict(exit_code=code).details
    assert isinstance(details, UserExitInfo)
    assert (details.exit_type, details.exit_code) == (how, code)


@pytest.mark.parametrize("code", [None, 0, 1, 124, 137, -9, 139])
def test_other_codes_tell_no_such_thing(code: int | None) -> None:
    assert exits.exit_type(code) is None


# Signals


@pytest.mark.parametrize("number", range(1, 32))
def test_negative_and_shell_codes_mean_the_same_signal(number: int) -> None:
    assert exits.signal_of(-number) == exits.signal_of(128 + number) == number
    assert only(-number) == only(128 + number)


@pytest.mark.parametrize("code", [None, 0, 1, 124, 128, 160, 255, -32, -64])
def test_codes_outside_the_range_are_not_signals(code: int | None) -> None:
    assert exits.signal_of(code) is None


def test_evidence_names_the_signal() -> None:
    (sign,) = exits.signs(137, "unknown")
    assert sign.evidence.quote == "exit code 137 (SIGKILL)"
    assert (sign.evidence.rule, sign.evidence.where) == ("exit.signal", "exit")


def test_a_kill_carries_code_and_signal_as_data() -> None:
    details = verdict(exit_code=-9).details
    assert isinstance(details, FailureInfo)
    assert (details.exit_code, details.signal) == (-9, signal.SIGKILL)


def test_hand_signals_weigh_more_than_those_a_reboot_sends() -> None:
    for by_hand in (130, 131):
        for by_anyone in (129, 143):
            assert only(by_hand)[1] > only(by_anyone)[1]
            assert verdict(exit_code=by_hand).confidence > verdict(exit_code=by_anyone).confidence


# HTTP status modulo 256


@pytest.mark.parametrize(
    ("status", "code", "reason"),
    [
        (400, 144, StopReason.ERROR),
        (401, 145, StopReason.AUTH),
        (402, 146, StopReason.BILLING),
        (403, 147, StopReason.AUTH),
        (404, 148, StopReason.ERROR),
        (408, 152, StopReason.TIMEOUT),
        (413, 157, StopReason.CONTEXT_EXHAUSTED),
        (429, 173, StopReason.RATE_LIMIT),
        (500, 244, StopReason.OVERLOADED),
        (502, 246, StopReason.OVERLOADED),
        (503, 247, StopReason.OVERLOADED),
        (504, 248, StopReason.OVERLOADED),
    ],
)
def test_geminis_code_is_the_http_status_modulo_256(
    status: int, code: int, reason: StopReason
) -> None:
    assert status % 256 == code
    assert exits.status_of(code, HTTP) == status
    assert exits.signal_of(code, HTTP) is None
    assert only(code, flags=HTTP) == (reason, Strength.CODE)
    stop = verdict(exit_code=code, agent="gemini")
    assert stop.reason is reason
    assert f"HTTP {status}" in stop.evidence[0].quote


@pytest.mark.parametrize("agent", [None, "claude", "codex", "opencode"])
def test_173_of_another_agent_is_only_an_error(agent: str | None) -> None:
    assert exits.status_of(173, exits.NO_FLAGS) is None
    assert verdict(exit_code=173, agent=agent).reason is StopReason.ERROR


@pytest.mark.parametrize("code", [130, 137, 143])
def test_signals_of_gemini_stay_signals(code: int) -> None:
    assert exits.signal_of(code, HTTP) == code - 128


def test_geminis_own_codes_go_before_both() -> None:
    for code, reason in gemini.PROFILE.exit_reasons.items():
        stop = verdict(exit_code=code, agent="gemini-cli")
        assert (stop.reason, stop.evidence[0].rule) == (reason, "exit.agent")


# Status alone


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (None, None),
        (200, None),
        (399, None),
        (418, StopReason.ERROR),
        (429, StopReason.RATE_LIMIT),
        (529, StopReason.OVERLOADED),
        (599, StopReason.OVERLOADED),
    ],
)
def test_a_status_alone_says_this_much(status: int | None, reason: StopReason | None) -> None:
    assert exits.reason_of_status(status) is reason


# Who ended it


@pytest.mark.parametrize("code", [None, 0, 1, 124, 130, 137, 143, -9, -15])
@pytest.mark.parametrize(
    ("ended_by", "reason"),
    [
        ("user", StopReason.USER_EXIT),
        ("segue", StopReason.TIMEOUT),
        ("system", StopReason.CRASH),
    ],
)
def test_who_ended_it_decides_whatever_the_code(
    code: int | None, ended_by: EndedBy, reason: StopReason
) -> None:
    assert only(code, ended_by) == (reason, Strength.SENTENCE)
    stop = verdict(exit_code=code, ended_by=ended_by)
    assert (stop.reason, stop.ended_by) == (reason, ended_by)


def test_who_ended_it_does_not_hide_an_error_in_the_text() -> None:
    for ended_by in ("user", "segue", "system"):
        stop = verdict("Error: context_length_exceeded", ended_by=ended_by, exit_code=143)
        assert stop.reason is StopReason.CONTEXT_EXHAUSTED
        assert len(stop.also) == 1


def test_ended_by_user_without_a_code_is_a_termination() -> None:
    details = verdict(ended_by="user").details
    assert isinstance(details, UserExitInfo)
    assert details.exit_type is UserExitType.TERMINATED


# What profiles add


def test_cut_and_silent_reasons_count_only_then() -> None:
    flags = ExitFlags(
        reasons={},
        cut_reasons={1: StopReason.USER_EXIT},
        silent_reasons={0: StopReason.CONTEXT_EXHAUSTED},
    )
    assert only(1, flags=flags, cut=True) == (StopReason.USER_EXIT, Strength.PHRASE)
    assert only(1, flags=flags) == (StopReason.ERROR, Strength.HINT)
    assert only(0, flags=flags, silent=True) == (StopReason.CONTEXT_EXHAUSTED, Strength.PHRASE)
    assert exits.signs(0, "unknown", flags=flags) == []


def test_pi_that_prints_nothing_and_exits_0_ran_out_of_context() -> None:
    assert verdict("", exit_code=0, agent="pi").reason is StopReason.CONTEXT_EXHAUSTED
    assert verdict(exit_code=0, agent="pi").reason is StopReason.COMPLETED


@given(st.integers(-(2**31), 2**32), st.booleans(), st.booleans(), st.booleans())
def test_no_code_raises_and_only_zero_is_silent(
    code: int, http: bool, cut: bool, silent: bool
) -> None:
    found = exits.signs(
        code, "unknown", flags=HTTP if http else exits.NO_FLAGS, cut=cut, silent=silent
    )
    assert len(found) == (code != 0)
    assert all(sign.reason is not StopReason.COMPLETED for sign in found)
