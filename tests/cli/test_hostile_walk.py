"""A walk through everything that reads what comes from outside, with hostile values in every field:
no traceback, no control character, no line that pretends to be segue's; the good is still shown.

What is hostile, and how it gets into the fields, is in hostile_values.py. The sample is fixed; the
environment's SEGUE_WALK multiplies it (`SEGUE_WALK=20 pytest tests/test_hostile_walk.py`).
"""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import lines
from support.homes import claude_session, prompt, reply
from support.hostile.values import (
    ESCAPES,
    FORGED,
    INVISIBLE,
    PATHS,
    VALUES,
    Case,
    Ended,
    cases,
    changed,
    encode,
    home_of,
    leaves,
    plant,
    plant_files,
    plant_markdown,
    plant_opencode,
    segue,
)
from support.printing import OWN_STYLE, on_terminal

from segue.cli import _UNLISTED, COMMANDS
from segue.watch.server.api import ROUTES

MORE = int(os.environ.get("SEGUE_WALK", "1"))
EACH = 26 * MORE
"""Sessions of each agent, with one bad value each."""
CANARY = "cafecafe-2222-4333-8444-555555555555"
_SENT = (
    *("escapes", "invisible", "lines", "digits", "negative", "negative big", "far", "null"),
    *("list", "text", "object"),
)
NAMES = (ESCAPES.replace("\0", ""), INVISIBLE, f"a\n{FORGED}", "x\udcff", "9" * 5_000, "-1", "'")


