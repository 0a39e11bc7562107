"""When may the agent be asked again: every format in reported issues, and no wrong wake-up."""

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from email.utils import format_datetime
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from segue.core.stops import resets
from segue.core.stops.types import Reset

LONDON = ZoneInfo("Europe/London")
NEW_YORK = ZoneInfo("America/New_York")
HOUR, DAY = 3600.0, 86_400.0


def unix(
    year: int, month: int, day: int, hour: int = 0, minute: int = 0, tz: tzinfo = UTC
) -> float:
    return datetime(year, month, day, hour, minute, tzinfo=tz).timestamp()


NOW = unix(2025, 10, 29, 12)  # a Wednesday


def parse(text: str, now: float = NOW, tz: tzinfo = UTC) -> Reset | None:
    return resets.parse(text, now=now, tz=tz)


def at(text: str, now: float = NOW, tz: tzinfo = UTC) -> float:
    found = parse(text, now, tz)
    assert found is not None
    assert found.at is not None
    return found.at


def after(text: str) -> float:
    found = parse(text)
    assert found is not None
    assert found.after_s is not None
    assert found.at == pytest.approx(NOW + found.after_s)
    return found.after_s


# Durations and leads


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Time until reset: 02:15:30", 8130),
        ("violations {\n}\n, retry_delay {\n  seconds: 19\n}\n]", 19),
        ("Provider requested 1800000ms wait, exceeds retry.maxDelayMs (300000ms)", 1800),
        ("resets in 2:15", 8100),
        ("Try again in 4:59", 299),
        ("Please wait 00:04:59 before retrying", 299),
        ("Time remaining: 3h 12m", 11520),
        ("Next window opens in 1h 4m.", 3840),
        ("try again in 2 hr. 5 min.", 7500),
        ("You can use it again in 47 minutes", 2820),
        ("Your quota replenishes in 6h", 21600),
        ("Riprova tra 10 minuti.", 600),
        ("Попробуйте снова через 2 часа", 7200),
        ("1時間後に再試行してください", 3600),
        ("30분 후에 다시 시도하세요", 1800),
    ],
)
def test_a_countdown_is_a_duration_and_not_a_clock_time(text: str, seconds: float) -> None:
    assert after(text) == seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Your next message will be possible at 18:45.", unix(2025, 10, 29, 18, 45)),
        ("limit lifts at 5 PM UTC", unix(2025, 10, 29, 17)),
        ("Limits reset daily at 00:00 UTC", unix(2025, 10, 30)),
        ("The quota will reset at 11-02 19:27:00 UTC.", unix(2025, 11, 2, 19, 27)),
        ("back tomorrow at 9 AM", unix(2025, 10, 30, 9)),
    ],
)
def test_a_time_is_found_after_this_lead(text: str, expected: float) -> None:
    assert at(text) == expected


@pytest.mark.parametrize("text", ["Resets every 24 hours", "Limit refreshes every 5 hours"])
def test_how_often_a_limit_resets_does_not_say_when(text: str) -> None:
    assert parse(text) is None


# Clock times


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("resets 3pm (Europe/London)", unix(2025, 10, 29, 15)),
        ("You've hit your session limit · resets 3:15pm", unix(2025, 10, 29, 15, 15)),
        ("Your limit will reset at 3pm (America/Bogota).", unix(2025, 10, 29, 20)),
        ("resets 3PM (America/New_York)", unix(2025, 10, 29, 19)),
        ("resets 3 p.m.", unix(2025, 10, 29, 15)),
        ("resets 15:30 UTC", unix(2025, 10, 29, 15, 30)),
        ("resets at 0:00", unix(2025, 10, 30)),
        ("resets 24:00", unix(2025, 10, 30)),
        ("resets 12am", unix(2025, 10, 30)),
        ("resets 12pm", unix(2025, 10, 29, 12)),
        ("resets midnight PT", unix(2025, 10, 30, 7)),
        ("resets at noon", unix(2025, 10, 29, 12)),
        ("resets 3pm UTC+2", unix(2025, 10, 29, 13)),
        ("resets 3pm (UTC-8)", unix(2025, 10, 29, 23)),
        ("available again at 11:30pm", unix(2025, 10, 29, 23, 30)),
        ("resets 3pm (America/Argentina/Buenos_Aires)", unix(2025, 10, 29, 18)),
    ],
)
def test_a_clock_time_is_the_next_one_in_its_zone(text: str, expected: float) -> None:
    assert at(text) == expected


