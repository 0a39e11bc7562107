"""What `segue doctor` checks: state, machine, config. No check raises or leaves anything behind."""

import ctypes
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal

from msgspec import Struct

from segue.errors import SegueError
from segue.system.files import state
from segue.system.git.repository import absolute

Status = Literal["ok", "warn", "fail"]
Env = Mapping[str, str]

_ASK_S = 10.0
_MIN_BYTES, _FEW_BYTES = 100_000_000, 1_000_000_000
_SHARED = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "afs", "ceph", "lustre")
"""File systems that other machines may write to as well: SQLite's WAL works only while one machine
uses the database."""
_TIME_ERROR = 5  # of adjtimex: the clock is not synchronised


class HealthCheck(Struct, frozen=True, kw_only=True):
    """The result of one check; `do` says what the user should do about it."""

    name: str
    status: Status
    what: str
    do: str = ""


def ask(argv: Sequence[str], env: Env | None = None, max_s: float = _ASK_S) -> str:
    """What a program prints when it is started with these arguments; "" if it cannot be started, or
    prints nothing within `max_s`."""
    try:
        done = subprocess.run(  # noqa: S603 - names are ours, or the user's own agents
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=max_s,
            check=False,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""
    return (done.stdout or done.stderr).strip()


def tools(env: Env) -> Iterator[HealthCheck]:
    """Whether the programs that segue calls are installed."""
    for name, flag, why, how in (
        (
            "git",
            "--version",
            "without it, only changed files count as progress",
            "install git",
        ),
        ("tmux", "-V", "it is needed only to watch agents in terminals", "install tmux"),
    ):
        program = shutil.which(name, path=absolute(env.get("PATH", os.defpath)))
        if program is None:
            yield HealthCheck(name=name, status="warn", what=f"not on the PATH; {why}", do=how)
        else:
            version = ask([program, flag]).removeprefix(name).removeprefix(" version").strip()
            yield HealthCheck(name=name, status="ok", what=version.partition("\n")[0] or program)


def state_folder() -> Iterator[HealthCheck]:
    """Whether segue can store its state privately, durably, and consistently after a power cut."""
    folder = Path(state.state_folder())
    move = "set SEGUE_HOME to a folder on a local disk"
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        yield HealthCheck(name="state", status="fail", what=f"{place} is not writable", do=move)
        return
    kind = _file_system(place)
    if fault := _locks(place):
        what = f"{folder} is on {kind or 'a file system'} where {fault}"
        yield HealthCheck(name="state", status="fail", what=what, do=move)
    elif kind in _SHARED:
        what = f"{folder} is on {kind}: fine for one machine, not for two at once"
        yield HealthCheck(name="state", status="warn", what=what, do=move)
    elif place == folder and stat.S_IMODE(folder.stat().st_mode) & 0o077:
        what = f"{folder} can be read by others"
        yield HealthCheck(name="state", status="warn", what=what, do=f"chmod 700 {folder}")
    else:
        made = "" if place == folder else " (will be created)"
        yield HealthCheck(name="state", status="ok", what=f"{folder}{made}; locks and WAL work")
    yield _space(place, move)


def _space(place: Path, move: str) -> HealthCheck:
    free = shutil.disk_usage(place).free
    detail = f"{free / 1e9:,.1f} GB free" if free >= 1e9 else f"{free / 1e6:,.0f} MB free"
    status: Status = "fail" if free < _MIN_BYTES else "warn" if free < _FEW_BYTES else "ok"
    what = detail if status == "ok" else f"{detail}; a night of output may need more"
    return HealthCheck(name="space", status=status, what=what, do="" if status == "ok" else move)


def _locks(place: Path) -> str:
    """Why segue's files cannot be in this folder; "" if they can. Tries locks and SQLite in a
    temporary folder there."""
    import fcntl

    try:
        with tempfile.TemporaryDirectory(prefix=".segue-doctor-", dir=place) as folder:
            with open(f"{folder}/lock", "wb") as one, open(f"{folder}/lock", "wb") as two:
                fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
                try:
                    fcntl.flock(two, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return "two processes can hold the same lock"
                except BlockingIOError:
                    pass
            with closing(sqlite3.connect(f"{folder}/try.db")) as db:
                (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
                db.execute("CREATE TABLE t (x)")
                return "" if mode == "wal" else "SQLite has no WAL"
    except (OSError, sqlite3.Error) as fault:
        return f"files cannot be locked ({fault})"


def _file_system(place: Path) -> str:
    """The type of a folder's file system; "" if unknown, as everywhere except on Linux."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return ""
    real, best = str(place.resolve()), ("", "")
    for fields in mounts:
        point = fields[1].replace("\\040", " ")
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best[0]):
            best = (point, fields[2])
    return best[1]


def database() -> Iterator[HealthCheck]:
    """Whether the database of runs can be opened."""
    from segue.runs.store import open_store, runs_path

    path = runs_path()
    if not os.path.exists(path):
        yield HealthCheck(name="runs", status="ok", what="none yet")
        return
    try:
        open_store(path).close()
    except SegueError as fault:
        yield HealthCheck(name="runs", status="fail", what=str(fault))
    except (sqlite3.Error, OSError) as fault:
        yield HealthCheck(name="runs", status="fail", what=f"{path}: {fault}")
    else:
        yield HealthCheck(name="runs", status="ok", what=path)


def clock() -> Iterator[HealthCheck]:
    """Whether the clock is synchronised, because limits reset at a time. Yields nothing if
    unknown."""
    if sys.platform != "linux":
        return
    try:
        clock_state = ctypes.CDLL(None).adjtimex(
            ctypes.create_string_buffer(512)
        )  # all zeros: reads the clock's state, changes nothing
    except (OSError, AttributeError):
        return
    if clock_state == _TIME_ERROR:
        what = "not synchronised: waits for a limit may end too early or late"
        yield HealthCheck(name="clock", status="warn", what=what, do="timedatectl set-ntp true")
    elif clock_state >= 0:
        yield HealthCheck(name="clock", status="ok", what="synchronised")


def sleep(
    env: Env,
    *,
    platform: str = sys.platform,
    sys_folder: Path = Path("/sys"),
    asked: Callable[[Sequence[str]], str] = ask,
) -> Iterator[HealthCheck]:
    """Whether this machine may fall asleep in the middle of a run."""
    if platform == "darwin":
        lines = [line.split() for line in asked(["pmset", "-g"]).splitlines()]
        minutes = next((f[1] for f in lines if len(f) > 1 and f[0] == "sleep"), "?")
        if minutes == "0":
            yield HealthCheck(name="sleep", status="ok", what="switched off")
        elif any(
            line.split()[1:2] == ["1"]
            for line in asked(["pmset", "-g", "assertions"]).splitlines()
            if line.strip().startswith(("PreventUserIdleSystemSleep", "PreventSystemSleep"))
        ):
            yield HealthCheck(name="sleep", status="ok", what="kept awake by a program")
        else:
            what = f"this Mac sleeps when idle (pmset: sleep {minutes})"
            yield HealthCheck(
                name="sleep", status="warn", what=what, do="caffeinate -i segue run …"
            )
        return
    able = _text(sys_folder / "power/state").split()
    if not {"mem", "freeze", "standby"} & set(able):
        yield HealthCheck(name="sleep", status="ok", what="this machine cannot sleep")
        return
    words = set(asked(["systemctl", "is-enabled", "suspend.target", "sleep.target"]).split())
    if words == {"masked"}:
        yield HealthCheck(name="sleep", status="ok", what="switched off (masked)")
        return
    if any(_blocks_sleep(line) for line in asked(_INHIBITORS).splitlines()):
        yield HealthCheck(
            name="sleep", status="ok", what="kept awake by a program (systemd-inhibit)"
        )
        return
    power = sorted((sys_folder / "class/power_supply").glob("*"))
    kinds = {_text(p / "type"): p for p in power if _text(p / "scope") != "Device"}
    do = "systemd-inhibit --what=sleep:idle:handle-lid-switch segue run …"
    if "Battery" in kinds:
        plugged = any(_text(p / "online") == "1" for p in power)
        how = "plugged in" if plugged else "on battery"
        what = f"a laptop, {how}: a closed lid or an idle hour puts it to sleep"
        yield HealthCheck(name="sleep", status="warn", what=what, do=do)
    elif env.get("XDG_CURRENT_DESKTOP") or env.get("DISPLAY") or env.get("WAYLAND_DISPLAY"):
        what = "the desktop may put this machine to sleep when it is idle"
        yield HealthCheck(name="sleep", status="warn", what=what, do=do)
    else:
        yield HealthCheck(
            name="sleep", status="ok", what="found nothing that puts this machine to sleep"
        )


_INHIBITORS = ("systemd-inhibit", "--list", "--no-legend", "--no-pager")


def _blocks_sleep(line: str) -> bool:
    """Whether this line of systemd-inhibit is about a program that keeps the machine awake, not one
    that only delays sleep."""
    words = line.split()
    return words[-1:] == ["block"] and any("sleep" in word.split(":") for word in words)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def namespaces(why_not: str) -> Iterator[HealthCheck]:
    """Whether `segue drill` can isolate real agents; `why_not`: the reason if it cannot."""
    if why_not:
        what = f"real agents cannot be drilled: {why_not}"
        yield HealthCheck(
            name="drills", status="warn", what=what, do="segue drill works without them"
        )
    else:
        yield HealthCheck(name="drills", status="ok", what="real agents can be isolated")
