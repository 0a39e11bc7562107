"""`segue service`: the daemon as a user service."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from segue.errors import InputError, StateError
from segue.system import units
from segue.system.files import state
from segue.views import printing

_ASK_S = 30.0


@click.group()
def command() -> None:
    """Run `segue watch` as a user service: with systemd on Linux, with launchd on macOS."""


@command.command()
@click.option("--print", "only_print", is_flag=True, help="Print the unit; write nothing.")
def install(only_print: bool) -> None:
    """Install the service, enable it and start it."""
    path, text = _unit()
    if only_print:
        printing.say(text, nl=False)
        return
    _demand()
    try:
        state.make_watch_folder()
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text, encoding="utf-8")
    except OSError as fault:
        raise StateError(f"{path}: {fault.strerror or fault}") from None
    printing.say(f"written: {path}")
    for argv in _STARTING[_manager()]:
        _run([word.format(path=path, uid=os.getuid()) for word in argv])
    printing.say(
        "the daemon is running and will start at each login; to check: segue service status"
    )
    if _manager() == "systemctl" and not _lingers():
        printing.say("it ends when you log out; to keep it running: loginctl enable-linger")


@command.command()
def remove() -> None:
    """Stop the service and delete its unit."""
    if not (message := take_away()):
        message = "no segue service is installed"
    printing.say(message)


@command.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def status(as_json: bool) -> None:
    """Show whether the service is installed and running. The exit code is 0 if it is running,
    else 3."""
    path, _ = _unit()
    if not os.path.exists(path):
        if as_json:
            printing.say_json({"installed": False, "runs": False, "path": path, "why": ""})
        else:
            printing.say("not installed; to install it: segue service install")
        raise SystemExit(3)
    _demand()
    asked = _ASKING[_manager()]
    done = _ask([word.format(uid=os.getuid()) for word in asked])
    runs = done is not None and done.returncode == 0
    why = _last(done)
    # launchd prints everything about a service; systemd prints one word, which is the answer.
    word = f" ({why})" if why and not runs else ""
    if as_json:
        answer = {"installed": True, "runs": runs, "path": path, "why": "" if runs else why}
        printing.say_json(answer)
    else:
        printing.say(f"{'running' if runs else 'not running'}{word}: {path}")
    raise SystemExit(0 if runs else 3)


def is_installed() -> bool:
    """Whether segue's unit exists."""
    return os.path.exists(_unit()[0])


def take_away() -> str:
    """Stops the service and deletes its unit; returns what was done, or "" if there is none. Raises
    StateError if the unit cannot be deleted."""
    path, _ = _unit()
    if not os.path.exists(path):
        return ""
    if shutil.which(_manager()):
        for argv in _STOPPING[_manager()]:
            _ask([word.format(path=path, uid=os.getuid()) for word in argv])
    try:
        os.unlink(path)
    except OSError as fault:
        raise StateError(f"{path}: {fault.strerror or fault}") from None
    if shutil.which(_manager()):
        for argv in _AFTER[_manager()]:
            _ask(list(argv))
    return f"the service is stopped and removed: {path}"


_STARTING: dict[str, Sequence[Sequence[str]]] = {
    "systemctl": (
        ("systemctl", "--user", "daemon-reload"),
        ("systemctl", "--user", "enable", units.SERVICE),
        ("systemctl", "--user", "restart", units.SERVICE),
    ),
    "launchctl": (("launchctl", "bootstrap", "gui/{uid}", "{path}"),),
}
_STOPPING: dict[str, Sequence[Sequence[str]]] = {
    "systemctl": (("systemctl", "--user", "disable", "--now", units.SERVICE),),
    "launchctl": (("launchctl", "bootout", "gui/{uid}", "{path}"),),
}
_AFTER: dict[str, Sequence[Sequence[str]]] = {
    "systemctl": (("systemctl", "--user", "daemon-reload"),),
    "launchctl": (),
}
_ASKING: dict[str, Sequence[str]] = {
    "systemctl": ("systemctl", "--user", "is-active", units.SERVICE),
    "launchctl": ("launchctl", "print", f"gui/{{uid}}/{units.LABEL}"),
}


def _manager() -> str:
    return "launchctl" if sys.platform == "darwin" else "systemctl"


def _unit() -> tuple[str, str]:
    if sys.platform == "darwin":
        return units.launchd_path(), units.launchd_plist(os.environ)
    return units.systemd_path(), units.systemd_unit(os.environ)


def _demand() -> None:
    if not shutil.which(_manager()):
        raise InputError(
            f"{_manager()} is not available here: start `segue watch` with your own service manager"
            " (segue service install --print shows the unit)"
        )


def _run(argv: Sequence[str]) -> None:
    done = _ask(argv)
    if done is None or done.returncode != 0:
        why = _last(done) or "it does not respond"
        raise StateError(f"{' '.join(argv)}: {why}; the unit was written but not started")


def _ask(argv: Sequence[str]) -> "subprocess.CompletedProcess[str] | None":
    try:
        return subprocess.run(  # noqa: S603 - fixed words
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ASK_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


def _last(done: "subprocess.CompletedProcess[str] | None") -> str:
    """The last line that a program printed."""
    lines = (done.stderr or done.stdout).strip().splitlines() if done is not None else []
    return lines[-1].strip() if lines else ""


def _lingers() -> bool:
    done = _ask(["loginctl", "show-user", str(os.getuid()), "--property=Linger"])
    return done is not None and done.stdout.strip() == "Linger=yes"
