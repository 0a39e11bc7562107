"""What is given to those who run a fleet is understood by what reads it: systemd, Compose, and
segue's own command line."""

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from segue.cli import cli

CONTRIB = Path(__file__).parents[2] / "contrib"
UNIT, COMPOSE = CONTRIB / "segue-worker.service", CONTRIB / "compose.yaml"


def service() -> configparser.SectionProxy:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(UNIT)
    assert unit["Install"]["WantedBy"] == "default.target"
    return unit["Service"]


def test_what_the_service_starts_is_a_command_of_segue() -> None:
    program, name, *words = shlex.split(service()["ExecStart"])
    assert program == "%h/.local/bin/segue"  # where `uv tool install` puts it
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    found.make_context(name, words)  # raises if it takes no such words


def test_ending_the_service_of_a_worker_leaves_the_tasks_alone() -> None:
    assert service()["KillMode"] == "process"


def test_systemd_finds_no_fault_with_the_service(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    program = tmp_path / ".local" / "bin" / "segue"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (tmp_path / "run").mkdir(mode=0o700)
    env = {**os.environ, "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "run")}
    done = subprocess.run(
        ["systemd-analyze", "verify", "--user", "--man=no", UNIT], env=env, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def understood(**env: str) -> dict[str, Any]:
    """As Compose reads it, if there is one here; else with its variables filled in as it does."""
    for words in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(words[0]) is None:
            continue
        own = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **env}
        done = subprocess.run(
            [*words, "-f", COMPOSE, "config"], env=own, capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            return dict(yaml.safe_load(done.stdout))
        if "choose one" in done.stderr:
            raise LookupError(done.stderr)

    def fill(found: re.Match[str]) -> str:
        name, kind, rest = found.groups()
        if not env.get(name) and kind == ":?":
            raise LookupError(rest)
        return env.get(name) or rest

    text = re.sub(r"\$\{(\w+)(:-|:\?)([^}]*)\}", fill, COMPOSE.read_text())
    return dict(yaml.safe_load(text))


def test_the_database_of_the_compose_file_listens_on_loopback_and_demands_a_password() -> None:
    with pytest.raises(LookupError, match="choose one"):
        understood()
    (database,) = understood(SEGUE_DB_PASSWORD="x")["services"].values()
    assert "127.0.0.1" in json.dumps(database["ports"])
    assert database["environment"]["POSTGRES_PASSWORD"] == "x"
    given = understood(SEGUE_DB_PASSWORD="x", SEGUE_DB_LISTEN="0.0.0.0")["services"]
    assert "0.0.0.0" in json.dumps(given["segue-db"]["ports"])
    assert "127.0.0.1" not in json.dumps(given["segue-db"]["ports"])
