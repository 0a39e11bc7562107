"""The queue's contract, for every implementation."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from segue.core.queue.schedule import Conditions, Proving, plan
from segue.core.queue.types import Caps, Task, TaskState
from segue.errors import StateError
from segue.queue import rules, trees
from segue.queue.memory import MemoryQueue, SharedTasks
from segue.queue.port import Queue
from segue.queue.sqlite import SqliteQueue
from segue.queue.worker import LOG_NAME, Worker
from segue.runs.store import leases
from segue.runs.store.memory import MemoryStore
from segue.runs.store.port import Holder, IsAlive
from segue.system import units
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


@pytest.mark.parametrize("state", [TaskState.RUNNING, TaskState.WAITING, TaskState.QUEUED])
def test_a_cancelled_task_that_its_process_left_open_is_ended_by_the_next(state: TaskState) -> None:
    """Nobody else would end it: it stayed open for good. Its process was lost, began to wait for a
    limit, or could not reach the repository, and the user cancelled it at that moment."""
    task = replace(make_task(), state=state, cancel_asked=True)
    me = Holder(machine="m", boot="b", pid=1, started=1.0)
    gone = Holder(machine="m", boot="b", pid=2, started=2.0)
    found = rules.may_claim(
        task, [(task, gone)], me=me, account="", caps=Caps(), is_alive=lambda holder: False
    )
    assert found


def test_a_retried_task_and_a_waiting_one_in_the_same_folder_do_not_wait_for_each_other() -> None:
    waiting = replace(make_task(), state=TaskState.WAITING, here=True, cwd="/p", run="run-1")
    retried = replace(waiting, id="task-2", state=TaskState.QUEUED, run="run-2", again=True)
    rows: list[tuple[Task, Holder | None]] = [(waiting, None), (retried, None)]
    me = Holder(machine="m", boot="b", pid=1, started=1.0)

    def may(task: Task) -> bool:
        return rules.may_claim(
            task, rows, me=me, account="", caps=Caps(), is_alive=lambda holder: False
        )

    assert (may(waiting), may(retried)) == (True, False)
    starts = {v.task.id: v.starts for v in plan([retried, waiting], Conditions(now=1.0))}
    assert starts == {waiting.id: True, retried.id: False}


class NoLimits:
    def account_of(self, task: Task, agent: str) -> str:
        return agent

    def limited(self, now: float) -> dict[str, float]:
        return {}

    def proving(self, now: float) -> dict[str, Proving]:
        return {}


def test_a_task_whose_process_ends_before_it_takes_over_the_claim_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one that could not write to a full disk. The live worker held the claim, so the task
    counted as running for as long as the worker lived."""
    monkeypatch.setattr(units, "own_argv", lambda *words: ["true"])
    me = leases.me("segue worker")
    with SqliteQueue(tmp_path / "queue.db") as queue, MemoryStore() as store:
        [task] = queue.submit([make_task()])
        worker = Worker(
            queue, store, NoLimits(), Caps(),
            env={"SEGUE_HOME": str(tmp_path)}, say=lambda line: None, me=me,
        )  # fmt: skip
        now = 1_000.0
        worker.look(now)
        assert queue.holder(task.id) == me
        for child, _ in worker._children.values():
            child.wait()
        seen = worker.look(now + 1)
        assert [t.id for t in seen.running] == [task.id]  # started once more
        tried = queue.task(task.id)
        assert tried is not None
        assert tried.tries == 1
        for child, _ in worker._children.values():
            child.wait()


@pytest.mark.parametrize("whole", [True, False])
def test_a_task_whose_process_cannot_be_started_waits_and_does_not_count_as_running(
    whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEGUE_HOME", str(tmp_path))
    with SqliteQueue(tmp_path / "queue.db") as queue, MemoryStore() as store:
        [task] = queue.submit([make_task()])
        in_the_way = Path(trees.folder(task.id)) / LOG_NAME
        in_the_way.mkdir(parents=True)
        worker = Worker(queue, store, NoLimits(), Caps(), env={}, say=lambda line: None)
        seen = worker.look(1_000.0, whole=whole)
        [verdict] = seen.verdicts
        assert seen.running == ()
        assert "Is a directory" in verdict.why
        assert verdict.until is not None
        assert [v.until for v in worker.look(1_001.0, whole=whole).verdicts] == [verdict.until]
        in_the_way.rmdir()
        monkeypatch.setattr(units, "own_argv", lambda *words: ["true"])
        seen = worker.look(verdict.until, whole=whole)
        assert [each.id for each in seen.running] == [task.id]
        for child, _ in worker._children.values():
            child.wait()
