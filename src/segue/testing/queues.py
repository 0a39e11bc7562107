"""Tests of what every queue must do, for authors of other queues:

    class TestMine(QueueTests):
        def open(self, folder: Path, is_alive: IsAlive) -> Queue:
            return MyQueue(folder / "queue", is_alive=is_alive)

`open` with the same folder must open the same queue again, as another process would.
"""

import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from segue.core.queue.types import Caps, Task, TaskState, Work
from segue.core.runs.types import Outcome
from segue.queue.port import Candidate, NotQueued, Queue, UnknownTask
from segue.runs.store.port import Holder, IsAlive, Lease, LeaseLost

START = 1_794_800_000.0
MANY = Caps(jobs=1_000)
ODD_TEXTS = (
    "plain",
    "\x1b[31m and a \\0: \0",
    "naïve – 漢字 🙂",
    "bytes of a command line: \udcff\udc80",
    '"quotes" \\ and\nlines\r\n\u2028',
)


def make_task(name: str = "task-1", **changes: Any) -> Task:
    """A task as it is submitted."""
    task = Task(id=name, text="Do it", agents=("one",), cwd="/p", created_at=START, project="/p")
    return replace(task, **changes)


def make_holder(pid: int = 1, **changes: Any) -> Holder:
    """A holder of a lease: the process with this pid on a machine "m"."""
    return replace(Holder(machine="m", boot="b", pid=pid, started=float(pid)), **changes)


def claim(queue: Queue, name: str = "task-1", pid: int = 1, **more: Any) -> Lease | None:
    """Claims a task as a worker does; None if the queue refuses."""
    options = {"agent": "one", "account": "one", "caps": MANY, **more}
    return queue.claim(name, make_holder(pid), START, **options)


def granted(queue: Queue, name: str = "task-1", pid: int = 1, **more: Any) -> Lease:
    """The lease of a claim that must be granted."""
    lease = claim(queue, name, pid, **more)
    assert lease is not None
    return lease


