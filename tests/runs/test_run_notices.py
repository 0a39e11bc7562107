"""Notices from runs: one each, from the process that drives the run, without delaying it."""

import json
import sys
from contextlib import ExitStack
from datetime import UTC
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.agents.denied import DENIED
from support.running import QUICK, Staged, stage
from support.watch.services import NoticeService, noticed
from support.watching import watching

from segue.core.policy import Policy
from segue.core.runs.types import Outcome, Run, RunState, Wait
from segue.core.stops.reasons import StopReason
from segue.runs.notices import notice_of

RUN = Run(
    id="run-1", task="t", agent="claude", cwd="/home/me/shop", created_at=0.0, policy=Policy()
)
WORKS = replace(RUN, state=RunState.WORKING)


def told(after: Run, at: float) -> str:
    found = notice_of(WORKS, after, at, UTC)
    return f"{found.kind}: {found.title}: {found.body}" if found else ""


def ended(state: RunState, code: int = 1) -> Run:
    return replace(WORKS, state=state, outcome=Outcome(exit_code=code, reason="r", what="so it is"))


def test_what_is_reported_and_what_is_not() -> None:
    who = "claude in shop (run-1)"
    assert told(ended(RunState.NEEDS_YOU), 5.0) == f"needs_you: {who} needs you: so it is"
    assert told(ended(RunState.FAILED), 5.0) == f"stop: {who} failed: so it is"
    assert told(ended(RunState.FAILED, 75), 5.0) == f"stop: {who} gave up: so it is"
    assert told(ended(RunState.DONE, 0), 600.0) == ""
    assert told(ended(RunState.DONE, 0), 601.0) == f"done: {who} is done: so it is"
    assert told(ended(RunState.CANCELLED, 130), 9_999.0) == ""
    assert told(WORKS, 9_999.0) == ""


def test_a_limit_is_reported_if_it_is_longer_than_half_an_hour() -> None:
    def waits(s: float, why: StopReason = StopReason.RATE_LIMIT) -> str:
        wait = Wait(until=s, since=0.0, why=why)
        return told(replace(WORKS, state=RunState.WAITING, wait=wait), 0.0)

    assert waits(1_800.0) == ""
    assert waits(1_801.0).startswith("wait: claude in shop (run-1) waits: ")
    assert "until Thu 02:00" in waits(7_200.0)
    assert waits(7_200.0, StopReason.OVERLOADED) == ""
    wait = Wait(until=9e3, since=0.0, why=StopReason.RATE_LIMIT)
    again = replace(WORKS, state=RunState.WAITING, wait=wait)
    assert notice_of(again, again, 1.0, UTC) is None


def set_up(s: Staged, service: NoticeService, more: str = "") -> None:
    s.config(more, policy={**QUICK, "notify": [service.url]})


def test_a_run_that_fails_tells_it_once_and_a_daemon_does_not_tell_it_again(
    tmp_path: Path,
) -> None:
    with noticed() as service, stage("auth-failure", within=tmp_path) as s:
        set_up(s, service)
        with watching(s.home, s.env) as watch:
            ended = s.run("--json")
            assert ended.code != 0
            (run,) = s.run_ids()
            assert len(service.got) == 1
            session = s.segue("show", run, "--json").events[0]["leg_list"][0]["session_id"]
            # The daemon has seen its session, and has had the time to speak.
            watch.until(lambda: session in watch.segue("sessions", "--json"), "the session")
            assert watch.stop() == 0
        (title,) = service.titles
        assert run in title
        assert "rehearsal" in title or "claude" in title


LIMITED = "echo 'Error: 429 rate limit exceeded, please retry after 7200 seconds' >&2; exit 1"


def test_a_long_limit_is_reported_once_also_if_segue_is_killed_and_continues(
    tmp_path: Path,
) -> None:
    with noticed() as service, stage("success", within=tmp_path) as s:
        command = json.dumps(["sh", "-c", LIMITED])
        set_up(s, service, f"[agents.limited]\ncommand = {command}\n")
        words = ("--agent", "limited", "x")
        process = s.start("run", *words)
        s.until(lambda: service.got)
        (run,) = s.run_ids()
        assert s.state(run) == "waiting"
        process.kill()
        process.wait()
        again = s.start("resume", run)
        s.until(lambda: f"process {again.pid}" in s.segue("show", run).stdout)
        assert s.segue("cancel", run).code == 0
        assert s.end(again).code == 130
        assert len(service.got) == 1
        assert service.got[0]["title"] == f"limited in project ({run}) waits"


def test_a_service_that_fails_is_reported_once_and_one_that_hangs_does_not_keep_the_answer(
    tmp_path: Path,
) -> None:
    with noticed() as service, stage("auth-failure", within=tmp_path) as s:
        set_up(s, service)
        service.status = 500
        ended = s.run()
        assert ended.stderr.count("notice not sent: json:// did not accept it") == 1
        assert service.url not in ended.stderr
        service.answers.clear()
        # Apprise itself gives up after four seconds: then it has failed, and hangs no more.
        s.config(policy={**QUICK, "notify": [f"{service.url}?rto=60"]})
        process = s.start_run("--json")
        assert process.stdout is not None
        lines = []
        while '"finish"' not in (line := process.stdout.readline()):
            lines.append(line)
        # All that must come through has come, while the service still hangs.
        assert not service.answers.is_set()
        said = s.end(process)
        assert said.code == ended.code
        assert "not been sent yet" in said.stderr


def needy(s: Staged, service: NoticeService) -> tuple[str, ...]:
    """A run that will need the user."""
    (s.root / "denied.py").write_text(DENIED)
    command = json.dumps([sys.executable, str(s.root / "denied.py")])
    set_up(s, service, f'[agents.denied]\ncommand = {command}\nlike = "claude"\n')
    return "run", "--agent", "denied", "--check", "true", "anything"


@pytest.mark.parametrize("has_daemon", [False, True])
def test_a_run_that_needs_the_user_says_so_as_soon_as_it_does_and_once_also_after_a_kill(
    tmp_path: Path, has_daemon: bool
) -> None:
    with noticed() as service, stage("success", within=tmp_path) as s, ExitStack() as beside:
        words = needy(s, service)
        watch = beside.enter_context(watching(s.home, s.env)) if has_daemon else None
        service.answers.clear()
        process = s.start(*words)
        s.until(lambda: service.got)
        # It was told by the very entry with which the run came to need the user, and nothing else
        # was waited for: the process is still there, and the service has not even answered.
        (run,) = s.run_ids()
        with s.store() as store:
            entry = store.log(run)[-1]
        assert entry.state == "needs-you"
        told = [file.name for file in (s.home / "runs" / run / "notices").iterdir()]
        assert told == [f"{entry.seq:06}-needs_you"]
        assert process.poll() is None
        process.kill()
        process.wait()
        service.answers.set()
        # Whoever comes next does not tell it again.
        assert "needs-you" in s.segue("show", run).stdout
        if watch is None:
            watch = beside.enter_context(watching(s.home, s.env))
            watch.until(lambda: watch.remote.get("/v1/status")["log_seq"] >= 0, "the daemon")
        assert watch.stop() == 0  # it sends what it still has to say
        assert service.titles == [f"denied in project ({run}) needs you"]


def test_without_a_service_nothing_is_written_or_said(tmp_path: Path) -> None:
    with stage("auth-failure", within=tmp_path) as s:
        ended = s.run()
        assert "notice" not in ended.stderr
        assert not list((s.home / "runs").glob("*/notices"))
