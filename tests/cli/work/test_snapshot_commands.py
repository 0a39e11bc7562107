"""`diff` and `restore`, through the real command line, and the snapshots that a run leaves."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.running import QUICK, Staged, stage

from segue.system.git import snapshots


def git(s: Staged, *words: str, stdin: str = "") -> str:
    done = subprocess.run(
        ["git", *words], cwd=s.project, input=stdin, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Staged, str]]:
    """A run with handoffs that is over, in a tree with uncommitted work of the user's."""
    policy = {**QUICK, "snapshot_every_s": 0.0}
    with stage("three-exhaustions", within=tmp_path_factory.mktemp("done"), policy=policy) as s:
        (s.project / "mine.txt").write_text("my own draft\n")
        ended = s.run("--json")
        assert ended.code == 0, ended.stderr
        yield s, ended.events[0]["run"]


def test_every_leg_has_a_snapshot_before_and_after_it(done: tuple[Staged, str]) -> None:
    s, run = done
    listed = json.loads(s.segue("restore", run, "--list", "--json").stdout)
    names = [each["snapshot"] for each in listed["snapshots"]]
    with s.store() as store:
        legs = [leg.leg for leg in store.legs(run)]
    assert len(legs) > 2
    assert {f"leg-{leg}.0" for leg in legs} | {f"leg-{leg}" for leg in legs} <= set(names)
    assert any(name.endswith(".1") for name in names), "none at a boundary"
    text = s.segue("restore", run, "--list").stdout
    assert "before leg 1" in text
    assert "after leg 1" in text


def test_a_leg_and_the_run_are_shown_as_patches_that_git_applies(done: tuple[Staged, str]) -> None:
    s, run = done
    patch = s.segue("diff", run)
    assert patch.code == 0, patch.stderr
    kept = snapshots.list_all(str(s.project), run)
    assert "mine.txt" not in patch.stdout  # it was there before
    git(s, "apply", "--check", "-R", stdin=patch.stdout)
    parts = [s.segue("diff", run, "--leg", str(leg)).stdout for leg in (1, kept[-1].leg)]
    assert parts[0] != parts[1]
    assert len(parts[0]) < len(patch.stdout)
    told = json.loads(s.segue("diff", run, "--json").stdout)
    assert told["schema"] == 1
    assert told["to"]["commit"] == kept[-1].commit
    assert sum(each["added"] for each in told["files"]) == patch.stdout.count("\n+") - len(
        told["files"]
    )
    committed = git(s, "log", "--reverse", "--format=%s").splitlines()[1:]
    assert [each["subject"] for each in told["commits"]] == committed
    stat = s.segue("diff", run, "--stat").lines
    assert stat[-1].startswith(f"{len(told['files'])} file")


def test_the_work_comes_back_as_a_branch_and_in_a_folder_and_nothing_is_written_over(
    done: tuple[Staged, str], tmp_path: Path
) -> None:
    s, run = done
    before = git(s, "status", "--porcelain"), git(s, "rev-parse", "HEAD"), git(s, "stash", "list")
    ended = s.segue("restore", run)
    assert ended.code == 0, ended.stderr
    (branch,) = git(s, "for-each-ref", "--format=%(refname:short)", "refs/heads/segue").split()
    assert f"git switch {branch}" in ended.stdout
    assert git(s, "show", f"{branch}:mine.txt") == "my own draft\n"
    assert s.segue("restore", run, "leg-1.0", "--to", str(tmp_path / "old")).code == 0
    assert (tmp_path / "old" / "mine.txt").read_text() == "my own draft\n"
    for words, said in (
        ((run, "--to", str(s.project)), "not empty"),
        ((run, "--branch", "main"), "already"),
        ((run, "leg-99"), "no snapshot"),
        ((run, "--branch", "a", "--to", "b"), "cannot be combined"),
        (("run-none",), "no run"),
    ):
        refused = s.segue("restore", *words)
        assert refused.code == 2, words
        assert said in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
    after = git(s, "status", "--porcelain"), git(s, "rev-parse", "HEAD"), git(s, "stash", "list")
    assert after == before
    wrong = s.segue("diff", run, "--leg", "99")
    assert wrong.code == 2
    assert "leg 99" in wrong.stderr


def test_a_forgotten_run_has_none_and_a_new_run_drops_what_is_old(tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        snapshots.take(str(s.project), "run-0ld", "leg-1", 1_000.0)
        run = s.run("--json").events[0]["run"]
        assert snapshots.list_all(str(s.project), "run-0ld") == []
        assert snapshots.list_all(str(s.project), run)
        moved = s.project.rename(s.project.with_name("moved"))
        for command in ("diff", "restore"):
            refused = s.segue(command, run, cwd=tmp_path)
            assert refused.code == 2
            assert "which no longer exists; if its repository moved, run this" in refused.stderr
            assert s.segue(command, run, cwd=moved).code == 0  # it took its snapshots along
        moved.rename(s.project)
        assert s.segue("forget", run).code == 0
        assert snapshots.list_all(str(s.project), run) == []
        assert "no run is called" in s.segue("diff", run).stderr


def test_outside_git_it_is_reported_once_and_with_snapshots_off_nothing_is_kept(
    tmp_path: Path,
) -> None:
    with stage("three-exhaustions", within=tmp_path) as s:
        s.config(policy={**QUICK, "snapshots": False})
        quiet = s.run("--set", "max_legs=1")
        assert "snapshot" not in quiet.stderr
        assert "has no snapshots" in s.segue("diff").stderr
        folder = tmp_path / "outside"
        folder.mkdir()
        command = json.dumps(["sh", "-c", "echo more >> work.txt; echo all is done"])
        s.config(f'[agents.mine]\ncommand = {command}\ndone = "all is done"\n')
        ended = s.segue(
            "run", "--agent", "mine", "--check", "test -e c || { : > c; exit 1; }", "x", cwd=folder
        )
        assert ended.code == 0, ended.stderr
        assert ended.stderr.count("cannot take snapshots") == 1
        refused = s.segue("diff", cwd=folder)
        assert refused.code == 2
        assert "is not in a git repository" in refused.stderr
