"""Nothing from outside reaches a terminal as more than text, and there is one way to print."""

import ast
import json
import re
import time
from pathlib import Path

import pytest
from support.homes import OpencodeDb, call, claude_session, prompt, reply
from support.printing import on_terminal

import segue
from segue.core.terminals.visible import escape_json, one_line, to_json, visible
from segue.views import printing

PACKAGE = Path(segue.__file__).parent

CLIPBOARD = "\x1b]52;c;ZXZpbA==\x07"
HOSTILE = f"x\x1b[2J{CLIPBOARD}\x1bP1$q\x1b\\\x9b31m\x9d0;t\x9c\x1bc\x08\x7f\u202ey\u2066\u200bz"
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


# --- the function -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("plain ü 日本 👩‍🔧 ❤️ می‌خواهم", "plain ü 日本 👩‍🔧 ❤️ می‌خواهم"),
        ("a\tb\nc\r\nd", "a\tb\nc\nd"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x9b31mred\x9b0m", "red"),
        (f"a{CLIPBOARD}b", "ab"),
        ("a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\b", "alinkb"),
        ("\x1bPq#0\x1b\\\x1b_Gf=1\x1b\\\x1b^x\x1b\\\x1bXy\x9c.", "."),
        ("\x1bc\x1b7\x1b(B.", "."),
        ("over\rwritten", "over\\rwritten"),
        ("\x1b\x1b[31m[31m", "\\x1b[31m"),
        ("\x1b]0;never closed\nnext", "\\x1b]0;never closed\nnext"),
        ("\x1b[", "\\x1b["),
        ("a\u202eb\u2066c\u200bd\ufeff", "a\\u202eb\\u2066c\\u200bd\\ufeff"),
        ("pass\u200dword", "pass\\u200dword"),
        ("\ud800 \udc9b \udcff", "\\ud800 \\x9b \\xff"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("line\u2028next\x85\x0b\x0c", "line\\u2028next\\x85\\x0b\\x0c"),
    ],
)
def test_what_a_terminal_acts_on_is_taken_out_or_spelled_out(given: str, shown: str) -> None:
    assert visible(given) == shown
    assert visible(shown) == shown
    assert "\n" not in one_line(given)
    assert "\t" not in one_line(given)


def test_each_character_is_shown_or_spelled_out_alike_alone_and_among_hostile_ones() -> None:
    """A text of harmless characters is returned as it is, without a search: the quick look and the
    search agree on every character that there is."""
    shown = [visible(f"\x00{chr(code)}")[len("\\x00") :] for code in range(0x110000)]
    assert [visible(chr(code)) for code in range(0x110000)] == shown


def test_a_text_of_a_million_pieces_that_begin_a_sequence_is_spelled_out_whole() -> None:
    """A search that went back for each of them would not end within a day."""
    for piece in ("\x1b]", "\x9d", "\x1b[", "\x1b[1;", "\x1bP", "\x9b0", "\u200d", "\x1b]a\n"):
        assert visible(piece * 1_000_000) == visible(piece) * 1_000_000


def test_styles_of_our_own_are_told_from_those_in_the_data() -> None:
    forged = "\x1b[8mhidden\x1b[0m"
    text = printing.rendered(printing.style(f"{forged}", fg="red", bold=True) + forged)
    assert text == "\x1b[31m\x1b[1mhidden\x1b[0mhidden"


def test_json_holds_nothing_that_a_terminal_acts_on() -> None:
    value = {"a": HOSTILE + "\ud800", "b": float("nan"), "c": 10**5000, "d": [1, True, None, 1.5]}
    text = to_json(value)
    assert not RAW.search(text)
    found = json.loads(text)
    assert (found["b"], found["c"], found["d"]) == (None, None, [1, True, None, 1.5])
    assert found["a"] == HOSTILE + "\ud800"
    written = json.dumps({"a": HOSTILE + "\U000e0041\u200d"}, ensure_ascii=False)
    assert not RAW.search(escape_json(written))
    assert json.loads(escape_json(written)) == json.loads(written)


# --- one way to print ----------------------------------------------------------------------------

OTHER_PROGRAMS = (
    "client.py",  # standard library only; what it prints is made by the daemon
    "agents/claude/halt.py",  # a hook: claude reads what it prints
    "agents/opencode/bridge.py",  # speaks to the keeper, in records
    "agents/pi/bridge.py",
    "drill/rehearsal/",  # an agent, for rehearsals
    "drill/plays/enclosure.py",
    "drill/plays/play.py",
    "runs/legs/keeper.py",
)
WAYS = {
    "views/printing.py": {
        "click.echo",
        "click.style",
        "click.confirm",
        "click.prompt",
        "click.progressbar",
        "Console",
    },
    "cli/__init__.py": {"click.echo"},  # segue's own version, for which nothing else is loaded
    "views/out.py": {"os.write"},  # an agent's bytes, for a pipe; `visible` on a terminal
    "cli/daemon/watch.py": {"os.write"},  # a thread of its own; `printing.rendered` before
    "views/run/view.py": {"stream.write"},
}
PRINTS = {"echo", "secho", "echo_via_pager", "progressbar", "prompt", "confirm", "style"}


