"""Times as users give them."""

import re

from segue.errors import InputError
from segue.system import clock

_AGO = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def instant(given: str, now: float) -> float:
    """The time that a user means by an age (90m, 12h, 7d) or a time. Raises InputError if it is
    neither."""
    if ago := _AGO.fullmatch(given):
        return now - float(ago[1]) * _UNITS[ago[2]]
    try:
        return clock.parse_instant(given, clock.local_zone())
    except InputError:
        raise InputError(
            f"{given!r} is not a time; write 90m, 12h, 7d, unix seconds or 2026-11-15T20:30:00Z"
        ) from None
