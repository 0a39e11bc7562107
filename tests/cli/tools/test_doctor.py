"""What `segue doctor` finds, and what it leaves alone."""

import fcntl
import json
import os
import re
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from support.watch.daemons import FakeDaemon, serving

from segue.agents import drives
from segue.cli import cli
from segue.cli.support.checkup import checks, watching
from segue.cli.support.checkup.checks import HealthCheck
from segue.cli.tools import doctor
from segue.drill.plays import enclosure
from segue.runs.store import open_store, runs_path
from segue.system import units
from segue.system.config.settings import load
from segue.system.files import state

ROOT = Path(__file__).parents[3]


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with nothing on it, and no enclosure: it costs a process."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("SEGUE_AGENTS", raising=False)
    monkeypatch.setattr(enclosure, "why_not", lambda: "not here")
    monkeypatch.chdir(tmp_path)
    return folder


def program(place: Path, text: str) -> Path:
    place.write_text(f"#!/bin/sh\n{text}\n")
    place.chmod(0o755)
    return place


def found(*words: str) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    result = CliRunner().invoke(cli, ["doctor", "--json", *words])
    told = json.loads(result.stdout)
    assert told["ok"] == (result.exit_code == 0)
    by_name: dict[str, list[dict[str, Any]]] = {}
    for check in told["checks"]:
        by_name.setdefault(check["name"], []).append(check)
    return result.exit_code, by_name


def own_agent(home: Path, command: Path, **more: str) -> None:
    config = Path(os.environ["SEGUE_HOME"], "config.toml")
    config.parent.mkdir(exist_ok=True, mode=0o700)
    extra = "".join(f"{key} = {json.dumps(value)}\n" for key, value in more.items())
    config.write_text(f"[agents.mine]\ncommand = [{json.dumps(str(command))}]\n{extra}")


def test_without_any_agent_a_run_would_fail(bin_folder: Path) -> None:
    code, checks = found()
    assert code == 1
    (agents,) = checks["agents"]
    assert agents["status"] == "fail"
    assert "npm install -g" in agents["do"]


def test_with_one_agent_nothing_fails(bin_folder: Path, own_home: Path) -> None:
    own_agent(own_home, program(bin_folder / "mine", "exit 0"))
    code, checks = found()
    assert code == 0
    assert checks["mine"][0]["status"] == "ok"
    assert checks["agents"][0]["what"].startswith("not installed: claude, codex")


def test_an_unknown_program_is_found_but_never_started(bin_folder: Path, own_home: Path) -> None:
    trace = own_home / "was-started"
    own_agent(own_home, program(bin_folder / "mine", f"echo x > {trace}"))
    found()
    assert not trace.exists()


