"""What can be done from a page: segue's own commands, so that rules and words are theirs."""

import asyncio
import os
import re
from typing import NamedTuple

from segue.errors import InputError
from segue.system import units
from segue.system.files import state

_RUN = re.compile(r"run-[0-9A-Za-z-]{1,80}")
_LIMIT_S = 90.0  # `cancel` itself gives up after a minute
_OF_RUNS = {"resume": ("resume", "--detach"), "cancel": ("cancel",)}
_OF_SESSIONS = ("handoff", "pause", "unpause", "allow", "cancel")


class CommandResult(NamedTuple):
    """What a command said, and whether it did what it says."""

    is_ok: bool
    message: str
    command: str


def words(what: str, name: str) -> list[str]:
    """The command line of an action; raises InputError for one that there is not."""
    if _RUN.fullmatch(name) and what in _OF_RUNS:
        return [*_OF_RUNS[what], name]
    if name and what in _OF_SESSIONS and not name.startswith("run-") and "\0" not in name:
        return [what, "--", name]
    raise InputError(f"unknown action: {what!r}")


async def do(what: str, name: str) -> CommandResult:
    """Runs it, and waits for its end. Raises InputError for an action that there is not."""
    asked = words(what, name)
    env = dict(os.environ)
    if env.get("SEGUE_HOME"):
        env["SEGUE_HOME"] = os.path.abspath(state.state_folder())
    process = await asyncio.create_subprocess_exec(
        *units.own_argv(*asked),
        cwd=state.state_folder(),  # no folder of a project: a name is never taken for one in it
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
