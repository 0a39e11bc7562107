"""A task that loses its machine at the worst moment: what the next session knows is what its files
hold, or it is told which calls may have been done."""

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from support import homes
from support.fleet.postgres import Postgres, postgres
from support.waiting import LONG_S

from segue.agents import drives
from segue.core.policy import Policy
from segue.core.queue.types import Task
from segue.core.runs.types import Run
from segue.errors import StateError
from segue.fleet import carrying, sessions
from segue.fleet.machines import Pulse
from segue.fleet.store import PostgresStore
from segue.queue import trees
from segue.runs.folders import RunFolder
from segue.runs.legs.snapshots import RunSnapshots
from segue.runs.starting.run_request import RunRequest
from segue.system.git import snapshots, worktrees
from segue.system.git.worktrees import GitError
from segue.testing.queues import make_task
from segue.testing.stores import make_run

LOOK_FIRST = "it may have been\ndone already, in full or in part. Look at what is there"


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as found:
        yield found


class Work:
    """A task at work, with an agent whose session the test writes. `during`: what happens while a
    snapshot is read."""

    def __init__(self, agent: str, url: str, tmp_path: Path) -> None:
        self.home = tmp_path / "home"
        self.env = {"HOME": str(self.home)}
        remote = tmp_path / "remote"
        remote.mkdir()
        who = ("-c", "user.name=me", "-c", "user.email=me@example.invalid")
        (remote / "done.txt").write_text("")
        for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-qm", "first")):
            subprocess.run(["git", *who, *words], cwd=remote, check=True)
        self.store = PostgresStore(url)
        task = make_task(repo=f"file://{remote}", is_url=True, run="run-1", agents=(agent,))
        self.task: Task = trees.make(task)
        self.tree = Path(self.task.tree)
        self.run: Run = make_run(agent=agent, cwd=str(self.tree), session_id=homes.SESSION, leg=1)
        self.store.create(self.run)
        self.during: Callable[[], None] = lambda: None
        RunFolder(self.run.id).leg(1)
        self.kept = RunSnapshots(self.run, RunFolder(self.run.id).path, print)
        self.now = homes.START
        self.pushed = ""

    def snapshot(self) -> None:
        self.now += 60
        self.kept._take(snapshots.next_name(1), self.now)  # `boundary` does it in a thread

    def hand_over(self) -> None:
        self.pushed = carrying.hand_over(self.task, self.env, self.pushed)

    def taken_over(self) -> tuple[str, RunRequest]:
        """On another machine: the steps that are in the files, and what its run is asked for."""
        moved = replace(self.task, id="task-1", run="", tree="", former_runs=("run-1",))
        (self.tree / "done.txt").unlink()
        found = trees.salvage(moved)
        drive = drives.find(self.run.agent)
        assert drive is not None
        wanted = RunRequest(
            task=found.text, agent=self.run.agent, command=("x",), drive=drive,
            cwd=found.tree, policy=Policy(),
        )  # fmt: skip
        kept = sessions.stored_session(self.store, found.id, found.salvaged)
        steps = Path(found.tree, "done.txt").read_text()
        return steps, sessions.inherit(kept, found, wanted, self.env, self.run)

    def does(self, step: int) -> None:
        """A step's effect."""
        with (self.tree / "done.txt").open("a") as file:
            file.write(f"{step}")


