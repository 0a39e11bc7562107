"""pytest fixtures: `pytest_plugins = ["segue.testing.fixtures"]` in a conftest.py."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from segue.drill import casts
from segue.drill.casts import rehearsal
from segue.drill.model.script import Script
from segue.drill.model.server import Running, running
from segue.drill.plays import enclosure, job
from segue.drill.plays.process import PlayLeg
from segue.drill.scenarios import load
from segue.drill.scenarios.types import Scenario

_LIMIT_S = 120.0


@pytest.fixture
def scripted_model() -> Iterator[Callable[..., Running]]:
    """`scripted_model("short-rate-limit")` starts a model on loopback by a scenario's name, file or
    object, and returns it: `.url`, `.port`, `.requests`. It ends with the test."""
    with ExitStack() as stack:

        def start(scenario: str | Path | Scenario, *, window_tokens: int = 200_000) -> Running:
            found = scenario if isinstance(scenario, Scenario) else load.load(scenario)
            return stack.enter_context(running(Script(found, window_tokens=window_tokens)))

        yield start


@pytest.fixture
def scratch_job(tmp_path: Path) -> Callable[..., tuple[Path, str]]:
    """`scratch_job(scenario)` creates the numbered steps in a repository of their own, and
    returns its folder and the prompt. Afterwards `segue.testing.check_job` reports what was
    lost or repeated."""

    def make(scenario: str | Path | Scenario) -> tuple[Path, str]:
        found = scenario if isinstance(scenario, Scenario) else load.load(scenario)
        folder = tmp_path / "job"
        folder.mkdir()
        return folder, job.make(folder, found.job)

    return make


@pytest.fixture
def rehearsal_stage(tmp_path: Path) -> Callable[[Running, Path], casts.PlayStage]:
    """`rehearsal_stage(model, folder)` creates a private home for the rehearsal agent, which works
    in `folder` and asks `model`. One per test."""

    def make(model: Running, project: Path) -> casts.PlayStage:
        home = tmp_path / "agent-home"
        (home / "tmp").mkdir(parents=True)
        stage = casts.PlayStage(home=home, project=project, port=model.port, window_tokens=200_000)
        rehearsal.CAST.prepare(stage)
        return stage

    return make


@pytest.fixture
def run_rehearsal(
    rehearsal_stage: Callable[[Running, Path], casts.PlayStage], tmp_path: Path
) -> Callable[[Running, Path, str], tuple[int | None, Path]]:
    """`run_rehearsal(model, folder, prompt)` runs the rehearsal agent to its end, and returns
    its exit code and the file with its output."""

    def run(model: Running, project: Path, prompt: str) -> tuple[int | None, Path]:
        stage = rehearsal_stage(model, project)
        cast = rehearsal.CAST
        program = cast.find({}) or ""
        part = cast.start(program, stage, prompt, "")
        out = tmp_path / "agent.stdout"
        with PlayLeg.start(
            part.argv,
            env=part.env,
            cwd=project,
            stdin=part.stdin,
            stdout=out,
            stderr=tmp_path / "agent.stderr",
        ) as leg:
            return leg.wait(_LIMIT_S), out

    return run


@pytest.fixture
def enclosure_command() -> Callable[[list[str]], list[str]]:
    """`enclosure_command(argv)` returns the command that runs a program with loopback and no
    other network. Skips the test if no network namespace can be made: a real agent must not
    be started then."""
    if why := enclosure.why_not():
        pytest.skip(why)
    return enclosure.command
