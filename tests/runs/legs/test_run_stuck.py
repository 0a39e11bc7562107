"""A loop that hangs: no parser delays a run, and whatever hangs can be ended."""

import json
import signal
import subprocess
from pathlib import Path

import pytest
from support.running import QUICK, Staged, stage

from segue.runs.legs.leg import Leg

PLUGGED = """\
import sys, time
from segue import agents
from segue.agents.contracts.profile import Profile
from segue.core.stops.events import Other

def gives_up(records):
    return iter(())

def takes_one(records):
    for record in records:
        yield Other(where=record.where)
        return

def raises(records):
    for record in records:
        raise RuntimeError("boom")
        yield

def raises_at_once(records):
    raise RuntimeError("boom")

def never_ends(records):
    for record in records:
        while True:
            yield Other(where=record.where)

def says_nonsense(records):
    for record in records:
        yield None

def spins(records):
    for record in records:
        while True:
            time.sleep(0.001)
        yield

def blocks(records):
    import ctypes
    libc, lock = ctypes.CDLL(None), ctypes.create_string_buffer(64)
    for record in records:
        while True:  # no signal handler of Python's runs in there
            libc.pthread_mutex_lock(lock)
        yield

how = sys.argv.pop(1)
agents.register(Profile(name="plugged", knows=lambda record: False, parse=globals()[how]))
from segue.start import main
main()
"""
RECORDS = "echo '{\"a\": 1}'; echo '{\"b\": 2}'; echo all done"
WAITS = (
    "echo '{\"a\": 1}'; if [ -e again ]; then echo all done; else touch again; exec sleep 600; fi"
)


def plugged(s: Staged, command: str) -> Path:
    """An agent of the user's own, and a segue with a plug-in that parses what it prints."""
    said = json.dumps(["sh", "-c", command, "{prompt}"])
    s.config(f"[agents.plugged]\ncommand = {said}\n", QUICK)
    script = s.root / "plugged.py"
    script.write_text(PLUGGED)
    return script


def stuck(s: Staged, how: str) -> tuple["subprocess.Popen[str]", str]:
    """A segue whose loop hangs, and its run."""
    script = plugged(s, WAITS)
    process = s.start_script(script, how, "run", "--agent", "plugged", "anything")
    (run_id,) = s.until(s.run_ids)
    s.until((s.project / "again").exists)
    s.until(lambda: b"{" in s.leg(run_id).joinpath("stdout").read_bytes())
    return process, run_id


@pytest.mark.parametrize(
    "how",
    ["gives_up", "takes_one", "raises", "raises_at_once", "never_ends", "says_nonsense"],
)
def test_a_parser_that_breaks_its_promises_holds_up_no_run(how: str, tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        script = plugged(s, RECORDS)
        ended = s.end(s.start_script(script, how, "run", "--agent", "plugged", "anything"))
        assert (ended.code, ended.stdout) == (0, "all done\n"), ended.stderr
        assert "Traceback" not in ended.stderr


def test_a_custom_agent_may_print_json(tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        command = ["sh", "-c", "echo '{\"a\": 1}'; echo done", "{prompt}"]
        s.config(f"[agents.js]\ncommand = {json.dumps(command)}\n")
        ended = s.segue("run", "--agent", "js", "x")
        assert (ended.code, ended.stdout) == (0, "done\n"), ended.stderr


@pytest.mark.parametrize("how", ["spins", "blocks"])
@pytest.mark.parametrize("by", ["Ctrl+C", "SIGTERM"])
def test_signals_end_a_segue_whose_loop_hangs(by: str, how: str, tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        process, run_id = stuck(s, how)
        for _ in range(3 if by == "Ctrl+C" else 1):
            process.send_signal(signal.SIGINT if by == "Ctrl+C" else signal.SIGTERM)
            # Signals that come at once are one.
            s.until(lambda: not _is_pending(process.pid))
        ended = s.end(process)
        assert ended.code == 130
        told = [line for line in ended.stderr.splitlines() if f"ended by {by}" in line]
        assert len(told) == 1, ended.stderr
        assert f"segue resume {run_id}" in told[0]
        assert "Traceback" not in ended.stderr
        leg = Leg(s.leg(run_id))
        assert leg.wait(30).state == "ended"  # by its keeper: nothing of it is left
        resumed = s.segue("resume", run_id)
        assert resumed.code == 0, resumed.stderr


def _is_pending(pid: int) -> bool:
    """Whether a signal waits to be delivered."""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        masks = [line.split()[1] for line in file if line.startswith(("SigPnd", "ShdPnd"))]
    return any(int(mask, 16) for mask in masks)


@pytest.mark.parametrize("how", ["blocks", "stopped"])
def test_cancel_ends_a_segue_that_does_not_react(how: str, tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        process, run_id = stuck(s, "gives_up" if how == "stopped" else how)
        if how == "stopped":
            process.send_signal(signal.SIGSTOP)
        ended = s.segue("cancel", run_id, max_s=120)
        assert ended.code == 0, ended.stderr
        # One that was stopped in the middle of a write is continued, and ends by itself.
        told = f"process {process.pid}, which drives {run_id}, has not responded" in ended.stderr
        assert told or how == "stopped"
        assert s.state(run_id) == "cancelled"
        assert Leg(s.leg(run_id)).status().state == "ended"
        assert process.wait(60) in (130, -signal.SIGKILL)