class ClaudeWork(Work):
    """Whose session is a file."""

    def __init__(self, url: str, tmp_path: Path) -> None:
        super().__init__("claude", url, tmp_path)
        place = drives.find("claude").session_place  # type: ignore[union-attr]
        assert place is not None
        (self.home / ".claude" / "projects").mkdir(parents=True)
        self.file = Path(place(f"{homes.SESSION}.jsonl", self.env, str(self.tree)))
        self.file.parent.mkdir(exist_ok=True)
        self.file.write_text(homes.prompt("Do it", cwd=str(self.tree)) + "\n")
        self.kept.session_path = lambda: str(self.file)

    def calls(self, step: int) -> None:
        said = [{"type": "tool_use", "id": f"t{step}", "name": "Bash",
                 "input": {"command": f"do step {step}"}}]  # fmt: skip
        self._write(homes.reply(step, 1_000, content=said, stop="tool_use"))

    def records(self, step: int) -> None:
        said = [{"type": "tool_result", "tool_use_id": f"t{step}", "content": "ok"}]
        record = json.loads(homes.prompt("x"))
        record["message"]["content"] = said
        self._write(json.dumps(record))

    def _write(self, line: str) -> None:
        with self.file.open("a") as file:
            file.write(line + "\n")


class OpencodeWork(Work):
    """Whose session is in a database."""

    def __init__(self, url: str, tmp_path: Path) -> None:
        super().__init__("opencode", url, tmp_path)
        self.db = homes.OpencodeDb(self.home / ".local" / "share" / "opencode" / "opencode.db")
        self.db.session(homes.SESSION, str(self.tree), homes.START)
        self.db.message("msg_0000", homes.SESSION, homes.START, role="user")
        self.db.part("prt_0", "msg_0000", homes.SESSION, homes.START, type="text", text="Do it")
        by_size = self.kept.mark
        self.kept.mark = lambda: sessions.mark_rows(self.run, self.env) or by_size()

    def calls(self, step: int) -> None:
        self._part(step, "running")

    def records(self, step: int) -> None:
        self._part(step, "completed", output="ok", metadata={"exit": 0})

    def _part(self, step: int, status: str, **more: Any) -> None:
        name, at = f"msg_{step:04}", homes.START + step
        self.db.message(name, homes.SESSION, at, role="assistant")
        state = {"status": status, "input": {"command": f"do step {step}"}, **more}
        self.db.part(f"prt_{step:04}", name, homes.SESSION, at, type="tool", tool="bash",
                     callID=f"t{step}", state=state)  # fmt: skip


KINDS = {"claude": ClaudeWork, "opencode": OpencodeWork}


@pytest.fixture(params=sorted(KINDS))
def work(
    request: pytest.FixtureRequest,
    server: Postgres,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Any]:
    server.sql("DROP SCHEMA IF EXISTS segue CASCADE")
    monkeypatch.setenv("SEGUE_FLEET", server.url())
    made = KINDS[request.param](server.url(), tmp_path)
    take = snapshots.take

    def reads(*words: Any, **more: Any) -> Any:
        taken = take(*words, **more)
        made.during()
        return taken

    monkeypatch.setattr(snapshots, "take", reads)
    yield made
    made.store.close()


def told(wanted: RunRequest) -> str:
    """What the next session knows of the steps, and its doubts."""
    if wanted.origin is None:
        return wanted.task
    said = Path(wanted.origin.path).read_text()
    return f"{said}\n{wanted.origin.changed}"


def doubt(wanted: RunRequest) -> str | None:
    if wanted.origin is not None:
        return wanted.origin.doubt
    _, _, after = wanted.task.partition(LOOK_FIRST)
    return after.partition("\n\n#")[0] if after else None


def step(work: Any, number: int) -> None:
    work.calls(number)
    work.does(number)
    work.records(number)