def prints(file: Path) -> set[str]:
    """Calls that print."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if not isinstance(node, ast.Call):
            continue
        match node.func:
            case ast.Name("print"):
                found.add("print")
            case ast.Name("Console") | ast.Attribute(attr="Console"):
                found.add("Console")
            case ast.Attribute(ast.Name("click"), name) if name in PRINTS:
                found.add(f"click.{name}")
            case ast.Attribute(ast.Attribute(ast.Name("sys"), "stdout" | "stderr"), "write"):
                found.add("sys.write")
            case ast.Attribute(ast.Attribute(attr="stream"), "write"):
                found.add("stream.write")
            case ast.Attribute(ast.Name("os"), "write") if {"cli", "views"} & set(file.parts):
                found.add("os.write")
    return found


def test_there_is_one_way_to_print() -> None:
    """Whoever needs another one: `printing.say`, `complain`, `say_json`, `console`."""
    guilty = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        place = file.relative_to(PACKAGE).as_posix()
        more = prints(file) - WAYS.get(place, set())
        if more and not place.startswith(OTHER_PROGRAMS):
            guilty[place] = more
    assert not guilty


# --- through the command -------------------------------------------------------------------------


@pytest.fixture
def hostile_home(own_home: Path) -> Path:
    now = time.time()
    todos = call("TodoWrite", todos=[{"content": HOSTILE, "status": "pending", "activeForm": "x"}])
    edit = call("Write", file_path=f"/p/{HOSTILE}", content="x")
    lines = [
        prompt(HOSTILE, at=now - 60, cwd=f"/p/{HOSTILE}"),
        reply(1, 90_000, at=now - 50, model=HOSTILE, cwd=f"/p/{HOSTILE}", content=todos),
        reply(2, 95_000, at=now - 40, model=HOSTILE, cwd=f"/p/{HOSTILE}", content=edit),
    ]
    claude_session(own_home, *lines)
    db = OpencodeDb(own_home / ".local/share/opencode/opencode.db")
    db.session("ses_1", f"/q/{HOSTILE}", now - 30)
    db.db.execute("UPDATE session SET model = ?", (json.dumps({"id": HOSTILE, "providerID": "x"}),))
    db.db.close()
    return own_home


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("sessions",),
        ("show", "11111111"),
        ("scan",),
        ("status", "--json"),
        ("show", "11111111", "--json"),
        ("show", HOSTILE),
        ("sessions", "--agent", HOSTILE),
        (HOSTILE,),
        ("sessions", f"--{HOSTILE}"),
        ("fits", "11111111", HOSTILE),
    ],
    ids=lambda words: " ".join(visible(w)[:12] for w in words),
)
def test_session_contents_do_not_act_on_the_terminal(
    hostile_home: Path, words: tuple[str, ...]
) -> None:
    told = on_terminal(hostile_home, *words)
    assert told.strip()
    assert "Traceback" not in told
    assert not RAW.search(told), [told[max(0, m.start() - 40) :][:80] for m in RAW.finditer(told)]


@pytest.mark.parametrize("command", ["classify", "explain"])
def test_quoted_evidence_does_not_act_on_the_terminal(own_home: Path, command: str) -> None:
    file = own_home / "out.txt"
    file.write_text(f"API Error: 429 Rate limit {HOSTILE} reached\n\x1b[8mhidden{CLIPBOARD}\n")
    told = on_terminal(own_home, command, str(file))
    assert "rate_limit" in told
    assert not RAW.search(told)


@pytest.mark.parametrize(
    "text",
    [
        '[policy]\nname = "x\\u001b]52;c;ZXZpbA==\\u0007"\n',
        '"\\u001b[2J\\u202e" = 1\n',
        '[run]\nagent = "\\u001b[2J\\u009b1m"\n',
        '["\\u001b[31m"]\nx = 1\n',
    ],
)
def test_errors_that_quote_a_project_file_do_not_act_on_the_terminal(
    own_home: Path, text: str
) -> None:
    (own_home / ".segue.toml").write_text(text)
    told = on_terminal(own_home, "config", "show")
    told += on_terminal(own_home, "run", "--dry-run", "x")
    assert not RAW.search(told), told
