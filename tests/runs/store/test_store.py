"""The store of runs: what it stores, under any use, whichever process is killed."""

import os
import random
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from segue.core.runs.types import (
    AnyFact,
    LegNotStarted,
    LegStarted,
    Run,
    RunState,
    RunStep,
    SessionNamed,
)
from segue.errors import StateError
from segue.runs.store import file, open_store, runs_path
from segue.runs.store.coding import pack, pack_whole, unpack
from segue.runs.store.file import RunsFile
from segue.runs.store.memory import MemoryStore
from segue.runs.store.port import IsAlive, Store
from segue.runs.store.projection import TABLES, Drift, fact_of
from segue.runs.store.sqlite import SqliteStore
from segue.testing.stores import Driver, StoreTests, limited, make_run, step, story

MEMORIES: dict[Path, MemoryStore] = {}
WAIT_S = 60

WRITER = """
import sys
from segue.core.runs.types import ContextMeasured, Elapsed, LegStarted, Reading, Replied
from segue.runs.store.sqlite import SqliteStore
from segue.testing.stores import Driver, limited, make_run

place, name, most = sys.argv[1], sys.argv[2], int(sys.argv[3])
driver = Driver(SqliteStore(place, is_alive=lambda holder: False), make_run(name))
while most:
    leg = driver.run.leg
    read = ContextMeasured(leg=leg, reading=Reading(input_tokens=leg))
    for fact in (LegStarted(leg=leg), Replied(leg=leg), read, limited(leg), Elapsed(timer="wait")):
        print(driver.tell(fact).seq, flush=True)
    most -= 1
"""


class TestSqlite(StoreTests):
    def open(self, folder: Path, is_alive: IsAlive) -> Store:
        return SqliteStore(folder / "runs.db", is_alive=is_alive)


class TestMemory(StoreTests):
    def open(self, folder: Path, is_alive: IsAlive) -> Store:
        return MEMORIES.setdefault(folder, MemoryStore(is_alive=is_alive))


def python(code: str, *args: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", code, *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)


def made_tables(place: Path) -> dict[str, list[Any]]:
    """All rows that are made from the log."""
    with closing(sqlite3.connect(place)) as db:
        return {
            name: db.execute(f"SELECT * FROM {name} ORDER BY {', '.join(key)}").fetchall()
            for name, key in TABLES.items()
        }


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes() for path in folder.glob("runs.db*") if path.suffix != ".db-shm"
    }


# The log is the truth


def test_rebuilding_the_tables_from_the_log_gives_the_same_tables(tmp_path: Path) -> None:
    place = tmp_path / "runs.db"
    with SqliteStore(place) as store:
        Driver(store, make_run()).tell(*story("odd \udcff"))
        Driver(store, make_run("run-2", task="another")).tell(limited(1))
        Driver(store, make_run("run-3")).tell(LegNotStarted(leg=1, what="no program"))
        store.keep_checkpoint("run-1", 1, {"a": 1}, 0.0)
        store.ask("run-1", "cancel", 0.0)
        live = made_tables(place)
        assert all(live.values()), "the story fills every table"
        for table in reversed(TABLES):
            if table != "run":
                store.db.execute(f"DELETE FROM {table}")
        store.db.execute("UPDATE run SET task = 'wrong'")
        assert made_tables(place) != live
        assert store.rebuild(step) == []
        assert made_tables(place) == live
        assert store.checkpoint("run-1", 1) == {"a": 1}
        assert len(store.asks("run-1")) == 1
        assert store.db.execute("PRAGMA foreign_key_check").fetchall() == []


def test_the_store_in_memory_is_rebuilt_too() -> None:
    store = MemoryStore()
    driver = Driver(store, make_run())
    driver.tell(*story())
    before = (store.runs(), store.legs("run-1"), store.stops("run-1"), store.decisions("run-1"))
    assert store.rebuild(step) == []
    after = (store.runs(), store.legs("run-1"), store.stops("run-1"), store.decisions("run-1"))
    assert after == before


