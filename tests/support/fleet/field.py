"""A field of machines for tests of a fleet: each has processes, files, a HOME, a machine id, a boot
id and a network of its own, with a bridge between them; a PostgreSQL that all reach over it,
through a link that can be slow. Machines are cut off, lose their power and come back.

Runs enclosed, in a process of its own: `enclosure.command(...)`. Needs root.
"""

import json
import os
import selectors
import shutil
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from segue.drill.plays import enclosure
from support.fleet.machines import SEGUE
from support.fleet.postgres import Postgres, postgres
from support.gone import is_gone
from support.waiting import until

NETWORK = "10.77.0"
PORT = 5499
_INIT = """
import os, time
while True:
    try:
        os.wait()
    except ChildProcessError:
        time.sleep(0.05)
"""
_INSIDE = """
mount --make-rprivate / && mount -t proc proc /proc && mount --bind "$1" /etc/machine-id &&
mount --bind "$2" /proc/sys/kernel/random/boot_id && ip link set lo up && : > "$3" &&
exec "$4" -c "$5"
"""
_CLOCK = """
import os, time
_time, _wrong_s = time.time, float(os.environ.get("WRONG_CLOCK_S", "0"))
time.time = lambda: _time() + _wrong_s
"""


class Link(threading.Thread):
    """A way to the database: what comes back takes `delay_s`."""

    def __init__(self, to: str) -> None:
        super().__init__(daemon=True)
        self.to, self.delay_s = to, 0.0
        self._listen = socket.create_server((f"{NETWORK}.1", PORT), backlog=200)
        self._other: dict[socket.socket, socket.socket] = {}
        self._slow: set[socket.socket] = set()  # what comes from these is held back
        self._late: deque[tuple[float, socket.socket, bytes]] = deque()

    def run(self) -> None:
        with selectors.DefaultSelector() as ready:
            ready.register(self._listen, selectors.EVENT_READ)
            while True:
                wait_s = None
                if self._late:
                    wait_s = max(0.0, self._late[0][0] - time.monotonic())
                for key, _ in ready.select(wait_s):
                    if key.fileobj is self._listen:
                        self._accept(ready)
                    else:
                        self._pass_on(ready, key.fileobj)  # type: ignore[arg-type]
                while self._late and self._late[0][0] <= time.monotonic():
                    _, to, data = self._late.popleft()
                    with suppress(OSError):
                        to.sendall(data)

    def _accept(self, ready: selectors.BaseSelector) -> None:
        near, _ = self._listen.accept()
        far = socket.socket(socket.AF_UNIX)
        try:
            far.connect(self.to)
        except OSError:  # the server is down
            near.close()
            return
        self._other |= {near: far, far: near}
        self._slow.add(far)
        ready.register(near, selectors.EVENT_READ)
        ready.register(far, selectors.EVENT_READ)

    def _pass_on(self, ready: selectors.BaseSelector, near: socket.socket) -> None:
        far = self._other.get(near)
        try:
            data = near.recv(1 << 16)
        except OSError:
            data = b""
        if data and far is not None:
            due = time.monotonic() + (self.delay_s if near in self._slow else 0.0)
            self._late.append((due, far, data))
            if not self.delay_s or near not in self._slow:
                self._late.rotate(1)  # what is not held back goes first
            return
        for each in (near, far):
            if each is not None and each in self._other:
                del self._other[each]
                self._slow.discard(each)
                ready.unregister(each)
                each.close()


