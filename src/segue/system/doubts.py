"""Stores stops that segue did not understand, with their text, so that the user can look at them.

Each is one line of JSON in `doubts.jsonl` in the state folder (0600), without secrets, with at
most the end of the text. Entries that are older than two months, or that exceed the limit, are
dropped when the next one is written. A run never fails because an entry could not be stored.
"""

import contextlib
import os
from pathlib import Path
from typing import Any

import msgspec

from segue.core.secrets.redact import redact
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import Stop
from segue.system.files import state

KEPT_S = 62 * 86_400.0
_MAX_CHARS = 4_000
_MAX_DOUBTS = 200
_READ_BYTES = 4 << 20


class Doubt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One uncertain stop: when, whose, segue's verdict, and the end of the text."""

    at: float
    agent: str = ""
    reason: str
    confidence: float
    exit_code: int | None = None
    where: str = ""  # the run or session
    text: str = ""


def path() -> Path:
    """The path of the file."""
    return Path(state.state_folder()) / "doubts.jsonl"


def is_doubtful(stop: Stop, min_confidence: float) -> bool:
    """Whether a verdict explains too little: no evidence, or too uncertain to act on."""
    if stop.reason in (StopReason.COMPLETED, StopReason.USER_EXIT):
        return False
    return stop.reason is StopReason.UNKNOWN or stop.confidence < min_confidence


def keep(doubt: Doubt) -> None:
    """Appends an entry, without secrets; never raises."""
    text, _ = redact(doubt.text.strip()[-_MAX_CHARS:])
    if not text:
        return
    remaining = [d for d in load() if d.at >= doubt.at - KEPT_S and d.text != text][
        1 - _MAX_DOUBTS :
    ]
    clean = msgspec.structs.replace(doubt, text=text)
    with contextlib.suppress(OSError):
        _write([*remaining, clean])


def load() -> list[Doubt]:
    """All stored entries, the oldest first; unreadable lines are skipped."""
    try:
        data = path().read_bytes()[-_READ_BYTES:]
    except OSError:
        return []
    found = []
    for line in data.splitlines():
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
            found.append(msgspec.json.decode(line, type=Doubt))
    return found


def clear() -> int:
    """Deletes all entries; returns how many there were."""
    count = len(load())
    with contextlib.suppress(FileNotFoundError):
        path().unlink()
    return count


def _write(doubts: list[Doubt]) -> None:
    place = path()
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    aside = place.with_suffix(f".{os.getpid()}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    data = b"".join(msgspec.json.encode(doubt) + b"\n" for doubt in doubts)
    handle = os.open(aside, flags, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(aside, place)
    except BaseException:
        with contextlib.suppress(OSError):
            aside.unlink()
        raise


def as_dict(doubt: Doubt) -> dict[str, Any]:
    """The doubt for programs."""
    return msgspec.structs.asdict(doubt)
