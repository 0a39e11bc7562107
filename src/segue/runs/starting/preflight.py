"""Checks, before a run starts, what would stop it during the night: one line for each problem,
with what to do about it."""

import json
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from segue.agents.contracts.drive import Drive
from segue.agents.contracts.permission import Access
from segue.runs.starting.run_request import RunRequest
from segue.system.config import config

_ASK_S = 10.0


def warnings(
    wanted: RunRequest, env: Mapping[str, str], *, may_start: bool = True
) -> Iterator[str]:
    """All warnings, for each agent of the list."""
    for each in wanted.all:
        yield from permissions(
            each.agent,
            each.drive,
            each.command,
            flags=each.flags,
            env=env,
            cwd=each.cwd,
            may_start=may_start,
            is_first=each is wanted,
        )
        if wanted.successors and may_start and not _tells_version(each, env):
            command = shlex.join(_version_command(each))
            yield f"{each.agent} does not report its version; try: {command}"


def permissions(
    agent: str,
    drive: Drive,
    command: Sequence[str],
    *,
    flags: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    may_start: bool = True,
    is_first: bool = True,
) -> Iterator[str]:
    """Whether the agent is signed in, and may edit files and run commands unattended. Yields
    nothing if that is unknown. `may_start`: segue may start the agent's own program to ask
    it; `is_first`: whether this is the agent that gets the flags after --."""
    found = access(drive, command, flags=flags, env=env, cwd=cwd, may_start=may_start)
    if found is None:
        return
    if found.signed_in is False:
        yield f"{agent} is not signed in; {found.sign_in}"
    if missing := _missing(found):
        because = f" ({found.why})" if found.why else ""
        add = _added(found) if is_first else _set(agent, found)
        yield f"{agent} may not {missing} unattended{because}; add {add}"


def access(
    drive: Drive,
    command: Sequence[str],
    *,
    flags: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    may_start: bool,
) -> Access | None:
    """What the agent may do; None if unknown. segue asks the agent's own program about its
    account if no file or variable answers the question."""
    if drive.permissions is None or drive.permissions.look is None:
        return None
    found = drive.permissions.look(flags, env, cwd)
    if found.signed_in is None and found.asks and may_start:
        found = replace(found, signed_in=_is_signed_in([*command, *found.asks], env, cwd))
    return found


def _missing(found: Access) -> str:
    refused = [
        what
        for what, may in (("edit files", found.edits), ("run commands", found.commands))
        if may is False
    ]
    return " or ".join(refused)


def _added(found: Access) -> str:
    """The flags as the user would type them."""
    grant = found.add
    if grant is None:
        return "what its documentation says"
    env = " ".join(f"{name}={shlex.quote(value)}" for name, value in grant.env)
    return f"-- {shlex.join(grant.flags)}" if grant.flags else f"{env} before segue"


def _set(agent: str, found: Access) -> str:
    """The same for an agent that does not get the flags after --."""
    if found.add is None or not found.add.flags:
        return _added(found)
    words = ", ".join(json.dumps(word) for word in found.add.flags)
    return f"{agent} = [{words}] under [run.flags] in {config.user_file()}"


def _version_command(wanted: RunRequest) -> tuple[str, ...]:
    return wanted.drive.version(wanted.command)


def _tells_version(wanted: RunRequest, env: Mapping[str, str]) -> bool:
    try:
        done = subprocess.run(  # noqa: S603 - an agent that is about to run
            _version_command(wanted),
            env=dict(env),
            cwd=wanted.cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_ASK_S,
            check=False,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return False
    return done.returncode == 0 and any(char in b"0123456789" for char in done.stdout)


def _is_signed_in(argv: Sequence[str], env: Mapping[str, str], cwd: str) -> bool | None:
    try:
        done = subprocess.run(  # noqa: S603 - the agent that is about to run
            argv,
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_ASK_S,
            check=False,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return {0: True, 1: False}.get(done.returncode)
