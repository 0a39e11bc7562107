"""tmux over its command line, on a server of the test's own."""

import math
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.terminals.panes import Server, attached, serving
from support.waiting import until

from segue.system.tmux import tmux as tmux_module
from segue.system.tmux.tmux import Tmux, TmuxError


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


def test_a_pane_is_reported_with_all_that_is_known_of_it(server: Server, tmp_path: Path) -> None:
    odd = tmp_path / "a | b\tc <x>;"
    odd.mkdir()
    pane_id = server.tmux.new_window(str(odd), ["cat", "-u"], {}, "window")
    until(lambda: any(p.id == pane_id and p.command == "cat" for p in server.tmux.panes()))
    pane = server.tmux.pane(pane_id)
    assert pane is not None
    assert (pane.width, pane.height, pane.session) == (80, 24, "first")
    assert not pane.dead
    assert not pane.in_mode
    assert not pane.alternate
    assert pane.cwd == str(odd)
    assert pane.tty.startswith("/dev/")
    assert Path(f"/proc/{pane.pid}/comm").read_text() == "cat\n"
    assert pane == next(p for p in server.tmux.panes() if p.id == pane_id)
    server.tmux.run("copy-mode", "-t", pane_id)
    seen = server.tmux.pane(pane_id)
    assert seen is not None
    assert seen.in_mode


def test_a_pane_that_is_gone_is_none_and_a_server_that_is_gone_has_one_line(
    server: Server,
) -> None:
    assert server.tmux.pane("%99999") is None
    gone = Tmux(server.tmux.socket + "-none")
    assert gone.pane("%0") is None
    with pytest.raises(TmuxError) as error:
        gone.panes()
    assert len(str(error.value).splitlines()) == 1


def test_what_is_shown_is_lines_styles_and_the_cursor_of_one_moment(server: Server) -> None:
    text = "one\\n\\033[2mdim\\033[0m é漢\\nlast "
    _, pane = server.session("sh", "-c", f"printf '{text}'; exec cat")
    until(lambda: "last" in server.tmux.capture(pane).lines[2])
    shown = server.tmux.capture(pane)
    assert len(shown.lines) == len(shown.styled) == 24
    assert shown.lines[:3] == ("one", "dim é漢", "last")
    assert shown.styled[1].startswith("\x1b[2mdim")
    assert (shown.cursor, shown.width, shown.alternate) == ((5, 2), 80, False)


def test_the_line_of_the_cursor_is_what_a_shell_prompts_with(server: Server) -> None:
    _, pane = server.session("env", "PS1=here> ", "bash", "--norc", "--noprofile", "-i")
    until(lambda: server.tmux.shell_line(pane) == "here>")
    server.tmux.literal(pane, "half typed")
    until(lambda: server.tmux.shell_line(pane) == "here> half typed")


def test_the_users_last_key_is_told_for_the_pane_before_them(server: Server) -> None:
    name, pane = server.session("cat")
    _, other = server.session("cat")
    assert server.tmux.active_s(pane) == math.inf
    with attached(server, name) as user:
        user.press("x")
        until(lambda: server.tmux.shell_line(pane) == "x")
        assert 0 <= server.tmux.active_s(pane) < math.inf
        assert server.tmux.active_s(other) == math.inf


def test_what_is_not_a_pane_and_no_key_is_not_passed_on(server: Server) -> None:
    _, pane = server.session("cat")
    for wrong in ("first", "", "%1 ; kill-server", "-a", "%1x", "%1\n"):
        with pytest.raises(TmuxError):
            server.tmux.keys(wrong, "Enter")
    for wrong in ("; kill-server", "#{pane_id}", "a b", "", "Enter\n"):
        with pytest.raises(TmuxError):
            server.tmux.keys(pane, wrong)


def test_the_server_that_this_process_sits_in_is_not_meant(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMUX", f"{server.tmux.socket},1,0")
    monkeypatch.setenv("TMUX_TMPDIR", str(server.folder / "none"))
    with pytest.raises(TmuxError):
        Tmux().panes()


def test_no_tmux_and_one_that_hangs_are_one_line_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TmuxError, match="cannot be run"):
        Tmux().panes()
    (tmp_path / "tmux").write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    (tmp_path / "tmux").chmod(0o755)
    monkeypatch.setattr(tmux_module, "PATIENCE_S", 0.1)
    with pytest.raises(TmuxError, match="does not respond"):
        Tmux().panes()


def test_a_window_cannot_be_opened_in_a_folder_that_is_gone(server: Server) -> None:
    with pytest.raises(TmuxError):
        server.tmux.new_window("/no/such/folder", ["true"], {}, "x")
    assert os.path.isdir("/")
