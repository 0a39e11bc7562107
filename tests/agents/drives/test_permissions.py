"""What an agent may do while nobody is there to be asked: said before a run begins, and with the
literal command once it is refused. The real agents have their own default permissions."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.playing import AGENTS_FOLDER, missing

from segue.agents import drives
from segue.agents.shared.flags import added
from segue.cli import cli
from segue.drill import casts
from segue.drill.plays import enclosure

HOUR = Path(__file__).parents[2] / "support/agents/first_hour.py"
MODEL = {
    "claude": ("--", "--model", "claude-sonnet-4-5"),
    "gemini": ("--", "-m", "gemini-2.5-pro"),
    "pi": ("--", "--model", "drill/drill-model"),
}
EVERYTHING = "everything: only in a container"

Answered = list[dict[str, Any]]


def hour(agent: str, folder: Path, **plan: Any) -> Answered:
    """What the user types in a fresh home, and what is answered."""
    env = {**os.environ, "SEGUE_AGENTS": AGENTS_FOLDER}
    drive = drives.find(agent)
    assert drive is not None
    if drive.find(env) is None:
        missing(f"{agent} is not installed: {casts.find(agent).install}")
    if reason := enclosure.why_not():
        missing(reason)
    (folder / "project").mkdir()
    subprocess.run(["git", "init", "-q", str(folder / "project")], check=True)
    (folder / "plan.json").write_text(json.dumps(plan))
    argv = [sys.executable, str(HOUR), agent, str(folder), str(folder / "plan.json")]
    done = subprocess.run(
        enclosure.command(argv), env=env, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr
    found: Answered = json.loads(done.stdout)["answered"]
    return found


@pytest.mark.real_agent
def test_claude_may_do_nothing_by_default_and_continues_with_the_named_command(
    tmp_path: Path,
) -> None:
    run, resumed = hour(
        "claude",
        tmp_path,
        commands=[["run", "--agent", "claude", "fix it", *MODEL["claude"]], ["advised", "0"]],
        calls=[
            {"sh": "make --version > made.txt"},
            {"say": "I am not allowed to."},
            {"write": "one.txt"},
            {"sh": "make --version > made.txt"},
        ],
    )
    assert run["code"] == 3
    first, *_ = run["err"].splitlines()
    assert first == (
        "segue: warning: claude may not edit files or run commands unattended (its permission mode"
        " is default); add -- --permission-mode acceptEdits --allowedTools Bash"
    )
    assert "not allowed: make --version > made.txt" in run["err"]
    assert "Bash(make *)" in run["err"]
    assert run["err"].index("Bash(make *)") < run["err"].index(EVERYTHING)
    assert (resumed["typed"][0], resumed["typed"][-1]) == ("resume", "Bash(make *)")
    assert resumed["code"] == 0, resumed
    assert (tmp_path / "project/one.txt").exists()
    assert (tmp_path / "project/made.txt").exists()


@pytest.mark.real_agent
def test_codex_by_default_only_reads_and_is_not_taken_at_its_word(tmp_path: Path) -> None:
    """It says that it is done, its exit code is 0, and its last command went well."""
    run, resumed = hour(
        "codex",
        tmp_path,
        commands=[["run", "--agent", "codex", "fix it"], ["advised", "0"]],
        calls=[
            {"write": "one.txt"},
            {"sh": "ls"},
            {"say": "It is done."},
            {"write": "one.txt"},
            {"sh": "touch two.txt"},
        ],
    )
    assert run["code"] == 3, run
    first, *_ = run["err"].splitlines()
    assert first == (
        "segue: warning: codex may not edit files or run commands unattended (it does not trust"
        " this folder, so it only reads); add -- --sandbox workspace-write"
    )
    assert "not allowed: writing one.txt" in run["err"]
    assert run["err"].index("--sandbox workspace-write # ") < run["err"].index(EVERYTHING)
    assert resumed["typed"][2:] == ["--", "--sandbox", "workspace-write"]
    assert resumed["code"] == 0, resumed
    assert {"one.txt", "two.txt"} <= {file.name for file in (tmp_path / "project").iterdir()}


@pytest.mark.real_agent
def test_opencode_is_allowed_by_its_environment_what_its_config_asks_about(tmp_path: Path) -> None:
    config = '{"permission": {"edit": "ask", "bash": "ask"}, /* mine */}'
    run, resumed = hour(
        "opencode",
        tmp_path,
        commands=[["run", "--agent", "opencode", "fix it"], ["advised", "0"]],
        calls=[{"sh": "touch two.txt"}, {"sh": "touch two.txt"}],
        files={"project/opencode.jsonc": config},
    )
    assert run["code"] == 3, run
    assert run["err"].startswith(
        "segue: warning: opencode may not edit files or run commands unattended"
    )
    assert "not allowed: touch two.txt" in run["err"]
    assert """OPENCODE_PERMISSION='{"bash":{"touch *":"allow"}}' segue resume run-""" in run["err"]
    assert resumed["code"] == 0, resumed
    assert (tmp_path / "project/two.txt").exists()


@pytest.mark.real_agent
def test_gemini_is_told_to_trust_the_folder_and_given_the_tools_that_it_lacks(
    tmp_path: Path,
) -> None:
    run, trusted, resumed = hour(
        "gemini",
        tmp_path,
        commands=[
            ["run", "--agent", "gemini", "fix it", *MODEL["gemini"]],
            ["resume", "{run}", "--", "--skip-trust"],
            ["advised", "0"],
        ],
        calls=[
            {"sh": "touch two.txt"},
            {"say": "I have no such tool."},
            {"write": "one.txt"},
            {"sh": "touch two.txt"},
        ],
    )
    assert run["code"] == trusted["code"] == 3, (run, trusted)
    assert "(it does not trust this folder); add -- --skip-trust --approval-mode" in run["err"]
    assert "not allowed: touch two.txt" in trusted["err"]
    assert "'run_shell_command(touch)'" in trusted["err"]
    assert resumed["code"] == 0, resumed
    assert (tmp_path / "project/one.txt").exists()
    assert (tmp_path / "project/two.txt").exists()


@pytest.mark.real_agent
def test_pi_asks_for_nothing_and_nothing_is_said(tmp_path: Path) -> None:
    (run,) = hour(
        "pi",
        tmp_path,
        commands=[["run", "--agent", "pi", "fix it", *MODEL["pi"]]],
        calls=[{"write": "one.txt"}, {"sh": "touch two.txt"}],
    )
    assert run["code"] == 0, run
    assert "unattended" not in run["err"]
    assert "signed in" not in run["err"]


# Before a run


@pytest.fixture
def project(tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository, a home, and all agents on the PATH; none of them is ever started."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in drives.NAMES:
        program = programs / name
        program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
        program.chmod(0o755)
    folder = tmp_path / "project"
    folder.mkdir()
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(own_home))
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_AUTH_TOKEN", "_OAUTH_TOKEN")) or name == "IS_SANDBOX":
            monkeypatch.delenv(name)
    monkeypatch.delenv("SEGUE_AGENTS", raising=False)
    monkeypatch.chdir(folder)
    return folder


def notes(agent: str, *flags: str) -> str:
    """What `segue run --dry-run` says of the agent's permissions."""
    words = ["run", "--dry-run", "--json", "--agent", agent, "fix it"]
    result = CliRunner().invoke(cli, [*words, "--", *flags] if flags else words)
    assert result.exit_code == 0, result.output
    return "\n".join(n for n in json.loads(result.stdout)["notes"] if n.startswith(f"{agent} "))


