"""What docs/fleet.md tells admins to type, typed: roles with as few rights as will do, backup and
restore, updates while machines are at work."""

import json
import os
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import psycopg
import pytest
from click.testing import CliRunner
from support.fleet.machines import SEGUE
from support.fleet.postgres import Postgres, postgres
from support.waiting import until

import segue.fleet
from segue.cli import cli
from segue.core.queue.types import TaskState
from segue.fleet import database
from segue.fleet.database import FleetDatabase

DOCS = Path(__file__).parents[2] / "docs" / "fleet.md"
MIGRATIONS = Path(segue.fleet.__file__).parent / "migrations"
COMMAND = json.dumps(["sh", "-c", 'eval "$0"', "{prompt}"])
AGENT = f'[run]\nagent = "mine"\n[agents.mine]\ncommand = {COMMAND}\n'
LONG_S = 90.0


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", DOCS.read_text(), re.S)


class Fleet:
    """A server with the roles of the docs."""

    def __init__(self, server: Postgres, port: int) -> None:
        self.server, self.port = server, port
        self.admin = f"postgresql://{server.user}@/segue?host={server.folder}&port={port}"
        self.owner = self._url("segue", "choose%20one")
        self.worker = self._url("segue_worker", "another")

    def _url(self, user: str, password: str) -> str:
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/segue"

    def old_form(self, number: int) -> None:
        """A database as an earlier segue made it."""
        with psycopg.connect(self.owner, autocommit=True) as db:
            db.execute(b"CREATE SCHEMA segue")
            db.execute(b"CREATE TABLE segue.meta (name text PRIMARY KEY, value int NOT NULL)")
            sql = "INSERT INTO segue.meta VALUES ('form', %s), ('protocol', 1)"
            db.execute(sql, (number,))
            for script in sorted(MIGRATIONS.glob("*.sql"))[:number]:
                db.execute(script.read_bytes())


@pytest.fixture(scope="module")
def made() -> Iterator[Fleet]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = int(found.getsockname()[1])
    with postgres() as server:
        server.stop()
        (server.folder / "data" / "pg_hba.conf").write_text(
            "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
        )
        server.start("listen_addresses=127.0.0.1", f"port={port}")
        admin = f"{server.url()}&port={port}"
        with psycopg.connect(admin, autocommit=True) as db:
            for statement in blocks("sql")[0].split(";")[:-1]:  # no database within a transaction
                db.execute(statement.encode())
        yield Fleet(server, port)


@pytest.fixture
def fleet(made: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    with psycopg.connect(made.admin, autocommit=True) as db:
        db.execute(b"DROP SCHEMA IF EXISTS segue CASCADE")
        for (role,) in db.execute("SELECT 1 FROM pg_roles WHERE rolname = 'segue_worker'"):
            assert role == 1
            db.execute(b"DROP OWNED BY segue_worker; DROP ROLE segue_worker")
    home = tmp_path / "home" / "segue"
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.toml").write_text(AGENT)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SEGUE_FLEET", made.owner)
    monkeypatch.chdir(tmp_path)
    return made


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    who = ("-c", "user.name=me", "-c", "user.email=me@example.invalid")
    (folder / "a.txt").write_text("one\n")
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-qm", "first")):
        subprocess.run(["git", *who, *words], cwd=folder, check=True)
    return folder


