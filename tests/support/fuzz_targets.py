"""What is fuzzed: everything that reads what others wrote."""

import contextlib
import json
import os
import socket
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import msgspec

from segue import agents, api
from segue.agents import terminals
from segue.agents.contracts.profile import Record
from segue.agents.shared.live import Live
from segue.core.handoffs import document
from segue.core.policy import Policy
from segue.core.stops.types import Stop
from segue.core.terminals.screen import PaneCapture
from segue.errors import SegueError
from segue.mcp.answers import Answers
from segue.sessions.follow import cursor
from segue.watch.server import hooks
from segue.watch.server.connection import ClientGone, Connection
from segue.watch.server.remote import NoDaemon
from segue.watch.server.sockets import Door
from support.fuzzing import DATA, Target

_WIDTH = 100


@lru_cache
def recordings(agent: str) -> Sequence[bytes]:
    """What its real processes printed."""
    file = DATA / "recordings" / f"{agent}.jsonl"
    if not file.exists():
        return (b"{}\n",)
    rows = [json.loads(line) for line in file.read_bytes().splitlines()]
    found = [str(row.get("stdout") or row.get("stderr") or "") for row in rows]
    return [text.encode(errors="surrogatepass")[:20_000] for text in found if text][:40]


def parse(agent: str, data: bytes) -> None:
    """A parser raises nothing itself, and a stream says the same in pieces as in one."""
    profile = agents.find(agent)
    assert profile is not None
    lines = data.splitlines()
    records = []
    for number, line in enumerate(lines):
        with contextlib.suppress(msgspec.DecodeError, ValueError, RecursionError):
            found = msgspec.json.decode(line)
            if isinstance(found, dict):
                records.append(Record(found, f"stdout:{number}"))
    for _ in profile.parse(iter(records)):
        pass
    whole, pieces = Live(profile), Live(profile)
    at_once = [*whole.feed(lines), *whole.close()]
    one_by_one = [event for line in lines for event in pieces.feed([line])] + pieces.close()
    assert [type(event) for event in at_once] == [type(event) for event in one_by_one]
    assert (whole.replies, whole.calls) == (pieces.replies, pieces.calls)


def classify(data: bytes) -> None:
    """Any text has a verdict, always the same."""
    first = api.classify(stdout=data, exit_code=1)
    assert isinstance(first, Stop)
    assert 0.0 <= first.confidence <= 1.0


def follow(data: bytes) -> None:
    """A file that grows, is cut off or replaced, in whatever portions it is read: in the end the
    lines are those that it has. Each line of the input is one thing that happens to it."""
    file, number = b"", 1
    read = cursor.Cursor(identity=(1, 1))
    lines: list[bytes] = []
    for place, act in enumerate(data.split(b"\n")[:60]):
        kind, more = act[:1], act[1:]
        if kind == b"-":
            file = file[: len(more) * 7]
        elif kind == b"=":
            file, number = more.replace(b"|", b"\n"), number + 1
        else:
            file += more.replace(b"|", b"\n")
        stamp = cursor.FileStamp((1, number), len(file), place)
        for _ in range(3):
            got = cursor.advance(read, stamp, file[: cursor.HEAD_BYTES], file[read.read_from :])
            if isinstance(got, cursor.Grown):
                lines += got.lines
                break
            lines = []
    whole = file.split(b"\n")[:-1]
    assert lines[-1:] == whole[-1:]
    assert len(lines) == len(whole)


@lru_cache
def screens() -> Sequence[bytes]:
    """Real ones, as tmux shows them."""
    found = []
    for file in sorted((DATA / "screens").glob("*/*.json")):
        rows = json.loads(file.read_text())["rows"]
        found.append("\n".join(str(row) for row in rows.values()).encode())
    return found


def read_screen(agent: str, data: bytes) -> None:
    """A screen that is not understood is unknown; nothing raises."""
    terminal = terminals.find(agent)
    assert terminal is not None
    lines = tuple(data.decode("utf-8", "replace").split("\n")[:60])
    row = data[0] % (len(lines) + 2) if data else 0
    column = data[-1] if data else 0
    for is_alternate in (True, False):
        terminal.read(PaneCapture(lines, lines, (column, row), _WIDTH, alternate=is_alternate))


