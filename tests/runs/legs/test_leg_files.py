"""The files of a leg contain everything that is known about it, and survive any kill."""

import contextlib
import json
import os
import select
import signal
import threading
import time
from pathlib import Path

import pytest
from support.runs.keeping import LIMIT_S, Kept, alive, kept, when

from segue.errors import StateError
from segue.runs.legs.check import CheckCommand
from segue.runs.legs.leg import Leg, Spec

__all__ = ["kept"]


def put(leg: Leg, name: str, record: object) -> None:
    leg.folder.mkdir(parents=True, exist_ok=True)
    (leg.folder / name).write_text(record if isinstance(record, str) else json.dumps(record))


def commands(leg: Leg) -> list[str]:
    text = (leg.folder / "control.jsonl").read_text()
    # A writer that saw half of another's line put an empty one between them.
    return [json.loads(line)["key"] for line in text.splitlines() if line]


def test_a_leg_goes_from_not_started_over_running_to_ended(kept: Kept) -> None:
    assert kept.leg.status().state == "not_started"
    assert kept.leg.exit() is None
    status = kept.start("read word; exit 3", stays_open=True)
    assert status.state == "running"
    assert status.agent_pid != status.keeper_pid != 0
    assert kept.leg.wait(0).state == "running"
    kept.leg.command("x", "close_input")
    ended = kept.leg.wait(LIMIT_S)
    assert ended.state == "ended"
    assert ended.exit is not None
    assert ended.exit.exit_code == 3
    assert ended.exit.ended_at >= ended.started_at > 0


def test_a_spec_without_a_keeper_is_starting_and_may_be_started_again(kept: Kept) -> None:
    """segue was killed before it could start the keeper."""
    kept.leg.folder.mkdir(parents=True)
    kept.leg._store(kept.spec("echo first"), kept.env())
    assert kept.leg.status().state == "starting"
    kept.start("echo second")
    assert kept.exit().exit_code == 0
    assert kept.said() == "first\n", "what was decided first"


def test_a_spec_that_was_cut_short_does_not_count(kept: Kept) -> None:
    put(kept.leg, "spec.json", '{"argv": ["sh"')
    with pytest.raises(StateError, match="delete this folder"):
        kept.start("echo x")


def test_an_exit_record_that_was_cut_short_does_not_count(kept: Kept) -> None:
    kept.start("exit 3")
    kept.exit()
    put(kept.leg, "exit.json", "")
    assert kept.leg.wait(LIMIT_S).state == "lost"


def test_a_keepers_record_that_was_cut_short_loses_the_leg_instead_of_waiting_for_ever(
    kept: Kept,
) -> None:
    """The machine went down just after the leg began: no keeper will ever report."""
    status = kept.start("sleep 600")
    os.kill(status.keeper_pid, signal.SIGKILL)
    put(kept.leg, "keeper.json", "")
    assert kept.leg.wait(LIMIT_S).state == "lost"
    exit = kept.leg.sweep_lost()
    assert (exit.lost, exit.error) == (True, "the machine was restarted")
    assert "600" in [each.argv[-1] for each in exit.swept]
    assert kept.leg.status().state == "ended"