def test_a_machine_that_leads_elsewhere_is_reported(tmp_path: Path) -> None:
    def failing(run: Run, fact: Any, *, at: float, draw: float | None) -> RunStep:
        done = step(run, fact, at=at, draw=draw)
        if done.run.state is RunState.WAITING:
            return RunStep(replace(done.run, state=RunState.FAILED))
        return done

    for store in (SqliteStore(tmp_path / "runs.db"), MemoryStore()):
        Driver(store, make_run()).tell(LegStarted(leg=1), limited(1))
        assert store.rebuild(failing) == [Drift("run-1", 3, "waiting", "failed")]
        assert store.timers() == []


def test_a_log_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    place = tmp_path / "runs.db"
    with SqliteStore(place) as store:
        Driver(store, make_run()).tell(*story())
        store.db.execute("UPDATE event SET kind = 'news' WHERE seq = 3")
        live = made_tables(place)
        with pytest.raises(StateError, match="the log of run-1 cannot be read"):
            store.rebuild(step)
        assert made_tables(place) == live
        assert store.log("run-1")[2].kind == "news", "unknown facts pass through"


def test_segues_own_machine_makes_the_same_run_of_the_log(tmp_path: Path) -> None:
    machine = pytest.importorskip("segue.core.runs.machine")
    place = tmp_path / "runs.db"
    with SqliteStore(place) as store:
        driver = Driver(store, make_run(), by=machine.step)
        driver.tell(*story())
        live = made_tables(place)
        assert store.rebuild() == []
        assert made_tables(place) == live
        assert store.run("run-1") == driver.run


def test_a_run_of_a_newer_segue_hides_no_other(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "runs.db") as store:
        Driver(store, make_run())
        Driver(store, make_run("run-2"))
        store.db.execute(
            "UPDATE snapshot SET data = replace(data, '\"starting\"', '\"dreaming\"')"
            " WHERE run = 'run-2'"
        )
        assert [run.id for run in store.runs()] == ["run-1"]
        with pytest.raises(StateError, match=r"run-2 cannot be read .*newer segue"):
            store.run("run-2")
        assert store.find("run-2") == ["run-2"]


# Any text

TEXTS = st.text(st.characters())


@given(TEXTS)
def test_any_text_is_packed_without_loss(text: str) -> None:
    value = {text: [text, 1, None]}
    packed = pack(value)
    with closing(sqlite3.connect(":memory:")) as db:
        (back,) = db.execute("SELECT ?", (packed,)).fetchone()
    assert unpack(back, dict[str, Any]) == value
    run = make_run(task=text, cwd=text)
    assert unpack(pack_whole(run, Run), Run) == run


@settings(max_examples=25)
@given(st.lists(st.tuples(TEXTS, TEXTS, TEXTS), min_size=1, max_size=4))
def test_what_is_appended_is_what_the_log_tells(texts: list[tuple[str, str, str]]) -> None:
    with TemporaryDirectory() as folder, SqliteStore(f"{folder}/runs.db") as store:
        memory = MemoryStore(machine=store.machine)
        for number, (task, session, what) in enumerate(texts):
            run = make_run(f"run-{number}", task=task, cwd=what)
            facts: list[AnyFact] = [SessionNamed(leg=1, session_id=session), limited(1, what)]
            for kept in (store, memory):
                driver = Driver(kept, run)
                driver.tell(*facts)
                assert kept.run(run.id) == driver.run
                assert [fact_of(entry) for entry in kept.log(run.id)[1:]] == facts
            assert store.log(run.id) == memory.log(run.id)
            assert store.legs(run.id) == memory.legs(run.id)
            assert store.stops(run.id) == memory.stops(run.id)
            assert store.decisions(run.id) == memory.decisions(run.id)
        assert store.runs() == memory.runs()
        assert store.timers() == memory.timers()


# Several processes, and killed ones


