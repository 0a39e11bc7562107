"""When may the agent be asked again? One grammar for all that providers and agents print.

    lead   "resets", "try again", "retrying", "wait", "available", "retry-after", "ends on" …
    time   an instant      1753441200 · 2026-05-15T15:00:00Z · Sun, 06 Nov 1994 08:49:37 GMT
           a duration      2 hours 5 minutes · 13m35.706s · 644ms · 21h39m57s · 86400 (seconds)
           a clock time    3pm (Europe/London) · 15:30 UTC · midnight PT
           a date          Oct 31, 9am · Mar 17th, 2030 5:46 PM · Mon 12:00am · 11/17/2025

A time counts only after a lead: a message is full of other numbers. `now` and the zone of the
user are arguments; what the text itself names goes before them. Nonsense gives None: a wake-up
at a wrong time is worse than a back-off.

All in one file: the forms of a time are tried in one order, and each may stand inside another.
"""

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from segue.core.lazy_pattern import lazy_pattern
from segue.core.stops.types import Reset

JUST_PAST_S = 3600.0
"""An undated clock time this short ago has passed and does not mean tomorrow: the message outlived
its limit. Reading it as tomorrow would cost a day of waiting; reading it as past costs one refused
request."""

LONGEST_S = 62 * 86_400.0  # plan windows last a month at most; anything longer is nonsense
FURTHEST_S = 20 * 366 * 86_400.0  # a date may be far away, but not that far

_UNIT_S = {
    "ms": 0.001, "millisecond": 0.001, "msec": 0.001,
    "s": 1.0, "sec": 1.0, "second": 1.0, "segundo": 1.0, "sekunde": 1.0, "seconde": 1.0,
    "секунд": 1.0, "минут": 60.0, "час": 3600.0, "часа": 3600.0, "часов": 3600.0, "день": 86_400.0,
    "дня": 86_400.0, "дней": 86_400.0, "秒": 1.0, "초": 1.0, "ثواني": 1.0, "ثانية": 1.0,
    "secondo": 1.0, "secondi": 1.0, "minuti": 60.0, "분": 60.0,
    "m": 60.0, "min": 60.0, "minute": 60.0, "minuto": 60.0, "分": 60.0, "分钟": 60.0, "دقيقة": 60.0,
    "h": 3600.0, "hr": 3600.0, "hour": 3600.0, "hora": 3600.0, "stunde": 3600.0, "heure": 3600.0,
    "ora": 3600.0, "ore": 3600.0, "小时": 3600.0, "時間": 3600.0, "시간": 3600.0, "ساعة": 3600.0,
    "d": 86_400.0, "day": 86_400.0, "dia": 86_400.0, "día": 86_400.0, "tag": 86_400.0,
    "jour": 86_400.0, "giorno": 86_400.0, "giorni": 86_400.0, "天": 86_400.0, "日": 86_400.0,
    "w": 604_800.0, "week": 604_800.0, "month": 2_592_000.0,
}  # fmt: skip
_UNITS = "|".join(sorted((re.escape(u) for u in _UNIT_S), key=len, reverse=True))
_AMOUNT = rf"(\d+(?:[.,]\d+)?|an?(?=\s)|one(?=\s))\s*({_UNITS})(?:s|es|n|en|ы|у)?(?![a-zа-я])\.?"
_DURATION = lazy_pattern(rf"(?:{_AMOUNT})(?:[\s,]*(?:and|e|und|et)?\s*{_AMOUNT})*", re.I)
_ONE_AMOUNT = lazy_pattern(_AMOUNT, re.I)
_TO = lazy_pattern(r"(?i)\d+(?:\.\d+)?\s?(?:-|–|to|or)\s?(?=\d)")  # "5-10 minutes": the longer one
_COUNTDOWN = lazy_pattern(r"(\d{1,3}):([0-5]\d)(?::([0-5]\d))?(?!\d|:|\s?[ap]\.?m)")

