"""What users do with tasks: submit, look, change, cancel, try again; what becomes of their trees.
The agent is a program that runs its prompt as a shell script."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.waiting import until

from segue.cli import cli
from segue.queue import open_queue

SEGUE = (sys.executable, "-c", "from segue.start import main; main()")
LONG_S = 60.0


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@dataclass
class Place:
    """A repository, and segue in it."""

    repo: Path
    home: Path
    started: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def config(self, more: str = "") -> None:
        words = json.dumps(["sh", "-c", 'eval "$0"', "{prompt}"])
        agents = f"[agents.mine]\ncommand = {words}\n[agents.other]\ncommand = {words}\n"
        self.home.mkdir(exist_ok=True)
        (self.home / "config.toml").write_text(f'[run]\nagent = "mine"\n{agents}{more}')

    def segue(self, *words: str, stdin: str | None = None, code: int = 0) -> str:
        """A command, in this process; what it printed on both streams."""
        done = CliRunner().invoke(cli, words, input=stdin)
        assert done.exit_code == code, (done.output, done.exception)
        return done.output

    def submit(self, *words: str, **more: Any) -> str:
        told = self.segue("submit", "--json", *words, **more)
        (task,) = json.loads(told.splitlines()[-1])["tasks"]
        return str(task)

    def work(self, code: int = 0, *more: str) -> str:
        words = (*SEGUE, "worker", "--until-empty", *more)
        done = subprocess.run(
            words, cwd=self.repo, capture_output=True, text=True, timeout=LONG_S, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def start_worker(self) -> None:
        self.started.append(
            subprocess.Popen((*SEGUE, "worker"), cwd=self.repo, stdout=subprocess.DEVNULL)
        )

    def shown(self, task: str) -> dict[str, Any]:
        told = json.loads(self.segue("queue", "--json"))
        assert told["schema"] == 1
        found: dict[str, Any] = {each["task"]: each for each in told["tasks"]}[task]
        return found

    def tree(self, task: str) -> Path:
        return Path(self.shown(task)["tree"])

    def until(self, holds: Callable[[], Any]) -> Any:
        return until(holds, limit_s=LONG_S)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    repo = tmp_path / "repo"
    repo.mkdir()
    git(repo, "init", "-q", "-b", "main")
    git(repo, "config", "user.name", "Me")
    git(repo, "config", "user.email", "me@example.invalid")
    (repo / "a.txt").write_text("one\n")
    (repo / "inner").mkdir()
    (repo / "inner" / "b.txt").write_text("two\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "first")
    monkeypatch.chdir(repo)
    found = Place(repo, Path(os.environ["SEGUE_HOME"]))
    found.config()
    yield found
    for process in found.started:
        process.kill()
        process.wait()


def test_what_a_task_leaves_is_committed_measured_and_merged_then_its_tree_is_gone(
    place: Place,
) -> None:
    task = place.submit("echo new > c.txt; echo 2 > a.txt")
    assert place.shown(task)["state"] == "queued"
    place.work()
    shown = place.shown(task)
    assert (shown["state"], shown["branch"]) == ("done", f"segue/{task}")
    work = shown["work"]
    assert (work["commits"], work["files"], work["insertions"], work["deletions"]) == (1, 2, 2, 1)
    assert shown["merge"] == f"git -C {place.repo} merge segue/{task}"
    assert (place.repo / "a.txt").read_text() == "one\n"
    told = place.segue("queue")
    assert f"segue/{task}, +2 −1 in 2 files, ready to merge into main" in told
    tree = place.tree(task)
    subprocess.run(shown["merge"], shell=True, check=True, capture_output=True)
    shown = place.shown(task)  # looks at it again
    assert (shown["tree"], shown["merge"], shown["work"]["is_merged"]) == (None, None, True)
    assert not tree.exists()
    assert git(place.repo, "branch", "--list", "segue/*") == ""
    assert "merged" in place.segue("queue")


def test_a_tree_in_which_nothing_was_done_is_removed_at_once(place: Place) -> None:
    task = place.submit("true")
    place.work()
    assert place.shown(task)["tree"] is None
    assert git(place.repo, "worktree", "list").count("\n") == 0
    assert git(place.repo, "branch", "--list", "segue/*") == ""


def test_a_tree_stays_while_it_holds_work_that_its_branch_does_not(place: Place) -> None:
    unread = place.submit('echo new > c.txt; echo broken > "$(git rev-parse --git-dir)/index"')
    elsewhere = place.submit("git checkout -q -b own; echo 2 > a.txt; git commit -qam own")
    detached = place.submit("git checkout -q --detach; echo 2 > a.txt; git commit -qam lost")
    nested = place.submit("git init -q sub; echo 1 > sub/d.txt; echo new > c.txt")
    place.work()
    assert (place.tree(unread) / "c.txt").read_text() == "new\n"
    assert "git status failed" in place.shown(unread)["work"]["note"]
    assert git(place.tree(elsewhere), "branch", "--show-current") == "own"
    told = f"1 commit is on the branch own, not on segue/{elsewhere}"
    assert told in place.shown(elsewhere)["work"]["note"]
    assert told in place.segue("queue")
    assert git(place.tree(detached), "log", "-1", "--format=%s") == "lost"
    assert "1 commit is on no branch" in place.shown(detached)["work"]["note"]
    work = place.shown(nested)["work"]
    assert (work["commits"], work["files"], work["uncommitted"]) == (1, 1, 1)
    git(place.repo, "merge", "-q", f"segue/{nested}")
    assert (place.tree(nested) / "sub" / "d.txt").read_text() == "1\n"
    git(place.repo, "merge", "-q", "own")
    assert place.shown(elsewhere)["tree"] is None


def test_a_conflict_is_reported_and_never_resolved(place: Place) -> None:
    task = place.submit("echo theirs > a.txt")
    place.work()
    (place.repo / "a.txt").write_text("mine\n")
    git(place.repo, "commit", "-qam", "mine")
    told = place.segue("queue")
    assert f"{task} conflicts with main in a.txt: merge it by hand" in told
    assert place.shown(task)["work"]["conflicts"] == ["a.txt"]
    assert (place.repo / "a.txt").read_text() == "mine\n"


def test_a_task_that_failed_keeps_its_tree_and_is_tried_again_in_it(place: Place) -> None:
    task = place.submit("echo x >> log.txt; test -e ok")
    place.work(1)
    shown = place.shown(task)
    assert (shown["state"], shown["exit_code"]) == ("failed", 1)
    assert f"segue queue retry {task}" in place.segue("queue")
    first = place.tree(task)
    (first / "ok").touch()
    place.segue("queue", "retry", task)
    place.work()
    assert place.shown(task)["state"] == "done"
    assert place.tree(task) == first
    assert (first / "log.txt").read_text() == "x\nx\n"


def test_the_check_decides_whether_a_task_is_done(place: Place) -> None:
    task = place.submit("--check", "test -e ok", "--set", "max_checks=1", "echo x > y.txt")
    place.work(1)
    assert place.shown(task)["state"] == "failed"
    good = place.submit("--check", "test -e ok", "touch ok")
    place.work()
    assert place.shown(good)["state"] == "done"


def test_a_subfolder_stays_the_place_of_work(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.repo / "inner")
    task = place.submit("echo changed > b.txt")
    place.work()
    assert (place.tree(task) / "inner" / "b.txt").read_text() == "changed\n"


def test_here_works_in_the_folder_itself_one_task_after_the_other(place: Place) -> None:
    script = "test ! -e busy && touch busy && echo {} >> log.txt && rm busy"
    for number in (1, 2, 3):
        place.submit("--here", script.format(number))
    place.work(0, "--jobs", "3")
    assert (place.repo / "log.txt").read_text() == "1\n2\n3\n"
    place.segue("submit", "--here", "--ref", "main", "true", code=2)


def test_after_waits_for_the_other_and_begins_with_its_work(place: Place) -> None:
    first = place.submit("echo one > c.txt")
    second = place.submit("--after", first, "cat c.txt > d.txt")
    assert place.shown(second)["why"] == f"waits for {first}"
    place.work(0, "--jobs", "2")
    assert (place.tree(second) / "d.txt").read_text() == "one\n"


def test_what_comes_after_a_failed_task_does_not_run_and_says_so(place: Place) -> None:
    first = place.submit("false")
    second = place.submit("--after", first, "echo x > c.txt")
    place.work(1)
    shown = place.shown(second)
    assert (shown["state"], shown["is_blocked"]) == ("queued", True)
    assert shown["why"].endswith(f"which failed: segue queue retry {first}")


def test_priorities_order_the_queue(place: Place) -> None:
    low = place.submit("--here", "echo low >> log.txt")
    high = place.submit("--here", "--priority", "5", "echo high >> log.txt")
    place.segue("queue", "edit", low, "--priority", "9", "--text", "echo now high >> log.txt")
    place.work(0, "--jobs", "1")
    assert (place.repo / "log.txt").read_text() == "now high\nhigh\n"
    assert "only a task that has not started" in place.segue(
        "queue", "edit", high, "--priority", "1", code=2
    )


def test_tasks_come_from_a_file_or_stdin(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "tonight.md"
    file.write_text("# Tonight\n- [ ] echo 1 > one\n- [x] echo 2 > two\n- echo 3 > three\n")
    told = place.segue("submit", "--from", str(file))
    assert "1 item already ticked off and ignored" in told
    assert "2 tasks queued" in told
    place.segue("submit", "--from", "-", stdin="echo 4 > four\n\necho 5 > five\n")
    place.submit("-", stdin="echo 6 > six\n")
    with open_queue() as queue:
        assert [task.text for task in queue.tasks()] == [
            "echo 1 > one", "echo 3 > three", "echo 4 > four", "echo 5 > five", "echo 6 > six\n",
        ]  # fmt: skip


def test_a_queued_task_is_cancelled_and_never_runs(place: Place) -> None:
    task = place.submit("echo x > c.txt")
    assert f"{task} is cancelled" in place.segue("queue", "cancel", task)
    place.work()
    assert place.shown(task)["run"] is None
    place.segue("queue", "forget", task)
    assert place.segue("queue", "cancel", task, code=2)


def test_a_running_task_is_cancelled_with_its_agent(place: Place) -> None:
    task = place.submit("echo $$ > pid.txt; echo half > c.txt; exec sleep 300")
    place.start_worker()
    tree = place.until(lambda: place.shown(task)["tree"])
    pid = int(place.until(lambda: _text(Path(tree, "pid.txt"))))
    assert f"{task} is cancelled" in place.segue("queue", "cancel", task)
    assert not Path(f"/proc/{pid}").exists()
    assert (Path(tree) / "c.txt").exists()
    shown = place.shown(task)
    assert (shown["state"], shown["tree"]) == ("cancelled", tree)
    assert f"{task} has work in {tree}" in place.segue("queue", "forget", task, code=2)


def test_a_task_whose_process_was_killed_is_cancelled_with_its_agent(place: Place) -> None:
    task = place.submit("echo $$ > pid.txt; exec sleep 300")
    place.start_worker()
    tree = place.until(lambda: place.shown(task)["tree"])
    pid = int(place.until(lambda: _text(Path(tree, "pid.txt"))))
    place.started[-1].kill()  # first: it would start the task again
    place.started[-1].wait()
    with open_queue() as queue:
        holder = queue.holder(task)
        assert holder is not None
        os.kill(holder.pid, signal.SIGKILL)
        place.until(lambda: not queue.is_alive(holder))
    assert Path(f"/proc/{pid}").exists()
    assert f"{task} is cancelled" in place.segue("queue", "cancel", task)
    assert place.until(lambda: not Path(f"/proc/{pid}").exists())


def test_the_setup_runs_once_in_the_tree_and_its_failure_is_reported(place: Place) -> None:
    place.config('[worktree]\nsetup = "echo x >> setup.txt"\n')
    task = place.submit("cat setup.txt > seen.txt")
    place.work()
    assert (place.tree(task) / "seen.txt").read_text() == "x\n"
    place.config('[worktree]\nsetup = "echo no such package; false"\n')
    bad = place.submit("echo never > c.txt")
    place.work(1)
    shown = place.shown(bad)
    assert (shown["state"], shown["reason"], shown["run"]) == ("failed", "setup_failed", None)
    log = shown["advice"].splitlines()[0].removeprefix("What it printed: cat ")
    assert Path(log).read_text() == "no such package\n"


def test_files_that_the_setup_made_are_committed_only_if_the_task_changed_them(
    place: Place,
) -> None:
    made = "mkdir -p deps/[x]; echo 1 > deps/[x]/a; echo 1 > lock; echo 1 > b; echo more >> a.txt"
    place.config(f'[worktree]\nsetup = "{made}"\n')
    idle = place.submit("true")
    task = place.submit("echo 2 > lock; rm b; echo new > deps/new; echo done > 'c*.txt'")
    place.work()
    assert place.shown(idle)["tree"] is None  # nothing was done in it
    changed = git(place.repo, "diff", "--name-only", "main", f"segue/{task}").splitlines()
    assert changed == ["c*.txt", "deps/new", "lock"]
    assert "uncommitted" not in place.segue("queue")
    git(place.repo, "merge", "-q", f"segue/{task}")
    place.segue("queue")
    assert place.shown(task)["tree"] is None  # all that is left in it came from the setup


def test_a_setup_of_the_projects_own_file_is_run_once_the_user_says_yes(place: Place) -> None:
    (place.repo / ".segue.toml").write_text('[worktree]\nsetup = "echo x > setup.txt"\n')
    git(place.repo, "add", "-A")
    git(place.repo, "commit", "-qm", "config")
    told = place.segue("submit", "true", code=2)
    assert "a command that you have not accepted: echo x > setup.txt" in told
    task = place.submit("--trust-setup", "cat setup.txt > seen.txt")
    place.work()
    assert (place.tree(task) / "seen.txt").exists()
    (place.repo / ".segue.toml").write_text('[worktree]\nlink = [".env"]\n')
    assert "is not allowed in a project's file" in place.segue("submit", "true", code=2)


def test_only_files_that_the_user_lists_are_linked_into_the_tree(place: Place) -> None:
    (place.repo / ".env").write_text("KEY=1\n")
    (place.repo / ".env.local").write_text("KEY=2\n")
    place.config(f'[worktree.projects."{place.repo}"]\nlink = [".env", "none", "a.txt"]\n')
    task = place.submit("ls -A > seen.txt; cat .env >> seen.txt")
    place.work()
    tree = place.tree(task)
    assert (tree / ".env").is_symlink()
    assert not (tree / "a.txt").is_symlink()
    seen = (tree / "seen.txt").read_text()
    assert "KEY=1" in seen
    assert ".env.local" not in seen
    assert git(tree, "show", "--name-only", "--format=").split() == ["seen.txt"]
    other = '[worktree.projects."/elsewhere"]\nlink = [".env"]\n'
    place.config(other)
    again = place.submit("ls -A > seen.txt")
    place.work()
    assert not (place.tree(again) / ".env").exists()


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "", "."])
def test_a_link_that_leads_out_of_the_repository_is_refused(place: Place, name: str) -> None:
    place.config(f"[worktree]\nlink = {json.dumps([name])}\n")
    assert "must be the path of a file or folder" in place.segue("submit", "true", code=2)


def test_a_repository_by_its_url_is_worked_on_without_a_folder_of_the_users(
    place: Place, tmp_path: Path
) -> None:
    url = f"file://{place.repo}"
    task = place.submit("--repo", url, "--ref", "main", "echo new > c.txt")
    place.work()
    shown = place.shown(task)
    assert (shown["state"], shown["work"]["commits"]) == ("done", 1)
    subprocess.run(shown["merge"], shell=True, check=True, capture_output=True)
    assert git(place.repo, "log", "-1", "--format=%s", f"segue/{task}") == "echo new > c.txt"


def test_a_repository_that_is_gone_keeps_the_task_and_says_why(place: Place) -> None:
    task = place.submit("--repo", "file:///nowhere/at/all", "echo new > c.txt")
    place.start_worker()
    shown = place.until(lambda: (s := place.shown(task))["why"] and s)
    assert shown["state"] == "queued"
    assert "/nowhere/at/all" in shown["why"]
    assert shown["waits_until"] is not None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("",), "the task is empty"),
        ((), 'segue submit "TASK", or segue submit --from FILE'),
        (("a", "b"), "must be one argument"),
        (("--from", "x", "a"), "cannot be combined"),
        (("--from", "/nowhere", ), "/nowhere: cannot be read"),
        (("--agent", "nobody", "x"), "no such agent"),
        (("--agent", "mine,", "x"), "a name is missing"),
        (("--ref", "none", "x"), "none: no commit, branch or tag"),
        (("--repo", "/nowhere", "x"), "neither a folder nor a URL"),
        (("--after", "task-9", "x"), "no task is called 'task-9'"),
        (("--agent", "mine,other", "x", "--", "--model"), "are for one agent"),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_in_one_line_and_nothing_is_queued(
    place: Place, words: tuple[str, ...], said: str
) -> None:
    told = place.segue("submit", *words, code=2)
    assert said in told
    assert told.count("\n") == 1
    with open_queue() as queue:
        assert queue.tasks() == []


def test_outside_of_git_a_task_needs_here(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert "segue submit --here" in place.segue("submit", "true", code=2)
    place.submit("--here", "echo x > c.txt")
    place.work()
    assert (folder / "c.txt").exists()


def test_uncommitted_work_is_not_in_the_tree_and_that_is_said(place: Place) -> None:
    (place.repo / "a.txt").write_text("not yet\n")
    told = place.segue("submit", "cp a.txt seen.txt")
    assert "1 uncommitted file in" in told
    place.work()
    with open_queue() as queue:
        (task,) = queue.tasks()
    assert Path(task.tree, "seen.txt").read_text() == "one\n"


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