def test_a_writer_killed_at_any_moment_leaves_a_whole_log(tmp_path: Path) -> None:
    place = tmp_path / "runs.db"
    dice = random.Random(5)
    told = {"run-0": 0, "run-1": 0}
    for life in range(8):
        name = f"run-{life % 2}"
        with python(WRITER, place, name, -1) as writer:
            assert writer.stdout is not None
            out = "".join(writer.stdout.readline() for _ in range(dice.randrange(1, 12)))
            writer.kill()
            out += writer.stdout.read()
        assert writer.returncode == -signal.SIGKILL
        whole = [line for line in out.splitlines(keepends=True) if line.endswith("\n")]
        told[name] = max([told[name], *map(int, whole)])
    with SqliteStore(place) as store:
        for name, last in told.items():
            log = store.log(name)
            assert [entry.seq for entry in log] == list(range(1, len(log) + 1))
            assert len(log) >= last > 0, "what append returned is kept"
        live = made_tables(place)
        assert store.rebuild(step) == []
        assert made_tables(place) == live


def test_eight_processes_write_at_once(tmp_path: Path) -> None:
    place = tmp_path / "runs.db"
    writers = [python(WRITER, place, f"run-{number}", 4) for number in range(8)]
    for writer in writers:
        out, _ = writer.communicate(timeout=WAIT_S)
        assert writer.returncode == 0
        assert [int(line) for line in out.split()] == list(range(2, 22))
    with SqliteStore(place) as store:
        assert len(store.runs()) == 8
        assert {len(store.log(run.id)) for run in store.runs()} == {21}
        live = made_tables(place)
        store.rebuild(step)
        assert made_tables(place) == live


# The file


def test_the_file_is_private_and_where_state_is(own_home: Path) -> None:
    with open_store() as store:
        Driver(store, make_run()).tell(*story())
        place = own_home / "segue/runs.db"
        assert runs_path() == store.path == str(place)
        for path in place.parent.iterdir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert len(list(place.parent.iterdir())) == 3, "the file, its log and its index"
        assert store.db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert store.db.execute("PRAGMA synchronous").fetchone() == (2,), "FULL"
        assert store.db.execute("PRAGMA foreign_keys").fetchone() == (1,)


def one_line(fault: pytest.ExceptionInfo[StateError], place: Path) -> str:
    text = str(fault.value)
    assert "\n" not in text
    assert text.startswith(f"{place}: ")
    return text


def test_a_newer_file_is_refused_and_not_touched(tmp_path: Path) -> None:
    place = tmp_path / "runs.db"
    with SqliteStore(place) as store:
        Driver(store, make_run())
        store.db.execute("PRAGMA user_version = 99")
    before = contents(tmp_path)
    with pytest.raises(StateError, match="newer segue") as fault:
        SqliteStore(place)
    assert "update segue" in one_line(fault, place)
    assert contents(tmp_path) == before
    assert list(before) == ["runs.db"]


def test_a_newer_version_that_is_only_in_the_log_is_seen_too(tmp_path: Path) -> None:
    """A newer segue was killed before its log was moved into the file."""
    alive, place = tmp_path / "alive", tmp_path / "killed/runs.db"
    with SqliteStore(alive / "runs.db") as store:
        store.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        store.db.execute("PRAGMA user_version = 99")
        shutil.copytree(alive, place.parent)
    before = contents(place.parent)
    assert before["runs.db-wal"]
    with pytest.raises(StateError, match="newer segue"):
        SqliteStore(place)
    assert contents(place.parent) == before


@pytest.mark.parametrize(
    "content", [b"no database at all" * 99, b"SQLite format 3\0" + bytes(range(256)) * 40]
)
def test_a_damaged_file_is_never_thrown_away(tmp_path: Path, content: bytes) -> None:
    place = tmp_path / "runs.db"
    place.write_bytes(content)
    with pytest.raises(StateError, match=r": damaged \(") as fault:
        SqliteStore(place)
    line = one_line(fault, place)
    assert contents(tmp_path) == {"runs.db": content}
    command = line.partition("`")[2].partition("`")[0]
    subprocess.run(command, shell=True, check=True)
    assert not place.exists()
    assert (tmp_path / "damaged/runs.db").read_bytes() == content
    SqliteStore(place).close()


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "runs.db"
    with closing(sqlite3.connect(place)) as db:
        db.execute("CREATE TABLE theirs (x)")
    before = contents(tmp_path)
    with pytest.raises(StateError, match="another program's database"):
        SqliteStore(place)
    assert contents(tmp_path) == before