class World:
    """A home full of bad values, and one good session of an agent each."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.project = home / "project"
        self.run = ""
        self.cases: list[Case] = []

    @property
    def sample(self) -> list[str]:
        """Sessions to ask about one by one."""
        drawn = random.Random(7).sample([case.session for case in self.cases], 10 * MORE)
        return [CANARY, "ses_0001", *drawn]

    def why(self, faults: Sequence[str]) -> str:
        """The faults, with the case that is at fault if its session is named."""
        named = [c for c in self.cases if any(c.session in fault for fault in faults)]
        return "\n".join([*faults, *(f"{c.agent} {c.place} {c.value}" for c in named)])


@pytest.fixture
def world(made: World) -> Iterator[World]:
    with home_of(made.home):
        os.chdir(made.project)
        yield made


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> World:
    home = tmp_path_factory.mktemp("h")
    found = World(home)
    now = time.time()
    claude_session(
        home,
        prompt(at=now - 9, session=CANARY, cwd="/p/canary"),
        reply(1, 90_000, at=now - 8, session=CANARY, cwd="/p/canary"),
        session=CANARY,
    )
    for agent in PATHS:
        found.cases += cases(agent, EACH)
    for case in found.cases:
        plant(home, case)
    plant_opencode(home, now - 30, 3 * EACH)
    plant_markdown(home)
    plant_files(home)
    _make_project(found.project)
    with home_of(home):
        os.chdir(found.project)
        found.run = _run_an_agent(home, found.project)
    return found


def _make_project(project: Path) -> None:
    project.mkdir()
    git = ("git", "-c", "user.name=x", "-c", "user.email=x@x")
    for words in (("init", "-q"), ("checkout", "-q", "-b", "a\u202e-\u200b-x")):
        subprocess.run([*git, *words], cwd=project, check=True, capture_output=True)
    for name in (f"a\n## {FORGED}", "\x1b[2J", "b\udcff", "\u202e"):
        (project / name).write_text("x")


_AGENT = """
import sys
sys.stdout.buffer.write(b"working \\x1b[2J\\x1b]52;c;eA==\\x07\\xff\\xfe\\n")
sys.stderr.buffer.write(b"warn \\x1b[31m\\x9b\\xc2\\x9b1m\\n")
sys.stdout.buffer.write("that is fine here \\x1b]0;t\\x07\\u202e\\x7f done\\n".encode())
"""


def _run_an_agent(home: Path, project: Path) -> str:
    """A run whose task, output and answer are hostile; its id."""
    (home / "agent.py").write_text(_AGENT)
    config = home / "segue" / "config.toml"
    config.parent.mkdir(exist_ok=True)
    command = json.dumps([sys.executable, str(home / "agent.py"), "{prompt}"])
    config.write_text(f"[agents.fake]\ncommand = {command}\n")
    task = f"do {NAMES[0]} {INVISIBLE}\n{FORGED}"
    done = _process("run", "--agent", "fake", task, home=home, cwd=project)
    assert not done.faults, done.faults
    listed = json.loads(segue("runs", "--json").out)["runs"]
    return str(listed[0]["run"])


def _process(*words: str, home: Path, cwd: Path, stdin: bytes = b"", **env: str) -> Ended:
    """`segue …` as users start it."""
    kept = {"PATH": os.environ["PATH"], "HOME": str(home), "SEGUE_HOME": str(home / "segue")}
    done = subprocess.run(
        [sys.executable, "-m", "segue", *words],
        input=stdin, cwd=cwd, capture_output=True, timeout=120, check=False,
        env={**kept, "TZ": "UTC", "LC_ALL": "C.UTF-8", **env},
    )  # fmt: skip
    out, err = (data.decode("utf-8", "surrogateescape") for data in (done.stdout, done.stderr))
    return Ended(words, done.returncode, out, err)


RUN, SESSION = "@run", "@session"
STATUS_LINE = encode(lines("hooks/claude-status.jsonl")[0]).encode()
WALK: dict[str, tuple[tuple[str, ...], ...]] = {
    # What reads
    "runs": ((), ("--json",), ("--all", "--here")),
    "logs": ((RUN,), (RUN, "--json"), (RUN, "--leg", "1"), ("@name",),  # an agent's bytes: below
             (RUN, "--follow"), (RUN, "--follow", "--json"),
             (RUN, "--transcript"), (RUN, "--transcript", "--json")),
    "report": ((), ("--since", "7d"), ("--figures",), ("--figures", "--json"),
               ("--figures", "--project", "@name"), (RUN,), (RUN, "--format", "md"),
               (RUN, "--format", "html"),
               (RUN, "--json"), ("--since", "@name"), ("@name",)),
    "diff": ((RUN,), (RUN, "--json"), (RUN, "--leg", "1"), ("@name",)),
    "status": ((), ("--json",)),
    "limits": ((), ("--json",), ("@name",), ("--clear", "@name")),
    "sessions": ((), ("--json",), ("--project", "@name"), ("--agent", "@name"),
                 ("--since", "@name")),
    "rescue": ((), ("--json",), ("--all", "--json"), ("--since", "@name"), ("@name",),
               (SESSION, "--dry-run", "--agent", "fake", "--all", "--in", "."),
               (SESSION, "--dry-run"), (SESSION, "--agent", "@name")),
    "checkpoint": ((SESSION,), (SESSION, "--json"), ("@name",), (RUN,)),
    "show": ((SESSION,), (SESSION, "--json"), (RUN,), (RUN, "--json"), ("@name",),
             (SESSION, "--transcript"), (SESSION, "--transcript", "--json")),
    "notes": ((), ("--json", "-n", "500"), ("@name",), ("--kind", "@name")),
    "statusline": ((), ("--no-color",)),  # what it reads: below
    "open": (("--list",), ("--list", "--json"), ("--detach", "@name"), ("@name",)),
    "fits": (("5000", SESSION), ("5k", SESSION, "--json"), ("@name",), ("--prompt", "@name")),
    "scan": ((), ("--by", "project"), ("--by", "day", "--json"), ("--json", "--cost"),
             ("--by", "model", "--since", "@name")),
    "simulate": (("--sessions", "1", "--days", "1", "--no-compare", "--json"),),
    "tune": ((), ("--json",)),
    "classify": (("@file",), ("@file", "--json"), ("@name",), ("--transcript", "@file"),
                 ("--stderr", "@file", "--json")),
    "explain": (("@file",), ("@file", "--json")),
    "config": (("show",), ("show", "--json"), ("path",)),
    "doctor": ((), ("--json",)),
    "wordings": (("list",), ("test", "@name"), ("test", "@name", "--json"), ("check",)),
    "service": (("status",),),
    "completion": (("bash",), ("@name",)),
    # What acts: here on nothing that is there
    "run": (("--dry-run", "--agent", "fake", "@name"), ("--agent", "@name", "x"),
            ("--dry-run", "--json", "--agent", "fake", "@name"), ("--policy", "@name", "x"),
            ("--set", "@name", "x"), ("--check", "@name", "--dry-run", "--agent", "fake", "x")),
    "submit": (("--here", "--agent", "fake", "@name"), ("--agent", "@name", "x"),
               ("--here", "--agent", "fake", "--from", "@file"), ("--repo", "@name", "x"),
               ("--on", "@name", "x"),
               ("--agent", "fake", "--ref", "@name", "x"), ("--from", "@name"),
               ("--here", "--agent", "fake", "--after", "@name", "x"),
               ("--here", "--agent", "fake", "--check", "@name", "--json", "x")),
    "queue": ((), ("--json",), ("--all",), ("cancel", "@name"), ("retry", "@name"),
              ("edit", "@name", "--text", "x"), ("forget", "@name")),
    "worker": (("--jobs", "@name"), ("@name",)),
    "fleet": (("status",), ("drain", "@name"), ("forget", "@name"), ("@name",), ("accounts",),
              ("cap", "@name", "--none")),
    "resume": (("@name",),),
    "attach": (("@name",), (RUN,), (RUN, "--json")),
    "cancel": (("@name",), (RUN,)),
    "rerun": (("@name",),),
    "restore": (("@name",), (RUN, "@name"), (RUN, "--branch", "@name")),
    "forget": (("@name",), ("--older-than", "@name"), ("--all", "--dry-run", "--json")),
    "pause": (("@name",),),
    "unpause": (("@name",),),
    "handoff": (("@name",),),
    "allow": (("@name",),),
    "setup": (("@name",),),
    "watch": (("--in", "@name"), ("--auto", "--in", "@name"), ("--http", "@name")),
    "drill": (("--list",), ("--agent", "@name"), ("@name",)),
    "dashboard": (("--port", "@name"),),  # its pages: tests/dashboard
    "back": (("@name",),),
    "notify": (("@name",),),
    "mcp": (("@name",),),
    "uninstall": (("@name",),),
}  # fmt: skip


def test_no_command_is_left_out_of_the_walk() -> None:
    assert set(WALK) == {*COMMANDS, *_UNLISTED}


@pytest.mark.parametrize("command", WALK)
def test_every_command(world: World, command: str) -> None:
    faults = []
    for words in WALK[command]:
        for given in _filled(world, words):
            ended = segue(command, *given, stdin=STATUS_LINE)
            if command == "statusline":  # in colour, whoever reads it
                ended = replace(ended, out=OWN_STYLE.sub("", ended.out))
            if "--dry-run" in given:  # the user's own words, as they can be pasted
                ended = replace(ended, out=ended.out.replace(FORGED, ""))
            if command == "service":  # as systemctl has it: 3 is "not running"
                ended = replace(ended, code=0)
            faults += ended.faults
            if command in ("status", "sessions") and len(given) < 2:
                assert "canary" in ended.out
                # A net holds what nobody thought of; of this sample nothing may need it.
                assert "internal error" not in ended.out
    assert not faults, world.why(faults)


def _filled(world: World, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The words with what their marks stand for, one call for each."""
    choices: dict[str, Sequence[str]] = {
        RUN: [world.run],
        SESSION: world.sample,
        "@name": NAMES,
        "@file": _outputs(world),
    }
    mark = next((word for word in words if word in choices), "")
    for value in choices.get(mark, [""]):
        yield tuple(value if word == mark else word for word in words)


