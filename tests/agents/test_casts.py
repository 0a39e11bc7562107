"""The real agents, isolated, against a scripted model: found, run, resumed, compacted, swept."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.playing import AGENTS_FOLDER, missing

from segue import api
from segue.agents import drives
from segue.drill import casts
from segue.drill.plays import enclosure

REAL = ("claude", "codex", "opencode", "gemini", "pi")
SCRIPT = Path(__file__).parents[2] / "scripts/agents"
PINS = dict(
    line.removeprefix("pins='").split()[:2]
    for line in SCRIPT.read_text(encoding="utf-8").splitlines()
    if line.removeprefix("pins='").startswith(REAL)
)
ENV = {  # as it was before each test got its own home
    "SEGUE_AGENTS": AGENTS_FOLDER,
    "PATH": os.environ["PATH"],
}
LEG = Path(__file__).parents[1] / "support/agents/one_leg.py"

Found = dict[str, Any]


@pytest.fixture(params=REAL)
def cast(request: pytest.FixtureRequest) -> casts.Cast:
    return casts.find(request.param)


@pytest.fixture
def program(cast: casts.Cast) -> str:
    found = cast.find(ENV)
    if found is None:
        missing(f"{cast.name} is not installed: {cast.install}")
    return str(found)


@pytest.fixture
def leg(cast: casts.Cast, program: str, tmp_path: Path) -> Callable[..., Found]:
    """Plays one leg in the enclosure."""
    if reason := enclosure.why_not():
        missing(reason)
    (tmp_path / "play/home").mkdir(parents=True)
    project = tmp_path / "play/project"
    subprocess.run(["git", "init", "-q", str(project)], check=True)

    def leg(**play: Any) -> Found:
        argv = [sys.executable, str(LEG), cast.name, program, str(tmp_path / "play")]
        done = subprocess.run(
            enclosure.command([*argv, json.dumps(play)]),
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found: Found = json.loads(done.stdout)
        assert found["strange"] == [], "it asked for something that no wire knows"
        assert found["left"] == [], "a process outlived the sweep"
        return found

    return leg


def reason(cast: casts.Cast, found: Found, folder: Path) -> str:
    transcript = Path(found["transcript"])
    return api.classify(
        agent=cast.agent,
        stdout=folder / "play/stdout",
        stderr=folder / "play/stderr",
        transcript=transcript if transcript.suffix == ".jsonl" else None,
        exit_code=found["exit_code"],
    ).reason.value


@pytest.mark.real_agent
def test_the_pinned_version_is_found(cast: casts.Cast, program: str) -> None:
    said = subprocess.run(
        cast.version(program), capture_output=True, text=True, timeout=60, check=True
    )
    assert PINS[cast.name] in said.stdout.split()


@pytest.mark.real_agent
def test_it_runs_a_tool_continues_with_its_session_and_compacts(
    cast: casts.Cast, leg: Callable[..., Found], tmp_path: Path
) -> None:
    first = leg(prompt="Do it.", commands=["echo hello >made"])
    assert (tmp_path / "play/project/made").read_text() == "hello\n"
    assert first["exit_code"] == 0
    assert reason(cast, first, tmp_path) == "completed"
    assert [kind for kind in first["kinds"] if kind != "title"] == ["main", "main"]
    assert first["session"]
    assert Path(first["transcript"]).is_relative_to(tmp_path / "play/home")

    # Two outputs that are large enough to be worth a summary.
    commands = ["seq 1 9000", "seq 1 9000; touch late"]
    again = leg(prompt="Go on.", session=first["session"], commands=commands, is_full=True)
    assert (tmp_path / "play/project/late").exists()
    assert again["session"] == first["session"], "it began anew"
    assert "compaction" in again["kinds"]
    assert again["kinds"][-1] == "main", "it did not go on after its summary"
    assert reason(cast, again, tmp_path) == "completed"
    assert again["exit_code"] == 0


@pytest.mark.real_agent
def test_killed_in_a_tool_it_leaves_a_session_and_the_tool_is_swept(
    cast: casts.Cast, leg: Callable[..., Found], tmp_path: Path
) -> None:
    command = "touch begun; sleep 300; touch after"
    found = leg(prompt="Do it.", commands=[command], signal="SIGKILL")
    assert found["exit_code"] == -9
    assert found["session"]
    assert ["sleep", "300"] in found["swept"]
    assert not (tmp_path / "play/project/after").exists()


def test_nothing_of_the_users_reaches_it(
    cast: casts.Cast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a key nor a setting, wherever the user keeps it."""
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "CODEX_HOME"):
        monkeypatch.setenv(name, "the-user's")
    stage = casts.PlayStage(
        home=tmp_path / "h", project=tmp_path / "p", port=1, window_tokens=cast.window_tokens
    )
    before = sorted(tmp_path.rglob("*"))
    cast.prepare(stage)
    part = cast.start("/bin/agent", stage, "Do it.", "")
    written = set(tmp_path.rglob("*")) - set(before)
    assert written
    assert all(file.is_relative_to(stage.home) for file in written)
    assert "the-user's" not in str(part.env)
    assert os.environ["HOME"] not in (v for k, v in part.env.items() if k != "PATH")
    texts = [file.read_text() for file in written if file.is_file()]
    assert any("127.0.0.1:1" in text for text in [*texts, str(part.env)])
    assert cast.session(stage) == ("", None)
    driven = cast.driven("/bin/agent", stage)
    assert driven.env == part.env, "with segue it is another world"
    assert "/bin/agent" in driven.command
    drive = drives.find(cast.agent)
    assert drive is not None
    assert drive.refuses(driven.flags) == ""


@pytest.mark.parametrize("session", ["", "the-session"])
def test_the_prompt_is_said_and_a_session_is_named(
    cast: casts.Cast, session: str, tmp_path: Path
) -> None:
    stage = casts.PlayStage(home=tmp_path, project=tmp_path, port=1, window_tokens=9)
    part = cast.start("/bin/agent", stage, "Do it.", session)
    assert ("Do it." in part.argv) != (part.stdin == b"Do it.")
    assert ("the-session" in part.argv) == bool(session)


def test_a_subscriber_of_claude_has_a_token_instead_of_a_key(tmp_path: Path) -> None:
    stage = casts.PlayStage(
        home=tmp_path, project=tmp_path, port=1, window_tokens=9, options={"plan": "1"}
    )
    env = casts.find("claude").start("/bin/agent", stage, "Do it.", "").env
    assert "CLAUDE_CODE_OAUTH_TOKEN" in env
    assert "ANTHROPIC_API_KEY" not in env
