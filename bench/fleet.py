"""A fleet's queue under load: simulated workers on a real PostgreSQL. What they do to the database
is what `segue worker` does (beats, looks, plans, claims, and the two writes of a task's process);
what is simulated is the work: a task is over as soon as it has begun.

    python -m bench.fleet --workers 300 --tasks 10000

Tells how fast tasks are handed out, and what that and doing nothing cost the database. Wall times
depend on what else the machine does; CPU of PostgreSQL and transactions for each task hardly do.
"""

import argparse
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "tests"))

from msgspec.structs import replace  # noqa: E402
from support.fleet.postgres import Postgres, postgres  # noqa: E402 - the tests' own

from segue.cli.work.worker import FLEET_LOOK_S, Pace  # noqa: E402
from segue.core.queue.types import Caps, Task, TaskState  # noqa: E402
from segue.fleet.database import FleetDatabase  # noqa: E402
from segue.fleet.machines import Offer, Pulse  # noqa: E402
from segue.fleet.queue import PostgresQueue  # noqa: E402
from segue.queue import worker as workers  # noqa: E402
from segue.queue.port import task_key  # noqa: E402
from segue.queue.worker import Worker  # noqa: E402
from segue.runs.store.port import Lease, LeaseLost  # noqa: E402

JOBS = 4
PROCESSES = 4


class NoLimits:
    """No account is limited."""

    def account_of(self, *about: Any) -> str:
        return "one"

    def limited(self, now: float) -> dict[str, float]:
        return {}

    def proving(self, now: float) -> dict[str, Any]:
        return {}


class SimulatedWorker(Worker):
    """Whose tasks are over at once."""

    def _spawn(self, task_id: str, epoch: int) -> Any:
        lease = self.queue.take_over(Lease(task_key(task_id), epoch), self._me, time.time())
        task = self.queue.task(task_id)
        assert task is not None
        with suppress(LeaseLost):  # it was not heard for a minute: the bench has too little CPU
            self.queue.save(replace(task, state=TaskState.DONE), lease, release=True)
            self.done += 1
        return _Ended()

    done = 0


class _Ended:
    def poll(self) -> int:
        return 0


