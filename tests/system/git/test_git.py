"""What a repository or a folder says of the work in it, and that looking changes nothing."""

import hashlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.waiting import until

from segue.system.files import tree
from segue.system.git import git, repository
from segue.system.git.git import status

Change = Callable[[Path], object]


def run(cwd: Path, *words: str) -> str:
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(cwd),
        "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_{who}_NAME": "t" for who in ("AUTHOR", "COMMITTER")},
        **{f"GIT_{who}_EMAIL": "t@t" for who in ("AUTHOR", "COMMITTER")},
    }
    done = subprocess.run(
        ["git", *words], cwd=cwd, env=env, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    run(folder, "init", "-q", "-b", "main")
    (folder / "a.txt").write_text("one\n")
    (folder / "sub").mkdir()
    (folder / "sub" / "b.txt").write_text("two\n")
    (folder / ".gitignore").write_text("ignored/\n*.log\n")
    run(folder, "add", ".")
    run(folder, "commit", "-q", "-m", "first")
    return folder


def digest(folder: Path) -> str:
    found = status(str(folder))
    assert found is not None
    assert found.digest
    return found.digest


def put(name: str, text: str) -> Change:
    def change(repo: Path) -> None:
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        (repo / name).write_text(text)

    return change


def git_does(*words: str) -> Change:
    return lambda repo: run(repo, *words)


def swap(file: Path, text: str) -> None:
    info = file.stat()
    file.write_text(text)
    os.utime(file, ns=(info.st_atime_ns, info.st_mtime_ns))


CHANGES: dict[str, list[Change]] = {
    "a changed file": [put("a.txt", "other\n")],
    "a changed file of the same size and time": [lambda repo: swap(repo / "a.txt", "ONE\n")],
    "a deleted file": [lambda repo: (repo / "a.txt").unlink()],
    "a file that may be run now": [lambda repo: (repo / "a.txt").chmod(0o755)],
    "a new file": [put("new.txt", "x")],
    "a new file in a new folder": [put("x/y/new.txt", "x")],
    "a file with odd letters": [put("ä b\n'\"c.txt", "x")],
    "a link": [lambda repo: (repo / "link").symlink_to("a.txt")],
    "a staged file": [put("new.txt", "x"), git_does("add", "new.txt")],
    "a commit": [git_does("commit", "-q", "--allow-empty", "-m", "empty")],
    "another branch": [git_does("checkout", "-q", "-b", "other")],
    "a repository in it": [
        lambda repo: (repo / "inner").mkdir(),
        lambda repo: run(repo / "inner", "init", "-q"),
        put("inner/f", "x"),
    ],
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_digest_changes_with(name: str, repo: Path) -> None:
    before = digest(repo)
    for change in CHANGES[name]:
        change(repo)
    after = digest(repo)
    assert after != before
    assert digest(repo) == after


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ([put("a.txt", "x\n")], [put("a.txt", "y\n")]),
        ([put("a.txt", "x\n")], [lambda repo: swap(repo / "a.txt", "y\n")]),
        ([put("new.txt", "x")], [put("new.txt", "longer")]),
        ([put("new.txt", "x")], [lambda repo: os.utime(repo / "new.txt", ns=(5, 5))]),
        ([put("x/one", "x")], [put("x/two", "x")]),
        ([put("new.txt", "x")], [lambda repo: (repo / "new.txt").unlink()]),
        ([put("a.txt", "x\n")], [git_does("add", "a.txt")]),
        (
            [git_does("init", "-q", "inner"), put("inner/f", "x")],
            [put("inner/f", "yy")],
        ),
        (
            [lambda repo: (repo / "a.txt").unlink(), lambda repo: (repo / "a.txt").symlink_to("x")],
            [lambda repo: (repo / "a.txt").unlink(), lambda repo: (repo / "a.txt").symlink_to("y")],
        ),
    ],
)  # fmt: skip
def test_in_a_changed_tree_the_next_change_is_seen_too(
    first: list[Change], then: list[Change], repo: Path
) -> None:
    for change in first:
        change(repo)
    before = digest(repo)
    for change in then:
        change(repo)
    assert digest(repo) != before


