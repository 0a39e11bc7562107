"""opencode over `opencode serve`: `opencode/bridge` turns it into a process that reads and writes
lines."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from glob import escape, glob
from pathlib import Path
from typing import Any

from segue.agents.contracts.drive import Drive, Env, Launch, LegOrder, Over, StreamWatch
from segue.agents.installed import ARCH, SYSTEM, command
from segue.agents.opencode.login import login
from segue.agents.opencode.permissions import PERMISSIONS
from segue.agents.shared.drive import ENDS, OURS, homes
from segue.agents.shared.fields import obj, text

BRIDGE = Path(__file__).with_name("bridge.py")
_DATABASES = "opencode*.db"
_FOR_PROMPTS = {"-m": "model", "--model": "model", "--agent": "agent", "--variant": "variant"}
_FOR_SERVER = {"--print-logs": False, "--pure": False, "--log-level": True}  # has it a value?
_TAKEN = "it takes --model, --agent, --variant, --log-level, --print-logs and --pure"
_REFUSED = {
    **dict.fromkeys(("--format", "--port", "--hostname", "--attach"), OURS),
    **dict.fromkeys(("--session", "-s", "--continue", "-c", "--fork"), OURS),
    **dict.fromkeys(("--help", "-h", "--version", "-v"), ENDS),
    "--auto": 'set "permission" in its config instead',
}


def files() -> tuple[str, ...]:
    """The binaries that this machine can run, as patterns below a node_modules folder, the best
    first."""
    plain, old = f"opencode-{SYSTEM}-{ARCH}", f"opencode-{SYSTEM}-{ARCH}-baseline"
    names = (plain, old) if (SYSTEM, ARCH) != ("linux", "x64") or _has_avx2() else (old,)
    return tuple(f"{name}{libc}/bin/opencode" for name in names for libc in ("", "-musl"))


def _has_avx2() -> bool:
    try:
        return " avx2 " in Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False


def _find(env: Env) -> tuple[str, ...] | None:
    return command("opencode", files(), env)


def _launch(order: LegOrder) -> Launch:
    named, server = _sorted(order.flags)
    if order.session_id:
        named["session"] = order.session_id
    options = [word for name, value in named.items() for word in (f"--{name}", value)]
    return Launch(
        argv=(sys.executable, "-I", "-S", str(BRIDGE), *options, "--", *order.command, *server),
        input=_say(order.prompt, "first"),
        stays_open=True,
        session_id=order.session_id,
    )


def _say(words: str, key: str) -> bytes:
    return json.dumps({"type": "prompt", "text": words, "key": key}).encode() + b"\n"


def _sorted(flags: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The flags for each prompt, and those for the server. ValueError names a flag that cannot be
    accepted."""
    prompts: dict[str, str] = {}
    server: list[str] = []
    words: Iterator[str] = iter(flags)
    for word in words:
        flag, equals, value = word.partition("=")
        if not word.startswith("-"):
            raise ValueError(f"{word!r} is not a flag: the task goes before `--`")
        if flag not in _FOR_PROMPTS and flag not in _FOR_SERVER:
            why = _REFUSED.get(flag, _TAKEN)
            raise ValueError(f"{flag} cannot be passed on to the agent: {why}")
        if flag in _FOR_PROMPTS or _FOR_SERVER[flag]:
            value = value if equals else next(words, "")
            if not value:
                raise ValueError(f"{flag} needs a value")
        if flag in _FOR_PROMPTS:
            prompts[_FOR_PROMPTS[flag]] = value
        else:
            server.append(f"{flag}={value}" if value else flag)
    if not all(prompts.get("model", "provider/model").partition("/")):
        raise ValueError("write --model as provider/model")
    return prompts, server


def _refuses(flags: Sequence[str]) -> str:
    try:
        _sorted(flags)
    except ValueError as error:
        return str(error)
    return ""


class _Watch(StreamWatch):
    """A turn ends when the session is idle. A question also ends it, because nobody is there to
    answer; and so does a wait of over a minute, because waiting is segue's job."""

    def __init__(self) -> None:
        self.session_id = ""
        self.is_idle = False
        self._taken: dict[str, str] = {}  # keys of messages, by the message that contains them
        self._read: list[str] = []

    def over(self, record: dict[str, Any]) -> Over:
        kind = text(record, "type")
        if kind == "bridge.session":
            self.session_id = text(record, "properties", "id")
        elif text(record, "properties", "sessionID") == self.session_id:  # no sub-agent's
            status = (
                text(record, "properties", "status", "type") if kind == "session.status" else ""
            )
            if status == "busy":
                self.is_idle = False
            elif "idle" in (kind.removeprefix("session."), status) and not self.is_idle:
                # After an abort, and in versions with both records, it says so twice.
                self.is_idle = True
                return "yes"
        if kind == "bridge.error":
            return "yes" if text(record, "properties", "about") == "prompt" else "no"
        return "yes" if kind in _OVER else "no"

    def confirmed_key(self, record: dict[str, Any]) -> str:
        """The key of a message that the model has read. The server accepts messages at once, but
        only the first reply to them shows that they were read: a reply in progress does not know
        them. `parentID` says what a reply answers."""
        part, info = (obj(record, "properties", key) for key in ("part", "info"))
        if key := text(part, "metadata", "segue"):
            self._taken[text(part, "messageID")] = key
        if text(info, "role") == "assistant" and (parent := text(info, "parentID")) in self._taken:
            for message in list(self._taken):
                self._read.append(self._taken.pop(message))
                if message == parent:
                    break
        return self._read.pop(0) if self._read else ""


_OVER = {"permission.asked", "question.asked", "bridge.idle", "bridge.long_wait"}


def session_file(session_id: str, env: Env, cwd: str) -> str:
    """The database that contains the session. Versions of another channel have their own."""
    from segue.sessions import database

    places = homes("opencode", env)
    found = [file for place in places for file in glob(os.path.join(escape(place), _DATABASES))]
    for file in found if session_id else ():
        try:
            if any(row.session_id == session_id for row in database.sessions(file)):
                return file
        except database.Unreadable:
            continue
    return ""


DRIVE = Drive(
    agent="opencode",
    find=_find,
    install="npm install -g opencode-ai",
    launch=_launch,
    talks=True,
    size_after_tools=True,
    say=_say,
    interrupt=b'{"type":"abort"}\n',
    works_on_compacted=True,
    watch=_Watch,
    refuses=_refuses,
    session_file=session_file,
    permissions=PERMISSIONS,
    login=login,
    instructions=("AGENTS.md", "CLAUDE.md"),
    first_instructions_only=True,
    same_flags={"-m": "--model"},
)
