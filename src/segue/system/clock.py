"""The time and the time zone, read once at the edge of the program."""

import os
import time
from typing import TYPE_CHECKING

from segue.errors import InputError

if TYPE_CHECKING:  # imported by quick commands, which need only `now`
    from datetime import tzinfo

_LOCALTIME = "/etc/localtime"


def now() -> float:
    """Unix time."""
    return time.time()


def local_zone() -> "tzinfo":
    """The user's time zone with its daylight-saving rules, or its current offset if it has no
    name."""
    from datetime import UTC, datetime
    from zoneinfo import ZoneInfo

    name = os.environ.get("TZ", "").lstrip(":")
    if not name:
        name = os.path.realpath(_LOCALTIME).partition("zoneinfo/")[2]
    if name:
        try:
            return ZoneInfo(name)
        except (ValueError, OSError, KeyError):
            pass
    return datetime.now(UTC).astimezone().tzinfo or UTC


def parse_zone(name: object) -> "tzinfo":
    """The time zone with this name. Raises InputError if there is none."""
    from segue.core.stops import resets

    found = resets.zone(name) if isinstance(name, str) else None
    if found is None:
        raise InputError(f"unknown time zone {name!r}; write one like Europe/London or UTC")
    return found


def parse_instant(value: object, zone: "tzinfo") -> float:
    """Unix seconds from a number or an ISO time; raises InputError for anything else."""
    from datetime import datetime

    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e11:
        return float(value)
    if isinstance(value, str):
        try:
            return parse_instant(float(value), zone)
        except ValueError:
            pass
        try:
            when = datetime.fromisoformat(value)
            return (when if when.tzinfo else when.replace(tzinfo=zone)).timestamp()
        except (ValueError, OverflowError, OSError):
            pass
    raise InputError(f"{value!r} is not a time; write unix seconds or 2026-11-15T20:30:00Z")
