"""The keeper of one leg: `python -I -S keeper.py LEG_FOLDER`.

A small process between segue and an agent. It starts the agent, holds its input, waits for it, ends
every process that the agent left behind, and records how it ended; so segue may be killed at any
time and nothing is lost. The agent writes directly to the leg's files: even if the keeper is
killed, no byte of output is lost.

All in one file: it uses only the standard library, because one keeper lives as long as each agent.
Its environment is the agent's: that is how secrets get there without being stored.

    spec.json      what to start; segue writes it first
    lock           held as long as the keeper lives
    keeper.json    the keeper and its agent; once it exists, no other keeper ever starts this leg
    stdout stderr  the agent's output
    control.jsonl  segue's commands, one per line, each with a key; each is carried out once
    bell           a FIFO: a byte in it means that there are new commands
    exit.json      how the leg ended; written last

A leg may be on a leash: a file outside its folder that must be renewed. If it is not renewed in
time, the keeper kills the agent, whatever other processes are alive.
"""

from __future__ import annotations

import binascii
import contextlib
import ctypes
import errno
import fcntl
import json
import os
import select
import signal
import sys
import time

TYPE_CHECKING = False  # avoids the import of typing
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

IS_LINUX: bool = sys.platform == "linux"
SWEEP_GRACE_S = 1.0  # between SIGTERM and SIGKILL for what the agent left behind
SWEEP_S = 15.0  # after that, the rest cannot be ended
WRITE_S = 60.0  # how long a full disk may delay the exit record
MIN_LOOK_S, MAX_LOOK_S = 0.5, 30.0  # how often the size of the agent's output is checked
FAST_BYTES_S = 1 << 28  # agents hardly print faster than this
PR_SET_CHILD_SUBREAPER = 36
LEASH_LOOK_S = 0.5
LEASH = "leash"  # in the exit record: what ended the agent


