"""However a drill ends, nothing that it started keeps running."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from support.waiting import LONG_S

DRILL = (sys.executable, "-m", "segue", "drill", "--only")
SLOW = 'about = "Slow."\n[job]\nsteps = 3\nstep_s = 300\n'


@pytest.fixture(params=["without", "with"])
def drill(
    request: pytest.FixtureRequest, tmp_path: Path, own_home: Path
) -> Iterator["subprocess.Popen[str]"]:
    """A drill in the middle of its first step, as a terminal would start it."""
    scenario = tmp_path / "slow.toml"
    scenario.write_text(SLOW)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with subprocess.Popen(
        (*DRILL, request.param, "--scenario", str(scenario)),
        env={**os.environ, "TMPDIR": str(scratch)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as running:
        assert running.stderr is not None
        while "step 1 of 3" not in (line := running.stderr.readline()):
            assert line, running.wait()
        yield running
        running.kill()


def below(running: "subprocess.Popen[str]") -> list[psutil.Process]:
    found = psutil.Process(running.pid).children(recursive=True)
    assert any("job/step" in " ".join(process.cmdline()) for process in found)
    assert any("segue.drill.plays.play" in " ".join(process.cmdline()) for process in found)
    return found


def all_end(processes: list[psutil.Process]) -> bool:
    return not psutil.wait_procs(processes, timeout=LONG_S)[1]


def test_ctrl_c_in_a_terminal_ends_agent_and_tool_and_the_folder_goes(
    drill: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    started = below(drill)
    os.killpg(drill.pid, signal.SIGINT)
    assert drill.wait(LONG_S) == 130
    assert all_end(started)
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_drill_that_is_told_to_end_tidies_up(
    name: str, drill: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    started = below(drill)
    drill.send_signal(signal.Signals[name])
    assert drill.wait(LONG_S) == 128 + signal.Signals[name]
    assert all_end(started)
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_drill_that_is_killed_leaves_no_process(drill: "subprocess.Popen[str]") -> None:
    started = below(drill)
    drill.kill()
    assert all_end(started)


def test_a_play_that_is_killed_leaves_no_process_and_is_not_a_verdict(
    drill: "subprocess.Popen[str]",
) -> None:
    started = below(drill)
    (play,) = psutil.Process(drill.pid).children()
    play.kill()
    assert drill.wait(LONG_S) == 3
    assert all_end(started)


@pytest.mark.parametrize("only", ["without", "with"])
def test_a_tool_that_hides_is_ended_too(only: str, tmp_path: Path) -> None:
    """Without a mark in its environment, in a session of its own, with its parent gone."""
    hiding = tmp_path / "hiding.toml"
    nap_s = f"301.{os.getpid()}"  # nobody else's on this machine
    hiding.write_text(
        'about = "Hides."\n[job]\nsteps = 1\n'
        f'[[turns]]\ncommand = "env -i setsid sleep {nap_s} >/dev/null 2>&1 & echo $! > hidden"\n'
    )
    done = subprocess.run(
        (*DRILL, only, "--scenario", str(hiding), "--json"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert '"swept": 1' in done.stdout, done.stderr
    left = [p.info["cmdline"] for p in psutil.process_iter(["cmdline"])]
    assert ["sleep", nap_s] not in left
