"""Finds the agents that run on this machine, and what each of them reveals about its session.

One pass over the names of all processes; only those with an agent's name are examined. Nothing
is locked, no environment or key file is read, and nothing raises.
"""

import os
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from segue.agents import signs_of
from segue.agents.signs import Signs
from segue.core.sessions.types import Hold, Process
from segue.sessions.find import Home
from segue.system.process.pidfiles import PidFileEntry, listed, reports_of
from segue.system.process.procfs import Facts, System, system

RUNTIMES = ("node", "MainThread", "node-MainThread", "bun")
"""The names of a runtime while it runs a script. Newer versions of node name their threads, and the
main thread's name is the process's."""

_VALUED = ("-r", "--require", "--import", "--loader", "--experimental-loader", "-C", "--conditions")
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|ses_[0-9A-Za-z]{12,64}")


class _Kind(NamedTuple):
    """An agent whose processes are searched for."""

    agent: str
    signs: Signs
    homes: list[Home]


def living(homes: Sequence[Home], on: System | None = None) -> list[Process]:
    """The running agents, in the order of their pids. Those that evidently work on no session below
    these homes are left out."""
    on = on or system()
    kinds = _kinds(homes)
    names = on.names()
    named = _by_name(kinds, names, on)
    found: dict[int, Process] = {}
    for kind in kinds:
        for process in _of_kind(kind, named.get(kind.agent, set()), names, on):
            if process.pid not in found or process.certain:
                found[process.pid] = process
    return sorted(found.values(), key=lambda p: p.pid)


def _kinds(homes: Iterable[Home]) -> list[_Kind]:
    kinds: dict[str, _Kind] = {}
    for home in homes:
        if home.agent not in kinds:
            signs = signs_of(home.agent)
            if signs is None:
                continue
            kinds[home.agent] = _Kind(home.agent, signs, [])
        kinds[home.agent].homes.append(home)
    return list(kinds.values())


def _by_name(kinds: list[_Kind], names: dict[int, str], on: System) -> dict[str, set[int]]:
    """The processes that belong to an agent by their name, or by the script that they run."""
    called = {name: kind for kind in kinds for name in kind.signs.names}
    scripts = {"/" + end: kind for kind in kinds for end in kind.signs.scripts}
    found: dict[str, set[int]] = {}
    for pid, name in names.items():
        kind = called.get(name)
        if kind is not None and kind.signs.programs:
            program = os.path.basename(on.program(pid))
            kind = kind if program in kind.signs.programs else None
        if kind is None and scripts and name in RUNTIMES:
            script = "/" + _script(on.arguments(pid))
            kind = next((k for end, k in scripts.items() if script.endswith(end)), None)
        if kind is not None:
            found.setdefault(kind.agent, set()).add(pid)
    return found


def _script(arguments: list[str]) -> str:
    """`node --max-old-space-size=8192 -r hook.js /usr/bin/gemini -p "…"`: the fourth."""
    rest = iter(arguments[1:])
    for argument in rest:
        if argument in _VALUED:
            next(rest, None)
        elif not argument.startswith("-"):
            return argument
    return ""


def _of_kind(kind: _Kind, named: set[int], names: dict[int, str], on: System) -> list[Process]:
    files = kind.signs.pid_files
    entries = (
        dict(reports_of(files, [h.path for h in kind.homes], named, names, on)) if files else {}
    )
    holds = _holds(kind, named, on)
    found, parents = [], set()
    for pid in sorted(named | entries.keys() | holds.keys()):
        facts = on.facts(pid)
        if facts is None:
            continue
        process = _process(kind, pid, facts, entries.get(pid), holds.get(pid, {}), on)
        found.append(process)
        if not process.serves:
            parents.add(facts.parent)
    served = any(p.serves for p in found)
    shows = _must_show(kind)

    def counts(process: Process) -> bool:
        if process.serves or process.holds or process.database or process.pid in entries:
            return True
        # One that should show a session and does not is working elsewhere or on nothing, unless a
        # server shows it; and a launcher is finished once the agent runs.
        return (served or not shows) and process.pid not in parents

    return [process for process in found if counts(process)]


def _process(
    kind: _Kind,
    pid: int,
    facts: Facts,
    entry: PidFileEntry | None,
    holds: dict[str, Hold],
    on: System,
) -> Process:
    signs = kind.signs
    arguments = on.arguments(pid)
    serves = any(argument in signs.servers for argument in arguments[1:])
    session_id = entry.session_id if entry else ""
    if not entry and not holds and not serves:
        session_id = _session_of(arguments, signs)
    cwd = on.cwd(pid)
    if folder := _after(arguments, signs.folder_flags):
        cwd = os.path.normpath(os.path.join(cwd, folder))
    return Process(
        agent=kind.agent,
        pid=pid,
        started_at=facts.started_at,
        start_ticks=facts.start_ticks,
        cwd="" if serves else cwd,
        session_id=session_id,
        holds=tuple(holds[name] for name in sorted(holds)),
        database=_database(kind, pid, on) if signs.holds_database else "",
        goes_on=not (session_id or holds or serves) and _goes_on(arguments, signs),
        serves=serves,
        certain=bool(session_id or holds),
        status=entry.status if entry else "",
        waiting_for=entry.waiting_for if entry else "",
    )