def test_a_clock_time_without_a_zone_is_in_the_users() -> None:
    assert at("resets 3pm", tz=NEW_YORK) == unix(2025, 10, 29, 19)


def test_a_named_zone_goes_before_the_users() -> None:
    assert at("resets 3pm (Europe/London)", tz=NEW_YORK) == unix(2025, 10, 29, 15)


def test_the_day_is_counted_in_the_named_zone() -> None:
    """At 20:00 UTC it is tomorrow in Tokyo: 7am there is two hours away."""
    assert at("resets 7am (Asia/Tokyo)", now=unix(2025, 10, 29, 20)) == unix(2025, 10, 29, 22)


def test_a_word_after_the_time_is_not_a_zone() -> None:
    assert at("resets 3pm and then go on", tz=NEW_YORK) == unix(2025, 10, 29, 19)


@pytest.mark.parametrize(("text", "ago"), [("resets 11:01am", 59), ("resets 11:59am", 1)])
def test_a_clock_time_just_past_is_past_and_not_tomorrow(text: str, ago: int) -> None:
    assert at(text) == NOW - ago * 60


@pytest.mark.parametrize("text", ["resets 11am", "resets 10:59am"])
def test_a_clock_time_an_hour_or_more_ago_is_tomorrow(text: str) -> None:
    assert NOW + 22 * HOUR < at(text) <= NOW + 23 * HOUR


def test_just_past_holds_over_midnight() -> None:
    midnight = unix(2025, 10, 30)
    assert at("resets 11:50pm", now=midnight + 300) == midnight - 600


def test_just_past_holds_for_the_second_of_two_equal_hours() -> None:
    now = unix(2025, 10, 26, 2)
    assert at("resets 1:30am (Europe/London)", now=now) == now - 1800


# Days


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("resets Oct 31, 9am", unix(2025, 10, 31, 9)),
        ("resets Oct 31 at 9am (Europe/Berlin)", unix(2025, 10, 31, 8)),
        ("resets October 31st, 2025 9:30 AM", unix(2025, 10, 31, 9, 30)),
        ("resets 31 October at 9am", unix(2025, 10, 31, 9)),
        ("resets Nov 3", unix(2025, 11, 3)),
        ("resets 11/17/2025", unix(2025, 11, 17)),
        ("resets Mon 12:00am", unix(2025, 11, 3)),
        ("resets Monday at 5pm (America/New_York)", unix(2025, 11, 3, 22)),
        ("resets Wed 3pm", unix(2025, 10, 29, 15)),
        ("resets Wed 11:30am", unix(2025, 10, 29, 11, 30)),
        ("resets Wed 10am", unix(2025, 11, 5, 10)),
        ("resets tomorrow at 5pm", unix(2025, 10, 30, 17)),
        ("resets today at 5pm", unix(2025, 10, 29, 17)),
        ("Your access ends on Nov 3, 9am", unix(2025, 11, 3, 9)),
    ],
)
def test_a_date_or_weekday_is_that_day(text: str, expected: float) -> None:
    assert at(text) == expected


def test_a_date_without_a_year_is_the_nearest_one() -> None:
    new_years_eve = unix(2025, 12, 31, 22)
    assert at("resets Jan 1, 9am", now=new_years_eve) == unix(2026, 1, 1, 9)
    assert at("resets Dec 31, 9pm", now=new_years_eve + 3 * HOUR) == unix(2025, 12, 31, 21)


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("You've hit your weekly limit · resets Nov 5, 12pm", 7),
        ("resets Tue 12pm", 6),
        ("resets in 6 days 23 hours", 6 + 23 / 24),
        ("try again in 1 week", 7),
        ("your monthly limit resets Nov 28, 12pm", 30),
    ],
)
def test_weekly_and_monthly_resets_are_not_cut(text: str, days: float) -> None:
    assert at(text) == pytest.approx(NOW + days * DAY)


