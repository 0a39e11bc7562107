"""Typing into an agent's terminal: it lands once, or it is refused and nothing is left behind."""

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import psutil
import pytest
from msgspec.structs import replace
from support.terminals import fake_tui
from support.terminals.panes import Sat, Server, attached, serving
from support.waiting import until

from segue.system.process.procfs import system
from segue.system.tmux.panes import AgentPane
from segue.system.tmux.typist import TypingRefused, Typist

LINES = "\n".join(f"line {number} of a long text" for number in range(12))


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


def type_(
    sat: Sat, text: str, typist: Typist | None = None, **more: object
) -> TypingRefused | None:
    typist = typist or Typist(quiet_s=1.0)
    more = {"land_s": 2.0, "landed": sat.landed(text), **more}
    return typist.type(sat.seat, sat.terminal, text, **more)  # type: ignore[arg-type]


def why(answer: TypingRefused | None) -> str:
    return answer.why if answer else ""


# It lands


@pytest.mark.parametrize("text", ["hello there", LINES, "é ✓ 漢字 \t x", "/clear", "w" * 300])
def test_a_text_is_submitted_once_and_as_it_is(server: Server, text: str) -> None:
    sat = server.sit()
    assert type_(sat, text) is None
    assert sat.messages() == [text]
    assert sat.screen().draft == ""


def test_a_long_paste_that_is_shown_folded_is_submitted_whole(server: Server) -> None:
    sat = server.sit(fold_chars=50)
    assert type_(sat, LINES) is None
    assert sat.messages() == [LINES]


def test_enter_is_pressed_again_when_it_was_swallowed_and_the_text_is_not_typed_again(
    server: Server,
) -> None:
    sat = server.sit(swallow=2)
    assert type_(sat, "hello") is None
    assert sat.messages() == ["hello"]


def test_an_enter_too_soon_after_a_paste_is_not_pressed(server: Server) -> None:
    sat = server.sit(deaf_s=0.1)
    sat.terminal = fake_tui.terminal(settle_s=0.2)
    assert type_(sat, "hello", tries=1) is None


def test_a_text_that_is_there_from_a_killed_call_is_only_submitted(server: Server) -> None:
    sat = server.sit()
    sat.draft("hello there")
    assert type_(sat, "hello there") is None
    assert sat.messages() == ["hello there"]


@pytest.mark.parametrize("fold_chars", [10_000, 50])
def test_after_a_typist_was_killed_before_the_enter_the_next_one_types_nothing_twice(
    server: Server, fold_chars: int
) -> None:
    sat = server.sit(fold_chars=fold_chars)
    code = (
        "import sys; sys.path[:0] = sys.argv[1:2]\n"
        "import msgspec, fake_tui\n"
        "from segue.system.tmux.panes import AgentPane as Seat\n"
        "from segue.system.tmux.typist import Typist\n"
        "seat = msgspec.json.decode(sys.argv[2], type=Seat)\n"
        "Typist().type(seat, fake_tui.terminal(60), sys.argv[3], landed=lambda: False)\n"
    )
    folder = os.path.dirname(fake_tui.__file__)
    argv = [sys.executable, "-c", code, folder, msgspec.json.encode(sat.seat).decode(), LINES]
    with subprocess.Popen(argv) as killed:
        until(lambda: sat.screen().draft != "")
        killed.send_signal(signal.SIGKILL)
    assert sat.messages() == []
    assert type_(sat, LINES) is None
    assert sat.messages() == [LINES]


def test_a_draft_is_kept_and_put_back_behind_the_text(server: Server) -> None:
    sat = server.sit(busy_s=0.5)
    sat.draft("my own\ndraft, in two lines ")
    assert type_(sat, "hello", keep_draft=True) is None
    until(lambda: sat.screen().draft == "my own\ndraft, in two lines ")
    assert sat.messages() == ["hello"]
    assert "segue" not in sat.tmux.run("list-buffers")


def test_a_draft_that_was_kept_and_not_taken_out_is_put_back_once(server: Server) -> None:
    sat = server.sit()
    sat.draft("my own")
    seat = sat.seat
    sat.tmux.load(f"segue-draft-{seat.pane[1:]}-{seat.pid}-{seat.start_ticks}", "my own")
    assert type_(sat, "hello", keep_draft=True) is None
    until(lambda: sat.screen().draft.startswith("my own"))
    assert sat.screen().draft == "my own"
    assert "segue" not in sat.tmux.run("list-buffers")