def test_two_starters_agree_on_one_spec(kept: Kept) -> None:
    kept.leg.folder.mkdir(parents=True)
    found = []

    def store(number: int) -> None:
        found.append(kept.leg._store(kept.spec(f"echo {number}"), kept.env()))

    threads = [threading.Thread(target=store, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    assert [file.name for file in kept.leg.folder.iterdir()] == ["spec.json"]


def test_a_keeper_that_was_killed_before_its_agent_was_there_is_lost_not_begun_again(
    kept: Kept,
) -> None:
    kept.leg.folder.mkdir(parents=True)
    kept.leg._store(kept.spec("echo x"), kept.env())
    record = {"pid": 1, "start_ticks": 1, "agent_pid": 0, "agent_start_ticks": 0}
    put(kept.leg, "keeper.json", {**record, "boot_id": "x", "started_at": 1.0})
    assert kept.leg.status().state == "lost"
    assert kept.start("echo x").state == "lost"
    assert kept.leg.sweep_lost().lost


def test_a_restart_of_the_machine_loses_the_leg_and_nothing_else_is_hit(kept: Kept) -> None:
    """After it, its numbers are other processes'."""
    status = kept.start("exec sleep 300")
    os.kill(status.keeper_pid, signal.SIGKILL)
    os.kill(status.agent_pid, signal.SIGKILL)
    kept.leg.wait(LIMIT_S)
    when(lambda: not kept.left(), "both are gone")
    other = Kept(kept.work / "other")
    other.start("exec sleep 300")
    try:
        # The same numbers, and even at the same time after the start of the machine.
        record = json.loads((other.leg.folder / "keeper.json").read_text())
        put(kept.leg, "keeper.json", {**record, "boot_id": "another"})
        assert kept.leg.status().state == "lost"
        assert kept.leg.end_fd() is None
        exit = kept.leg.sweep_lost()
        assert (exit.lost, exit.swept, exit.error) == (True, (), "the machine was restarted")
        assert other.leg.status().state == "running"
    finally:
        other.leg.command("x", "kill")
        other.exit()


def test_a_number_that_is_used_again_is_not_taken_for_the_agent(kept: Kept) -> None:
    status = kept.start("exec sleep 300")
    os.kill(status.keeper_pid, signal.SIGKILL)
    os.kill(status.agent_pid, signal.SIGKILL)
    kept.leg.wait(LIMIT_S)
    when(lambda: not kept.left(), "both are gone")
    other = Kept(kept.work / "other")
    pid = other.start("exec sleep 300").agent_pid
    try:
        record = json.loads((kept.leg.folder / "keeper.json").read_text())
        put(kept.leg, "keeper.json", {**record, "agent_pid": pid, "pid": pid})
        assert kept.leg.end_fd() is None
        assert kept.leg.sweep_lost().swept == ()
        assert other.leg.status().state == "running"
    finally:
        other.leg.command("x", "kill")
        other.exit()


def test_a_live_leg_is_not_swept(kept: Kept) -> None:
    kept.start("exec sleep 300")
    with pytest.raises(StateError, match="its keeper is still running"):
        kept.leg.sweep_lost()
    assert kept.leg.status().state == "running"


def test_a_leg_that_never_began_can_be_given_up_for_good(kept: Kept) -> None:
    kept.leg.folder.mkdir(parents=True)
    kept.leg._store(kept.spec("echo x >begun"), kept.env())
    assert kept.leg.sweep_lost().error == "it was never started"
    assert kept.start("echo x >begun").state == "ended"
    assert not (kept.work / "begun").exists()


def test_its_end_can_be_waited_for_with_other_descriptors(kept: Kept) -> None:
    assert kept.leg.end_fd() is None
    kept.start("read word", stays_open=True)
    descriptor = kept.leg.end_fd()
    assert descriptor is not None
    assert select.select([descriptor], [], [], 0)[0] == []
    kept.leg.command("x", "close_input")
    assert select.select([descriptor], [], [], LIMIT_S)[0] == [descriptor]
    os.close(descriptor)
    assert kept.leg.status().state == "ended", "when it is readable, the record is there"


def test_a_command_is_added_once_for_each_key(tmp_path: Path) -> None:
    leg = Leg(tmp_path)
    for key in ("a", "b", "a"):
        leg.command(key, "interrupt")
    assert commands(leg) == ["a", "b"]


def test_half_a_line_of_a_killed_writer_spoils_no_other(tmp_path: Path) -> None:
    leg = Leg(tmp_path)
    leg.command("a", "interrupt")
    control = tmp_path / "control.jsonl"
    control.write_bytes(control.read_bytes() + b'{"key": "b", "ki')
    leg.command("b", "interrupt")
    lines = control.read_text().splitlines()
    assert [json.loads(lines[0])["key"], lines[1]] == ["a", '{"key": "b", "ki']
    assert json.loads(lines[2])["key"] == "b"
    assert len(lines) == 3


def test_many_writers_at_once_lose_no_command(tmp_path: Path) -> None:
    leg = Leg(tmp_path)

    def give(number: int) -> None:
        for turn in range(20):
            leg.command(f"{number}-{turn}", "input", input=b"x" * 10_000)

    threads = [threading.Thread(target=give, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(commands(leg)) == sorted(f"{n}-{t}" for n in range(4) for t in range(20))


def test_a_bell_that_nobody_hears_or_that_is_full_stops_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "bell")
    leg = Leg(tmp_path)
    leg.command("a", "interrupt")
    bell = os.open(tmp_path / "bell", os.O_RDWR | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while os.write(bell, b"x" * 4096):
            pass
    leg.command("b", "interrupt")
    os.close(bell)


def test_a_folder_that_cannot_be_written_is_an_error_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        Leg(tmp_path / "file" / "leg").start(Spec(argv=("true",), cwd="/"), {})
    assert Leg(tmp_path / "file" / "leg").status().state == "not_started"


def test_a_keeper_that_cannot_keep_says_so(kept: Kept) -> None:
    (kept.leg.folder / "keeper.json.new").mkdir(parents=True)
    with pytest.raises(StateError, match=r"files cannot be written: .*Is a directory"):
        kept.start("true")


def test_a_check_that_was_cut_off_by_a_restart_runs_again_and_has_not_failed(
    kept: Kept, tmp_path: Path
) -> None:
    def started(command: str) -> CheckCommand:
        check = CheckCommand(kept.leg.folder, LIMIT_S, time.monotonic)
        check.start(command, str(tmp_path), kept.env(), grace_s=1.0)
        return check

    assert started("exec sleep 600").poll() is None
    status = kept.leg.status()
    os.kill(status.keeper_pid, signal.SIGKILL)
    assert kept.leg.wait(LIMIT_S).state == "lost"
    for _ in range(2):  # a segue that finds it running goes on with it
        check = started("echo fine")
        check._leg.wait(LIMIT_S)
        assert (check.poll(), check.output.read_text()) == (0, "fine\n")
    assert not alive(status.agent_pid)
    assert check.folder.name == f"{kept.leg.folder.name}-again-1"
