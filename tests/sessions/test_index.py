"""The index: several processes may write to it, any of them may be killed, and it may be
damaged."""

import gc
import json
import os
import random
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.agents.counters import count_line, prompt, reply, turn
from support.files.scan import FAMILY, Machine, rollout, segue

from segue.sessions.count import count
from segue.sessions.count.index import SCHEMA_VERSION, Index, open_index
from segue.sessions.count.scan import scan

DEADLINE_S = 60.0


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Some sessions that share replies, and forks; the environment points to them."""
    machine = Machine(tmp_path)
    for number in range(8):
        records = [reply(f"m{number + k}", f"r{number + k}", second=k + 1) for k in range(12)]
        machine.write(f"-p/s{number}.jsonl", prompt(), *records)
    for name, content in FAMILY.items():
        machine.write(rollout(name), content)
    for name, value in machine.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SEGUE_HOME", str(machine.state))
    return machine


def totals(text: str) -> dict[tuple[str, str], tuple[int, int, int, int]]:
    return {
        (t["agent"], t["model"]): (t["input"], t["output"], t["cache_read"], t["cache_write"])
        for t in json.loads(text)["totals"]
    }


def index_file(machine: Machine) -> Path:
    return machine.state / "sessions.db"


def assert_sound(machine: Machine) -> None:
    """The index opens, is whole, and the next scan finds what one from scratch finds."""
    with closing(sqlite3.connect(index_file(machine))) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    index, note = open_index(index_file(machine))
    index.close()
    assert note == ""
    seen, anew = machine.scan(), machine.anew()
    assert seen.totals == anew.totals
    assert seen.files == anew.files
    assert machine.scan().done.read_bytes == 0


# --- whose it is ----------------------------------------------------------------------------------


def test_the_index_is_the_users_alone(machine: Machine) -> None:
    old = os.umask(0o022)
    try:
        machine.scan()
    finally:
        os.umask(old)
    assert stat.S_IMODE(machine.state.stat().st_mode) == 0o700
    index, _ = open_index(index_file(machine))
    index.keep_window("m", 1)  # so that there is a log
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in machine.state.iterdir()}
    index.close()
    assert modes == dict.fromkeys(("sessions.db", "sessions.db-wal", "sessions.db-shm"), 0o600)


def test_an_index_in_place_of_a_damaged_one_is_the_users_alone(machine: Machine) -> None:
    machine.state.mkdir()
    index_file(machine).write_bytes(b"x" * 5000)
    index, note = open_index(index_file(machine))
    index.close()
    assert note
    assert stat.S_IMODE(index_file(machine).stat().st_mode) == 0o600


def assert_one_line(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode not in (0, 120), done.stdout
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("segue: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("where", ["below a file", "below nothing that can be made"])
def test_a_state_folder_that_cannot_be_made_is_reported_in_one_line(
    where: str, machine: Machine, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    place = tmp_path / "file" / "segue" if where == "below a file" else Path("/proc/nobody/segue")
    assert_one_line(segue("scan", "--json", SEGUE_HOME=place))


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
@pytest.mark.parametrize("has_index", [False, True])
def test_a_state_folder_that_is_not_ours_to_write_is_reported_in_one_line(
    has_index: bool, machine: Machine
) -> None:
    machine.state.mkdir()
    if has_index:
        machine.scan()
        machine.append("-p/s1.jsonl", reply("new"))
        index_file(machine).chmod(0o400)
    machine.state.chmod(0o500)
    before = sorted(machine.state.iterdir())
    try:
        assert_one_line(segue("scan", "--json"))
        assert sorted(machine.state.iterdir()) == before
    finally:
        machine.state.chmod(0o700)


def test_an_index_that_another_process_keeps_locked_is_reported_in_one_line(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.scan()
    machine.append("-p/s1.jsonl", reply("new", second=100))
    before = index_file(machine).stat().st_ino
    hurry = (
        "from segue.system.files import sqlite; sqlite.BUSY_S = 0.1\n"
        "from segue.cli import main; main()"
    )
    with closing(sqlite3.connect(index_file(machine), isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        done = subprocess.run(
            [sys.executable, "-c", hurry, "scan", "--json"],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert index_file(machine).stat().st_ino == before  # a lock is no damage
    assert_sound(machine)
    assert_one_line(done)


# --- damage ---------------------------------------------------------------------------------------


def nonsense(path: Path) -> None:
    path.write_bytes(random.Random(1).randbytes(40_000))


def text(path: Path) -> None:
    path.write_text("this is no database\n" * 100)


def short(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def headless(path: Path) -> None:
    os.truncate(path, 50)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "x").write_text("")


def zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def foreign(path: Path, *statements: str) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as db, db:
        for statement in statements or ("CREATE TABLE file (name TEXT)",):
            db.execute(statement)


def foreign_with_other_tables(path: Path) -> None:
    foreign(path, "CREATE TABLE mine (name TEXT)", "INSERT INTO mine VALUES ('x')")


def foreign_with_our_number(path: Path) -> None:
    foreign(path, "CREATE TABLE mine (name TEXT)", f"PRAGMA user_version = {SCHEMA_VERSION}")


def pages(path: Path) -> None:
    """All but the first page."""
    data = bytearray(path.read_bytes())
    data[4096:] = random.Random(2).randbytes(len(data) - 4096)
    path.write_bytes(data)


DAMAGES = [
    nonsense, text, short, headless, folder, zeros, pages,
    foreign, foreign_with_other_tables, foreign_with_our_number,
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_index_is_set_aside_with_one_line_and_rebuilt(
    damage: Callable[[Path], None], machine: Machine
) -> None:
    first = machine.scan()
    path = index_file(machine)
    assert not path.with_name("sessions.db-wal").exists()
    damage(path)
    kept = path.read_bytes() if path.is_file() else b""
    machine.append("-p/s1.jsonl", reply("new", tokens=(1000, 0, 0, 0)))
    done = segue("scan", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("segue: the index was damaged (")
    assert done.stderr.count("\n") == 1
    anew = machine.anew()
    assert totals(done.stdout) == anew.totals != first.totals
    (aside,) = machine.state.glob("sessions.db.damaged-*")
    assert aside.name in done.stderr
    assert aside.is_dir() == (damage is folder)
    if aside.is_file():  # what was there is there, but for a mark in its first page
        assert aside.read_bytes()[4096:] == kept[4096:]
    again = segue("scan", "--json")
    assert again.stderr == ""
    assert json.loads(again.stdout)["read_bytes"] == 0
    assert_sound(machine)


@pytest.mark.parametrize("version", [SCHEMA_VERSION + 1, 99, -5])
def test_an_index_of_another_version_is_rebuilt_without_a_word(
    version: int, machine: Machine
) -> None:
    machine.scan()
    with closing(sqlite3.connect(index_file(machine))) as db, db:
        db.execute("DROP TABLE spend")
        db.execute("ALTER TABLE file RENAME COLUMN ledger TO other")
        db.execute(f"PRAGMA user_version = {version}")
    done = segue("scan", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert totals(done.stdout) == machine.anew().totals
    assert_sound(machine)


def test_an_empty_file_is_a_new_index(machine: Machine) -> None:
    machine.state.mkdir()
    index_file(machine).touch()
    done = segue("scan", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert totals(done.stdout) == machine.anew().totals
    assert_sound(machine)


@pytest.mark.parametrize("filler", ["zeros", "noise", "ones"])
def test_a_damaged_page_shows_only_during_use_and_causes_no_traceback(
    filler: str, machine: Machine, tmp_path: Path
) -> None:
    """Page by page, with a change to the sessions afterwards, so that all of it is used."""
    machine.scan()
    path = index_file(machine)
    whole, pick = path.read_bytes(), random.Random(3)
    machine.append("-p/s1.jsonl", reply("new", tokens=(1000, 0, 0, 0)))
    machine.append("rollout-new.jsonl", turn(), count_line((5, 0, 0, 0)))
    machine.place("-p/s2.jsonl").unlink()
    expected = machine.anew().totals
    noticed = 0
    for start in range(0, len(whole), 4096):
        made = {"zeros": bytes(4096), "ones": b"\xff" * 4096, "noise": pick.randbytes(4096)}[filler]
        for extra in ("-wal", "-shm"):
            path.with_name(path.name + extra).unlink(missing_ok=True)
        path.write_bytes(whole[:start] + made + whole[start + 4096 :])
        done = in_process(machine)
        noticed += done[1] != ""
        if done[1]:
            assert done[0] == expected
    assert noticed > 0


def in_process(machine: Machine) -> tuple[dict[Any, Any], str]:
    """`segue scan --json` without a new process: its sums, and what it said."""
    from click.testing import CliRunner

    from segue.cli import cli

    done = CliRunner().invoke(cli, ["scan", "--json"], catch_exceptions=False)
    gc.collect()  # the index is left to the end of the process
    assert done.exit_code == 0, done.output
    assert done.stderr.count("\n") <= 1
    return totals(done.stdout), done.stderr


@pytest.mark.parametrize("column", ["ledger", "models", "tally", "print"])
def test_a_damaged_row_causes_no_traceback(column: str, machine: Machine) -> None:
    """Such damage cannot be seen by SQLite."""
    machine.scan()
    pick = random.Random(4)
    for value in (b"", b"\0", b"[", pick.randbytes(7 * 8 * 3), b"\xff" * 56, b"null", b"[1]"):
        with closing(sqlite3.connect(index_file(machine))) as db, db:
            given: object = value if column != "models" else value.decode("latin-1")
            db.execute(f"UPDATE file SET {column} = ?", (given,))
        machine.append("-p/s1.jsonl", reply(f"new{value!r}"))
        machine.append(rollout("0199f6a2-0000-7e10-8a52-00000000000a"), b"\n")
        in_process(machine)


# --- several at once ------------------------------------------------------------------------------


def start(*more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *(more or ("-m", "segue")), "scan", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("processes", [2, 4])
def test_several_scans_at_once_on_a_fresh_folder(processes: int, machine: Machine) -> None:
    for _ in range(3):
        shutil.rmtree(machine.state, ignore_errors=True)
        running = [start() for _ in range(processes)]
        done = [
            (*process.communicate(timeout=DEADLINE_S), process.returncode) for process in running
        ]
        expected = machine.anew().totals
        for out, err, code in done:
            assert (err, code) == ("", 0)
            assert totals(out) == expected
        assert not [*machine.state.glob("*damaged*")]
        assert_sound(machine)


def test_several_scans_at_once_while_files_change(machine: Machine) -> None:
    machine.scan()
    for number in range(3):
        for name in ("-p/s1.jsonl", f"-p/new{number}.jsonl"):
            machine.append(
                name, reply(f"n{number}", tokens=(10**number, 0, 0, 0), second=100 + number)
            )
        machine.place(f"-p/s{number + 3}.jsonl").unlink()
        running = [start() for _ in range(3)]
        for process in running:
            out, err = process.communicate(timeout=DEADLINE_S)
            assert (err, process.returncode) == ("", 0)
            assert totals(out) == machine.anew().totals
        assert_sound(machine)


def opening(path: str, ready: int) -> None:
    """Opens a new index at the same moment as others."""
    os.read(ready, 1)
    for number in range(3):
        index, note = open_index(Path(f"{path}{number}"))
        assert note == ""
        index.keep_window("m", number)
        index.close()


def test_an_index_that_many_make_at_the_same_moment_is_made_once(tmp_path: Path) -> None:
    for number in range(6):
        ready, go = os.pipe()
        path = str(tmp_path / f"state{number}" / "sessions.db")
        children = [forked(partial(opening, path, ready)) for _ in range(6)]
        os.write(go, b"x" * len(children))
        assert [ended(child) for child in children] == [0] * len(children)
        os.close(ready)
        os.close(go)
        assert not [*tmp_path.glob("*/*damaged*")]


# --- killed ---------------------------------------------------------------------------------------


def forked(work: Callable[[], object]) -> int:
    """A process that does this, and ends with 0 or, after an exception, with 1."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    except BaseException as fault:
        os.write(2, f"{fault!r}\n".encode())
    finally:
        os._exit(code)