def test_damage_found_later_is_one_line_and_no_row_is_lost(tmp_path: Path) -> None:
    place = tmp_path / "runs.db"
    with SqliteStore(place) as store:
        Driver(store, make_run(task="x" * 50_000)).tell(*story())
        (page,) = store.db.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'event'"
        ).fetchone()
    data = bytearray(place.read_bytes())
    data[(page - 1) * 4096 : page * 4096] = b"\xee" * 4096
    place.write_bytes(data)
    with SqliteStore(place) as store:
        with pytest.raises(StateError, match=r": damaged \(") as fault:
            store.log("run-1")
        one_line(fault, place)
        with pytest.raises(StateError, match=r": damaged \("):
            Driver(store, make_run("run-2"))
    assert place.read_bytes()[(page - 1) * 4096 : page * 4096] == b"\xee" * 4096


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="SEGUE_HOME") as fault:
        SqliteStore(tmp_path / "file/segue/runs.db")
    one_line(fault, tmp_path / "file/segue")


def test_a_full_disk_is_one_line_and_the_log_stays_whole(tmp_path: Path) -> None:
    place = tmp_path / "runs.db"
    with SqliteStore(place) as store:
        driver = Driver(store, make_run())
        (pages,) = store.db.execute("PRAGMA page_count").fetchone()
        store.db.execute(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(StateError, match="SEGUE_HOME") as fault:
            driver.tell(*[limited(1, "x" * 1000)] * 50)
        one_line(fault, place)
        assert store.run("run-1") == driver.run
        store.db.execute("PRAGMA max_page_count = 100000")
        driver.tell(LegStarted(leg=1))
        log = store.log("run-1")
        assert [entry.seq for entry in log] == list(range(1, len(log) + 1))


def test_a_path_may_hold_anything(tmp_path: Path) -> None:
    place = os.fsdecode(os.fsencode(tmp_path) + b"/a b?c=1#%41\xff'/runs.db")
    with SqliteStore(place) as first, SqliteStore(place) as second:
        Driver(first, make_run())
        assert second.find("run-") == ["run-1"]
    assert os.path.exists(place)


ALONE = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=0.1)
try:
    print(db.execute("PRAGMA journal_mode = DELETE").fetchone()[0])
except sqlite3.OperationalError as fault:
    print(fault)
"""


def test_opening_it_again_loses_no_lock_of_this_process(tmp_path: Path) -> None:
    """POSIX: whoever closes a file gives up all locks of the process on it. Without its lock,
    another process would take the log away from under an open store."""
    place = tmp_path / "runs.db"
    with SqliteStore(place) as store:
        driver = Driver(store, make_run())
        SqliteStore(place).close()
        out, _ = python(ALONE, place).communicate(timeout=WAIT_S)
        assert out == "database is locked\n"
        driver.tell(LegStarted(leg=1))


# Migrations


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    """A folder of migrations with one more."""
    folder = tmp_path / "migrations"
    shutil.copytree(file.MIGRATIONS, folder)
    number = len(list(folder.glob("*.sql"))) + 1
    script = (
        "ALTER TABLE run ADD COLUMN tag TEXT NOT NULL DEFAULT 'none; yet';\n"
        "-- a comment; with a semicolon\n"
        "CREATE TABLE tag (name TEXT);\nINSERT INTO tag VALUES ('a');\n"
    )
    (folder / f"{number:04}_tags.sql").write_text(script)
    return folder


class Newer(SqliteStore):
    """The next version."""


def schema(place: Path) -> list[Any]:
    with closing(sqlite3.connect(place)) as db:
        version = db.execute("PRAGMA user_version").fetchall()
        return version + db.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()


def test_a_file_of_an_older_version_is_brought_forward(tmp_path: Path, newer: Path) -> None:
    place = tmp_path / "state/runs.db"
    with SqliteStore(place) as store:
        driver = Driver(store, make_run())
        driver.tell(*story())
    Newer.migrations = newer
    with Newer(place) as store:
        assert store.run("run-1") == driver.run
        assert store.db.execute("SELECT tag FROM run").fetchall() == [("none; yet",)]
        assert store.db.execute("SELECT count(*) FROM tag").fetchone() == (1,)
    Newer(place).close()
    with pytest.raises(StateError, match="newer segue"):
        SqliteStore(place)


STOPPED = """
import sys
from pathlib import Path
from segue.runs.store import file
from segue.runs.store.sqlite import SqliteStore

