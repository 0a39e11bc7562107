"""Snapshots of a working tree: all of the work is in them, and nothing of the user's is touched."""

import os
import subprocess
from pathlib import Path

import pytest
from support.hostile.repository import PLANTS, Armed

from segue.errors import InputError
from segue.system.git import snapshots
from segue.system.git.snapshots import NoRepository

RUN = "run-0123abcd"


def git(folder: Path, *words: str) -> str:
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_OPTIONAL_LOCKS": "0"}
    for who in ("AUTHOR", "COMMITTER"):
        env |= {f"GIT_{who}_NAME": "t", f"GIT_{who}_EMAIL": "t@t"}
    done = subprocess.run(
        ["git", *words], cwd=folder, env=env, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """One commit, a staged change over an unstaged one, a stash, a new and an ignored file."""
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    for name in ("kept.txt", "changed.txt", "gone.txt"):
        (folder / name).write_text(f"{name}\n")
    (folder / ".gitignore").write_text("*.secret\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "first")
    (folder / "kept.txt").write_text("stashed\n")
    git(folder, "stash", "-q")
    (folder / "changed.txt").write_text("staged\n")
    git(folder, "add", "changed.txt")
    (folder / "changed.txt").write_text("in the tree\n")
    (folder / "gone.txt").unlink()
    (folder / "new\n“file”.txt").write_text("new\n")
    (folder / "a.secret").write_text("mine\n")
    return folder


def users(folder: Path) -> dict[str, object]:
    """All that is the user's: the files of git, but objects and segue's own refs."""
    found: dict[str, object] = {}
    for file in sorted((folder / ".git").rglob("*")):
        name = str(file.relative_to(folder / ".git"))
        if file.is_file() and not name.startswith(("objects/", "refs/segue/")):
            found[name] = (file.read_bytes(), file.stat().st_mtime_ns)
    return found


def contents(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): file.read_text()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and ".git" not in file.relative_to(folder).parts
    }


def test_a_snapshot_holds_the_tree_and_touches_nothing_of_the_users(project: Path) -> None:
    before, files = users(project), contents(project)
    taken = snapshots.take(str(project), RUN, "leg-1", 1_000.0)
    assert users(project) == before
    assert contents(project) == files
    commit = taken.snapshot.commit
    listed = git(project, "ls-tree", "-r", "-z", "--name-only", commit).split("\0")[:-1]
    assert set(listed) == {".gitignore", "kept.txt", "changed.txt", "new\n“file”.txt"}
    assert git(project, "show", f"{commit}:changed.txt") == "in the tree\n"
    assert git(project, "rev-parse", f"{commit}^") == git(project, "rev-parse", "HEAD")
    assert git(project, "branch", "-a", "--contains", commit) == ""
    assert git(project, "for-each-ref", "--format=%(refname)", "refs/segue").split() == [
        f"refs/segue/{RUN}/leg-1"
    ]


def test_the_same_name_again_keeps_the_first_and_boundaries_are_counted(project: Path) -> None:
    first = snapshots.take(str(project), RUN, "leg-1.0", 1_000.0)
    (project / "more.txt").write_text("more\n")
    assert snapshots.take(str(project), RUN, "leg-1.0", 2_000.0) == first
    one = snapshots.take(str(project), RUN, snapshots.next_name(1), 2_000.0)
    assert one.snapshot.name == "leg-1.1"
    same = snapshots.take(str(project), RUN, snapshots.next_name(1), 2_500.0)
    assert same.snapshot.name == "leg-1.1"  # nothing changed
    for number in range(2, 11):
        (project / "more.txt").write_text(f"{number}\n")
        snapshots.take(str(project), RUN, snapshots.next_name(1), 3_000.0)
    snapshots.take(str(project), RUN, "leg-1", 4_000.0)
    names = [each.name for each in snapshots.list_all(str(project), RUN)]
    assert names == ["leg-1.0", *(f"leg-1.{n}" for n in range(1, 11)), "leg-1"]


def test_a_repository_without_a_commit_and_one_folder_below_it(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", ".")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.txt").write_text("a\n")
    taken = snapshots.take(str(tmp_path / "sub"), RUN, "leg-1", 1_000.0)
    assert git(tmp_path, "show", f"{taken.snapshot.commit}:sub/a.txt") == "a\n"
    assert git(tmp_path, "rev-list", "--parents", taken.snapshot.commit).split() == [
        taken.snapshot.commit
    ]


def test_a_conflict_a_link_and_a_folder_that_was_a_file_are_kept_as_they_are(
    project: Path,
) -> None:
    git(project, "reset", "-q", "--hard")
    git(project, "checkout", "-q", "-b", "other")
    (project / "changed.txt").write_text("theirs\n")
    git(project, "commit", "-q", "-am", "theirs")
    git(project, "checkout", "-q", "main")
    (project / "changed.txt").write_text("ours\n")
    git(project, "commit", "-q", "-am", "ours")
    with pytest.raises(subprocess.CalledProcessError):
        git(project, "merge", "-q", "other")
    (project / "kept.txt").unlink()
    (project / "kept.txt").mkdir()
    (project / "kept.txt" / "in.txt").write_text("in\n")
    (project / "link").symlink_to("/etc/passwd")
    before = users(project)
    commit = snapshots.take(str(project), RUN, "leg-1", 1_000.0).snapshot.commit
    assert users(project) == before
    assert "<<<<<<<" in git(project, "show", f"{commit}:changed.txt")
    assert git(project, "show", f"{commit}:kept.txt/in.txt") == "in\n"
    assert git(project, "show", f"{commit}:link") == "/etc/passwd"


def test_large_and_unreadable_files_are_left_out_and_counted(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "MAX_FILE_BYTES", 1_000)
    (project / "large.bin").write_bytes(b"x" * 1_001)
    taken = snapshots.take(str(project), RUN, "leg-1", 1_000.0)
    assert taken.left_out == 1
    assert "large.bin" not in git(project, "ls-tree", "-r", "--name-only", taken.snapshot.commit)


def test_old_runs_are_pruned_whole_and_the_one_at_work_stays(project: Path) -> None:
    for run, at in (("run-old", 100.0), ("run-both", 100.0), ("run-now", 100.0)):
        snapshots.take(str(project), run, "leg-1.0", at)
    snapshots.take(str(project), "run-both", "leg-1", 900.0)
    git(project, "pack-refs", "--all")
    assert snapshots.prune(str(project), 500.0, keep="run-now") == 1
    left = git(project, "for-each-ref", "--format=%(refname)", "refs/segue").split()
    assert [ref.split("/")[2] for ref in left] == ["run-both", "run-both", "run-now"]
    assert git(project, "rev-parse", "main")  # what else is packed is there


def test_a_branch_is_made_and_none_is_moved(project: Path) -> None:
    taken = snapshots.take(str(project), RUN, "leg-1", 1_000.0).snapshot
    files, head = contents(project), git(project, "rev-parse", "HEAD")
    assert snapshots.to_branch(str(project), taken, "back")
    assert not snapshots.to_branch(str(project), taken, "back")
    assert git(project, "rev-parse", "back").strip() == taken.commit
    for name in ("main", "a..b", "-x", "a b", ""):
        with pytest.raises(InputError):
            snapshots.to_branch(str(project), taken, name)
    assert contents(project) == files
    assert git(project, "rev-parse", "HEAD") == head


def test_a_folder_gets_the_files_and_one_with_files_is_refused(
    project: Path, tmp_path: Path
) -> None:
    taken = snapshots.take(str(project), RUN, "leg-1", 1_000.0).snapshot
    before = users(project)
    target = tmp_path / "back" / "here"
    snapshots.to_folder(str(project), taken, str(target))
    expected = {name: text for name, text in contents(project).items() if "secret" not in name}
    assert contents(target) == expected
    with pytest.raises(InputError, match="not empty"):
        snapshots.to_folder(str(project), taken, str(project))
    assert users(project) == before


def test_outside_git_there_are_none(tmp_path: Path) -> None:
    with pytest.raises(NoRepository):
        snapshots.take(str(tmp_path), RUN, "leg-1", 1_000.0)
    with pytest.raises(NoRepository):
        snapshots.list_all(str(tmp_path / "gone"), RUN)


def test_nothing_that_a_repository_names_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    armed = Armed(tmp_path)
    armed.plant(*PLANTS)
    monkeypatch.setenv("HOME", str(armed.home))
    monkeypatch.setenv("PATH", f".:{os.environ['PATH']}")
    cwd = str(armed.project)
    old = snapshots.take(cwd, RUN, "leg-1.0", 1_000.0).snapshot
    (armed.project / "plain.txt").write_text("changed again\n")
    new = snapshots.take(cwd, RUN, "leg-1", 1_000.0).snapshot
    assert b"changed again" in snapshots.patch(cwd, old.commit, new.commit)[0]
    assert [each.path for each in snapshots.files(cwd, old.commit, new.commit)] == ["plain.txt"]
    assert snapshots.commits(cwd, old.commit, new.commit) == []
    snapshots.to_branch(cwd, new, "back")
    snapshots.to_folder(cwd, new, str(tmp_path / "back"))
    snapshots.prune(cwd, 5_000.0)
    assert armed.marks == set()