def test_control_characters_are_left_out_and_that_is_said(server: Server) -> None:
    sat = server.sit()
    said: list[str] = []
    typist = Typist(say=said.append)
    assert type_(sat, "!a\x1b[201~\x03b\x00\u009b31m", typist, landed=lambda: True) is None
    until(lambda: sat.messages() == ["a[201~b31m"])
    assert said == ["5 characters that a terminal takes for keys were left out"]


# It is refused


def untouched(sat: Sat, answer: TypingRefused | None, reason: str) -> None:
    assert why(answer) == reason
    assert sat.messages() == []
    assert "segue" not in sat.tmux.run("list-buffers")


def test_refused_while_busy(server: Server) -> None:
    sat = server.sit()
    sat.command("/busy 60", "busy")
    untouched(sat, type_(sat, "hello"), "busy")
    assert sat.screen().draft == ""


def test_refused_while_a_dialog_is_open(server: Server) -> None:
    sat = server.sit()
    sat.command("/dialog", "dialog")
    untouched(sat, type_(sat, "hello"), "dialog")
    assert Typist().press(sat.seat, sat.terminal, sat.terminal.dismiss) is None
    until(lambda: sat.screen().state == "idle")


def test_refused_when_the_screen_is_not_understood(server: Server) -> None:
    sat = server.sit()
    sat.command("/garbage", "unknown")
    untouched(sat, type_(sat, "hello"), "unknown")
    assert why(Typist().press(sat.seat, sat.terminal, ("Escape",))) == "unknown"


def test_refused_while_a_draft_stands_and_the_draft_is_left_alone(server: Server) -> None:
    sat = server.sit()
    sat.draft("my own")
    untouched(sat, type_(sat, "hello"), "draft")
    assert sat.screen().draft == "my own"


def test_a_folded_draft_that_cannot_be_read_is_never_taken_out(server: Server) -> None:
    sat = server.sit(fold_chars=50)
    sat.tmux.paste(sat.pane, LINES)
    until(lambda: sat.screen().pasted)
    untouched(sat, type_(sat, "hello", keep_draft=True), "draft")
    assert sat.screen().pasted


def test_refused_in_copy_mode(server: Server) -> None:
    sat = server.sit()
    sat.tmux.run("copy-mode", "-t", sat.pane)
    untouched(sat, type_(sat, "hello"), "copy_mode")
    assert why(Typist().press(sat.seat, sat.terminal, ("Escape",))) == "copy_mode"
    assert isinstance(Typist().look(sat.seat, sat.terminal), TypingRefused)


def test_refused_while_the_panes_of_a_window_are_synchronized(server: Server) -> None:
    sat = server.sit()
    sat.tmux.run("set-option", "-p", "-t", sat.pane, "synchronize-panes", "on")
    untouched(sat, type_(sat, "hello"), "unknown")


def test_refused_for_another_process_with_the_same_pid(server: Server) -> None:
    sat = server.sit()
    later = replace(sat.seat, start_ticks=sat.seat.start_ticks + 1)
    answer = Typist().type(later, sat.terminal, "hello", landed=lambda: False)
    untouched(sat, answer, "gone")


def test_refused_when_the_process_sits_in_another_pane(server: Server) -> None:
    sat, other = server.sit(), server.sit()
    moved = replace(sat.seat, pane=other.pane)
    untouched(other, Typist().type(moved, sat.terminal, "hello", landed=lambda: False), "gone")


def test_refused_when_the_pane_is_dead_or_gone(server: Server) -> None:
    sat = server.sit()
    seat = sat.seat
    sat.tmux.literal(sat.pane, "/exit\r")

    def is_dead() -> bool:
        pane = sat.tmux.pane(sat.pane)
        return pane is None or pane.dead

    until(is_dead)
    typist = Typist()
    assert why(typist.type(seat, sat.terminal, "hello", landed=lambda: False)) == "gone"
    sat.tmux.run("kill-pane", "-t", sat.pane)
    assert why(typist.type(seat, sat.terminal, "hello", landed=lambda: False)) == "gone"
    nowhere = replace(seat, socket=seat.socket + "-none")
    assert why(typist.type(nowhere, sat.terminal, "hello", landed=lambda: False)) == "gone"


def below_a_shell(server: Server, **options: float) -> tuple[Sat, AgentPane]:
    """A fake TUI that was started by hand."""
    file = server.folder / f"messages-{secrets.token_hex(4)}"
    pane = shell(server)
    program = f"{sys.executable} -I -S {fake_tui.__file__} {file} '{json.dumps(options)}'"
    server.tmux.literal(pane, program + "\n")
    sat = Sat(server, "", pane, file)
    until(lambda: sat.screen().state == "idle")
    (agent,) = psutil.Process(sat.seat.pid).children()
    facts = system().facts(agent.pid)
    assert facts is not None
    return sat, replace(sat.seat, pid=agent.pid, start_ticks=facts.start_ticks)


