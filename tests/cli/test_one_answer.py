"""Whoever is asked about a session says the same: policy, window, size and zone come from one
place, whatever layers of the settings speak about its agent, its model and its folder.

Asked: status, status --watch, sessions, show, fits, statusline and what `setup` installs for it,
MCP (each without the daemon and with it), the API, hooks, and the daemon's log."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock
from zlib import crc32

import pytest
from support.agents.agents_alive import Agent
from support.homes import claude_session, prompt, reply
from support.waiting import pause_s
from support.watching import LIMIT_S, SEGUE, Watching, watching

from segue.system import units

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

WINDOW = 200_000
USED = 110_000  # 55%: warning by the defaults


class Case(NamedTuple):
    """A session, and what is to be said of it."""

    folder: str
    model: str
    zone: str
    handoff_at: int
    window: int = WINDOW

    @property
    def id(self) -> str:
        return f"{crc32(self.folder.encode()):08x}-2222-4333-8444-555555555555"


CASES = [
    Case("plain", "claude-sonnet-4-5", "monitor", 170_000),  # [policy] and [policy.agents]
    Case("shop", "claude-sonnet-4-5", "handoff", 100_000),  # [policy.projects]
    Case("shop/deep", "claude-sonnet-4-5", "critical", 120_000),  # the inner folder's
    Case("opus", "claude-opus-4-1", "warning", 170_000),  # [policy.models]
    Case("cloned", "claude-sonnet-4-5", "critical", 130_000),  # its own .segue.toml
    Case("linked", "claude-sonnet-4-5", "handoff", 100_000),  # a link into [policy.projects]
    Case("wide", "claude-wide-9", "normal", 340_000, 400_000),  # known_windows of a project
]
CONFIG = """\
[policy]
monitor_mark = 0.2
warning_mark = 0.56
[policy.agents.claude]
monitor_mark = 0.28
[policy.models."claude-opus-4-1"]
warning_mark = 0.5
[policy.projects."{home}/shop"]
warning_mark = 0.5
critical_mark = 0.5
soft_mark = 0.5
hard_mark = 0.5
[policy.projects."{home}/shop/deep"]
critical_mark = 0.55
soft_mark = 0.6
hard_mark = 0.6
[policy.projects."{home}/wide"]
known_windows = {{"claude-wide" = 400000}}
"""
CLONED = """\
[policy]
warning_mark = 0.4
critical_mark = 0.5
soft_mark = 0.65
hard_mark = 0.65
"""


class Said(NamedTuple):
    """What one place says of one session."""

    zone: str
    percent: float
    window: int | None = None
    handoff_at: int | None = None

    @classmethod
    def of(cls, told: dict[str, Any]) -> "Said":
        context, ahead = told["context"], told["handoff"]
        return cls(context["zone"], context["percent"], context["window"], ahead["at_tokens"])


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="segue-") as folder:
        yield Path(folder)


class Asked:
    """Everybody who may be asked, in the same homes."""

    def __init__(self, home: Path, own_home: Path) -> None:
        self.own_home = own_home
        self.there = Watching(home, {"HOME": str(own_home), "NO_COLOR": "1"}, ())
        self.paths: dict[Case, Path] = {}
        self.agents: list[Agent] = []
        (home / "config.toml").write_text(CONFIG.format(home=own_home))
        at = time.time() - 30
        for case in CASES:
            cwd = own_home / case.folder
            if case.folder == "linked":
                cwd.symlink_to(own_home / "shop")
            cwd.mkdir(parents=True, exist_ok=True)
            told = {"session": case.id, "cwd": str(cwd), "model": case.model}
            lines = [
                prompt(at=at, session=case.id, cwd=str(cwd)),
                reply(1, USED - 9_000, at=at + 1, **told),  # type: ignore[arg-type]
                reply(2, USED, at=at + 2, **told),  # type: ignore[arg-type]
            ]
            slug = case.folder.replace("/", "-")
            self.paths[case] = claude_session(own_home, *lines, session=case.id, slug=slug)
            self.agents.append(Agent(own_home / ".claude", session=case.id, status="idle"))
        (own_home / "cloned" / ".segue.toml").write_text(CLONED)

    def segue(self, *words: str, stdin: str = "", cwd: Path | None = None) -> str:
        done = subprocess.run(
            [*SEGUE, *words],
            env=self.there.env,
            cwd=cwd or self.own_home,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout

    def each(self, cwd: Path, typed: Callable[[Case], tuple[list[str], str]]) -> dict[Case, str]:
        """What a command says of each case: one after the other in one process, which is quicker
        than one each."""
        script = (
            "import json, sys; from click.testing import CliRunner; from segue.cli import cli;"
            "print(json.dumps([CliRunner().invoke(cli, words, input=given, catch_exceptions=False)"
            ".stdout for words, given in json.load(sys.stdin)]))"
        )
        done = subprocess.run(
            [sys.executable, "-c", script],
            env=self.there.env,
            cwd=cwd,
            input=json.dumps([typed(case) for case in CASES]),
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        return dict(zip(CASES, json.loads(done.stdout), strict=True))

    def payload(self, case: Case) -> str:
        model = {"id": case.model}
        usage = {"cache_read_input_tokens": USED}
        window = {"context_window_size": case.window, "current_usage": usage}
        about = {"session_id": case.id, "transcript_path": str(self.paths[case])}
        cwd = str(self.own_home / case.folder)
        return json.dumps({**about, "cwd": cwd, "model": model, "context_window": window})

    # Who is asked. From `shop`, whose own rules must not count for the others.

    def everybody(self) -> dict[str, dict[Case, Said]]:
        """By the place that was asked."""
        shop = self.own_home / "shop"
        found = {
            "status": _listed(self.segue("status", "--json", cwd=shop)),
            "sessions": _listed(self.segue("sessions", "--json", cwd=shop)),
            "status --watch": _listed(self.first_line("status", "--watch", "--json")),
            "show": {},
            "fits": {},
            "statusline": {},
            "the installed status line": {},
            "MCP context_status": {},
            "MCP fits": {},
        }
        shown = self.each(shop, lambda case: (["show", case.id, "--json"], ""))
        fitting = self.each(shop, lambda case: (["fits", "1", case.id, "--json"], ""))
        lines = self.each(shop, lambda case: (["statusline", "--no-color"], self.payload(case)))
        for case in CASES:
            found["show"][case] = Said.of(json.loads(shown[case]))
            fits = json.loads(fitting[case])
            assert (fits["because"] == "handoff") == (case.zone == "handoff")
            found["fits"][case] = Said.of(fits["session"])
            found["statusline"][case] = _line(lines[case])
            found["the installed status line"][case] = self.installed(case)
        found["MCP context_status"], found["MCP fits"] = self.mcp(shop)
        return found

    def first_line(self, *words: str) -> str:
        with subprocess.Popen(
            [*SEGUE, *words], env=self.there.env, stdout=subprocess.PIPE, text=True
        ) as child:
            assert child.stdout is not None
            line = child.stdout.readline()
            child.kill()
        return line

    def installed(self, case: Case) -> Said:
        """What claude shows. On a busy machine it may have no time to find out the zone."""
        env = {**self.there.env, "TMPDIR": os.environ.get("TMPDIR", "/tmp")}
        began = time.monotonic()
        while True:
            done = subprocess.run(
                ["sh", "-c", _installed(self.there)],
                env=env,
                input=self.payload(case),
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
            )
            waited_s = time.monotonic() - began
            if (said := _line(done.stdout)).zone or waited_s > LIMIT_S:
                return said
            time.sleep(pause_s(waited_s))

    def mcp(self, cwd: Path) -> tuple[dict[Case, Said], dict[Case, Said]]:
        ids = json.dumps([case.id for case in CASES])
        script = (
            "import json, sys; from segue.mcp.answers import Answers; a = Answers();"
            f"print(json.dumps([[a.context_status(i).data['session'],"
            f" a.fits(tokens=1, session=i).data['session']] for i in {ids}]))"
        )
        done = subprocess.run(
            [sys.executable, "-c", script],
            env=self.there.env,
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        told = json.loads(done.stdout)
        return (
            {case: Said.of(each[0]) for case, each in zip(CASES, told, strict=True)},
            {case: Said.of(each[1]) for case, each in zip(CASES, told, strict=True)},
        )

    # Only the daemon

    def api(self) -> dict[Case, Said]:
        return {c: Said.of(self.there.remote.get(f"/v1/sessions/{c.id}")) for c in CASES}

    def log(self) -> dict[Case, Said]:
        """By the last crossing of each; who never left normal has none."""
        found = {}
        for case in CASES:
            notes = [n for n in self.there.notes("crossing") if n.session_id == case.id]
            none: dict[str, Any] = {"zone": "normal", "fraction": USED / case.window}
            data = notes[-1].data if notes else none
            found[case] = Said(data["zone"], round(data["fraction"] * 100, 1))
        return found

    def hooks(self) -> dict[Case, str]:
        """What a session is told as it enters its zone."""
        found = {}
        for case in CASES:
            event = {"hook_event_name": "UserPromptSubmit", "session_id": case.id, "prompt": "a"}
            told = self.there.remote.post("/v1/hook", event)
            found[case] = json.dumps(told)
        return found


def _listed(text: str) -> dict[Case, Said]:
    told = {each["session_id"]: each for each in json.loads(text)["sessions"]}
    return {case: Said.of(told[case.id]) for case in CASES}


def _line(text: str) -> Said:
    """`█████░░░░░ 55% warning · …`."""
    words = text.split(" ")
    zone = words[2].strip() if len(words) > 2 else ""
    return Said(zone, float(words[1].strip().rstrip("%")))


def _installed(there: Watching) -> str:
    with mock.patch.dict(os.environ, there.env):
        return units.client_command("statusline", "-")


def check(told: dict[str, dict[Case, Said]]) -> None:
    wrong = []
    for place, answers in told.items():
        for case, said in answers.items():
            percent = round(USED / case.window * 100, 1)
            wanted = Said(
                case.zone,
                percent if said.window is not None or place == "log" else round(percent),
                None if said.window is None else case.window,
                None if said.handoff_at is None else case.handoff_at,
            )
            if said != wanted:
                wrong.append(f"{place}, {case.folder}: {said}, and not {wanted}")
    assert not wrong, "\n".join(wrong)


def test_all_say_the_same_of_a_session(own_home: Path, home: Path) -> None:
    asked = Asked(home, own_home)
    try:
        check(asked.everybody())
        with watching(home, asked.there.env) as there:
            asked.there = there
            there.until(lambda: len(there.remote.get("/v1/sessions")["sessions"]) == 7, "sessions")
            there.until(lambda: len({n.session_id for n in there.notes("crossing")}) == 6, "zones")
            check({**asked.everybody(), "API": asked.api(), "log": asked.log()})
            told = asked.hooks()
            for case in CASES:
                percent = f"ontext at {USED / case.window:.0%}"
                assert (case.zone != "normal") == (percent in told[case]), (case, told[case])
                assert (case.zone in ("critical", "handoff")) == ("High" in told[case])
                if case.zone in ("monitor", "warning"):
                    assert f"{case.zone} zone" in told[case]
    finally:
        for agent in asked.agents:
            agent.end()