_REQUEST = b"POST /v1/hook HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"


def http(data: bytes) -> None:
    """Whatever a client sends, it is refused, gone or a whole request."""
    ours, theirs = socket.socketpair()
    listener = socket.socket()
    try:
        link = Connection(ours, Door(listener), 0.0, 5.0)
        for begin in range(0, len(data), 1_000):
            theirs.send(data[begin : begin + 1_000])
            with contextlib.suppress(ClientGone):
                if _read(link):
                    return
            assert link.held_bytes < 3_000_000
    finally:
        for each in (ours, theirs, listener):
            each.close()


def _read(link: Connection) -> bool:
    from segue.watch.server.api import ApiRefusal

    refused = None
    try:
        return link.read(0.0)
    except ApiRefusal as why:
        refused = why
    assert 400 <= refused.status < 500
    return True


@lru_cache
def events() -> Sequence[bytes]:
    """What claude's hooks were given."""
    files = sorted((DATA / "hooks").glob("*.jsonl"))
    return [line for file in files for line in file.read_bytes().splitlines()][:80]


class _Texts:
    """Whatever is asked for."""

    def __getattr__(self, name: str) -> Any:
        return lambda *given, **named: name


def hook(data: bytes) -> None:
    """Any event gets an answer that can be printed."""
    try:
        event: Any = msgspec.json.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return
    if not isinstance(event, dict):
        return
    reply = hooks.answer(event, None, Policy(), _Texts())
    hooks.answer(event, hooks.HookView(), Policy(), _Texts(), reply.memory)
    hooks.file_named(event)
    if reply.body is not None:
        json.dumps(reply.body)


def read_document(data: bytes) -> None:
    """A document is valid or there is a reason why not; what segue adds keeps it one."""
    text = data.decode("utf-8", "replace")
    document.check(text)
    document.says_nothing_left(text)
    document.recorded(text)
    document.names_in(text)


def ask(data: bytes) -> None:
    """What an agent asks by MCP has an answer, or one line that says why not."""
    name, _, rest = data.decode("utf-8", "surrogateescape").partition("\n")
    asked = Answers(env=dict(os.environ), remote=_no_daemon)
    for call in (
        lambda: asked.context_status(name),
        lambda: asked.fits(prompt=rest, session=name),
        lambda: asked.fits(tokens=len(data) * 1_000, session=name),
        lambda: asked.document(name),
        lambda: asked.write_handoff(rest, name),
        lambda: asked.request_handoff(rest, name),
    ):
        try:
            said: Any = call()
        except SegueError as fault:
            said = str(fault)
            assert "\n" not in said
        str(said).encode("utf-8", "surrogateescape")


def _no_daemon() -> Any:
    raise NoDaemon("no daemon")


_DOCUMENTS = (
    b"# Handoff\n\n## Goal\nAll.\n\n## Done\n- x\n\n## Remaining Tasks\n- y\n",
    b"---\nagent: claude\n---\n```\n## Goal\n```\n",
)
_ACTS = (b"+one|two|th\n+ree|\n-\n=new|\n+more|", b"+a|\n-x\n+b|\n=\n+c")
TARGETS = (
    *(
        Target(f"parse-{name}", partial(recordings, name), partial(parse, name), "segue/agents/")
        for name in ("claude", "codex", "gemini", "opencode", "pi", "qwen")
    ),
    Target("classify", partial(recordings, "claude"), classify, "segue/core/stops/"),
    Target("follow", lambda: _ACTS, follow, "segue/sessions/follow/"),
    *(
        Target(f"screen-{name}", screens, partial(read_screen, name), "segue/agents/")
        for name in ("claude", "codex", "opencode")
    ),
    Target("http", lambda: (_REQUEST, b"GET / HTTP/1.1\r\n\r\n"), http, "segue/watch/server/"),
    Target("hook", events, hook, "segue/watch/server/"),
    Target("mcp", lambda: [b"s1\n" + each for each in _DOCUMENTS], ask, "segue/mcp/", 5),
    Target("document", lambda: _DOCUMENTS, read_document, "segue/core/handoffs/"),
)
