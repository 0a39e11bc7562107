"""The fleet part of `segue doctor`: whether this machine reaches the fleet, and how well."""

import os
import stat
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import urlsplit

from segue import fleet
from segue.errors import ConfigError, SegueError
from segue.runs.store import leases
from segue.system.config import config

if TYPE_CHECKING:
    from segue.fleet.database import FleetDatabase

Status = Literal["ok", "warn", "fail"]


class Finding(NamedTuple):
    """One check: its status, what was found, and what to do about it."""

    status: Status
    what: str
    do: str = ""


_SLOW_S = 0.5
_SKEW_S = 30.0
_FULL = 0.8


def examine(env: Mapping[str, str]) -> Iterator[Finding]:
    """Checks the fleet. Yields nothing if this machine is not in one."""
    try:
        where = fleet.url(env)
    except ConfigError:
        return  # reported as a config error
    if not where:
        return
    yield from _private(where)
    try:
        from segue.fleet.database import FleetDatabase, without_password

        begun = time.monotonic()
        db = FleetDatabase(where)
    except SegueError as fault:
        yield Finding(status="fail", what=str(fault), do="no task is lost; see docs/fleet.md")
        return
    with db:
        connect_s = time.monotonic() - begun
        begun = time.monotonic()
        db.rows("SELECT 1")
        answer_s = time.monotonic() - begun
        detail = f"answers in {answer_s * 1000:.0f} ms, connected in {connect_s:.1f} s"
        yield Finding(
            status="warn" if answer_s > _SLOW_S else "ok",
            what=f"{without_password(where)} {detail}",
        )
        yield from _safe(db)
        yield from _clock(db)
        yield from _room(db)
        yield from _machine(db)


def _private(where: str) -> Iterator[Finding]:
    """Warns if others can read a password in the config."""
    path = config.user_file()
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return
    has_password = bool(urlsplit(where).password) if "://" in where else False
    if has_password and mode & (stat.S_IRGRP | stat.S_IROTH):
        yield Finding(
            status="warn",
            what=f"{path} contains the database's password and others can read it",
            do=f"chmod 600 {path}",
        )


def _safe(db: "FleetDatabase") -> Iterator[Finding]:
    connection = db.db
    host = connection.info.host or ""
    is_local = host.startswith("/") or host in ("", "localhost", "127.0.0.1", "::1")
    if connection.pgconn.ssl_in_use:
        ((version,),) = db.rows("SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
        mode = connection.info.get_parameters().get("sslmode", "prefer")
        is_checked = mode.startswith("verify")
        yield Finding(
            status="ok" if is_checked or is_local else "warn",
            what=f"encrypted ({version}); its certificate is {'' if is_checked else 'not '}checked"
            f" (sslmode={mode})",
            do="" if is_checked or is_local else "set sslmode=verify-full in url in [fleet]",
        )
    elif not is_local:
        yield Finding(
            status="warn",
            what="not encrypted: tasks, prompts and sessions cross the network in plain text",
            do="add ?sslmode=verify-full to url in [fleet]",
        )


def _clock(db: "FleetDatabase") -> Iterator[Finding]:
    ahead_s = db.ahead_s
    if abs(ahead_s) > _SKEW_S:
        how = "behind" if ahead_s > 0 else "ahead of"
        yield Finding(
            status="warn",
            what=f"this machine's clock is {abs(ahead_s):.0f} s {how} the database's",
            do="timedatectl set-ntp true",
        )


def _room(db: "FleetDatabase") -> Iterator[Finding]:
    sql = (
        "SELECT count(*), current_setting('max_connections')::int FROM pg_stat_activity"
        " WHERE backend_type = 'client backend'"
    )
    ((used, most),) = db.rows(sql)
    if used >= most * _FULL:
        yield Finding(
            status="warn",
            what=f"{used} of the database's {most} connections are in use",
            do="raise max_connections in postgresql.conf",
        )


def _machine(db: "FleetDatabase") -> Iterator[Finding]:
    from segue.fleet import machines

    own = leases.machine()
    found = {each.id: each for each in machines.machines(db)}
    other_machines = sum(each.is_alive for each in found.values() if each.id != own)
    detail = f"{other_machines} other machine{'' if other_machines == 1 else 's'} online"
    here = found.get(own)
    if here is None:
        what, do = f"no worker has run here yet; {detail}", "segue worker"
    elif not here.is_alive:
        what, do = f"no worker is running here; {detail}", "segue worker"
    elif here.is_drained:
        what, do = f"this machine is drained; {detail}", f"segue fleet drain --undo {own}"
    else:
        what, do = f"this machine is online as {own}; {detail}", ""
    yield Finding(status="ok", what=what, do=do)