def _must_show(kind: _Kind) -> bool:
    """Whether every process that works on a session of these homes shows it. Versions that wrote no
    pid files created no folder for them."""
    signs = kind.signs
    if signs.pid_files is not None:
        folder = signs.pid_files.folder
        return any(os.path.isdir(os.path.join(home.path, folder)) for home in kind.homes)
    return bool(signs.locks) or signs.holds_files or signs.holds_database


# Arguments


def _after(arguments: list[str], flags: tuple[str, ...]) -> str:
    """The value of the last of these flags."""
    for index in range(len(arguments) - 1, 0, -1):
        argument, following = arguments[index], arguments[index + 1 : index + 2]
        if argument in flags and following:
            return following[0]
        flag, equals, value = argument.partition("=")
        if equals and flag in flags:
            return value
    return ""


def _session_of(arguments: list[str], signs: Signs) -> str:
    value = _after(arguments, signs.session_flags)
    if not _ID.fullmatch(value) or any(a in signs.fork_flags for a in arguments):
        # "latest", a number, a title: it is one of its sessions, but which one is unknown
        return ""
    return value


def _goes_on(arguments: list[str], signs: Signs) -> bool:
    """Whether these arguments continue the newest session of the folder: `gemini -r latest`,
    `gemini -r`, `pi -c`."""
    named = {argument.partition("=")[0] for argument in arguments[1:]}
    return not named.isdisjoint(signs.latest_flags) and named.isdisjoint(signs.fork_flags)


def has_terminal(pid: int, on: System | None = None) -> bool:
    """Whether a person may be using it."""
    opened = (on or system()).open_files(pid)
    return any(path.startswith(("/dev/pts/", "/dev/tty")) for path in opened)


# Locks and open files


def _holds(kind: _Kind, named: set[int], on: System) -> dict[int, dict[str, Hold]]:
    """The sessions that processes hold locked or open, by their ids."""
    signs = kind.signs
    if not signs.locks and not signs.holds_files:
        return {}
    found: dict[int, dict[str, Hold]] = {}
    files = _lock_files(kind)
    known = {info.st_ino: path for path, info in files.items()}
    for lock in on.locks() if files else ():
        path = known.get(lock.inode)
        if path is None:
            continue
        device = files[path].st_dev
        exact = lock.device == f"{os.major(device):02x}:{os.minor(device):02x}"
        if exact or lock.pid in named:  # btrfs and overlays show another device
            hold = Hold(session_id=_stem(path), since=files[path].st_mtime)
            found.setdefault(lock.pid, {})[hold.session_id] = hold
    for pid in named - found.keys():
        for path in on.open_files(pid):
            if path in files:
                hold = Hold(session_id=_stem(path), since=files[path].st_mtime)
            elif (session_id := _session_file(kind, path)) is not None:
                hold = Hold(session_id=session_id, path=path)
            else:
                continue
            before = found.setdefault(pid, {}).get(hold.session_id or path)
            if before is None or before.since < hold.since:
                found[pid][hold.session_id or path] = hold
    return found


def _lock_files(kind: _Kind) -> dict[str, os.stat_result]:
    found = {}
    below, _, pattern = kind.signs.locks.rpartition("/")
    for home in kind.homes if pattern else ():
        folder = os.path.join(home.path, below)
        for name in listed(folder):
            if fnmatchcase(name, pattern) and not name.startswith("."):
                path = os.path.join(folder, name)
                try:
                    found[path] = os.stat(path)
                except OSError:
                    continue
    return found


def _session_file(kind: _Kind, path: str) -> str | None:
    """The id of the session whose file this is, or None."""
    for home in kind.homes:
        if path.startswith(home.path + "/"):
            below = path[len(home.path) + 1 :]
            if any(fnmatchcase(below, pattern) for pattern in home.store.files):
                return home.store.session_id(os.path.basename(path))
    return None


def _database(kind: _Kind, pid: int, on: System) -> str:
    for path in on.open_files(pid):
        folder, name = os.path.split(path)
        for home in kind.homes:
            if folder == home.path and fnmatchcase(name, home.store.database):
                return path
    return ""


def _stem(path: str) -> str:
    return os.path.basename(path).rpartition(".")[0]
