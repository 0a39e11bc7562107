"""The daemon as the API, hooks and the status line see it: all of it but what it observes."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support.homes import SESSION, claude_session, prompt, reply
from support.watch.api import OPENAPI, described, fault_of
from support.watch.daemons import ask, serving

from segue.core.handoffs.machine.types import HandoffStep, RecordFigures, TerminalHandoff
from segue.core.handoffs.metrics import metrics
from segue.core.policy import Policy
from segue.core.resumes.decisions import NOT_RESUMING
from segue.core.sessions.forecasts.forecast import forecast
from segue.core.sessions.reading import Reading
from segue.core.sessions.remarks import LimitSeen
from segue.core.sessions.types import Process, Session, SessionState, StopSeen
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import Stop
from segue.errors import InputError, StateError
from segue.mcp.answers import Answers
from segue.reports.figures import facts, figures
from segue.runs.clock import Clock
from segue.system import clock as zone
from segue.system.files import state
from segue.system.notices import Notice, Notices
from segue.views.report.figures import as_dict
from segue.watch.daemon import Watch
from segue.watch.log import Note, open_log
from segue.watch.observe import endings
from segue.watch.observe.observer import Sighting
from segue.watch.rules import Rules
from segue.watch.server import api
from segue.watch.server.answers import DaemonAnswers
from segue.watch.server.remote import Remote
from segue.watch.server.status_line import line

OTHER = SESSION.replace("1", "2")
NOW = 1_794_800_000.0
WINDOW = 200_000


class FakeClock(Clock):
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.at = NOW

    def now(self) -> float:
        return self.at

    def awake(self) -> float:
        return self.at


class FakeObserver:
    """Sees what a test says."""

    def __init__(self) -> None:
        self.sessions: dict[tuple[str, str], Session] = {}
        self.notes: list[str] = []
        self.nudges: list[tuple[str, str, str]] = []
        self.degraded = ""
        self.revision = 7

    def changes(self, after: int) -> tuple[int, list[Session], list[tuple[str, str]]]:
        return self.revision, list(self.sessions.values()), [("claude", "gone")]

    def nudge(self, agent: str, session_id: str, path: str = "") -> None:
        self.nudges.append((agent, session_id, path))

    def ending_of(self, sighting: Sighting, *, hook: str = "", other_boot: bool = False) -> Stop:
        return endings.ending_of(sighting.session, sighting.ended, self.after(), hook=hook)

    def after(self, ended: Process | None = None) -> endings.After:
        return endings.After(terminal="there")

    def reload(self, policy_for: Any, homes: Any) -> None: ...

    def wake(self) -> None: ...

    def close(self) -> None: ...


class Linked:
    """A daemon that a test leads, step by step."""

    def __init__(self, home: Path, config: str = "") -> None:
        folder = Path(os.environ["SEGUE_HOME"])
        folder.mkdir(exist_ok=True)
        (folder / "config.toml").write_text(config)
        state.make_watch_folder()
        self.home, self.clock, self.observer = home, FakeClock(), FakeObserver()
        self.said: list[str] = []
        self.told: list[Notice] = []
        self.notices = Notices(ways=[self._tell], clock=self.clock.now)
        self.watch = Watch(
            env=os.environ,
            log=open_log(folder / "watch.db")[0],
            rules=Rules(os.environ),
            say=self.said.append,
            clock=self.clock,
            notices=self.notices,
            observer=self.observer,  # type: ignore[arg-type]
        )
        self.watch.seating.learn = lambda tracked, process: False  # type: ignore[method-assign]
        self.watch.handoffs.do = lambda job: job()  # type: ignore[method-assign]
        self.watch.restore()
        self.link = DaemonAnswers(self.watch, figures=lambda since: no_figures())

    def _tell(self, notice: Notice) -> str:
        self.told.append(notice)
        return ""

    def kinds(self) -> list[str]:
        assert self.notices.wait(10)
        return [notice.kind for notice in self.told]

    def see(self, session: Session, ended: Process | None = None) -> Session:
        """The daemon sees it, as its observer would tell."""
        name = (session.agent, session.session_id)
        before = self.observer.sessions.get(name)
        self.observer.sessions[name] = session
        self.watch._take([Sighting(session, before, ended)])
        return session

    def hook(self, event: str, session_id: str = SESSION, **more: Any) -> dict[str, Any]:
        body, code = self.link.hook({"hook_event_name": event, "session_id": session_id, **more})
        assert code == 0
        found: dict[str, Any] = json.loads(body) if body else {}
        return found

    def notes(self, *kinds: str) -> list[dict[str, Any]]:
        return [note.data for note in self.link.notes(0, kinds, 1000)]

    def kept(self, session_id: str = SESSION, agent: str = "claude") -> Any:
        return self.watch.state.tracked[agent, session_id]


@pytest.fixture
def linked(own_home: Path) -> Iterator[Linked]:
    found = Linked(own_home)
    yield found
    found.notices.close()
    found.watch.state.log.close()


def at(percent: float, **more: Any) -> Session:
    """A session that is so full, with an agent behind it."""
    reading = Reading(input_tokens=int(WINDOW * percent / 100), window_tokens=WINDOW)
    known: dict[str, Any] = {
        "agent": "claude",
        "session_id": SESSION,
        "path": "/p/s.jsonl",
        "cwd": "/p",
        "model": "claude-sonnet-4-5",
        "state": SessionState.WAITING_FOR_USER,
        "last_at": NOW,
        "reading": reading,
        "zone": reading.zone(Policy()),
        "forecast": forecast(reading, None, Policy()),
        "process": Process(agent="claude", pid=os.getpid(), started_at=NOW - 60),
    }
    return Session(**(known | more))


def context_of(reply_: dict[str, Any]) -> str:
    return str(reply_.get("hookSpecificOutput", {}).get("additionalContext", ""))


# --- hooks ----------------------------------------------------------------------------------------


def test_the_agent_is_told_about_a_zone_once_for_each_crossing(linked: Linked) -> None:
    linked.see(at(20))
    assert linked.hook("PostToolUse") == {}
    linked.see(at(55))
    assert "Context at 55%" in context_of(linked.hook("PostToolUse"))
    assert linked.hook("PostToolUse") == {}
    linked.see(at(57))
    assert linked.hook("UserPromptSubmit", prompt="and?") == {}
    linked.see(at(72))
    assert "72%" in context_of(linked.hook("UserPromptSubmit", prompt="/compact"))
    linked.see(at(20))
    assert linked.hook("PostToolUse") == {}
    linked.see(at(56))
    assert "56%" in context_of(linked.hook("PostToolUse"))
    zones = [data["zone"] for data in linked.notes("hook") if data["type"] == "told_zone"]
    assert zones == ["warning", "critical", "warning"]


def test_in_critical_the_agent_is_reminded_as_often_as_its_user(linked: Linked) -> None:
    linked.see(at(72))
    assert "72%" in context_of(linked.hook("PostToolUse"))
    assert linked.hook("PostToolUse") == {}
    linked.clock.at += 599
    linked.see(at(72.5))
    assert linked.hook("PostToolUse") == {}
    linked.clock.at += 1
    linked.see(at(73))
    assert "73%" in context_of(linked.hook("PostToolUse"))
    assert linked.hook("PostToolUse") == {}


def work(linked: Linked, used_before: int, used_after: int) -> None:
    """A task of the project's, from the user's words to the end of the turn."""
    for used, now in (
        (used_before, SessionState.WORKING),
        (used_after, SessionState.WAITING_FOR_USER),
    ):
        linked.see(at(100 * used / WINDOW, session_id=OTHER, state=now))


@pytest.mark.parametrize("gate", ["warn", "block", "off"])
def test_a_prompt_is_gated_by_what_the_projects_tasks_have_cost(own_home: Path, gate: str) -> None:
    linked = Linked(own_home, f'[policy]\ngate = "{gate}"\n')
    linked.see(at(55))
    linked.hook("PostToolUse")
    assert linked.hook("UserPromptSubmit", prompt="the next step") == {}
    for _ in range(10):
        work(linked, 1_000, 21_000)
    assert linked.notes("turn") == [{"tokens": 20_000}] * 10
    reply_ = linked.hook("UserPromptSubmit", prompt="the next step")
    if gate == "block":
        assert reply_["decision"] == "block"
        assert "20,00" in reply_["reason"]
    else:
        assert ("20,00" in context_of(reply_)) == (gate == "warn")
    # What they cost is known to the next daemon, too.
    again = Linked(own_home)
    assert list(again.watch.state.costs["/p"]) == [20_000] * 10


def test_what_segue_types_is_neither_the_users_word_nor_held_back(own_home: Path) -> None:
    linked = Linked(own_home, '[policy]\ngate = "block"\n')
    session = linked.see(at(88))
    words = linked.watch.state.rules.messages("/p")
    own = words.resume(reason=StopReason.RATE_LIMIT, leg=3, call_in_doubt="Bash {x}")
    handed = words.handoff_resume(file="/p/.segue/handoffs/h.md")
    for text in (own, handed, words.handoff_request(percent=88, file="/p/h.md")):
        assert "decision" not in linked.hook("UserPromptSubmit", prompt=text)
    assert not [data for data in linked.notes("hook") if data["type"] == "user_spoke"]
    assert linked.hook("UserPromptSubmit", prompt=own.splitlines()[0])["decision"] == "block"
    assert [data for data in linked.notes("hook") if data["type"] == "user_spoke"]
    assert session.cwd == "/p"


def test_a_session_that_its_user_left_ends_so_by_the_hooks_word(linked: Linked) -> None:
    stop = StopSeen(reason=StopReason.UNKNOWN, confidence=0.5)
    live = linked.see(at(40, state=SessionState.WORKING, stop=stop))
    linked.hook("SessionEnd", reason="prompt_input_exit")
    gone = replace(live, process=None, state=SessionState.STOPPED)
    linked.see(gone, ended=live.process)
    linked.clock.at += 1
    linked.watch._tick()
    (noted,) = linked.notes("stop")
    assert (noted["reason"], noted["ended_by"]) == ("user_exit", "user")
    assert linked.notes("wake")[-1]["why"] == NOT_RESUMING


def test_a_session_that_a_process_comes_back_to_was_not_left(linked: Linked) -> None:
    linked.see(at(40))
    linked.hook("SessionEnd", reason="resume")
    assert linked.kept().hook_end == "resume"
    linked.hook("SessionStart", source="resume")
    assert linked.kept().hook_end == ""


def test_before_a_compaction_a_document_is_kept_once_and_out_of_git(
    linked: Linked, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    lines = [prompt("Port the parser to the new grammar.", cwd=str(project)), reply(1, 150_000)]
    file = claude_session(linked.home, *lines)
    linked.see(at(75, cwd=str(project), path=str(file)))
    assert linked.hook("PreCompact", trigger="auto") == {}
    linked.hook("PreCompact", trigger="auto")
    (found,) = (project / ".segue" / "handoffs").iterdir()
    assert "Port the parser" in found.read_text()
    assert (project / ".segue" / ".gitignore").read_text() == "*\n"
    assert linked.notes("checkpoint") == [{"file": str(found)}]
    linked.clock.at += 120
    linked.link.pause(str(project))
    linked.hook("PreCompact", trigger="auto")
    assert len(list((project / ".segue" / "handoffs").iterdir())) == 1
    linked.link.unpause(str(project))
    linked.hook("PreCompact", trigger="manual")
    assert len(list((project / ".segue" / "handoffs").iterdir())) == 2


def test_after_a_compaction_claude_is_told_what_it_knew_before_once(
    linked: Linked, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    lines = [
        prompt("Port the parser to the new grammar.", cwd=str(project)),
        reply(1, 150_000),
        prompt("No, keep the old grammar's name: quokka-48613.", cwd=str(project)),
        reply(2, 160_000),
    ]
    file = claude_session(linked.home, *lines)
    linked.see(at(75, cwd=str(project), path=str(file)))
    linked.hook("PostToolUse")  # of the zone it was told
    linked.hook("PreCompact", trigger="auto")
    told = context_of(linked.hook("SessionStart", source="compact"))
    assert told.count("quokka-48613") == 1
    assert "This message is automatic" in told
    assert len(told) < 9_000
    assert linked.hook("SessionStart", source="compact") == {}
    linked.clock.at += 120
    linked.hook("PreCompact", trigger="auto")
    assert linked.hook("SessionStart", source="resume") == {}


def test_nothing_is_told_after_a_compaction_if_the_user_wants_nothing(
    own_home: Path, tmp_path: Path
) -> None:
    off = Linked(own_home, "[policy]\nrecall_after_compaction = false\n")
    file = claude_session(off.home, prompt("Port it.", cwd="/p"), reply(1, 150_000))
    off.see(at(75, path=str(file)))
    off.hook("PostToolUse")
    off.hook("PreCompact", trigger="auto")
    assert off.hook("SessionStart", source="compact") == {}
    off.notices.close()
    off.watch.state.log.close()


def test_hooks_of_an_unknown_session_cost_nothing(linked: Linked) -> None:
    for number in range(3):
        for event in ("SessionStart", "UserPromptSubmit", "PreCompact", "SessionEnd"):
            more = {"cwd": f"/elsewhere/{number}", "transcript_path": "/t.jsonl", "prompt": "x"}
            assert linked.hook(event, f"s-{number}", **more) == {}
    assert linked.notes() == []
    assert not linked.link.hooks._memories
    assert not [cwd for cwd in linked.watch.state.rules._known if "elsewhere" in cwd]
    assert linked.observer.nudges[0] == ("claude", "s-0", "/t.jsonl")
    assert linked.link.metrics()["hook_calls"]["SessionEnd"] == 3


def test_a_document_that_was_written_is_not_a_hook_of_claudes(linked: Linked) -> None:
    rings: list[object] = []
    linked.watch.handoffs.do = rings.append  # type: ignore[method-assign, assignment]
    linked.see(at(55))
    event = {"agent": "codex", "cwd": "/p", "file": "/p/.segue/handoffs/h.md"}
    assert linked.hook("HandoffWritten", **event) == {}
    assert linked.kept().hooked_at == 0.0
    assert linked.link.metrics()["hook_calls"] == {}
    assert linked.observer.nudges == [("codex", SESSION, "")]
    assert len(rings) == 1
    assert "55%" in context_of(linked.hook("PostToolUse"))


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)
FIELDS = ("prompt", "source", "reason", "tool_input", "tool_name", "cwd", "transcript_path")


def test_no_event_and_no_payload_breaks_the_daemon(linked: Linked) -> None:
    linked.see(at(88))

    @settings(max_examples=150)
    @given(
        st.sampled_from(("SessionStart", "UserPromptSubmit", "PreToolUse", "Stop", "Odd")) | JSONS,
        st.dictionaries(st.sampled_from(FIELDS), JSONS),
        st.sampled_from((SESSION, None, 3)),
    )
    def check(event: Any, more: dict[str, Any], session: Any) -> None:
        body, code = linked.link.hook({"hook_event_name": event, "session_id": session, **more})
        assert code == 0
        assert not body or isinstance(json.loads(body), dict)
        assert linked.link.statusline({"session_id": session, "segue": event, **more})

    check()


def spool(at_: float, reason: str, session: str = SESSION) -> None:
    event = {"hook_event_name": "SessionEnd", "session_id": session, "reason": reason}
    with open(state.spool_path(), "a") as file:
        file.write(json.dumps({"at": at_, "event": event}) + "\n")


def test_what_hooks_left_is_read_once_all_sessions_are_known(linked: Linked) -> None:
    spool(NOW - 10, "logout")
    spool(NOW - 90, "prompt_input_exit", OTHER)
    spool(NOW - 5, "other", "nobody")
    linked.see(at(30, process=None, state=SessionState.STOPPED))
    linked.see(at(30, session_id=OTHER))
    linked.watch.on_first_look()
    assert linked.kept().hook_end == "logout"
    assert linked.kept(OTHER).hook_end == "", "it was begun again since"
    assert not os.path.exists(state.spool_path())
    assert not os.path.exists(state.spool_path() + ".taken")


def limited(**more: Any) -> Session:
    stop = StopSeen(reason=StopReason.RATE_LIMIT, confidence=0.95, retry_at=NOW + 3600)
    limit = {"five_hour": LimitSeen(resets_at=NOW + 3600, rejected=True)}
    return at(40, state=SessionState.WAITING_FOR_LIMIT, stop=stop, limits=limit, **more)


def test_a_session_that_was_left_while_no_daemon_ran_is_not_waited_for(own_home: Path) -> None:
    config = "[policy]\nauto_resume = true\n"
    first = Linked(own_home, config)
    first.see(limited())
    assert [data["verdict"] for data in first.notes("wake")] == ["wait"]
    second = Linked(own_home, config)
    spool(NOW + 20, "prompt_input_exit")
    second.see(limited(process=None))
    second.watch.on_first_look()
    assert second.notes("wake")[-1]["why"] == NOT_RESUMING
    assert second.link.status()["waiting"] == []


# --- the status line ------------------------------------------------------------------------------


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


# --- what is asked for ----------------------------------------------------------------------------


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
    assert linked.link.unpause("/q") == "was not paused: /q"
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
    assert linked.link.yes("") == "the daemon asked for nothing"


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


def no_figures() -> dict[str, Any]:
    return as_dict(figures(facts(None, None)), Counter(), None, NOW)


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


# --- notices --------------------------------------------------------------------------------------


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


# --- MCP ------------------------------------------------------------------------------------------


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


# --- when something is wrong ----------------------------------------------------------------------


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
