"""Texts for pages: without control characters, and of limited length. Templates escape them."""

import os
from collections.abc import Iterable
from datetime import datetime, tzinfo
from decimal import Decimal
from typing import Any

from segue.core.stops.events import Ended, Event, Failure, Prompt, Reply, ToolCall
from segue.core.terminals.visible import one_line, visible
from segue.views.verdicts import time_of_day

_LINE = 300
_TEXT = 20_000


def line(value: Any, most: int = _LINE) -> str:
    """Foreign text in one line of at most `most` characters."""
    text = "" if value is None else str(value)
    shown = one_line(text[: most * 4])
    return shown if len(shown) <= most else shown[: most - 1].rstrip() + "…"


def text(value: Any, most: int = _TEXT) -> str:
    """Foreign text that may have several lines, of at most `most` characters."""
    found = visible(str(value or "")[: most * 2])
    return found if len(found) <= most else found[: most - 1].rstrip() + "…"


def dollars(cost: float | Decimal) -> str:
    """An amount of money; "" if nothing was spent."""
    if not cost:
        return ""
    return "< $0.01" if cost < 0.005 else f"${cost:,.2f}"


def conversation(events: Iterable[Event], *, with_prompts: bool = False) -> list[dict[str, str]]:
    """What the agent said, called and failed with, oldest first; with `with_prompts`, also what its
    user asked."""
    found = []
    for event in events:
        if isinstance(event, Prompt) and with_prompts and event.text.strip():
            found.append({"who": "asks", "text": text(event.text.strip(), 2_000)})
        elif isinstance(event, Reply) and event.text.strip():
            found.append({"who": "says", "text": text(event.text.strip(), 2_000)})
        elif isinstance(event, ToolCall):
            what = event.command or event.argument or " ".join(event.files)
            found.append({"who": "calls", "text": line(f"{event.name} {what}".strip(), 200)})
        elif isinstance(event, Failure) and not isinstance(event, Ended) and event.message:
            found.append({"who": "error", "text": line(event.message, 300)})
    return found


def when(iso: Any) -> float | None:
    """The time of an ISO string in segue's JSON; None if it is not one."""
    if not isinstance(iso, str):
        return None
    try:
        return datetime.fromisoformat(iso.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None


def clock_time(at: float | None, now: float, tz: tzinfo) -> str:
    """A time in the form that commands print; "" for None."""
    return "" if at is None else time_of_day(at, now, tz)


def project(cwd: Any) -> str:
    """The last part of a folder's path."""
    path = str(cwd or "")
    return line(os.path.basename(path.rstrip("/")) or path or "no folder", 60)


def tilde(path: Any) -> str:
    """A path, with ~ for the user's home folder."""
    found, home = str(path or ""), os.path.expanduser("~")
    return line("~" + found[len(home) :] if found.startswith(home + "/") else found, 200)
