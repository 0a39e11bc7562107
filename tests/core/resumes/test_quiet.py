"""Quiet hours: what they are, and when they end."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.core.policy import Policy
from segue.core.resumes.quiet_hours import ends_at, is_quiet, parse

BERLIN = ZoneInfo("Europe/Berlin")


def utc(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def berlin(at: float) -> datetime:
    return datetime.fromtimestamp(at, BERLIN)


def unix(text: str, zone: ZoneInfo | None = None) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone or UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("", ()), ("  ", ()),
        ("23:00-07:00", ((1380, 420),)),
        (" 9:30 – 17:05 ", ((570, 1025),)),
        ("12:00-13:00, 22:00-24:00", ((720, 780), (1320, 1440))),
        ("24:00-06:00", ((0, 360),)),
        ("00:00-24:00", ((0, 1440),)),
    ],
)  # fmt: skip
def test_spans_are_read(text: str, spans: tuple[tuple[int, int], ...]) -> None:
    assert parse(text) == spans


@pytest.mark.parametrize(
    "text",
    ["23-7", "23:00", "25:00-07:00", "23:60-07:00", "24:01-07:00", "07:00-07:00", "24:00-00:00",
     "23:00-07:00,", "night", "²3:00-07:00", "23:00-07:00 23:00-07:00", "-1:00-07:00"],
)  # fmt: skip
def test_nonsense_is_refused_by_the_policy_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"^quiet_hours must [^\n]*$"):
        Policy(quiet_hours=text)


def test_the_beginning_is_quiet_and_the_end_is_not() -> None:
    spans = parse("23:00-07:00")
    for clock, quiet in (
        ("22:59:59", False), ("23:00", True), ("23:59", True), ("00:00", True),
        ("06:59:59", True), ("07:00", False), ("12:00", False),
    ):  # fmt: skip
        assert is_quiet(spans, unix(f"2026-11-16T{clock}"), utc) is quiet, clock


def test_they_end_in_the_morning_after() -> None:
    spans = parse("23:00-07:00")
    end = unix("2026-11-17T07:00")
    assert ends_at(spans, unix("2026-11-16T23:30:12.5"), utc) == end
    assert ends_at(spans, unix("2026-11-17T03:00"), utc) == end
    assert ends_at(spans, end, utc) is None
    assert ends_at((), end, utc) is None


def test_spans_that_touch_end_together() -> None:
    spans = parse("12:00-13:00,13:00-14:00")
    assert ends_at(spans, unix("2026-11-16T12:30"), utc) == unix("2026-11-16T14:00")


@pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25"])
def test_a_night_in_which_the_clock_is_changed_ends_by_the_clock(day: str) -> None:
    before = unix(f"{day}T00:30", BERLIN)
    assert ends_at(parse("23:00-07:00"), before, berlin) == unix(f"{day}T07:00", BERLIN)


minutes = st.integers(0, 24 * 60 - 1)


@given(
    st.lists(st.tuples(minutes, minutes).filter(lambda s: s[0] != s[1]), max_size=3),
    st.integers(1_700_000_000, 1_900_000_000),
)
def test_the_end_is_later_than_now_and_there_is_one_exactly_while_it_is_quiet(
    spans: list[tuple[int, int]], now: int
) -> None:
    end = ends_at(spans, now, berlin)
    assert (end is not None) is is_quiet(spans, now, berlin)
    assert end is None or now < end <= now + 3 * 26 * 3600
    if end is not None and len(spans) == 1 and berlin(end).utcoffset() == berlin(now).utcoffset():
        assert not is_quiet(spans, end, berlin)