def work(url: str, count: int, stop: Event, told: Any) -> None:
    """So many workers in one process."""
    done = [0] * count
    threads = [
        threading.Thread(target=_one, args=(url, done, number, stop)) for number in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told.put(sum(done))


def _one(url: str, done: list[int], number: int, stop: Event) -> None:
    name = uuid.uuid4().hex[:12]
    pulse = Pulse(lambda: FleetDatabase(url), name, lease_s=60.0)
    pulse.offer = Offer(agents=("mine",), jobs=JOBS)
    with PostgresQueue(url) as queue:
        no_runs: Any = None  # their tasks have none
        made = SimulatedWorker(
            queue, no_runs, NoLimits(), Caps(jobs=JOBS), env={}, say=lambda line: None
        )
        made._me = replace(made._me, machine=name)
        pace = Pace(time.monotonic)
        while not stop.is_set():
            pulse.look()
            if pace.is_due(queue.version()):
                made.look(time.time(), whole=False)
                done[number] = made.done
            stop.wait(FLEET_LOOK_S)


class Meter:
    """What the server did in between."""

    def __init__(self, server: Postgres) -> None:
        self.server = server
        self.db = FleetDatabase(server.url())
        self._at, self._cpu, self._commits = time.monotonic(), self.cpu_s(), self.commits()

    def commits(self) -> int:
        self.db.rows("SELECT pg_stat_clear_snapshot()")
        ((found,),) = self.db.rows("SELECT sum(xact_commit)::bigint FROM pg_stat_database")
        return int(found)

    def cpu_s(self) -> float:
        main = psutil.Process(self.server.processes[0].pid)
        total = 0.0
        for each in (main, *main.children()):
            try:
                times = each.cpu_times()
                total += times.user + times.system
            except psutil.Error:
                continue
        return total

    def connections(self) -> int:
        sql = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
        ((found,),) = self.db.rows(sql)
        return int(found) - 1

    def read(self) -> tuple[float, float, int]:
        """Seconds, of them on a processor, and transactions since it was made."""
        time.sleep(1.5)  # the server counts a little later
        return (
            time.monotonic() - self._at,
            self.cpu_s() - self._cpu,
            self.commits() - self._commits,
        )


def fill(server: Postgres, count: int) -> None:
    server.sql("DROP SCHEMA IF EXISTS segue CASCADE")
    with PostgresQueue(server.url()) as queue:
        queue.submit(
            [
                Task(
                    id=f"task-{number:06}", text="x" * 200, agents=("mine",), cwd="/",
                    created_at=time.time(), repo="https://example.invalid/r", is_url=True,
                    project=f"p-{number % 20}",
                )
                for number in range(count)
            ]
        )  # fmt: skip


def measure(server: Postgres, count: int, tasks: int, idle_s: float, most_s: float) -> None:
    """One row: handing out, then nothing to do."""
    fill(server, tasks)
    context = get_context("spawn")
    stop, told = context.Event(), context.Queue()
    share = [count // PROCESSES + (each < count % PROCESSES) for each in range(PROCESSES)]
    executor = [
        context.Process(target=work, args=(server.url(), each, stop, told))
        for each in share
        if each
    ]
    for process in executor:
        process.start()
    with FleetDatabase(server.url()) as db:

        def done() -> int:
            ((found,),) = db.rows("SELECT count(*) FROM segue.task WHERE is_over")
            return int(found)

        def heard() -> int:
            ((found,),) = db.rows("SELECT count(*) FROM segue.machine")
            return int(found)

        _until(lambda: heard() == count, 240)
        before, meter = done(), Meter(server)
        _until(lambda: done() == tasks, most_s)
        after = done()
        wall_s, cpu_s, commits = meter.read()
        handed = max(1, after - before)
        wall_s -= 1.5
        connections = meter.connections()
        print(
            f"{count:4} workers, {tasks:6} tasks: {handed / wall_s:6.1f} tasks/s,"
            f" {commits / handed:5.1f} transactions and {1000 * cpu_s / handed:5.1f} ms of"
            f" PostgreSQL's CPU a task, {connections} connections"
            + ("" if after == tasks else f" ({after} of {tasks} in time)"),
            flush=True,
        )
        if idle_s and after == tasks:
            time.sleep(15.0)  # until all have seen that there is nothing left
            meter = Meter(server)
            time.sleep(idle_s)
            wall_s, cpu_s, commits = meter.read()
            print(
                f"{count:4} workers, nothing to do: {commits / wall_s:6.1f} transactions/s,"
                f" {100 * cpu_s / wall_s:5.1f}% of a processor",
                flush=True,
            )
    stop.set()
    for process in executor:
        process.join(60)


def _until(holds: Callable[[], bool], most_s: float) -> None:
    limit = time.monotonic() + most_s
    while not holds() and time.monotonic() < limit:
        time.sleep(0.2)


def main() -> None:
    """Prints a row for each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[30, 100, 300])
    parser.add_argument("--tasks", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--idle", type=float, default=20.0, metavar="S")
    parser.add_argument("--most", type=float, default=240.0, metavar="S", help="for one row")
    given = parser.parse_args()
    workers._CLEAN_S = 1e9  # simulated tasks have no trees
    print(f"{os.cpu_count()} processors for all of it; load {os.getloadavg()[0]:.1f}")
    with postgres() as server:
        server.stop()
        server.start("max_connections=1500", "shared_buffers=256MB")
        for count in given.workers:
            for tasks in given.tasks:
                idle_s = given.idle if tasks == given.tasks[0] else 0.0
                measure(server, count, tasks, idle_s, given.most)


if __name__ == "__main__":
    main()
