"""Codex: `exec --json`. It accepts no messages while it runs, and its stream does not report the
size of the context; its session file does."""

import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

from segue.agents.codex.login import login
from segue.agents.codex.permissions import PERMISSIONS
from segue.agents.contracts.drive import Drive, Env, Launch, LegOrder, Over, StreamWatch
from segue.agents.installed import ARCH, MACHINE, SYSTEM, command
from segue.agents.shared.drive import (
    ELSEWHERE,
    ENDS,
    NO_SESSION,
    OURS,
    homes,
    is_id,
    is_set,
    refusal,
)

FILES = (
    f"@openai/codex-{SYSTEM}-{ARCH}/vendor/*/bin/codex",
    f"@openai/codex-{SYSTEM}-{ARCH}/vendor/*/codex/codex",
    f"@openai/codex/vendor/{MACHINE}-*{SYSTEM}*/codex/codex",  # one package for all machines
)
_ANYWHERE = "--skip-git-repo-check"
_ROLLOUT = re.compile(r"rollout-(\d{4})-(\d{2})-(\d{2})T[0-9A-Za-z-]{1,80}\.jsonl")
_ENDLESS = "unbounded_connection_retries"
_REFUSED = {
    "--json": OURS,
    "--last": OURS,
    "--all": OURS,
    "--ephemeral": NO_SESSION,
    "-C": ELSEWHERE,
    "--cd": ELSEWHERE,
    "--worktree": ELSEWHERE,
    "-V": ENDS,
    "--version": ENDS,
    "-h": ENDS,
    "--help": ENDS,
}


def _find(env: Env) -> tuple[str, ...] | None:
    return command("codex", FILES, env)


def _launch(order: LegOrder) -> Launch:
    # The user's flags come first, as flags of `exec`: `resume` does not know all of them, and a
    # flag with a list would take what follows it.
    argv = [*order.command, "exec", *order.flags, "--json"]
    if not _is_repository(order.cwd) and not is_set(order.flags, _ANYWHERE):
        argv.append(_ANYWHERE)
    if not any(_ENDLESS in flag for flag in order.flags):
        # Otherwise it waits forever for a server that does not exist; waiting is segue's job, by
        # the user's policy. Not `--disable`, because a version that does not know the feature would
        # not start.
        argv += ["-c", f"features.{_ENDLESS}=false"]
    if order.session_id:
        argv += ["resume", order.session_id]
    return Launch(
        argv=(*argv, "-"),  # its input has room for a prompt of any length
        input=order.prompt.encode("utf-8", "replace"),
        session_id=order.session_id,
    )


def _is_repository(cwd: str) -> bool:
    folder = os.path.abspath(cwd)
    while not os.path.exists(os.path.join(folder, ".git")):
        above = os.path.dirname(folder)
        if above == folder:
            return False
        folder = above
    return True


class _Watch(StreamWatch):
    def over(self, record: dict[str, Any]) -> Over:
        return "yes" if _ENDS.fullmatch(str(record.get("type"))) else "no"


_ENDS = re.compile(r"turn\.(?:complet|fail|abort|cancel|interrupt|end|finish|stop)[a-z]*")


def _refuses(flags: Sequence[str]) -> str:
    return refusal(flags, _REFUSED)


def session_file(session_id: str, env: Env, cwd: str) -> str:
    """`sessions/YYYY/MM/DD/rollout-<time>-<id>.jsonl`, the newest days first."""
    if not is_id(session_id):
        return ""
    ending = f"-{session_id}.jsonl"
    for home in homes("codex", env):
        for folder in _days(home):
            for name in _names(folder):
                if name.endswith(ending):
                    return os.path.join(folder, name)
    return ""


def session_place(name: str, env: Env, cwd: str) -> str:
    """The path of a session file in the first home: in the folder of the day in its name."""
    found = _ROLLOUT.fullmatch(name)
    return os.path.join(homes("codex", env)[0], "sessions", *found.groups(), name) if found else ""


def _days(home: str) -> Iterator[str]:
    folders = [os.path.join(home, "sessions")]
    for _ in range(3):
        folders = [os.path.join(f, name) for f in folders for name in _names(f) if name.isdigit()]
    yield from sorted(folders, reverse=True)
    yield os.path.join(home, "archived_sessions")


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


DRIVE = Drive(
    agent="codex",
    find=_find,
    install="npm install -g @openai/codex",
    launch=_launch,
    works_on_compacted=True,
    interrupt_signal="SIGINT",  # it ends its tools and records that; SIGTERM does neither
    watch=_Watch,
    refuses=_refuses,
    session_file=session_file,
    session_place=session_place,
    size_from="file",
    calls_from="file",
    permissions=PERMISSIONS,
    login=login,
    instructions=("AGENTS.override.md", "AGENTS.md"),
    first_instructions_only=True,
    repeatable=frozenset({"--config", "--enable", "--disable", "--add-dir", "--image"}),
    same_flags={
        "-c": "--config",
        "-i": "--image",
        "-m": "--model",
        "-p": "--profile",
        "-s": "--sandbox",
        "--approve-for-me": "--sandbox",
        "--dangerously-bypass-approvals-and-sandbox": "--sandbox",
        "--yolo": "--sandbox",
    },
)
