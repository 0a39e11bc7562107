"""`segue run` resumes what may be resumed, leaves alone what the user ended, and logs why. The
verdicts themselves are tested in test_full_windows and test_user_exits, the whole table of reasons
in test_machine_stops (`test_auto_resume_…`)."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from support.running import QUICK, Ended, Staged, stage

from segue.core.stops.reasons import StopReason
from segue.drill.plays import job
from segue.runs.legs.leg import Leg

NOT_RESUMED = "Session ended by user, not auto-resuming"


def stops(s: Staged) -> list[StopReason]:
    with s.store() as store:
        return [kept.stop.reason for kept in store.stops(s.run_ids()[0])]


def sessions(s: Staged) -> list[str]:
    with s.store() as store:
        return [leg.session_id for leg in store.legs(s.run_ids()[0])]


def log(s: Staged) -> str:
    return s.segue("logs", s.run_ids()[0]).stdout


def custom(s: Staged, code: str, policy: dict[str, Any] | None = None) -> Ended:
    script = s.root / "agent.py"
    script.write_text(code)
    command = json.dumps([sys.executable, str(script)])
    s.config(f"[agents.mine]\ncommand = {command}\n", {**QUICK, **(policy or {})})
    return s.segue("run", "--agent", "mine", "anything")


# Resumed: after a rate limit and a full context, and nothing else


def test_auto_resume_rate_limit_waits_and_continues_in_the_same_session(tmp_path: Path) -> None:
    with stage("plan-limit", within=tmp_path) as s:
        ended = s.run()
        assert ended.code == 0, ended.stderr
        assert stops(s) == [StopReason.RATE_LIMIT, StopReason.COMPLETED]
        assert len(set(sessions(s))) == 1
        for told in (ended.stderr, log(s)):
            assert "leg 1 ended: rate limited" in told
            assert "waiting " in told
            assert "resuming the same session" in told
        assert s.continuity().is_whole


def test_auto_resume_context_exhaustion_starts_a_new_session(tmp_path: Path) -> None:
    with stage("too-long-no-compaction", within=tmp_path) as s:
        ended = s.run("--set", "hard_mark=1.1", "--set", "soft_mark=1.1")  # it is not seen coming
        assert ended.code == 0, ended.stderr
        assert stops(s)[0] is StopReason.CONTEXT_EXHAUSTED
        assert len(set(sessions(s))) == len(sessions(s)) > 1
        for told in (ended.stderr, log(s)):
            assert "leg 1 ended: context window exhausted" in told
            assert "a new session continues with a checkpoint" in told
        assert s.continuity().is_whole


def test_auto_resume_completed_does_nothing_more(tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        ended = s.run()
        assert ended.code == 0, ended.stderr
        assert stops(s) == [StopReason.COMPLETED]
        assert "leg 1 ended: completed" in log(s)
        assert "leg 2" not in log(s)


def test_auto_resume_unknown_does_not_assume(tmp_path: Path) -> None:
    """Nothing is said, and the exit code says nothing either."""
    with stage("success", within=tmp_path) as s:
        ended = custom(s, "import sys\nprint('hm', flush=True)\nsys.exit(57)\n")
        assert ended.code == 1, ended.stderr
        (reason,) = stops(s)
        assert reason in (StopReason.UNKNOWN, StopReason.ERROR)
        assert f"leg 1 ended: {reason.description}" in log(s)
        assert "leg 2" not in log(s)


@pytest.mark.parametrize(
    ("scenario", "reason"),
    [
        ("auth-failure", StopReason.AUTH),
        ("billing", StopReason.BILLING),
        ("turn-limit", StopReason.MAX_TURNS),
    ],
)
def test_auto_resume_what_the_user_must_see_to_is_not_resumed(
    scenario: str, reason: StopReason, tmp_path: Path
) -> None:
    with stage(scenario, within=tmp_path) as s:
        ended = s.run()
        assert ended.code == 1, ended.stderr
        assert stops(s) == [reason]
        assert f"leg 1 ended: {reason.description}" in log(s)
        assert "leg 2" not in log(s)


def test_auto_resume_rate_limit_goes_before_a_full_window(tmp_path: Path) -> None:
    """With both signs, the same session is tried again."""
    both = (
        "import sys\nprint('at work', flush=True)\n"
        "sys.stderr.write('Error: context_length_exceeded\\n"
        "Error: 429 rate limit exceeded, retry after 3600 seconds\\n')\nsys.exit(1)\n"
    )
    with stage("success", within=tmp_path) as s:
        ended = custom(s, both, {"max_limited_s": 10.0})
        assert ended.code == 75, ended.stderr
        assert stops(s) == [StopReason.RATE_LIMIT]
        with s.store() as store:
            (kept,) = store.stops(s.run_ids()[0])
        assert StopReason.CONTEXT_EXHAUSTED in kept.stop.also


# The user's exit


def test_auto_resume_user_exit_by_ctrl_c_is_logged_and_not_resumed(tmp_path: Path) -> None:
    with stage("user-interrupt", within=tmp_path) as s:
        process = s.start_run()
        s.until(lambda: job.current(s.project) == 2)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        ended = s.end(process)
        assert ended.code == 130
        assert NOT_RESUMED in ended.stderr
        assert NOT_RESUMED in log(s)
        assert "leg 2" not in log(s)


def test_auto_resume_user_exit_by_cancel_is_logged_and_not_resumed(tmp_path: Path) -> None:
    with stage("user-interrupt", within=tmp_path) as s:
        process, run_id = s.new_run()
        assert s.segue("cancel", run_id).code == 0
        assert s.end(process).code == 130
        assert NOT_RESUMED in log(s)


def interrupted(s: Staged, *more: str) -> Ended:
    """The agent itself gets a Ctrl+C that segue knows nothing of."""
    process, run_id = s.new_run(*more)
    s.until(lambda: job.current(s.project) == 2)
    os.kill(Leg(s.leg(run_id)).status().agent_pid, signal.SIGINT)
    return s.end(process)


def test_auto_resume_user_exit_in_the_agent_itself_is_logged_and_not_resumed(
    tmp_path: Path,
) -> None:
    with stage("user-interrupt", within=tmp_path) as s:
        ended = interrupted(s)
        assert ended.code == 130, ended.stderr
        assert stops(s) == [StopReason.USER_EXIT]
        assert f"{NOT_RESUMED} (in the agent)" in ended.stderr
        assert f"{NOT_RESUMED} (in the agent)" in log(s)
        assert "resume_user_exits" in ended.stderr, "the option to override it is named"


def test_auto_resume_user_exit_is_resumed_where_the_option_says_so(tmp_path: Path) -> None:
    with stage("user-interrupt", within=tmp_path) as s:
        ended = interrupted(s, "--set", "resume_user_exits=true")
        assert ended.code == 0, ended.stderr
        assert stops(s)[0] is StopReason.USER_EXIT
        assert len(set(sessions(s))) == 1
        assert NOT_RESUMED not in log(s)


def test_an_error_exit_is_not_taken_for_the_users(tmp_path: Path) -> None:
    """AC5: a code that is not 0, with an error."""
    code = "import sys\nsys.stderr.write('Error: cannot read config\\n')\nsys.exit(2)\n"
    with stage("success", within=tmp_path) as s:
        ended = custom(s, code)
        assert ended.code == 1, ended.stderr
        assert StopReason.USER_EXIT not in stops(s)
        assert NOT_RESUMED not in ended.stderr