# Durations


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("try again in 2 hours 5 minutes", 7_500),
        ("try again in 2 hours and 5 minutes", 7_500),
        ("Please try again in 13m35.706s.", 815.706),
        ("Please try again in 644ms.", 0.644),
        ("Your quota will reset after 21h39m57s.", 77_997),
        ("try again in 1 day 2 hours", 93_600),
        ("Try again in 1 minute.", 60),
        ('"retryDelay": "21s"', 21),
        ('retryDelay: "21s"', 21),
        ('\\"retryDelay\\": \\"21.5s\\"', 21.5),
        ("Please retry in 21.847s.", 21.847),
        ("wait 5 min", 300),
        ("try again in 1,5 hours", 5_400),
    ],
)
def test_a_duration_counts_from_now(text: str, seconds: float) -> None:
    assert after(text) == pytest.approx(seconds)


# Instants


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Claude AI usage limit reached|1753441200", 1_753_441_200.0),
        ("Claude AI usage limit reached|1761760800", 1_761_760_800.0),
        ('"resets_at": 1761760800', 1_761_760_800.0),
        ('"resetsAt":1761760800', 1_761_760_800.0),
        ('"resets_at":1761760800000', 1_761_760_800.0),
        ("resets at 1761760800", 1_761_760_800.0),
        ("resets_at: 2025-10-29T18:00:00Z", unix(2025, 10, 29, 18)),
        ("resets 2025-10-29T18:00:00.123Z", unix(2025, 10, 29, 18)),
        ("resets 2025-10-29T18:00:00+02:00", unix(2025, 10, 29, 16)),
        ("resets 2025-10-29T18:00:00-0330", unix(2025, 10, 29, 21, 30)),
        ("resets 2025-10-29 18:00 UTC", unix(2025, 10, 29, 18)),
        ("retry after Wed, 29 Oct 2025 13:00:00 GMT", unix(2025, 10, 29, 13)),
    ],
)
def test_an_instant_is_itself(text: str, expected: float) -> None:
    assert at(text) == expected


def test_an_iso_time_without_an_offset_is_in_the_users_zone() -> None:
    assert at("resets 2025-10-29 18:00", tz=NEW_YORK) == unix(2025, 10, 29, 22)


def test_an_epoch_at_the_end_of_a_sentence_is_read() -> None:
    assert at("Your limit resets at 1761760800.") == 1_761_760_800.0


# Headers


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Retry-After: 120", 120),
        ('"retry-after": "120"', 120),
        ("retry_after_seconds: 86400", 86_400),
        ("retry-after-ms: 1500", 1.5),
        ("Retry-After: 0", 0),
    ],
)
def test_a_header_in_text_is_seconds_and_said_to_be_a_header(text: str, seconds: float) -> None:
    assert after(text) == seconds
    found = parse(text)
    assert found is not None
    assert found.source == "header"


def test_retry_after_takes_seconds_and_http_dates() -> None:
    assert resets.retry_after(" 120 ", now=NOW) == Reset(
        at=NOW + 120, after_s=120.0, source="header", quote="120"
    )
    date = "Wed, 29 Oct 2025 13:00:00 GMT"
    assert resets.retry_after(date, now=NOW) == Reset(at=NOW + HOUR, source="header", quote=date)


@pytest.mark.parametrize(
    "value", ["", "soon", "-5", "12 minutes", "1e9", "Wed, 99 Oct 2025 13:00:00 GMT", "123456789"]
)
def test_retry_after_refuses_anything_else(value: str) -> None:
    assert resets.retry_after(value, now=NOW) is None


def test_retry_after_refuses_years_as_text_does() -> None:
    assert parse("Retry-After: 99999999") is None
    assert resets.retry_after("99999999", now=NOW) is None


@given(st.integers(0, 2_000_000_000))
def test_http_dates_round_trip(second: int) -> None:
    date = format_datetime(datetime.fromtimestamp(second, UTC), usegmt=True)
    found = resets.retry_after(date, now=NOW)
    assert found is not None
    assert found.at == second


