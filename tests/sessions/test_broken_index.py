"""An index that breaks while it is read, a disk that fails, and who owns the files."""

import errno
import gc
import json
import os
import random
import resource
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from support.homes import START, claude_session, prompt, reply

from segue.cli import cli
from segue.errors import StateError
from segue.sessions.count.index import Index, open_index, set_aside
from segue.system import clock
from segue.system.files.sqlite import is_damage, move_aside, raise_if_ours

PAGE_BYTES = 4096
SESSIONS = 30
NAME = "00000007-2222-4333-8444-555555555555"
COMMANDS = [("status",), ("sessions",), ("show", NAME), ("fits", "5K", NAME)]


def session_name(number: int) -> str:
    return f"{number:08}-2222-4333-8444-555555555555"


def run(*args: str) -> Result:
    gc.collect()  # commands leave the index to the end of their process
    return CliRunner().invoke(cli, [*args, "--json"])


@pytest.fixture
def index(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index of some sessions, large enough to have many pages."""
    monkeypatch.setattr(clock, "now", lambda: START + 600)
    for number in range(SESSIONS):
        name, cwd = session_name(number), f"/home/dev/p{number}"
        replies = [
            reply(number * 100 + k, 20_000 + k, at=START + k, session=name, cwd=cwd)
            for k in range(12)
        ]
        first = prompt(session=name, cwd=cwd)
        claude_session(own_home, first, *replies, session=name, slug=f"-home-dev-p{number}")
    for command in (("scan",), *COMMANDS):
        assert run(*command).exit_code == 0
    path = own_home / "segue" / "sessions.db"
    settle(path)
    return path


def settle(path: Path) -> None:
    """All of it in one file."""
    gc.collect()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert not path.with_name("sessions.db-wal").exists()


def pages_of(path: Path, table: str) -> list[int]:
    """The pages of a table, each with rows in it, in the order of the file."""
    with closing(sqlite3.connect(path)) as db:
        (root,) = db.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)
        ).fetchone()
    return below(path.read_bytes(), root)


def below(data: bytes, page: int) -> list[int]:
    """A page of a B-tree and those below it, by SQLite's file format."""
    start = (page - 1) * PAGE_BYTES
    kind, cells = data[start], int.from_bytes(data[start + 3 : start + 5], "big")
    found = [page]
    if kind in (2, 5):  # an inner page: it names others
        found += below(data, int.from_bytes(data[start + 8 : start + 12], "big"))
        for cell in range(cells):
            at = start + 12 + cell * 2
            place = start + int.from_bytes(data[at : at + 2], "big")
            found += below(data, int.from_bytes(data[place : place + 4], "big"))
    return sorted(found)


def spoil(path: Path, page: int) -> None:
    """Overwrites one page."""
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE_BYTES)
        file.write(random.Random(page).randbytes(PAGE_BYTES))


def asides(path: Path) -> list[Path]:
    return sorted(path.parent.glob("sessions.db.damaged-*"))


# --- damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "table"),
    [(command, "look") for command in COMMANDS] + [(("show", NAME), "file")],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_an_index_that_breaks_while_it_is_read_is_set_aside_and_the_command_answers(
    command: tuple[str, ...], table: str, index: Path
) -> None:
    answer = run(*command).stdout
    settle(index)
    for which in (0.0, 0.5):
        pages = pages_of(index, table)
        assert len(pages) > 2
        spoil(index, pages[int(len(pages) * which)])
        broken = index.read_bytes()
        opened, note = open_index(index)
        opened.close()
        assert note == ""  # it opens as if all were well
        done = run(*command)
        assert (done.exit_code, done.stdout) == (0, answer), done.output
        assert done.stderr.startswith("segue: the index was damaged (")
        assert done.stderr.count("\n") == 1
        (aside,) = asides(index)
        assert aside.name in done.stderr
        assert aside.read_bytes() == broken
        aside.unlink()
        again = run(*command)
        assert (again.stdout, again.stderr) == (answer, "")
        run("scan")
        settle(index)


