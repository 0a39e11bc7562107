"""`segue service`: units with the required content, and programs that are missing."""

import os
import plistlib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from segue.cli.daemon import service
from segue.cli.tools import uninstall
from segue.errors import SegueError
from segue.system import units


def call(*words: str) -> Result:
    return CliRunner().invoke(service.command, list(words))


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A systemctl that writes down how it was called, and is as it is told to be."""
    folder = tmp_path / "bin"
    folder.mkdir()
    log = tmp_path / "calls"
    log.touch()
    for name, code in (("systemctl", "exit $(cat code 2>/dev/null || echo 0)"), ("loginctl", "")):
        program = folder / name
        program.write_text(f'#!/bin/sh\necho "{name} $*" >>{log}\n{code}\n')
        program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return log


def test_the_unit_is_written_enabled_and_started_and_taken_away(systemctl: Path) -> None:
    done = call("install")
    assert done.exit_code == 0, done.exception
    assert "loginctl enable-linger" in done.output
    unit = Path(units.systemd_path())
    assert "ExecStart=" in unit.read_text()
    assert call("status").exit_code == 0
    assert "stopped and removed" in call("remove").output
    assert not unit.exists()
    assert systemctl.read_text().splitlines() == [
        "systemctl --user daemon-reload",
        "systemctl --user enable segue.service",
        "systemctl --user restart segue.service",
        f"loginctl show-user {os.getuid()} --property=Linger",
        "systemctl --user is-active segue.service",
        "systemctl --user disable --now segue.service",
        "systemctl --user daemon-reload",
    ]
    assert "no segue service" in call("remove").output
    assert call("status").exit_code == 3


def test_uninstall_takes_the_service_away(systemctl: Path) -> None:
    call("install")
    done = CliRunner().invoke(uninstall.command)
    assert "the service is stopped and removed" in done.output
    assert not Path(units.systemd_path()).exists()


def test_a_systemd_that_refuses_is_one_line(systemctl: Path, tmp_path: Path) -> None:
    (tmp_path / "code").write_text("1")
    done = call("install")
    assert isinstance(done.exception, SegueError)
    assert "the unit was written but not started" in str(done.exception)
    status = call("status")
    assert status.exit_code == 3
    assert "not running" in status.output


def test_without_systemd_it_says_so_and_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = call("install")
    assert isinstance(done.exception, SegueError)
    assert "systemctl is not available here" in str(done.exception)
    assert not Path(units.systemd_path()).exists()


def test_print_writes_nothing(own_home: Path) -> None:
    assert "[Service]" in call("install", "--print").stdout
    assert list(own_home.iterdir()) == []


def test_the_unit_survives_odd_folders_and_carries_no_keys() -> None:
    env = {"PATH": '/a b/100%:/c"d\\e$f', "ANTHROPIC_API_KEY": "secret", "LANG": "x\ny"}
    text = units.systemd_unit(env)
    assert 'Environment="PATH=/a b/100%%:/c\\"d\\\\e$f"' in text
    assert "secret" not in text
    assert "LANG" not in text
    assert "KillMode=process" in text, "agents that it started outlive the daemon"
    assert "PrivateTmp" not in text, "tmux's socket is in /tmp"


def test_the_plist_says_the_same() -> None:
    found = plistlib.loads(units.launchd_plist({"PATH": "/a&b", "KEY": "secret"}).encode())
    assert found["ProgramArguments"] == units.own_argv("watch")
    assert found["EnvironmentVariables"] == {"PATH": "/a&b"}
    assert found["AbandonProcessGroup"] is True
