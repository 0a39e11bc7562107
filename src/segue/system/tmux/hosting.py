"""The tmux server of `segue open`: segue sees and types into its agents like in any other tmux, and
the user does not notice tmux.

There is one server per user, on a socket of its own, without the user's tmux config. It ends
with the last agent in it. Each agent has its own session (`claude-1`); its pane runs `host`,
which runs the agent.
"""

import json
import os
import re
import secrets
import select
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from segue.errors import InputError, StateError
from segue.system.files import state
from segue.system.tmux import host
from segue.system.tmux import hosting_setup as setup
from segue.system.tmux.tmux import Tmux, TmuxError

MIN_TMUX = (3, 2)
_MAX_NUMBER = 1_000
_HOSTS = (
    os.path.join("segue", "system", "tmux", "host.py"),
    os.path.join("segue", "io", "host.py"),
)
"""Host programs of this version and of earlier ones, which may still run in a pane."""
_MARK = f"<{secrets.token_hex(8)}>"
_FIELDS = (
    *("session_name", "session_id", "pane_id", "session_created"),
    *("session_attached", "@segue_agent", "@segue_cwd"),
)
_PACKAGERS = {
    "brew": "brew install tmux",
    "apt-get": "sudo apt-get install tmux",
    "dnf": "sudo dnf install tmux",
    "yum": "sudo yum install tmux",
    "pacman": "sudo pacman -S tmux",
    "zypper": "sudo zypper install tmux",
    "apk": "sudo apk add tmux",
    "port": "sudo port install tmux",
    "pkg": "sudo pkg install tmux",
}


class Hosted(Struct, frozen=True, kw_only=True):
    """An agent in segue's own tmux."""

    name: str  # "claude-1"
    session: str  # tmux's own id: "$3"
    pane: str
    agent: str
    cwd: str
    started_at: float
    clients: int  # number of terminals that show it


def tmux() -> Tmux:
    """The server, whether or not it is running."""
    return Tmux(state.open_socket_path())


def is_there() -> bool:
    """Whether there may be a server: fast, and correct unless one was killed."""
    with suppress(OSError):
        return stat.S_ISSOCK(os.lstat(state.open_socket_path()).st_mode)
    return False


def hosted() -> list[Hosted]:
    """All agents in it, the oldest first."""
    if not is_there():
        return []
    form = _MARK.join(f"#{{{name}}}" for name in _FIELDS) + _MARK * 2
    try:
        records = tmux().run("list-panes", "-a", "-F", form).split(_MARK * 2 + "\n")
    except TmuxError:
        return []
    fields = [record.split(_MARK) for record in records]
    rows = [dict(zip(_FIELDS, each, strict=True)) for each in fields if len(each) == len(_FIELDS)]
    alive = [each for each in rows if each["@segue_agent"]]
    return sorted(map(_hosted, alive), key=lambda each: (each.started_at, each.session))


def is_host(arguments: Sequence[str]) -> bool:
    """Whether a process with these arguments is the host of a pane."""
    return any(word.endswith(_HOSTS) for word in arguments[1:5])


def check_tmux(env: Mapping[str, str]) -> None:
    """Raises InputError unless a suitable tmux is installed."""
    path = env.get("PATH")
    program = shutil.which("tmux", path=path)
    packager = next((name for name in _PACKAGERS if shutil.which(name, path=path)), "")
    install = _PACKAGERS.get(packager, "see https://github.com/tmux/tmux/wiki/Installing")
    if program is None:
        raise InputError(f"segue open needs tmux, which is not installed; install it: {install}")
    try:
        done = subprocess.run(  # noqa: S603
            [program, "-V"], capture_output=True, text=True, timeout=10, check=False
        )
        output = done.stdout.strip()
    except (OSError, subprocess.TimeoutExpired, ValueError):
        output = ""
    version = re.search(r"(\d+)\.(\d+)", output)
    if output.startswith("tmux ") and version and (int(version[1]), int(version[2])) < MIN_TMUX:
        least = ".".join(map(str, MIN_TMUX))
        raise InputError(f"segue open needs tmux {least} or newer, and this is {output}: {install}")


