"""What claude runs for its hooks and its status line: asks the daemon, and is gone.

Started as `python -I -S client.py hook SOCKET EVENT` or `… statusline SOCKET - [FORMER]`, a hundred
times an hour: so one file, no module of the standard library that is not built in, and no way to
fail. A hook without an answer says nothing and ends with 0. `setup` writes these words; see
docs/claude.md.

Which policy counts, and so which zone it is, is unknown here: without the daemon `segue statusline`
is run, which knows; if that takes too long, the line has no zone. FORMER is a file with the command
that was the status line before: its output stays first.
"""

import posix
import sys
from time import monotonic, time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket

HOOK_S = 1.0
LINE_S = 0.4  # then it is made without the daemon: a line that comes late is not shown at all
ALONE_S = 1.5  # for that
MOST_S = {"hook": 1.3, "statusline": 3.0}  # whatever happens, and whatever the former one does
MOST_BYTES = 4_000_000
SPOOL_BYTES = 1_000_000
SPOOLED = ("SessionEnd", "StopFailure")
"""What nothing else tells later: kept for the daemon, if it does not answer."""

BARS = 10
COLOURS = {"normal": 32, "monitor": 36, "warning": 33, "critical": 35, "handoff": 31}
_USAGE = (
    "input_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "output_tokens",
)
_LARGE_WINDOW = 1_000_000


class Late(Exception):  # noqa: N818 - not an error
    """The time is up."""


def main(argv: "list[str]") -> int:
    """Does what `argv` says; returns the exit code, 0 or 2."""
    kind, place, told = argv[1:4]
    _set_timer(MOST_S[kind])
    if b"SEGUE_RUN" in posix.environ:
        # A run has its own eyes, and leads its sessions itself: nothing is said between them.
        return 0
    given = _read(0)
    if kind == "hook":
        return _hook(place, told, given)
    _line(place, given, argv[4] if len(argv) > 4 else "")
    return 0


def _hook(place: str, event: str, given: bytes) -> int:
    said = ask(place, "/v1/hook", given, HOOK_S) if len(given) <= MOST_BYTES else None
    if said is None:
        if event in SPOOLED:
            _spool(place + ".hooks", given)
        return 0
    code, body = said
    _write(2 if code else 1, body)  # what goes with a 2 is read from stderr
    return code


def _line(place: str, given: bytes, former: str) -> None:
    pid, pipe = _start("/bin/sh", ["sh", former], given) if former else (0, -1)
    color = b"NO_COLOR" not in posix.environ
    width = posix.environ.get(b"COLUMNS", b"")
    columns = int(width) if width.isdigit() and len(width) < 6 else 0
    said = ask(place, "/v1/statusline", with_terminal(given, columns, color), LINE_S)
    own = said[1] if said is not None and said[1] else _line_alone(given)
    own = own or local_line(given, color)
    before = b""
    try:
        if pipe >= 0:
            before = _read(pipe)
    except Late:
        posix.killpg(pid, 9)
    if before and not before.endswith(b"\n"):
        before += b"\n"
    _write(1, before + own.rstrip(b"\n") + b"\n")


def _line_alone(given: bytes) -> bytes:
    """The output of `segue statusline` without the daemon; b"" if there is none in time. Nothing
    is imported from the folder that claude works in (-P)."""
    words = [sys.executable, "-P", "-m", "segue", "statusline", "--no-daemon"]
    pid, pipe = _start(sys.executable, words, given)
    own = b""
    try:
        if pipe >= 0:
            _set_timer(ALONE_S)
            own = _read(pipe)
    except Late:
        posix.killpg(pid, 9)
    _set_timer(MOST_S["statusline"] - LINE_S - ALONE_S)
    return own


