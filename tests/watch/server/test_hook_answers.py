"""What the daemon answers to an agent's hooks, and what it learns from them."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support.homes import SESSION, claude_session, prompt, reply
from support.watch.linked import (
    NOW,
    OTHER,
    WINDOW,
    Linked,
    at,
    context_of,
    limited,
)
from support.watch.linked import linked as linked  # a fixture

from segue.core.resumes.decisions import NOT_RESUMING
from segue.core.sessions.types import SessionState, StopSeen
from segue.core.stops.reasons import StopReason
from segue.system.files import state


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
