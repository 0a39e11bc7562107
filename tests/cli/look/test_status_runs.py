"""`segue status` after runs and handoffs: a run is one line, and nothing finished awaits a
handoff."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.running import LONG_S, Staged, stage

from segue.errors import SegueError
from segue.system.files import state
from segue.watch.log import Log
from segue.watch.server.remote import Remote

WIDE = "150"


def status(s: Staged, *words: str) -> list[str]:
    ended = s.segue("status", *words, COLUMNS=WIDE)
    assert ended.code == 0, ended.stderr
    return [line for line in ended.lines if line.strip()]


def sessions(s: Staged, command: str = "status") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(s.segue(command, "--json").stdout)["sessions"]
    return found


def ask_daemon(s: Staged, count: int) -> list[dict[str, Any]]:
    """What `segue watch` tells of the same sessions, once it has seen them all."""
    daemon = s.start("watch")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SEGUE_HOME", str(s.home))
        remote = Remote(state.socket_path(), timeout_s=LONG_S)

    def asked() -> list[dict[str, Any]]:
        try:
            found: list[dict[str, Any]] = remote.get("/v1/sessions")["sessions"]
        except SegueError:
            return []
        return found if len(found) >= count else []

    try:
        return list(s.until(asked))
    finally:
        daemon.terminate()
        daemon.wait(LONG_S)


def test_a_run_over_several_sessions_is_one_line_with_its_id_and_awaits_no_handoff(
    tmp_path: Path,
) -> None:
    with stage("three-exhaustions", within=tmp_path) as s:
        assert s.run().code == 0
        (run_id,) = s.run_ids()

        head, line = status(s)
        assert head.split()[-1] == "session"
        assert line.split()[-1] == run_id
        assert "done" in line.split()
        assert " turn" not in line  # no handoff is ahead; growth has "/turn"
        (_, narrow) = [x for x in s.segue("status", COLUMNS="80").lines if x.strip()]
        assert run_id in narrow
        assert "done" in narrow

        found = sessions(s)
        assert len(found) > 2
        assert {each["run"] for each in found} == {run_id}
        assert {each["run_state"] for each in found} == {"done"}
        assert {each["handoff"]["tokens"] for each in found} == {None}
        assert {each["handoff"]["at_tokens"] for each in found} == {170_000}
        ids = [each["session_id"] for each in found]  # the newest first
        assert [each["handed_over_to"] for each in found] == [None, *ids[:-1]]

        listed = s.segue("sessions", COLUMNS=WIDE)
        assert listed.stdout.count("handed over") == len(found) - 1
        assert " now " not in listed.stdout.replace(" now  ", " ")  # of the last column alone
        shown = s.segue("show", ids[-1])
        assert f"{run_id}: done" in shown.stdout
        assert ids[-2] in shown.stdout
        assert "ahead" not in shown.stdout
        zones = json.loads(s.segue("show", ids[-1], "--json").stdout)["zones"]
        assert {zone["tokens"] for zone in zones} == {None}
        keys = ("session_id", "run", "run_state", "handed_over_to", "handoff", "state")
        by_daemon = {e["session_id"]: [e[k] for k in keys] for e in ask_daemon(s, len(found))}
        assert by_daemon == {e["session_id"]: [e[k] for k in keys] for e in found}

        watched = s.start("status", "--watch", "--json")
        assert watched.stdout is not None
        assert {e["run"] for e in json.loads(watched.stdout.readline())["sessions"]} == {run_id}

        code = (
            "import sys; from segue.mcp.answers import Answers;"
            "print(Answers(sys.argv[1]).context_status(sys.argv[2]).text)"
        )
        told = subprocess.run(
            [sys.executable, "-c", code, str(s.project), ids[-1]],
            env=s.env,
            capture_output=True,
            text=True,
            check=True,
            timeout=LONG_S,
        ).stdout
        assert "handoff is due" not in told
        assert f"handed over to session {ids[-2]}" in told
        assert f"part of {run_id} (done)" in told


def test_a_run_that_works_is_reported_by_its_state_and_one_that_nobody_drives_too(
    tmp_path: Path,
) -> None:
    with stage("silent-hang", within=tmp_path, policy={"stall_s": 900}) as s:
        process, run_id = s.new_run()
        s.until(lambda: sessions(s))
        (line,) = status(s)[1:]
        assert line.split()[-1] == run_id
        assert "working" in line
        process.kill()
        process.wait()
        s.until(lambda: "unattended" in status(s)[-1])
        s.segue("cancel", run_id)
        assert "cancelled" in status(s)[-1]


def test_a_run_whose_file_is_damaged_hides_no_session(tmp_path: Path) -> None:
    with stage("plan-limit", within=tmp_path) as s:
        assert s.run().code == 0
        (s.home / "runs.db").write_bytes(b"no database" * 1000)
        for name in ("runs.db-wal", "runs.db-shm"):
            (s.home / name).unlink(missing_ok=True)
        ended = s.segue("status", "--json")
        assert ended.code == 0
        assert json.loads(ended.stdout)["sessions"][0]["run"] is None
        assert len(ended.stderr.splitlines()) == 1
        assert "runs.db" in ended.stderr


@pytest.mark.parametrize(("outcome", "successor"), [("done", "new-1"), ("cancelled", None)])
def test_a_session_that_was_handed_over_in_a_terminal_says_so(
    outcome: str, successor: str | None, tmp_path: Path
) -> None:
    with stage("plan-limit", within=tmp_path) as s:
        assert s.run().code == 0
        for name in ("runs.db", "runs.db-wal", "runs.db-shm"):  # as if begun by hand
            (s.home / name).unlink(missing_ok=True)
        (session,) = sessions(s)
        log = Log(s.home / "watch.db")
        data = {
            "agent": session["agent"],
            "session_id": session["session_id"],
            "new_session_id": "new-1",
            "outcome": outcome,
        }
        log.append("metrics", at=time.time(), data=data)
        log.close()
        (session,) = sessions(s)
        assert session["handed_over_to"] == successor
        assert ("handed over" in status(s)[1]) == (successor is not None)