_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "jan", "feb fev", "mar mär", "apr abr avr", "may mai", "jun", "jul", "aug ago aoû",
            "sep set", "oct out okt", "nov", "dec dez déc",
        ),
        start=1,
    )
    for name in names.split()
}  # fmt: skip
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_ABBREVIATIONS: dict[str, tzinfo] = {
    **dict.fromkeys(("utc", "gmt", "z"), UTC),
    **{
        name: timezone(timedelta(hours=hours))
        for name, hours in {
            "pst": -8, "pdt": -7, "mst": -7, "mdt": -6, "cst": -6, "cdt": -5, "est": -5, "edt": -4,
            "brt": -3, "bst": 1, "cet": 1, "cest": 2, "eet": 2, "eest": 3, "msk": 3, "jst": 9,
            "kst": 9, "aest": 10,
        }.items()
    },
}  # fmt: skip
_REGIONS = {
    "pt": "America/Los_Angeles",
    "mt": "America/Denver",
    "ct": "America/Chicago",
    "et": "America/New_York",
    "pacific": "America/Los_Angeles",
    "mountain": "America/Denver",
    "central": "America/Chicago",
    "eastern": "America/New_York",
}

_LEAD = lazy_pattern(
    r"(?i)(?:\bretry_delay\s?\{\s*seconds|(?:\b|_|(?-i:(?<=[a-z])(?=R)))reset(?:s|ting|ted)?(?:[_-]?(?:at|in|time|date|after|delay|stamp"
    r"|requests|tokens|input|output))*(?:[_-]?(?:seconds|s|ms))?"
    r"|\bre[- ]?tr(?:ying|ies|y)(?:[_-]?(?:after|delay|in))?(?:[_-]?(?:seconds|s|ms))?"
    r"|\brate[- ]limit(?:ing|ed) for|\bregain access"
    r"|\btry (?:your request |it |sending )?again|\bwait(?:ing)?|\bavailable(?: again)?"
    r"|\b(?:ends?|renews?|refresh(?:es)?|resumes?|restored|unlocks?|lift(?:s|ed)|expires?|replenish\w*"
    r"|opens?|unblocked|unlocked)"
    r"|\brequested(?= \d+ ?ms wait)"
    r"|\btime (?:remaining|left)|\bremaining time|(?-i:RetryAt)|\bretry_at"
    r"|\b(?:not before|returns?(?= (?:at|in|on|tomorrow)\b))|\b(?:again|possible|continue|retry"
    r"|back)(?= (?:at|in|on|after|tomorrow)\b)"
    r"|\bcontinu(?:e|ing) (?:automatically|in)\b|\bcool(?:ing)?[- ]?down"
    r"|\bcome back|\buntil|\bback (?:at|in|on)|\btente novamente"
    r"|\bredefin\w+|\breinicia\w*|\br[ée]essa\w+|\br[ée]initialis\w+|\bversuchen\b|\bwird\b|\bzurück\w*setz\w*"
    r"|\bint[ée]nt\w+|\brestablec\w+|\briprova\w*|повтор\w+|попробуйте|сброс\w*|إعادة المحاولة|重置"
    r"|リセット|重试|将[在于]"
    r"|请(?:稍后)?[在于]|请等待|请(?=\s?\d)"
    r"|(?=\d{1,3}\s?(?:秒|分|時間|초|분|시간)\s?(?:後|후)[^.。]{0,12}(?:再|다시|お試し))"
    r"|usage limit reached(?=\|))"
)
_LEAD_GAP = lazy_pattern(
    r"(?i)[\s\"'`:=|,(\[\\*~]*(?:(?:will|be|again|automatically|is|are|at|on|in|after|for|about|around|approximately"
    r"|the|until|by|next|your|usage|limits?|quota|access|em|às|as|a|para|خلال|另|attempt|request"
    r"|before|cycle|when|monthly|period|and|try|later|time|date|reset|resets|every|another|within|daily|please|least"
    r"|requests?|delay|suggested|_at|days?:|between|dans|à|um|am|el|le|es|sie|uhr|en|de|nuevo|las|попытку|снова|ещё|еще|раз|через|は|tra|fra|まで|requests?|less|than|more)\b[\s\"'`:=|,(\[\\*~-]*)*"
)