def _outputs(world: World) -> list[str]:
    """What agents left behind, with one value changed in each."""
    found = []
    for agent in ("claude", "codex", "gemini", "opencode", "pi", "qwen"):
        draw = random.Random(agent)
        runs = [r for r in lines(f"recordings/{agent}.jsonl") if r.get("stdout", "")[:1] == "{"]
        for number, run in enumerate(draw.sample(runs, min(len(runs), 4 * MORE))):
            file = world.home / f"{agent}-{number}.out"
            if not file.exists():
                file.write_text(_with_one_changed(run["stdout"], draw))
            found.append(str(file))
    return found


def _with_one_changed(text: str, draw: random.Random) -> str:
    rows = text.splitlines()
    for _ in range(3):
        number = draw.randrange(len(rows))
        try:
            record = json.loads(rows[number])
            path = draw.choice(list(leaves(record)))
        except (ValueError, IndexError, RecursionError):
            continue
        rows[number] = encode(changed(record, path, VALUES[draw.choice(list(VALUES))]))
    return "\n".join(rows)


def test_a_batch_of_anything(world: World) -> None:
    given = [encode({"id": value, "text": "API Error: 429"}) for value in VALUES.values()]
    for field in ("text", "agent", "channel", "exit_code", "ended_by", "now", "tz"):
        given += [encode({"id": field, "text": "x", field: v}) for v in VALUES.values()]
    ended = segue("classify", "--batch", stdin="\n".join(given).encode() + b"\n[[[\n\xff\n")
    assert not ended.faults, ended.faults
    assert len(ended.out.splitlines()) == len(given) + 2


