"""`segue open`: starts an agent in a hidden tmux server."""

import difflib
import os
import shutil
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import click

from segue import agents
from segue.agents import drives
from segue.errors import InputError, StateError
from segue.system.files import state
from segue.system.tmux import foreground, host, hosting, hosting_setup
from segue.system.tmux.hosting import Hosted
from segue.system.tmux.tmux import TmuxError
from segue.views import printing

SCHEMA = 1
_WATCH = "segue watch --auto"
_NOTE = "segue: detach: "


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--list", "only_list", is_flag=True, help="List the agents that are open.")
@click.option("--detach", is_flag=True, help="Detach the terminals from AGENT (or the only one).")
@click.option("--json", "as_json", is_flag=True, help="With --list: one JSON object on stdout.")
@click.argument("agent", required=False)
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def command(
    only_list: bool, detach: bool, as_json: bool, agent: str | None, flags: tuple[str, ...]
) -> None:
    """Start AGENT in this terminal so that `segue watch` can hand it over and resume it.

    FLAGS go to the agent unchanged. The agent runs in a hidden tmux server. Closing the terminal or
    pressing Ctrl+\\ leaves it running.

    Without AGENT, or with a name from --list (claude-1), return to an agent that is already
    running.
    """
    if only_list or as_json:
        _print_list(as_json=as_json)
        return
    if detach:
        _detach(agent)
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InputError(
            "segue open needs a terminal, but stdin or stdout is not one; without a terminal:"
            " segue run TASK"
        )
    hosting.check_tmux(os.environ)
    host = _chosen(agent) if agent is None or not _is_agent(agent) else _start(agent, flags)
    sys.exit(_show(host))


def _is_agent(name: str) -> bool:
    return agents.find(name) is not None


def _chosen(name: str | None) -> Hosted:
    """The open agent of this name; without a name, the only one, or the only one of this folder.
    Raises InputError, with a list if there are several."""
    everyone = hosting.hosted()
    if name is not None:
        found = next((each for each in everyone if each.name == name), None)
        if found is None:
            raise _unknown(name, everyone)
        return found
    here = os.getcwd()
    for some in (everyone, [each for each in everyone if each.cwd == here]):
        if len(some) == 1:
            return some[0]
    if not everyone:
        raise InputError("no agent is open; start one: segue open claude")
    raise InputError(f"{len(everyone)} agents are open; return to one:", *_rows(everyone))


def _rows(everyone: Sequence[Hosted], verb: str = "segue open") -> list[str]:
    wide = max(len(each.name) for each in everyone)
    return [
        f"  {verb} {each.name:{wide}}   {each.cwd}{'   (attached)' if each.clients else ''}"
        for each in everyone
    ]


def _unknown(name: str, everyone: Sequence[Hosted]) -> InputError:
    names = [*agents.names(), *(each.name for each in everyone)]
    close = difflib.get_close_matches(agents.canonical(name[:80]), names, 1)
    hint = f"did you mean {close[0]}?" if close else f"segue knows {', '.join(agents.names())}"
    stem, _, number = name.rpartition("-")
    if number.isdecimal() and _is_agent(stem):
        return InputError(f"{name} is not open; see: segue open --list")
    return InputError(f"unknown agent {name!r}; {hint}")


def _print_list(*, as_json: bool) -> None:
    everyone = hosting.hosted()
    if as_json:
        rows = [
            {
                "name": each.name,
                "agent": each.agent,
                "cwd": each.cwd,
                "started_at": each.started_at,
                "attached": each.clients,
            }
            for each in everyone
        ]
        printing.say_json({"schema": SCHEMA, "open": rows})
    elif everyone:
        for row in _rows(everyone):
            printing.say(row.strip())
    else:
        printing.say("no agent is open; start one: segue open claude")


def _detach(name: str | None) -> None:
    attached = [each for each in hosting.hosted() if each.clients]
    if name is not None:
        attached = [each for each in attached if each.name == name]
        if not attached:
            raise InputError(f"no terminal shows {name}; see: segue open --list")
    if not attached:
        raise InputError("no terminal shows an open agent; see: segue open --list")
    if len(attached) > 1:
        rows = _rows(attached, "segue open --detach")
        raise InputError(f"{len(attached)} agents are shown; name one:", *rows)
    hosting.detach(attached[0])
    printing.say(f"detached: {_goes_on(attached[0])}")


def _start(agent: str, flags: Sequence[str]) -> Hosted:
    name = agents.canonical(agent)
    argv = _program(name)
    size = os.get_terminal_size(0)
    line = f"{_NOTE}{hosting_setup.DETACH_KEY_NAME}, return: segue open"
    if not _is_watched():
        line += f"; no daemon watches it, start one: {_WATCH}"
    printing.say(line, err=True)
    return hosting.start(
        name,
        (*argv, *(flags[1:] if flags[:1] == ("--",) else flags)),
        os.environ,
        os.getcwd(),
        size=(size.columns or 80, size.lines or 24),
        line=line,
    )


def _program(name: str) -> tuple[str, ...]:
    drive = drives.built_in(name)
    found = drive.find(os.environ) if drive is not None else None
    if found is not None:
        return found
    on_path = shutil.which(name)
    if on_path is not None:
        return (on_path,)
    how = f"; install it: {drive.install}" if drive is not None else ""
    raise InputError(f"{name} is not installed, or not on the PATH{how}")


def _is_watched() -> bool:
    """Whether a daemon accepts connections."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked, suppress(OSError):
        asked.settimeout(1.0)
        asked.connect(state.socket_path())
        return True
    return False


def _show(there: Hosted) -> int:
    """Shows an agent until it ends or the user detaches; returns the exit code of this command."""
    end = hosting.end_file()
    env = hosting_setup.client_env(os.environ) | {host.END_FILE: str(end)}
    argv = hosting_setup.client_argv(os.environ, state.open_socket_path(), there.session)
    try:
        lent = foreground.lend(argv, env)
        code = _read(end)
    except OSError as fault:
        raise StateError(f"tmux: {fault.strerror or fault}") from None
    finally:
        with suppress(OSError):
            end.unlink()
    if code is not None:
        _print_rest(there)
        return code
    if lent.signal_number:
        return 128 + lent.signal_number
    still = any(each.name == there.name for each in hosting.hosted())
    if still and lent.code == 0:
        printing.complain(_goes_on(there))
        return 0
    if still:
        printing.complain(f"the terminal was lost; {_goes_on(there)}")
    else:
        printing.complain(
            f"{there.agent} ended together with its tmux server; to find its session: segue"
            f" sessions"
        )
    return 1


def _goes_on(host: Hosted) -> str:
    return f"{host.agent} keeps running; to return: segue open {host.name}"


def _read(end: Path) -> int | None:
    """The exit code that an agent ended with; None if it has not ended."""
    with suppress(FileNotFoundError, ValueError):
        return int(end.read_text())
    return None


def _print_rest(host: Hosted) -> None:
    """Prints the agent's last screen, as it would be there without tmux."""
    with suppress(TmuxError):
        lines = hosting.last_screen(host).split("\n")
        rest = "\n".join(line for line in lines if not line.startswith(_NOTE)).strip("\n")
        if rest:
            printing.say(rest)