# Between a retry and its wait; "(1/3)" is no date.
_TRIES = lazy_pattern(
    r"(?i)\s*\(?(?:attempt )?#?\d{1,3} ?(?:/|of) ?\d{1,3}\)?,? (?=(?:next )?in \d)"
)
_BREAK = lazy_pattern(r"\s+")  # a message breaks wherever the terminal ends
_ISO = lazy_pattern(
    r"(\d{4})[-/](\d\d)[-/](\d\d)(?:(?:[T ]| at )(\d\d):(\d\d)(?::(\d\d)(?:\.\d+)?)?\s*"
    r"(Z\b|UTC\b|GMT\b|[+-]\d\d:?\d\d)?)?"
)
_EPOCH = lazy_pattern(r"(\d{13}|\d{10})(?:\.\d+)?(?![\d:])")
_STAMP_WITHIN = 48
_HTTP = lazy_pattern(
    r"[A-Z][a-z]{2}, (?P<day>\d{1,2}) (?P<mon>[A-Z][a-z]{2}) (?P<year>\d{4})"
    r" (?P<time>\d\d:\d\d:\d\d) GMT"
)
_CLOCK = lazy_pattern(
    r"(?i)(?:(?P<h12>\d{1,2})(?::(?P<m12>\d\d))?(?::\d\d)?\s*(?P<half>[ap])\.?\s?m\b\.?"
    r"|(?P<h24>[01]?\d|2[0-4])(?::|h)(?P<m24>[0-5]\d)(?::[0-5]\d)?(?!\d)|(?P<word>midnight|noon))"
)
_ZONE = lazy_pattern(
    r"(?i)[\s,]*(?P<open>[(\[])?\s*(?:(?P<iana>[a-z]+(?:/[a-z0-9_+-]+)+)|(?P<off>(?:utc|gmt)\s?[+-]\d{1,2}(?::?\d\d)?)"
    r"|(?P<abbr>pacific|mountain|central|eastern|[a-z]{1,4})(?:\s+(?:standard |daylight )?time)?\b)"
    r"\s*[)\]]?"
)
_MONTH_DAY = lazy_pattern(
    r"(?i)(?P<mon>jan|fe[bv]|m[aä]r|apr|abr|avr|mai|may|jun|jul|aug|ago|aoû|sep|set|o[cku]t|nov|de[cz]|déc)[a-zç]*\.?"
    r"\s+(?P<day>\d{1,2})(?:st|nd|rd|th)?(?!\d|:|\s*[ap]m)(?:,?\s+(?P<year>20\d\d)\b)?"
)
_DAY_MONTH = lazy_pattern(
    r"(?i)(?P<day>\d{1,2})(?:st|nd|rd|th|\.)?\s+(?:de |of )?"
    r"(?P<mon>jan|fe[bv]|m[aä]r|apr|abr|avr|mai|may|jun|jul|aug|ago|aoû|sep|set|o[cku]t|nov|de[cz]|déc)[a-zç]*\.?"
    r"(?:\s+de)?(?:,?\s+(?P<year>20\d\d)\b)?"
)
_NUMERIC = lazy_pattern(r"(\d{1,2})/(\d{1,2})(?:/(20\d\d))?(?![\d/])")
_DOTTED = lazy_pattern(r"(\d{1,2})\.(\d{1,2})\.(20\d\d)(?!\d)")
_WEEKDAY = lazy_pattern(
    r"(?i)(mon|tue|wed|thu|fri|sat|sun)(?:day|s|sday|nesday|rs|rsday|ur|urday)?\b"
)
_RELATIVE_DAY = lazy_pattern(r"(?i)(today|tomorrow|amanhã|hoje)\b")
_WEEKDAY_GAP = lazy_pattern(r",?\s+")
_DAY_AFTER = lazy_pattern(r"(?i),?\s+(?:on\s+)?(?:the\s+)?")
_RANGE = lazy_pattern(r"(?i)\s*(?:-|–|to|and)\s*")
_DASHED = lazy_pattern(r"(\d\d)-(\d\d)(?=(?:[T ]| at )\d\d:\d\d)")  # month and day
_DATES = (_MONTH_DAY, _DAY_MONTH, _NUMERIC, _DOTTED)
_DATE_CLOCK_GAP = lazy_pattern(r"(?i)[\s,]*(?:at|às|as|um|à)?\s*")


