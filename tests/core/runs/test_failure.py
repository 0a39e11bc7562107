"""A failure is normalised, so that it looks the same when it happens again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.runs.stepping import stop

from segue.core.runs.failure import MAX_CHARS, failure_of, normalise
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import Evidence, FailureInfo

SAME = [
    (
        "API Error: 500 req_011CSxyzAbc at 2026-11-16T05:33:13.123Z",
        "API Error: 503 req_011CTqrsDef at 2026-11-17T15:03:59Z",
    ),
    ("ENOENT: /home/me/a/b.py:33", "ENOENT: /home/you/c/d.py:7"),
    (r"cannot open C:\Users\me\x.txt", r"cannot open D:\Temp\y.txt"),
    ("No conversation found: 1b4e28ba-2fa1-11d2-883f-0016d3cca427", "No conversation found: "
     "9c4e28ba-2fa1-11d2-883f-0016d3cca999"),
    ("segfault at 0x7ffe12 ip 00007f1", "segfault at 0x55aa99 ip 00009c2"),
    ("killed (pid 4242) after 12.5 s", "killed (pid 17) after 3 s"),
    ("resets 7:24pm (UTC)", "resets 11:00am (UTC)"),
    ("panic:  in\n  thread 3", "panic: in thread 12"),
    ("at commit deadbeef12", "at commit 0badf00d99"),
]  # fmt: skip
DIFFERENT = [
    ("ENOENT: no such file", "EACCES: permission denied"),
    ("Prompt is too long", "Output is too long"),
    ("panicked at parser", "panicked at lexer"),
    ("read and/or write", "read and write"),
    ("unknown command /clear", "unknown command /compact"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_same_failure_is_the_same_whatever_its_numbers(one: str, other: str) -> None:
    assert normalise(one) == normalise(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_different_failures_stay_different(one: str, other: str) -> None:
    assert normalise(one) != normalise(other)


def test_words_are_kept() -> None:
    text = "API Error: 529 Overloaded at 2026-11-16 05:33 in /srv/app/main.py"
    assert normalise(text) == "api error: <n> overloaded at <time> in <path>"


def test_nothing_is_nothing() -> None:
    assert normalise(" \n ") == ""


@given(st.text() | st.text("a1f-_/.:<>Tz \\", max_size=600))
def test_it_is_one_bounded_line(text: str) -> None:
    found = normalise(text)
    assert len(found) <= MAX_CHARS
    assert "\n" not in found


def test_a_huge_failure_is_read_in_no_time() -> None:
    for piece in ("a", "1", "a1", "/a", "0x", "-", "1:", "f-"):
        assert len(normalise(piece * 5_000_000)) <= MAX_CHARS


def test_the_failure_of_a_stop_is_its_reason_and_the_agents_words() -> None:
    crash = stop(StopReason.CRASH, details=FailureInfo(message="panic at 12", exit_code=101))
    assert failure_of(crash) == "crash: panic at <n>"
    quoted = stop(StopReason.CRASH, evidence=(Evidence("exit", "killed by signal 9", "exit"),))
    assert failure_of(quoted) == "crash: killed by signal <n>"
    assert failure_of(stop(StopReason.CRASH)) == "crash:"