class QueueTests:
    """Derive from this class, and define `open`."""

    def open(self, folder: Path, is_alive: IsAlive) -> Queue:
        raise NotImplementedError

    @pytest.fixture
    def dead(self) -> set[int]:
        """The pids of holders that are dead; tests add to it."""
        return set()

    @pytest.fixture
    def queue(self, tmp_path: Path, dead: set[int]) -> Queue:
        return self.open(tmp_path, lambda holder: holder.pid not in dead)

    @pytest.fixture
    def other(self, tmp_path: Path, dead: set[int], queue: Queue) -> Queue:
        """The same queue, as another process opens it."""
        return self.open(tmp_path, lambda holder: holder.pid not in dead)

    # What users do

    def test_tasks_are_told_in_the_order_in_which_they_were_submitted(
        self, queue: Queue, other: Queue
    ) -> None:
        added = queue.submit([make_task("task-b"), make_task("task-a", after=("task-b",))])
        more = other.submit([make_task("task-c", priority=9)])
        assert [task.id for task in queue.tasks()] == ["task-b", "task-a", "task-c"]
        assert queue.tasks() == other.tasks() == [*added, *more]
        numbers = [task.number for task in queue.tasks()]
        assert numbers == sorted(set(numbers))
        assert numbers[0] >= 1

    @pytest.mark.parametrize("text", ODD_TEXTS)
    def test_any_text_comes_back_as_it_was(self, queue: Queue, other: Queue, text: str) -> None:
        (task,) = queue.submit([make_task(text=text, cwd=f"/{text}", flags=(text,))])
        assert other.task("task-1") == task
        assert task.text == text

    def test_of_several_tasks_all_are_kept_or_none(self, queue: Queue, other: Queue) -> None:
        queue.submit([make_task("task-1")])
        with pytest.raises(ValueError, match="already exists"):
            queue.submit([make_task("task-2"), make_task("task-1")])
        with pytest.raises(UnknownTask, match="task-9"):
            queue.submit([make_task("task-3"), make_task("task-4", after=("task-9",))])
        assert [task.id for task in other.tasks()] == ["task-1"]

    def test_a_task_is_found_by_how_its_id_begins(self, queue: Queue) -> None:
        queue.submit([make_task(name) for name in ("task-ab", "task-abc", "task-b", "task-%")])
        assert queue.find("task-ab") == ["task-ab", "task-abc"]
        assert queue.find("task-%") == ["task-%"]
        assert queue.find("x") == []
        assert queue.task("task-x") is None

    def test_a_task_can_be_changed_until_it_begins(
        self, queue: Queue, other: Queue, dead: set[int]
    ) -> None:
        queue.submit([make_task()])
        new = queue.edit("task-1", lambda task: replace(task, text="Do more", priority=5))
        assert other.task("task-1") == new
        assert (new.text, new.priority, new.number) == ("Do more", 5, 1)
        with pytest.raises(UnknownTask):
            queue.edit("task-1", lambda task: replace(task, after=("task-9",)))
        with pytest.raises(UnknownTask):
            queue.edit("task-9", lambda task: task)
        granted(queue)
        with pytest.raises(NotQueued, match="running"):
            other.edit("task-1", lambda task: replace(task, text="Too late"))
        dead.add(1)
        with pytest.raises(NotQueued):
            other.edit("task-1", lambda task: replace(task, text="Too late"))

    def test_a_task_that_nobody_carries_is_cancelled_at_once(self, queue: Queue) -> None:
        queue.submit([make_task()])
        assert queue.cancel("task-1", START + 5).state is TaskState.CANCELLED
        assert queue.tasks(unfinished=True) == []
        assert claim(queue) is None

    def test_whoever_carries_a_task_learns_that_it_is_to_end(
        self, queue: Queue, other: Queue
    ) -> None:
        queue.submit([make_task()])
        lease = granted(queue)
        before = queue.task("task-1")
        assert before is not None
        assert other.cancel("task-1", START).state is TaskState.RUNNING
        queue.save(replace(before, run="run-1"), lease)  # it has not heard of it yet
        now = queue.task("task-1")
        assert now is not None
        assert (now.cancel_asked, now.run) == (True, "run-1")

    def test_what_is_over_stays_so_and_only_what_failed_is_tried_again(self, queue: Queue) -> None:
        queue.submit([make_task(f"task-{n}") for n in range(3)])
        for name, state in (("task-0", TaskState.DONE), ("task-1", TaskState.FAILED)):
            lease = granted(queue, name)
            task = queue.task(name)
            assert task is not None
            outcome = Outcome(exit_code=1, reason="error", what="over")
            ended = replace(task, state=state, outcome=outcome, run="run-1", ended_at=START)
            queue.save(ended, lease, release=True)
        assert queue.cancel("task-0", START).state is TaskState.DONE
        again = queue.retry("task-1", START)
        assert (again.state, again.run, again.outcome) == (TaskState.QUEUED, "run-1", None)
        for name in ("task-0", "task-2"):
            with pytest.raises(NotQueued):
                queue.retry(name, START)
        with pytest.raises(NotQueued):
            queue.forget("task-2")
        queue.forget("task-0")
        assert [task.id for task in queue.tasks()] == ["task-1", "task-2"]

    def test_a_number_is_never_given_twice(self, queue: Queue) -> None:
        queue.submit([make_task("task-1"), make_task("task-2")])
        queue.cancel("task-2", START)
        queue.forget("task-2")
        (third,) = queue.submit([make_task("task-3")])
        assert third.number == 3

    # Who carries what

    def test_of_all_who_want_a_task_one_is_given_it(self, queue: Queue, other: Queue) -> None:
        queue.submit([make_task()])
        lease = granted(queue, pid=1)
        assert claim(other, pid=2) is None
        assert claim(queue, pid=1) is None
        task = other.task("task-1")
        assert task is not None
        assert (task.state, task.agent, task.account) == (TaskState.RUNNING, "one", "one")
        assert other.holder("task-1") == make_holder(1)
        assert lease.epoch >= 1

    def test_of_several_tasks_the_first_that_can_be_had_is_given(
        self, queue: Queue, other: Queue
    ) -> None:
        queue.submit([make_task(f"task-{number}") for number in range(1, 4)])
        wanted = [Candidate(f"task-{number}", "one", "one") for number in (2, 1, 3)]
        for pid, name in ((1, "task-2"), (2, "task-1"), (3, "task-3")):
            found = other.claim_first(wanted, make_holder(pid), START, caps=MANY)
            assert found is not None
            assert (found[0].task, found[1].epoch) == (name, 1)
        assert queue.claim_first(wanted, make_holder(4), START, caps=MANY) is None
        assert queue.claim_first([], make_holder(4), START, caps=MANY) is None

    def test_what_a_worker_has_to_look_at_is_told_sooner_or_later(self, queue: Queue) -> None:
        tasks = [make_task(f"task-{number:04}") for number in range(250)]
        queue.submit(tasks)
        granted(queue, "task-0249")
        listed = {task.id for _ in range(6) for task in queue.upcoming("m", START)}
        assert listed == {task.id for task in tasks}
        assert all(
            {"task-0000", "task-0249"} <= {task.id for task in queue.upcoming("m", START)}
            for _ in range(3)
        )

    def test_many_at_once_are_given_each_task_once(self, tmp_path: Path, queue: Queue) -> None:
        queue.submit([make_task(f"task-{n}") for n in range(6)])
        given: list[str] = []

        def work(pid: int) -> None:
            with self.open(tmp_path, lambda holder: True) as mine:
                names = (f"task-{n}" for n in range(6))
                given.extend(name for name in names if claim(mine, name, pid) is not None)

        threads = [threading.Thread(target=work, args=(pid,)) for pid in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(given) == [f"task-{n}" for n in range(6)]

    def test_a_dead_process_loses_its_task_and_may_not_write_any_more(
        self, queue: Queue, other: Queue, dead: set[int]
    ) -> None:
        queue.submit([make_task()])
        old = granted(queue, pid=1)
        dead.add(1)
        new = granted(other, pid=2)
        assert new.epoch > old.epoch
        task = other.task("task-1")
        assert task is not None
        assert task.tries == 1
        with pytest.raises(LeaseLost):
            queue.save(replace(task, why="I still live"), old)
        with pytest.raises(LeaseLost):
            queue.take_over(old, make_holder(3), START)
        other.save(replace(task, run="run-2"), new, release=True)
        with pytest.raises(LeaseLost):
            other.save(task, new)
        assert other.holder("task-1") is None

    def test_a_worker_hands_its_claim_to_the_process_that_does_the_work(
        self, queue: Queue, other: Queue, dead: set[int]
    ) -> None:
        queue.submit([make_task()])
        mine = granted(queue, pid=1)
        theirs = other.take_over(mine, make_holder(2), START)
        dead.add(1)
        assert claim(queue, pid=3) is None
        with pytest.raises(LeaseLost):
            queue.take_over(mine, make_holder(4), START)
        task = other.task("task-1")
        assert task is not None
        other.save(replace(task, branch="segue/task-1"), theirs)
        assert other.holder("task-1") == make_holder(2)

    @pytest.mark.parametrize(
        "caps",
        [
            Caps(jobs=2),
            Caps(jobs=9, max_per_project=2),
            Caps(jobs=9, max_per_account=2),
        ],
    )
    def test_no_more_tasks_run_at_once_than_the_caps_say(
        self, queue: Queue, other: Queue, dead: set[int], caps: Caps
    ) -> None:
        queue.submit([make_task(f"task-{n}") for n in range(4)])
        first = granted(queue, "task-0", 1, caps=caps)
        granted(other, "task-1", 2, caps=caps)
        assert claim(queue, "task-2", 3, caps=caps) is None
        dead.add(2)
        granted(queue, "task-2", 3, caps=caps)
        assert claim(queue, "task-3", 4, caps=caps) is None
        task = queue.task("task-0")
        assert task is not None
        queue.save(replace(task, state=TaskState.WAITING), first, release=True)
        granted(queue, "task-3", 4, caps=caps)

    def test_other_projects_accounts_and_machines_have_caps_of_their_own(
        self, queue: Queue
    ) -> None:
        caps = Caps(jobs=1, max_per_project=2, max_per_account=1)
        queue.submit([make_task("task-1"), make_task("task-2"), make_task("task-3", project="/q")])
        granted(queue, "task-1", caps=caps)
        here = make_holder(2, machine="m2")
        options: dict[str, Any] = {"agent": "two", "caps": caps}
        assert queue.claim("task-2", here, START, account="one", **options) is None
        assert queue.claim("task-2", here, START, account="two", **options) is not None
        assert queue.claim("task-3", here, START, account="three", **options) is None

    def test_two_tasks_are_never_in_one_folder(self, queue: Queue, dead: set[int]) -> None:
        queue.submit([make_task(f"task-{n}", here=True) for n in range(2)])
        lease = granted(queue, "task-0", 1)
        assert claim(queue, "task-1", 2) is None
        task = queue.task("task-0")
        assert task is not None
        waiting = replace(task, state=TaskState.WAITING, run="run-1", not_before=START + 60)
        queue.save(waiting, lease, release=True)
        assert claim(queue, "task-1", 2) is None  # half done: it continues in there later
        dead.add(1)
        again = granted(queue, "task-0", 3)
        queue.save(replace(waiting, state=TaskState.DONE), again, release=True)
        granted(queue, "task-1", 2)

    def test_what_waits_or_failed_to_start_is_taken_up_again(
        self, queue: Queue, dead: set[int]
    ) -> None:
        queue.submit([make_task()])
        lease = granted(queue, pid=1)
        task = queue.task("task-1")
        assert task is not None
        waiting = replace(task, state=TaskState.WAITING, not_before=START + 60, why="limited")
        queue.save(waiting, lease, release=True)
        granted(queue, pid=2)
        now = queue.task("task-1")
        assert now is not None
        assert (now.state, now.why, now.not_before, now.tries) == (TaskState.RUNNING, "", 0.0, 0)

    def test_another_number_tells_that_something_was_written(
        self, queue: Queue, other: Queue
    ) -> None:
        queue.submit([make_task()])
        before = queue.version()
        assert queue.version() == before
        other.cancel("task-1", START)
        assert queue.version() != before

    def test_what_is_seen_of_a_tree_later_is_noted_of_a_task_that_is_over(
        self, queue: Queue
    ) -> None:
        (task,) = queue.submit([make_task()])
        updated = replace(task, work=Work(commits=2), is_tree_removed=True)
        queue.note(updated)
        assert queue.task("task-1") == task  # it has not ended
        ended = queue.cancel("task-1", START)
        queue.note(updated)
        assert queue.task("task-1") == replace(ended, work=Work(commits=2), is_tree_removed=True)