def since_boot_s() -> float:
    """A clock that nobody sets, and that runs while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if IS_LINUX else time.monotonic()


def is_held(path: str, era: str) -> bool:
    """Whether the leash in this file belongs to that era, and was renewed in time."""
    try:
        record = json.loads(read(path))
        age_s = since_boot_s() - record["heard"]
        return bool(record["era"] == era and 0 <= age_s < record["max_s"])
    except (ValueError, KeyError, TypeError):
        return False


def main(folder: str) -> None:
    """Keeps the leg in this folder, unless another keeper does or did. Reports a failure in one
    line on standard output, which is closed as soon as the agent runs."""
    # so that no file of ours gets one of these descriptors
    while os.open(os.devnull, os.O_RDWR) <= 2:
        pass
    os.closerange(3, 1 << 16)  # inherits no open file from segue
    if os.fork():  # detached from its parent: segue need not wait for it
        os._exit(0)
    os.setsid()
    os.chdir("/")
    lock = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return  # another keeper has it
    if any(os.path.exists(os.path.join(folder, name)) for name in ("keeper.json", "exit.json")):
        return
    try:
        keeper = Keeper(folder)
        keeper.start()
    except (OSError, ValueError, KeyError) as fault:
        os.write(
            1, f"{folder}: the leg's files cannot be written: {fault}\n".encode("utf-8", "replace")
        )
        raise
    if not keeper.error:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 1)  # segue reads the end of the pipe: the agent is running
        os.close(null)
    keeper.keep()


class Keeper:
    """One agent, from its start to the end of everything that it left behind."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        with open(self.path("spec.json"), "rb") as file:
            self.spec: dict[str, Any] = json.load(file)
        self.agent = 0
        self.exit_code: int | None = None  # negative: the signal that killed it
        self.error = ""
        self.input = -1  # our end of the agent's standard input
        self.pending: list[memoryview] = []  # input that it has not accepted yet
        self.closing = not self.spec["stays_open"]  # its input, once it has accepted all of it
        self.keys: set[str] = set()  # offset of the commands that were carried out
        self.partial = b""  # a command whose end has not been written yet
        self.ended_by = ""
        self.term_at: float | None = None  # monotonic time
        self.kill_at: float | None = None
        self.is_hard = False  # skips SIGTERM for the rest
        self.told_to_end = False  # by SIGTERM
        self.max_output_bytes: int | None = self.spec.get("max_output_bytes")
        self.look_at: float | None = None if self.max_output_bytes is None else time.monotonic()
        self.leash_at: float | None = time.monotonic() if self.spec.get("leash") else None
        self.poll = select.poll()

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    # Beginning

    def start(self) -> None:
        """Starts the agent, or records why it cannot be started."""
        # before the agent exists: the leg of a killed keeper is not started again
        self.write_keeper()
        if IS_LINUX:
            ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.listen()
        if prompt := bytes_of(self.spec.pop("input")):
            self.pending.append(memoryview(prompt))
        self.error = (
            self.spawn() if self.is_leashed() else "the fleet lost this machine before it started"
        )
        if self.error:
            self.exit_code = 127
        else:
            self.write_keeper()

    def write_keeper(self) -> None:
        me = os.getpid()
        record = {
            "pid": me,
            "start_ticks": start_ticks(me),
            "agent_pid": self.agent,
            "agent_start_ticks": start_ticks(self.agent) if self.agent else 0,
            "boot_id": read("/proc/sys/kernel/random/boot_id").decode("ascii", "replace").strip(),
            "started_at": time.time(),
        }
        write(self.path("keeper.json"), record)

    def listen(self) -> None:
        """Installs signal handlers, and opens the bell."""
        self.woken, wake = os.pipe()
        os.set_blocking(self.woken, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGTERM, self.on_term)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        with contextlib.suppress(FileExistsError):
            os.mkfifo(self.path("bell"), 0o600)
        # Also for writing: otherwise it would be at its end whenever nobody else has it open.
        self.bell = os.open(self.path("bell"), os.O_RDWR | os.O_NONBLOCK)
        self.control = os.open(self.path("control.jsonl"), os.O_RDONLY | os.O_CREAT, 0o600)
        self.poll.register(self.woken, select.POLLIN)
        self.poll.register(self.bell, select.POLLIN)

    def on_term(self, number: int, frame: FrameType | None) -> None:
        self.told_to_end = True

    def spawn(self) -> str:
        """Starts the agent; returns why it could not be started, in one line, or ""."""
        argv, cwd = self.spec["argv"], self.spec["cwd"]
        env = dict(os.environb)
        if "LC_CTYPE" not in self.spec["env_names"]:
            env.pop(b"LC_CTYPE", None)  # Python sets it by itself in the C locale
        if self.pending or self.spec["stays_open"]:
            given, self.input = os.pipe()
            os.set_blocking(self.input, False)
        else:
            given = os.open(os.devnull, os.O_RDONLY)
        to_file = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        files = [given, *(os.open(self.path(n), to_file, 0o600) for n in ("stdout", "stderr"))]
        failed, tell = os.pipe()  # closed by the exec, if it succeeds
        pid = os.fork()
        if pid == 0:
            become(argv, cwd, env, files, tell)
        for file in (*files, tell):
            os.close(file)
        with open(failed, "rb") as report:
            fault = report.read().decode("utf-8", "replace")
        if fault:
            os.waitpid(pid, 0)
        else:
            self.agent = pid
        return fault

    # The agent runs

    def keep(self) -> None:
        """Waits until the agent and everything that it left behind have ended; then records how."""
        while self.exit_code is None:
            self.obey()
            self.feed()
            self.measure()
            self.heel()
            self.press()
            self.rest()
            self.reap()
        ended_at = time.time()
        self.poll.unregister(self.bell)  # no agent is left to carry out commands on
        self.pending.clear()
        self.closing = True
        self.feed()
        swept = self.sweep() if self.agent else []
        record = {
            "exit_code": self.exit_code,
            "ended_at": ended_at,
            "swept": swept,
            "ended_by_command": self.ended_by,
            "lost": False,
            "error": self.error,
        }
        until = time.monotonic() + WRITE_S
        while True:
            try:
                write(self.path("exit.json"), record)
                return
            except OSError as fault:
                if fault.errno == errno.ENOENT or time.monotonic() > until:
                    raise
            time.sleep(0.5)

    def rest(self) -> None:
        """Waits until something happens, or is due."""
        known = (self.term_at, self.kill_at, self.look_at, self.leash_at)
        due = [at for at in known if at is not None]
        wait_ms = max(0, int((min(due) - time.monotonic()) * 1000) + 1) if due else None
        for file, _ in self.poll.poll(wait_ms):
            if file in (self.woken, self.bell):
                drain(file)

    def reap(self) -> None:
        """Reaps the agent, and orphans that were reparented to us."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.agent:
                self.exit_code = os.waitstatus_to_exitcode(status)

    def feed(self) -> None:
        """Writes as much input to the agent as it accepts now."""
        while self.input >= 0 and self.pending:
            try:
                written = os.write(self.input, self.pending[0])
            except BlockingIOError:
                self.poll.register(self.input, select.POLLOUT)
                return
            except OSError:  # it no longer reads
                self.pending.clear()
                self.closing = True
                break
            rest = self.pending[0][written:]
            self.pending[:1] = [rest] if rest else []
        if self.input >= 0:
            with contextlib.suppress(KeyError):
                self.poll.unregister(self.input)
            if self.closing:
                os.close(self.input)
                self.input = -1

    def obey(self) -> None:
        """Carries out new commands in control.jsonl."""
        if self.told_to_end:
            self.told_to_end = False
            patience_s = self.spec["grace_s"]
            self.carry_out({"kind": "end", "interrupt": True, "patience_s": patience_s}, "SIGTERM")
        while chunk := os.read(self.control, 1 << 16):
            self.partial += chunk
        *lines, self.partial = self.partial.split(b"\n")
        for line in lines:
            try:
                command = json.loads(line)
                key = command["key"]
                if key not in self.keys:
                    self.carry_out(command, key)
                    self.keys.add(key)
            except (ValueError, KeyError, TypeError, RecursionError):
                pass  # half a line from a writer that was killed, or not a command

    def carry_out(self, command: dict[str, Any], key: str) -> None:
        kind = command["kind"]
        data = bytes_of(command.get("input", ""))
        patience_s, grace_s = float(command.get("patience_s", 0)), float(self.spec["grace_s"])
        if data and not self.closing:
            self.pending.append(memoryview(data))
        if kind == "close_input":
            self.closing = True
        if kind in ("interrupt", "end", "kill"):
            self.ended_by = key
        if kind == "interrupt" or command.get("interrupt"):
            self.signal(signal.Signals[self.spec["interrupt_signal"]])
        if kind == "end":
            now = time.monotonic()
            self.term_at = earlier(self.term_at, now + patience_s)
            self.kill_at = earlier(self.kill_at, now + patience_s + grace_s)
        elif kind == "kill":
            self.kill_at = time.monotonic()

    def measure(self) -> None:
        """An agent that prints forever would fill the disk, even while no segue is running. The
        less room is left, the more often this is checked."""
        now = time.monotonic()
        if self.max_output_bytes is None or self.look_at is None or now < self.look_at:
            return
        left = self.max_output_bytes
        for name in ("stdout", "stderr"):
            with contextlib.suppress(OSError):
                left -= os.stat(self.path(name)).st_size
        if left < 0:
            self.look_at, self.kill_at = None, now
            self.ended_by = "max_output_bytes"
        else:
            self.look_at = now + min(MAX_LOOK_S, max(MIN_LOOK_S, left / FAST_BYTES_S))

    def is_leashed(self) -> bool:
        """Whether the agent may run, according to its leash."""
        leash = self.spec.get("leash")
        return not leash or is_held(*leash)

    def heel(self) -> None:
        """Kills an agent whose leash is no longer renewed."""
        now = time.monotonic()
        if self.leash_at is None or now < self.leash_at:
            return
        self.leash_at = now + LEASH_LOOK_S
        if not self.is_leashed():
            self.leash_at, self.kill_at = None, now
            self.ended_by = LEASH

    def press(self) -> None:
        """Sends SIGTERM and SIGKILL when they are due."""
        now = time.monotonic()
        if self.kill_at is not None and now >= self.kill_at:
            self.term_at = self.kill_at = None
            self.is_hard = True
            self.signal(signal.SIGKILL)
        elif self.term_at is not None and now >= self.term_at:
            self.term_at = None
            self.signal(signal.SIGTERM)
            self.signal(signal.SIGCONT)  # a stopped process does not handle signals

    def signal(self, number: signal.Signals) -> None:
        """Signals the agent alone. Until it is waited for, its pid cannot be reused."""
        with contextlib.suppress(OSError):
            os.kill(self.agent, number)

    # It has ended

    def sweep(self) -> list[dict[str, Any]]:
        """Ends all descendants that the agent left behind; returns what had to be ended."""
        if not IS_LINUX:
            return self.sweep_group()
        begun = time.monotonic()
        swept: dict[tuple[int, int], dict[str, Any]] = {}
        beyond: set[tuple[int, int]] = set()
        nap_ms = 2
        while (elapsed_s := time.monotonic() - begun) < SWEEP_S:
            self.reap()
            left = [found for found in descendants(os.getpid()) if found not in beyond]
            if not left:
                break
            is_hard = self.is_hard or elapsed_s > SWEEP_GRACE_S
            number = signal.SIGKILL if is_hard else signal.SIGTERM
            for found in left:
                ended = swept.get(found) or {"pid": found[1], "argv": argv_of(found[1]), "by": ""}
                if ended["by"] != number.name:
                    try:
                        send(found, number)
                        ended["by"] = number.name
                    except ProcessLookupError:
                        continue
                    except OSError:  # another user's
                        beyond.add(found)
                    swept[found] = ended
            self.poll.poll(nap_ms)
            drain(self.woken)
            nap_ms = min(nap_ms * 2, 50)
        return list(swept.values())

    def sweep_group(self) -> list[dict[str, Any]]:
        """Where orphans are not reparented to us, only the agent's own process group can be
        found."""
        with contextlib.suppress(OSError):  # nothing is left
            if not self.is_hard:
                os.killpg(self.agent, signal.SIGTERM)
                until = time.monotonic() + SWEEP_GRACE_S
                while time.monotonic() < until:
                    time.sleep(0.02)
                    os.killpg(self.agent, 0)
            os.killpg(self.agent, signal.SIGKILL)
        return []


def become(argv: list[str], cwd: str, env: dict[bytes, bytes], files: list[int], tell: int) -> None:
    """Runs in the new process and becomes the agent. Reports the reason if it cannot."""
    fault = ""
    try:
        os.setsid()
        for at, file in enumerate(files):
            os.dup2(file, at)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        try:
            os.chdir(cwd)
        except OSError as error:
            fault = f"{cwd}: the working folder cannot be entered: {error.strerror}"
        else:
            os.execvpe(argv[0], argv, env)  # noqa: S606 - no shell is wanted
    except FileNotFoundError:
        fault = f"{argv[0]}: no such program"
    except OSError as error:
        fault = f"{argv[0]}: cannot be started: {error.strerror}"
    except BaseException as error:
        fault = f"{argv}: cannot be started: {error}"
    finally:
        os.write(tell, fault.replace("\n", " ").encode("utf-8", "replace")[:4000])
        os._exit(127)


def descendants(pid: int) -> list[tuple[int, int]]:
    """The descendants of this process as (start ticks, pid), the oldest first, because a shell
    whose command is killed before it would continue with the next one."""
    below: dict[int, list[tuple[int, int]]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            state, parent, ticks = stat_of(int(name))
            if state not in (b"", b"Z", b"X"):
                below.setdefault(parent, []).append((ticks, int(name)))
    found = list(below.get(pid, ()))
    for _, parent in found:  # grows during the loop
        found += below.get(parent, ())
    return sorted(found)


def send(found: tuple[int, int], number: signal.Signals) -> None:
    """Signals exactly the process that was found, not a later one with the same pid."""
    ticks, pid = found
    try:
        handle = os.pidfd_open(pid)
    except (AttributeError, OSError) as fault:
        if getattr(fault, "errno", 0) == errno.ESRCH:
            raise
        os.kill(pid, number)  # an old kernel
        return
    try:
        if start_ticks(pid) != ticks:
            raise ProcessLookupError
        signal.pidfd_send_signal(handle, number)
    finally:
        os.close(handle)


def argv_of(pid: int) -> list[str]:
    text = read(f"/proc/{pid}/cmdline").decode("utf-8", "replace")
    return text.removesuffix("\0").split("\0")


def start_ticks(pid: int) -> int:
    """When it started, in ticks since boot; 0 if unknown."""
    return stat_of(pid)[2]


def stat_of(pid: int) -> tuple[bytes, int, int]:
    """State, parent, start ticks; (b"", 0, 0) if it is gone."""
    # The name in brackets may contain anything, including brackets and spaces.
    fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return (fields[0], int(fields[1]), int(fields[19])) if len(fields) > 19 else (b"", 0, 0)


def read(path: str) -> bytes:
    """The first page of a small file; empty if it cannot be read."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(file, 4096)
    except OSError:
        return b""
    finally:
        os.close(file)


def write(path: str, record: dict[str, Any]) -> None:
    """Writes the file completely or not at all."""
    aside = path + ".new"
    file = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(file, "wb") as out:
        out.write(json.dumps(record).encode() + b"\n")
        out.flush()
        os.fsync(file)  # otherwise a power cut may leave the name with nothing in it
    os.rename(aside, path)


def drain(file: int) -> None:
    with contextlib.suppress(BlockingIOError):
        while os.read(file, 4096):
            pass


def bytes_of(text: str) -> bytes:
    return binascii.a2b_base64(text) if text else b""


def earlier(one: float | None, other: float) -> float:
    return other if one is None else min(one, other)


if __name__ == "__main__":
    main(sys.argv[1])
