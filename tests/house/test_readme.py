"""Every command in the README is run, and what the README claims is true."""

import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest
from conftest import lines

from segue.watch.log import Log

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
SEGUE = Path(sys.executable).parent / "segue"
INSTALL = "scripts/install && ~/.local/bin/segue drill"


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
    killed = next(r for r in lines("recordings/claude.jsonl") if r["name"] == "h1-tool-sigkill")
    dead = projects / "22222222-2222-4333-8444-555555555555.jsonl"
    dead.write_text(killed["transcript"])
    agent = tmp_path / "agent.py"
    agent.write_text("print('All tests pass.')\n")
    home = Path(os.environ["SEGUE_HOME"])
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(
        f'[run]\nagent = "mine"\n[agents.mine]\ncommand = ["{sys.executable}", "{agent}"]\n'
    )
    (place / "Makefile").write_text("test:\n\ttest ! -e broken\n")
    (place / "tonight.md").write_text("- fix the tests\n- add a test\n")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "first")):
        who = ("-c", "user.name=me", "-c", "user.email=me@example.invalid")
        subprocess.run(["git", *who, *words], cwd=place, check=True)
    return place


def leave_unfinished_run(place: Path, path: str) -> None:
    (place / "broken").touch()
    done = subprocess.run(
        ["segue", "run", "mend it", "--check", "make test"],
        cwd=place,
        env={**os.environ, "PATH": path},
        capture_output=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 1
    (place / "broken").unlink()


def test_the_first_two_commands_are_those_that_set_everything_up() -> None:
    assert commands()[:2] == [INSTALL, "scripts/test"]
    assert "scripts/test" in (ROOT / ".ci/run").read_text().splitlines()
    before = README.split("```sh")[0]
    assert all(line in before for line in ("`uv tool install .`", "`pipx install .`"))


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
    _, said = daemon.communicate(timeout=90)
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
    if command == "segue queue":
        env = {**os.environ, "PATH": path}
        subprocess.run(["segue", "submit", "x"], cwd=workplace, env=env, timeout=180, check=True)
    if command == "segue attach":
        detached = next(each for each in commands() if "--detach" in each)
        env = {**os.environ, "PATH": path}
        subprocess.run(["sh", "-c", detached], cwd=workplace, env=env, timeout=180, check=True)
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=workplace,
        env={**os.environ, "PATH": path},
        input="API Error: Rate limit reached",
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert "Traceback" not in done.stderr


NOT_RUN = {
    "segue open": "needs a terminal: test_open does it",
    "segue drill --agent": "real agents: test_real_agents, and docs/matrix.md is made by it",
    "segue drill --scenario mine.toml": "leaves its folders: test_drill does it",
    "segue service install": "changes the machine's services: test_service does it",
    "segue run --agent codex": "a signed-in codex: test_docs_elsewhere",
    "curl --unix-socket": "needs a daemon: test_docs_elsewhere",
    "claude mcp add": "needs claude: test_setup_agents",
    "scripts/agents ": "needs npm's registry: test_installed",
    "pg_": "needs a database: test_fleet_docs",
    "psql ": "needs a database: test_fleet_docs",
    "ssh ": "needs another machine: test_docs_elsewhere",
    "segue rescue --last": "a signed-in agent: test_rescue_real",
}
"""Commands of the docs that are not run here, by how they begin, and why."""
ALSO = {"segue doctor": (0, 1), "segue service status": (0, 3)}
"""Exit codes that are an answer, too."""
OF_RUNS = re.compile(
    r"segue (?:attach|cancel|diff|forget|logs|report|rerun|rescue|restore|resume|runs|show"
    r"|status)\b"
)
"""Commands that need a run, or say more where there is one."""
PAGES = sorted((ROOT / "docs").glob("*.md"))


def commands_of(page: Path) -> list[str]:
    """What stands in its blocks for a shell. One without a language is what was printed."""
    found = []
    for language, block in re.findall(r"```(\w*)\n(.*?)```", page.read_text(), re.S):
        assert language not in ("bash", "shell", "zsh"), f"{page.name}: write sh"
        lines = [line.removeprefix("$ ") for line in block.splitlines()]
        lines = [re.sub(r"\s+#.*", "", line).strip() for line in lines if line.strip()]
        if language in ("sh", "console"):
            found += lines
        else:
            stray = re.match(r"segue [a-z]+( |$)", lines[0]) if lines else None
            assert language or not stray, f"{page.name}: a block for a shell begins with ```sh"
    return list(dict.fromkeys(found))


def is_run(command: str) -> bool:
    return command not in commands() and not command.startswith(tuple(NOT_RUN))


def test_what_is_not_run_is_in_the_docs() -> None:
    told = [command for page in PAGES for command in commands_of(page)]
    unused = [begin for begin in NOT_RUN if not any(each.startswith(begin) for each in told)]
    assert not unused


@pytest.mark.parametrize("page", [p for p in PAGES if commands_of(p)], ids=lambda page: page.stem)
def test_the_commands_of_a_page_work_as_written(page: Path, workplace: Path) -> None:
    (workplace / "spec.md").write_text("do it")
    (Path(os.environ["HOME"]) / "code/shop").mkdir(parents=True)
    subprocess.run(["git", "init", "-q"], cwd=workplace, check=True)
    path = f"{SEGUE.parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path}
    log = Log(Path(os.environ["SEGUE_HOME"]) / "watch.db")
    log.append("crossing", at=1.8e9, agent="claude", session_id="s", data={"zone": "warning"})
    log.close()
    told = [*filter(is_run, commands_of(page))]
    if any(OF_RUNS.match(command) for command in told):
        leave_unfinished_run(workplace, path)
    exports = ""
    for command in told:
        if command.startswith("export "):  # for what follows it
            exports += f"{command}; "
            continue
        if command.startswith("segue watch"):
            _starts_and_ends(command, workplace, env)
            continue
        if command.startswith("segue dashboard"):
            _serves_and_ends(command, workplace, env)
            continue
        done = subprocess.run(
            ["sh", "-c", exports + command],
            cwd=workplace,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode in ALSO.get(command, (0,)), (command, done.stderr)
        assert (done.stdout + done.stderr).strip(), command
        assert "Traceback" not in done.stderr


def _starts_and_ends(command: str, place: Path, env: dict[str, str]) -> None:
    daemon = subprocess.Popen(
        ["sh", "-c", f"exec {command}"], cwd=place, env=env, stderr=subprocess.PIPE, text=True
    )
    assert daemon.stderr is not None
    assert daemon.stderr.readline().startswith("segue ")
    daemon.send_signal(signal.SIGINT)
    _, said = daemon.communicate(timeout=60)
    assert daemon.returncode == 0, said


def _serves_and_ends(command: str, place: Path, env: dict[str, str]) -> None:
    """It prints one URL, and serves until Ctrl+C."""
    served = subprocess.Popen(
        ["sh", "-c", f"exec {command}"], cwd=place, env=env, stdout=subprocess.PIPE, text=True
    )
    assert served.stdout is not None
    assert served.stdout.readline().startswith("http://127.0.0.1:")
    served.send_signal(signal.SIGINT)
    served.communicate(timeout=60)
    assert served.returncode in (0, 130)


def test_what_the_docs_say_of_the_service_is_so() -> None:
    """It only watches, unless the config says otherwise."""
    done = subprocess.run(
        [SEGUE, "service", "install", "--print"], capture_output=True, text=True, check=True
    )
    assert "--auto" not in done.stdout
    said = " ".join((ROOT / "docs/watch.md").read_text().split())
    assert "The service runs `segue watch` without `--auto`" in said


def test_one_machine_needs_no_extra_and_no_hint_names_one_that_cannot_be_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {re.split(r"\W", each)[0] for each in project["dependencies"]}
    assert {"apprise", "mcp"} <= needed
    # Only a fleet needs a client of PostgreSQL, and only telemetry an exporter.
    assert set(project["optional-dependencies"]) == {"fleet", "otel"}
    told = [ROOT / "README.md", *PAGES, *(ROOT / "src").rglob("*.py")]
    assert not [file for file in told if re.search(r"\w\[\w+\]'|pip install '", file.read_text())]


def test_the_urls_of_the_project_lead_to_what_is_in_it() -> None:
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    home = urls.pop("Homepage")
    assert all(url.startswith(home + "/") for url in urls.values())
    paths = [url.partition("/main/")[2] for url in urls.values() if "/main/" in url]
    assert paths
    assert all((ROOT / path).exists() for path in paths)


def test_the_picture_is_of_a_real_drill_and_loads_nothing() -> None:
    text = (ROOT / "docs/drill.svg").read_text()
    assert "docs/drill.svg" in README.split("## ")[0]
    assert "plan-limit" in text
    assert not re.findall(r"url\(['\"]?http|href=|<script|@import", text)


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
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "crash-in-tool" in done.stdout
    assert "all 6 steps" in done.stdout
    assert (place / "segue/py.typed").is_file()


def offline_install(home: Path, path: str = os.environ["PATH"]) -> subprocess.CompletedProcess[str]:
    """The README's first command, with nothing from a registry: pip is told to build with what the
    tests run with, and to leave the rest out."""
    env = {
        "HOME": str(home),
        "PATH": path,
        "PYTHON": sys.executable,
        "PYTHONPATH": sysconfig.get_path("purelib"),
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip's own way to say yes
        "PIP_CONFIG_FILE": os.devnull,
        "SEGUE_HOME": str(home / "segue"),
    }
    return subprocess.run(
        [ROOT / "scripts/install"],
        cwd=home,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_install_script_puts_segue_where_it_says_and_says_what_to_type(own_home: Path) -> None:
    done = offline_install(own_home)
    assert done.returncode == 0, done.stderr
    link = own_home / ".local/bin/segue"
    assert f"segue 0.1.0 is installed as {link}\n" in done.stdout
    assert 'export PATH="$HOME/.local/bin:$PATH"\nnext: segue drill\n' in done.stdout
    assert link.resolve().is_relative_to(own_home)
    again = offline_install(own_home, f"{own_home}/.local/bin{os.pathsep}{os.environ['PATH']}")
    assert again.returncode == 0, again.stderr
    assert again.stdout.endswith(f"{link}\nnext: segue drill\n")


def test_the_install_script_leaves_a_segue_of_uv_or_pipx_alone(own_home: Path) -> None:
    link = own_home / ".local/bin/segue"
    link.parent.mkdir(parents=True)
    link.write_text("another")
    done = offline_install(own_home)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"scripts/install: another segue is at {link}: ")
    assert len(done.stderr.splitlines()) == 1
    assert link.read_text() == "another"


OLD = """#!/bin/sh
case "$2" in *print*) echo 3.9.2 ;; *) exit 1 ;; esac
"""


@pytest.mark.parametrize("script", ["install", "check-python"])
@pytest.mark.parametrize("is_there", [True, False])
def test_an_old_or_missing_python_is_one_line(script: str, is_there: bool, own_home: Path) -> None:
    python = own_home / "python3"
    if is_there:
        python.write_text(OLD)
        python.chmod(0o755)
    done = subprocess.run(
        [ROOT / "scripts" / script],
        env={"HOME": str(own_home), "PATH": os.environ["PATH"], "PYTHON": str(python)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("segue needs Python 3.11 or newer")
    assert ("is 3.9.2" in line) == is_there


def test_an_old_python_that_runs_the_source_is_told_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is read before the version is looked at is read by Python 3.6, too."""
    for name in ("__init__.py", "__main__.py", "start.py"):
        ast.parse((ROOT / "src/segue" / name).read_text(), feature_version=(3, 6))
    from segue import start

    monkeypatch.setattr(sys, "version_info", (3, 9, 2, "final", 0))
    monkeypatch.delitem(sys.modules, "segue.cli", raising=False)
    with pytest.raises(SystemExit) as ended:
        start.main()
    assert str(ended.value).startswith("segue: needs Python 3.11 or newer, and ")
    assert "is 3.9.2." in str(ended.value)
    assert "segue.cli" not in sys.modules


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
    assert (done.returncode, done.stdout) == (0, "1 valid, 0 invalid\n"), done.stderr