def parse(text: str, *, now: float, tz: tzinfo, source: str | None = None) -> Reset | None:
    """The first time after a lead in the text, as an instant; None if there is none."""
    text = _BREAK.sub(" ", text)
    for lead in _LEAD.finditer(text):
        counted = _TRIES.match(text, lead.end())
        begins = counted.end() if counted else lead.end()
        gap = _LEAD_GAP.match(text, begins)
        start = gap.end() if gap else begins
        if text[start - 1 : start] == "-" and text[start - 2 : start - 1].isspace():
            continue  # a negative time
        try:
            found = _time(text, start, lead[0].lower(), now, tz)
        except (ValueError, OverflowError, OSError):
            found = None  # beyond any calendar
        if found is None:
            continue
        at, after_s, end = found
        if after_s is not None and not 0 <= after_s <= LONGEST_S:
            continue
        if at > now + FURTHEST_S:
            continue
        header = source == "header" or lead[0].lower().startswith(("retry-after", "retry_after"))
        return Reset(
            at=at,
            after_s=after_s,
            source="header" if header else "text",
            quote=" ".join(text[lead.start() : end].split()),
        )
    return None


def stamp(text: str, tz: tzinfo) -> float | None:
    """The time at the start of a log line, if it has a date."""
    found = _ISO.search(text[:_STAMP_WITHIN])
    time = _iso(found, tz) if found and found[4] else None
    return None if time is None else time[0]


def retry_after(value: str, *, now: float) -> Reset | None:
    """A Retry-After header's value: seconds or an HTTP date (RFC 9110)."""
    value = value.strip()
    if re.fullmatch(r"\d{1,8}(?:\.\d+)?", value):
        after_s = float(value)
        if after_s > LONGEST_S:
            return None
        return Reset(at=now + after_s, after_s=after_s, source="header", quote=value)
    dated = _HTTP.fullmatch(value)
    at = _http_date(dated) if dated else None
    return None if at is None else Reset(at=at, source="header", quote=value)


def zone(name: str) -> tzinfo | None:
    """A zone by IANA name, abbreviation or offset ("UTC+2"); None for an unknown name."""
    key = name.strip().lower()
    if key in _ABBREVIATIONS:
        return _ABBREVIATIONS[key]
    offset = re.fullmatch(r"(?:utc|gmt)\s?([+-])(\d{1,2})(?::?(\d\d))?", key)
    if offset:
        minutes = int(offset[2]) * 60 + int(offset[3] or 0)
        if minutes > 14 * 60:
            return None
        return timezone(timedelta(minutes=-minutes if offset[1] == "-" else minutes))
    try:
        return ZoneInfo(_REGIONS.get(key, name.strip()))
    except (ValueError, OSError, KeyError):
        return None


_IN = lazy_pattern(r"(?i)\bin\b\W{0,3}$")
_FOR = lazy_pattern(
    r"(?i)\b(?:time (?:until|to|till|before) (?:\w+ ){0,2}reset|(?:time )?(?:remaining|left)"
    r"|remaining time|wait(?:ing)?(?: for)?|for)\b\W{0,4}$"
)
_EVERY = lazy_pattern(r"(?i)\bevery\s+$")
_Found = tuple[float, float | None, int]  # instant, stated seconds, where the time ends


def _time(text: str, start: int, lead: str, now: float, tz: tzinfo) -> _Found | None:
    if match := _HTTP.match(text, start):
        at = _http_date(match)
        return None if at is None else (at, None, match.end())
    if match := _EPOCH.match(text, start):
        value = float(match[1])
        return (value / 1000 if len(match[1]) == 13 else value, None, match.end())
    if match := _ISO.match(text, start):
        return _iso(match, tz)
    if found := _dated(text, start, now, tz):
        return found
    if (match := _COUNTDOWN.match(text, start)) and (
        _IN.search(text[:start]) or (match[3] and _FOR.search(text[max(0, start - 48) : start]))
    ):
        # "in 2:15" is hours until a reset, but minutes until a retry
        last = match[3] is None and "reset" not in lead
        parts = (
            [0, *map(int, match.groups()[:2])] if last else [int(n or 0) for n in match.groups()]
        )
        after_s = parts[0] * 3600.0 + parts[1] * 60.0 + parts[2]
        return now + after_s, after_s, match.end()
    if match := _TO.match(text, start):
        start = match.end()
    if match := _DURATION.match(text, start):
        if _EVERY.search(text[:start]):
            return None  # how often, not when
        after_s = sum(
            (float(n.replace(",", ".")) if n[0].isdigit() else 1.0) * _UNIT_S[unit.lower()]
            for n, unit in _ONE_AMOUNT.findall(match[0])
        )
        return now + after_s, after_s, match.end()
    if found := _clock(text, start, now, tz):
        return found
    # A bare number means seconds, but only after a key that can mean nothing else.
    keyed = re.search(r"(?:after|delay|seconds|_s|_ms|-ms)$", lead)
    if (keyed or re.search(r"\bafter\s+$", text[:start][-12:], re.I)) and (
        match := lazy_pattern(r"(\d+(?:\.\d+)?)(?![\d:/-])").match(text, start)
    ):
        after_s = float(match[1]) * (0.001 if lead.endswith("ms") else 1.0)
        return now + after_s, after_s, match.end()
    return None