@pytest.mark.parametrize(
    "words",
    [("status",), ("checkpoint", CANARY), ("runs",), ("show", RUN), ("show", CANARY), ("logs", RUN),
     ("logs", RUN, "--agent-output"), ("logs", RUN, "--stderr"), ("rerun", RUN)],
    ids=" ".join,
)  # fmt: skip
def test_on_a_terminal(world: World, words: tuple[str, ...]) -> None:
    """Also a run as it goes on, its report and its answer."""
    given = tuple(world.run if word == RUN else word for word in words)
    text = on_terminal(world.home, *given, cwd=world.project)
    text = text.replace("\x1b[2K", "").replace("\x1b[1A", "").replace("\r", "")  # the moving view's
    assert text.strip()
    assert not Ended(given, 0, text, "").faults
    if "rerun" in words or "--agent-output" in words:
        assert "is fine here" in text


@pytest.mark.parametrize(
    "env",
    [
        {"COLUMNS": "-5"}, {"COLUMNS": "9" * 5_000}, {"COLUMNS": "0"}, {"COLUMNS": "²"},
        {"COLUMNS": "999999"}, {"LINES": "x", "COLUMNS": ""}, {"TZ": "../../etc/passwd"},
        {"TZ": "\x1b[2J"}, {"TZ": "9" * 5_000}, {"TZ": ":"}, {"TERM": "\x1b[2J"}, {"TERM": ""},
        {"NO_COLOR": "\x1b"}, {"FORCE_COLOR": "x", "CLICOLOR_FORCE": "9"}, {"HOME": "/nowhere"},
        {"HOME": "relative"}, {"HOME": "/" + "n" * 5_000}, {"XDG_CONFIG_HOME": "\x1b[2J\n"},
        {"SEGUE_POLICY": "\x1b[2J"}, {"SEGUE_HARD_MARK": "9" * 5_000}, {"SEGUE_STALL_S": "1e999"},
        {"SEGUE_SOFT_MARK": "nan"}, {"CLAUDE_CONFIG_DIR": "\x1b[2J,,\n"}, {"CODEX_HOME": "~\udcff"},
        {"OPENCODE_DB": ":memory:,\x1b[2J"}, {"LANG": "x", "LC_ALL": "nonsense"}, {"PATH": "\x1b"},
        {"SHELL": "\x1b[2J"}, {"TMUX": "\x1b[2J,9,x"}, {"PYTHONIOENCODING": "latin-1"},
    ],
    ids=lambda env: "-".join(env),
)  # fmt: skip
def test_an_environment_of_anything(world: World, env: dict[str, str]) -> None:
    faults = []
    for words in (("config", "show"), ("classify", "--exit-code", "1"), ("fits", "1", CANARY)):
        faults += segue(*words, env=env).faults
    assert not faults


