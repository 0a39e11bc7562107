"""The store's and the queue's contracts, on a real PostgreSQL."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.fleet.postgres import Postgres, postgres

from segue.core.queue.types import Caps
from segue.errors import StateError
from segue.fleet import machines
from segue.fleet.queue import PostgresQueue, must_hold
from segue.fleet.store import PostgresStore
from segue.queue.port import Queue
from segue.runs.store.port import Holder, IsAlive, LeaseLost, Store
from segue.testing.queues import MANY, START, QueueTests, claim, make_holder, make_task
from segue.testing.stores import Driver, StoreTests, make_run


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as found:
        yield found


class _Places:
    """Empty tables for each test; all connections are closed at its end."""

    @pytest.fixture(autouse=True)
    def database(self, server: Postgres) -> Iterator[None]:
        server.sql("DROP SCHEMA IF EXISTS segue CASCADE")
        self.url = server.url()
        self.opened: list[PostgresQueue | PostgresStore] = []
        yield
        for each in self.opened:
            each.close()


class TestQueue(_Places, QueueTests):
    def open(self, folder: Path, is_alive: IsAlive) -> Queue:
        found = PostgresQueue(self.url, is_alive=is_alive)
        self.opened.append(found)
        return found


class TestStore(_Places, StoreTests):
    def open(self, folder: Path, is_alive: IsAlive) -> Store:
        found = PostgresStore(self.url, machine="m", is_alive=is_alive)
        self.opened.append(found)
        return found

    def test_a_run_of_a_newer_segue_hides_no_other(self, store: Store, server: Postgres) -> None:
        for name in ("run-1", "run-2"):
            Driver(store, make_run(name))
        server.sql(
            "UPDATE segue.row SET data = convert_to(replace(convert_from(data, 'UTF8'),"
            " '\"starting\"', '\"dreaming\"'), 'UTF8') WHERE kind = 'snapshot' AND run = 'run-2'"
        )
        assert [run.id for run in store.runs()] == ["run-1"]
        with pytest.raises(StateError, match="newer segue"):
            store.run("run-2")


def test_a_database_that_cannot_be_used_is_one_line_without_its_password(server: Postgres) -> None:
    for url, said in (
        ("postgresql://me:hunter2@127.0.0.1:1/none", "cannot be used"),
        (server.url("none"), 'database "none" does not exist'),
        ("postgresql://[", "cannot be used"),
    ):
        with pytest.raises(StateError) as caught:
            PostgresQueue(url)
        assert said in str(caught.value)
        assert "\n" not in str(caught.value)
        assert "hunter2" not in str(caught.value)


def test_a_newer_protocol_is_refused_and_an_older_form_is_brought_up_to_date(
    server: Postgres,
) -> None:
    server.sql("DROP SCHEMA IF EXISTS segue CASCADE")
    with PostgresQueue(server.url()) as queue:
        queue.submit([make_task()])
        queue.rows("UPDATE segue.meta SET value = 99 WHERE name = 'protocol'")
    with pytest.raises(StateError, match="the fleet speaks protocol 99, this segue 1; update"):
        PostgresQueue(server.url())
    server.sql("DROP SCHEMA segue CASCADE")


def test_many_who_open_a_new_database_at_once_make_its_tables_once(server: Postgres) -> None:
    server.sql("DROP SCHEMA IF EXISTS segue CASCADE")
    faults: list[BaseException] = []

    def open_it() -> None:
        try:
            PostgresStore(server.url(), machine="m").close()
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=open_it) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []


def test_a_machine_that_is_silent_for_longer_than_its_lease_has_lost_its_work(
    server: Postgres,
) -> None:
    server.sql("DROP SCHEMA IF EXISTS segue CASCADE")
    far = make_holder(1, machine="far")
    with PostgresQueue(server.url()) as queue:
        assert not machines.is_alive(queue, far)
        machines.beat(queue, "far", lease_s=30)
        assert machines.is_alive(queue, far)
        queue.submit([make_task()])
        assert queue.claim("task-1", far, START, agent="one", account="one", caps=MANY)
        assert claim(queue, pid=2) is None
        queue.rows("UPDATE segue.machine SET beat_at = now() - interval '31 seconds'")
        assert not machines.is_alive(queue, far)
        assert claim(queue, pid=2) is not None
        machines.drain(queue, "far", is_drained=True)
        machines.beat(queue, "far")
        queue.submit([make_task("task-2")])
        assert queue.claim("task-2", far, START, agent="one", account="one", caps=MANY) is None
        (there,) = machines.machines(queue)
        assert (there.id, there.is_drained, there.is_alive) == ("far", True, True)
        machines.forget(queue, "far")
        assert machines.machines(queue) == []


def test_the_places_of_a_lost_machine_are_kept_for_its_tasks_for_a_moment(server: Postgres) -> None:
    server.sql("DROP SCHEMA IF EXISTS segue CASCADE")
    far, near = make_holder(1, machine="far"), make_holder(2)
    caps = Caps(jobs=1_000, max_per_project=1)
    with PostgresQueue(server.url()) as queue:

        def is_claimed(name: str, holder: Holder) -> bool:
            told = queue.claim(name, holder, START, agent="one", account="one", caps=caps)
            return told is not None

        def silent_for(seconds: int) -> None:
            late = "UPDATE segue.machine SET beat_at = now() - make_interval(secs => %s)"
            queue.rows(late, (seconds,))

        machines.beat(queue, "far", lease_s=30)
        queue.submit([make_task("task-1"), make_task("task-2")])
        assert is_claimed("task-1", far)
        silent_for(31)
        assert not is_claimed("task-2", near), "the place is for the task that has begun"
        assert is_claimed("task-1", near)
        assert is_claimed("task-1", far), "its process is gone, too"
        silent_for(60)
        assert is_claimed("task-2", near), "nobody takes the other over: the place is free"


def test_a_machine_that_is_not_heard_gives_up_long_before_its_lease_is_over(
    server: Postgres,
) -> None:
    now, is_there = [0.0], [True]

    def open_database() -> PostgresQueue:
        if not is_there[0]:
            raise StateError("no database")
        opened.append(PostgresQueue(server.url()))
        return opened[-1]

    opened: list[PostgresQueue] = []
    pulse = machines.Pulse(open_database, "far", lease_s=60, clock=lambda: now[0])
    assert pulse.look()
    assert opened
    opened[0].close()
    is_there[0] = False
    now[0] = 29.0
    assert pulse.look()
    assert "the connection is closed" in pulse.fault
    now[0] = 30.0
    assert not pulse.look()
    assert pulse.is_late
    is_there[0] = True
    now[0] = 45.0
    assert not pulse.look()  # heard again, but too late for what ran before
    now[0] = 46.0
    assert pulse.look()


def test_a_beat_that_finds_its_task_given_to_another_says_so(server: Postgres) -> None:
    server.sql("DROP SCHEMA IF EXISTS segue CASCADE")
    now = [0.0]
    far = make_holder(1, machine="far")
    with PostgresQueue(server.url(), is_alive=lambda holder: False) as queue:
        queue.submit([make_task()])
        lease = queue.claim("task-1", far, START, agent="one", account="one", caps=MANY)
        assert lease is not None
        opened: list[PostgresQueue] = []

        def open_database() -> PostgresQueue:
            opened.append(PostgresQueue(server.url()))
            return opened[-1]

        pulse = machines.Pulse(open_database, "far", lease_s=60, clock=lambda: now[0])
        pulse.checks.append(lambda db: must_hold(db, lease))
        assert pulse.look()
        assert claim(queue, pid=2) is not None
        now[0] = 10.0
        with pytest.raises(LeaseLost, match="task-1"):
            pulse.look()
        for each in opened:
            each.close()


def test_a_clone_of_a_machine_is_refused_as_long_as_the_other_is_heard(server: Postgres) -> None:
    server.sql("DROP SCHEMA IF EXISTS segue CASCADE")
    with PostgresQueue(server.url()) as queue:
        machines.beat(queue, "one", lease_s=30, boot="a")
        machines.beat(queue, "one", lease_s=30, boot="a")
        with pytest.raises(StateError, match="give it its own /etc/machine-id"):
            machines.beat(queue, "one", lease_s=30, boot="b")
        queue.rows("UPDATE segue.machine SET beat_at = now() - interval '31 seconds'")
        machines.beat(queue, "one", lease_s=30, boot="b")  # it was restarted
