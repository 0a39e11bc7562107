"""What claude runs for its hooks and its status line: asks the daemon, and is gone.

Started as `python -I -S client.py hook SOCKET EVENT` or `… statusline SOCKET MARKS [FORMER]`, a
hundred times an hour: so one file, no module of the standard library that is not built in, and no
way to fail. A hook without an answer says nothing and ends with 0; without the daemon the status
line is made of what claude itself tells. `setup` writes these words; see docs/claude.md.

MARKS are the fractions at which zones begin ("0.3,0.5,0.7,0.85"), so that no config is read. FORMER
is a file with the command that was the status line before: its output stays first.
"""

import posix
import sys
from time import monotonic, time

HOOK_S = 1.0
LINE_S = 0.4  # then it is made here: a line that comes late is not shown at all
MOST_S = {"hook": 1.3, "statusline": 3.0}  # whatever happens, and whatever the former one does
MOST_BYTES = 4_000_000
SPOOL_BYTES = 1_000_000
SPOOLED = ("SessionEnd", "StopFailure")
"""What nothing else tells later: kept for the daemon, if it does not answer."""

BARS = 10
ZONES = ("normal", "monitor", "warning", "critical", "handoff")
COLOURS = {"normal": 32, "monitor": 36, "warning": 33, "critical": 35, "handoff": 31}
USUAL_MARKS = (0.3, 0.5, 0.7, 0.85)
_USAGE = (
    "input_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "output_tokens",
)
_LARGE_WINDOW = 1_000_000


class Late(Exception):  # noqa: N818 - not an error
    """The time is over."""


def main(argv: "list[str]") -> int:
    """Does what `argv` says; the exit code, 0 or 2."""
    kind, place, told = argv[1:4]
    _set_timer(MOST_S[kind])
    if b"SEGUE_RUN" in posix.environ:
        # A run has its own eyes, and leads its sessions itself: nothing is said between them.
        return 0
    given = _read(0)
    if kind == "hook":
        return _hook(place, told, given)
    _line(place, told, given, argv[4] if len(argv) > 4 else "")
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


def _line(place: str, marks: str, given: bytes, former: str) -> None:
    pid, pipe = _start(former, given) if former else (0, -1)
    color = b"NO_COLOR" not in posix.environ
    width = posix.environ.get(b"COLUMNS", b"")
    columns = int(width) if width.isdigit() and len(width) < 6 else 0
    said = ask(place, "/v1/statusline", with_terminal(given, columns, color), LINE_S)
    own = said[1] if said is not None and said[1] else local_line(given, marks, color)
    before = b""
    try:
        if pipe >= 0:
            before = _read(pipe)
    except Late:
        posix.killpg(pid, 9)
    if before and not before.endswith(b"\n"):
        before += b"\n"
    _write(1, before + own.rstrip(b"\n") + b"\n")


def ask(place: str, route: str, body: bytes, patience_s: float) -> "tuple[int, bytes] | None":
    """The daemon's answer: exit code and text. None if it is not there, too slow, or at a loss."""
    from _socket import AF_UNIX, SOCK_STREAM, socket

    until = monotonic() + patience_s
    head = f"POST {route} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    line = socket(AF_UNIX, SOCK_STREAM)
    try:
        if posix.stat(place).st_uid != posix.getuid():
            return None  # nothing is told to a stranger, nor believed
        line.settimeout(patience_s)
        line.connect(place)
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


def _answer(got: bytes, is_all: bool) -> "tuple[int, bytes] | None":
    """What an HTTP answer says, once all of it is there."""
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


def local_line(given: bytes, marks: str, color: bool) -> bytes:
    """Gauge and zone by claude's own numbers; what they don't tell is not made up."""
    payload = parsed(given)
    fraction = fraction_of(payload)
    limits = marks_of(marks)
    zone = "" if fraction is None else zone_at(fraction, limits)
    return head(fraction, zone, color=color).encode()


