"""What `segue doctor` checks for people who watch agents in terminals: the daemon, its service,
claude's hooks, tmux. No check raises or changes anything."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from segue import __version__
from segue.agents.claude import setup as claude_settings
from segue.cli.support.checkup.checks import Env, HealthCheck, ask
from segue.errors import SegueError
from segue.system import units
from segue.system.files import edits, state

MIN_TMUX = (3, 2)
"""The first version with the formats that segue checks before it types into a pane."""

_ANSWER_S = 3.0
_START = "segue watch, or segue service install"
_AGAIN = "segue setup claude"

Asked = Callable[[Sequence[str]], str]


def examine(env: Env) -> Iterator[HealthCheck]:
    """All these checks, in the order in which `segue doctor` shows them."""
    hooks = list(claude_hooks(env))
    service = list(service_unit(env))
    yield from tmux(env)
    yield from daemon(is_wanted=bool(hooks or service))
    yield from service
    yield from hooks


def daemon(*, is_wanted: bool) -> Iterator[HealthCheck]:
    """Whether the daemon is running, responds, and notices changes. That none is running is a
    problem only if `is_wanted`."""
    from segue.watch.server.remote import NoDaemon, Remote

    try:
        status: dict[str, Any] = Remote(state.socket_path(), timeout_s=_ANSWER_S).get("/v1/status")
    except NoDaemon:
        if is_wanted:
            what = "not running: hooks and the status line show only what claude itself reports"
            yield HealthCheck(name="watch", status="warn", what=what, do=_START)
        else:
            what = "not running; needed only for agents that you run yourself"
            yield HealthCheck(name="watch", status="ok", what=what)
        return
    except SegueError as fault:
        do = "end that process, then start it again: segue watch"
        yield HealthCheck(name="watch", status="warn", what=str(fault), do=do)
        return
    pid, version = status.get("pid"), str(status.get("version", ""))
    if version != __version__:
        what = f"process {pid} is running segue {version}, but this is segue {__version__}"
        yield HealthCheck(name="watch", status="warn", what=what, do="start it again: segue watch")
    elif degraded := str(status.get("degraded") or ""):
        what = f"process {pid} sees changes late: {degraded}"
        do = "sysctl fs.inotify.max_user_watches=524288 fs.inotify.max_user_instances=512"
        yield HealthCheck(name="watch", status="warn", what=what, do=do)
    else:
        what = f"process {pid} watches {status.get('sessions', 0)} sessions"
        yield HealthCheck(name="watch", status="ok", what=what)


def claude_hooks(env: Env) -> Iterator[HealthCheck]:
    """Whether the entries of `segue setup claude` still point to this segue. Yields nothing if
    there are none."""
    from segue.cli.tools.setup import hook_groups

    path = claude_settings.path(env)
    try:
        settings = edits.parse(edits.read(path) or "", path)
    except SegueError:
        return  # claude itself reports that
    if not isinstance(settings, dict) or not claude_settings.is_there(settings):
        return
    found = set(_commands(settings))
    wanted = {hook["command"] for group in hook_groups().values() for hook in group["hooks"]}
    installed = {command for command in found if claude_settings.is_own(command)}
    missing = sorted({place for command in installed for place in _missing(command)})
    if missing:
        what = f"{path} names a segue that no longer exists: {missing[0]}"
        yield HealthCheck(name="hooks", status="warn", what=what, do=_AGAIN)
    elif not wanted <= installed:
        what = f"{path} has hooks of another segue, or from before an upgrade"
        yield HealthCheck(name="hooks", status="warn", what=what, do=_AGAIN)
    elif settings.get("disableAllHooks"):
        what = f"disableAllHooks in {path}: claude runs none of them"
        yield HealthCheck(name="hooks", status="warn", what=what, do="remove it there")
    else:
        yield HealthCheck(
            name="hooks", status="ok", what=f"claude's hooks point to this segue: {path}"
        )


def _commands(settings: dict[str, Any]) -> Iterator[str]:
    """Every command that claude runs according to these settings; malformed ones are left out."""
    line = claude_settings.line_of(settings)
    if isinstance(line, dict) and isinstance(line.get("command"), str):
        yield line["command"]
    hooks = settings.get("hooks")
    for groups in hooks.values() if isinstance(hooks, dict) else ():
        for group in groups if isinstance(groups, list) else ():
            entries = group.get("hooks") if isinstance(group, dict) else None
            for entry in entries if isinstance(entries, list) else ():
                if isinstance(entry, dict) and isinstance(entry.get("command"), str):
                    yield entry["command"]


def _missing(command: str) -> Iterator[str]:
    """The paths of a command's interpreter and client that do not exist."""
    with suppress(ValueError):
        words = shlex.split(command)
        flags = words.index("-I")
        for place in (words[flags - 1], words[flags + 2] if len(words) > flags + 2 else ""):
            if place and not os.path.exists(place):
                yield place


def service_unit(env: Env, asked: Asked = ask) -> Iterator[HealthCheck]:
    """Whether the service still starts this segue, and continues when its user logs out. Yields
    nothing if there is none."""
    path = units.launchd_path() if sys.platform == "darwin" else units.systemd_path()
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    if (program := units.own_argv()[0]) not in text:
        what = f"{path} starts a different segue ({program})"
        yield HealthCheck(name="service", status="warn", what=what, do="segue service install")
        return
    if sys.platform != "darwin" and shutil.which("loginctl", path=env.get("PATH")):
        linger = asked(["loginctl", "show-user", str(os.getuid()), "--property=Linger"])
        if linger == "Linger=no":
            what = "the daemon ends when you log out"
            yield HealthCheck(name="service", status="warn", what=what, do="loginctl enable-linger")
            return
    yield HealthCheck(name="service", status="ok", what=path)


def tmux(env: Env, asked: Asked = ask) -> Iterator[HealthCheck]:
    """Whether the installed tmux is new enough. Yields nothing if there is none; `tools` reports
    that."""
    program = shutil.which("tmux", path=env.get("PATH"))
    answer = asked([program, "-V"]) if program else ""
    version = re.search(r"(\d+)\.(\d+)", answer)
    if version and (int(version[1]), int(version[2])) < MIN_TMUX:
        least = ".".join(map(str, MIN_TMUX))
        what = f"{answer} is too old: segue can type only with tmux {least} or newer"
        yield HealthCheck(name="tmux", status="warn", what=what, do="install a newer tmux")