@dataclass
class FieldMachine:
    """One of them, on or off."""

    number: int
    folder: Path
    env: dict[str, str]
    init: "subprocess.Popen[bytes] | None" = None
    workers: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    @property
    def id(self) -> str:
        return (self.folder / "machine-id").read_text()

    def switch_on(self) -> None:
        """With a new boot id; its disk is as it was."""
        (self.folder / "boot-id").write_text(str(uuid.uuid4()))
        ready = self.folder / f"ready-{uuid.uuid4().hex}"
        self.init = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "sh", "-c", _INSIDE,
             "sh", str(self.folder / "machine-id"), str(self.folder / "boot-id"), str(ready),
             sys.executable, _INIT],
        )  # fmt: skip
        until(ready.exists, "a machine comes up")
        (inner,) = psutil.Process(self.init.pid).children()
        self._inner = inner.pid
        name = f"m{self.number}"
        for words in (
            f"ip link add {name} type veth peer name eth0 netns {inner.pid}",
            f"ip link set {name} master field up",
            f"nsenter -t {inner.pid} -n ip addr add {NETWORK}.{10 + self.number}/24 dev eth0",
            f"nsenter -t {inner.pid} -n ip link set eth0 up",
        ):
            subprocess.run(words.split(), check=True)

    def power_cut(self) -> float:
        """All that runs on it is gone; when that was."""
        at = time.time()
        if self.init is not None:
            self.init.kill()
            self.init.wait()
            self.init = None
            until(lambda: is_gone(self._inner), "its processes are gone")
            subprocess.run(["ip", "link", "del", f"m{self.number}"], check=False,
                           stderr=subprocess.DEVNULL)  # fmt: skip
        self.workers.clear()
        return at

    def cut_off(self, *, is_cut: bool) -> None:
        """Whether its network leads nowhere."""
        state = "down" if is_cut else "up"
        subprocess.run(["ip", "link", "set", f"m{self.number}", state], check=True)

    def start(self, *words: str) -> None:
        argv = ["nsenter", "-t", str(self._inner), "-m", "-p", "-n", *SEGUE, *words]
        with open(self.folder / "log", "ab") as log:
            started = subprocess.Popen(
                argv,
                env=self.env,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.workers.append(started)

    def kill_worker(self) -> None:
        for worker in self.workers:
            for child in psutil.Process(worker.pid).children():
                child.kill()
            worker.wait()
        self.workers.clear()

    def run(self, *words: str, check: bool = True) -> str:
        """A command of segue, typed on it."""
        done = subprocess.run(
            ["nsenter", "-t", str(self._inner), "-m", "-p", "-n", *SEGUE, *words], env=self.env,
            cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            timeout=120,
        )  # fmt: skip
        assert not check or done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout + ("" if check else done.stderr)

    def said(self) -> str:
        path = self.folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""


@dataclass
class Field:
    """All of it."""

    folder: Path
    server: Postgres
    link: Link
    machines: list[FieldMachine]
    options: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        """By the way that machines take."""
        return f"postgresql://{self.server.user}@{NETWORK}.1:{PORT}/postgres"

    def crash_database(self, away_s: float = 0.0) -> None:
        """As by a power cut, and back."""
        self.server.stop()
        time.sleep(away_s)
        self.server.start(*self.options)


@contextmanager
def fielded(
    folder: Path, count: int, *, lease_s: float, config: str, wrong_clock_s: float = 0.0
) -> Iterator[Field]:
    """So many machines, switched on. The last one's clock is wrong by so much."""
    enclosure.demand()
    folder.mkdir(parents=True, exist_ok=True)
    for words in (
        # Its own address: else it changes with the machines that leave, and the others lose it.
        "ip link add field address 02:00:00:00:77:01 type bridge",
        f"ip addr add {NETWORK}.1/24 dev field",
        "ip link set field up",
    ):
        subprocess.run(words.split(), check=True)
    (folder / "clock").mkdir()
    (folder / "clock" / "sitecustomize.py").write_text(_CLOCK)
    with ExitStack() as stack:
        server = stack.enter_context(postgres())
        link = Link(f"{server.folder}/.s.PGSQL.5432")
        link.start()
        found = Field(folder, server, link, [], ())
        for number in range(count):
            place = folder / f"machine-{number}"
            (place / "home").mkdir(parents=True)
            (place / "segue").mkdir()
            (place / "machine-id").write_text(uuid.uuid4().hex)
            (place / "segue" / "config.toml").write_text(
                f"[fleet]\nurl = {json.dumps(found.url)}\nlease_s = {lease_s}\n{config}"
            )
            env = {
                "PATH": os.environ["PATH"], "HOME": str(place / "home"), "TZ": "UTC",
                "SEGUE_HOME": str(place / "segue"), "GIT_CONFIG_GLOBAL": "/dev/null",
            }  # fmt: skip
            for who in ("AUTHOR", "COMMITTER"):
                env |= {f"GIT_{who}_NAME": "me", f"GIT_{who}_EMAIL": "me@example.invalid"}
            if wrong_clock_s and number == count - 1:
                env |= {
                    "PYTHONPATH": str(folder / "clock"),
                    "WRONG_CLOCK_S": str(wrong_clock_s),
                }
            machine = FieldMachine(number, place, env)
            found.machines.append(machine)
            stack.callback(machine.power_cut)
            machine.switch_on()
        yield found


def why_not() -> str:
    """Why there can be no such field here; "" if there can."""
    for name in ("unshare", "nsenter", "ip"):
        if shutil.which(name) is None:
            return f"{name} is not installed"
    if os.geteuid() != 0:
        return "only root can make machines with networks of their own"
    return enclosure.why_not()
