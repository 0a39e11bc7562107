"""Many runs at once on one machine, with one state folder: none disturbs another."""

from pathlib import Path

from support.running import stage
from support.runs.crowd import crowd

MANY = 8
BLIND = """
from segue.system.files.changes import Notifier
from segue.start import main

Notifier._open = lambda self: None
main()
"""


def test_runs_at_once_all_finish_each_step_is_done_once_and_the_common_state_is_whole(
    tmp_path: Path,
) -> None:
    with crowd(MANY, tmp_path) as c:
        processes = [staged.start_run() for staged in c.staged]
        for staged, process in zip(c.staged, processes, strict=True):
            ended = staged.end(process, max_s=120)
            assert ended.code == 0, ended.stderr
        assert c.faults() == []


def test_a_run_for_which_the_kernel_has_no_events_left_is_as_whole_and_says_nothing_of_it(
    tmp_path: Path,
) -> None:
    """A user has 128 inotify instances, and others want some too."""
    script = tmp_path / "blind.py"
    script.write_text(BLIND)
    with stage("window-fills-slowly", within=tmp_path) as s:
        ended = s.end(s.start_script(script, *s.words("--json", "--check", "true")))
        assert (ended.code, ended.stderr) == (0, "")
        assert s.continuity().is_whole
        assert any(event["kind"] == "told" for event in ended.events)
