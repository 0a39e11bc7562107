"""One bad datum costs one line: everything else is shown, and what is broken is rebuilt."""

import json
import os
import random
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.hangs import bytes_read, stopped_hang
from support.homes import OpencodeDb, claude_session, prompt, reply
from support.hostile.values import FRONTS, Ended, home_of, plant_markdown, segue

CANARY = "cafecafe-2222-4333-8444-555555555555"
COMMANDS = (
    ("status",), ("sessions",), ("show", CANARY), ("fits", "5000", CANARY), ("scan",),
    ("status", "--json"),
)  # fmt: skip


@pytest.fixture
def home(own_home: Path) -> Iterator[Path]:
    """A home with one good session."""
    now = time.time()
    lines = [
        prompt(at=now - 60, session=CANARY, cwd="/p/canary"),
        reply(1, 90_000, at=now - 50, session=CANARY, cwd="/p/canary"),
    ]
    claude_session(own_home, *lines, session=CANARY, slug="-p-canary")
    with home_of(own_home):
        yield own_home


def all_well(*commands: tuple[str, ...]) -> list[Ended]:
    """The commands, with the good session in each."""
    done = [segue(*words) for words in commands or COMMANDS]
    for ended in done:
        assert not ended.faults
        assert ended.code == 0, ended
        assert "canary" in ended.out or ended.words[0] in ("scan", "fits"), ended
    return done


@pytest.mark.parametrize("name", FRONTS)
def test_stray_markdown_with_odd_front_matter(home: Path, name: str) -> None:
    folder = home / ".opencode" / "work"
    folder.mkdir(parents=True)
    text = f"---\n{FRONTS[name]}\n---\n# Notes\n"
    (folder / "stray.md").write_text(text, errors="surrogatepass")
    with stopped_hang():  # a bomb takes for ever
        all_well(("status",), ("sessions",))


def test_all_odd_front_matter_at_once_for_every_command(home: Path) -> None:
    plant_markdown(home)
    all_well()


@pytest.mark.parametrize("column", ["time_created", "time_updated", "directory", "model", "id"])
@pytest.mark.parametrize(
    "value",
    [
        "twelve",
        float("inf"),
        float("-inf"),
        -1,
        2**63 - 1,
        b"\xff\x00",
        None,
        "\x1b[2J",
        "9" * 5000,
    ],
    ids=lambda value: repr(value)[:12],
)
def test_an_opencode_row_of_any_type(home: Path, column: str, value: object) -> None:
    db = OpencodeDb(home / ".local/share/opencode/opencode.db")
    (sql,) = db.db.execute("SELECT sql FROM sqlite_master WHERE name = 'session'").fetchone()
    db.db.execute("DROP TABLE session")
    db.db.execute(sql.replace("NOT NULL", ""))
    now = time.time()
    db.session("ses_good", "/q/good", now)
    db.answer(1, "ses_good", now, 40_000)
    db.session("ses_bad", "/q/bad", now)
    db.answer(2, "ses_bad", now, 30_000)
    db.db.execute(f"UPDATE session SET {column} = ? WHERE id = 'ses_bad'", (value,))
    db.db.close()
    shown = all_well(("status",), ("status", "--json"), ("scan",))
    assert "good" in shown[0].out


def test_bytes_that_are_not_text_in_an_opencode_row(home: Path) -> None:
    db = OpencodeDb(home / ".local/share/opencode/opencode.db")
    now = time.time()
    db.session("ses_good", "/q/good", now)
    db.answer(1, "ses_good", now, 40_000)
    db.session("ses_bad", "/q/bad", now)
    db.db.execute("UPDATE session SET title = CAST(x'ff00fe' AS TEXT),"
                  " directory = CAST(x'2fff' AS TEXT) WHERE id = 'ses_bad'")  # fmt: skip
    db.db.close()
    assert "good" in all_well(("status",))[0].out


def test_flipped_bytes_in_the_index(home: Path) -> None:
    for number in range(5):
        name = f"{number}aaaaaaa-2222-4333-8444-555555555555"
        claude_session(home, prompt(session=name), reply(1, 60_000, session=name), session=name)
    all_well(("scan",), ("status",), ("show", CANARY))
    place = home / "segue" / "sessions.db"
    with sqlite3.connect(place) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    good = place.read_bytes()
    draw = random.Random(13)
    for _ in range(25):
        for more in place.parent.glob("sessions.db*"):
            more.unlink()
        data = bytearray(good)
        for _ in range(draw.choice((1, 5, 60))):
            at = draw.randrange(len(data))
            data[at] ^= 1 << draw.randrange(8)
        place.write_bytes(data)
        all_well(("status",), ("show", CANARY), ("scan",))


def test_keys_in_the_index_without_their_file(home: Path) -> None:
    all_well(("scan",))
    place = home / "segue" / "sessions.db"
    with sqlite3.connect(place, isolation_level=None) as db:
        db.execute("INSERT INTO key SELECT hash, 999 FROM key")
    db.close()
    known = next((home / ".claude" / "projects").rglob(f"{CANARY}.jsonl"))
    shutil.copy(known, known.with_name("dddddddd-2222-4333-8444-555555555555.jsonl"))
    all_well(("scan",), ("status",))
    with sqlite3.connect(place, isolation_level=None) as db:
        assert db.execute("SELECT count(*) FROM key WHERE file = 999").fetchone() == (0,)
    db.close()


