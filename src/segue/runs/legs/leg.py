"""segue's side of a leg: starts its keeper, sends it commands, and reads how it ended.

Everything known about a leg is in its folder (see `keeper`), so any segue process can continue
where another was killed. Everything here may be done twice, and by two processes at once.

All in one file: both sides of each promise about the folder: who writes a file and who reads it.
"""

import contextlib
import errno
import fcntl
import json
import os
import select
import signal
import sys
import time
import uuid
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from segue.errors import StateError
from segue.system.process.descendants import GRACE_S, IS_LINUX, MARK, EndedProcess, end_all, left_by
from segue.system.process.procfs import Procfs

State = Literal["not_started", "starting", "running", "ended", "lost"]
Kind = Literal["input", "close_input", "interrupt", "end", "kill"]

_KEEPER = Path(__file__).with_name("keeper.py")
_START_S = 15.0  # a keeper takes 30 ms; more only on an overloaded machine
_LOOK_S = 0.02  # for kernels that cannot notify us
_T = TypeVar("_T")


Leash = tuple[str, str]
"""A file that is renewed regularly, and its era: see `keeper.is_held`."""


Guard = Callable[[], Leash | None]
"""Called before any process of a run is started; returns the leash that holds it. Raises LeaseLost
or another StateError if none may be started now."""


def free() -> Leash | None:
    """The guard for runs that do not share a fleet: nothing holds their agents back."""
    return None


class Spec(Struct, frozen=True, kw_only=True):
    """What a keeper starts. Written to the leg's folder, so it contains no environment."""

    argv: tuple[str, ...]
    cwd: str
    input: bytes = b""  # written at once
    stays_open: bool = False  # whether its input stays open after that
    interrupt_signal: str = "SIGINT"
    grace_s: float = 3.0  # between SIGTERM and SIGKILL
    # of stdout and stderr together: beyond it, the agent is killed
    max_output_bytes: int | None = None
    leash: Leash | None = None  # the file without which it is killed


class Stored(Spec, frozen=True, kw_only=True):
    """The spec as it is stored."""

    mark: str  # the value of SEGUE_LEG in all its processes
    env_names: tuple[str, ...]


class Exit(Struct, frozen=True, kw_only=True):
    """How a leg ended. Once this exists, nothing of the leg is running any more."""

    exit_code: int | None = None  # negative: a signal; None: unknown, the leg was lost
    ended_at: float
    swept: tuple[EndedProcess, ...] = ()  # processes that it left behind
    ended_by_command: str = ""  # the key of the last interrupt, end or kill before it ended
    lost: bool = False  # its keeper was killed, or the machine restarted
    error: str = ""  # why it could not be started, or how it was lost; one line


class LegStatus(Struct, frozen=True, kw_only=True):
    """The state of a leg. starting: no keeper has reported yet; if none ever does, its starter was
    killed: start again. lost: the keeper is gone without a record, and the agent may still be
    running: see `sweep_lost`."""

    state: State
    keeper_pid: int = 0
    agent_pid: int = 0
    started_at: float = 0.0
    exit: Exit | None = None


class KeeperRecord(Struct, frozen=True, kw_only=True):
    """The content of keeper.json: which keeper has which agent."""

    pid: int
    start_ticks: int
    agent_pid: int
    agent_start_ticks: int
    boot_id: str
    started_at: float