CONFIGS = (
    '[policy]\nname = "{}"', '["{}"]\nx = 1', '"{}" = 1', '[run]\nagent = "{}"', '[run]\n"{}" = 1',
    '[homes]\nclaude = "{}"', '[homes]\n"{}" = "x"', '[agents."{}"]\ncommand = ["x"]',
    '[agents.x]\ncommand = ["{}", "{{prompt}}"]', '[policy.agents."{}"]\nhard_mark = 0.5',
    '[policy.models."{}"]\nhard_mark = 0.5', '[policy.projects."{}"]\nhard_mark = 0.5',
    '[policy]\nquiet_hours = ["{}"]', '[policy]\nnotify = ["{}"]', '[prompts]\nresume = "{}"',
    '[run.flags]\n"{}" = ["x"]', '[policy]\nstall_s = "{}"', '[run]\ncheck = "{}"',
    '[policy]\nexit_patterns = ["{}"]',
)  # fmt: skip


@pytest.mark.parametrize("where", ["segue/config.toml", "project/.segue.toml"])
def test_config_files_of_anything(own_home: Path, where: str) -> None:
    (own_home / "project").mkdir()
    (own_home / "segue").mkdir()
    faults = []
    values = (ESCAPES, INVISIBLE, f"a\n{FORGED}", "[red]x[/]", "9" * 5_000)
    with home_of(own_home):
        os.chdir(own_home / "project")
        for number, form in enumerate(CONFIGS * MORE):
            for value in (values[number % 5], values[(number + 2) % 5]):
                text = form.format(json.dumps(value)[1:-1].replace("\x7f", "\\u007f"))
                (own_home / where).write_text(text)
                for words in (("config", "show"), ("run", "--dry-run", "x"), ("status",)):
                    ended = segue(*words)
                    faults += [f"{text!r}: {fault}" for fault in ended.faults]
                    faults += [f"{text!r}: {ended.err}"] * (ended.code == 2 and not ended.err)
    assert not faults, faults[0]


def test_wordings_of_anything(own_home: Path) -> None:
    entry = {
        "id": "x",
        "reason": "rate_limit",
        "pattern": "x",
        "example": "x",
        "agents": ["claude"],
    }
    text = ""
    for key in (*entry, "unknown"):
        for name in ("escapes", "invisible", "lines", "negative", "true", "list", "fraction"):
            text += "[[wording]]\n"
            for each, value in {**entry, key: VALUES[name]}.items():
                text += f"{each} = {json.dumps(value)}\n".replace("\x7f", "\\u007f")
    text = text.replace("null", '"null"')
    (own_home / "segue" / "wordings").mkdir(parents=True)
    (own_home / "segue" / "wordings.toml").write_text(text)
    (own_home / "segue" / "wordings" / "deep.toml").write_text("x = " + "[" * 3_000)
    (own_home / "segue" / "wordings" / "long.toml").write_text("x = " + "9" * 5_000)
    (own_home / "segue" / "wordings" / "\x1b[2J.toml").write_text("\x1b[2J")
    for words in (("wordings", "check"), ("wordings", "list"), ("classify", "--exit-code", "1")):
        ended = _process(*words, home=own_home, cwd=own_home)
        assert not ended.faults, ended.faults


# --- the daemon, its API, hooks and the status line -----------------------------------------------