def ask(place: str, route: str, body: bytes, patience_s: float) -> "tuple[int, bytes] | None":
    """The daemon's answer: exit code and text. None if the daemon is missing, too slow, or
    cannot answer."""
    from _socket import AF_UNIX, SOCK_STREAM, socket

    until = monotonic() + patience_s
    head = f"POST {route} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    line = socket(AF_UNIX, SOCK_STREAM)
    try:
        if not is_own_folder(place):
            return None
        line.settimeout(patience_s)
        line.connect(place)
        if peer_uid(line) != posix.getuid():  # what was at the path a moment ago says nothing
            return None  # nothing is told to a stranger, nor believed
        line.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        got = b""
        while len(got) <= MOST_BYTES:
            line.settimeout(max(0.001, until - monotonic()))
            more = line.recv(65536)
            got += more
            answer = _answer(got, not more)
            if answer is not None or not more:
                return answer
    except (OSError, ValueError):
        pass
    finally:
        line.close()
    return None


def is_own_folder(place: str) -> bool:
    """Whether nobody else can create something at this path: its folder belongs to this user,
    links included."""
    folder = place.rpartition("/")[0] or ("/" if place.startswith("/") else ".")
    own = posix.getuid()
    info = posix.stat(folder)
    return info.st_uid == own == posix.lstat(folder).st_uid and not info.st_mode & 0o022


def peer_uid(line: "socket") -> int:
    """The user of the process at the other end, according to the kernel; -1 if unknown."""
    if sys.platform == "darwin":
        level, option, length = 0, 1, 76  # SOL_LOCAL, LOCAL_PEERCRED: version, uid, groups
    else:
        level, option, length = 1, 17, 12  # SOL_SOCKET, SO_PEERCRED: pid, uid, gid
    told = line.getsockopt(level, option, length)
    return int.from_bytes(told[4:8], sys.byteorder) if len(told) >= 8 else -1


def _answer(got: bytes, is_all: bool) -> "tuple[int, bytes] | None":
    """The content of an HTTP answer, once it is complete."""
    head, blank, body = got.partition(b"\r\n\r\n")
    if not blank:
        return None
    first, *lines = head.lower().split(b"\r\n")
    words = first.split(b" ")
    if len(words) < 2 or words[1] not in (b"200", b"204"):
        return None
    fields = dict(line.partition(b":")[::2] for line in lines)
    length = fields.get(b"content-length", b"").strip()
    if length.isdigit():
        if len(body) < int(length):
            return None
        body = body[: int(length)]
    elif not is_all:
        return None
    return (2 if fields.get(b"x-exit", b"").strip() == b"2" else 0), body


def local_line(given: bytes, color: bool) -> bytes:
    """The gauge from claude's own numbers; missing numbers are not invented."""
    return head(fullness_of(parsed(given))[0], "", color=color).encode()