def _dated(text: str, start: int, now: float, tz: tzinfo) -> _Found | None:
    """A day, and a clock time on it if one follows; otherwise the start of the day."""
    start = _date_after_weekday(text, start)
    if match := _DOTTED.match(text, start):
        days = [(int(match[3]), int(match[2]), int(match[1]))]
    elif match := _DASHED.match(text, start):
        days = [(year, int(match[1]), int(match[2])) for year in _years(None, now, tz)]
    elif match := _NUMERIC.match(text, start):
        first, second = int(match[1]), int(match[2])
        month, day = (first, second) if first <= 12 else (second, first)
        days = [(year, month, day) for year in _years(match[3], now, tz)]
    elif match := _MONTH_DAY.match(text, start) or _DAY_MONTH.match(text, start):
        month, day = _MONTHS[match["mon"].lower()], int(match["day"])
        days = [(year, month, day) for year in _years(match["year"], now, tz)]
    elif match := _WEEKDAY.match(text, start):
        return _weekday(text, match, now, tz)
    elif match := _RELATIVE_DAY.match(text, start):
        ahead = 1 if match[1].lower() in ("tomorrow", "amanhã") else 0
        local_day = datetime.fromtimestamp(now, tz).date() + timedelta(days=ahead)
        days = [(local_day.year, local_day.month, local_day.day)]
    else:
        return None
    clock = _clock_after(text, match.end())
    hour, minute, where, end = clock or (0, 0, None, match.end())
    if clock is None and (bare := _ZONE.match(text, match.end())):
        named = _named(bare)
        where, end = (named, bare.end()) if named else (where, end)
    if where is _NOWHERE:
        return None
    instants = [
        at for day in days if (at := _local(day, hour, minute, where or tz, now)) is not None
    ]
    # A date without a year is the nearest one: a limit resets in days, not in a year.
    return (min(instants, key=lambda at: abs(at - now)), None, end) if instants else None


def _date_after_weekday(text: str, start: int) -> int:
    """ "Friday, March 13": the date is more specific."""
    named = _WEEKDAY.match(text, start)
    gap = _WEEKDAY_GAP.match(text, named.end()) if named else None
    if gap is None or not any(form.match(text, gap.end()) for form in _DATES):
        return start
    return gap.end()


def _years(year: str | None, now: float, tz: tzinfo) -> list[int]:
    this = datetime.fromtimestamp(now, tz).year
    return [int(year)] if year else [this - 1, this, this + 1]


def _weekday(text: str, match: re.Match[str], now: float, tz: tzinfo) -> _Found | None:
    hour, minute, where, end = _clock_after(text, match.end()) or (0, 0, None, match.end())
    if where is _NOWHERE:
        return None
    place = where or tz
    today = datetime.fromtimestamp(now, place).date()
    ahead = (_WEEKDAYS.index(match[1].lower()) - today.weekday()) % 7
    days = (today + timedelta(days=d) for d in (ahead - 7, ahead, ahead + 7))
    return _next(days, hour, minute, place, now, end)