def test_any_page_that_breaks_costs_one_line_and_never_the_answer(
    index: Path, tmp_path: Path
) -> None:
    """`show` reads the most."""
    answer = run("show", NAME).stdout
    settle(index)
    shutil.copy(index, tmp_path / "whole")
    noticed = 0
    for page in range(1, index.stat().st_size // PAGE_BYTES + 1):
        gc.collect()
        shutil.copy(tmp_path / "whole", index)
        spoil(index, page)
        done = run("show", NAME)
        assert (done.exit_code, done.stdout) == (0, answer), done.output
        assert done.stderr.count("\n") == len(asides(index)) <= 1
        for aside in asides(index):
            noticed += 1
            aside.unlink()
    assert noticed > 8


def test_an_index_that_breaks_while_it_is_written_is_set_aside_too(
    index: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that is new has to be written down by `status`."""
    claude_session(own_home, reply(1, 50_000, cwd="/home/dev/new"), slug="-home-dev-new")
    known = Index.looks
    pages = pages_of(index, "look")

    def break_after(self: Index) -> dict[str, Any]:
        found = known(self)
        if not asides(index):
            self.db.execute("PRAGMA cache_size = 1")
            self.db.execute("SELECT count(*) FROM file, key").fetchall()
            for page in pages:
                spoil(index, page)
        return found

    monkeypatch.setattr(Index, "looks", break_after)
    done = run("status")
    assert done.exit_code == 0, done.output
    assert done.stderr.startswith("segue: the index was damaged (")
    assert done.stderr.count("\n") == 1
    assert len(json.loads(done.stdout)["sessions"]) == SESSIONS + 1


# --- set aside by several at once -----------------------------------------------------------------


def test_a_damaged_file_that_another_process_has_moved_is_not_an_error(tmp_path: Path) -> None:
    place = tmp_path / "sessions.db"
    place.write_text("not a database")
    identity = (place.stat().st_dev, place.stat().st_ino)
    place.unlink()
    assert move_aside(place, identity) == ""
    assert move_aside(tmp_path / "none" / "sessions.db", identity) == ""


def test_a_new_index_that_another_process_made_is_not_moved_away(tmp_path: Path) -> None:
    place = tmp_path / "sessions.db"
    mine, theirs = Index(place), Index(place)
    assert set_aside(theirs, "it broke")[1] != ""
    others, _ = open_index(place)
    others.keep_window("m", 7)
    index, note = set_aside(mine, "it broke")
    assert note == ""
    assert index.window("m") == (True, 7)
    assert len(asides(place)) == 1


def test_a_damaged_index_that_is_replaced_while_it_is_opened_is_taken_as_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "sessions.db"
    place.write_text("not a database, and long enough for a header" * 9)
    real = move_aside

    def late(path: str, identity: tuple[int, int]) -> str:
        monkeypatch.setattr("segue.sessions.count.index.move_aside", real)
        open_index(path)[0].close()  # another process, faster than we are
        return real(path, identity)

    monkeypatch.setattr("segue.sessions.count.index.move_aside", late)
    index, note = open_index(place)
    index.keep_window("m", 1)
    assert note == ""
    assert len(asides(place)) == 1


def test_a_damaged_index_that_may_not_be_moved_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "sessions.db"
    place.write_text("not a database, and long enough for a header" * 9)

    def refused(old: str, new: str) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted", old)

    monkeypatch.setattr(os, "replace", refused)
    with pytest.raises(
        StateError, match="Operation not permitted; to keep it elsewhere, set SEGUE_HOME"
    ):
        open_index(place)


# --- no damage ------------------------------------------------------------------------------------


def fault(code: int, message: str) -> sqlite3.OperationalError:
    made = sqlite3.OperationalError(message)
    made.sqlite_errorcode = code
    return made


NO_DAMAGE = [
    sqlite3.SQLITE_IOERR, sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_CANTOPEN_ISDIR,
    sqlite3.SQLITE_READONLY, sqlite3.SQLITE_READONLY_DBMOVED, sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_BUSY_SNAPSHOT, sqlite3.SQLITE_LOCKED,
]  # fmt: skip
DAMAGE = [sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_CORRUPT_VTAB, sqlite3.SQLITE_NOTADB]


@pytest.mark.parametrize("code", NO_DAMAGE)
@pytest.mark.parametrize("message", ["disk I/O error", "malformed", ""])
def test_a_fault_of_the_machine_is_one_line_whatever_its_words(code: int, message: str) -> None:
    assert not is_damage(fault(code, message))
    with pytest.raises(StateError) as told:
        raise_if_ours(fault(code, message), Path("/home/dev/state"))
    assert str(told.value).startswith("/home/dev/state: ")
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("code", DAMAGE)
@pytest.mark.parametrize("message", ["malformed", "the table is locked", "readonly", "is full"])
def test_damage_is_damage_whatever_its_words(code: int, message: str) -> None:
    assert is_damage(fault(code, message))
    raise_if_ours(fault(code, message), Path("/home/dev/state"))  # nothing


def test_a_value_that_python_cannot_read_is_damage(tmp_path: Path) -> None:
    """Such an error has no code of SQLite's."""
    with closing(sqlite3.connect(":memory:")) as db, pytest.raises(sqlite3.Error) as told:
        db.execute("SELECT CAST(x'ff' AS TEXT)").fetchall()
    assert is_damage(told.value)


@pytest.mark.parametrize("command", [*COMMANDS, ("scan",)], ids=lambda command: command[0])
@pytest.mark.parametrize("code", [sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_CANTOPEN])
def test_a_disk_that_fails_sets_no_index_aside(
    command: tuple[str, ...], code: int, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise fault(code, "disk I/O error")

    before = index.stat().st_ino
    monkeypatch.setattr(Index, "looks", fail)
    monkeypatch.setattr(Index, "stamps", fail)
    done = run(*command)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith(f"segue: {index}: segue cannot keep its state here: ")
    assert done.stderr.count("\n") == 1
    assert asides(index) == []
    assert index.stat().st_ino == before


@pytest.mark.parametrize("limit_pages", [1, 20])
def test_a_disk_that_takes_no_more_sets_no_index_aside(
    limit_pages: int, index: Path, own_home: Path
) -> None:
    """Really: files may not grow, so that writing fails in the middle of a transaction."""
    for number in range(SESSIONS):
        name = session_name(number)
        lines = [reply(9_000 + number * 100 + k, 30_000, session=name) for k in range(60)]
        claude_session(own_home, *lines, session=name, slug=f"-home-dev-p{number}")
    before = index.stat().st_ino
    most = limit_pages * PAGE_BYTES
    done = subprocess.run(
        [sys.executable, "-m", "segue", "scan", "--json"],
        capture_output=True, text=True, timeout=60, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"segue: {index}: segue cannot keep its state here: ")
    assert done.stderr.count("\n") == 1
    assert asides(index) == []
    assert index.stat().st_ino == before
    assert run("scan").exit_code == 0


def test_what_ended_a_transaction_is_reported_and_not_that_it_was_over(tmp_path: Path) -> None:
    """SQLite rolls back by itself when the disk is full."""
    index = Index(tmp_path / "sessions.db")
    (pages,) = index.db.execute("PRAGMA page_count").fetchone()
    index.db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(sqlite3.OperationalError) as told:
        index.keep_looks([(str(n), (1, 1, 1, 1), b"x" * 5000) for n in range(9)])
    assert told.value.sqlite_errorcode == sqlite3.SQLITE_FULL
    assert not index.db.in_transaction
    index.close()


# --- whose it is ----------------------------------------------------------------------------------


@pytest.fixture
def open_umask() -> Iterator[None]:
    old = os.umask(0o022)
    yield
    os.umask(old)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("open_umask")
@pytest.mark.parametrize("has_rows", [False, True])
def test_an_index_that_others_could_read_is_the_users_alone_once_it_was_opened(
    has_rows: bool, tmp_path: Path
) -> None:
    path = tmp_path / "state" / "sessions.db"
    if has_rows:
        Index(path).close()
    path.parent.mkdir(exist_ok=True)
    path.touch()
    path.chmod(0o644)
    with closing(Index(path)) as index:
        index.keep_window("m", 1)  # so that there is a log
        modes = {file.name: mode(file) for file in path.parent.iterdir()}
    assert modes == dict.fromkeys(("sessions.db", "sessions.db-wal", "sessions.db-shm"), 0o600)


@pytest.mark.usefixtures("open_umask")
def test_logs_that_others_could_read_are_the_users_alone_once_the_index_was_opened(
    tmp_path: Path,
) -> None:
    path = tmp_path / "state" / "sessions.db"
    with closing(Index(path)) as first:
        first.keep_window("m", 1)
        files = list(path.parent.iterdir())
        assert len(files) == 3
        for file in files:
            file.chmod(0o644)
        with closing(Index(path)):
            assert {mode(file) for file in files} == {0o600}


@pytest.mark.usefixtures("open_umask")
def test_a_state_folder_that_segue_makes_is_the_users_and_one_that_is_there_stays_as_it_is(
    tmp_path: Path,
) -> None:
    """`SEGUE_HOME` may name a folder that is not segue's alone."""
    made, there = tmp_path / "made", tmp_path / "there"
    there.mkdir(mode=0o755)
    for folder in (made, there):
        Index(folder / "sessions.db").close()
    assert (mode(made), mode(there)) == (0o700, 0o755)