def test_what_changes_nothing_does_not_change_the_digest(repo: Path) -> None:
    put("a.txt", "changed\n")(repo)
    before = digest(repo)
    put("ignored/x", "y")(repo)
    put("x.log", "y")(repo)
    put("node_modules/p/index.js", "y")(repo)
    put("sub/__pycache__/x.pyc", "y")(repo)
    os.utime(repo / "a.txt", ns=(7, 7))
    os.utime(repo / "sub" / "b.txt", ns=(7, 7))
    run(repo, "update-index", "-q", "--refresh", "--really-refresh", "--", "sub/b.txt")
    assert digest(repo) == before
    put("a.txt", "other\n")(repo)
    put("a.txt", "changed\n")(repo)
    assert digest(repo) == before


def test_the_state_is_reported_as_git_tells_it_from_any_folder_in_it(repo: Path) -> None:
    put("a.txt", "one\nmore\n")(repo)
    put("sub/new ü.txt", "x")(repo)
    (repo / "sub" / "b.txt").unlink()
    found = status(str(repo / "sub"))
    assert found is not None
    assert found.head == run(repo, "rev-parse", "HEAD").strip()
    assert found.branch == "main"
    assert found.status == " M a.txt\n D sub/b.txt\n?? sub/new ü.txt"
    assert " a.txt     | 1 +\n" in found.diff_stat
    assert found.diff_stat.endswith("2 files changed, 1 insertion(+), 1 deletion(-)")


def test_before_the_first_commit_and_without_a_branch_there_is_a_state_too(tmp_path: Path) -> None:
    run(tmp_path, "init", "-q", "-b", "main")
    put("a", "x\n")(tmp_path)
    run(tmp_path, "add", "a")
    found = status(str(tmp_path))
    assert found is not None
    assert (found.head, found.branch, found.status) == ("", "main", "A  a")
    assert "a | 1 +" in found.diff_stat
    run(tmp_path, "commit", "-q", "-m", "1")
    run(tmp_path, "checkout", "-q", "--detach")
    found = status(str(tmp_path))
    assert found is not None
    assert (bool(found.head), found.branch) == (True, "")


def test_outside_git_and_where_nothing_is_there_is_no_state(tmp_path: Path) -> None:
    assert status(str(tmp_path)) is None
    assert status(str(tmp_path / "none")) is None
    assert status("a\0b") is None
    (tmp_path / "file").write_text("")
    assert status(str(tmp_path / "file")) is None


