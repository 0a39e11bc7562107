"""One run per tree, whatever state folder each segue uses; and legs whose keeper was stopped."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from support.running import Staged, stage
from support.runs.killing import left_running
from support.runs.stops import SLOW, in_step

from segue.runs.legs.leg import Leg


def another_home(s: Staged) -> str:
    home = s.root / "another"
    home.mkdir()
    shutil.copy(s.home / "config.toml", home)
    return str(home)


@pytest.mark.parametrize("has_git", [True, False])
def test_two_state_folders_share_the_lock_of_a_tree(has_git: bool, tmp_path: Path) -> None:
    with stage(SLOW, within=tmp_path) as s:
        tree, go = s.root / "tree", s.root / "go"
        tree.mkdir()
        if has_git:
            subprocess.run(["git", "init", "-q", str(tree)], check=True)
        script = s.root / "plain.sh"
        script.write_text(f"echo at work; while ! [ -e '{go}' ]; do sleep 0.1; done; echo done\n")
        s.config(f'[agents.plain]\ncommand = ["sh", "{script}"]\n')
        before = sorted(os.listdir(tree))
        words = ("run", "--agent", "plain", "anything")
        process = s.start(*words, cwd=tree)
        s.until(lambda: s.run_ids() and s.state(s.run_ids()[0]) == "working")
        home = another_home(s)
        (tree / "below").mkdir()
        for place in (tree, tree / "below") if has_git else (tree,):
            refused = s.segue(*words, cwd=place, SEGUE_HOME=home)
            assert refused.code == 2
            assert "another run works in" in refused.stderr
            assert f"process {process.pid}" in refused.stderr
            assert "--share-tree" in refused.stderr
        (tree / "below").rmdir()
        assert sorted(os.listdir(tree)) == before, "nothing of segue's is in the tree"
        go.touch()
        assert s.end(process).code == 0
        assert s.segue(*words, cwd=tree, SEGUE_HOME=home).code == 0, "it is free again"


@pytest.mark.parametrize("is_driven", [True, False])
def test_cancel_ends_a_run_whose_keeper_was_stopped(is_driven: bool, tmp_path: Path) -> None:
    with stage(SLOW, within=tmp_path) as s:
        process = s.start_run()
        in_step(s, 2)
        (run_id,) = s.run_ids()
        keeper = Leg(s.leg(run_id)).status().keeper_pid
        os.kill(keeper, signal.SIGSTOP)
        s.until(lambda: psutil.Process(keeper).status() == psutil.STATUS_STOPPED)
        if not is_driven:
            process.kill()
            process.wait()
        ended = s.segue("cancel", run_id, max_s=90)
        assert ended.code == 0, ended.stderr
        assert s.state(run_id) == "cancelled"
        s.until(lambda: not left_running(s))


FILLS = """\
echo at work
dd if=/dev/zero of="$SEGUE_HOME/fill" bs=64k >/dev/null 2>&1
while dd if=/dev/zero of="$SEGUE_HOME/fill" bs=1 count=1 oflag=append conv=notrunc 2>/dev/null
do :; done
sleep 1
exit 3
"""


def test_a_full_disk_does_not_take_away_how_to_continue(tmp_path: Path) -> None:
    """On a real disk of a few megabytes, in a mount namespace of its own."""
    mount = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=8m none "$1" && shift && "$@"']
    if subprocess.run([*mount, "sh", str(tmp_path), "true"], check=False).returncode:
        pytest.skip("no mount namespace here")
    with stage(SLOW, within=tmp_path) as s:
        script = s.root / "fills.sh"
        script.write_text(FILLS)
        s.config(f'[agents.fills]\ncommand = ["sh", "{script}"]\n')
        config = (s.home / "config.toml").read_text()
        (s.root / "config.toml").write_text(config)
        start = f'cp "{s.root}/config.toml" "$SEGUE_HOME"; exec "$@"'
        run = [sys.executable, "-c", "from segue.start import main; main()"]
        run += ["run", "--agent", "fills", "anything"]
        ended = subprocess.run(
            [*mount, "sh", str(s.home), "sh", "-c", start, "sh", *run],
            env=s.env,
            cwd=s.project,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ended.returncode == 1, ended.stderr
        assert "Traceback" not in ended.stderr
        found = re.search(r"segue resume (run-[0-9a-f]{8})", ended.stderr)
        assert found, ended.stderr
        assert "full" in ended.stderr


FLOODS = """\
trap '' INT TERM HUP
line=$(printf '%01000d' 7)
while :; do echo "$line"; done
"""


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_an_agent_that_prints_for_ever_is_ended_with_that_cause(
    stream: str, tmp_path: Path
) -> None:
    with stage(SLOW, within=tmp_path) as s:
        script = s.root / "floods.sh"
        script.write_text(("exec 1>&2\n" if stream == "stderr" else "") + FLOODS)
        s.config(f'[agents.floods]\ncommand = ["sh", "{script}"]\n')
        words = ("run", "--agent", "floods", "--set", "max_output_bytes=3000000", "anything")
        ended = s.segue(*words)
        (run_id,) = s.run_ids()
        assert ended.code == 1
        assert s.state(run_id) == "failed"
        assert "printed more than 3,000,000 bytes" in ended.stderr
        assert "max_output_bytes = 3000000" in ended.stderr
        s.until(lambda: not left_running(s))
        with s.store() as store:
            run = store.run(run_id)
        assert run is not None
        assert run.outcome is not None
        assert run.outcome.reason == "cap"


def test_an_agent_that_prints_for_ever_is_ended_without_segue_and_the_next_one_says_why(
    tmp_path: Path,
) -> None:
    with stage(SLOW, within=tmp_path) as s:
        script, told = s.root / "floods.sh", s.root / "told"
        script.write_text(f"until [ -e {told} ]; do sleep 0.1; done\n{FLOODS}")
        s.config(f'[agents.floods]\ncommand = ["sh", "{script}"]\n')
        words = ("run", "--agent", "floods", "--set", "max_output_bytes=3000000", "anything")
        process = s.start(*words)
        (run_id,) = s.until(s.run_ids)
        s.until(lambda: (s.leg(run_id) / "stdout").exists())
        process.kill()
        process.wait()
        told.touch()
        s.until(lambda: (s.leg(run_id) / "exit.json").exists())
        s.until(lambda: not left_running(s))
        ended = s.segue("resume", run_id)
        assert ended.code == 1
        assert s.state(run_id) == "failed"
        assert "printed more than 3,000,000 bytes" in ended.stderr