# Nonsense


@pytest.mark.parametrize(
    "text",
    [
        "",
        "resets",
        "resets soon",
        "resets at 25:00",
        "resets at 13pm",
        "resets 0am",
        "resets 3:75pm",
        "resets 24:30",
        "resets Feb 30",
        "resets 13/13/2025",
        "resets 2025-13-45T00:00:00Z",
        "resets 9999-99-99",
        "resets_at: 99999999999",
        "resets_at: null",
        "try again in 500 days",
        "try again in 99999999999999999999 hours",
        "Retry-After: -5",
        "retry in 30",
        "try again later",
    ],
)
def test_nonsense_is_not_a_time(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize(
    "text", ["at 3pm", "in 5 minutes", "it took 13m35s", "1761760800", "request 1753441200 failed"]
)
def test_a_time_without_a_lead_is_not_a_reset(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "resets 3pm (Mars/Phobos)",
        "resets Oct 31, 9am (Mars/Phobos)",
        "resets Mon 12:00am (Mars/Phobos)",
        "resets 3pm (UTC+25)",
    ],
)
def test_a_zone_that_nobody_has_is_not_a_time(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize("text", ["resets 3pm (XYZ)", "resets 3pm (IST)"])
def test_an_unknown_abbreviation_in_brackets_is_never_the_users_zone(text: str) -> None:
    found = parse(text, tz=NEW_YORK)
    assert found is None or found.at != unix(2025, 10, 29, 19)


def test_an_epoch_centuries_away_is_nonsense() -> None:
    assert parse("Claude AI usage limit reached|9999999999") is None


def test_the_first_time_that_makes_sense_counts() -> None:
    assert at("resets soon; try again in 5 minutes") == NOW + 300
    assert at("try again in 500 days, or wait 5 minutes") == NOW + 300


def test_the_quote_is_what_was_read() -> None:
    found = parse("You've hit your limit · resets  3pm\n(Europe/London). Bye")
    assert found is not None
    assert found.quote == "resets 3pm (Europe/London)"


# Zones


@pytest.mark.parametrize(
    ("name", "offset"),
    [("UTC", 0), ("gmt", 0), ("PST", -8), ("CEST", 2), ("UTC+2", 2), ("GMT-3:30", -3.5)],
)
def test_abbreviations_and_offsets_are_zones(name: str, offset: float) -> None:
    found = resets.zone(name)
    assert found is not None
    assert datetime.fromtimestamp(NOW, found).utcoffset() == timedelta(hours=offset)


@pytest.mark.parametrize(
    "name", ["", "Nowhere/City", "../../etc/passwd", "/etc/passwd", "\0", "UTC+15"]
)
def test_other_names_are_none(name: str) -> None:
    assert resets.zone(name) is None


# Summer time

DST_ZONES = [
    "Europe/London",
    "America/New_York",
    "America/Los_Angeles",
    "America/St_Johns",
    "America/Santiago",
    "Australia/Sydney",
    "Australia/Lord_Howe",
    "Africa/Cairo",
    "Asia/Tokyo",
    "Asia/Kathmandu",
]


@cache
def changes(name: str) -> tuple[float, ...]:
    """The instants of 2024 to 2027 at which the zone's clocks change, and one other."""
    place = ZoneInfo(name)

    def offset(moment: float) -> timedelta | None:
        return datetime.fromtimestamp(moment, place).utcoffset()

    steps = range(int(unix(2024, 1, 1)), int(unix(2027, 12, 31)), 43_200)
    found = []
    for low, high in pairwise(steps):
        if offset(low) == offset(high):
            continue
        left, right = low, high
        while right - left > 1:
            middle = (left + right) // 2
            left, right = (middle, right) if offset(middle) == offset(left) else (left, middle)
        found.append(float(right))
    return (*found, NOW)


@st.composite
def moments(draw: st.DrawFn) -> tuple[str, float]:
    """A zone, and a moment within a day and a half of one of its changes."""
    name = draw(st.sampled_from(DST_ZONES))
    change = draw(st.sampled_from(changes(name)))
    return name, change + draw(st.integers(-36 * 60, 36 * 60)) * 60


def skipped(naive: datetime, place: tzinfo) -> timedelta:
    """By how much the clocks jump over this wall-clock time; nothing if it exists."""
    real = datetime.fromtimestamp(naive.replace(tzinfo=place).timestamp(), place)
    return real.replace(tzinfo=None) - naive


def spoken(hour: int, minute: int, half: bool) -> str:
    if not half:
        return f"{hour}:{minute:02}"
    return f"{hour % 12 or 12}:{minute:02}{'am' if hour < 12 else 'pm'}"


@given(moments(), st.integers(0, 23), st.integers(0, 59), st.booleans(), st.booleans())
def test_a_clock_time_is_the_wall_clock_that_was_said_even_around_changes(
    moment: tuple[str, float], hour: int, minute: int, half: bool, named: bool
) -> None:
    name, now = moment
    place = ZoneInfo(name)
    said = f"resets {spoken(hour, minute, half)}"
    found = at(f"{said} ({name})", now) if named else at(said, now, place)
    assert now - HOUR < found <= now + 25 * HOUR
    wall = datetime.fromtimestamp(found, place).replace(tzinfo=None)
    if (wall.hour, wall.minute) != (hour, minute):
        wished = [
            datetime(wall.year, wall.month, wall.day, hour, minute) + timedelta(days=days)  # noqa: DTZ001
            for days in (-1, 0)
        ]
        gaps = [(naive, skipped(naive, place)) for naive in wished]
        assert any(gap > timedelta(0) and wall == naive + gap for naive, gap in gaps)


@given(moments(), st.integers(0, 23), st.integers(0, 59))
def test_no_earlier_time_to_come_was_passed_over(
    moment: tuple[str, float], hour: int, minute: int
) -> None:
    name, now = moment
    place = ZoneInfo(name)
    found = at(f"resets {hour}:{minute:02} ({name})", now)
    for step in range(60, int(found - now), 60):
        wall = datetime.fromtimestamp(now + step, place)
        assert (wall.hour, wall.minute) != (hour, minute)


def test_a_time_that_the_clocks_skip_is_taken_by_the_old_offset() -> None:
    now = unix(2025, 3, 30)
    assert at("resets 1:30am (Europe/London)", now=now) == unix(2025, 3, 30, 1, 30)


def test_of_two_equal_hours_the_first_to_come_counts() -> None:
    first, second = unix(2025, 10, 26, 0, 30), unix(2025, 10, 26, 1, 30)
    assert at("resets 1:30am (Europe/London)", now=first - 600) == first
    assert at("resets 1:30am (Europe/London)", now=first + 600) == second


@given(st.integers(-14 * 60, 14 * 60), st.integers(0, 23), st.integers(0, 59))
def test_a_fixed_offset_reads_the_same_wall_clock(offset: int, hour: int, minute: int) -> None:
    place = timezone(timedelta(minutes=offset))
    found = at(f"resets {hour}:{minute:02}", tz=place)
    wall = datetime.fromtimestamp(found, place)
    assert (wall.hour, wall.minute) == (hour, minute)
    assert NOW - HOUR < found <= NOW + 23 * HOUR


# Round trips

hours = st.integers(0, 167)
sixty = st.integers(0, 59)
thousandths = st.integers(0, 999)


@given(hours, sixty, sixty, thousandths)
def test_compact_durations_round_trip(h: int, m: int, s: int, ms: int) -> None:
    seconds = h * 3600 + m * 60 + s + ms / 1000
    assert after(f"try again in {h}h{m}m{s}.{ms:03}s") == pytest.approx(seconds)


@given(st.integers(0, 30), st.integers(0, 23), sixty, sixty)
def test_spelled_durations_round_trip(d: int, h: int, m: int, s: int) -> None:
    parts = [(d, "day"), (h, "hour"), (m, "minute"), (s, "second")]
    said = [f"{n} {unit}{'' if n == 1 else 's'}" for n, unit in parts if n]
    assume(said)
    seconds = ((d * 24 + h) * 60 + m) * 60 + s
    for text in (" ".join(said), ", ".join(said), " and ".join(said)):
        assert after(f"Please try again in {text}.") == seconds


@given(st.integers(0, 2_000_000_000))
def test_iso_times_round_trip(second: int) -> None:
    moment = datetime.fromtimestamp(second, UTC)
    assert at(f"resets {moment.isoformat()}") == second
    assert at(f"resets {moment:%Y-%m-%dT%H:%M:%SZ}") == second


@given(st.integers(-60 * 86_400, 60 * 86_400))
def test_epochs_round_trip_in_seconds_and_milliseconds(away: int) -> None:
    second = int(NOW) + away
    assert at(f'"resets_at": {second}') == second
    assert at(f'"resets_at": {second}000') == second
    assert at(f"Claude AI usage limit reached|{second}") == second


@given(st.text(max_size=60), st.floats(0, 4e9))
def test_nothing_that_follows_a_lead_raises(text: str, now: float) -> None:
    for lead in ("resets ", "try again in ", "Retry-After: "):
        found = parse(lead + text, now)
        assert found is None or found.at is not None


@given(st.from_regex(r"\A(resets|retry-after:|wait) [0-9a-z:,./ +-]{0,24}\Z"), moments())
def test_nothing_made_of_times_parts_raises(text: str, moment: tuple[str, float]) -> None:
    name, now = moment
    found = parse(text, now, ZoneInfo(name))
    assert found is None or found.after_s is None or 0 <= found.after_s <= resets.LONGEST_S


# Headers, ranges, countdowns, and other orders of day and time


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("x-ratelimit-reset-requests: 6m0s", 360),
        ("x-ratelimit-reset-tokens: 1h2m3.5s", 3723.5),
        ('"quotaResetDelay": "2h30m"', 9000),
        ("reset in 01:30:00", 5400),
        ("Retry in: 00:05:00", 300),
        ("try again in 5-10 minutes", 600),
        ("try again in 1 to 2 hours", 7200),
        ("You can continue in 2 hours", 7200),
        ("cooldown: 300s", 300),
        ("请在 2 小时后重试", 7200),
        ("リセットは 3時間後", 10_800),
        ("Réessayez dans 15 minutes", 900),
        ("Versuchen Sie es in 15 Minuten erneut", 900),
        ("Inténtalo de nuevo en 20 minutos", 1200),
        ("Повторите попытку через 15 минут", 900),
    ],
)
def test_a_duration_in_any_form(text: str, seconds: float) -> None:
    assert after(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    [
        "resets Friday, October 31 at 5:00 PM",
        "Resets: Fri, Oct 31, 5:00 PM",
        "reset at Fri Oct 31 2025 17:00:00 GMT+0000 (UTC)",
        "resets at 2025/10/31 17:00",
        "resets on 31.10.2025 17:00",
        "Reset at 17:00 on 31 Oct",
        "resets 17:00 on Oct 31",
        "resets at 5pm on Friday",
        "resets between 4pm and 5pm on Friday",
    ],
)
def test_a_day_before_or_after_its_time(text: str) -> None:
    assert at(text) == unix(2025, 10, 31, 17)


def test_a_region_may_be_named_in_words() -> None:
    midnight = unix(2025, 10, 30, 7)
    assert at("Quota resets at midnight Pacific time") == midnight
    assert at("resets at midnight Pacific Daylight Time") == midnight


@given(
    hour=st.integers(0, 23),
    minute=st.integers(0, 59),
    ahead=st.integers(1, 6),
    form=st.sampled_from(("{clock} on {day}", "{day} at {clock}", "{day}, {clock}")),
)
def test_a_day_and_its_time_are_one_instant_in_any_order(
    hour: int, minute: int, ahead: int, form: str
) -> None:
    there = datetime.fromtimestamp(NOW, UTC) + timedelta(days=ahead)
    wanted = there.replace(hour=hour, minute=minute)
    told = form.format(clock=f"{hour:02}:{minute:02}", day=f"{there:%b} {there.day}")
    assert at(f"Your limit resets {told}") == wanted.timestamp()