def test_without_git_there_is_no_state(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert status(str(repo)) is None


def test_the_users_environment_does_not_lead_git_elsewhere(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = status(str(repo))
    other = tmp_path / "other"
    run(tmp_path, "init", "-q", "other")
    for name, value in (
        ("GIT_DIR", other / ".git"),
        ("GIT_WORK_TREE", other),
        ("GIT_INDEX_FILE", tmp_path / "no-index"),
        ("GIT_PAGER", "false"),
        ("GIT_EXTERNAL_DIFF", "false"),
        ("GIT_TRACE", tmp_path / "trace"),
    ):
        monkeypatch.setenv(name, str(value))
    assert status(str(repo)) == expected
    assert not (tmp_path / "trace").exists()


def test_looking_writes_nothing_and_runs_nothing_of_the_repository(repo: Path) -> None:
    ran = repo.parent / "ran"
    script = f"#!/bin/sh\ntouch {ran}\n"
    for name in ("post-index-change", "fsmonitor", "pager", "diff"):
        hook = repo / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(script)
        hook.chmod(0o755)
    hooks = repo / ".git" / "hooks"
    run(repo, "config", "core.fsmonitor", str(hooks / "fsmonitor"))
    run(repo, "config", "core.pager", str(hooks / "pager"))
    run(repo, "config", "diff.external", str(hooks / "diff"))
    ran.unlink(missing_ok=True)
    put("a.txt", "ONE\n")(repo)
    os.utime(repo / "sub" / "b.txt", ns=(9, 9))  # git would write that into its index
    index = (repo / ".git" / "index").read_bytes()
    (repo / ".git" / "index.lock").write_text("")  # another git is at work
    found = status(str(repo))
    assert found is not None
    assert "a.txt" in found.diff_stat
    assert not ran.exists()
    assert (repo / ".git" / "index").read_bytes() == index


def test_a_git_that_hangs_is_ended_in_time_with_all_that_it_started(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bin" / "git"
    fake.parent.mkdir()
    pids = tmp_path / "pids"
    fake.write_text(f"#!/bin/sh\nsleep 600 &\necho $! >> {pids}\necho $$ >> {pids}\nwait\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    found = status(str(repo), max_s=0.5)
    assert found is not None
    assert found.digest == ""
    started = list(map(int, pids.read_text().split()))
    until(lambda: not any(map(_is_alive, started)))


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


def test_very_many_untracked_files_are_bounded_and_the_digest_is_steady(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(600):
        put(f"many/{number:04}", "")(repo)
    found = status(str(repo))
    assert found is not None
    lines = found.status.split("\n")
    assert len(lines) == 200
    assert lines[-1] == "[… 401 more lines …]"
    monkeypatch.setattr(repository, "MAX_BYTES", 3_000)
    first = digest(repo)
    assert [digest(repo) for _ in range(3)] == [first] * 3
    put("a.txt", "x")(repo)
    assert digest(repo) != first


# Kinds of repositories


def pointer(content: bytes) -> str:
    oid = hashlib.sha256(content).hexdigest()
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {len(content)}\n"


def test_a_file_of_lfs_is_changed_only_if_it_is(repo: Path) -> None:
    """Its filter is not run, so git compares it with its pointer."""
    for name in ("a.bin", "b.bin", "lost.bin"):
        put(name, pointer(b"large"))(repo)
    put(".gitattributes", "*.bin filter=lfs diff=lfs -text\n")(repo)
    run(repo, "add", ".")
    run(repo, "commit", "-q", "-m", "lfs")
    clean = digest(repo)
    for name in ("a.bin", "b.bin", "lost.bin"):
        put(name, "large")(repo)  # as git-lfs checks it out
    found = status(str(repo))
    assert found is not None
    assert (found.status, found.digest) == ("", clean)
    put("b.bin", "LARGE")(repo)
    (repo / "lost.bin").unlink()
    found = status(str(repo))
    assert found is not None
    assert found.status == " M b.bin\n D lost.bin"
    assert "a.bin" not in found.diff_stat
    assert "b.bin" in found.diff_stat


def test_a_file_of_another_filter_has_a_steady_digest(repo: Path) -> None:
    put(".gitattributes", "*.secret filter=crypt\n")(repo)
    put("a.secret", "encrypted")(repo)
    run(repo, "add", ".")
    run(repo, "commit", "-q", "-m", "crypt")
    put("a.secret", "plain text")(repo)
    first = digest(repo)
    os.utime(repo / "a.secret", ns=(5, 5))
    assert digest(repo) == first
    put("a.secret", "other text")(repo)
    assert digest(repo) != first


def test_work_in_a_submodule_is_seen(repo: Path, tmp_path: Path) -> None:
    run(tmp_path, "clone", "-q", "repo", "origin")
    run(
        repo, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "../origin", "sub2"
    )
    run(repo, "commit", "-q", "-m", "with a submodule")
    before = digest(repo)
    put("sub2/a.txt", "changed\n")(repo)
    found = status(str(repo))
    assert found is not None
    assert found.status == " M sub2"
    assert found.digest != before
    run(repo / "sub2", "commit", "-q", "-a", "-m", "changed")
    after = digest(repo)
    assert after not in (before, found.digest)
    run(repo / "sub2", "checkout", "-q", "--detach", "HEAD~1")
    run(repo, "submodule", "--quiet", "deinit", "--force", "sub2")
    assert digest(repo) != after


def test_submodules_that_lead_out_or_around_are_left_alone(repo: Path, tmp_path: Path) -> None:
    run(tmp_path, "clone", "-q", "repo", "other")
    paths = ("../other", ".", "./sub/..", "sub", str(tmp_path / "other"), "none")
    said = "".join(f'[submodule "{n}"]\n\tpath = {p}\n' for n, p in enumerate(paths))
    put(".gitmodules", said)(repo)
    before = digest(repo)
    put("a.txt", "changed\n")(tmp_path / "other")
    assert digest(repo) == before


KINDS: dict[str, list[Change]] = {
    "a split index": [git_does("update-index", "--split-index")],
    "packed refs and objects": [git_does("pack-refs", "--all"), git_does("gc", "-q")],
    "an index of version 4": [git_does("update-index", "--index-version", "4")],
    "a sparse checkout": [git_does("sparse-checkout", "set", "--cone", "sub")],
    "ends of lines of its own": [
        git_does("config", "core.autocrlf", "true"),
        lambda repo: (repo / "a.txt").write_bytes(b"one\r\n"),
        git_does("add", "a.txt"),
        lambda repo: os.utime(repo / "a.txt", ns=(5, 5)),
    ],
    "no modes": [
        git_does("config", "core.fileMode", "false"),
        lambda repo: (repo / "a.txt").chmod(0o755),
    ],
    "files that the user never wants": [
        put(".git/info/exclude", "*.mine\n"),
        put("x.mine", ""),
    ],
    "a list of the user's own": [
        git_does("config", "core.excludesFile", "list"),
        put("list", "*.theirs\nlist\n"),
        put("x.theirs", ""),
    ],
}


@pytest.mark.parametrize("name", KINDS)
def test_a_clean_repository_is_clean_with(name: str, repo: Path) -> None:
    before = status(str(repo))
    for change in KINDS[name]:
        change(repo)
    assert run(repo, "status", "--porcelain") == ""
    assert status(str(repo)) == before


def test_the_users_list_of_files_to_ignore_counts(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    put(".config/git/ignore", "*.swp\n")(home)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    put("a.swp", "")(repo)
    put("a.bak", "")(repo)
    found = status(str(repo))
    assert found is not None
    assert found.status == "?? a.bak"
    put(".gitconfig", "[core]\n\texcludesFile = ~/mine\n")(home)
    put("mine", "*.bak\n")(home)
    found = status(str(repo))
    assert found is not None
    assert found.status == "?? a.swp"


def test_other_objects_worktrees_and_odd_paths_are_read_too(tmp_path: Path) -> None:
    folder = tmp_path / "a\nb"
    folder.mkdir()
    run(folder, "init", "-q", "-b", "main", "--object-format=sha256")
    put("f", "x\n")(folder)
    run(folder, "add", ".")
    run(folder, "commit", "-q", "-m", "1")
    run(folder, "worktree", "add", "-q", "-b", "side", "../linked")
    put("f", "y\n")(tmp_path / "linked")
    for place, branch, shown in ((folder, "main", ""), (tmp_path / "linked", "side", " M f")):
        found = status(str(place))
        assert found is not None
        assert (found.branch, found.status) == (branch, shown)
        assert found.head == run(place, "rev-parse", "HEAD").strip()
        assert len(found.head) == 64


def test_nothing_is_left_behind(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    assert digest(repo)
    assert list(folder.iterdir()) == []
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    found = status(str(repo))
    assert found is not None
    assert found.digest == ""
    assert git.mark(str(repo)) == tree.digest(str(repo))


# Folders


def test_outside_git_the_folders_digest_counts(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    put("a/b.txt", "x")(folder)
    before = git.mark(str(folder))
    assert before == tree.digest(str(folder)) != ""
    put("node_modules/x", "y")(folder)
    put(".venv/bin/python", "y")(folder)
    put("a/__pycache__/x.pyc", "y")(folder)
    assert git.mark(str(folder)) == before
    put("a/c.txt", "x")(folder)
    after = git.mark(str(folder))
    assert after != before
    os.utime(folder / "a" / "b.txt", ns=(3, 3))
    assert git.mark(str(folder)) != after


def test_a_folders_digest_is_bounded_and_knows_no_links_nor_missing_folders(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    for number in range(50):
        put(f"{number:02}", "x")(folder)
    (folder / "up").symlink_to("..")
    assert tree.digest(str(folder)) != tree.digest(str(folder), max_files=10)
    bounded = tree.digest(str(folder), max_files=10)
    put("49", "changed")(folder)
    assert tree.digest(str(folder), max_files=10) == bounded
    assert tree.digest(str(tmp_path / "none")) == ""
    assert tree.digest(str(folder / "01")) == ""
    assert tree.digest("a\0b") == ""


def test_a_folder_that_takes_too_long_has_no_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "_WAIT_EVERY", 1)
    put("x", "x")(tmp_path)
    assert tree.digest(str(tmp_path), max_s=-1) == ""


def test_files_are_hashed_as_they_are_and_nobody_is_waited_for(tmp_path: Path) -> None:
    put("a", "one")(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dead").symlink_to("nowhere")
    found = tree.files_now(
        ["a", "pipe", "dead", "none", str(tmp_path / "a"), "x\0y"], str(tmp_path)
    )
    one = hashlib.sha256(b"one").hexdigest()
    assert [(file.sha256, file.exists) for file in found] == [
        (one, True),
        (None, True),
        (None, True),
        (None, False),
        (one, True),
        (None, False),
    ]
    assert [tree.is_there(name, str(tmp_path)) for name in ("a", "none", "~", "x\0y")] == [
        *(True, False, True, False)
    ]