class Leg:
    """A leg, identified by its folder, whether or not it was ever started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.stdout, self.stderr = self.folder / "stdout", self.folder / "stderr"

    # Beginning

    def start(self, spec: Spec, env: Mapping[str, str]) -> LegStatus:
        """Has a keeper start it, unless one did; returns when the agent runs, or could not be
        started (`exit.error`). `env` is all of the agent's environment; its SEGUE_LEG marks the
        leg's processes, and must be this leg's alone: if it is missing or inherited, a new one is
        made. The first spec that was written stays; `spec` tells it.

        Raises OSError or StateError if there can be no keeper."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        stored = self.spec() or self._store(spec, env)
        status = self.status()
        if status.state != "starting":
            return status
        # must exist before anyone looks for them
        for name in ("stdout", "stderr", "control.jsonl"):
            os.close(os.open(self.folder / name, os.O_WRONLY | os.O_CREAT, 0o600))
        with contextlib.suppress(FileExistsError):
            os.mkfifo(self.folder / "bell", 0o600)
        complaint = self._spawn({**_at_home(env, stored.cwd), MARK: stored.mark})
        status = self.status()
        if status.state == "starting" and complaint:
            raise StateError(complaint)
        return status

    def spec(self) -> Stored | None:
        """The command to start, as it was first written."""
        return _record(self.folder / "spec.json", Stored)

    def _store(self, spec: Spec, env: Mapping[str, str]) -> Stored:
        mark = env.get(MARK, "")
        if not mark or mark == os.environ.get(MARK):  # of a leg that this process itself is in
            mark = uuid.uuid4().hex
        record = {
            **{name: getattr(spec, name) for name in spec.__struct_fields__},
            "input": b64encode(spec.input).decode(),
            "mark": mark,
            "env_names": sorted({*env, MARK}),
        }
        _write_first(self.folder / "spec.json", record)
        stored = self.spec()
        if stored is None:
            raise StateError(f"{self.folder}/spec.json: cannot be read again; delete this folder")
        return stored

    def _spawn(self, env: Mapping[str, str]) -> str:
        """Starts a keeper and waits until it is ready. Returns its error message, or ""."""
        ready, tell = os.pipe()
        try:
            log = str(self.folder / "keeper.log")
            pid = os.posix_spawn(
                sys.executable,
                # -I -S: no site packages, and no PYTHON… variables, which are meant for the agent.
                [sys.executable, "-I", "-S", str(_KEEPER), str(self.folder)],
                env,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, tell, 1),
                    (os.POSIX_SPAWN_OPEN, 2, log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600),
                ],
                setsid=True,
                setsigmask=[],
                setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
            )
        finally:
            os.close(tell)
        complaint = b""
        try:
            until = time.monotonic() + _START_S
            while (left_s := until - time.monotonic()) > 0 and select.select(
                [ready], [], [], left_s
            )[0]:
                if not (chunk := os.read(ready, 4096)):
                    break
                complaint += chunk
        finally:
            os.close(ready)
        with contextlib.suppress(ChildProcessError):
            # Not the keeper but its short-lived parent.
            if os.waitpid(pid, 0)[1] and not complaint:
                complaint = f"its keeper cannot be started: see {log}".encode()
        return complaint.decode("utf-8", "replace").strip()

    # Looking

    def status(self) -> LegStatus:
        """The current state."""
        for _ in range(2):
            if exit := self.exit():
                return self._status("ended", exit)
            if self._keeper_record() is None and not self._had_keeper():
                return self._status(
                    "starting" if (self.folder / "spec.json").exists() else "not_started"
                )
            if not self._is_free():
                break
            # The keeper is gone. It may have written its last record after we looked.
        else:
            return self._status("lost")
        record = self._keeper_record()
        return self._status("running" if record and record.agent_pid else "starting")

    def exit(self) -> Exit | None:
        """How the leg ended; None if it has not, or if it was lost and not swept yet."""
        return _record(self.folder / "exit.json", Exit)

    def end_fd(self) -> int | None:
        """A descriptor that becomes readable when the keeper exits, to be closed by the caller;
        None if there is no keeper, or the system does not support it."""
        record = self._keeper_record()
        if record is None or not hasattr(os, "pidfd_open") or not self._is_this_boot(record):
            return None
        try:
            descriptor = os.pidfd_open(record.pid)
        except OSError:
            return None
        facts = Procfs().facts(record.pid)
        if facts is not None and facts.start_ticks == record.start_ticks:
            return descriptor
        os.close(descriptor)
        return None

    def wait(self, timeout_s: float) -> LegStatus:
        """Waits until it has ended, is lost, or the time is up."""
        until = time.monotonic() + timeout_s
        while True:
            status = self.status()
            left_s = until - time.monotonic()
            if status.state not in ("starting", "running") or left_s <= 0:
                return status
            descriptor = self.end_fd()
            if descriptor is None:
                time.sleep(min(_LOOK_S, left_s))
                continue
            try:
                select.select([descriptor], [], [], left_s)
            finally:
                os.close(descriptor)

    def _status(self, state: State, exit: Exit | None = None) -> LegStatus:
        record = self._keeper_record()
        if record is None:
            return LegStatus(state=state, exit=exit)
        return LegStatus(
            state=state,
            keeper_pid=record.pid,
            agent_pid=record.agent_pid,
            started_at=record.started_at,
            exit=exit,
        )

    def _had_keeper(self) -> bool:
        """Whether a keeper ever took it, even if its record was cut short when the machine stopped:
        then no other keeper will."""
        return (self.folder / "keeper.json").exists()

    def _keeper_record(self) -> KeeperRecord | None:
        return _record(self.folder / "keeper.json", KeeperRecord)

    # Commands

    def command(
        self,
        key: str,
        kind: Kind,
        *,
        input: bytes = b"",
        interrupt: bool = False,
        patience_s: float = 0.0,
    ) -> None:
        """Gives the keeper a command; it is carried out once for each key, however often it is
        given.

        input: what the agent reads. close_input: nothing more, after what it was given.
        interrupt: the interrupt signal, to the agent alone. end: `input` and the interrupt signal
        first, if wanted; after `patience_s` SIGTERM, after the spec's grace SIGKILL. kill."""
        path = self.folder / "control.jsonl"
        control = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        with open(control, "r+b", buffering=0) as file:
            written = file.readall()
            if not any(_key(line) == key for line in written.split(b"\n")[:-1]):
                record: dict[str, Any] = {"key": key, "kind": kind}
                if input:
                    record["input"] = b64encode(input).decode()
                if interrupt:
                    record["interrupt"] = True
                if patience_s:
                    record["patience_s"] = patience_s
                # A writer that was killed may have left half a line.
                repair = b"" if not written or written.endswith(b"\n") else b"\n"
                rest = memoryview(repair + json.dumps(record).encode() + b"\n")
                while rest:
                    rest = rest[file.write(rest) :]
        self._ring()
        self.rouse()

    def has_command(self, key: str) -> bool:
        """Whether the keeper received it."""
        try:
            written = (self.folder / "control.jsonl").read_bytes()
        except FileNotFoundError:
            return False
        return any(_key(line) == key for line in written.split(b"\n")[:-1])

    def rouse(self) -> None:
        """Continues a keeper that was stopped (SIGSTOP), because it handles nothing then. Does
        nothing to a running one, and nothing to any other process."""
        descriptor = self.end_fd()
        if descriptor is None:
            return
        try:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(descriptor, signal.SIGCONT)
        finally:
            os.close(descriptor)

    def _ring(self) -> None:
        try:
            bell = os.open(self.folder / "bell", os.O_WRONLY | os.O_NONBLOCK)
        except OSError as fault:
            # nobody listens (yet): it will read the file
            if fault.errno in (errno.ENXIO, errno.ENOENT):
                return
            raise
        try:
            with contextlib.suppress(BlockingIOError):  # full: it was rung often enough
                os.write(bell, b"\n")
        finally:
            os.close(bell)

    # Lost legs

    def sweep_lost(self, grace_s: float = GRACE_S) -> Exit:
        """Ends what a lost leg left running, and records that it was lost; returns how it ended, if
        it was not lost after all. A leg that never began will never begin. Raises StateError if its
        keeper is alive."""
        with self._locked():
            if exit := self.exit():
                return exit
            keeper, stored = self._keeper_record(), self.spec()
            swept: list[EndedProcess] = []
            if stored is not None:
                agent = (keeper.agent_pid, keeper.agent_start_ticks) if keeper else (0, 0)
                if keeper and not self._is_this_boot(keeper):
                    agent = (0, 0)
                swept = end_all(lambda: left_by(stored.mark, *agent), grace_s)
            error = "the machine was restarted" if self._had_keeper() else "it was never started"
            if keeper:
                error = "its keeper was killed"
                if not self._is_this_boot(keeper):
                    error = "the machine was restarted"
            record = {
                "ended_at": time.time(),
                "swept": msgspec.to_builtins(swept),
                "lost": True,
                "error": error,
            }
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write_first(self.folder / "exit.json", record)
        return self.exit() or msgspec.convert(record, Exit)

    def _is_this_boot(self, record: KeeperRecord) -> bool:
        return not IS_LINUX or record.boot_id == _boot_id()

    def _is_free(self) -> bool:
        """Whether no keeper is alive. Called only when no other can start: for an instant, one
        could not take the lock."""
        try:
            lock = os.open(self.folder / "lock", os.O_RDONLY)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(lock)
        return True

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            until = time.monotonic() + 1.0  # others may be checking whether it is free
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > until:
                        raise StateError(
                            f"{self.folder}: its keeper is still running; end the leg first"
                        ) from None
                time.sleep(_LOOK_S)
            yield
        finally:
            os.close(lock)


def _at_home(env: Mapping[str, str], cwd: str) -> dict[str, str]:
    """The environment with PWD set to the working folder: some agents rely on it."""
    folder = env.get("PWD", "")
    with contextlib.suppress(OSError):
        if folder and os.path.samefile(folder, cwd):
            return dict(env)
    return {**env, "PWD": cwd}


def _record(path: Path, kind: type[_T]) -> _T | None:
    """The content of a JSON file; None if it does not exist, or was cut short when the machine
    stopped."""
    try:
        return msgspec.convert(json.loads(path.read_bytes()), kind)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # msgspec's error is one of these
        return None


def _write_first(path: Path, record: Mapping[str, Any]) -> None:
    """Writes a whole file, unless one exists."""
    aside = path.with_name(f"{path.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}")
    try:
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(record, file)
            file.flush()
            os.fsync(file.fileno())  # once it has its name, it is complete, whatever happens
        try:
            os.link(aside, path)
        except FileExistsError:
            pass
        except OSError:  # a file system without links
            os.rename(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def _key(line: bytes) -> str | None:
    try:
        return str(json.loads(line)["key"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