def test_a_machine_that_is_lost_after_its_session_was_kept_and_before_its_files_were(
    work: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    step(work, 1)
    work.snapshot()
    work.hand_over()
    step(work, 2)
    work.snapshot()

    def lost(*_: object) -> None:
        raise GitError("the machine is gone")

    monkeypatch.setattr(worktrees, "push", lost)
    with pytest.raises(GitError):
        work.hand_over()
    monkeypatch.undo()
    steps, wanted = work.taken_over()
    assert steps == "1"
    assert "do step 1" in told(wanted)
    assert "do step 2" not in told(wanted)  # it does not believe in files that are gone
    assert doubt(wanted) is None


def test_a_snapshot_that_is_still_being_pushed_at_the_end_does_not_replace_the_last_one(
    work: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    step(work, 1)
    work.snapshot()
    begun, may_go_on = threading.Event(), threading.Event()
    order: list[str] = []
    push = worktrees.push

    def slow(path: str, url: str, commit: str, ref: str) -> None:
        if not begun.is_set():
            begun.set()
            assert may_go_on.wait(LONG_S)
        push(path, url, commit, ref)
        order.append(commit)

    monkeypatch.setattr(worktrees, "push", slow)
    monkeypatch.setattr(carrying, "_PUSH_S", 0.0)
    guard = carrying.LeaseGuard(Pulse(lambda: work.store, "m-1"), work.env, print)
    guard.began(work.task)
    assert begun.wait(LONG_S)
    step(work, 2)
    work.snapshot()
    threading.Timer(0.1, may_go_on.set).start()
    guard.settle()
    carrying._left_behind(work.task, work.env, print)
    newest = snapshots.list_all(work.task.tree, work.task.run)[-1].commit
    assert (len(order) > 1, order[-1]) == (True, newest)


def test_a_push_that_fails_at_the_end_is_tried_again_and_told(
    work: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    step(work, 1)
    work.snapshot()
    push, faults = worktrees.push, iter((1, 0, 1, 1, 1))
    said: list[str] = []

    def fails(*given: Any) -> None:
        if next(faults):
            raise GitError("cannot lock ref")
        push(*given)

    monkeypatch.setattr(worktrees, "push", fails)
    for _ in range(2):
        carrying._left_behind(work.task, work.env, said.append)
    assert said == [f"{work.task.id}: some of its work cannot be stored: cannot lock ref"]
    monkeypatch.undo()
    assert work.taken_over()[0] == "1"


def test_after_both_were_kept_the_newest_is_taken_and_each_step_is_known(work: Any) -> None:
    for number in (1, 2, 3):
        step(work, number)
        work.snapshot()
        work.hand_over()
    step(work, 4)  # lost
    steps, wanted = work.taken_over()
    assert steps == "123"
    assert "do step 3" in told(wanted)
    assert "do step 4" not in told(wanted)
    assert doubt(wanted) is None
    assert "what was done after that is lost and must be done again" in told(wanted)


def test_a_step_whose_effect_is_in_the_files_and_whose_end_nobody_recorded_is_reported_as_in_doubt(
    work: Any,
) -> None:
    step(work, 1)
    work.calls(2)
    work.does(2)
    work.snapshot()  # in the second between a step's effect and its record
    work.hand_over()
    work.records(2)
    steps, wanted = work.taken_over()
    assert steps == "12"
    assert "do step 2" in str(doubt(wanted))
    assert "do step 1" not in str(doubt(wanted))


def test_a_step_that_is_done_while_the_files_are_read_is_reported_as_in_doubt_whatever_is_recorded(
    work: Any,
) -> None:
    step(work, 1)
    work.during = lambda: step(work, 2)
    work.snapshot()
    work.during = lambda: None
    work.hand_over()
    steps, wanted = work.taken_over()
    assert steps == "1"
    assert "do step 2" in told(wanted)
    assert "do step 2" in str(doubt(wanted))


def test_files_that_are_newer_than_the_session_are_reported_as_such(
    work: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    step(work, 1)
    work.snapshot()
    work.hand_over()
    step(work, 2)
    work.snapshot()

    def full(*_: object) -> None:
        raise StateError("the database is full")

    with monkeypatch.context() as patched:
        patched.setattr(sessions, "keep", full)
        with pytest.raises(StateError):
            work.hand_over()
    steps, wanted = work.taken_over()
    assert steps == "12"
    assert "may contain more than this session knows about" in told(wanted)
    assert doubt(wanted) is not None
