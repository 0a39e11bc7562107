"""What the daemon answers through its API, in the status line and over MCP."""

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from support.homes import SESSION
from support.watch.api import OPENAPI, described, fault_of
from support.watch.daemons import ask, serving
from support.watch.linked import NOW, OTHER, Linked, at, limited
from support.watch.linked import linked as linked  # a fixture

from segue.core.handoffs.machine.types import HandoffStep, RecordFigures, TerminalHandoff
from segue.core.handoffs.metrics import metrics
from segue.core.sessions.remarks import LimitSeen
from segue.core.sessions.types import SessionState
from segue.errors import InputError, StateError
from segue.mcp.answers import Answers
from segue.system import clock as zone
from segue.watch.log import Note
from segue.watch.server import api
from segue.watch.server.answers import DaemonAnswers
from segue.watch.server.remote import Remote
from segue.watch.server.status_line import line

# The status line


def test_the_status_line_says_what_the_daemon_knows(linked: Linked) -> None:
    session = linked.see(at(72, limits={"five_hour": LimitSeen(used_percent=43.0)}))
    payload = {
        "session_id": SESSION,
        "context_window": {"context_window_size": 200_000, "used_percentage": 5},
        "segue": {"columns": 200, "color": False},
    }
    policy_for = linked.watch.state.rules.policy
    wanted = line(payload, session, policy_for, NOW, 200, False, tz=zone.local_zone())
    assert linked.link.statusline(payload).decode() == wanted
    assert "72% critical" in wanted
    assert "5h 43%" in wanted
    unknown = linked.link.statusline({**payload, "session_id": "nobody"}).decode()
    assert "5% normal" in unknown
    assert linked.link.metrics()["statusline_calls"] == 2


# What is asked for


def test_pauses_hold_for_folders_sessions_and_all_and_over_a_restart(own_home: Path) -> None:
    linked = Linked(own_home)
    session = linked.see(at(20, cwd="/p/sub"))
    world = linked.watch.state
    for what in ("/p", "/p/", "/p/sub", SESSION, SESSION[:6], "all", ""):
        linked.link.pause(what)
        assert world.is_paused(session), what
        linked.link.unpause(what)
        assert not world.is_paused(session), what
    for what in ("/", "/p/su"):
        linked.link.pause(what)
        assert world.is_paused(session) == (what == "/")
        linked.link.unpause(what)
    linked.link.pause("/p")
    linked.link.pause(SESSION)
    assert linked.link.unpause(SESSION[:6]) == f"no longer paused: {SESSION}; still paused by: /p"
    assert linked.link.unpause("/q") == "/q was not paused"
    linked.link.pause(SESSION)
    again = Linked(own_home)
    assert again.watch.state.paused == {"/p", SESSION}
    assert again.link.unpause(SESSION[:6]) == f"no longer paused: {SESSION}"
    assert again.link.unpause("") == "no longer paused: all"
    assert again.watch.state.paused == set()


def test_what_cannot_be_handed_over_is_said_in_one_line(linked: Linked) -> None:
    linked.see(at(80))
    linked.see(at(80, session_id=OTHER, cwd="/q", process=None, state=SessionState.GONE))
    linked.see(at(80, agent="gemini", session_id="g-1", cwd="/g"))
    linked.see(at(80, session_id="run-1", cwd="/r"))
    linked.kept("run-1").in_run = True
    linked.see(at(80, session_id=SESSION[:-1] + "6"))
    for name, why in (
        (SESSION, "it is not running in tmux"),
        (OTHER, "no agent has it open"),
        ("g-1", "segue cannot type into gemini"),
        ("run-1", "it belongs to a run"),
        (SESSION[:8], "may be one of 2"),
        ("/p", "may be one of 2"),
        ("nobody", "no session 'nobody' is watched"),
    ):
        with pytest.raises(InputError) as caught:
            linked.link.handoff(name, retry=False)
        assert why in str(caught.value)
        assert "\n" not in str(caught.value)
    linked.see(at(80, session_id="e-1", cwd="/p/\x1b[31mred\n"))
    with pytest.raises(InputError, match=r"claude in \?\[31mred\? \(e-1\) cannot"):
        linked.link.handoff("e-1", retry=False)
    assert "nothing is in progress" in linked.link.cancel(SESSION)
    assert linked.link.yes("") == "the daemon is not waiting for an answer"


