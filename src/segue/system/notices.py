"""Notifies the user when the user is not looking: through Apprise's services, else the desktop,
else the bell of the daemon's own terminal.

Callers never wait: notices are queued for one thread, and if a service hangs or fails, the only
effect is a note.
"""

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from html import escape
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TextIO

from msgspec import Struct

if TYPE_CHECKING:
    from apprise import NotifyBase

Kind = Literal["stop", "wait", "resume", "handoff", "needs_you", "done"]


class KindFacts(NamedTuple):
    """Everything that follows from the kind of a notice."""

    window_s: float = 300.0
    """For this long, the same notice is not repeated."""
    looks: Literal["info", "success", "warning"] = "info"


KINDS: dict[Kind, KindFacts] = {
    "stop": KindFacts(looks="warning"),
    # a limit is checked again and again until it resets
    "wait": KindFacts(window_s=3_600.0),
    "resume": KindFacts(looks="success"),
    "handoff": KindFacts(),
    "needs_you": KindFacts(window_s=1_800.0, looks="warning"),
    "done": KindFacts(looks="success"),
}
"""A row for each kind."""

_MAX_WAITING = 64
_MAX_CHARS = 2_000
_TERSE_CHARS = 200
_SERVICE_S = 10.0
_LOAD_S = 60.0
_CLOSE_S = 2.0
# A word that contains a separator, or a home: "/a", "~/b", "c/d.py", "C:\\e". Not "5,000/200,000".
_PATH = re.compile(r"(?:~|[A-Za-z]:)?[\w.@+~-]*(?:[/\\][\w.@+~-]*)+")
_SHARE = re.compile(r"[\d.,]+/[\d.,]+")
_PLACE = "…"


class Notice(Struct, frozen=True):
    """What is shown to the user."""

    kind: Kind
    title: str
    body: str


Send = Callable[[Notice], str]
"""Delivers one notice; returns "" if it was sent, otherwise why not, in one line."""


class Notices:
    """Sends each notice once in its window, through the first way that works. Never blocks, never
    raises. With `terse`, no detail, no path and nothing after a first line leaves this machine."""

    def __init__(
        self,
        urls: Sequence[str] = (),
        *,
        terse: bool = True,
        bell: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        environment: Mapping[str, str] | None = None,
        ways: Sequence[Send] | None = None,
    ) -> None:
        self._terse = terse
        self._clock = clock
        self._ways = tuple(make_ways(urls, bell, environment) if ways is None else ways)
        self._sent_at: dict[tuple[Kind, str], float] = {}
        self._waiting: deque[Notice] = deque()
        self._is_sending = self._is_asking = self._is_closed = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self.sent = self.dropped = 0
        self.notes: deque[str] = deque(maxlen=20)
        """The latest failures, one line each, without the secret parts of a URL."""

    def tell(self, kind: Kind, key: str, title: str, body: str = "", *, detail: str = "") -> bool:
        """Queues a notice, and returns whether it did: not if the same `key` was sent as this kind
        within its window, if the queue is full, or after `close`. `detail` may name paths and quote
        sessions."""
        now = self._clock()
        with self._changed:
            self._sent_at = {k: at for k, at in self._sent_at.items() if _is_fresh(k[0], now - at)}
            if self._is_closed or (kind, key) in self._sent_at:
                return False
            if len(self._waiting) >= _MAX_WAITING:
                self.dropped += 1
                return False
            self._sent_at[kind, key] = now
            self._waiting.append(make_notice(kind, title, body, detail, terse=self._terse))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="notices", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return True

    @property
    def has_ways(self) -> bool:
        """Whether there is any way to send it."""
        return bool(self._ways)

    def wait(self, timeout_s: float) -> bool:
        """Waits for everything queued, but for no service longer than this; returns whether all of
        it was sent or has failed. What this process itself needs first does not count, because that
        takes longer on a busy machine."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_idle() or self._is_asking, _LOAD_S)
            return self._changed.wait_for(self._is_idle, timeout_s)

    def close(self, patience_s: float = _CLOSE_S) -> None:
        """Accepts nothing more, and waits at most this long for queued notices."""
        with self._changed:
            self._is_closed = True
            self._changed.wait_for(self._is_idle, patience_s)
            self.dropped += len(self._waiting)
            self._waiting.clear()
            self._changed.notify_all()

    def _is_idle(self) -> bool:
        return not self._waiting and not self._is_sending

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_closed)
                if not self._waiting:
                    return
                notice, self._is_sending = self._waiting.popleft(), True
            for way in self._ways:
                if isinstance(way, Services):
                    with suppress(Exception):  # sending it will show what is wrong
                        way.load()
            with self._changed:
                self._is_asking = True
                self._changed.notify_all()
            went_out = self._send(notice)
            with self._changed:
                self.sent += went_out
                self._is_sending = self._is_asking = False
                self._changed.notify_all()

    def _send(self, notice: Notice) -> bool:
        for way in self._ways:
            try:
                why = way(notice)
            # a service's own code: whatever it raises, the others continue
            except Exception as fault:
                why = f"notice not sent: {type(fault).__name__}"
            if not why:
                return True
            self.notes.append(why)
        return False


def _is_fresh(kind: Kind, age_s: float) -> bool:
    """A clock that was set back makes an age negative: then it counts as old."""
    return 0 <= age_s < KINDS[kind].window_s


def make_notice(kind: Kind, title: str, body: str, detail: str, *, terse: bool) -> Notice:
    """A notice without secrets and control characters."""
    from segue.core.secrets.redact import redact

    if terse:
        return Notice(kind, *(_terse(redact(text)[0]) for text in (title, body)))
    long = "\n".join(part for part in (body, detail) if part)
    return Notice(kind, _line(redact(title)[0], _TERSE_CHARS), _plain(redact(long)[0])[:_MAX_CHARS])


def _terse(text: str) -> str:
    def hide(match: re.Match[str]) -> str:
        return match[0] if _SHARE.fullmatch(match[0]) else _PLACE

    first = next((line for line in text.splitlines() if line.strip()), "")
    # Shortened, because the time for one word grows with the square of its length.
    return _line(_PATH.sub(hide, first[: 2 * _TERSE_CHARS]), _TERSE_CHARS)


def _line(text: str, most: int) -> str:
    return " ".join(_plain(text).split())[:most]


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)


# Ways


def make_ways(
    urls: Sequence[str], bell: TextIO | None, environment: Mapping[str, str] | None = None
) -> list[Send]:
    """The available ways, the best first: each is used if those before it failed."""
    env = os.environ if environment is None else environment
    ways: list[Send] = []
    if urls:
        ways.append(Services(urls))
    if program := _desktop(env):
        ways.append(lambda notice: show_on_desktop(program, notice))
    if bell is not None:
        ways.append(lambda notice: ring(bell, notice))
    return ways


class Services:
    """Apprise, with one service per URL. Created on the sending thread, because importing it takes
    longer than anything else here."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = tuple(urls)
        self._services: list[tuple[str, NotifyBase | str]] | None = None

    def __call__(self, notice: Notice) -> str:
        """Succeeds if any service accepted it; otherwise returns what each of them said."""
        faults = [(where, why) for where, why in self.each(notice) if why]
        if len(faults) < len(self._urls):
            return ""
        return "notice not sent: " + "; ".join(f"{where} {why}" for where, why in faults)

    def each(self, notice: Notice) -> list[tuple[str, str]]:
        """Every service, by the beginning of its URL, and why it failed; "" if it did not."""
        return [(where, _notify(service, notice)) for where, service in self.load()]

    def load(self) -> "list[tuple[str, NotifyBase | str]]":
        """The services, which the first call creates."""
        if self._services is None:
            self._services = [(_scheme(url), _service(url)) for url in self._urls]
        return self._services


