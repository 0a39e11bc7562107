"""Warnings before a long run: one line for each problem, usually with what to do about it."""

import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from segue.cli.support.checkup import checks
from segue.core import accounts
from segue.core.sessions.types import Session
from segue.errors import InputError, SegueError
from segue.runs.starting import preflight
from segue.runs.starting.run_request import RunRequest
from segue.system import clock
from segue.system.accounts import account_of
from segue.system.files import state
from segue.system.git import git
from segue.views import printing
from segue.views.verdicts import time_of_day

_FEW_BYTES = 1_000_000_000
_GIT_S = 5.0

Env = Mapping[str, str]


def warn(wanted: RunRequest, env: Env, *, strict: bool) -> None:
    """Prints the warnings on stderr. Raises InputError if there are any and `strict` is set."""
    found = 0
    for line in warnings(wanted, env):
        found += 1
        printing.complain(f"warning: {line}")
    if strict and found:
        what = "1 warning" if found == 1 else f"{found} warnings"
        raise InputError(f"--strict: not started because of {what}")


def warnings(wanted: RunRequest, env: Env) -> Iterator[str]:
    """The warnings, in a fixed order."""
    yield from preflight.warnings(wanted, env)
    if wanted.origin is None:  # in a rescue, uncommitted changes are the session's own
        yield from place(wanted.cwd, env)
    if not wanted.check:
        yield "no --check: only the agent decides when the task is done; add --check CMD"
    yield from limits(wanted, env)
    yield from space((wanted.cwd, state.state_folder()))
    for check in checks.sleep(env):
        if check.status != "ok":
            yield f"{check.what}; {check.do}"


def place(cwd: str, env: Env) -> Iterator[str]:
    """A warning if the agent's work in this folder could not be undone, or if it should not work
    there at all."""
    here = os.path.realpath(cwd)
    found = git.status(cwd, max_s=_GIT_S)
    for folder, name in ((env.get("HOME", ""), "your home folder"), ("/", "the whole machine")):
        if folder and here == os.path.realpath(folder):
            yield f"the agent would work in {name}; cd into a project first"
            return
    if found is None:
        do = "git init" if shutil.which("git", path=env.get("PATH")) else "install git"
        yield (
            f"no git repository here: segue cannot take snapshots, and changes cannot be"
            f" undone; {do}"
        )
    elif found.status:
        yield "uncommitted changes here: the agent's will mix with yours; git commit or git stash"


def limits(wanted: RunRequest, env: Env) -> Iterator[str]:
    """A warning for each agent of the run whose account is limited now, by segue's records and the
    sessions'."""
    from segue.fleet import open_accounts
    from segue.views.limits import known_limits
    from segue.views.machine import list_sessions, with_machine

    now = clock.now()
    sessions: list[Session] = []
    with suppress(SegueError, OSError, sqlite3.Error):
        _, sessions = with_machine(
            lambda machine: list_sessions(machine, now - accounts.KEEP_S), with_processes=False
        )
    found = {account.id: account for account in known_limits(sessions, now, env, open_accounts())}
    for each in wanted.all:
        mine = account_of(each.agent, env, flags=each.flags, cwd=each.cwd)
        holding = accounts.limited_until(found.get(mine.id, mine), now)
        if holding is None or holding.resets_at is None:
            continue
        until = time_of_day(holding.resets_at, now, clock.local_zone())
        if wanted.successors:
            yield f"{each.agent} is limited until {until}; the others continue meanwhile"
        else:
            yield f"{each.agent} is limited until {until}; the run will wait for it"


def space(folders: Iterable[str]) -> Iterator[str]:
    """A warning for each disk of these folders that is nearly full."""
    devices: set[int] = set()
    for folder in folders:
        path = Path(folder)
        while not path.exists() and path != path.parent:
            path = path.parent
        with suppress(OSError):
            device, free = path.stat().st_dev, shutil.disk_usage(path).free
            if free < _FEW_BYTES and device not in devices:
                yield f"only {free / 1e6:,.0f} MB free on the disk of {path}; make room"
            devices.add(device)