def test_an_agent_is_asked_for_its_version_alone_and_away_from_home(
    bin_folder: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    said = own_home / "said"
    mine = program(
        bin_folder / "mine", f'echo "$@ $HOME [$ANTHROPIC_API_KEY]" >> {said}; echo v9.9.9 yes'
    )
    own_agent(own_home, mine, like="claude")
    _, checks = found()
    assert checks["mine"][0]["what"] == f"9.9.9 {mine}"
    (line,) = said.read_text().splitlines()
    flag, home, key = line.split()
    assert (flag, key) == ("--version", "[]")
    assert home != str(own_home)
    assert not Path(home).exists()


def test_many_agents_are_asked_at_once_and_each_program_once(
    bin_folder: Path, own_home: Path
) -> None:
    said = own_home / "said"
    # Each waits until four have been started.
    waits = f"PATH=/usr/bin:/bin; echo $1 >> {said}; for i in $(seq 200); do"
    waits += f" [ $(wc -l < {said}) -ge 4 ] && break;"
    mine = program(
        bin_folder / "mine", f"{waits} sleep 0.1; done; [ $(wc -l < {said}) -ge 4 ] && echo v9.9.9"
    )
    config = Path(os.environ["SEGUE_HOME"], "config.toml")
    config.parent.mkdir(exist_ok=True, mode=0o700)
    config.write_text(
        "".join(
            f'[agents.own{n}]\ncommand = ["{mine}", "{n % 4}"]\nlike = "claude"\n'
            for n in range(12)
        )
    )
    _, checks = found()
    assert sorted(said.read_text().split()) == ["0", "1", "2", "3"]
    assert {checks[f"own{n}"][0]["what"] for n in range(12)} == {f"9.9.9 {mine}"}


def test_a_chosen_agent_that_is_missing_is_a_failure(bin_folder: Path, own_home: Path) -> None:
    own_agent(own_home, program(bin_folder / "mine", "exit 0"))
    with open(Path(os.environ["SEGUE_HOME"], "config.toml"), "a") as file:
        file.write('[run]\nagent = "codex"\n')
    code, checks = found()
    assert code == 1
    assert checks["codex"][0] == {
        "name": "codex", "status": "fail", "what": "chosen in the config, but not installed",
        "do": "npm install -g @openai/codex",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("version", "status", "said"),
    [
        ("2.1.325", "ok", "2.1.325, as tested"),
        ("2.1.400", "ok", "2.1.400, newer than 2.1.325, the version segue was tested with"),
        ("2.2.0", "warn", "2.2.0, newer than 2.1.325, the version segue was tested with"),
        ("2.1.99", "warn", "2.1.99, older than 2.1.325, the version segue was tested with"),
        ("", "warn", "does not report its version: /bin/agent"),
    ],
)
def test_a_version_that_was_not_tried_is_reported(version: str, status: str, said: str) -> None:
    check = doctor._agent("agent", ("/bin/agent",), version, "2.1.325")
    assert (check.status, check.what) == (status, said)
    assert bool(check.do) == (status != "ok")


def test_the_versions_that_were_tried_are_those_of_the_script() -> None:
    script = (ROOT / "scripts/agents").read_text()
    pins = re.findall(r"^(?:pins=')?(\w+) +([0-9.]+) +\S+$", script, re.M)
    assert dict(pins) == doctor.TRIED
    assert set(doctor.TRIED) == set(drives.NAMES)


def test_an_old_node_is_a_failure(tmp_path: Path) -> None:
    old = program(tmp_path / "node", "echo v18.1.0")
    (check,) = doctor._node("pi", str(old))
    assert check.status == "fail"
    assert "needs 22.19" in check.what
    assert not list(doctor._node("pi", str(program(tmp_path / "node", "echo v22.19.0"))))


def test_missing_tools_are_not_a_failure(bin_folder: Path) -> None:
    assert [(c.name, c.status) for c in checks.tools(os.environ)] == [
        ("git", "warn"),
        ("tmux", "warn"),
    ]
    program(bin_folder / "git", "echo git version 2.99")
    assert next(iter(checks.tools(os.environ))).what == "2.99"


def test_a_state_folder_that_is_not_there_is_not_made() -> None:
    first = next(iter(checks.state_folder()))
    assert first.status == "ok"
    assert "will be created" in first.what
    assert not Path(os.environ["SEGUE_HOME"]).exists()
    assert not list(Path(os.environ["SEGUE_HOME"]).parent.iterdir())


def test_a_state_folder_that_others_can_read_is_reported() -> None:
    folder = Path(os.environ["SEGUE_HOME"])
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    first = next(iter(checks.state_folder()))
    assert (first.status, first.do) == ("warn", f"chmod 700 {folder}")
    assert not list(folder.iterdir())


def test_a_place_without_locks_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    first = next(iter(checks.state_folder()))
    assert first.status == "fail"
    assert "two processes can hold the same lock" in first.what

    def no_locks(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    assert "No locks available" in next(iter(checks.state_folder())).what


def test_a_state_folder_that_cannot_be_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SEGUE_HOME", str(tmp_path / "file" / "segue"))
    (check,) = checks.state_folder()
    assert check.status == "fail"
    assert "SEGUE_HOME" in check.do


def test_a_disk_that_is_nearly_full_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil
    from types import SimpleNamespace

    for free, status in ((5e6, "fail"), (5e8, "warn"), (5e9, "ok")):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        assert list(checks.state_folder())[1].status == status


def test_the_runs_are_opened_and_a_newer_file_is_reported_and_left() -> None:
    assert [c.what for c in checks.database()] == ["none yet"]
    open_store().close()
    assert [c.status for c in checks.database()] == ["ok"]
    with sqlite3.connect(runs_path()) as db:
        db.execute("PRAGMA user_version = 9999")
    db.close()
    before = Path(runs_path()).read_bytes()
    (check,) = checks.database()
    assert check.status == "fail"
    assert "newer segue" in check.what
    assert Path(runs_path()).read_bytes() == before


def machine(folder: Path, states: str = "freeze mem", **supplies: dict[str, str]) -> Path:
    (folder / "power").mkdir(parents=True)
    (folder / "power/state").write_text(states + "\n")
    for name, told in supplies.items():
        place = folder / "class/power_supply" / name
        place.mkdir(parents=True)
        for key, value in told.items():
            (place / key).write_text(value + "\n")
    return folder


def sleeps(
    folder: Path, env: dict[str, str] | None = None, said: str = "static\nstatic"
) -> HealthCheck:
    def asked(argv: Sequence[str]) -> str:
        return said

    (check,) = checks.sleep(env or {}, platform="linux", sys_folder=folder, asked=asked)
    return check


def test_a_laptop_may_fall_asleep(tmp_path: Path) -> None:
    laptop = machine(tmp_path / "a", BAT0={"type": "Battery"}, AC={"type": "Mains", "online": "0"})
    check = sleeps(laptop)
    assert check.status == "warn"
    assert "on battery" in check.what
    assert check.do.startswith("systemd-inhibit --what=sleep")
    assert sleeps(laptop, said="masked\nmasked").status == "ok"


def test_a_mouse_battery_does_not_make_a_laptop_and_a_server_does_not_sleep(tmp_path: Path) -> None:
    desk = machine(tmp_path / "a", mouse={"type": "Battery", "scope": "Device"})
    assert sleeps(desk).status == "ok"
    assert sleeps(desk, {"XDG_CURRENT_DESKTOP": "GNOME"}).status == "warn"
    assert sleeps(machine(tmp_path / "b", states="disk")).what == "this machine cannot sleep"


def test_a_mac_is_kept_awake_by_its_own_means() -> None:
    def check(said: str) -> HealthCheck:
        (found,) = checks.sleep({}, platform="darwin", asked=lambda _: said)
        return found

    assert check(" sleep                1 (imposed by x)\n").do == "caffeinate -i segue run …"
    assert check(" displaysleep 10\n sleep 0\n").status == "ok"


def test_a_wrong_config_is_a_failure_and_a_slip_a_warning(bin_folder: Path) -> None:
    config = Path(os.environ["SEGUE_HOME"], "config.toml")
    config.parent.mkdir(mode=0o700)
    config.write_text("[policy]\nhard_marc = 1\n")
    code, checks = found()
    assert code == 1
    assert "did you mean hard_mark?" in checks["config"][0]["what"]
    config.write_text("[policy]\nhard_mark = 85\n")
    assert found()[1]["config"][0]["status"] == "warn"


def test_wordings_that_are_left_out_are_reported(bin_folder: Path) -> None:
    file = Path(os.environ["SEGUE_HOME"], "wordings.toml")
    file.parent.mkdir(mode=0o700)
    file.write_text('[[wording]]\nid = "a"\nreason = "rate_limit"\npattern = "("\n')
    (check,) = found()[1]["wordings"]
    assert (check["status"], check["do"]) == ("warn", "segue wordings check")
    good = 'id = "a"\nreason = "rate_limit"\npattern = "used up"\nexample = ["used up"]\n'
    file.write_text(f"[[wording]]\n{good}")
    assert found()[1]["wordings"][0]["what"] == "1 of your own"


def test_people_get_a_line_each_and_what_to_do(bin_folder: Path) -> None:
    result = CliRunner().invoke(cli, ["doctor"])
    assert result.exit_code == 1
    assert "fail  agents     no agent that segue can run is installed" in result.stdout
    assert "→ install git" in result.stdout
    assert re.search(r"^1 problem, \d warnings?$", result.stdout, re.M)
    assert "\x1b" not in result.stdout


def test_nothing_of_a_program_reaches_the_terminal_but_text() -> None:
    check = HealthCheck(name="x\x1b[2J", status="ok", what="a\x1b]0;b\x07\nc", do="\x1b[31m")
    assert all(click.unstyle(line).isprintable() for line in doctor.lines(check))


def test_without_a_wish_no_agent_is_missing(bin_folder: Path, tmp_path: Path) -> None:
    checks = doctor.agents(os.environ, load(tmp_path, os.environ), is_enclosing=False)
    assert [c.name for c in checks] == ["agents"]


def watched(*, is_wanted: bool = False) -> HealthCheck:
    (check,) = watching.daemon(is_wanted=is_wanted)
    return check


def test_a_daemon_is_missed_only_where_something_counts_on_it(
    bin_folder: Path, own_home: Path
) -> None:
    assert watched().status == "ok"
    assert watched(is_wanted=True).status == "warn"
    _, checks = found()
    assert checks["watch"][0]["status"] == "ok"
    (own_home / ".claude").mkdir()
    assert CliRunner().invoke(cli, ["setup", "claude"]).exit_code == 0
    _, checks = found()
    assert checks["watch"][0]["status"] == "warn"
    assert checks["hooks"][0]["status"] == "ok"


def test_a_daemon_that_sees_late_or_is_of_another_version_is_reported(
    short_state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Degraded(FakeDaemon):
        def status(self) -> dict[str, Any]:
            return {**super().status(), "degraded": why, "sessions": 3}

    why = ""
    with serving(Degraded(), path=state.socket_path()):
        assert (watched().status, watched().what) == (
            "ok",
            f"process {os.getpid()} watches 3 sessions",
        )
        why = "no more inotify watches"
        assert watched().status == "warn"
        assert why in watched().what
        assert "fs.inotify.max_user_watches" in watched().do
        monkeypatch.setattr(watching, "__version__", "99.1")
        assert "but this is segue 99.1" in watched().what


def test_a_socket_that_nobody_listens_at_is_not_a_daemon(short_state: Path) -> None:
    with serving(FakeDaemon(), path=state.socket_path()) as there:
        path = Path(there.path)
    path.touch()
    assert watched(is_wanted=True).status == "warn"


@pytest.fixture
def short_state(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state folder whose socket's path is not too long for one."""
    with tempfile.TemporaryDirectory(prefix="segue-") as folder:
        monkeypatch.setenv("SEGUE_HOME", folder)
        yield Path(state.make_watch_folder())


def test_hooks_that_lead_to_a_segue_that_moved_are_reported(own_home: Path) -> None:
    assert not list(watching.claude_hooks(os.environ)), "never set up"
    (own_home / ".claude").mkdir()
    CliRunner().invoke(cli, ["setup", "claude"])
    file = own_home / ".claude" / "settings.json"
    good = file.read_text()
    (check,) = watching.claude_hooks(os.environ)
    assert check.status == "ok"
    client = units.client_argv("hook", "Stop")[3]
    less = json.loads(good)
    del less["hooks"]["Stop"]
    for text, said in (
        (good.replace(client, "/gone/segue/client.py"), "/gone/segue/client.py"),
        (json.dumps(less), "before an upgrade"),
        (good.replace(state.socket_path(), "/other.sock"), "another segue"),
        (good.replace("{", '{"disableAllHooks": true, ', 1), "disableAllHooks"),
    ):
        file.write_text(text)
        (check,) = watching.claude_hooks(os.environ)
        assert check.status == "warn"
        assert said in check.what
    for odd in ("[]", "{", '{"hooks": 3, "statusLine": []}', '{"hooks": {"Stop": [3, {}]}}'):
        file.write_text(odd)
        assert not list(watching.claude_hooks(os.environ))


@pytest.mark.parametrize(
    ("said", "is_old"),
    [("tmux 3.1c", True), ("tmux 2.9a", True), ("tmux 3.2", False), ("tmux next-3.6", False)],
)
def test_a_tmux_that_is_too_old_is_reported(bin_folder: Path, said: str, is_old: bool) -> None:
    assert not list(watching.tmux(os.environ))
    program(bin_folder / "tmux", f"echo {said}")
    assert [check.status for check in watching.tmux(os.environ)] == ["warn"] * is_old


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="systemd")
def test_a_service_that_ends_at_logout_or_starts_another_segue_is_reported(
    bin_folder: Path,
) -> None:
    assert not list(watching.service_unit(os.environ)), "none is installed"
    unit = Path(units.systemd_path())
    unit.parent.mkdir(parents=True)
    unit.write_text(units.systemd_unit(os.environ))
    program(bin_folder / "loginctl", "")
    for told, do in (("Linger=no", "loginctl enable-linger"), ("Linger=yes", ""), ("", "")):
        (check,) = watching.service_unit(os.environ, lambda argv: told)  # noqa: B023
        assert check.do == do
    unit.write_text("ExecStart=/gone/segue watch\n")
    (check,) = watching.service_unit(os.environ)
    assert check.do == "segue service install"
