"""A terminal as a person has it: a shell with job control on a pty, and all that it was sent."""

import fcntl
import os
import pty
import re
import secrets
import select
import shlex
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from support.waiting import LONG_S, until

LIMIT_S = 60.0
_MODE = re.compile(rb"\x1b\[\?([0-9;]+)([hl])")
_KEYS = re.compile(rb"\x1b\[>4(?:;([0-9]))?m")
PASTE = (b"\x1b[200~", b"\x1b[201~")


class Outside:
    """`shell`: what it runs; it stays when a command in it is killed."""

    def __init__(
        self,
        env: Mapping[str, str],
        cwd: str,
        size: tuple[int, int] = (110, 40),
        shell: Sequence[str] = ("sh", "-i"),
        pass_fds: Sequence[int] = (),
    ) -> None:
        self.leader, follower = pty.openpty()
        self.resize(*size)
        given = {"PS1": "$ ", "ENV": "", "TERM": "xterm-256color", **env}
        self.shell = subprocess.Popen(
            [*shell], stdin=follower, stdout=follower, stderr=follower, cwd=cwd,
            env=given, pass_fds=pass_fds, start_new_session=True, preexec_fn=_take_terminal,
        )  # fmt: skip
        os.close(follower)
        self.sent = b""  # by programs, to the terminal
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def begin(self) -> None:
        """Until its shell is there. A tmux sets its modes after the first prompt, and before it
        shows what a command prints."""
        self.until(lambda: b"$ " in self.sent, "its shell")
        assert self.run("true").wait("its first command") == 0
        self.before = termios.tcgetattr(self.leader)
        self.modes_before = self.modes()

    def _read(self) -> None:
        while True:
            try:
                if not select.select([self.leader], [], [], 0.2)[0]:
                    continue
                self.sent += os.read(self.leader, 65536)
            except (OSError, ValueError):
                return

    def until(self, is_so: Callable[[], Any], what: str, limit_s: float = LIMIT_S) -> Any:
        return until(is_so, lambda: f"{what}\n{self._changed()}\n{self.sent[-3000:]!r}", limit_s)

    def _changed(self) -> str:
        """What is not as before, for a message."""
        if not hasattr(self, "before"):
            return "nothing is there yet"
        flags = [
            f"flags {number}: {before:o}, now {now:o}"
            for number, (before, now) in enumerate(
                zip(self.before[:4], termios.tcgetattr(self.leader)[:4], strict=True)
            )
            if before != now
        ]
        modes = sorted(self.modes() ^ self.modes_before)
        last = [(mode, self.sent.rfind(f"?{mode}".encode())) for mode in modes]
        where = [(mode, at - len(self.sent), self.sent[at - 150 : at + 100]) for mode, at in last]
        return f"{flags}, modes {where}"

    def type(self, text: str | bytes) -> None:
        data = text.encode() if isinstance(text, str) else text
        while data:
            data = data[os.write(self.leader, data) :]

    def run(self, *argv: str) -> "Command":
        """Has the shell run a command."""
        return Command(self, argv)

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self.leader, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def modes(self) -> set[str]:
        """What is switched on in the terminal that is off in one that was just opened, or the
        other way round."""
        on: set[str] = set()
        for found in _MODE.finditer(self.sent):
            for number in found[1].decode().split(";"):
                (on.add if found[2] == b"h" else on.discard)(number)
        if keys := _KEYS.findall(self.sent):
            (on.add if keys[-1] not in (b"", b"0") else on.discard)("keys")
        if self.sent.rfind(b"\x1b=") > self.sent.rfind(b"\x1b>"):
            on.add("keypad")
        hidden = self.sent.rfind(b"\x1b[?25l") > self.sent.rfind(b"\x1b[?25h")
        return (on - {"25", "7", "12", "7727"}) | ({"hidden"} if hidden else set())

    @property
    def is_as_before(self) -> bool:
        """The flags of the tty as they were, and no mode left on or off."""
        now = termios.tcgetattr(self.leader)
        return now[:4] == self.before[:4] and self.modes() == self.modes_before

    def close(self) -> None:
        """As closing its window does."""
        with suppress(OSError):
            os.close(self.leader)
        try:
            self.shell.wait(LONG_S)
        except subprocess.TimeoutExpired:
            self.shell.send_signal(signal.SIGKILL)
            self.shell.wait()


class Command:
    """A command line that was typed."""

    def __init__(self, place: Outside, argv: Sequence[str]) -> None:
        self.place = place
        self.from_ = len(place.sent)
        self.mark = secrets.token_hex(4)
        # In two halves, so that the echo of what is typed is not taken for its end.
        place.type(f"{shlex.join(argv)}; echo {self.mark}''=$?=\n")

    @property
    def sent(self) -> bytes:
        return self.place.sent[self.from_ :]

    @property
    def code(self) -> int | None:
        """None while it runs."""
        found = re.search(rf"{self.mark}=(\d+)=".encode(), self.sent)
        return int(found[1]) if found else None

    def wait(self, what: str = "its end") -> int:
        self.place.until(lambda: self.code is not None, what)
        assert self.code is not None
        return self.code

    def pid(self) -> int:
        """Of the command itself, a child of the shell."""
        folder = f"/proc/{self.place.shell.pid}/task/{self.place.shell.pid}/children"
        with open(folder) as file:
            return int(file.read().split()[-1])


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@contextmanager
def outside(env: Mapping[str, str], cwd: str, **options: Any) -> Iterator[Outside]:
    found = Outside(env, cwd, **options)
    try:
        found.begin()
        yield found
    finally:
        found.close()
