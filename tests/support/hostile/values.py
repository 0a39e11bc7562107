"""Hostile values in every field that comes from outside, and segue's commands run on them.

Sessions are made from the real recordings: in each copy one leaf of one record is another value.
The copies of all agents lie in one home, so one command reads hundreds of them at once.
"""

import gc
import io
import json
import os
import random
import re
import sqlite3
import sys
import tempfile
import traceback
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from conftest import lines

from support.homes import OpencodeDb

FORGED = "FORGED-LINE"
ESCAPES = "\x1b[2J\x1b]52;c;ZXZpbA==\x07\x1bPx\x1b\\\x9b31m\x9d0;t\x9c\x1bc\x08\x07\x7f\x85\x00"
INVISIBLE = "a\u202eb\u2066c\u200bd\ufeffe\u2028f"

_RAW = "@@raw:"
DEEP = "[" * 3_000 + "]" * 3_000
VALUES: dict[str, Any] = {
    "escapes": ESCAPES,
    "invisible": INVISIBLE,
    "surrogate": "x\ud800y\udcffz",
    "lines": f"a\n{FORGED}\r\n{FORGED}\r{FORGED}\u2028{FORGED}",
    "markup": "[bold red]x[/bold red][link=file:///etc]y[/link]:skull:{0}%s$HOME",
    "empty": "",
    "long": "long " * 200_000,
    "date": "99999-12-31T23:59:59Z",
    "first day": "0001-01-01T00:00:00+14:00",
    "last day": "9999-12-31T23:59:59-14:00",
    "digits": "9" * 5_000,
    "hex": "0x" + "f" * 5_000,
    "big": _RAW + "9" * 5_000,
    "64 bits": _RAW + str(2**63),
    "millions": _RAW + "1" + "0" * 300,
    "infinite": _RAW + "1e999",
    "infinity": _RAW + "Infinity",
    "not a number": _RAW + "NaN",
    "tiny": _RAW + "5e-324",
    "negative": -1,
    "negative big": -(2**70),
    "far": 253_402_300_800_000,
    "fraction": 0.5,
    "true": True,
    "null": None,
    "list": [1, "x", None],
    "object": {"a": {"b": [1]}},
    "text": "twelve",
    "deep": _RAW + DEEP,
}

RAW = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
)
"""What no output may hold."""


def encode(record: Any) -> str:
    """JSON, with what `json` would not write."""
    return re.sub(rf'"{_RAW}([^"]*)"', r"\1", json.dumps(record))


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each leaf, and to each object and list too: they may be anything as well."""
    if path:
        yield path
    inner = (
        value.items() if isinstance(value, dict)
        else enumerate(value[:3]) if isinstance(value, list) else ()
    )  # fmt: skip
    for key, each in inner:
        yield from leaves(each, (*path, key))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy with something else at that place."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(copy[path[0]], path[1:], new)
    return copy


@dataclass(frozen=True)
class Case:
    """One value at one place of one agent's records."""

    agent: str
    place: str
    value: str
    text: str  # the session, with the id that `session` is
    session: str


def _places(agent: str) -> list[tuple[list[Any], int, tuple[Any, ...]]]:
    """Each kind of place once: the records of a run, which of them, and the way to it."""
    found: dict[tuple[Any, ...], tuple[list[Any], int, tuple[Any, ...]]] = {}
    for run in lines(f"recordings/{agent}.jsonl"):
        text = run.get("transcript", "")
        if not 0 < len(text) < 40_000:
            continue
        records = _parsed(text)
        for number, record in enumerate(records):
            kind = (record.get("type"), record.get("table")) if isinstance(record, dict) else ""
            for path in leaves(record):
                name = (kind, *("#" if isinstance(key, int) else key for key in path))
                found.setdefault(name, (records, number, path))
    return list(found.values())


def _parsed(text: str) -> list[Any]:
    try:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError:
        return [json.loads(text)]


