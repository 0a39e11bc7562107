"""Claude Code with stream-json both ways, so that it can receive messages while it works."""

import json
import os
import re
import shlex
import sys
from collections.abc import Sequence
from glob import escape, glob
from pathlib import Path
from typing import Any

from segue.agents.claude.login import login
from segue.agents.claude.permissions import PERMISSIONS, settings_of
from segue.agents.claude.records import is_result
from segue.agents.contracts.drive import Drive, Env, Launch, LegOrder, Over, StreamWatch
from segue.agents.contracts.permission import values
from segue.agents.installed import ARCH, SYSTEM, command
from segue.agents.shared.drive import (
    ELSEWHERE,
    ENDS,
    NO_SESSION,
    OURS,
    folders_of,
    homes,
    is_id,
    refusal,
)

FILES = (
    f"@anthropic-ai/claude-code-{SYSTEM}-{ARCH}/claude",
    f"@anthropic-ai/claude-code-{SYSTEM}-{ARCH}-musl/claude",
    "@anthropic-ai/claude-code/cli.js",  # before it was native; it names its node itself
)
_STREAM = ("-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose")
_TELLS_BACK = "--replay-user-messages"
_INTERRUPT = {
    "type": "control_request",
    "request_id": "segue-interrupt",
    "request": {"subtype": "interrupt"},
}
HALT = Path(__file__).with_name("halt.py")
_HALT_CHARS = 9_000  # it puts more than 10,000 into a file
_HOOK_S = 30  # after its own patience has ended
_SETTINGS = "settings.json"
_NO_WORD = re.compile(r"[^A-Za-z0-9]")
_APART = "it takes the session out of segue's control"
_REFUSED = {
    "-p": OURS,
    "--print": OURS,
    "--input-format": OURS,
    "--output-format": OURS,
    _TELLS_BACK: OURS,
    "--session-id": OURS,
    "-r": OURS,
    "--resume": OURS,
    "-c": OURS,
    "--continue": OURS,
    "--fork-session": NO_SESSION,
    "--from-pr": NO_SESSION,
    "--no-session-persistence": NO_SESSION,
    "--bg": _APART,
    "--background": _APART,
    "--cloud": _APART,
    "--environment": _APART,
    "--desktop": _APART,
    "--teleport": _APART,
    "--remote-control": _APART,
    "--tmux": _APART,
    "-w": ELSEWHERE,
    "--worktree": ELSEWHERE,
    "-v": ENDS,
    "--version": ENDS,
    "-h": ENDS,
    "--help": ENDS,
}


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode() + b"\n"


def say(text: str, key: str = "") -> bytes:
    """A user message. The key must be a UUID and comes back as the record's `uuid`."""
    message = {"role": "user", "content": [{"type": "text", "text": text}]}
    record: dict[str, Any] = {"type": "user", "message": message, "parent_tool_use_id": None}
    return _line({**record, "uuid": key} if key else record)


def _find(env: Env) -> tuple[str, ...] | None:
    return command("claude", FILES, env)


def _launch(order: LegOrder) -> Launch:
    session = order.session_id or order.new_id
    # The user's flags come first, because a flag with a list would take what follows it.
    argv = [*order.command, *order.flags, *_STREAM, _TELLS_BACK]
    files = {}
    if order.halts and (settings := _halting(order)):
        # In a file, because the user's own may contain what must not be seen in a process list.
        files[_SETTINGS] = json.dumps(settings)
        argv += ["--settings", os.path.join(order.folder, _SETTINGS)]
    if session:
        argv += ["--resume" if order.session_id else "--session-id", session]
    return Launch(
        argv=tuple(argv),
        files=files,
        input=say(order.prompt),
        stays_open=True,
        session_id=session,
    )


def _halting(order: LegOrder) -> dict[str, Any]:
    """Settings with a hook that waits after claude's own compaction; {} if they cannot be combined
    with the user's. claude reads only the last `--settings`, so the user's own are in them too."""
    given = values(order.flags, "--settings")
    own = settings_of(given[-1], order.cwd) if given else {}
    hooks = own.get("hooks", {})
    starts = hooks.get("SessionStart", []) if isinstance(hooks, dict) else None
    if not isinstance(starts, list) or (given and not own):
        return {}
    command = shlex.join([sys.executable, "-I", "-S", str(HALT), order.folder])
    hook = {"type": "command", "command": command, "timeout": _HOOK_S}
    starts = [*starts, {"matcher": "compact", "hooks": [hook]}]
    return {**own, "hooks": {**hooks, "SessionStart": starts}}


class _Watch(StreamWatch):
    """A result ends a turn. Background work may lead to further turns with their own results; the
    process runs until they are over, whether its input is closed or not."""

    def over(self, record: dict[str, Any]) -> Over:
        return "yes" if is_result(record) else "no"

    def confirmed_key(self, record: dict[str, Any]) -> str:
        is_told_back = record.get("type") == "user" and record.get("isReplay") is True
        return str(record.get("uuid") or "") if is_told_back else ""


def _refuses(flags: Sequence[str]) -> str:
    return refusal(flags, _REFUSED)


def session_file(session_id: str, env: Env, cwd: str) -> str:
    """`projects/<slug>/<id>.jsonl`. The slug of a long path is cut, and a session may have started
    in another folder."""
    if not is_id(session_id):
        return ""
    places = homes("claude", env)
    for place in places:
        for folder in folders_of(cwd):
            file = os.path.join(place, "projects", _NO_WORD.sub("-", folder), f"{session_id}.jsonl")
            if os.path.isfile(file):
                return file
    for place in places:
        if found := glob(f"{escape(place)}/projects/*/{session_id}.jsonl"):
            return found[0]
    return ""


def session_place(name: str, env: Env, cwd: str) -> str:
    """The path of a session file in the first home, among the sessions of this folder."""
    if not name.endswith(".jsonl") or not is_id(name.removesuffix(".jsonl")):
        return ""
    slug = _NO_WORD.sub("-", os.path.realpath(cwd))
    return os.path.join(homes("claude", env)[0], "projects", slug, name)


DRIVE = Drive(
    agent="claude",
    find=_find,
    install="npm install -g @anthropic-ai/claude-code",
    launch=_launch,
    talks=True,
    say=say,
    message_adds_bytes=150,
    interrupt=_line(_INTERRUPT),
    works_on_compacted=True,
    halt_chars=_HALT_CHARS,
    watch=_Watch,
    refuses=_refuses,
    session_file=session_file,
    session_place=session_place,
    permissions=PERMISSIONS,
    login=login,
    instructions=("CLAUDE.md", ".claude/CLAUDE.md", "CLAUDE.local.md"),
    repeatable=frozenset(
        {"--allowedTools", "--disallowedTools", "--add-dir", "--mcp-config", "--plugin-dir"}
    ),
    same_flags={"--allowed-tools": "--allowedTools", "--disallowed-tools": "--disallowedTools"},
)
