"""The watch log: notes that stay, in order, whoever writes and reads."""

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from segue.errors import StateError
from segue.watch import log as log_module
from segue.watch.log import LASTING, Log, Note, open_log
from segue.watch.predecessors import predecessors


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "state" / "watch.db"


def kinds(notes: list[Note]) -> list[str]:
    return [note.kind for note in notes]


def test_notes_are_read_as_they_were_written_and_numbered_in_order(place: Path) -> None:
    log, note = open_log(place)
    assert note == ""
    assert log.version() == 0
    data = {"used": 3, "text": "späte\n\udcff", "deep": {"a": [1, None, 2.5]}}
    first = log.append("reading", at=1.5, agent="claude", session_id="s", project="/p", data=data)
    second = log.append("daemon", at=2.0)
    assert (first.seq, second.seq, log.version()) == (1, 2, 2)
    again, _ = open_log(place)
    assert again.since(0) == [first, second]
    assert first.data == data
    assert second.data == {}


def test_what_a_reader_asks_for_is_what_it_gets(place: Path) -> None:
    log = Log(place)
    for number in range(10):
        kind = "crossing" if number % 2 else "reading"
        log.append(kind, at=number, agent="claude", session_id=f"s{number % 3}", project="/p")
    log.append("crossing", at=20, agent="codex", session_id="s1", project="/q")
    log.append("daemon", at=21)
    assert [n.seq for n in log.since(8)] == [9, 10, 11, 12]
    assert [n.seq for n in log.since(0, ("crossing",), limit=2)] == [2, 4]
    assert [n.at for n in log.of("claude", "s1")] == [1, 4, 7]
    assert [n.at for n in log.of("claude", "s1", ("crossing",))] == [1, 7]
    assert [n.at for n in log.of("claude", "s0", limit=2)] == [6, 9]
    assert log.of("claude", "") == []
    latest = log.latest("crossing", agent="claude", session_id="s1")
    assert latest is not None
    assert latest.at == 7
    assert (found := log.latest("crossing")) is not None
    assert found.at == 20
    assert (found := log.latest("crossing", project="/p")) is not None
    assert found.at == 9
    assert log.latest("handoff") is None


def test_pruning_takes_the_old_of_one_kind_and_no_number_comes_twice(place: Path) -> None:
    log = Log(place)
    for at in (1, 2, 3):
        log.append("reading", at=at)
    log.append("handoff", at=1)
    assert log.prune("reading", 2.5) == 2
    assert [(n.kind, n.at) for n in log.since(0)] == [("reading", 3), ("handoff", 1)]
    assert log.prune("handoff", 9) + log.prune("reading", 9) == 2
    assert log.version() == 4
    assert log.append("reading", at=4).seq == 5


def test_any_thread_and_any_process_may_write_and_read(place: Path) -> None:
    log = Log(place)
    faults: list[BaseException] = []

    def work() -> None:
        try:
            for number in range(25):
                log.append("reading", at=number)
            assert log.version() >= 25
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work) for _ in range(4)]
    code = f"from segue.watch.log import Log; Log({str(place)!r}).append('daemon', at=1)"
    for thread in threads:
        thread.start()
    subprocess.run([sys.executable, "-c", code], check=True)
    for thread in threads:
        thread.join()
    assert not faults
    notes = log.since(0)
    assert [n.seq for n in notes] == list(range(1, 102))
    assert kinds(notes).count("daemon") == 1
    log.close()
    assert len(log.since(0)) == 101  # opened again when it is needed


def test_what_was_appended_survives_a_kill(place: Path) -> None:
    code = (
        "import os, signal, sys; from segue.watch.log import Log\n"
        f"log = Log({str(place)!r})\n"
        "for kind in ('handoff', 'reading', 'wake'): log.append(kind, at=1, data={'id': 'h-1'})\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == -signal.SIGKILL
    assert kinds(Log(place).since(0)) == ["handoff", "reading", "wake"]


def test_what_a_crash_continues_from_is_on_the_disk_at_once(place: Path) -> None:
    log = Log(place)
    levels = {}
    for kind in ("reading", *LASTING, "hook"):
        log.append(kind, at=1)
        (levels[kind],) = log._file().db.execute("PRAGMA synchronous").fetchone()
    assert levels == {"reading": 1, "handoff": 2, "wake": 2, "takeup": 2, "hook": 1}


def test_nobody_else_may_read_it(place: Path) -> None:
    log = Log(place)
    log.append("daemon", at=1)
    for file in place.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("junk", [b"this is no database at all, but text", b"\0" * 5000])
def test_a_damaged_log_is_kept_aside_and_restarted(place: Path, junk: bytes) -> None:
    place.parent.mkdir()
    place.write_bytes(junk)
    log, note = open_log(place)
    assert "damaged" in note
    assert "\n" not in note
    (aside,) = [p for p in place.parent.iterdir() if ".damaged-" in p.name]
    assert aside.read_bytes() == junk
    assert log.append("daemon", at=1).seq == 1


def test_another_programs_database_is_not_written_to(place: Path) -> None:
    place.parent.mkdir()
    with sqlite3.connect(place) as db:
        db.execute("CREATE TABLE theirs (x)")
    db.close()
    _, note = open_log(place)
    assert "another program's database" in note


def test_a_log_that_another_segue_makes_in_the_same_moment_is_not_moved_aside(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.parent.mkdir()
    version_of = log_module._File._version

    def version(self: log_module._File) -> int:
        found = version_of(self)
        monkeypatch.setattr(log_module._File, "_version", version_of)
        if found == 0:
            Log(place).close()
        return found

    monkeypatch.setattr(log_module._File, "_version", version)
    log, note = open_log(place)
    log.close()
    assert note == ""


def test_a_newer_segues_log_is_refused_and_left_as_it_is(place: Path) -> None:
    Log(place).close()
    with sqlite3.connect(place) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StateError, match="newer segue"):
        open_log(place)
    assert [p.name for p in place.parent.iterdir() if "damaged" in p.name] == []


def test_damage_while_it_is_open_is_one_line(place: Path) -> None:
    log = Log(place)
    log.append("daemon", at=1)
    log._file().db.execute("DROP TABLE note")
    with pytest.raises(StateError, match="damaged") as told:
        log.append("daemon", at=2)
    assert "\n" not in str(told.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_is_one_line(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StateError, match="cannot keep its state"):
        open_log(tmp_path / "state" / "watch.db")


def test_a_note_of_a_form_that_nobody_knows_still_counts(place: Path) -> None:
    log = Log(place)
    log.append("daemon", at=1)
    log._file().db.execute("UPDATE note SET data = '[not json'")
    assert log.since(0) == [Note(seq=1, at=1, kind="daemon")]


def test_the_sessions_before_one_are_known_by_its_handoffs_the_oldest_first(place: Path) -> None:
    log = Log(place)
    pairs = [("a", "b"), ("b", "c"), ("x", "y"), ("c", "d")]
    for old, new in pairs:
        data = {"agent": "claude", "outcome": "done", "session_id": old, "new_session_id": new}
        log.append("metrics", at=1.0, agent="claude", session_id=old, data=data)
    found = [("claude", "a"), ("claude", "b"), ("claude", "c")]
    assert predecessors(log, "claude", "d") == found
    assert predecessors(log, "claude", "a") == []
    assert predecessors(log, "codex", "d") == []
