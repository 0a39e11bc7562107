"""Who may write: one living process, and none that was presumed dead."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from segue.runs.store import leases
from segue.runs.store.leases import LocalHost, is_dead
from segue.runs.store.port import Held, Holder, LeaseLost, run_key
from segue.runs.store.sqlite import SqliteStore
from segue.testing.stores import START, make_run

HERE = LocalHost("m", "boot-2", "linux:pid:[1]")
HOLDER = Holder(machine="m", boot="boot-2", domain="linux:pid:[1]", pid=7, started=4711.0)
WAIT_S = 60

# (what is different about the holder, the start of the process that has its pid here, dead?)
CASES: list[tuple[str, dict[str, str], float | None, bool]] = [
    ("it runs", {}, 4711.0, False),
    ("its pid is gone", {}, None, True),
    ("its pid is another process's now", {}, 4712.0, True),
    ("the machine was started again", {"boot": "boot-1"}, 4711.0, True),
    ("the same, in a container", {"boot": "boot-1", "domain": "x"}, 4711.0, True),
    ("another machine's, gone from here", {"machine": "n", "boot": "boot-9"}, None, False),
    ("another machine's, the same pid here", {"machine": "n", "boot": "boot-9"}, 1.0, False),
    ("another container's, with our name", {"domain": "x"}, None, False),
    ("another container's, with its own", {"machine": "n", "domain": "x"}, None, False),
    ("ours, and the machine has a new name", {"machine": "n"}, None, True),
    ("ours, new name, and it runs", {"machine": "n"}, 4711.0, False),
]


@pytest.mark.parametrize(
    ("changes", "started", "dead"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_holder_is_dead_only_if_that_can_be_told(
    changes: dict[str, str], started: float | None, dead: bool
) -> None:
    assert is_dead(replace(HOLDER, **changes), HERE, started) is dead


@pytest.mark.parametrize(("started", "dead"), [(None, True), (5.0, True), (4711.0, False)])
def test_without_boot_ids_the_start_time_decides(started: float | None, dead: bool) -> None:
    nameless = LocalHost("m", "", "")
    assert is_dead(replace(HOLDER, boot="", domain=""), nameless, started) is dead
    assert not is_dead(replace(HOLDER, boot="", domain="", machine="n"), nameless, started)


def test_this_process_lives() -> None:
    holder = leases.me("a test")
    assert holder.pid == os.getpid()
    assert holder.started > 0
    assert holder.note == "a test"
    assert leases.is_alive(holder)
    assert not leases.is_alive(replace(holder, started=holder.started - 1))
    assert leases.is_alive(replace(holder, machine="n", boot="another", pid=1 << 30))


@pytest.mark.skipif(sys.platform != "linux", reason="others do not tell")
def test_a_reboot_ends_all_leases() -> None:
    assert not leases.is_alive(replace(leases.me(), boot="the one before"))


def test_the_machines_own_id_is_not_shown() -> None:
    name = leases.machine()
    assert name == leases.machine() != ""
    if (path := Path("/etc/machine-id")).exists() and (secret := path.read_text().strip()):
        assert secret not in name


HOLDING = """
import sys
from segue.runs.store import leases
from segue.runs.store.sqlite import SqliteStore

print(SqliteStore(sys.argv[1]).acquire("tree:/p", leases.me("child"), 1.0).epoch, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("is_buried", [True, False])
def test_a_killed_holder_loses_its_lease_and_a_stopped_one_does_not(
    tmp_path: Path, is_buried: bool
) -> None:
    place = tmp_path / "runs.db"
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", HOLDING, str(place)]
    with (
        SqliteStore(place) as store,
        subprocess.Popen(command, stdout=pipe, stdin=pipe, text=True) as child,
    ):
        assert child.stdout is not None
        assert child.stdout.readline() == "1\n"
        with pytest.raises(Held) as fault:
            store.acquire("tree:/p", leases.me(), 2.0)
        assert (fault.value.holder.pid, fault.value.holder.note) == (child.pid, "child")
        child.send_signal(signal.SIGSTOP)
        with pytest.raises(Held):
            store.acquire("tree:/p", leases.me(), 2.0)
        child.kill()
        if is_buried:
            child.wait()
        else:
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert store.acquire("tree:/p", leases.me(), 3.0).epoch == 2


FIGHTER = """
import sys
from segue.core.runs.types import CancelAsked
from segue.runs.store import leases
from segue.runs.store.port import Held, run_key
from segue.runs.store.sqlite import SqliteStore
from segue.testing.stores import make_run

place, rounds = sys.argv[1], int(sys.argv[2])
store, me, run = SqliteStore(place), leases.me(), make_run()
print("ready", flush=True)
sys.stdin.readline()
won = 0
while won < rounds:
    try:
        lease = store.acquire(run_key(run.id), me, 1.0)
    except Held:
        continue
    store.append(run, CancelAsked(by=str(me.pid)), at=lease.epoch, epoch=lease.epoch)
    print(lease.epoch, flush=True)
    store.release(lease)
    won += 1
"""


def test_of_two_that_fight_for_a_lease_one_wins_each_epoch(tmp_path: Path) -> None:
    place, rounds, pipe = tmp_path / "runs.db", 40, subprocess.PIPE
    with SqliteStore(place) as store:
        store.create(make_run())
        command = [sys.executable, "-c", FIGHTER, str(place), str(rounds)]
        fighters = [subprocess.Popen(command, stdout=pipe, stdin=pipe, text=True) for _ in range(2)]
        for fighter in fighters:
            assert fighter.stdout is not None
            assert fighter.stdout.readline() == "ready\n"
        for fighter in fighters:
            assert fighter.stdin is not None
            fighter.stdin.write("\n")
            fighter.stdin.flush()
        won = [list(map(int, f.communicate(timeout=WAIT_S)[0].split())) for f in fighters]
        assert sorted(won[0] + won[1]) == list(range(1, 2 * rounds + 1))
        log = store.log("run-1")[1:]
        assert [entry.at for entry in log] == list(range(1, 2 * rounds + 1))
        by = [[e.at for e in log if e.data["by"] == str(f.pid)] for f in fighters]
        assert by == won


def test_a_writer_that_was_stopped_and_overtaken_is_refused(tmp_path: Path) -> None:
    """The machine slept, another process took it for dead: the old one must not write."""
    from segue.core.runs.types import LegStarted

    place = tmp_path / "runs.db"
    run, me = make_run(), leases.me()
    with SqliteStore(place) as old, SqliteStore(place, is_alive=lambda holder: False) as new:
        lease = old.acquire(run_key(run.id), me, START)
        old.create(run)
        old.append(run, LegStarted(leg=1), at=START, epoch=lease.epoch)
        later = new.acquire(run_key(run.id), me, START)
        assert later.epoch == lease.epoch + 1
        with pytest.raises(LeaseLost) as fault:
            old.append(run, LegStarted(leg=2), at=START, epoch=lease.epoch)
        assert "\n" not in str(fault.value)
        old.release(lease)
        new.append(run, LegStarted(leg=2), at=START, epoch=later.epoch)
        assert [entry.data["leg"] for entry in new.log(run.id)[1:]] == [1, 2]
