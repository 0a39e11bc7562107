"""A fleet's database that cannot be used, and what else goes wrong: one clear line each, without a
password, and the task is kept."""

import os
import random
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner
from support.fleet.machines import SEGUE, why_not
from support.fleet.postgres import Postgres, postgres
from support.playing import missing

import segue.fleet
from segue.cli import cli
from segue.fleet.database import FleetDatabase
from segue.fleet.queue import PostgresQueue
from segue.testing.queues import MANY, START, make_holder, make_task

MIGRATIONS = Path(segue.fleet.__file__).parent / "migrations"
PASSWORD = "hunter2-hunter2"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def server(port: int) -> Iterator[Postgres]:
    with postgres() as found:
        found.stop()
        rules = found.folder / "data" / "pg_hba.conf"
        rules.write_text("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n")
        found.start("listen_addresses=127.0.0.1", f"port={port}")
        with psycopg.connect(f"{found.url()}&port={port}", autocommit=True) as db:
            db.execute(f"ALTER ROLE {found.user} PASSWORD '{PASSWORD}'".encode())
        yield found


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "home" / "segue"
    place.mkdir(parents=True, exist_ok=True)
    (place / "config.toml").write_text(
        '[run]\nagent = "mine"\n[agents.mine]\ncommand = ["sh", "-c", "{prompt}"]\n'
    )
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def complains(url: str, monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    monkeypatch.setenv("SEGUE_FLEET", url)
    for words_ in (words or ("fleet", "status"), ("queue",), ("submit", "--here", "x")):
        done = CliRunner().invoke(cli, words_)
        assert done.exit_code == 2, (words_, done.output, done.exception)
        assert PASSWORD not in done.output
        (line,) = done.output.strip().splitlines()
    return str(line)


def test_what_cannot_be_reached_or_let_in_is_one_line_with_what_to_do(
    server: Postgres, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = free_port()
    for url, said, do in (
        (server.tcp_url(nobody, password=PASSWORD), "Connection refused", "to check: segue doctor"),
        (server.tcp_url(port, password="wrong"), "password authentication failed", "~/.pgpass"),
        (server.tcp_url(port), "no password supplied", "~/.pgpass"),
        (
            server.tcp_url(port, password=PASSWORD, more="?sslmode=require"),
            "does not support SSL",
            "sslmode in url",
        ),
        ("postgresql://[", "", ""),
    ):
        told = complains(url, monkeypatch)
        assert "the fleet's database cannot be used" in told or "fleet" in told
        assert said in told
        assert do in told


def test_a_role_that_may_not_make_the_tables_is_told_who_must(
    server: Postgres, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = server.tcp_url(port, password=PASSWORD)
    with psycopg.connect(owner, autocommit=True) as db:
        db.execute(b"DROP SCHEMA IF EXISTS segue CASCADE")
        db.execute(b"CREATE ROLE small LOGIN PASSWORD 'small'")
    small = server.tcp_url(port, "small", "small")
    told = complains(small, monkeypatch)
    assert "has no segue tables yet, this segue needs version 5, and this role may not" in told
    assert "once as their owner: segue fleet status" in told
    FleetDatabase(owner).close()
    assert "permission denied" in complains(small, monkeypatch)


def old_form(url: str) -> None:
    """A database of the first segue that had one."""
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(b"DROP SCHEMA IF EXISTS segue CASCADE; CREATE SCHEMA segue")
        db.execute(b"CREATE TABLE segue.meta (name text PRIMARY KEY, value int NOT NULL)")
        db.execute(b"INSERT INTO segue.meta VALUES ('form', 1), ('protocol', 1)")
        db.execute((MIGRATIONS / "0001_start.sql").read_bytes())


def test_an_old_form_is_brought_up_to_date_with_its_tasks_and_what_an_old_segue_writes_counts(
    server: Postgres, port: int
) -> None:
    url = server.tcp_url(port, password=PASSWORD)
    with PostgresQueue(url) as queue:
        queue.rows("DELETE FROM segue.task")
        queue.submit([make_task()])
        ((data, place),) = queue.rows("SELECT data, place FROM segue.task")
    old_form(url)
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(
            "INSERT INTO segue.task (id, state, is_over, place, data)"
            " VALUES ('task-1', 'queued', false, %s, %s)",
            (place, data),
        )
        with PostgresQueue(url) as queue:
            assert [task.id for task in queue.tasks()] == ["task-1"]
            assert [task.id for task in queue.upcoming("m", START)] == ["task-1"]
            one, two = make_holder(1, machine="m"), make_holder(2, machine="m")
            assert queue.claim("task-1", one, START, agent="a", account="a", caps=MANY)
            # An old one does not say which machine holds it.
            db.execute("UPDATE segue.task SET holder_machine = NULL")
            assert [task.id for task in queue.upcoming("other", START)] == ["task-1"]
            db.execute("UPDATE segue.meta SET value = 99 WHERE name = 'form'")
            assert two != one
    with PostgresQueue(url) as queue:  # newer tables that speak the same protocol
        assert [task.id for task in queue.tasks()] == ["task-1"]
        queue.rows("DROP SCHEMA segue CASCADE")


def test_a_repository_that_cannot_be_reached_keeps_the_task_and_says_why(
    server: Postgres, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEGUE_FLEET", server.tcp_url(port, password=PASSWORD))
    done = CliRunner().invoke(cli, ("submit", "--repo", "file:///nowhere/at/all", "true"))
    assert done.exit_code == 0, done.output
    task = done.stdout.strip().splitlines()[0]
    with PostgresQueue(server.tcp_url(port, password=PASSWORD)) as queue:
        lease = queue.claim(
            task, make_holder(1, machine="m"), START, agent="mine", account="mine", caps=MANY
        )
        assert lease is not None
        done = CliRunner().invoke(cli, ("worker", "--task", task, "--epoch", str(lease.epoch)))
        assert done.exit_code == 0, (done.output, done.exception)
        kept = queue.task(task)
        assert kept is not None
        assert (kept.state.value, queue.holder(task)) == ("queued", None)
        assert kept.why.startswith("file:///nowhere/at/all: ")
        assert "\n" not in kept.why
        told = CliRunner().invoke(cli, ("queue",)).output
        assert f"{task} could not continue: {kept.why}; segue retries it\n" in told
        assert f"\n  segue queue cancel {task}  # to give up\n" in told
        queue.rows("DROP SCHEMA segue CASCADE")


def test_a_full_disk_on_a_worker_keeps_the_task_and_says_so(
    server: Postgres, port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason := why_not():
        missing(reason)
    url = server.tcp_url(port, password=PASSWORD)
    monkeypatch.setenv("SEGUE_FLEET", url)
    repo, trees = tmp_path / "repo", tmp_path / "home" / "segue" / "trees"
    repo.mkdir()
    trees.mkdir()
    (repo / "big").write_bytes(random.Random(1).randbytes(1_000_000))
    who = ("-c", "user.name=me", "-c", "user.email=me@example.invalid")
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-qm", "first")):
        subprocess.run(["git", *who, *words], cwd=repo, check=True)
    done = CliRunner().invoke(cli, ("submit", "--repo", f"file://{repo}", "true"))
    task = done.stdout.strip().splitlines()[0]
    with PostgresQueue(url) as queue:
        lease = queue.claim(
            task, make_holder(1, machine="m"), START, agent="mine", account="mine", caps=MANY
        )
        assert lease is not None
        inside = 'mount -t tmpfs -o size=200k none "$0" && "$@"'
        carry = (*SEGUE, "worker", "--task", task, "--epoch", str(lease.epoch))
        ran = subprocess.run(
            ["unshare", "--mount", "sh", "-c", inside, str(trees), *carry],
            env={**os.environ, "SEGUE_HOME": str(trees.parent)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        kept = queue.task(task)
        assert kept is not None
        assert (kept.state.value, queue.holder(task)) == ("queued", None)
        assert f"{trees}/{task}: no space left there" in kept.why
        queue.rows("DROP SCHEMA segue CASCADE")