def start(
    agent: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    *,
    size: tuple[int, int] = (80, 24),
    line: str = "",
) -> Hosted:
    """Starts an agent in its own session, which no terminal shows yet. `line` appears above the
    agent's output. Raises TmuxError or StateError."""
    folder = _folder()
    pipe = folder / f"start-{secrets.token_hex(8)}"
    try:
        os.mkfifo(pipe, 0o600)
        name, pane = _new_session(agent, pipe, size)
        what = {"argv": [*argv], "env": {**env}, "cwd": cwd, "line": line}
        tmux().run_all(
            ("set-option", "-t", f"={name}:", "@segue_agent", agent),
            ("set-option", "-t", f"={name}:", "@segue_cwd", cwd),
        )
        _tell(pipe, json.dumps(what).encode())
    except OSError as fault:
        raise StateError(f"{folder}: {fault.strerror or fault}") from None
    finally:
        with suppress(OSError):
            pipe.unlink()
    found = next((each for each in hosted() if each.name == name), None)
    return found or Hosted(
        name=name, session=f"={name}", pane=pane, agent=agent, cwd=cwd,
        started_at=time.time(), clients=0,
    )  # fmt: skip


def detach(each: Hosted) -> None:
    """Makes every terminal leave it; the agent keeps running."""
    tmux().run("detach-client", "-s", each.session, "-E", "exit 0")


def last_screen(hosted_session: Hosted) -> str:
    """The last screen of an agent that has ended, "" if it is not worth showing; lets its session
    end. Raises TmuxError."""
    output = tmux().run_all(
        ("display-message", "-p", "-t", hosted_session.pane, "#{alternate_on}"),
        ("capture-pane", "-p", "-J", "-t", hosted_session.pane),
        ("set-option", "-t", hosted_session.session, "@segue_seen", "1"),
    )
    alternate, _, lines = output.partition("\n")
    return "" if alternate == "1" else "\n".join(x.rstrip() for x in lines.split("\n")).rstrip()


def _new_session(agent: str, pipe: Path, size: tuple[int, int]) -> tuple[str, str]:
    taken = {each.name for each in hosted()}
    begins = (sys.executable, "-I", "-S", host.__file__, str(pipe))
    for number in range(1, _MAX_NUMBER):
        name = f"{agent}-{number}"
        if name in taken:
            continue
        how = ("-d", "-P", "-F", "#{pane_id}", "-s", name, "-n", agent)
        new = ("new-session", *how, "-x", str(size[0]), "-y", str(size[1]), "--", *begins)
        start = ("-f", "/dev/null", "start-server")
        try:
            # Not from this folder: the server would keep it in use for as long as it runs.
            output = tmux()._call([start, *setup.commands(), new], cwd="/")
        except TmuxError as fault:
            if "duplicate session" in str(fault):  # another process was faster
                continue
            raise
        return name, output.strip()
    raise StateError(f"{_MAX_NUMBER - 1} {agent} sessions are open; see: segue open --list")


def _tell(pipe: Path, data: bytes) -> None:
    """Sends the command to the process in the pane. Raises OSError or StateError."""
    until = time.monotonic() + host.WAIT_S
    while True:
        try:
            out = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            break
        except OSError:
            if time.monotonic() > until:
                raise StateError("nothing could be started in tmux") from None
            time.sleep(0.01)
    try:
        while data and time.monotonic() < until:
            if select.select([], [out], [], 1.0)[1]:
                data = data[os.write(out, data) :]
    finally:
        os.close(out)


def _folder() -> Path:
    """The private folder for the socket and for files between the processes."""
    folder = os.path.dirname(state.open_socket_path())
    state.private_folder(folder)
    return Path(folder)


def end_file() -> Path:
    """A new name for the file that `END_FILE` refers to."""
    return _folder() / f"end-{secrets.token_hex(8)}"


def _hosted(row: Mapping[str, str]) -> Hosted:
    def number(name: str) -> int:
        return int(row[name]) if row[name].isdecimal() else 0

    return Hosted(
        name=row["session_name"],
        session=row["session_id"],
        pane=row["pane_id"],
        agent=row["@segue_agent"],
        cwd=row["@segue_cwd"],
        started_at=float(number("session_created")),
        clients=number("session_attached"),
    )
