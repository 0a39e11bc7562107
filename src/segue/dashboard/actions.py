"""What users can do from a page. Each action runs a segue command, so a page follows the same rules
and shows the same messages as the command line."""

import asyncio
import os
import re
from typing import NamedTuple

from segue.errors import InputError
from segue.system import units
from segue.system.files import state

_RUN = re.compile(r"run-[0-9A-Za-z-]{1,80}")
_LIMIT_S = 90.0  # `segue cancel` itself gives up after a minute
_OF_RUNS = {"resume": ("resume", "--detach"), "cancel": ("cancel",)}
_OF_SESSIONS = ("handoff", "pause", "unpause", "allow", "cancel")


class CommandResult(NamedTuple):
    """What the command printed, and whether its exit code was 0."""

    is_ok: bool
    message: str
    command: str


def words(what: str, name: str) -> list[str]:
    """The command line of an action, without `segue`. Raises InputError if there is no such action,
    or if `name` is not a valid run or session for it."""
    if _RUN.fullmatch(name) and what in _OF_RUNS:
        return [*_OF_RUNS[what], name]
    if name and what in _OF_SESSIONS and not name.startswith("run-") and "\0" not in name:
        return [what, "--", name]
    raise InputError(f"unknown action: {what!r}")


async def do(what: str, name: str) -> CommandResult:
    """Runs an action's command and waits until it ends, for at most `_LIMIT_S`. Raises InputError
    if there is no such action."""
    asked = words(what, name)
    env = dict(os.environ)
    if env.get("SEGUE_HOME"):
        env["SEGUE_HOME"] = os.path.abspath(state.state_folder())
    process = await asyncio.create_subprocess_exec(
        *units.own_argv(*asked),
        cwd=state.state_folder(),  # outside any project: no folder here has a session's name
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        out, _ = await asyncio.wait_for(process.communicate(), _LIMIT_S)
    except TimeoutError:
        process.kill()
        await process.wait()
        return CommandResult(False, f"no answer for {_LIMIT_S:.0f} s", " ".join(asked))
    output = out.decode("utf-8", "replace").strip()
    command = " ".join(["segue", *(word for word in asked if word != "--")])
    return CommandResult(process.returncode == 0, output or "done", command)