def _calls(draw: random.Random, count: int) -> Iterator[tuple[str, bytes]]:
    """What claude tells hooks and the status line, with one value changed."""
    hooks, status = lines("hooks/claude-basic.jsonl"), lines("hooks/claude-status.jsonl")
    for number in range(count):
        record: Any = draw.choice(status if number % 3 == 0 else hooks)
        record = changed(record, ("session_id",), CANARY)
        path = draw.choice(list(leaves(record)))
        value = draw.choice([name for name in VALUES if name != "long" or number % 7 == 0])
        route = "/v1/statusline" if number % 3 == 0 else "/v1/hook"
        yield route, encode(changed(record, path, VALUES[value])).encode()


def test_the_status_line_without_the_daemon(world: World) -> None:
    faults = []
    for route, body in _calls(random.Random(6), 90 * MORE):
        if route == "/v1/statusline":
            ended = segue("statusline", "--no-color", stdin=body)
            faults += ended.faults
            assert len(ended.out.splitlines()) <= 1, ended.out
    assert not faults, faults[0]


def test_what_stays_and_shows_changes(world: World) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "segue", "status", "--watch", "--json"],
        env={**os.environ, "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        cwd=world.project,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline().decode("utf-8", "surrogateescape")
        process.kill()
    assert "canary" in line
    assert not (faults := Ended(("status", "--watch", "--json"), 0, line, "").faults), faults


def test_the_daemon_and_all_who_ask_it(world: World) -> None:
    from support.watching import watching

    from segue import client
    from segue.system.files import state

    env = {"HOME": str(world.home)}
    faults: list[str] = []
    with watching(world.home / "segue", env, "--json") as daemon:
        daemon.until(partial(_shows, daemon, "canary"), "the sessions", 120)
        place = state.socket_path()
        names = [*world.sample, *(_quoted(name) for name in NAMES)]
        for route in (route for route, ways in ROUTES.items() if "GET" in ways):
            if route == "/v1/events":
                continue  # it has no end: below
            for name in names if "{id}" in route else [""]:
                faults += _asked(place, "GET", route.replace("{id}", name))
            faults += _asked(place, "GET", f"{route}?session={_quoted(NAMES[0])}&tokens=1e999")
        for route in (route for route, ways in ROUTES.items() if "POST" in ways):
            for value in VALUES.values():
                body = encode({"session": value, "project": value, "for_s": value}).encode()
                faults += _asked(place, "POST", route, body)
        for route, body in _calls(random.Random(3), 60 * MORE):
            faults += _asked(place, "POST", route, body)
        faults += _heard(place, len(daemon.notes()))
        for _, body in _calls(random.Random(4), 6 * MORE):
            for kind, told in (("hook", "SessionEnd"), ("statusline", "0.3,0.5,0.7,0.85")):
                done = subprocess.run(
                    [sys.executable, "-I", "-S", client.__file__, kind, place, told],
                    input=body, env={**env, "NO_COLOR": "1"}, capture_output=True, timeout=60,
                    check=False,
                )  # fmt: skip
                text = (done.stdout + done.stderr).decode("utf-8", "surrogateescape")
                faults += Ended((kind, told), done.returncode, text, "").faults
        for words in (("status",), ("notes", "--json", "-n", "999"), ("notes", "-n", "999")):
            faults += segue(*words).faults
        assert daemon.process is not None
        assert daemon.process.poll() is None, daemon.said.read_text()
    said = daemon.said.read_text(encoding="utf-8", errors="surrogateescape")
    faults += Ended(("watch",), 0, said, "").faults
    assert "internal error" not in said, said[-3_000:]
    assert not faults, world.why(faults[:5])


def test_the_daemon_starts_on_a_damaged_index(own_home: Path) -> None:
    from support.watching import watching

    at = time.time()
    records = (
        prompt(at=at, session=CANARY, cwd="/canary"),
        reply(1, 90_000, at=at, session=CANARY),
    )
    claude_session(own_home, *records, session=CANARY)
    with home_of(own_home):
        assert not segue("scan").faults
        assert not segue("status").faults
    place = own_home / "segue" / "sessions.db"
    draw = random.Random(5)
    for _ in range(3):
        data = bytearray(place.read_bytes())
        for _ in range(len(data) // 200):
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        place.write_bytes(data)
        for ending in ("-wal", "-shm"):
            place.with_name(place.name + ending).unlink(missing_ok=True)
        with watching(own_home / "segue", {"HOME": str(own_home)}) as daemon:
            daemon.until(partial(_shows, daemon, CANARY), "the session", 60)
        said = daemon.said.read_text(errors="surrogateescape")
        assert not Ended(("watch",), 0, said, "").faults


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_process_in_a_folder_of_any_name(world: World) -> None:
    folder = world.home / f"p\n{FORGED}\x1b[2J\u202e"
    folder.mkdir(exist_ok=True)
    program = world.home / "claude"
    if not program.exists():
        program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "1000"], cwd=folder) as process:
        try:
            faults = [f for words in (("status",), ("sessions", "--json"), ("doctor",))
                      for f in segue(*words).faults]  # fmt: skip
        finally:
            process.kill()
    assert not faults


