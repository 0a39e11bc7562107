"""Whatever a session, a path or a name says is typed and shown as it is: nothing of it is run."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.terminals import fake_tui
from support.terminals.panes import Sat, Server, attached, serving
from support.waiting import until

from segue.system.tmux.typist import Typist

CANARY = "canary"
NASTY = [
    f"$(touch {CANARY})",
    f"`touch {CANARY}`",
    f"'; touch {CANARY}; '",
    f'"; touch {CANARY}; "',
    f"a\ntouch {CANARY}\nb",
    f"#(touch {CANARY})",
    "#{pane_id} #{q:session_name} ##[fg=red] #[bg=red]x #S %H:%M",
    f"x ; run-shell 'touch {CANARY}' ;",
    f"; run-shell 'touch {CANARY}'",
    "ends with a semicolon;",
    r"ends with an escaped one\;",
    f"{{ run-shell 'touch {CANARY}' }}",
    f"~/x $HOME ${{HOME}} $((1+1)) *? \\ | & > {CANARY} < /etc/passwd",
    f"C-c Enter touch {CANARY} Enter",
    "-t %0 -X cancel",
    "--help",
    "é ✓ 漢字 🎉",
]
ESCAPES = [
    f"a\x1b[201~\r!touch {CANARY}\r",
    f"a\x1b]0;$(touch {CANARY})\x07b",
    f"a\x1bPtmux;\x1b\x1b[6n\x1b\\b\x03\x04touch {CANARY}\r",
    f"a\x9b201~\x0d!touch {CANARY}\x0d",
    f"!touch {CANARY}",
    f"\n ! !touch {CANARY}",
]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    before = os.getcwd()
    with serving() as server:
        os.chdir(server.folder)  # where a canary would be
        try:
            yield server
        finally:
            os.chdir(before)


@pytest.fixture(autouse=True)
def nothing_is_run(server: Server) -> Iterator[None]:
    yield
    places = [server.folder, Path.cwd(), Path.home()]
    assert not [place for place in places if (place / CANARY).exists()]


def sit(server: Server) -> Sat:
    sat = server.sit()
    sat.terminal = fake_tui.terminal(settle_s=0.02)
    return sat


def test_every_text_reaches_the_agent_as_it_is(server: Server) -> None:
    sat = sit(server)
    with attached(server, sat.session):  # so that a status line is drawn
        typist = Typist(wall=lambda: 0.0)
        for text in NASTY:
            landed = sat.landed(text)
            assert typist.type(sat.seat, sat.terminal, text, landed=landed) is None, text
    assert sat.messages() == NASTY


def test_what_a_terminal_takes_for_keys_never_reaches_it(server: Server) -> None:
    sat = sit(server)
    typist = Typist()
    for number, text in enumerate(ESCAPES, 1):
        assert (
            typist.type(
                sat.seat,
                sat.terminal,
                text,
                landed=lambda n=number: len(sat.messages()) == n,  # type: ignore[misc]
            )
            is None
        )
    assert len(sat.messages()) == len(ESCAPES)
    for message in sat.messages():
        assert not message.startswith("!")
        assert message.isprintable()


def test_every_draft_is_put_back_as_it_was(server: Server) -> None:
    sat = sit(server)
    typist = Typist()
    for number, draft in enumerate(text for text in NASTY if "\n" not in text):
        sat.draft(draft)
        ours = f"hello {number}"
        landed = sat.landed(ours)
        answer = typist.type(sat.seat, sat.terminal, ours, landed=landed, keep_draft=True)
        assert answer is None
        until(lambda d=draft: sat.screen().draft == d)  # type: ignore[misc]
        sat.tmux.keys(sat.pane, "C-u")
        until(lambda: sat.screen().draft == "")


def test_a_paste_into_a_plain_terminal_is_only_a_text(server: Server) -> None:
    _, pane = server.session("cat", "-v")
    for text in NASTY:
        server.tmux.literal(pane, text + "\n")
    until(lambda: server.tmux.capture(pane).lines.count("--help") == 2)  # typed, and echoed


@pytest.mark.parametrize("name", [text.replace("/", "_") for text in NASTY if "\n" not in text])
def test_a_window_takes_folders_names_arguments_and_variables_as_they_are(
    server: Server, tmp_path: Path, name: str
) -> None:
    folder = server.folder / "work" / name
    folder.mkdir(parents=True, exist_ok=True)
    out = tmp_path / "out"
    code = (
        "import json, os, sys; out, *rest = sys.argv[1:]\n"
        "said = json.dumps([os.getcwd(), rest, os.environ['SAID']])\n"
        "open(out + '~', 'w').write(said); os.rename(out + '~', out)"
    )
    argv = [sys.executable, "-I", "-S", "-c", code, str(out), name, "a\nb", ";", name + ";"]
    pane = server.tmux.new_window(str(folder), argv, {"SAID": name}, name)
    until(out.exists)
    assert json.loads(out.read_text()) == [str(folder), argv[6:], name]
    shown = server.tmux.run("display-message", "-p", "-t", pane, "#{window_name}")
    assert not set("#(){}$`;'\"") & set(shown)
    server.tmux.run("kill-pane", "-t", pane)


def test_one_argument_alone_is_a_program_and_no_shells_text(server: Server) -> None:
    out = server.folder / "alone"
    program = server.folder / f"a $(touch {CANARY}); touch {CANARY}"
    program.write_text(f"#!/bin/sh\necho \"$0\" > '{out}~'; mv '{out}~' '{out}'\n")
    program.chmod(0o755)
    server.tmux.new_window(str(server.folder), [str(program)], {}, "alone")
    until(out.exists)
    assert out.read_text() == f"{program}\n"
