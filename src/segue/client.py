"""The program behind claude's hooks and its status line: asks the daemon, prints, exits.

claude starts it as `python -I -S client.py hook SOCKET EVENT` or `… statusline SOCKET - [FORMER]`,
a hundred times an hour. So it is one file that imports only built-in modules, and it must not fail:
a hook without an answer prints nothing and exits with 0. `setup` writes these command lines; see
docs/claude.md.

The client does not know which policy applies, and so not which zone the session is in. Without the
daemon it runs `segue statusline`, which does, and keeps the line beside the socket: claude asks
several times a second while a reply arrives, and says the same until the reply is complete. If
`segue statusline` takes too long, the line has no zone. FORMER is a file with the user's former
status-line command, whose output stays above segue's.
"""

import posix
import sys
from time import monotonic, time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket

HOOK_S = 1.0
LINE_S = 0.4  # after this, the line is made without the daemon: a late line is not shown at all
ALONE_S = 1.5  # the time for that
KEPT_S = 10.0  # how long a line made without the daemon is good, if claude says the same
KEPT_LINES = 8  # sessions beside each other that have their line kept
LIMIT_S = {"hook": 1.3, "statusline": 3.0}  # in total, the user's former status line included
MAX_BYTES = 4_000_000
SPOOL_BYTES = 1_000_000
SPOOLED = ("SessionEnd", "StopFailure")
"""Events that nothing else reports later: stored for the daemon if it does not respond."""

BARS = 10
COLOURS = {"normal": 32, "monitor": 36, "warning": 33, "critical": 35, "handoff": 31}
_USAGE = (
    "input_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "output_tokens",
)
_LARGE_WINDOW = 1_000_000
_DECISIVE = (
    "session_id",
    "transcript_path",
    "cwd",
    "workspace",
    "model",
    "context_window",
    "rate_limits",
)
"""What a line depends on; the rest of what claude says (costs, durations) changes all the time."""


class Late(Exception):  # noqa: N818 - not an error
    """The time is up."""


def main(argv: "list[str]") -> int:
    """Does what `argv` says; returns the exit code, 0 or 2."""
    kind, socket_path, event = argv[1:4]
    _set_timer(LIMIT_S[kind])
    if b"SEGUE_RUN" in posix.environ:
        # A run watches and leads its sessions itself, so hooks and runs do not interact.
        return 0
    payload = _read(0)
    if kind == "hook":
        return _hook(socket_path, event, payload)
    _line(socket_path, payload, argv[4] if len(argv) > 4 else "")
    return 0


def _hook(socket_path: str, event: str, payload: bytes) -> int:
    answer = ask(socket_path, "/v1/hook", payload, HOOK_S) if len(payload) <= MAX_BYTES else None
    if answer is None:
        if event in SPOOLED:
            _spool(socket_path + ".hooks", payload)
        return 0
    code, body = answer
    _write(2 if code else 1, body)  # with exit code 2, claude reads stderr
    return code


def _line(socket_path: str, payload: bytes, former: str) -> None:
    pid, pipe = _start("/bin/sh", ["sh", former], payload) if former else (0, -1)
    color = b"NO_COLOR" not in posix.environ
    width = posix.environ.get(b"COLUMNS", b"")
    columns = int(width) if width.isdigit() and len(width) < 6 else 0
    answer = ask(socket_path, "/v1/statusline", with_terminal(payload, columns, color), LINE_S)
    own = answer[1] if answer is not None else b""
    own = own or _line_alone(socket_path, payload, columns, color)
    own = own or local_line(payload, color)
    before = b""
    try:
        if pipe >= 0:
            before = _read(pipe)
    except Late:
        posix.killpg(pid, 9)
    if before and not before.endswith(b"\n"):
        before += b"\n"
    _write(1, before + own.rstrip(b"\n") + b"\n")


def _line_alone(socket_path: str, payload: bytes, columns: int, color: bool) -> bytes:
    """The output of `segue statusline` without the daemon, new or kept; b"" if there is none in
    time. Nothing is imported from the folder that claude works in (-P)."""
    said = parsed(payload)
    decisive = [said.get(name) for name in _DECISIVE]
    key = repr((columns, color, decisive)).encode("ascii", "backslashreplace")
    path = f"{socket_path}.line{sum(str(decisive[0]).encode('utf-8', 'replace')) % KEPT_LINES}"
    if own := kept_line(path, key, time()):
        return own
    words = [sys.executable, "-P", "-m", "segue", "statusline", "--no-daemon"]
    pid, pipe = _start(sys.executable, words, payload)
    try:
        if pipe >= 0:
            _set_timer(ALONE_S)
            own = _read(pipe)
            if own:
                keep_line(path, key, own)
    except Late:
        posix.killpg(pid, 9)
    _set_timer(LIMIT_S["statusline"] - LINE_S - ALONE_S)
    return own


def kept_line(path: str, key: bytes, now: float) -> bytes:
    """The line that was kept there for this key; b"" if there is none, or it is too old."""
    try:
        if not is_own_folder(path):
            return b""
        flags = posix.O_RDONLY | posix.O_CLOEXEC | posix.O_NOFOLLOW | posix.O_NONBLOCK
        handle = posix.open(path, flags)
        is_new = 0 <= now - posix.fstat(handle).st_mtime < KEPT_S
        data = posix.read(handle, 1 << 16) if is_new else b""
        posix.close(handle)
    except OSError:
        return b""
    first, _, own = data.partition(b"\n")
    return own if first == key else b""