def _service(url: str) -> "NotifyBase | str":
    """One of Apprise's services, or why there is none. `Apprise.notify` is not used: the process
    would wait for its thread pools at the end, and so for a service that hangs."""
    import logging

    import apprise

    for name in ("apprise", "urllib3"):  # these messages contain URLs with their tokens
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    asset: Any = apprise.AppriseAsset(app_id="segue", app_desc="segue", storage_mode="memory")
    try:
        found: Any = apprise.Apprise.instantiate(url, asset=asset, suppress_exceptions=True)
    except Exception as fault:
        return f"is not an Apprise URL ({type(fault).__name__})"
    return found if found is not None else "is not an Apprise URL"


def _notify(service: "NotifyBase | str", notice: Notice) -> str:
    if isinstance(service, str):
        return service
    try:
        took: Any = service.notify(
            body=notice.body or notice.title,
            title=notice.title if notice.body else "segue",
            notify_type=KINDS[notice.kind].looks,
        )
    except Exception as fault:
        return f"failed ({type(fault).__name__})"
    return "" if took else "did not accept it"


def _scheme(url: str) -> str:
    """The part of a URL that is certainly not a secret."""
    return f"{re.split('[^a-z0-9+.-]', url.lower(), maxsplit=1)[0][:20]}://"


def _desktop(env: Mapping[str, str]) -> str:
    """The program that shows notices, if there is a desktop."""
    if sys.platform == "darwin":
        return shutil.which("osascript", path=env.get("PATH")) or ""
    if not any(env.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")):
        return ""
    return shutil.which("notify-send", path=env.get("PATH")) or ""


_APPLE = (
    "on run argv",
    "display notification (item 2 of argv) with title (item 1 of argv)",
    "end run",
)


def show_on_desktop(program: str, notice: Notice) -> str:
    """Texts are arguments, never part of a script; bodies may be read as markup."""
    if os.path.basename(program) == "osascript":
        lines = [word for line in _APPLE for word in ("-e", line)]
        argv = [program, *lines, notice.title, notice.body]
    else:
        level = "critical" if notice.kind == "needs_you" else "normal"
        argv = [program, "-a", "segue", "-u", level, "--", notice.title, escape(notice.body)]
    try:
        done = subprocess.run(  # noqa: S603
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_SERVICE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as fault:
        return f"notice not shown: {os.path.basename(program)}: {type(fault).__name__}"
    return f"notice not shown: exit code {done.returncode}" if done.returncode else ""


def ring(bell: TextIO, notice: Notice) -> str:
    """Rings the bell, and shows why if the terminal can (OSC 9). Only for a terminal: a log file
    gets nothing."""
    try:
        if not bell.isatty():
            return "notice not shown: no terminal"
        line = _line(
            ": ".join(part for part in (notice.title, notice.body) if part), 2 * _TERSE_CHARS
        )
        bell.write(f"\x1b]9;{line}\x07\x07")
        bell.flush()
    except (OSError, ValueError) as fault:
        return f"notice not shown: {type(fault).__name__}"
    return ""
