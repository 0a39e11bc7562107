"""Which pane a process sits in, and whether its shell is at its prompt."""

import os
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest
from support.terminals.panes import Server, serving
from support.waiting import until

from segue.core.sessions.types import Process
from segue.system.process.procfs import system
from segue.system.tmux import panes as seats
from segue.system.tmux.panes import in_run, seat_of, shell_in
from segue.system.tmux.tmux import Pane, Tmux


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


def agent(pid: int) -> Process:
    facts = system().facts(pid)
    assert facts is not None
    return Process(
        agent="claude", pid=pid, started_at=facts.started_at, start_ticks=facts.start_ticks
    )


def pane_of(server: Server, id: str) -> Pane:
    pane = server.tmux.pane(id)
    assert pane is not None
    return pane


def child(server: Server, id: str) -> int:
    parent = psutil.Process(pane_of(server, id).pid)
    until(lambda: len(parent.children()) == 1)
    return parent.children()[0].pid


def test_a_process_is_found_in_the_pane_that_its_environment_names(server: Server) -> None:
    _, pane = server.session("sh", "-c", "cat; true")
    pid = child(server, pane)
    seat = seat_of(agent(pid))
    assert seat is not None
    assert (seat.socket, seat.pane, seat.pid) == (server.tmux.socket, pane, pid)
    assert (seat.tty, seat.agent) == (pane_of(server, pane).tty, "claude")
    assert seats.why_left(seat, pane_of(server, pane), system()) == ""


def test_without_an_environment_it_is_found_by_its_terminal_on_the_usual_server(
    server: Server,
) -> None:
    _, pane = server.session("sh", "-c", "env -i cat; true")
    pid = child(server, pane)
    until(lambda: psutil.Process(pid).name() == "cat")
    seat = seat_of(agent(pid), tmux_for=lambda socket: Tmux(socket or server.tmux.socket))
    assert seat is not None
    assert (seat.socket, seat.pane) == ("", pane)


def test_a_pane_that_was_named_from_another_terminal_is_not_its_seat(server: Server) -> None:
    """An editor was opened from a pane, and the agent in the editor's terminal."""
    _, pane = server.session("cat")
    env = {**os.environ, "TMUX": f"{server.tmux.socket},1,0", "TMUX_PANE": pane}
    sleeper = subprocess.Popen(["sleep", "60"], env=env, start_new_session=True)
    try:
        assert seat_of(agent(sleeper.pid)) is None
    finally:
        sleeper.kill()
        sleeper.wait()
    _, other = server.session("sh", "-c", f"TMUX_PANE={pane} sleep 60; true")
    seat = seat_of(agent(child(server, other)))
    assert seat is not None
    assert seat.pane == other


def test_a_process_that_is_gone_has_no_seat() -> None:
    assert seat_of(Process(agent="claude", pid=2**22 + 1, started_at=0.0)) is None
    assert not in_run(2**22 + 1)


def test_what_a_run_started_is_known_by_its_mark() -> None:
    for name, expected in (("SEGUE_RUN", True), ("SEGUE_RUNS", False)):
        sleeper = subprocess.Popen(["sleep", "60"], env={name: "r-1", "PATH": os.environ["PATH"]})
        try:
            until(lambda n=name, s=sleeper: n in psutil.Process(s.pid).environ())  # type: ignore[misc]
            assert in_run(sleeper.pid) is expected
        finally:
            sleeper.kill()
            sleeper.wait()


def test_a_shell_at_its_prompt_is_told_from_one_that_runs_something(server: Server) -> None:
    _, pane = server.session("env", "PS1=$ ", "bash", "--norc", "--noprofile", "-i")
    until(lambda: server.tmux.shell_line(pane) == "$")
    until(lambda: shell_in(pane_of(server, pane)))
    server.tmux.literal(pane, "sleep 60 & cat\n")  # one in the background, one in front
    until(lambda: pane_of(server, pane).command == "cat")
    assert not shell_in(pane_of(server, pane))
    server.tmux.keys(pane, "C-c")
    until(lambda: shell_in(pane_of(server, pane)))
    server.tmux.run("copy-mode", "-t", pane)
    assert not shell_in(pane_of(server, pane))
    server.tmux.run("send-keys", "-X", "-t", pane, "cancel")
    server.tmux.literal(pane, "kill %1; exit\n")
    until(lambda: pane_of(server, pane).dead)
    assert not shell_in(pane_of(server, pane))


@pytest.mark.parametrize(
    "argv",
    [
        ("sh", "-c", "cat; true"),
        ("sh", "-c", "while :; do read -r x; done"),
        ("bash", "-ic", "cat; true"),
        ("cat",),
        (sys.executable, "-i"),
    ],
)
def test_what_is_not_a_shell_at_its_prompt(server: Server, argv: tuple[str, ...]) -> None:
    _, pane = server.session(*argv)
    assert not shell_in(pane_of(server, pane))


def test_a_shell_without_job_control_is_not_idle_while_its_child_runs(server: Server) -> None:
    _, pane = server.session("env", "PS1=$ ", "bash", "--norc", "--noprofile", "-i")
    until(lambda: server.tmux.shell_line(pane) == "$")
    server.tmux.literal(pane, "set +m; cat\n")
    until(lambda: len(psutil.Process(pane_of(server, pane).pid).children()) == 1)
    assert not shell_in(pane_of(server, pane))