def _clock(text: str, start: int, now: float, tz: tzinfo) -> _Found | None:
    clock = _clock_after(text, start)
    if clock is None or clock[2] is _NOWHERE:
        return None
    hour, minute, where, end = clock
    place = where or tz
    if gap := _RANGE.match(text, end):
        later = _clock_after(text, gap.end())
        if later is not None and later[2] is not _NOWHERE:
            hour, minute, where, end = later
            place = where or place
    if (gap := _DAY_AFTER.match(text, end)) and (day := _dated(text, gap.end(), now, place)):
        local = datetime.fromtimestamp(day[0], place)
        if (local.hour, local.minute) == (0, 0):  # "8pm on Thursday"
            at = _local((local.year, local.month, local.day), hour, minute, place, now)
            return None if at is None else (at, None, day[2])
    today = datetime.fromtimestamp(now, place).date()
    days = (today + timedelta(days=d) for d in (-1, 0, 1, 2))
    return _next(days, hour, minute, place, now, end)


def _next(
    days: Iterable[date], hour: int, minute: int, place: tzinfo, now: float, end: int
) -> _Found | None:
    """The first that has not passed, or has just passed."""
    found = (_local((day.year, day.month, day.day), hour, minute, place, now) for day in days)
    instants = [at for at in found if at is not None and at > now - JUST_PAST_S]
    return (min(instants), None, end) if instants else None


_NOWHERE = timezone(timedelta(0), "nowhere")  # a zone was named, but it is unknown


def _clock_after(text: str, start: int) -> tuple[int, int, tzinfo | None, int] | None:
    """Hour, minute, named zone and end of a clock time; the zone is _NOWHERE if it is unknown."""
    gap = _DATE_CLOCK_GAP.match(text, start)
    match = _CLOCK.match(text, gap.end() if gap else start)
    if match is None:
        return None
    if match["word"]:
        hour, minute = (0 if match["word"].lower() == "midnight" else 12), 0
    elif match["half"]:
        hour, minute = int(match["h12"]), int(match["m12"] or 0)
        if not 1 <= hour <= 12 or minute > 59:
            return None
        hour = hour % 12 + (12 if match["half"].lower() == "p" else 0)
    else:
        hour, minute = int(match["h24"]), int(match["m24"])
        if hour == 24 and minute:
            return None
    end = match.end()
    named = _ZONE.match(text, end)
    if named is None:
        return hour, minute, None, end
    where = _named(named)
    if where is None and named["abbr"] and not named["open"]:
        return hour, minute, None, end  # just the next word
    return hour, minute, where or _NOWHERE, named.end()


def _named(match: re.Match[str]) -> tzinfo | None:
    return zone(match["iana"] or match["off"] or match["abbr"])


def _local(
    day: tuple[int, int, int], hour: int, minute: int, place: tzinfo, now: float
) -> float | None:
    """The instant of a wall-clock time. If it occurs twice, the first one, unless that has
    passed."""
    found = _both(day, hour, minute, place)
    if not found:
        return None
    return found[-1] if found[0] < now else found[0]


def _both(day: tuple[int, int, int], hour: int, minute: int, place: tzinfo) -> list[float]:
    """The one or two instants of a wall-clock time. A time that the clocks skip uses the offset
    before the change. Empty for a day that does not exist."""
    try:
        at = datetime(*day, tzinfo=place) + timedelta(hours=hour, minutes=minute)
        first, second = at.timestamp(), at.replace(fold=1).timestamp()
        return [first, second] if first < second else [first]
    except (ValueError, OverflowError, OSError):
        return []


def _iso(match: re.Match[str], tz: tzinfo) -> _Found | None:
    year, month, day, hour, minute, second, offset = match.groups()
    place: tzinfo | None = tz
    if offset:
        sign = offset[0]
        place = zone(f"UTC{offset[:3]}:{offset[-2:]}") if sign in "+-" else UTC
    try:
        when = datetime(
            int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0),
            tzinfo=place,
        )  # fmt: skip
        return when.timestamp(), None, match.end()
    except (ValueError, OverflowError, OSError):
        return None


def _http_date(match: re.Match[str]) -> float | None:
    month = _MONTHS.get(match["mon"].lower())
    hour, minute, second = (int(part) for part in match["time"].split(":"))
    try:
        day = datetime(int(match["year"]), month or 0, int(match["day"]), tzinfo=UTC)
        return day.replace(hour=hour, minute=minute, second=second).timestamp()
    except (ValueError, OverflowError):
        return None
