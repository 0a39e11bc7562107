"""Code that several drives share."""

import os
import re
from collections.abc import Mapping, Sequence

from segue.agents.contracts.drive import Env

OURS = "segue sets it itself"
NO_SESSION = "segue could not resume the session"
ELSEWHERE = "start segue in that folder instead"
ENDS = "it starts no session"
_ID = re.compile(r"[\w-]+")


def refusal(flags: Sequence[str], refused: Mapping[str, str]) -> str:
    """Why these flags cannot be accepted: the first of them that is `refused` (flag to reason),
    in one line; "" if all can. A bare word is not a flag: the agent would take it for a
    prompt."""
    if flags and not flags[0].startswith("-"):
        return f"{flags[0]!r} is not a flag: the task goes before `--`"
    for flag in flags:
        if flag in ("-", "--"):
            return f"{flag!r} cannot be passed on to the agent: the task goes before `--`"
        name = flag.partition("=")[0] if flag.startswith("--") else flag[:2]
        if flag.startswith("-") and name in refused:
            return f"{name} cannot be passed on to the agent: {refused[name]}"
    return ""


def is_set(flags: Sequence[str], *names: str) -> bool:
    """Whether the user gave one of these long flags."""
    return any(flag.partition("=")[0] in names for flag in flags)


def is_id(session_id: str) -> bool:
    """Whether a session id is safe to use in a file pattern."""
    return _ID.fullmatch(session_id) is not None


def homes(agent: str, env: Env) -> list[str]:
    """The existing folders in which an agent keeps its sessions."""
    from segue.sessions import find

    return [home.path for home in find.homes(env) if home.agent == agent]


def folders_of(cwd: str) -> list[str]:
    """The working folder as it was named, and with links resolved."""
    return list(dict.fromkeys([cwd, os.path.realpath(cwd)]))
