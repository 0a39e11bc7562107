"""Reads what hooks stored while no daemon was running (`segue.client`)."""

import os
from contextlib import suppress
from typing import Any

import msgspec

_MAX_BYTES = 2_000_000


class Spooled(msgspec.Struct, frozen=True):
    """A hook's event, and when it arrived."""

    at: float
    event: dict[str, Any]


_decode = msgspec.json.Decoder(Spooled).decode


def take(path: str) -> list[Spooled]:
    """Everything stored there, in order of arrival; unreadable lines are skipped. Returned again
    until `drop` is called, once its content is recorded."""
    taken = _taken_path(path)
    if not os.path.exists(taken):
        with suppress(OSError):
            os.rename(path, taken)
    try:
        with open(taken, "rb") as file:
            lines = file.read(_MAX_BYTES).splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        with suppress(ValueError, RecursionError):
            found.append(_decode(line))
    return sorted(found, key=lambda each: each.at)


def drop(path: str) -> None:
    """Deletes what was taken. Later events stay for the next time."""
    with suppress(OSError):
        os.unlink(_taken_path(path))


def _taken_path(path: str) -> str:
    return f"{path}.taken"