def test_refused_when_another_process_is_in_front(server: Server) -> None:
    """The agent was stopped with Ctrl+Z, and the shell has the terminal."""
    sat, seat = below_a_shell(server)
    agent = psutil.Process(seat.pid)
    agent.suspend()
    until(lambda: "Stopped" in "".join(sat.tmux.capture(sat.pane).lines))
    answer = Typist().type(seat, sat.terminal, "touch /nowhere", landed=lambda: False)
    assert why(answer) == "not_in_front"
    assert "touch" not in "".join(sat.tmux.capture(sat.pane).lines)
    agent.kill()


def test_no_enter_for_a_dialog_that_opened_in_that_moment(server: Server) -> None:
    sat = server.sit(ambush=1)
    untouched(sat, type_(sat, "hello"), "dialog")
    assert sat.screen().state == "dialog"


def test_no_enter_for_the_shell_of_an_agent_that_ended_in_that_moment(server: Server) -> None:
    sat, seat = below_a_shell(server, leaves=1)
    answer = Typist().type(seat, sat.terminal, "touch /nowhere", landed=lambda: False)
    assert why(answer) in ("gone", "starting", "unknown", "swallowed", "draft")
    until(lambda: sat.tmux.shell_line(sat.pane) == "$")
    assert "touch" not in "".join(sat.tmux.capture(sat.pane).lines)


def test_refused_while_the_user_presses_keys(server: Server) -> None:
    sat = server.sit()
    with attached(server, sat.session) as user:
        user.press("\x1b[A")
        untouched(sat, type_(sat, "hello", Typist()), "user_active")


def test_a_text_that_never_leaves_is_taken_out_again(server: Server) -> None:
    sat = server.sit(never=1)
    untouched(sat, type_(sat, "hello", tries=2), "swallowed")
    assert sat.screen().draft == ""


def test_a_text_of_which_nothing_is_heard_is_not_sent_again(server: Server) -> None:
    sat = server.sit()
    answer = type_(sat, "hello", landed=lambda: False, land_s=0.2)
    assert why(answer) == "swallowed"
    assert sat.messages() == ["hello"]


def test_an_interrupt_is_pressed_only_in_the_states_that_are_named(server: Server) -> None:
    sat = server.sit()
    typist = Typist()
    assert why(typist.press(sat.seat, sat.terminal, ("Escape",), states=("busy",))) == "unknown"
    sat.command("/busy 60", "busy")
    assert typist.press(sat.seat, sat.terminal, ("Escape",), states=("busy",)) is None
    until(lambda: sat.screen().state == "idle")


def test_nobody_attached_is_not_a_user(server: Server) -> None:
    sat = server.sit()
    with attached(server, sat.session):
        pass
    assert type_(sat, "hello", Typist(quiet_s=3600.0)) is None, "who left is not waited for"


# A shell


def shell(server: Server) -> str:
    _, pane = server.session("env", "PS1=$ ", "bash", "--norc", "--noprofile", "-i")
    until(lambda: server.tmux.shell_line(pane) == "$")
    return pane


def test_a_shell_at_its_prompt_runs_one_plain_command(server: Server) -> None:
    pane, file = shell(server), server.folder / "made"
    typist, socket = Typist(), server.tmux.socket
    words = ("touch", str(file))
    assert why(typist.command(socket, pane, ("touch", f"$({file})"), line="$")) == "unknown"
    assert why(typist.command(socket, pane, words, line="other$")) == "draft"
    assert why(typist.command(socket, "%99999", words, line="$")) == "gone"
    assert typist.command(socket, pane, words, line="$ ") is None
    until(file.exists)


def test_no_command_for_a_shell_that_runs_something_or_was_typed_into(server: Server) -> None:
    pane = shell(server)
    typist, socket = Typist(), server.tmux.socket
    server.tmux.literal(pane, "cat")
    until(lambda: server.tmux.shell_line(pane) == "$ cat")
    assert why(typist.command(socket, pane, ("echo", "x"), line="$")) == "draft"
    server.tmux.keys(pane, "Enter")

    def runs_cat() -> bool:
        shown = server.tmux.pane(pane)
        return shown is not None and shown.command == "cat"

    until(runs_cat)
    assert why(typist.command(socket, pane, ("echo", "x"), line="")) == "not_in_front"
    assert "echo" not in "".join(server.tmux.capture(pane).lines)