def test_each_route_answers_as_it_is_described(linked: Linked, tmp_path: Path) -> None:
    document = tmp_path / "handoff-1.md"
    document.write_text("# Handoff\n")
    linked.see(at(72))
    cycle = {"agent": "claude", "session_id": SESSION, "step": "done", "file": str(document)}
    handoff = {"id": "h-1", "fact": {}, "cycle": cycle | {"began_at": NOW}}
    linked.watch.state.note("handoff", linked.kept().session, handoff)
    asked: list[tuple[str, str, Any, int]] = [
        ("GET", "/metrics", None, 200),
        ("GET", "/v1/status", None, 200),
        ("GET", "/v1/sessions", None, 200),
        ("GET", "/v1/changes", None, 200),
        ("GET", "/v1/changes?after=1", None, 200),
        ("GET", f"/v1/sessions/{SESSION[:6]}", None, 200),
        ("GET", "/v1/sessions/nobody", None, 404),
        ("GET", "/v1/figures?since=5", None, 200),
        ("GET", "/v1/handoffs", None, 200),
        ("GET", "/v1/handoffs/h-1", None, 200),
        ("GET", "/v1/handoffs/h-2", None, 404),
        ("GET", f"/v1/fits?session={SESSION}&tokens=400", None, 200),
        ("GET", "/v1/fits?session=nobody&tokens=400", None, 400),
        ("POST", "/v1/pause", {"what": SESSION}, 200),
        ("POST", "/v1/pause", {"what": "nobody"}, 400),
        ("POST", "/v1/unpause", None, 200),
        ("POST", "/v1/yes", None, 200),
        ("POST", "/v1/yes", {"what": SESSION}, 200),
        ("POST", "/v1/handoff", {"session": SESSION}, 400),
        ("POST", "/v1/cancel", {"session": SESSION}, 200),
        ("POST", "/v1/hook", {"hook_event_name": "PostToolUse", "session_id": SESSION}, 200),
        ("POST", "/v1/statusline", {"session_id": SESSION}, 200),
    ]
    seen = {"/v1/events"}  # its stream is the server's own, in test_api
    with serving(linked.link, path=str(tmp_path / "w" / "api.sock")) as there:
        for method, target, body, status in asked:
            got = ask(there, method, target, body)
            assert got.status == status, (target, got.body)
            route, _ = api.find(target.partition("?")[0])
            assert route is not None
            content = described(method, route, status)["content"]
            kind = got.headers["content-type"].partition(";")[0]
            assert kind in content, target
            if kind == "application/json":
                assert not fault_of(content[kind]["schema"], got.json), target
            seen.add(route)
        assert ask(there, "GET", "/v1/handoffs/h-1").body == b"# Handoff\n"
        about = ask(there, "GET", "/v1/status").json
        assert about["sessions"] == 1
        assert about["log_seq"] == linked.watch.state.log.version()
    assert seen == set(OPENAPI["paths"])


def test_the_numbers_are_those_of_the_whole_log_and_a_restart_loses_none(linked: Linked) -> None:
    linked.watch.state.note("crossing", None, {"zone": "warning"})
    again = DaemonAnswers(linked.watch)
    session = linked.see(at(72))
    linked.hook("Stop")
    linked.watch.handoffs._record(over := done_cycle(), RecordFigures(metrics(over, NOW)))
    linked.watch.state.note("wake", session, {"verdict": "resume", "place": "pane"})
    linked.watch.state.note("wake", session, {"verdict": "wait"})
    linked.watch.state.note("stop", session, {"reason": "rate_limit"})
    found = again.metrics()
    assert found["crossings"] == {"monitor": 1, "warning": 2, "critical": 1}
    assert found["handoffs"] == {"done": 1}
    assert found["resumes"] == {"pane": 1}
    assert found["stops"] == {"rate_limit": 1}
    assert found["sessions"] == {"waiting_for_user": {"critical": 1}}
    assert again.metrics() == found, "nothing is counted twice"
    assert linked.link.metrics()["hook_calls"] == {"Stop": 1}


