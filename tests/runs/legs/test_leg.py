"""Legs: started cleanly, signalled alone, and nothing of them is left."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from segue.drill.plays.process import MARK, PlayLeg

LIMIT_S = 90.0
GLIBCS_OWN = 1 << 31 | 1 << 32  # two signals that no program can use


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., PlayLeg]:
    def start(script: str, stdin: bytes = b"", **env: str) -> PlayLeg:
        return PlayLeg.start(
            ["sh", "-c", script],
            env={"PATH": os.environ["PATH"], **env},
            cwd=tmp_path,
            stdin=stdin,
            stdout=tmp_path / "out",
            stderr=tmp_path / "err",
        )

    return start


def reached(file: Path, leg: PlayLeg) -> str:
    """What a leg wrote there, as soon as it is a whole line."""
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        text = file.read_text() if file.exists() else ""
        if text.endswith("\n"):
            return text
        leg.wait(0.01)
    pytest.fail(f"{file.name} did not come")


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_leg_gets_its_folder_environment_and_input_and_nothing_else(
    start: Callable[..., PlayLeg], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_KEY", "x")
    leg = start("env; pwd; cat; echo oh >&2; exit 3", stdin=b"a prompt\n", COLOUR="red")
    assert leg.wait(LIMIT_S) == 3
    told = (tmp_path / "out").read_text()
    assert "COLOUR=red" in told
    assert "SECRET_KEY" not in told
    assert told.endswith(f"{tmp_path}\na prompt\n")
    assert (tmp_path / "err").read_text() == "oh\n"


def test_output_is_there_while_the_leg_runs(start: Callable[..., PlayLeg], tmp_path: Path) -> None:
    with start("echo first; exec sleep 300") as leg:
        assert reached(tmp_path / "out", leg) == "first\n"
        assert leg.wait(0) is None
        assert os.getsid(leg.pid) == leg.pid, "a key pressed at the driver must not reach it"
    assert leg.exit_code == -15


@pytest.mark.parametrize(
    ("name", "code"), [("SIGINT", -2), ("SIGHUP", -1), ("SIGTERM", -15), ("SIGKILL", -9)]
)
def test_a_signal_ends_it_and_shows_in_its_exit_code(
    name: str, code: int, start: Callable[..., PlayLeg], tmp_path: Path
) -> None:
    leg = start("echo up; exec sleep 300")
    reached(tmp_path / "out", leg)
    assert leg.signal(name)
    assert leg.wait(LIMIT_S) == code
    assert not leg.signal(name), "it has ended: its number may be somebody else's"


def test_ignored_signals_are_not_handed_down(tmp_path: Path) -> None:
    """A drill that was started with nohup, or in the background of a script."""
    out = tmp_path / "out"
    code = f"""
import os, signal
from pathlib import Path
from segue.drill.plays.process import PlayLeg
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
folder = Path({str(tmp_path)!r})
leg = PlayLeg.start(["grep", "Sig[BI]", "/proc/self/status"], env={{"PATH": os.environ["PATH"]}},
    cwd=folder, stdout=folder / "out", stderr=folder / "err")
raise SystemExit(leg.wait(30))
"""
    argv = ["sh", "-c", 'trap "" HUP INT TERM QUIT; exec "$0" -c "$1"', sys.executable, code]
    assert subprocess.run(argv, check=False, timeout=60).returncode == 0
    told = dict(line.split(":\t") for line in out.read_text().splitlines())
    masks = {name: int(mask, 16) & ~GLIBCS_OWN for name, mask in told.items()}
    assert masks == {"SigBlk": 0, "SigIgn": 0}


def test_the_tools_of_a_killed_agent_are_found_and_ended(
    start: Callable[..., PlayLeg], tmp_path: Path
) -> None:
    """In sessions of their own, at two removes, as agents start them."""
    leg = start("setsid sh -c 'sleep 300 & echo $$ $! >pids; wait; touch after' & wait")
    pids = [int(pid) for pid in reached(tmp_path / "pids", leg).split()]
    leg.signal("SIGKILL")
    assert leg.wait(LIMIT_S) == -9
    assert all(map(alive, pids)), "they outlive the agent: that is the point"
    swept = leg.sweep()
    assert sorted(ended.pid for ended in swept) == sorted(pids)
    assert {ended.by for ended in swept} == {"SIGTERM"}
    assert not any(map(alive, pids))
    assert not (tmp_path / "after").exists(), "the shell went on when its command was ended"


def test_what_does_not_hear_is_killed(start: Callable[..., PlayLeg], tmp_path: Path) -> None:
    deaf = 'trap "" TERM; echo $$ >pid; while :; do sleep 1; done'
    leg = start(f"setsid sh -c '{deaf}' & wait")
    pid = int(reached(tmp_path / "pid", leg))
    swept = leg.sweep(grace_s=0.2)
    assert {ended.pid: ended.by for ended in swept}[pid] == "SIGKILL"
    assert not alive(pid)


def test_a_sweep_leaves_other_children_and_other_legs_alone(
    start: Callable[..., PlayLeg], tmp_path: Path
) -> None:
    mine = subprocess.Popen(["sleep", "300"], start_new_session=True)
    other = start("exec sleep 300")
    try:
        leg = start("setsid sleep 300 & echo $! >pid; exec sleep 300")
        reached(tmp_path / "pid", leg)
        leg.sweep()
        assert leg.exit_code == -15
        assert mine.poll() is None
        assert other.wait(0) is None
    finally:
        mine.kill()
        mine.wait()
        other.sweep()


def test_nothing_is_left_when_the_driver_fails(
    start: Callable[..., PlayLeg], tmp_path: Path
) -> None:
    leg = start("setsid sleep 300 & echo $! >pid; wait")
    pid = int(reached(tmp_path / "pid", leg))
    with pytest.raises(ZeroDivisionError), leg:
        raise ZeroDivisionError
    assert not alive(pid)
    assert not alive(leg.pid)


def test_a_nested_leg_has_its_own_mark(start: Callable[..., PlayLeg], tmp_path: Path) -> None:
    leg = start(f"echo ${MARK}", **{MARK: "outer"})
    leg.wait(LIMIT_S)
    assert (tmp_path / "out").read_text().strip() not in ("", "outer")


def test_a_missing_program_or_folder_is_an_error_of_the_system(tmp_path: Path) -> None:
    def begin(program: str, cwd: Path) -> None:
        PlayLeg.start(
            [program], env={}, cwd=cwd, stdout=tmp_path / "out", stderr=tmp_path / "err"
        ).sweep()

    with pytest.raises(FileNotFoundError, match="no-such-agent: no such program"):
        begin("no-such-agent", tmp_path)
    with pytest.raises(NotADirectoryError, match="no such folder"):
        begin("true", tmp_path / "nowhere")