def _shows(daemon: Any, name: str) -> bool:
    return name in _listed(daemon)


def _listed(daemon: Any) -> str:
    return json.dumps(daemon.remote.get("/v1/sessions"))


def _quoted(name: str) -> str:
    from urllib.parse import quote

    return quote(os.fsencode(name[:500]), safe="")


def _asked(place: str, method: str, path: str, body: bytes = b"") -> list[str]:
    """What is wrong with an answer."""
    import socket

    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(60)
        line.connect(place)
        head = f"{method} {path} HTTP/1.0\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        line.sendall(head.encode() + body)
        got = b""
        while more := line.recv(1 << 16):
            got += more
    head_got, _, said = got.partition(b"\r\n\r\n")
    status = int(head_got.split()[1])
    text = said.decode("utf-8", "surrogateescape")
    if path == "/v1/statusline" or path == "/v1/hook":
        text = text.replace("\x1b[", "")  # its own colours
    faults = Ended((method, path[:80]), 0, text, "").faults
    return [*faults, *([f"{method} {path[:80]}: {status} {text[:200]}"] * (status >= 500))]


def _heard(place: str, count: int) -> list[str]:
    """What is wrong with so many events of the feed, which has no end."""
    import socket

    assert count
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(60)
        line.connect(place)
        line.sendall(b"GET /v1/events?after=0 HTTP/1.0\r\nHost: x\r\n\r\n")
        got = b""
        while got.count(b"\ndata: ") < count or not got.endswith(b"\n\n"):
            got += line.recv(1 << 16)
    rows = got.decode("utf-8", "surrogateescape").split("\n")
    told = [row.removeprefix("data: ") for row in rows if row.startswith("data: ")]
    return Ended(("events", "--json"), 0, "\n".join(told), "").faults


def test_mcp(world: World) -> None:
    pytest.importorskip("mcp")
    import anyio
    from mcp import Client, StdioServerParameters

    env = {name: os.environ[name] for name in ("HOME", "SEGUE_HOME", "PATH")}
    server = StdioServerParameters(
        command=sys.executable, args=["-P", "-m", "segue.mcp.server"], cwd=world.project, env=env
    )
    faults: list[str] = []

    async def main() -> None:
        with anyio.fail_after(120):
            async with Client(server, mode="legacy") as client:
                for tool in (await client.list_tools()).tools:
                    fields = tool.input_schema.get("properties", {})
                    given = [{}] + [{field: VALUES[name]} for field in fields for name in _SENT]
                    for arguments in [*given, {"session": CANARY}]:
                        result = await client.call_tool(tool.name, arguments)
                        faults.extend(_in_answer(tool.name, result))

    anyio.run(main)
    assert not faults, faults[0]


def _in_answer(name: str, result: Any) -> list[str]:
    """JSON escapes what is data; what is text must be safe as it is."""
    said = "\n".join(getattr(part, "text", "") for part in result.content)
    return Ended(("mcp", name), 0, said, "").faults