def keep_line(path: str, key: bytes, own: bytes) -> None:
    """Keeps a line, as a whole or not at all."""
    new = path + ".new"
    flags = posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_CLOEXEC | posix.O_NOFOLLOW
    try:
        if not is_own_folder(path):
            return
        try:
            handle = posix.open(new, flags, 0o600)
        except FileExistsError:  # another process is at it, or was killed while it was
            posix.unlink(new)
            return
        data = key + b"\n" + own
        is_whole = posix.write(handle, data) == len(data)
        posix.close(handle)
        if is_whole:
            posix.rename(new, path)
    except OSError:
        pass  # no segue was ever here, or the disk is full


def ask(socket_path: str, route: str, body: bytes, patience_s: float) -> "tuple[int, bytes] | None":
    """The daemon's answer: exit code and text. None if the daemon is missing, too slow, or
    cannot answer."""
    from _socket import AF_UNIX, SOCK_STREAM, socket

    until = monotonic() + patience_s
    head = f"POST {route} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    line = socket(AF_UNIX, SOCK_STREAM)
    try:
        if not is_own_folder(socket_path):
            return None
        line.settimeout(patience_s)
        line.connect(socket_path)
        if peer_uid(line) != posix.getuid():  # what was at the path earlier proves nothing
            return None  # neither sends data to a stranger nor believes one
        line.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        received = b""
        while len(received) <= MAX_BYTES:
            line.settimeout(max(0.001, until - monotonic()))
            more = line.recv(65536)
            received += more
            answer = _answer(received, not more)
            if answer is not None or not more:
                return answer
    except (OSError, ValueError):
        pass
    finally:
        line.close()
    return None


def is_own_folder(socket_path: str) -> bool:
    """Whether nobody else can create something at this path: its folder belongs to this user,
    links included."""
    folder = socket_path.rpartition("/")[0] or ("/" if socket_path.startswith("/") else ".")
    own = posix.getuid()
    info = posix.stat(folder)
    return info.st_uid == own == posix.lstat(folder).st_uid and not info.st_mode & 0o022


def peer_uid(line: "socket") -> int:
    """The user of the process at the other end, according to the kernel; -1 if unknown."""
    if sys.platform == "darwin":
        level, option, length = 0, 1, 76  # SOL_LOCAL, LOCAL_PEERCRED: version, uid, groups
    else:
        level, option, length = 1, 17, 12  # SOL_SOCKET, SO_PEERCRED: pid, uid, gid
    credentials = line.getsockopt(level, option, length)
    return int.from_bytes(credentials[4:8], sys.byteorder) if len(credentials) >= 8 else -1


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


def local_line(payload: bytes, color: bool) -> bytes:
    """The gauge from claude's own numbers; missing numbers are not invented."""
    return head(fullness_of(parsed(payload))[0], "", color=color).encode()


def parsed(payload: bytes) -> "dict[str, object]":
    """A JSON object, without the cost of `json`; {} if it is not one."""
    try:
        text = payload.decode("utf-8", "replace").strip()
        try:
            from _json import make_scanner

            found = make_scanner(_Plain())(text, 0)[0]  # type: ignore[arg-type]
        # not in the form that this interpreter expects
        except (ImportError, AttributeError, TypeError):
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
        # More than fits was accepted: the stated size belongs to another model.
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
    text = f" {fraction * 100:.0f}%{' ' if zone else ''}{zone}"
    empty = paint("░" * (BARS - filled), 2, color) if filled < BARS else ""
    return (paint("█" * filled, code, color) if filled else "") + empty + paint(text, code, color)


def paint(text: str, code: int, color: bool) -> str:
    """Colours the text, if allowed."""
    return f"\x1b[{code}m{text}\x1b[0m" if color else text


def with_terminal(payload: bytes, columns: int, color: bool) -> bytes:
    """The payload, plus what only the client knows: the width, and whether to use colour."""
    start = payload.lstrip()
    rest = start[1:].lstrip()
    if not start.startswith(b"{") or rest.startswith(b"}"):
        return payload
    colored = b"true" if color else b"false"
    return b'{"segue":{"columns":%d,"color":%s},' % (columns, colored) + rest


def _start(program: str, words: "list[str]", payload: bytes) -> "tuple[int, int]":
    """Starts a command: returns its group, and where its output can be read, or -1. Its other
    output is not kept: waiting for that would mean waiting for everything it starts."""
    try:
        stdin, stdin_writer = posix.pipe()
        output, output_writer = posix.pipe()
        posix.write(stdin_writer, payload[:60_000])  # fits into a pipe, so this never blocks
        posix.close(stdin_writer)
        pid = posix.posix_spawn(
            program,
            words,
            posix.environ,
            file_actions=[
                (posix.POSIX_SPAWN_DUP2, stdin, 0),
                (posix.POSIX_SPAWN_DUP2, output_writer, 1),
                (posix.POSIX_SPAWN_OPEN, 2, "/dev/null", posix.O_WRONLY, 0),
            ],
            setpgroup=0,
            setsigdef=[13],  # SIGPIPE, which Python ignores
        )
        posix.close(output_writer)
    except OSError:
        return 0, -1
    return pid, output


def _spool(path: str, payload: bytes) -> None:
    """Stores an event, with its time, on one line."""
    one_line = payload.replace(b"\n", b" ").replace(b"\r", b" ")
    try:
        if not is_own_folder(path):
            return  # another user's folder, in a shared place
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
    posix._exit(code)  # exits without cleaning up