def calls(*commands: str) -> str:
    """A transcript of Claude Code's."""
    lines = []
    for number, command in enumerate(commands):
        block = {"type": "tool_use", "id": f"t{number}", "name": "Bash"}
        said = {"id": f"m{number}", "content": [{**block, "input": {"command": command}}]}
        result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": "done"}
        lines += [
            {"type": "assistant", "message": said},
            {"type": "user", "message": {"role": "user", "content": [result]}},
        ]
    return "".join(json.dumps(line) + "\n" for line in lines)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_session_that_does_again_what_was_done_before_the_handoff_is_noted(
    linked: Linked, tmp_path: Path, is_restarted: bool
) -> None:
    old, new = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    old.write_text(calls("make build", "sh deploy"))
    new.write_text(calls("git status", "cat h.md", "make build"))
    linked.see(replace(at(72), path=str(old)))
    other = replace(
        at(5), session_id="new-1", path=str(new), state=SessionState.WORKING, last_at=NOW
    )
    over = replace(done_cycle(), new_session_id="new-1")
    if is_restarted:  # the daemon was killed just there
        linked.watch.state.note("handoff", None, {"id": "h-1", "cycle": msgspec.to_builtins(over)})
        linked.watch.arrivals.restore()
    else:
        linked.watch.handoffs._record(over, RecordFigures(metrics(over, NOW)))
    linked.see(other)
    linked.watch._tick()
    assert linked.notes("arrival") == [], "it is at work: more may follow"
    linked.see(replace(other, state=SessionState.WAITING_FOR_USER, last_at=NOW + 1))
    linked.watch._tick()
    (told,) = linked.notes("arrival")
    assert told == {
        "id": "h-1",
        "from_session_id": SESSION,
        "result": "repeats",
        "actions": 3,
        "commands": 1,
        "files": 0,
        "questions": 0,
    }
    linked.watch.arrivals.restore()
    linked.watch._tick()
    assert len(linked.notes("arrival")) == 1, "of one handoff it is told once"
    numbers = linked.link.metrics()
    assert numbers["arrivals"] == {"repeats": 1}
    assert numbers["repeats"] == {"commands": 1, "files": 0, "questions": 0}


def done_cycle() -> TerminalHandoff:
    return TerminalHandoff(
        id="h-1",
        agent="claude",
        session_id=SESSION,
        project="/p",
        cwd="/p",
        file="/p/h.md",
        began_at=NOW,
        step_at=NOW,
        used_tokens=1,
        window_tokens=2,
        step=HandoffStep.DONE,
    )


# Notices


def test_the_user_is_told_about_stops_waits_resumes_handoffs_and_questions(own_home: Path) -> None:
    linked = Linked(own_home, "[policy]\nauto_resume = true\n")
    session = linked.see(limited())
    assert linked.kinds() == ["stop", "wait"]
    pending = linked.watch.stops.pending["claude", SESSION]
    linked.watch.stops.carried(pending, "")
    assert linked.kinds()[2:] == ["resume"]
    linked.hook("Notification", notification_type="idle_prompt", message="waits")
    assert linked.kinds()[3:] == []
    linked.hook("Notification", notification_type="permission_prompt", message="Bash(rm -rf /x)")
    linked.watch.needs_you(session, "permission prompt")
    assert linked.kinds()[3:] == ["needs_you"]
    linked.watch.handoffs.begin(linked.kept())
    assert linked.kinds()[4:] == ["handoff"]
    everything = "".join(notice.title + notice.body for notice in linked.told)
    assert "rm -rf" not in everything
    assert "/p" not in everything


# MCP


def test_an_agent_asks_the_daemon_about_itself(linked: Linked, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    linked.see(at(72, cwd=str(project)))
    path = str(tmp_path / "w" / "api.sock")
    with serving(linked.link, path=path):
        answers = Answers(str(project), remote=lambda: Remote(path))
        found = answers.context_status()
        assert "72% of 200,000 tokens used, zone critical" in found.text
        assert found.data["session"]["session_id"] == SESSION
        assert not answers.fits(tokens=10_000).data["fits"]
        with pytest.raises(InputError, match="is not running in tmux"):
            answers.request_handoff("the window is nearly full")


# When something is wrong


def test_what_cannot_be_noted_is_said_once_and_loses_no_session(
    linked: Linked, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise StateError("watch.db: the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(linked.watch.state.log, "append", full)
        for session in (at(55), at(55, session_id=OTHER)):
            linked.see(session)
    assert linked.said == ["watch.db: the disk is full"]
    assert {name for _, name in linked.watch.state.tracked} == {SESSION, OTHER}
    linked.see(at(72))
    assert linked.notes("crossing")


def test_where_notices_go_is_read_again(linked: Linked) -> None:
    config = Path(os.environ["SEGUE_HOME"], "config.toml")
    linked.watch._read_config()
    assert linked.watch.state.notices is linked.notices
    config.write_text('[policy]\nnotify = ["json://127.0.0.1:1/x"]\n')
    linked.watch._read_config()
    assert linked.watch.state.notices is not linked.notices
    assert not linked.notices.tell("stop", "x", "not any more")


def test_what_agents_were_started_with_stays_in_the_log() -> None:
    note = Note(seq=1, at=1.0, kind="order", data={"id": "w-1", "argv": ["--key", "secret"]})
    assert api.note_dict(note)["data"] == {"id": "w-1"}
    note = Note(seq=2, at=1.0, kind="live", data={"pid": 7, "flags": ["--settings", "secret"]})
    assert api.note_dict(note)["data"] == {"pid": 7}
