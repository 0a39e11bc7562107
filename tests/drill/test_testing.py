"""`segue.testing` as an author of another wrapper would use it."""

from pathlib import Path

import pytest

from segue import testing

pytest_plugins = ["pytester"]

USE = """
import socket, subprocess, sys
import pytest
from segue.testing import check_job, load

def test_a_wrapper(scripted_model, scratch_job, run_rehearsal):
    scenario = load("short-rate-limit")
    model = scripted_model(scenario)
    folder, prompt = scratch_job(scenario)
    code, out = run_rehearsal(model, folder, prompt)
    assert code == 0
    assert check_job(folder, scenario.job, finished=True).is_whole
    assert "rate_limit" in [request.answered for request in model.requests]

def test_the_enclosure(enclosure_command):
    reach = "import socket; socket.create_connection(('192.0.2.1', 80), timeout=5)"
    done = subprocess.run(enclosure_command([sys.executable, "-c", reach]), capture_output=True)
    assert b"unreachable" in done.stderr
"""


def test_a_wrappers_author_gets_model_job_agent_and_enclosure_as_fixtures(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest('pytest_plugins = ["segue.testing.fixtures"]')
    pytester.makepyfile(USE)
    pytester.runpytest_subprocess("-p", "no:xdist", "-q").assert_outcomes(passed=2)


def test_all_that_is_exported_is_there() -> None:
    assert [name for name in testing.__all__ if not hasattr(testing, name)] == []


def test_the_docs_name_every_fixture() -> None:
    docs = Path(__file__).parents[2] / "docs/drill.md"
    said = docs.read_text(encoding="utf-8")
    for name in ("scripted_model", "scratch_job", "run_rehearsal", "enclosure_command"):
        assert name in said
