"""Texts for pages: one line, nothing hidden in it, and never longer than a page can bear."""

import os
from datetime import datetime, tzinfo
from typing import Any

from segue.core.terminals.visible import one_line, visible
from segue.views.verdicts import moment

_LINE = 300
_TEXT = 20_000


def line(value: Any, most: int = _LINE) -> str:
    """One line of text from outside, for a page: the template escapes it."""
    text = "" if value is None else str(value)
    shown = one_line(text[: most * 4])
    return shown if len(shown) <= most else shown[: most - 1].rstrip() + "…"


def text(value: Any, most: int = _TEXT) -> str:
    """Several lines of it."""
    found = visible(str(value or "")[: most * 2])
    return found if len(found) <= most else found[: most - 1].rstrip() + "…"


def when(iso: Any) -> float | None:
    """The instant that a documented form tells."""
    if not isinstance(iso, str):
        return None
    try:
        return datetime.fromisoformat(iso.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None


def clock_time(at: float | None, now: float, tz: tzinfo) -> str:
    """When it is or was, as commands say it."""
    return "" if at is None else moment(at, now, tz)


def project(cwd: Any) -> str:
    """The last part of a folder's path."""
    path = str(cwd or "")
    return line(os.path.basename(path.rstrip("/")) or path or "no folder", 60)


def tilde(path: Any) -> str:
    """A path below the user's home, shorter."""
    found, home = str(path or ""), os.path.expanduser("~")
    return line("~" + found[len(home) :] if found.startswith(home + "/") else found, 200)