def test_an_index_whose_schema_is_not_text(home: Path) -> None:
    all_well(("status",))
    place = home / "segue" / "sessions.db"
    with sqlite3.connect(place, isolation_level=None) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.execute("PRAGMA journal_mode = DELETE")
    db.close()
    data = place.read_bytes()
    assert b"CREATE TABLE file" in data
    place.write_bytes(data.replace(b"CREATE TABLE file", b"CREAT\xeb TABLE fil\xeb"))
    all_well(("status",), ("scan",))


@pytest.mark.parametrize("table", ["look", "file", "parent", "total", "window", "spend", "twin"])
def test_values_of_any_type_in_the_index(home: Path, table: str) -> None:
    all_well()
    place = home / "segue" / "sessions.db"
    values = ("text", 1.5, b"\xff\xfe", 2**63 - 1, -1, "{", "[[1]]", "[1, null]")
    with sqlite3.connect(place, isolation_level=None) as db:
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
    db.close()
    for number, column in enumerate(columns):
        db = sqlite3.connect(place, isolation_level=None)
        with suppress(sqlite3.IntegrityError):  # a row's own number
            db.execute(f"UPDATE OR IGNORE {table} SET {column} = ?", (values[number % 8],))
        db.close()
        all_well(("status",), ("show", CANARY), ("scan",), ("fits", "5000", CANARY))


@pytest.mark.parametrize(
    "text",
    [
        "[policy]\nsoft_mark = " + "9" * 5_000,
        "[policy]\nstall_s = 0x" + "f" * 5_000,
        "[policy]\nstall_s = inf",
        "[policy]\nhard_mark = nan",
        "[policy]\nstall_s = 1e999",
        "[policy]\nname = " + "[" * 3_000,
        "[policy]\nquiet = 9999-99-99",
        "[homes]\nclaude = [" + "1" * 5_000 + "]",
        "x = " + "[" * 2_000 + "]" * 2_000,
    ],
    ids=lambda text: text[:24],
)
@pytest.mark.parametrize("where", ["segue/config.toml", ".segue.toml"])
def test_an_invalid_number_in_a_config_file_is_one_line(home: Path, where: str, text: str) -> None:
    file = home / where
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    words = ("config", "show") if where.startswith(".") else ("status",)
    ended = segue(*words)
    assert not ended.faults
    assert ended.code == 2
    assert len(ended.err.splitlines()) == 1, ended.err
    assert where in ended.err
    assert len(ended.err) < 600


def test_a_file_that_cannot_be_read_is_a_line_of_the_table(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = claude_session(home, prompt(), reply(1, 50_000))
    real = os.open

    def refuse(path: object, *given: object, **more: object) -> int:
        if path == str(bad):
            raise PermissionError(13, "Permission denied", str(bad))
        return real(path, *given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refuse)
    status, listed = all_well(("status",), ("status", "--json"))
    (line,) = [line for line in status.out.splitlines() if "unreadable" in line]
    assert "permission denied" in line
    found = {s["session_id"]: s["unreadable"] for s in json.loads(listed.out)["sessions"]}
    assert found == {CANARY: None, bad.stem: "permission denied"}


def test_an_internal_error_about_one_session_is_a_line_of_the_table(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from segue.sessions import survey
    from segue.sessions.look import look as real

    bad = claude_session(home, prompt(), reply(1, 50_000))

    def broken(file: object, *given: object) -> object:
        if getattr(file, "path", "") == str(bad):
            raise KeyError("\x1b[2Jboom")
        return real(file, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(survey, "look", broken)
    status = all_well(("status",))[0]
    (line,) = [line for line in status.out.splitlines() if "unreadable" in line]
    assert "internal error: KeyError" in line


@pytest.mark.parametrize(
    "cwd", ["/" + "n" * 1_000, "/p/" * 1_000, "/\0", "not/absolute", "/proc/1/x"]
)
def test_a_folder_that_cannot_be(home: Path, cwd: str) -> None:
    claude_session(home, prompt(cwd=cwd), reply(1, 50_000, at=time.time(), cwd=cwd))
    status = all_well()[0]
    assert "unreadable" not in status.out
    assert "25%" in status.out or "5%" in status.out


def test_files_that_are_mostly_a_hole(home: Path) -> None:
    folder = home / ".claude" / "projects" / "-p"
    folder.mkdir(parents=True, exist_ok=True)
    for number, tail in enumerate((b"", b"\n" + reply(7, 70_000, at=time.time()).encode() + b"\n")):
        with (folder / f"{number}0000000-2222-4333-8444-555555555555.jsonl").open("wb") as file:
            file.truncate(10 << 30)
            file.seek(10 << 30)
            file.write(tail)
    before = bytes_read()
    done = all_well(("scan", "--json"), ("status",))
    assert bytes_read() - before < 1 << 30  # of twenty gigabytes
    models = {t["model"]: t["output"] for t in json.loads(done[0].out)["totals"]}
    assert models["claude-sonnet-4-5"] == 80  # the line after the hole is counted too
    shutil.rmtree(folder)
