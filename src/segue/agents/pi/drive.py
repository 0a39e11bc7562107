"""pi in RPC mode: it reads commands from its input, and ends when that is closed. `pi/bridge` keeps
them in order."""

import json
import os
import sys
from collections.abc import Sequence
from glob import escape, glob
from pathlib import Path
from typing import Any

from segue.agents.contracts.drive import Drive, Env, Launch, LegOrder, Over, StreamWatch
from segue.agents.installed import command
from segue.agents.pi.login import login
from segue.agents.pi.permissions import PERMISSIONS
from segue.agents.pi.profile import is_question
from segue.agents.shared import halts
from segue.agents.shared.drive import ENDS, NO_SESSION, OURS, homes, is_id, refusal
from segue.agents.shared.fields import text

BRIDGE = Path(__file__).with_name("bridge.py")
HALT = Path(__file__).with_name("halt.js")
_HALT_CHARS = 1_000_000  # more than any window has room for
FILES = (
    "@earendil-works/pi-coding-agent/dist/bundle/cli.js",
    "@earendil-works/pi-coding-agent/dist/cli.js",
    "@mariozechner/pi-coding-agent/dist/cli.js",
)
_OLD = "@mariozechner"  # up to 0.73
_REFUSED = {
    **dict.fromkeys(("--mode", "--print", "-p", "--session", "--session-id", "--fork"), OURS),
    **dict.fromkeys(("--continue", "-c", "--resume", "-r"), OURS),
    **dict.fromkeys(("--export", "--list-models", "--help", "-h", "--version", "-v"), ENDS),
    "--no-session": NO_SESSION,
}


def _find(env: Env) -> tuple[str, ...] | None:
    return command("pi", FILES, env, is_script=True)


def _launch(order: LegOrder) -> Launch:
    argv = [sys.executable, "-I", "-S", str(BRIDGE), *order.command, "--mode", "rpc"]
    session_id = order.session_id
    if session_id:
        argv += ["--session", session_id]
    elif order.new_id and not any(_OLD in word for word in order.command):
        session_id = order.new_id
        argv += ["--session-id", session_id]
    env = {}
    if order.halts:
        argv += ["--extension", str(HALT)]
        env[halts.FOLDER] = order.folder
    state = {"id": "state", "type": "get_state"}  # reports session, model and window
    return Launch(
        argv=(*argv, *order.flags),
        env=env,
        input=_line(state) + _say(order.prompt, "first"),
        stays_open=True,
        session_id=session_id,
    )


def _say(words: str, key: str) -> bytes:
    """A message. While pi is running, it takes effect at the next step."""
    order = {"id": key, "type": "prompt", "message": words, "streamingBehavior": "steer"}
    return _line(order)


def _line(order: dict[str, str]) -> bytes:
    return json.dumps(order).encode() + b"\n"


def _refuses(flags: Sequence[str]) -> str:
    files = next((word for word in flags if word.startswith("@")), "")
    return f"{files!r} is part of the task" if files else refusal(flags, _REFUSED)


_WORKS = frozenset(
    {"agent_start", "turn_start", "turn_end", "message_start", "message_update", "message_end"}
    | {"tool_execution_start", "tool_execution_update", "tool_execution_end", "auto_retry_start"}
)
"""Records that show that it is working."""
_LAST = ("stop", "error", "length", "aborted")  # of a reply that no other reply follows


class _Watch(StreamWatch):
    """pi 0.87 reports when it has settled. pi 0.73 only ends a run, and may compact or retry
    afterwards, which its records show. Other records after the end of a run do not undo that
    end."""

    settle_s = 3.0

    def __init__(self) -> None:
        self.settles = False
        self.has_ended = False  # a run has ended, and nothing was started since
        self.is_compacting = False
        self.taken: list[str] = []  # keys of messages that are not yet part of the conversation

    def over(self, record: dict[str, Any]) -> Over:
        kind = text(record, "type")
        if kind == "agent_settled":
            self.settles = True
            return "yes"
        if kind == "extension_ui_request":
            return "yes" if is_question(record) else "no"
        if kind == "response":
            what = record.get("command")
            if what == "abort":  # it has waited for the end
                return "no" if self.settles else "yes"
            return "yes" if what == "prompt" and record.get("success") is False else "no"
        self.has_ended &= kind not in _WORKS
        if kind == "compaction_start":
            self.is_compacting = True
        elif kind == "compaction_end":
            self.is_compacting = False
            return "no" if self.settles or record.get("willRetry") is True else "maybe"
        elif kind == "agent_end":
            # With `willRetry`, false or true, it is a pi that settles.
            self.settles |= "willRetry" in record
            self.has_ended = True
            return "no" if self.settles or self.is_compacting else "maybe"
        elif kind == "auto_retry_end" and record.get("success") is False and not self.settles:
            return "yes"  # it has given up
        elif kind == "turn_end" and text(record, "message", "stopReason") in _LAST:
            self.has_ended = True  # whatever the next record is called
            return "no"
        is_quiet = self.has_ended and not self.settles and not self.is_compacting
        return "maybe" if is_quiet else "no"

    def confirmed_key(self, record: dict[str, Any]) -> str:
        """The key of a message that is part of the conversation. pi first reports, with the key,
        that it accepted the message, and later, without it, that the model got it."""
        if record.get("command") == "prompt" and record.get("success") is True:
            self.taken.append(text(record, "id"))
        elif record.get("type") == "message_end" and text(record, "message", "role") == "user":
            return self.taken.pop(0) if self.taken else ""
        return ""


def session_file(session_id: str, env: Env, cwd: str) -> str:
    """`<folder>/<time>_<id>.jsonl`, below its home or where the user put it."""
    if not is_id(session_id):
        return ""
    for place in homes("pi", env):
        for files in (f"*_{session_id}.jsonl", f"*/*_{session_id}.jsonl"):
            if found := glob(os.path.join(escape(place), files)):
                return found[0]
    return ""


DRIVE = Drive(
    agent="pi",
    find=_find,
    install="npm install -g @earendil-works/pi-coding-agent",
    launch=_launch,
    talks=True,
    say=_say,
    interrupt=b'{"type":"abort"}\n',
    works_on_compacted=True,
    halt_chars=_HALT_CHARS,
    watch=_Watch,
    refuses=_refuses,
    session_file=session_file,
    permissions=PERMISSIONS,
    login=login,
    instructions=("AGENTS.md", "CLAUDE.md"),
    first_instructions_only=True,
    repeatable=frozenset({"--extension", "--skill", "--prompt-template", "--theme"}),
    same_flags={"-e": "--extension"},
)
