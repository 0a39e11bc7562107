"""Every command in the README is run, and what it says of itself is true."""

import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import lines

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
SEGUE = Path(sys.executable).parent / "segue"
INSTALL = "python3 -m venv .venv && .venv/bin/pip install -q . && .venv/bin/segue drill"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.S)


def commands() -> list[str]:
    return [line for block in blocks("sh") for line in block.splitlines() if line.strip()]


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """A folder with the files that the README's commands name."""
    place = tmp_path / "work"
    place.mkdir()
    example = ROOT / "src/segue/examples/claude-context-full"
    shutil.copy(example / "stdout", place / "out.jsonl")
    shutil.copy(example / "stdout", place / "session.jsonl")
    (place / "err.txt").write_text("")
    recorded = next(r["transcript"] for r in lines("recordings/claude.jsonl") if r["transcript"])
    projects = Path(os.environ["HOME"]) / ".claude/projects/-home-dev-project"
    projects.mkdir(parents=True)
    (projects / "11111111-2222-4333-8444-555555555555.jsonl").write_text(recorded)
    agent = tmp_path / "agent.py"
    agent.write_text("print('All tests pass.')\n")
    home = Path(os.environ["SEGUE_HOME"])
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(
        f'[run]\nagent = "mine"\n[agents.mine]\ncommand = ["{sys.executable}", "{agent}"]\n'
    )
    (place / "Makefile").write_text("test:\n\ttest ! -e broken\n")
    return place


def leave_unfinished_run(place: Path, path: str) -> None:
    (place / "broken").touch()
    done = subprocess.run(
        ["segue", "run", "mend it", "--check", "make test"],
        cwd=place,
        env={**os.environ, "PATH": path},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    (place / "broken").unlink()


def test_the_first_two_commands_are_those_that_set_everything_up() -> None:
    assert commands()[:2] == [INSTALL, "scripts/test"]
    assert "scripts/test" in (ROOT / ".ci/run").read_text().splitlines()


STAYS = [command for command in commands() if command.startswith("segue watch")]


@pytest.mark.parametrize("command", STAYS)
def test_the_daemon_of_the_readme_starts_says_what_it_does_and_ends_on_ctrl_c(
    command: str, workplace: Path
) -> None:
    path = f"{SEGUE.parent}{os.pathsep}{os.environ['PATH']}"
    daemon = subprocess.Popen(
        ["sh", "-c", f"exec {command}"],
        cwd=workplace,
        env={**os.environ, "PATH": path},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert daemon.stderr is not None
    assert daemon.stderr.readline().startswith("segue acts by itself in every project")
    daemon.send_signal(signal.SIGINT)
    _, said = daemon.communicate(timeout=30)
    assert daemon.returncode == 0, said
    assert "Traceback" not in said


@pytest.mark.parametrize("command", [c for c in commands()[2:] if c not in STAYS])
def test_a_command_of_the_readme_works_as_written(command: str, workplace: Path) -> None:
    if command == "segue wordings check":
        home = Path(os.environ["SEGUE_HOME"])
        home.mkdir(exist_ok=True)
        (home / "wordings.toml").write_text(
            '[[wording]]\nid = "a"\nreason = "rate_limit"\npattern = "b"\nexample = ["b"]\n'
        )
    path = f"{SEGUE.parent}{os.pathsep}{os.environ['PATH']}"
    if command in ("segue resume", "segue runs"):
        leave_unfinished_run(workplace, path)
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=workplace,
        env={**os.environ, "PATH": path},
        input="API Error: Rate limit reached",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert "Traceback" not in done.stderr


def test_the_python_of_the_readme_runs(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workplace)
    (code,) = blocks("python")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.startswith("context_exhausted"), done.stderr


def test_the_wheel_holds_all_that_the_first_command_needs(tmp_path: Path) -> None:
    """The README's first command without its download: what pip would install is built and run."""
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    place = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)
    code = f"import sys; sys.path.insert(0, {str(place)!r}); from segue.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "drill", "--scenario", "crash-in-tool", "--only", "with"],
        env={**os.environ, "PYTHONPATH": str(place)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "crash-in-tool" in done.stdout
    assert "all 6 steps" in done.stdout
    assert (place / "segue/py.typed").is_file()


def test_agents_md_is_short() -> None:
    assert len((ROOT / "AGENTS.md").read_text().splitlines()) <= 60


def test_the_folders_in_the_architecture_exist() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    named = re.findall(r"^  (\w+(?:\.py|/)) ", text, re.M)
    missing = [name for name in named if not (ROOT / "src/segue" / name).exists()]
    assert named
    assert not missing
    here = {p.name + "/" for p in (ROOT / "src/segue").iterdir() if p.is_dir()} - {"__pycache__/"}
    assert here <= set(named)


def test_the_defaults_in_the_docs_are_the_defaults() -> None:
    import tomllib

    from segue.core.policy import Policy

    text = (ROOT / "docs/classify.md").read_text()
    (block,) = re.findall(r"```toml\n(\[policy\].*?)```", text, re.S)
    stated = tomllib.loads(block)["policy"]
    policy = Policy()
    assert {name: getattr(policy, name) for name in stated} == {
        **stated,
        "exit_patterns": tuple(stated["exit_patterns"]),
    }


def test_the_wording_in_the_docs_is_sound(tmp_path: Path) -> None:
    text = (ROOT / "docs/wordings.md").read_text()
    (block,) = re.findall(r"```toml\n(.*?)```", text, re.S)
    file = tmp_path / "wordings.toml"
    file.write_text(block)
    done = subprocess.run(
        [SEGUE, "wordings", "check", file], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "1 good, 0 with a fault\n"), done.stderr
