"""Gemini CLI: one prompt per process. Its stream does not report the size of the context; its
session file does.

Resuming makes a session up to twice as large, because every tool result is sent twice.
"""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from glob import escape, glob
from typing import Any

from segue.agents.contracts.drive import Drive, Env, Launch, LegOrder, Over, StreamWatch
from segue.agents.gemini.login import login
from segue.agents.gemini.permissions import PERMISSIONS
from segue.agents.installed import command
from segue.agents.shared.drive import ELSEWHERE, ENDS, NO_SESSION, OURS, homes, is_id, refusal

_UNBUNDLED = "@google/gemini-cli/dist/index.js"  # in its first year, up to 0.33
FILES = ("@google/gemini-cli/bundle/gemini.js", _UNBUNDLED)
_SHORT = 8  # how much of the id is in a file's name
_TALKS = "segue needs its stream"
_REFUSED = {
    "-p": OURS,
    "--prompt": OURS,
    "-i": OURS,
    "--prompt-interactive": OURS,
    "-o": OURS,
    "--output-format": OURS,
    "-r": OURS,
    "--resume": OURS,
    "--session-id": OURS,
    "--session-file": NO_SESSION,
    "--acp": _TALKS,
    "--experimental-acp": _TALKS,
    "-w": ELSEWHERE,
    "--worktree": ELSEWHERE,
    "-l": ENDS,
    "--list-extensions": ENDS,
    "--list-sessions": ENDS,
    "--delete-session": ENDS,
    "-v": ENDS,
    "--version": ENDS,
    "-h": ENDS,
    "--help": ENDS,
}


def _find(env: Env) -> tuple[str, ...] | None:
    return command("gemini", FILES, env, is_script=True)


def _launch(order: LegOrder) -> Launch:
    # The unbundled version accepts no id: it makes one up and reports it.
    takes_id = not any(word.endswith(_UNBUNDLED) for word in order.command)
    session = order.session_id or (order.new_id if takes_id else "")
    argv = [*order.command, *order.flags, "-o", "stream-json"]
    if session:
        argv += ["-r" if order.session_id else "--session-id", session]
    return Launch(
        argv=tuple(argv),
        env={"GEMINI_CLI_NO_RELAUNCH": "1"},  # its launcher swallows signals
        input=order.prompt.encode("utf-8", "replace"),
        session_id=session,
    )


class _Watch(StreamWatch):
    def over(self, record: dict[str, Any]) -> Over:
        return "yes" if record.get("type") == "result" else "no"


def _refuses(flags: Sequence[str]) -> str:
    return refusal(flags, _REFUSED)


def session_file(session_id: str, env: Env, cwd: str) -> str:
    """`tmp/<project>/chats/session-<minute>-<first 8>.jsonl`. A resumed session has stubs with the
    same name and later minutes next to it."""
    return next((file for file in _files(session_id, env) if not _is_stub(file)), "")


def tidy(session_id: str, env: Env, cwd: str) -> None:
    """Removes the stubs of a resumed session. Otherwise the next process with another session would
    take them for a broken session and delete it with them."""
    files = list(_files(session_id, env))
    for file in files[1:]:
        if _is_stub(file):
            with suppress(OSError):
                os.unlink(file)


def _files(session_id: str, env: Env) -> Iterator[str]:
    """All files of a session, the oldest first."""
    if not is_id(session_id):
        return
    name = f"session-*-{session_id[:_SHORT]}.jsonl"
    for home in homes("gemini", env):
        found = glob(os.path.join(escape(home), "tmp", "*", "chats", name))
        for file in sorted(found, key=os.path.basename):
            if _recorded_id(file) == session_id:
                yield file


def _recorded_id(file: str) -> str:
    return next((str(record.get("sessionId", "")) for record in _records(file)), "")


def _is_stub(file: str) -> bool:
    """Whether a file has no conversation: a header, and the context that every session begins with.
    A session's own file has more in its third line."""
    for record in _records(file):
        if "type" in record:
            return False
        change = record.get("$set")
        messages = change.get("messages") if isinstance(change, dict) else None
        if isinstance(messages, list) and len(messages) > 1:
            return False
    return True


def _records(file: str) -> Iterator[dict[str, Any]]:
    """The readable records of a file, read only as far as the caller needs them."""
    with suppress(OSError), open(file, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            with suppress(ValueError):
                record = json.loads(line)
                if isinstance(record, dict):
                    yield record


DRIVE = Drive(
    agent="gemini",
    find=_find,
    install="npm install -g @google/gemini-cli",
    launch=_launch,
    interrupt_signal="SIGINT",
    works_on_compacted=True,
    compaction_mark=b"<state_snapshot>",
    resume_factor=2.0,
    watch=_Watch,
    refuses=_refuses,
    session_file=session_file,
    size_from="file",
    tidy=tidy,
    permissions=PERMISSIONS,
    login=login,
    instructions=("GEMINI.md",),
    repeatable=frozenset({"--allowed-tools", "--include-directories", "--policy", "--extensions"}),
    same_flags={
        "-e": "--extensions",
        "-m": "--model",
        "-y": "--approval-mode",
        "--yolo": "--approval-mode",
    },
)
