"""The process in a pane of `segue open`: starts the agent, and tells its terminals when it ends.

It uses only the standard library and runs with `python -I -S`. The command comes through a named
pipe, so that no environment ever appears in an argument or a file. The agent gets the environment
of the terminal in which `segue open` was typed; only the variables about the terminal itself are
tmux's. `TMUX` is not set: programs that the agent starts must not reach the server that it runs in,
and agents that see it use fewer colours.

tmux itself would report the end too, but before 3.5 it may miss it: libutempter consumes its
SIGCHLD.
"""

import json
import os
import signal
import sys
import time
from typing import Any

WAIT_S = 30  # for the command to start, and for the first terminal that shows it
SEEN_S = 10.0  # for a terminal that showed it to the end, to take over the last screen
END_FILE = "SEGUE_OPEN_END"
"""Tells a terminal's tmux client the file into which it writes the exit code."""
_LOOK_S = 0.1
_OF_THE_TERMINAL = ("TERM", "TERM_PROGRAM", "TERM_PROGRAM_VERSION")
_SIZES = ("COLUMNS", "LINES")  # of a terminal whose size may change
_SIGNALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


def main(pipe: str) -> None:
    """Runs until the agent has ended."""
    signal.alarm(WAIT_S)  # the process that should have sent the command is gone
    with open(pipe, "rb") as file:
        order = json.loads(file.read())
    signal.alarm(0)
    if order["line"]:
        os.write(1, f"\x1b[2m{order['line']}\x1b[22m\r\n".encode("utf-8", "replace"))
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    agent = os.fork()
    if not agent:
        _become(order)
    code = _end_of(agent)
    os.tcsetpgrp(0, os.getpgrp())
    _say(code)
    os._exit(code)


def _become(order: dict[str, Any]) -> None:
    """Starts the agent in a foreground group of its own, so that Ctrl+C reaches only the agent in a
    terminal that is not raw."""
    argv = order["argv"]
    try:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpid())
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        env = {name: value for name, value in order["env"].items() if name not in _SIZES}
        for name in _OF_THE_TERMINAL:
            env.pop(name, None)
            if name in os.environ:
                env[name] = os.environ[name]
        os.chdir(order["cwd"])
        os.execve(argv[0], argv, {**env, "PWD": order["cwd"]})  # noqa: S606 - no shell is wanted
    except BaseException as fault:  # in any case: there must be no second host
        why = getattr(fault, "strerror", "") or str(fault)
        os.write(2, f"segue: {argv[0]}: {why}\r\n".encode("utf-8", "replace"))
        os._exit(127 if isinstance(fault, FileNotFoundError) else 126)


def _end_of(agent: int) -> int:
    """Waits for the agent; returns its exit code as a shell reports it. An agent that stops itself
    is continued, because nobody else could do that."""
    while True:
        _, status = os.waitpid(agent, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        time.sleep(_LOOK_S)
        os.killpg(agent, signal.SIGCONT)


def _say(code: int) -> None:
    """Makes all terminals leave with the exit code, and waits until one of them has taken over the
    last screen."""
    pane = os.environ["TMUX_PANE"]
    session = _tmux("display-message", "-p", "-t", pane, "#{session_id}")
    _tmux("set-option", "-u", "-t", session, "@segue_agent")  # nobody can return to it
    until = time.monotonic() + WAIT_S
    # One that ended at once is not shown anywhere yet.
    while not (_clients(session) or _was_shown(session)) and time.monotonic() < until:
        time.sleep(_LOOK_S)
    until = time.monotonic() + SEEN_S
    is_shown = False
    while _clients(session) and time.monotonic() < until:
        is_shown = True
        _tmux("detach-client", "-s", session, "-E", f'echo {code} > "${END_FILE}"')
        time.sleep(_LOOK_S)
    while is_shown and time.monotonic() < until:
        if _tmux("show-options", "-v", "-t", session, "@segue_seen"):
            break
        time.sleep(_LOOK_S)


def _clients(session: str) -> str:
    return _tmux("list-clients", "-t", session, "-F", "#{client_name}")


def _was_shown(session: str) -> bool:
    """Whether a terminal was showing it when it ended; if none was, nobody waits for it."""
    attached = _tmux("display-message", "-p", "-t", f"{session}:", "#{session_last_attached}")
    return attached not in ("", "0")


def _tmux(*words: str) -> str:
    """The output of a command; "" if it fails."""
    import subprocess

    socket = os.environ["TMUX"].rsplit(",", 2)[0]
    try:
        done = subprocess.run(  # noqa: S603
            ["tmux", "-S", socket, *words],  # noqa: S607
            stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace").strip()


if __name__ == "__main__":
    main(sys.argv[1])
