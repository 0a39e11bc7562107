"""What the terminals read on real screens: each file of data/screens is one, as tmux captured it,
and says what must be read. Nothing is read as idle that is not the agent's empty-handed prompt."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import DATA
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from segue.agents import terminals
from segue.agents.contracts.terminal import Terminal, kept_arguments
from segue.core.terminals.screen import PaneCapture, Screen, columns, ink, joined, same, typed

FILES = sorted((DATA / "screens").glob("*/*.json"))
WIDTH = 110


def terminal(agent: str) -> Terminal:
    found = terminals.find(agent)
    assert found is not None
    return found


def load(file: Path) -> tuple[PaneCapture, Screen]:
    """A screen and what is to be read on it. The plain lines are the styled ones without styles,
    as tmux itself makes them."""
    data: dict[str, Any] = json.loads(file.read_text())
    width, height = data["size"]
    styled = tuple(data["rows"].get(str(row), "") for row in range(height))
    plain = tuple(line.text.rstrip() for line in ink(styled))
    x, y = data["cursor"]
    shown = PaneCapture(plain, styled, (x, y), width, data["alternate"])
    return shown, msgspec.convert(data["screen"], Screen)


def case(name: str) -> PaneCapture:
    return load(DATA / "screens" / f"{name}.json")[0]


def changed(shown: PaneCapture, row: int, line: str) -> PaneCapture:
    """The screen with another line, drawn without styles."""
    lines, styled = list(shown.lines), list(shown.styled)
    lines[row] = line
    styled[row] = f"\x1b[0m{line}\x1b[0m"
    return replace(shown, lines=tuple(lines), styled=tuple(styled))


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_a_real_screen_is_read_for_what_it_is(file: Path) -> None:
    shown, expected = load(file)
    assert terminal(file.parent.name).read(shown) == expected


def test_there_are_screens_of_every_terminal_and_every_state() -> None:
    for agent in terminals.NAMES:
        states = {load(file)[1].state for file in FILES if file.parent.name == agent}
        assert states >= {"idle", "busy", "dialog", "starting"}


@pytest.mark.parametrize("agent", terminals.NAMES)
def test_another_programs_screen_is_never_idle(agent: str) -> None:
    others = [file for file in FILES if file.parent.name != agent]
    seen = {file.stem: terminal(agent).read(load(file)[0]).state for file in others}
    assert {name for name, state in seen.items() if state in ("idle", "busy")} == set()


@pytest.mark.parametrize("agent", terminals.NAMES)
@pytest.mark.parametrize("text", ["$ ", "❯ ", "› ", "user@host:~$ vim\n~\n~", ">>> "])
def test_a_shell_is_unknown(agent: str, text: str) -> None:
    lines = (*text.split("\n"), *[""] * 20)[:20]
    shown = PaneCapture(lines, lines, (2, 0), WIDTH, alternate=False)
    assert terminal(agent).read(shown).state == "unknown"


# What the conversation says does not count


def test_words_of_the_conversation_make_no_turn_of_an_idle_screen() -> None:
    words = "  • esc to interrupt … Working (3s • esc to interrupt) · ⬝⬝ esc interrupt"
    for name, row in (("claude/idle", 20), ("codex/idle", 25), ("opencode/idle", 25)):
        shown = changed(case(name), row, words)
        assert terminal(name.split("/")[0]).read(shown).state == "idle", name


def test_words_in_the_conversation_are_no_auto_continue() -> None:
    shown = changed(case("claude/idle"), 20, "  Continuing automatically at 9am · Esc to cancel")
    assert terminal("claude").read(shown).continues_at == ""


def test_each_sign_of_a_turn_is_enough() -> None:
    """With a draft claude shows no hint, and between two tools no spinner."""
    shown = case("claude/idle")
    hint = changed(shown, 39, "  ⏸ manual mode on · esc to interrupt")
    spinner = changed(shown, 34, "✽ Wibbling… (2s · ↓ 15 tokens)")
    assert [terminal("claude").read(each).state for each in (hint, spinner)] == ["busy", "busy"]


def test_a_draft_of_the_users_is_seen_whatever_it_says() -> None:
    shown = case("claude/idle")
    for text in ("─" * 40, "❯ x", "esc to interrupt", 'Try "fix it"', "Press up to edit"):
        assert terminal("claude").read(changed(shown, 37, f"❯\xa0{text}")).draft == text
    shown = case("codex/idle")
    for text in ("› x", "Ask Codex to do anything", "enter select · esc back"):
        screen = terminal("codex").read(changed(shown, 36, f"› {text}"))
        assert (screen.state, screen.draft) == ("idle", text)
    shown = case("opencode/idle")
    for text in ('Ask anything… "Fix it"', "esc interrupt", "┃ x"):
        there = replace(changed(shown, 34, f"  ┃  {text}"), cursor=(5 + columns(text), 34))
        screen = terminal("opencode").read(there)
        assert (screen.state, screen.draft) == ("idle", text)


def test_a_cursor_elsewhere_is_not_a_prompt() -> None:
    """A list over the screen has its own input line, though the prompt can still be seen."""
    for agent in terminals.NAMES:
        shown = replace(case(f"{agent}/idle"), cursor=(40, 3))
        assert terminal(agent).read(shown).state != "idle"


def test_only_what_decides_nothing_is_harmless() -> None:
    asked = {
        f"{file.parent.name}/{file.stem}": load(file)[1].is_harmless
        for file in FILES
        if load(file)[1].state == "dialog"
    }
    for name in ("claude/dialog-permission", "claude/dialog-trust", "opencode/dialog-permission"):
        assert not asked[name]
    for name in ("codex/dialog-approval", "codex/dialog-trust", "codex/dialog-new-model"):
        assert not asked[name]
    assert asked["codex/dialog-rate-limit"]


# The helpers


def test_styles_continue_from_line_to_line_and_colours_are_not_styles() -> None:
    lines = ink(["a\x1b[2mb", "c\x1b[0;7md\x1b[38;5;2me", "\x1b[48;2;7;2;0mf\x1b[27mg\x1b[22mh"])
    assert [line.text for line in lines] == ["ab", "cde", "fgh"]
    assert [line.marks for line in lines] == [" d", "drr", "r  "]


def test_links_and_other_sequences_are_not_shown() -> None:
    (line,) = ink(["\x1b]8;;http://x\x1b\\link\x1b]8;;\x07 \x1b(Bend\x1b[K"])
    assert line.text == "link end"


def test_a_suggestion_is_not_typed_but_the_letter_below_the_cursor_is() -> None:
    assert typed(ink(["\x1b[7mT\x1b[0;2mry this"])[0]) == ""
    assert typed(ink(["/cl\x1b[7me\x1b[0;2mar"])[0]) == "/cl"
    assert typed(ink(["one \x1b[7mt\x1b[0mwo"])[0]) == "one two"
    assert typed(ink(["one tw\x1b[7mo"])[0]) == "one two"


@given(st.lists(st.text("ab ", min_size=1, max_size=30), max_size=5))
def test_lines_that_were_broken_are_joined_again(parts: list[str]) -> None:
    words = " ".join(" ".join(parts).split())
    rows: list[str] = []
    for word in words.split():
        if rows and len(rows[-1]) + 1 + len(word) <= 40:
            rows[-1] += " " + word
        else:
            rows.append(word)
    assert same(joined(rows, 40), words)
    assert "\n" not in joined(rows, 40)


def test_a_line_that_had_room_ended_there() -> None:
    assert joined(["one", "two", "", "three"], 40) == "one\ntwo\n\nthree"
    assert joined(["", "one", ""], 40) == "\none\n"
    assert joined(["x" * 40, "xx"], 40) == "x" * 42
    assert joined(["界" * 20, "界"], 40) == "界" * 21


@given(
    st.sampled_from(terminals.NAMES),
    st.lists(st.text(max_size=12) | st.sampled_from(["❯ ", "› ", "───", "┃", "╹▀▀▀", "  ┃  x"])),
    st.tuples(st.integers(0, 12), st.integers(0, 12)),
    st.integers(0, 20),
)
def test_no_screen_breaks_a_reader(
    agent: str, lines: list[str], cursor: tuple[int, int], width: int
) -> None:
    shown = PaneCapture(tuple(lines), tuple(lines), cursor, width)
    assert isinstance(terminal(agent).read(shown), Screen)
    assert isinstance(terminal(agent).read(replace(shown, styled=())), Screen)


# How processes are started


@pytest.mark.parametrize(
    ("agent", "arguments", "expected"),
    [
        ("claude", "--model m --resume x --allowedTools A B --verbose", 6),
        ("claude", "--allowedTools A B -- fix it", 3),
        ("claude", "--model=m -c fix", 1),
        ("codex", "resume -m m -c a=b 01-x fix", 4),
        ("codex", "--no-daemon -C /x --last", 3),
        ("opencode", "-m p/m -s ses_1 --prompt=x", 2),
        ("opencode", "--model", 1),
    ],
)
def test_a_process_that_takes_over_keeps_the_users_flags(
    agent: str, arguments: str, expected: int
) -> None:
    found = kept_arguments(terminal(agent), arguments.split())
    assert len(found) == expected
    assert not {"x", "fix", "01-x", "ses_1", "--resume", "resume", "--last"} & set(found)


def test_a_prompt_is_one_argument_and_never_a_flag() -> None:
    prompt = "--help $(touch x)\n`y`"
    for agent in terminals.NAMES:
        program, *rest = terminal(agent).new_argv("/bin/agent", prompt, ("--model", "m"))
        assert program == "/bin/agent"
        assert rest[:2] == ["--model", "m"]
        assert rest[-1].removeprefix("--prompt=") == prompt
        assert rest[-2:] == ["--", prompt] or rest[-1] == f"--prompt={prompt}"
        resumed = terminal(agent).resume_argv("/bin/agent", "the-id", prompt, ("--model", "m"))
        assert "the-id" in resumed
        assert (resumed[-1] == prompt) is terminal(agent).resumes_with_prompt