def cases(agent: str, count: int, seed: int = 1) -> list[Case]:
    """A sample of places and values, the same for the same seed; every value, and as many places
    as there can be."""
    draw = random.Random(f"{agent}{seed}")
    places = _places(agent)
    draw.shuffle(places)
    names = list(VALUES)
    draw.shuffle(names)
    found = []
    for number in range(count):
        records, which, path = places[number % len(places)]
        value = names[(number + number // len(places)) % len(names)]
        if value == "long" and number % 5:
            value = "lines"
        given = [
            changed(each, path, VALUES[value]) if place == which else each
            for place, each in enumerate(records)
        ]
        place = ".".join(map(str, (which, *path)))
        found.append(_case(agent, place, value, given, draw))
    return found


def _case(agent: str, place: str, value: str, records: list[Any], draw: random.Random) -> Case:
    text = "\n".join(map(encode, records)) + "\n"
    session = str(uuid.UUID(int=draw.getrandbits(128)))
    for old in dict.fromkeys(re.findall(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", text)):
        text = text.replace(old, session)  # the first is the session's, and the others do no harm
    return Case(agent, place, value, text, session)


PATHS = {
    "claude": ".claude/projects/-p/{id}.jsonl",
    "codex": ".codex/sessions/2026/11/15/rollout-2026-11-15T18-17-41-{id}.jsonl",
    "gemini": ".gemini/tmp/p/chats/session-2026-{id}.jsonl",
    "pi": ".pi/agent/sessions/--p--/2026-11-15T19-03-29-991Z_{id}.jsonl",
    "qwen": ".qwen/projects/p/chats/{id}.jsonl",
}


def plant(home: Path, case: Case) -> Path:
    """Writes a case where its agent would have it."""
    file = home / PATHS[case.agent].format(id=case.session)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(case.text)
    return file


SQL_VALUES: tuple[Any, ...] = (
    "twelve", "", None, float("inf"), float("-inf"), -1, 2**63 - 1, 1e300, b"\xff\x00blob",
    ESCAPES, INVISIBLE, VALUES["lines"], "{", DEEP, "9" * 5_000, '{"id": 5}', "null",
    json.dumps({"id": ESCAPES, "providerID": [1]}), '{"role":"assistant","tokens":{"input":1e999}}',
)  # fmt: skip


def plant_opencode(home: Path, at: float, count: int, seed: int = 1) -> None:
    """A database whose columns are of any type, with other values inside the JSON too."""
    db = OpencodeDb(home / ".local/share/opencode/opencode.db")
    script = db.db.execute("SELECT sql FROM sqlite_master WHERE type = 'table'").fetchall()
    for (sql,) in script:  # as damaged and as other versions have them: no column must be anything
        name = sql.split()[2]
        db.db.execute(f"DROP TABLE {name}")
        db.db.execute(sql.replace("NOT NULL", ""))
    draw = random.Random(f"opencode{seed}")
    places = [
        (table, column[1])
        for table in ("session", "message", "part", "todo")
        for column in db.db.execute(f"PRAGMA table_info({table})").fetchall()
    ]
    for number in range(count):
        name = f"ses_{number:04}"
        db.session(name, f"/q/{number}", at)
        db.message(f"msg_u{number}", name, at, role="user")
        db.answer(number, name, at + 1, 30_000)
        row = (name, "todo", "pending", "high", 1, 1, 1)
        db.db.execute("INSERT INTO todo VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        table, column = places[number % len(places)]
        value = SQL_VALUES[(number + number // len(places)) % len(SQL_VALUES)]
        key = "id" if table == "session" else "session_id"
        if column == "data" and number % 2:
            value = _changed_data(db, table, name, draw) or value
        _set(db, f"UPDATE {table} SET {column} = ? WHERE {key} = ?", value, name)
    db.session("ses_canary", "/q/canary", at)
    db.answer(9_999, "ses_canary", at + 2, 40_000)
    db.db.close()


def _set(db: OpencodeDb, sql: str, value: Any, name: str) -> None:
    with suppress(sqlite3.IntegrityError, UnicodeEncodeError):  # a second row of that name
        db.db.execute(sql, (value, name))


def _changed_data(db: OpencodeDb, table: str, session: str, draw: random.Random) -> str:
    row = db.db.execute(
        f"SELECT data FROM {table} WHERE session_id = ? ORDER BY random() LIMIT 1", (session,)
    ).fetchone()
    if row is None:
        return ""
    record = json.loads(row[0])
    path = draw.choice(list(leaves(record)))
    return encode(changed(record, path, VALUES[draw.choice(list(VALUES))]))


FRONTS = {
    "hex": "lastStep: 0x" + "f" * 5_000,
    "binary": "totalSteps: 0b" + "1" * 20_000,
    "sexagesimal": "lastStep: " + ":".join(["59"] * 3_000),
    "octal": "totalSteps: 0" + "7" * 9_000,
    "many": "totalSteps: 1000000000",
    "infinite": "totalSteps: .inf\nlastStep: .nan",
    "date": "lastStep: 2026-99-99\nstatus: 9999-12-31T23:59:59.999999-23:59",
    "bad date": "status: 2026-02-31 25:61:61\nlastStep: 1",
    "bomb": "a: &a [x, x, x, x, x, x, x, x, x]\n"
    + "\n".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 9)}]" for n in range(12)
    )
    + "\nstepsCompleted: *m",
    "loop": "stepsCompleted: &a [*a, 1]",
    "merge": "a: &a\n  <<: *a\nstepsCompleted: [1]",
    "merge bomb": "a: &a {x: 1, y: 2, z: 3}\n"
    + "\n".join(
        f"{chr(98 + n)}: &{chr(98 + n)} {{<<: [{', '.join([f'*{chr(97 + n)}'] * 9)}]}}"
        for n in range(12)
    )
    + "\nstepsCompleted: [1]\nlastStep: 1",
    "tag": "stepsCompleted: !!python/object/apply:os.system ['true']",
    "key": "? [1, 2]\n: x\nstepsCompleted: [1]",
    "unhashable": "? {a: b}\n: x\n? [[]]\n: y\nlastStep: 1",
    "deep": "stepsCompleted: " + "[" * 3_000 + "]" * 3_000,
    "base64": "stepsCompleted: [!!binary '====']\nlastStep: !!binary 'x'",
    "null key": "~: 1\n1: 2\ntrue: 3\nstepsCompleted: [~, true, 1.5, 1]",
    "escapes": 'stepsCompleted: ["\\e[2J\\x9b31m"]\nstatus: "\\e]52;c;eA==\\a"',
    "surrogate": 'stepsCompleted: ["\\ud800"]\nlastStep: 1',
    "control": "stepsCompleted: [\x07]\nlastStep: 1",
    "int": "totalSteps: !!int '0x'\nlastStep: 1",
    "float": "totalSteps: !!float 'x'\nlastStep: 1",
    "timestamp": "lastStep: !!timestamp 'x'\nstepsCompleted: []",
    "set": "stepsCompleted: !!set {a, b}\ntotalSteps: !!omap [a: 1]",
    "pairs": "totalSteps: !!pairs [a]\nlastStep: 1",
}


def plant_markdown(home: Path) -> None:
    folder = home / ".opencode" / "work"
    folder.mkdir(parents=True, exist_ok=True)
    for name, front in FRONTS.items():
        text = f"---\n{front}\n---\n# Notes\nToken usage: 63153/200000; 136847 remaining\n"
        (folder / f"{name.replace(' ', '-')}.md").write_text(text, errors="surrogatepass")
    more = "Token usage: " + "9" * 5_000 + "/200000; 1 remaining\nContext: 9e999% (1/0 tokens)\n"
    (folder / "tokens.md").write_text(f"---\nstepsCompleted: [1]\ntotalSteps: 3\n---\n{more}")


def plant_files(home: Path) -> None:
    """Things that lie where session files are expected, and are none."""
    for agent, pattern in PATHS.items():
        base = (home / pattern.format(id="x")).parent
        base.mkdir(parents=True, exist_ok=True)
        name = "rollout-2026-11-15T18-17-41-" if agent == "codex" else ""
        ids = iter(f"{n:08x}-aaaa-4bbb-8ccc-00000000{len(agent):04}" for n in range(100))

        def place(base: Path = base, name: str = name, ids: Iterator[str] = ids) -> Path:
            return base / f"{name}{next(ids)}.jsonl"

        place().mkdir()
        os.mkfifo(place())
        place().write_bytes(b"")
        place().write_bytes(b"\xff\xfe" * 500 + b"\n")
        place().write_bytes(b"\0" * 4096)
        loop = place()
        loop.symlink_to(loop.name)
        place().symlink_to("/dev/zero")
        place().symlink_to("/dev/tty")
        place().symlink_to("/nowhere")
        with place().open("wb") as file:
            file.truncate(int(os.environ.get("SPARSE", 10 << 30)))  # sparse
        place().write_bytes(b"[" * 100_000 + b"\n")
        (base / "circle").symlink_to("..")
        (base / f"{name}new\nline \x1b[2J {FORGED}.jsonl").write_text("{}\n")
        (Path(os.fsdecode(os.fsencode(base) + b"/bad\xff\xfename.jsonl"))).write_text("{}\n")


@dataclass(frozen=True)
class Ended:
    """What a command came to."""

    words: tuple[str, ...]
    code: int
    out: str
    err: str

    @property
    def faults(self) -> list[str]:
        """What must not be, in a few words each; none if all is well."""
        found = []
        text = self.out + self.err
        if "Traceback (most recent call last)" in text:
            found.append(f"traceback: {text[text.index('Traceback') :][-3_000:]}")
        if raw := RAW.search(text):
            found.append(f"raw {raw[0]!r} in {text[max(0, raw.start() - 60) : raw.end() + 20]!r}")
        if forged := [line for line in text.splitlines() if line.startswith(FORGED)]:
            found.append(f"a line of its own: {forged[0][:200]!r}")
        if self.code not in (0, 1, 2):
            found.append(f"exit code {self.code}")
        if "--json" in self.words and self.code == 0:
            try:
                for line in self.out.splitlines():
                    json.loads(line, parse_constant=_no_constant)
            except ValueError as fault:
                found.append(f"not JSON: {fault}")
        return [f"segue {' '.join(self.words)}: {each}" for each in found]


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


class _Given(io.TextIOWrapper):
    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data), "utf-8", "surrogateescape")


def segue(*words: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Ended:
    """`segue …` in this process, from the same start as the program's."""
    from segue.start import main

    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n") as out,
        tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n", errors="backslashreplace")
        as err,
        mock.patch.dict(os.environ, env or {}),
        mock.patch.object(sys, "argv", ["segue", *words]),
        mock.patch.object(sys, "stdin", _Given(stdin)),
        mock.patch.object(sys, "stdout", out),
        mock.patch.object(sys, "stderr", err),
        mock.patch.object(sys, "excepthook", sys.excepthook),
    ):  # fmt: skip
        code: Any = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code
        except BaseException:
            err.write(traceback.format_exc())
            code = 1
        gc.collect()  # a process that ends closes its files; here a thousand commands share one
        for stream in (out, err):
            stream.flush()
            stream.seek(0)
        return Ended(words, code if isinstance(code, int) else 1, out.read(), err.read())


@contextmanager
def home_of(folder: Path) -> Iterator[None]:
    """A private world for commands in this process."""
    names = ("XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "NO_COLOR", "COLUMNS")
    with mock.patch.dict(os.environ, {"HOME": str(folder), "SEGUE_HOME": str(folder / "segue")}):
        for name in names:
            os.environ.pop(name, None)
        before = os.getcwd()
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)
