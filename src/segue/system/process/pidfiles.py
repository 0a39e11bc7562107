"""Reads what running agents write about themselves, in files that a killed agent leaves behind."""

import os
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from segue.agents.signs import PidFiles
from segue.system.process.procfs import Facts, System

_NAME = re.compile(r"([0-9]{1,10})\.json")
_READ_BYTES = 64 << 10
_WRITTEN_LATE_SECONDS = 60


class PidFileEntry(NamedTuple):
    """What a process says about itself."""

    session_id: str
    status: str
    waiting_for: str


def reports_of(
    files: PidFiles, homes: Iterable[str], named: set[int], names: dict[int, str], on: System
) -> Iterator[tuple[int, PidFileEntry]]:
    """The content of the files below these homes, if the process that wrote each is alive. `names`
    are all processes, `named` those with the agent's name."""
    for home in homes:
        folder = os.path.join(home, files.folder)
        for name in listed(folder):
            pid_file = _NAME.fullmatch(name)
            pid = int(pid_file[1]) if pid_file else 0
            if pid not in names:  # killed: it could not remove its file
                continue
            data = _decoded(os.path.join(folder, name))
            facts = on.facts(pid)
            if facts is None or not _here(data.get(files.domain), on.domain()):
                continue
            if _wrote(data, files, facts, pid in named):
                status = files.statuses.get(_text(data, files.status), "")
                session_id = _text(data, files.session_id)
                yield pid, PidFileEntry(session_id, status, _text(data, files.waiting_for))


def listed(folder: str) -> list[str]:
    """The names in a folder; none if it cannot be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _wrote(data: dict[str, Any], files: PidFiles, facts: Facts, is_named: bool) -> bool:
    """Whether this process wrote it, and not an earlier one with the same pid."""
    ticks = data.get(files.start_ticks)
    if facts.start_ticks and isinstance(ticks, str | int):
        return str(ticks) == str(facts.start_ticks)
    started_ms = data.get(files.started_ms)
    if not is_named or not isinstance(started_ms, int | float):
        return False
    return -2 <= started_ms / 1000 - facts.started_at <= _WRITTEN_LATE_SECONDS


def _here(theirs: object, ours: str) -> bool:
    """Whether a pid of that domain means the same process here. Several machines or containers may
    share a home."""
    if not isinstance(theirs, str) or not theirs:
        return True
    if not ours:
        return not theirs.startswith("linux:")
    foreign, here = theirs.split(":", 2), ours.split(":", 2)
    if "" in (*foreign[1:2], *here[1:2]):  # a machine without a name
        del foreign[1:2], here[1:2]
    return foreign == here


def _decoded(path: str) -> dict[str, Any]:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return {}
    try:
        data = msgspec.json.decode(os.read(handle, _READ_BYTES))
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError):
        return {}  # half written, not JSON, or not a file
    finally:
        os.close(handle)
    return data if isinstance(data, dict) else {}


def _text(data: dict[str, Any], name: str) -> str:
    value = data.get(name)
    return value if isinstance(value, str) else ""