def ended(child: int) -> int:
    """How it ended: the exit code, or the signal as a negative number."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def scan_and_die(machine: Machine, statement: int) -> None:
    """A scan in many transactions that is killed before its n-th statement."""
    count._BATCH_BYTES = 1
    found, places = machine.found()
    left = statement

    def step(_: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    class Doomed(Index):
        def prepare(self) -> None:
            self.db.set_trace_callback(step)
            super().prepare()

    index = Doomed(index_file(machine))
    scan(found, index, index.stamps(places))
    index.totals(places)


@pytest.mark.parametrize("fresh", [True, False])
def test_a_scan_that_is_killed_before_any_statement_leaves_a_sound_index(
    fresh: bool, machine: Machine
) -> None:
    kept = machine.state.parent / "kept"
    if not fresh:
        machine.scan()
        machine.append("-p/s1.jsonl", reply("new", tokens=(1000, 0, 0, 0), second=100))
        machine.place("-p/s2.jsonl").unlink()
        machine.place(rollout("0199f6a2-0000-7e10-8a52-00000000000a")).unlink()
        machine.write("-p/s9.jsonl", reply("m1", "r1"))
        shutil.copytree(machine.state, kept)
    statement, survived = 0, False
    while not survived:
        shutil.rmtree(machine.state, ignore_errors=True)
        if not fresh:
            shutil.copytree(kept, machine.state)
        how = ended(forked(partial(scan_and_die, machine, statement)))
        assert how in (0, -signal.SIGKILL)
        survived = how == 0
        assert_sound(machine)
        statement += 9 if fresh else 7
    assert statement > 50


def size_of(path: Path) -> int:
    """0 if it is not there: SQLite removes its log when it closes a database."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def test_a_scan_that_is_killed_while_it_is_seen_to_write_leaves_a_sound_index(
    machine: Machine,
) -> None:
    """From outside, at whatever moment it is."""
    small = (
        "from segue.sessions.count import count; count._BATCH_BYTES = 1;"
        "from segue.cli import main; main()"
    )
    for number in range(4):
        shutil.rmtree(machine.state, ignore_errors=True)
        process = start("-c", small)
        log = machine.state / "sessions.db-wal"
        deadline = time.monotonic() + DEADLINE_S
        while process.poll() is None and size_of(log) <= 9_000 * number:
            assert time.monotonic() < deadline
        process.kill()
        process.communicate()
        assert_sound(machine)


def test_a_scan_that_is_killed_after_a_parent_came_still_matches_its_fork(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent is written down before its forks are counted anew."""
    for name in FAMILY:
        machine.place(rollout(name)).unlink()
    parent, child = list(FAMILY)[:2]
    machine.write(rollout(child), FAMILY[child])
    machine.scan()
    machine.write(rollout(parent), FAMILY[parent])

    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(Index, "forks_of", die)
    with pytest.raises(Killed):
        machine.scan()
    monkeypatch.undo()
    for name, value in machine.environment.items():
        monkeypatch.setenv(name, value)
    assert machine.scan().totals == machine.anew().totals
