"""The real TUIs, talked to as their terminals say and read at each point of a turn and a clear.

One quick test an agent: what else was measured is in data/screens, captured from the same programs.
"""

from pathlib import Path

import pytest
from support.agents.driven import Model
from support.terminals.tui import Tui, open_tui

from segue.agents.contracts.terminal import kept_arguments
from segue.core.terminals.screen import same

LATE_S = 60.0  # opencode on a busy machine
WAITS = "while [ ! -e go ]; do sleep 0.05; done"
PASTE = "first `line` $(touch canary)\nsecond #{pane_id} #(touch canary)\n\n'fourth' \"line\" \\"
PROMPT = "--is this $(touch canary) a flag?\nNo: a `prompt`."


@pytest.fixture(autouse=True)
def utf8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C.UTF-8")


def erase(tui: Tui) -> None:
    """As a typist does it: the keys, as often as a draft of so many lines may need them."""
    before = tui.screen().draft
    for _ in range(2 * before.count("\n") + 2):
        tui.keys(*tui.terminal.erase)
    tui.wait_for(lambda s: s.draft == "", what="an empty input line")


def read_at_each_point(tui: Tui, model: Model) -> None:
    """idle → draft → erased → a turn, with a draft in it → idle → cleared."""
    screen = tui.wait_for(lambda s: s.state == "idle", LATE_S)
    assert (screen.draft, screen.is_fresh) == ("", True)

    tui.paste(PASTE)
    screen = tui.wait_for(lambda s: s.draft != "", LATE_S)
    assert screen.state == "idle"
    assert screen.pasted or same(screen.draft, PASTE)
    erase(tui)

    model.commands = [WAITS]
    tui.paste(PASTE)
    tui.wait_for(lambda s: s.draft != "")
    tui.keys(tui.terminal.submit)
    tui.wait_for(lambda s: s.state == "busy" and not s.draft, LATE_S)
    tui.until(lambda: len(model.asked) == 1 and not model.commands, LATE_S, "a request")
    assert model.asked[0].last_text.rstrip().endswith(PASTE)
    tui.until(lambda: tui.session() != "", what="its session")
    first = tui.session()

    tui.type_as_user("wait")
    screen = tui.wait_for(lambda s: s.draft != "")
    tui.wait_for(lambda s: (s.state, s.draft) == ("busy", "wait"))
    erase(tui)
    (tui.project / "go").touch()
    screen = tui.wait_for(lambda s: s.state == "idle" and len(model.asked) == 2, what="its end")
    assert (screen.draft, screen.is_fresh) == ("", False)

    tui.submit(tui.terminal.clear)
    screen = tui.wait_for(lambda s: s.is_fresh and not s.draft, what="a cleared screen")
    assert screen.state == "idle"

    tui.submit("hello")
    tui.until(lambda: len(model.asked) == 3, LATE_S, "a request of the new session")
    parts = [p.text for p in model.asked[2].parts if p.role in ("user", "assistant")]
    assert not any("It is done." in text or "fourth" in text for text in parts)
    tui.wait_for(lambda s: s.state == "idle" and not s.is_fresh, what="its end")
    tui.until(lambda: tui.session() not in ("", first), what="its new session")
    assert not [*tui.project.rglob("canary")]


def test_claude_is_read_at_each_point(tmp_path: Path) -> None:
    model = Model()
    with open_tui("claude", tmp_path, model) as tui:
        read_at_each_point(tui, model)


def test_codex_is_read_at_each_point(tmp_path: Path) -> None:
    model = Model()
    with open_tui("codex", tmp_path, model) as tui:
        read_at_each_point(tui, model)


def test_opencode_is_read_at_each_point(tmp_path: Path) -> None:
    model = Model()
    with open_tui("opencode", tmp_path, model) as tui:
        read_at_each_point(tui, model)


@pytest.mark.parametrize("agent", ["claude", "codex"])  # opencode takes no prompt when it resumes
def test_a_process_in_its_place_continues_with_the_session(agent: str, tmp_path: Path) -> None:
    model = Model()
    with open_tui(agent, tmp_path, model, in_shell=True) as tui:
        program, *flags = tui.place.argv()
        kept_flags = kept_arguments(tui.terminal, flags)
        assert list(kept_flags) == flags
        tui.wait_for(lambda s: s.state == "idle")
        tui.submit("remember this")
        tui.wait_for("It is done.")
        session = tui.session()
        tui.submit("/exit")
        tui.until(lambda: not tui.pid, what="its end")
        assert tui.wait_for("$").state == "unknown"  # the shell is in front again

        tui.run(tui.terminal.resume_argv(program, session, PROMPT, kept_flags))
        tui.until(lambda: len(model.asked) == 2, what="a request")
        parts = [p.text for p in model.asked[1].parts if p.role == "user"]
        assert any(text.endswith("remember this") for text in parts)
        assert parts[-1].endswith(PROMPT)
        assert tui.session() == session
        assert not [*tui.project.rglob("canary")]