def segue_(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == code, (done.output, done.exception)
    return done.output


def submit(repo: Path, text: str) -> str:
    told = segue_("submit", "--json", "--repo", str(repo), text)
    (task,) = json.loads(told.splitlines()[-1])["tasks"]
    return str(task)


def work(url: str) -> None:
    env = {**os.environ, "SEGUE_FLEET": url}
    done = subprocess.run(
        [*SEGUE, "worker", "--until-empty"], env=env, capture_output=True, text=True, check=False,
        timeout=LONG_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def state(task: str) -> str:
    tasks = json.loads(segue_("queue", "--json"))["tasks"]
    return str({each["task"]: each["state"] for each in tasks}[task])


def test_the_roles_of_the_docs_let_a_worker_work_and_change_no_table_also_after_an_update(
    fleet: Fleet, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.old_form(1)
    with psycopg.connect(fleet.admin, autocommit=True) as db:
        db.execute(blocks("sql")[1].encode())
    monkeypatch.setenv("SEGUE_FLEET", fleet.worker)
    (line,) = segue_("queue", code=2).strip().splitlines()
    newest = len(list(MIGRATIONS.glob("*.sql")))
    assert f"has tables of version 1, this segue needs version {newest}" in line
    assert line.endswith("once as their owner: segue fleet status")
    monkeypatch.setenv("SEGUE_FLEET", fleet.owner)
    segue_("fleet", "status")
    monkeypatch.setenv("SEGUE_FLEET", fleet.worker)
    task = submit(repo, "echo two >> a.txt; echo done")
    work(fleet.worker)
    assert state(task) == "done"
    run = json.loads(segue_("runs", "--json"))["runs"][0]["run"]
    assert "done" in segue_("logs", run, "--transcript")
    segue_("queue", "forget", submit(repo, "true"), code=2)
    with psycopg.connect(fleet.worker, autocommit=True) as db:
        for sql in (
            b"DROP TABLE segue.task",
            b"ALTER TABLE segue.task ADD COLUMN x int",
            b"TRUNCATE segue.event",
            b"CREATE TABLE segue.mine (x int)",
            b"DROP SCHEMA segue CASCADE",
            b"CREATE ROLE another",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                db.execute(sql)


def test_after_a_restore_as_the_docs_say_the_queue_continues_and_nothing_done_since_is_lost(
    fleet: Fleet, repo: Path, tmp_path: Path
) -> None:
    first = submit(repo, "echo a > a.txt")
    work(fleet.owner)
    again, later = (submit(repo, f"echo {name} > {name}.txt") for name in "bc")
    dump, *_ = script = blocks("sh")
    assert "pg_dump" in dump
    env = {
        **os.environ,
        "SEGUE_FLEET": fleet.owner,
        "PATH": f"{fleet.server.bin}:{os.environ['PATH']}",
    }

    def types(text: str) -> None:
        done = subprocess.run(
            ["sh", "-e", "-c", text], cwd=tmp_path, env=env, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    types(dump)
    work(fleet.owner)  # the others are done after the backup
    assert [state(name) for name in (first, again, later)] == ["done"] * 3
    before = _branches(repo)
    (restore,) = [each for each in script if "pg_restore" in each]
    types(restore)
    assert [state(name) for name in (first, again, later)] == ["done", "queued", "queued"]
    work(fleet.owner)
    assert [state(name) for name in (first, again, later)] == ["done"] * 3
    # What those tasks had done before is kept beside.
    heads = set(_branches(repo).values())
    assert set(before.values()) <= heads


def _branches(repo: Path) -> dict[str, str]:
    words = ["git", "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads/segue/"]
    said = subprocess.run(words, cwd=repo, capture_output=True, text=True, check=True).stdout
    return dict(line.split() for line in said.splitlines())


def test_a_newer_form_is_made_while_an_older_segue_is_at_work_and_both_continue(
    fleet: Fleet, repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FleetDatabase(fleet.owner).close()
    hold = tmp_path / "hold"
    hold.touch()
    task = submit(repo, f"while [ -e {hold} ]; do sleep 0.1; done; echo x > x.txt")
    worker = subprocess.Popen([*SEGUE, "worker", "--until-empty"])
    try:
        until(lambda: state(task) == "running")
        until(lambda: json.loads(segue_("runs", "--json"))["runs"])
        # A newer segue: one more form, which changes a table that the worker has in use.
        newer = tmp_path / "migrations"
        newer.mkdir()
        for script in MIGRATIONS.glob("*.sql"):
            (newer / script.name).write_bytes(script.read_bytes())
        number = len(list(newer.iterdir())) + 1
        (newer / f"{number:04}_later.sql").write_text(
            "ALTER TABLE segue.task ADD COLUMN later text; CREATE TABLE segue.later (x int);"
        )
        monkeypatch.setattr(database, "_MIGRATIONS", str(newer))
        with FleetDatabase(fleet.owner) as db:
            assert db.rows("SELECT value FROM segue.meta WHERE name = 'form'") == [(number,)]
        hold.unlink()
        assert worker.wait(LONG_S) == 0
        assert state(task) == TaskState.DONE.value
    finally:
        worker.kill()
        worker.wait()


def test_a_protocol_that_is_too_new_is_refused_in_one_line_and_by_a_worker_at_work_too(
    fleet: Fleet, repo: Path
) -> None:
    task = submit(repo, "true")
    with psycopg.connect(fleet.owner, autocommit=True) as db:
        db.execute(b"UPDATE segue.meta SET value = 2 WHERE name = 'protocol'")
        for words in (("queue",), ("submit", "--here", "x"), ("worker", "--until-empty")):
            (line,) = segue_(*words, code=2).strip().splitlines()
            assert "the fleet speaks protocol 2, this segue 1; update segue" in line
        db.execute(b"UPDATE segue.meta SET value = 1 WHERE name = 'protocol'")
    assert state(task) == "queued"  # kept


@pytest.mark.parametrize("page", ["fleet.md", "queue.md"])
def test_every_command_that_the_pages_name_is_one_with_such_options(page: str) -> None:
    text = (DOCS.parent / page).read_text()
    named = re.findall(r"`(segue [^`]*)`", text)
    for block in re.findall(r"```sh\n(.*?)```", text, re.S):
        named += re.findall(r"^(segue .*)$", block, re.M)
    assert len(named) > 5
    for line in named:
        words = " ".join(line.split()).replace("…", "").split()[1:]
        group: click.Command = cli
        while words and not words[0].startswith("-") and isinstance(group, click.Group):
            name = words.pop(0).split("|")[0]
            found = group.get_command(click.Context(group), name)
            assert found is not None, line
            group = found
        known = {option for each in group.params for option in each.opts}
        for word in words[: words.index("--") if "--" in words else None]:
            option = re.match(r"\[?(--?[a-z][a-z-]*)", word)
            assert option is None or option[1] in known, (line, option[1])