SqliteStore.migrations = Path(sys.argv[2])
whole, after = file.statements, int(sys.argv[3])

def statements(script):
    for number, statement in enumerate(whole(script)):
        if number == after:
            print("here", flush=True)
            sys.stdin.read()
        yield statement

file.statements = statements
SqliteStore(sys.argv[1])
"""


@pytest.mark.parametrize("after", [1, 2])
def test_a_process_killed_in_a_migration_leaves_the_old_version_whole(
    tmp_path: Path, newer: Path, after: int
) -> None:
    place = tmp_path / "state/runs.db"
    with SqliteStore(place) as store:
        driver = Driver(store, make_run())
        driver.tell(*story())
    before = schema(place)
    with python(STOPPED, place, newer, after) as stopped:
        assert stopped.stdout is not None
        assert stopped.stdout.readline() == "here\n"
        stopped.kill()
    assert schema(place) == before
    with SqliteStore(place) as store:
        assert store.run("run-1") == driver.run
    Newer.migrations = newer
    with Newer(place) as store:
        assert store.run("run-1") == driver.run


def test_a_first_start_that_was_killed_is_done_again(tmp_path: Path) -> None:
    place = tmp_path / "state/runs.db"
    with python(STOPPED, place, file.MIGRATIONS, 5) as stopped:
        assert stopped.stdout is not None
        assert stopped.stdout.readline() == "here\n"
        stopped.kill()
    with SqliteStore(place) as store:
        Driver(store, make_run()).tell(*story())


OPENER = """
import sys
from segue.runs.store.sqlite import SqliteStore

print("ready", flush=True)
sys.stdin.readline()
SqliteStore(sys.argv[1]).runs()
"""


def test_processes_that_open_a_new_file_at_once_agree(tmp_path: Path) -> None:
    for number in range(3):
        place = tmp_path / f"{number}/runs.db"
        openers = [python(OPENER, place) for _ in range(5)]
        for opener in openers:
            assert opener.stdout is not None
            assert opener.stdout.readline() == "ready\n"
        for opener in openers:
            assert opener.stdin is not None
            opener.stdin.write("\n")
            opener.stdin.flush()
        for opener in openers:
            opener.communicate(timeout=WAIT_S)
            assert opener.returncode == 0


def test_missing_migrations_are_reported(tmp_path: Path, newer: Path) -> None:
    next(newer.glob("0001*")).unlink()
    Newer.migrations = newer
    with pytest.raises(StateError, match="reinstall segue"):
        Newer(tmp_path / "runs.db")


def test_importing_the_store_loads_nothing() -> None:
    code = (
        "import sys, segue.runs.store\n"
        "print([m for m in sys.modules if m in ('msgspec', 'sqlite3')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_opening_the_store_loads_neither_psutil_nor_agents(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom segue.runs.store import open_store\nopen_store(sys.argv[1]).runs()\n"
        "print([m for m in sys.modules if m in ('psutil', 're2', 'click', 'segue.agents')])"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "runs.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_file_that_another_segue_makes_in_the_same_moment_is_no_strangers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "runs.db"
    version_of, others = RunsFile._version, list[RunsFile]()

    def version(self: RunsFile) -> int:
        found = version_of(self)
        if not others:
            monkeypatch.setattr(RunsFile, "_version", version_of)
            others.append(RunsFile(path))
        return found

    monkeypatch.setattr(RunsFile, "_version", version)
    one = RunsFile(path)
    for each in (one, *others):
        assert each._version() == each.newest
        each.close()
