"""A tree for a task: made and measured without running anything of the repository's."""

import os
import subprocess
from pathlib import Path

import pytest

from segue.system.git import snapshots, worktrees
from segue.system.git.worktrees import GitError


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    git(folder, "config", "user.name", "Me")
    git(folder, "config", "user.email", "me@example.invalid")
    (folder / "a.txt").write_text("one\n")
    (folder / ".gitignore").write_text("ignored\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    return folder


@pytest.fixture
def tree(repo: Path, tmp_path: Path) -> Path:
    return made(repo, tmp_path / "tree")


def made(repo: Path, tree: Path, branch: str = "segue/task-1") -> Path:
    worktrees.add(str(repo), str(tree), branch, worktrees.start(str(repo), "").commit)
    return tree


def commit(tree: Path, name: str, text: str) -> None:
    (tree / name).write_text(text)
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", f"change {name}")


def test_the_tree_has_the_files_and_git_finds_nothing_to_say(tree: Path) -> None:
    assert (tree / "a.txt").read_text() == "one\n"
    assert git(tree, "status", "--porcelain") == ""
    assert git(tree, "branch", "--show-current") == "segue/task-1"


def test_nothing_that_the_repository_names_is_run(repo: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    spy = tmp_path / "spy"
    spy.write_text(f"#!/bin/sh\necho $0 $@ >> {ran}\ncat\n")
    spy.chmod(0o755)
    hooks = repo / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-checkout", "reference-transaction", "post-index-change", "pre-commit"):
        (hooks / name).write_text(spy.read_text())
        (hooks / name).chmod(0o755)
    (repo / ".gitattributes").write_text("*.txt filter=spy diff=spy merge=spy\n*.new filter=spy\n")
    git(repo, "add", "-A")
    git(repo, "-c", "core.hooksPath=/dev/null", "commit", "-qm", "attributes")
    for key in ("filter.spy.smudge", "filter.spy.clean", "diff.spy.textconv", "merge.spy.driver",
                "core.fsmonitor", "core.pager", "core.editor", "diff.external"):  # fmt: skip
        git(repo, "config", key, str(spy))
    ran.unlink(missing_ok=True)
    tree = made(repo, tmp_path / "tree")
    (tree / "b.md").write_text("new\n")
    assert worktrees.commit_rest(str(tree), "rest") == ""
    work = worktrees.look(str(repo), str(tree), "segue/task-1", "main")
    assert (work.commits, work.files, work.is_checked) == (1, 1, True)
    worktrees.remove(str(repo), str(tree))
    assert worktrees.delete_branch(str(repo), "segue/task-1", work.head)
    assert not ran.exists(), ran.read_text()
    git(repo, "checkout", "-q", "-b", "other")
    assert ran.exists()  # the same by hand does run them


def test_what_is_left_is_committed_but_for_links_ignored_files_and_files_with_filters(
    repo: Path, tree: Path
) -> None:
    (tree / "new.txt").write_text("new\n")
    (tree / "a.txt").write_text("two\n")
    (tree / "ignored").write_text("x")
    (tree / ".env").symlink_to("/nowhere")
    assert worktrees.commit_rest(str(tree), "what was\udcff left", [".env"]) == ""
    assert git(tree, "log", "-1", "--format=%an %s") == "Me what was? left"
    assert git(tree, "show", "--stat", "--format=", "--name-only").split() == ["a.txt", "new.txt"]
    assert git(tree, "status", "--porcelain") == "?? .env"
    work = worktrees.look(str(repo), str(tree), "segue/task-1", "main", [".env"])
    assert (work.commits, work.insertions, work.deletions, work.uncommitted) == (1, 2, 1, 0)
    (tree / ".gitattributes").write_text("*.bin filter=lfs\n")
    (tree / "large.bin").write_text("large")
    assert "large.bin has a git filter" in worktrees.commit_rest(str(tree), "more", [".env"])
    assert git(repo, "status", "--porcelain") == ""


def test_a_conflict_is_reported_with_its_files_and_nothing_is_touched(
    repo: Path, tree: Path
) -> None:
    commit(tree, "a.txt", "theirs\n")
    commit(tree, "b.txt", "new\n")
    commit(repo, "a.txt", "mine\n")
    before = (git(repo, "rev-parse", "main"), git(repo, "count-objects"))
    work = worktrees.look(str(repo), str(tree), "segue/task-1", "main")
    assert (work.conflicts, work.commits, work.is_checked) == (("a.txt",), 2, True)
    assert (git(repo, "rev-parse", "main"), git(repo, "count-objects")) == before
    assert (repo / "a.txt").read_text() == "mine\n"


def test_a_merged_branch_holds_nothing_more(repo: Path, tree: Path) -> None:
    commit(tree, "b.txt", "new\n")
    git(repo, "merge", "-q", "segue/task-1")
    work = worktrees.look(str(repo), str(tree), "segue/task-1", "main")
    assert work.is_empty
    (tree / "c.txt").write_text("not yet committed")
    assert not worktrees.look(str(repo), str(tree), "segue/task-1", "main").is_empty


def test_work_in_a_submodule_that_nobody_else_has_keeps_the_tree(
    repo: Path, tmp_path: Path
) -> None:
    local = ("-c", "protocol.file.allow=always", "submodule")
    inner = tmp_path / "inner"
    git(tmp_path, "clone", "-q", str(repo), str(inner))
    git(repo, *local, "add", "-q", str(inner), "sub")
    git(repo, "commit", "-qm", "submodule")
    tree = made(repo, tmp_path / "tree")
    git(tree, *local, "update", "-q", "--init")
    assert worktrees.look(str(repo), str(tree), "segue/task-1", "main").is_empty
    (tree / "sub" / "a.txt").write_text("two\n")
    assert worktrees.look(str(repo), str(tree), "segue/task-1", "main").uncommitted == 1
    who = ("-c", "user.name=Me", "-c", "user.email=me@example.invalid")
    git(tree / "sub", *who, "commit", "-qam", "inside")
    assert worktrees.commit_rest(str(tree), "the rest") == ""
    git(repo, "merge", "-q", "segue/task-1")
    work = worktrees.look(str(repo), str(tree), "segue/task-1", "main")
    assert (work.commits, work.is_empty, work.uncommitted) == (0, False, 1)


def test_an_interrupted_try_is_begun_again(repo: Path, tree: Path) -> None:
    (tree / "a.txt").unlink()
    made(repo, tree)
    assert git(tree, "status", "--porcelain") == ""
    os.rename(tree, tree.with_name("moved"))
    made(repo, tree)
    assert (tree / "a.txt").exists()


def test_a_branch_that_moved_is_not_deleted(repo: Path, tree: Path) -> None:
    head = git(tree, "rev-parse", "HEAD")
    commit(tree, "b.txt", "new\n")
    worktrees.remove(str(repo), str(tree))
    assert not worktrees.delete_branch(str(repo), "segue/task-1", head)
    assert "segue/task-1" in git(repo, "branch", "--list", "segue/*")


def test_where_a_task_starts_is_what_is_checked_out_or_what_the_user_names(repo: Path) -> None:
    git(repo, "tag", "v1")
    commit(repo, "b.txt", "new\n")
    (repo / "c.txt").write_text("not committed")
    start = worktrees.start(str(repo), "")
    assert (start.branch, start.changes) == ("main", 1)
    assert worktrees.start(str(repo), "v1").commit == git(repo, "rev-parse", "v1")
    with pytest.raises(GitError, match="nonsense: no commit, branch or tag"):
        worktrees.start(str(repo), "nonsense")
    with pytest.raises(GitError, match="no commit, branch or tag"):
        worktrees.start(str(repo), "--output=/tmp/x")


def test_without_a_repository_or_a_commit_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(GitError, match="not in a git repository"):
        worktrees.start(str(tmp_path), "")
    git(tmp_path, "init", "-q")
    with pytest.raises(GitError, match="has no commit yet"):
        worktrees.start(str(tmp_path), "")


def test_a_url_is_mirrored_once_and_fetched_again_each_time(repo: Path, tmp_path: Path) -> None:
    url, place = f"file://{repo}", str(tmp_path / "repos" / "one.git")
    first = worktrees.mirrored(worktrees.mirror(url, place), "")
    worktrees.add(place, str(tmp_path / "tree"), "segue/task-1", first.commit)
    commit(repo, "b.txt", "new\n")
    second = worktrees.mirrored(worktrees.mirror(url, place), "main")
    assert second.commit == git(repo, "rev-parse", "HEAD") != first.commit
    assert (tmp_path / "tree" / "a.txt").exists()
    assert git(tmp_path / "tree", "branch", "--show-current") == "segue/task-1"


def test_a_repository_that_cannot_be_reached_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(GitError) as caught:
        worktrees.mirror(f"file://{tmp_path}/none", str(tmp_path / "repos" / "none.git"))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "repos" / "none.git").exists()


@pytest.mark.parametrize(
    ("text", "is_url"),
    [("https://x/y.git", True), ("git@host:me/y.git", True), ("file:///x", True),
     ("../other", False), ("/srv/x", False), ("C:x", False)],
)  # fmt: skip
def test_what_is_a_url(text: str, is_url: bool) -> None:
    assert worktrees.is_url(text) is is_url


def test_work_that_was_pushed_comes_back_as_it_was_committed_or_not(
    repo: Path, tmp_path: Path
) -> None:
    url, place, ref = f"file://{repo}", str(tmp_path / "repos" / "one.git"), "refs/segue/task-1"
    start = worktrees.mirrored(worktrees.mirror(url, place), "")
    first, second = tmp_path / "first", tmp_path / "second"
    worktrees.add(place, str(first), "segue/task-1", start.commit)
    git(first, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-mx")
    (first / "half.txt").write_text("half")
    (first / "a.txt").write_text("changed\n")
    taken = snapshots.take(str(first), "run-1", "leg-1", 1_794_800_000)
    assert worktrees.fetched(place, url, ref) == ("", "", 0.0)
    worktrees.push(str(first), url, taken.snapshot.commit, ref)
    assert git(repo, "branch", "--list", "segue/*") == ""
    other = worktrees.mirror(url, str(tmp_path / "repos" / "two.git"))
    commit, parent, at = worktrees.fetched(other, url, ref)
    assert (commit, at) == (taken.snapshot.commit, 1_794_800_000)
    worktrees.add(other, str(second), "segue/task-1", parent)
    worktrees.put(str(second), commit)
    assert git(second, "status", "--porcelain").split("\n") == ["M a.txt", "?? half.txt"]
    assert git(second, "log", "-1", "--format=%s") == "x"
    worktrees.push(str(second), url, "", ref)
    assert git(repo, "for-each-ref", "refs/segue") == ""
