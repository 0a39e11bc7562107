"""Quiet hours: times of day at which segue resumes nothing without the user."""

import re
from collections.abc import Callable, Iterable
from datetime import datetime

Span = tuple[int, int]
"""Minutes of the day: from the first until before the second; past midnight if the second is
smaller."""
Local = Callable[[float], datetime]
"""Converts an instant to the user's local time."""

_SPAN = re.compile(r"\s*(\d{1,2}):(\d{2})\s*[-–]\s*(\d{1,2}):(\d{2})\s*", re.ASCII)
_DAY_M = 24 * 60
_DAY_S = _DAY_M * 60.0


def parse(text: str) -> tuple[Span, ...]:
    """The spans of "23:00-07:00" or "12:00-13:00, 23:00-07:00"; () for none.

    Raises ValueError, in one line, for anything else.
    """
    return tuple(_span(part) for part in text.split(",")) if text.strip() else ()


def _span(part: str) -> Span:
    match = _SPAN.fullmatch(part)
    message = f"quiet_hours must look like 23:00-07:00, not {part.strip()!r}"
    if match is None or max(int(match[2]), int(match[4])) > 59:
        raise ValueError(message)
    begin, end = int(match[1]) * 60 + int(match[2]), int(match[3]) * 60 + int(match[4])
    if max(begin, end) > _DAY_M:
        raise ValueError(message)
    if begin % _DAY_M == end:
        raise ValueError(f"quiet_hours must not start and end at the same time: {part.strip()!r}")
    return begin % _DAY_M, end


def is_quiet(spans: Iterable[Span], now: float, local: Local) -> bool:
    """Whether one of the spans contains the local time."""
    return _span_at(spans, now, local) is not None


def ends_at(spans: Iterable[Span], now: float, local: Local) -> float | None:
    """When the quiet time ends; None if it is not quiet now. Always later than now. Adjacent
    spans count as one. If the clock changes in between, or it is quiet all day, it may still
    be quiet: ask again then."""
    spans, at = tuple(spans), now
    for _ in spans:
        span = _span_at(spans, at, local)
        if span is None:
            break
        at = _end_of(span, at, local)
    return at if at > now else None


def _span_at(spans: Iterable[Span], at: float, local: Local) -> Span | None:
    shown = local(at)
    minute = shown.hour * 60 + shown.minute
    for begin, end in spans:
        inside = begin <= minute < end if begin < end else minute >= begin or minute < end
        if inside:
            return begin, end
    return None


def _end_of(span: Span, at: float, local: Local) -> float:
    end = at + (span[1] * 60 - _second(at, local)) % _DAY_S
    # A day on which the clock is changed is an hour longer or shorter.
    off_s = (_second(end, local) - span[1] * 60 + _DAY_S / 2) % _DAY_S - _DAY_S / 2
    return max(end - off_s, at + 1.0)


def _second(at: float, local: Local) -> float:
    shown = local(at)
    return shown.hour * 3600.0 + shown.minute * 60 + shown.second + shown.microsecond / 1e6