def parsed(given: bytes) -> "dict[str, object]":
    """A JSON object, without the cost of `json`; {} if it is none."""
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
    """What the scanner asks its decoder for."""

    strict = False
    object_hook = None
    object_pairs_hook = None
    array_hook = None  # since 3.15
    parse_float = float
    parse_int = float  # an int of five thousand digits would raise
    parse_constant = float
    memo: "dict[str, str]" = {}  # noqa: RUF012 - asked for by older interpreters


def fraction_of(payload: "dict[str, object]") -> "float | None":
    """How full the window is: input, cache and the last reply. None as long as claude tells
    neither tokens nor a percentage, as before the first reply."""
    window = payload.get("context_window")
    if not isinstance(window, dict):
        return None
    usage, size = window.get("current_usage"), number(window.get("context_window_size"))
    used = 0.0
    if isinstance(usage, dict):
        used = sum(number(usage.get(name)) or 0.0 for name in _USAGE)
    if used and size:
        # More than fits was accepted: the size told is that of another model.
        return used / max(size, _LARGE_WINDOW if used > size else 0.0)
    percent = number(window.get("used_percentage"))
    return None if percent is None else percent / 100


def number(value: object) -> "float | None":
    """A number that can be counted with."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < 1e15 else None  # type: ignore[operator, arg-type]


def marks_of(text: str) -> "tuple[float, ...]":
    """The four marks; the usual ones if they cannot be read."""
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        return USUAL_MARKS
    return found if len(found) == 4 else USUAL_MARKS


def zone_at(fraction: float, marks: "tuple[float, ...]") -> str:
    """The zone; a handoff mark above 1 is never reached."""
    zone = ZONES[0]
    for name, mark in zip(ZONES[1:], marks):  # noqa: B905 - four each
        if fraction >= mark and not (name == "handoff" and mark > 1):
            zone = name
    return zone


def head(fraction: "float | None", zone: str, *, color: bool) -> str:
    """The gauge: how full, and which zone. With and without the daemon it is the same."""
    if fraction is None:
        return paint("░" * BARS, 2, color) + " context not known yet"
    filled = min(BARS, int(fraction * BARS + 0.5))
    code = COLOURS.get(zone, 32)
    said = f" {fraction * 100:.0f}%{' ' if zone else ''}{zone}"
    empty = paint("░" * (BARS - filled), 2, color) if filled < BARS else ""
    return (paint("█" * filled, code, color) if filled else "") + empty + paint(said, code, color)


def paint(text: str, code: int, color: bool) -> str:
    """In colour, if it may be."""
    return f"\x1b[{code}m{text}\x1b[0m" if color else text


def with_terminal(given: bytes, columns: int, color: bool) -> bytes:
    """The payload, and in it what only the client knows: how wide, and whether in colour."""
    start = given.lstrip()
    rest = start[1:].lstrip()
    if not start.startswith(b"{") or rest.startswith(b"}"):
        return given
    wished = b"true" if color else b"false"
    return b'{"segue":{"columns":%d,"color":%s},' % (columns, wished) + rest


def _start(former: str, given: bytes) -> "tuple[int, int]":
    """Starts the command that was there before: its group, and where its output can be read, or
    -1. What it says besides is not kept: whoever waits for that would wait for all it starts."""
    try:
        taken, filled = posix.pipe()
        heard, said = posix.pipe()
        posix.write(filled, given[:60_000])  # less than a pipe holds: it never waits
        posix.close(filled)
        pid = posix.posix_spawn(
            "/bin/sh",
            ["sh", former],
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
    """Keeps an event, with its time, in one line."""
    one_line = given.replace(b"\n", b" ").replace(b"\r", b" ")
    try:
        if posix.stat(path.rpartition("/")[0] or "/").st_uid != posix.getuid():
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


def _set_timer(most_s: float) -> None:
    """An input that never ends, a command that hangs: nobody waits longer than this."""
    import _signal  # type: ignore[import-not-found]

    def late(number: int, frame: object) -> None:
        raise Late

    _signal.signal(_signal.SIGALRM, late)
    _signal.setitimer(_signal.ITIMER_REAL, most_s)


if __name__ == "__main__":
    try:
        code = main(sys.argv)
    except BaseException:
        code = 0
    posix._exit(code)  # nothing is to be put in order first
