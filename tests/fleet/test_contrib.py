"""What is given to those who run a fleet can be read by what reads it."""

import configparser
from pathlib import Path

import yaml

CONTRIB = Path(__file__).parents[2] / "contrib"


def test_ending_the_service_of_a_worker_leaves_the_tasks_alone() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(CONTRIB / "segue-worker.service")
    assert unit["Service"]["ExecStart"] == "%h/.local/bin/segue worker"
    assert unit["Service"]["KillMode"] == "process"
    assert unit["Install"]["WantedBy"] == "default.target"


def test_the_database_of_the_compose_file_listens_on_loopback_and_has_no_password_of_its_own() -> (
    None
):
    (service,) = yaml.safe_load((CONTRIB / "compose.yaml").read_text())["services"].values()
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert service["environment"]["POSTGRES_PASSWORD"].startswith("${")
