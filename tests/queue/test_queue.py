"""The queue's contract, for every implementation."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from segue.core.queue.types import Caps, TaskState
from segue.errors import StateError
from segue.queue import rules
from segue.queue.memory import MemoryQueue, SharedTasks
from segue.queue.port import Queue
from segue.queue.sqlite import SqliteQueue
from segue.runs.store.port import Holder, IsAlive
from segue.testing.queues import QueueTests, make_task


class TestSqlite(QueueTests):
    def open(self, folder: Path, is_alive: IsAlive) -> Queue:
        return SqliteQueue(folder / "queue.db", is_alive=is_alive)


class TestMemory(QueueTests):
    @pytest.fixture(autouse=True)
    def shared(self) -> None:
        self.kept = SharedTasks()

    def open(self, folder: Path, is_alive: IsAlive) -> Queue:
        return MemoryQueue(self.kept, is_alive=is_alive)


def test_the_file_is_private_and_a_newer_segues_is_refused_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    with SqliteQueue(path) as queue:
        queue.submit([make_task()])
        queue.db.execute("PRAGMA user_version = 99")
    assert path.stat().st_mode & 0o077 == 0
    before = path.read_bytes()
    with pytest.raises(StateError, match="newer segue"):
        SqliteQueue(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(("state", "may"), [(TaskState.RUNNING, True), (TaskState.QUEUED, False)])
def test_a_task_that_lost_its_process_while_it_was_being_cancelled_is_ended_by_the_next(
    state: TaskState, may: bool
) -> None:
    """Nobody else would end it: it stayed "running" for good."""
    task = replace(make_task(), state=state, cancel_asked=True)
    me = Holder(machine="m", boot="b", pid=1, started=1.0)
    gone = Holder(machine="m", boot="b", pid=2, started=2.0)
    found = rules.may_claim(
        task, [(task, gone)], me=me, account="", caps=Caps(), is_alive=lambda holder: False
    )
    assert found is may