def parsed(given: bytes) -> "dict[str, object]":
    """A JSON object, without the cost of `json`; {} if it is not one."""
    try:
        text = given.decode("utf-8", "replace").strip()
        try:
            from _json import make_scanner

            found = make_scanner(_Plain())(text, 0)[0]  # type: ignore[arg-type]
        except (ImportError, AttributeError, TypeError):  # not as this interpreter has it
            from json import loads

            found = loads(text)
    except (ValueError, StopIteration, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


class _Plain:
    """What the scanner needs from its decoder."""

    strict = False
    object_hook = None
    object_pairs_hook = None
    array_hook = None  # since 3.15
    parse_float = float
    parse_int = float  # an int of five thousand digits would raise
    parse_constant = float
    memo: "dict[str, str]" = {}  # noqa: RUF012 - asked for by older interpreters


def fullness_of(payload: "dict[str, object]") -> "tuple[float | None, float]":
    """How full the window is (input, cache and the last reply), and how large; 0 if unknown. The
    first is None as long as claude reports neither tokens nor a percentage, as before the
    first reply."""
    window = payload.get("context_window")
    if not isinstance(window, dict):
        return None, 0.0
    usage, size = window.get("current_usage"), number(window.get("context_window_size")) or 0.0
    used = 0.0
    if isinstance(usage, dict):
        used = sum(number(usage.get(name)) or 0.0 for name in _USAGE)
    if used and size:
        # More than fits was accepted: the size told is that of another model.
        size = max(size, _LARGE_WINDOW if used > size else 0.0)
        return used / size, size
    percent = number(window.get("used_percentage"))
    return (None if percent is None else percent / 100), size


def number(value: object) -> "float | None":
    """A usable number."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < 1e15 else None  # type: ignore[operator, arg-type]


def head(fraction: "float | None", zone: str, *, color: bool) -> str:
    """The gauge: how full, and which zone. The same with and without the daemon."""
    if fraction is None:
        return paint("░" * BARS, 2, color) + " context unknown"
    filled = min(BARS, int(fraction * BARS + 0.5))
    code = COLOURS.get(zone, 32)
    said = f" {fraction * 100:.0f}%{' ' if zone else ''}{zone}"
    empty = paint("░" * (BARS - filled), 2, color) if filled < BARS else ""
    return (paint("█" * filled, code, color) if filled else "") + empty + paint(said, code, color)


def paint(text: str, code: int, color: bool) -> str:
    """Colours the text, if allowed."""
    return f"\x1b[{code}m{text}\x1b[0m" if color else text


def with_terminal(given: bytes, columns: int, color: bool) -> bytes:
    """The payload, plus what only the client knows: the width, and whether to use colour."""
    start = given.lstrip()
    rest = start[1:].lstrip()
    if not start.startswith(b"{") or rest.startswith(b"}"):
        return given
    wished = b"true" if color else b"false"
    return b'{"segue":{"columns":%d,"color":%s},' % (columns, wished) + rest


def _start(program: str, words: "list[str]", given: bytes) -> "tuple[int, int]":
    """Starts a command: returns its group, and where its output can be read, or -1. Its other
    output is not kept: waiting for that would mean waiting for everything it starts."""
    try:
        taken, filled = posix.pipe()
        heard, said = posix.pipe()
        posix.write(filled, given[:60_000])  # less than a pipe holds: it never waits
        posix.close(filled)
        pid = posix.posix_spawn(
            program,
            words,
            posix.environ,
            file_actions=[
                (posix.POSIX_SPAWN_DUP2, taken, 0),
                (posix.POSIX_SPAWN_DUP2, said, 1),
                (posix.POSIX_SPAWN_OPEN, 2, "/dev/null", posix.O_WRONLY, 0),
            ],
            setpgroup=0,
            setsigdef=[13],  # SIGPIPE, which Python ignores
        )
        posix.close(said)
    except OSError:
        return 0, -1
    return pid, heard


def _spool(path: str, given: bytes) -> None:
    """Stores an event, with its time, on one line."""
    one_line = given.replace(b"\n", b" ").replace(b"\r", b" ")
    try:
        if not is_own_folder(path):
            return  # a stranger's folder, in a place that is everybody's
        flags = posix.O_WRONLY | posix.O_APPEND | posix.O_CREAT | posix.O_CLOEXEC
        flags |= posix.O_NOFOLLOW | posix.O_NONBLOCK  # a link leads elsewhere, a pipe has no reader
        handle = posix.open(path, flags, 0o600)
        if posix.fstat(handle).st_size + len(one_line) < SPOOL_BYTES:
            posix.write(handle, b'{"at":%.3f,"event":%s}\n' % (time(), one_line))
        posix.close(handle)
    except OSError:
        pass  # no daemon was ever here


def _read(handle: int) -> bytes:
    parts = []
    while part := posix.read(handle, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def _write(handle: int, data: bytes) -> None:
    while data:
        data = data[posix.write(handle, data) :]


def _set_timer(max_s: float) -> None:
    """Limits the time for an input that never ends or a command that hangs."""
    import _signal  # type: ignore[import-not-found]

    def late(number: int, frame: object) -> None:
        raise Late

    _signal.signal(_signal.SIGALRM, late)
    _signal.setitimer(_signal.ITIMER_REAL, max_s)


if __name__ == "__main__":
    try:
        code = main(sys.argv)
    except BaseException:
        code = 0
    posix._exit(code)  # nothing is to be put in order first