def settle(place: Path, name: str, text: str) -> None:
    file = place / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


PROVIDER = 'model_provider = "x"\n[model_providers.x]\nenv_key = "X_KEY"'
NOTHING = "may not edit files or run commands unattended"
NO_EDITS = "may not edit files unattended"
NO_COMMANDS = "may not run commands unattended"


@pytest.mark.parametrize(
    ("agent", "flags", "files", "said"),
    [
        ("claude", (), {}, NOTHING),
        ("claude", ("--permission-mode", "acceptEdits"), {}, NO_COMMANDS),
        ("claude", ("--permission-mode=acceptEdits",), {}, NO_COMMANDS),
        ("claude", ("--permission-mode", "plan", "--allowedTools", "Bash"), {}, NOTHING),
        ("claude", ("--allowedTools", "Edit", "Bash(make *)"), {}, ""),
        ("claude", ("--allowed-tools", "Edit,Bash(git log:*)"), {}, ""),
        ("claude", ("--allowedTools", "Read,WebFetch"), {}, NOTHING),
        ("claude", ("--allowedTools", "Bash"), {}, NO_EDITS),
        (
            "claude",
            (),
            {"~/.claude/settings.json": '{"permissions": {"allow": ["Edit", "Bash(npm test)"]}}'},
            "",
        ),
        (
            "claude",
            ("--allowedTools", "Bash"),
            {".claude/settings.local.json": '{"permissions": {"defaultMode": "acceptEdits"}}'},
            "",
        ),
        ("claude", ("--settings", '{"sandbox": {"enabled": true}}'), {}, NO_EDITS),
        (
            "claude",
            ("--permission-mode", "acceptEdits", "--allowedTools", "Bash"),
            {".claude/settings.json": '{"permissions": {"deny": ["Bash"]}}'},
            NO_COMMANDS,
        ),
        (
            "claude",
            ("--permission-mode", "acceptEdits"),
            {"~/.claude/settings.json": "{"},
            NO_COMMANDS,
        ),
        ("codex", (), {}, NOTHING),
        ("codex", ("-s", "read-only"), {"~/.codex/config.toml": "TRUSTED"}, NOTHING),
        ("codex", (), {"~/.codex/config.toml": "TRUSTED"}, ""),
        ("codex", (), {"~/.codex/config.toml": 'sandbox_mode = "workspace-write"'}, ""),
        ("codex", ("-c", 'sandbox_mode="danger-full-access"'), {}, ""),
        ("codex", ("--sandbox=workspace-write",), {}, ""),
        ("codex", ("--dangerously-bypass-approvals-and-sandbox",), {}, ""),
        (
            "codex",
            ("-p", "night"),
            {"~/.codex/night.config.toml": 'sandbox_mode="read-only"'},
            NOTHING,
        ),
        (
            "codex",
            ("-p", "night"),
            {"~/.codex/night.config.toml": 'sandbox_mode="workspace-write"'},
            "",
        ),
        ("opencode", (), {}, ""),
        ("opencode", (), {"opencode.json": '{"permission": "ask"}'}, NOTHING),
        ("opencode", (), {"opencode.json": '{"permission": {"bash": "deny"}}'}, NO_COMMANDS),
        (
            "opencode",
            (),
            {"~/.config/opencode/opencode.json": '{"permission": {"edit": "ask"}}'},
            NO_EDITS,
        ),
        (
            "opencode",
            (),
            {"opencode.jsonc": '{"permission": {"bash": {"*": "ask", "make *": "allow"}}, } // x'},
            "",
        ),
        ("gemini", (), {}, NOTHING),
        ("gemini", ("-y",), {}, NOTHING),
        ("gemini", ("-y", "--skip-trust"), {}, ""),
        ("gemini", ("--skip-trust", "--approval-mode", "auto_edit"), {}, NO_COMMANDS),
        (
            "gemini",
            ("--approval-mode", "auto_edit", "--allowed-tools", "run_shell_command(make)"),
            {"~/.gemini/trustedFolders.json": '{"PROJECT": "TRUST_FOLDER"}'},
            "",
        ),
        (
            "gemini",
            ("--approval-mode", "yolo"),
            {"~/.gemini/settings.json": '{"security": {"folderTrust": {"enabled": false}}}'},
            "",
        ),
        ("pi", (), {}, ""),
    ],
)
def test_what_an_agent_may_do_unattended_is_looked_up_before_it_starts(
    agent: str,
    flags: tuple[str, ...],
    files: dict[str, str],
    said: str,
    project: Path,
    own_home: Path,
    tmp_path: Path,
) -> None:
    for name, text in files.items():
        place = own_home if name.startswith("~") else project
        text = text.replace("TRUSTED", f'[projects."{project}"]\ntrust_level = "trusted"\n')
        settle(place, name.removeprefix("~/"), text.replace("PROJECT", str(project)))
    told = notes(agent, *flags)
    assert (said in told) if said else ("unattended" not in told)
    if said:
        assert "; add " in told
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(
    ("agent", "env", "files", "is_in"),
    [
        ("gemini", {}, {}, False),
        ("gemini", {"GEMINI_API_KEY": "x"}, {}, True),
        ("gemini", {}, {".gemini/oauth_creds.json": '{"a": 1}'}, True),
        ("pi", {}, {}, False),
        ("pi", {}, {".pi/agent/auth.json": "{}"}, False),
        ("pi", {}, {".pi/agent/auth.json": '{"anthropic": {}}'}, True),
        ("pi", {"OPENROUTER_API_KEY": "x"}, {}, True),
        ("codex", {}, {".codex/config.toml": PROVIDER}, False),
        ("codex", {"X_KEY": "1"}, {".codex/config.toml": PROVIDER}, True),
    ],
)
def test_an_agent_that_is_not_signed_in_is_told_of(
    agent: str,
    env: dict[str, str],
    files: dict[str, str],
    is_in: bool,
    project: Path,
    own_home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    for name, text in files.items():
        settle(own_home, name, text)
    assert ("is not signed in; " in notes(agent)) != is_in


@pytest.mark.parametrize(("code", "said"), [(0, False), (1, True), (7, False)])
def test_where_no_file_tells_the_agent_itself_is_asked(
    code: int, said: bool, project: Path, tmp_path: Path
) -> None:
    """A real start, of a program that knows no more than whether it is signed in."""
    program = tmp_path / "bin/claude"
    program.write_text(f'#!/bin/sh\n[ "$1 $2" = "auth status" ] && exit {code}\nexit 9\n')
    done = subprocess.run(
        [sys.executable, "-m", "segue", "run", "--agent", "claude", "fix it"],
        capture_output=True,
        text=True,
        check=False,
    )
    line = "segue: warning: claude is not signed in; claude auth login, or set ANTHROPIC_API_KEY"
    assert (line in done.stderr.splitlines()) == said, done.stderr


@pytest.mark.parametrize(
    ("agent", "before", "more", "both"),
    [
        ("claude", "--model a --allowedTools Edit", "--allowedTools Bash --model b",
         "--allowedTools Edit --allowedTools Bash --model b"),
        ("codex", "-s read-only -c a=1", "--sandbox workspace-write -c b=2",
         "-c a=1 --sandbox workspace-write -c b=2"),
        ("codex", "--sandbox workspace-write", "--dangerously-bypass-approvals-and-sandbox",
         "--dangerously-bypass-approvals-and-sandbox"),
        ("gemini", "-y -m x", "--approval-mode auto_edit", "-m x --approval-mode auto_edit"),
        ("pi", "", "--model x", "--model x"),
    ],
)  # fmt: skip
def test_flags_that_are_added_take_the_place_of_what_they_contradict(
    agent: str, before: str, more: str, both: str
) -> None:
    drive = drives.find(agent)
    assert drive is not None
    assert added(before.split(), more.split(), drive) == tuple(both.split())
