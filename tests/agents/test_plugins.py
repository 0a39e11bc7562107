"""A third party's agent: once installed as a package, it is known, driven, watched and judged."""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.paths import DATA, ROOT

from segue.agents import plugins
from segue.testing.agents import AgentTests, missing

PARROT = DATA / "parrot"
RECORDS: list[dict[str, Any]] = [
    {"squawk": "hello", "at": 1_800_000_000.0, "session": "s-1", "cwd": "/p"},
    {"squawk": "heard", "at": 1_800_000_001.0, "text": "hi"},
    {"squawk": "say", "at": 1_800_000_002.0, "text": "hi", "used": 1200, "window": 10_000},
    {"squawk": "bye", "at": 1_800_000_003.0},
]


class Installed:
    """A venv with segue and the plug-in."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.python, self.home, self.project = folder / "bin" / "python", home, home / "project"
        self.project.mkdir()

    def env(self) -> dict[str, str]:
        path = os.pathsep.join((str(self.python.parent), os.environ["PATH"]))
        return {"HOME": str(self.home), "SEGUE_HOME": str(self.home / "segue"), "PATH": path}

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [str(self.python), *words],
            cwd=self.project,
            env=self.env(),
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    def segue(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return self.run("-m", "segue", *words)


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once: what is installed beside it are the tests' own packages, and segue with them."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    ours = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "tests.pth").write_text("\n".join([*ours, str(ROOT / "src")]) + "\n")
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install"]
    subprocess.run(
        [*pip, "--quiet", "--no-deps", "--no-build-isolation", "--no-index", str(PARROT)],
        check=True,
    )
    return folder


@pytest.fixture
def installed(venv: Path, own_home: Path) -> Installed:
    return Installed(venv, own_home)


def test_an_installed_agent_is_listed_and_nothing_that_it_has_is_missing(
    installed: Installed,
) -> None:
    code = "from segue import agents; print(agents.names()[-1]); from segue.testing.agents import"
    done = installed.run("-c", f"{code} missing; print(missing('parrot'))")
    assert done.returncode == 0, done.stderr
    name, lacks = done.stdout.splitlines()
    assert name == "parrot"
    assert "terminal.py" in lacks
    assert "drive.py" not in lacks
    assert "profile.py" not in lacks


def test_an_installed_agent_is_driven_seen_counted_and_judged(installed: Installed) -> None:
    ran = installed.segue("run", "--agent", "parrot", "--json", "hello there")
    assert ran.returncode == 0, ran.stderr
    told = installed.segue("sessions", "--json")
    (session,) = json.loads(told.stdout)["sessions"]
    assert session["agent"] == "parrot"
    assert session["context"]["used"] == 1200
    assert session["context"]["window"] == 10_000
    assert session["stop"]["reason"] == "completed"
    (total,) = json.loads(installed.segue("scan", "--json").stdout)["totals"]
    assert (total["agent"], total["input"]) == ("parrot", 1200)
    file = installed.project / "out.jsonl"
    limit = {"squawk": "limit", "at": 1_800_000_002.0, "resets_at": 1_800_003_600.0}
    file.write_text("\n".join(json.dumps(record) for record in [*RECORDS[:2], limit]))
    judged = installed.segue("classify", "--json", "--exit-code", "1", str(file))
    assert json.loads(judged.stdout)["reason"] == "rate_limit"


def test_the_daemon_sees_an_installed_agent(installed: Installed) -> None:
    installed.segue("run", "--agent", "parrot", "hello there")
    daemon = subprocess.Popen(
        [str(installed.python), "-m", "segue", "watch"],
        cwd=installed.project,
        env=installed.env(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert daemon.stdout is not None
        assert "segue watches" in daemon.stdout.readline()
        seen = json.loads(installed.segue("status", "--json").stdout)["sessions"]
        assert [each["agent"] for each in seen] == ["parrot"]
    finally:
        daemon.terminate()
        daemon.communicate()
    assert daemon.returncode in (0, 143, -15)


def test_a_plug_in_that_cannot_be_loaded_is_one_line_and_hides_nothing(
    installed: Installed, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    info = site / "bad-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "entry_points.txt").write_text("[segue.agents]\nbad = no_such_package\n")
    run = f"import sys; sys.path.append({str(site)!r}); from segue.start import main; "
    listed = installed.run("-c", f"{run} sys.argv = ['segue', 'sessions', '--json']; main()")
    assert json.loads(listed.stdout)["sessions"] == []
    named = installed.run("-c", f"{run} sys.argv = ['segue', 'run', '--agent', 'bad', 'x']; main()")
    assert named.returncode == 2
    (line,) = named.stderr.splitlines()
    assert "bad" in line


def test_the_built_in_agents_are_entry_points_of_segue() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = project["entry-points"]["segue.agents"]
    assert named == {name: plugins.package_of(name) for name in plugins.BUILT_IN}


def test_the_table_says_what_each_folder_has() -> None:
    folder = ROOT / "src" / "segue" / "agents"
    parts = ("drive", "terminal", "counter", "cast")
    found = {
        name: tuple(part for part in parts if (folder / name / f"{part}.py").exists())
        for name in sorted(file.parent.name for file in folder.glob("*/profile.py"))
        if name != "contracts"
    }
    assert found == plugins.BUILT_IN


@pytest.fixture
def parrot_on_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(PARROT))
    monkeypatch.setattr(plugins, "added", lambda: {"parrot": "segue_parrot"})
    yield
    from segue import agents

    agents._loaded.pop("parrot", None)


@pytest.mark.usefixtures("parrot_on_path")
class TestParrot(AgentTests):
    """The suite that its author would run."""

    agent = "parrot"
    records = RECORDS


def documented() -> list[dict[str, Any]]:
    """The records of the example in docs/plugins.md."""
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/plugins.md").read_text(), re.S)
    made: dict[str, Any] = {}
    exec(block, made)
    return list(made["TestParrot"].records)


@pytest.mark.usefixtures("parrot_on_path")
class TestAsDocumented(AgentTests):
    """What its author would copy."""

    agent = "parrot"
    records = documented()


@pytest.mark.parametrize("name", plugins.BUILT_IN)
def test_built_in_agents_lack_no_profile(name: str) -> None:
    assert not [lack for lack in missing(name) if lack.startswith("profile.py")]
