"""Whether a session received a message, read it and continued, according to its own records."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.homes import (
    SESSION,
    START,
    OpencodeDb,
    call,
    claude_session,
    interruption,
    prompt,
    reply,
    stamp,
)

from segue.sessions.evidence import LatestTurn, MessageEvidence, latest, look

NAME = "handoff-20261116T0000-h-1.md"
TOLD = f"This message is automatic. Read handoff from /p/.segue/handoffs/{NAME} and resume work."


def claude(tmp_path: Path, *lines: str, since: float = START) -> MessageEvidence:
    return look("claude", str(claude_session(tmp_path, *lines)), SESSION, NAME, since)


def test_a_claude_session_hears_reads_and_continues(tmp_path: Path) -> None:
    steps = [
        prompt(TOLD, at=START + 1),
        reply(1, 100, at=START + 2, content=call("Read", file_path=f"/p/.segue/handoffs/{NAME}")),
        reply(2, 100, at=START + 3, content=call("Bash", command="sh job/step 3")),
    ]
    found = [claude(tmp_path, *steps[:n]) for n in range(4)]
    assert [(h.prompt_at, h.read_at, h.went_on) for h in found] == [
        (None, None, False),
        (START + 1, None, False),
        (START + 1, START + 2, False),
        (START + 1, START + 2, True),
    ]
    assert found[3].session_id == SESSION


def test_a_document_that_is_read_by_a_command_is_read(tmp_path: Path) -> None:
    found = claude(
        tmp_path,
        prompt(TOLD),
        reply(1, 100, content=call("Bash", command=f"cat .segue/handoffs/{NAME}")),
        reply(2, 100, content=[{"type": "text", "text": "I go on."}]),
    )
    assert (found.read_at, found.went_on) == (START, True)


def test_what_was_said_or_read_before_or_of_another_document_does_not_count(
    tmp_path: Path,
) -> None:
    old = [prompt(TOLD), reply(1, 100, content=call("Read", file_path=NAME)), reply(2, 100)]
    assert claude(tmp_path, *old, since=START + 60).prompt_at is None
    again = claude(tmp_path, *old, prompt(TOLD, at=START + 60))
    assert (again.prompt_at, again.read_at, again.went_on) == (START + 60, None, False)
    other = prompt(TOLD.replace("h-1", "h-2"))
    assert claude(tmp_path, other, reply(1, 100)).prompt_at is None
    talk = claude(tmp_path, prompt(TOLD), reply(1, 100, content=[{"type": "text", "text": NAME}]))
    assert (talk.prompt_at, talk.read_at, talk.went_on) == (START, None, False)


def test_what_the_user_says_besides_is_seen(tmp_path: Path) -> None:
    found = claude(tmp_path, prompt(TOLD), prompt("No, wait.", at=START + 5))
    assert (found.prompt_at, found.spoken_at) == (START, START + 5)
    assert claude(tmp_path, prompt(TOLD)).spoken_at is None


def test_a_codex_session_hears_reads_and_continues(tmp_path: Path) -> None:
    def record(at: float, kind: str, **payload: Any) -> str:
        return json.dumps({"timestamp": stamp(at), "type": kind, "payload": payload}) + "\n"

    def shell(number: int, at: float, command: str) -> str:
        arguments = json.dumps({"command": ["bash", "-lc", command]})
        return record(
            at,
            "response_item",
            type="function_call",
            name="shell",
            call_id=f"c{number}",
            arguments=arguments,
        )

    file = tmp_path / "rollout.jsonl"
    steps = [
        record(START, "session_meta", id="t-1", cwd="/p"),
        record(START + 1, "event_msg", type="user_message", message=TOLD),
        shell(1, START + 2, f"cat /p/.segue/handoffs/{NAME}"),
        shell(2, START + 3, "sh job/step 3"),
    ]
    found = []
    for number in range(1, 5):
        file.write_text("".join(steps[:number]))
        heard = look("codex", str(file), "t-1", NAME, START)
        found.append((heard.prompt_at, heard.read_at, heard.went_on))
    assert found == [
        (None, None, False),
        (START + 1, None, False),
        (START + 1, START + 2, False),
        (START + 1, START + 2, True),
    ]


def test_opencodes_database_tells_it_of_the_session_that_is_asked_about(tmp_path: Path) -> None:
    db = OpencodeDb(tmp_path / "opencode.db")
    for session in ("ses_1", "ses_2"):
        db.session(session, "/p", START)
    db.message("msg_0000", "ses_1", START + 1, role="user")
    db.part("prt_0000", "msg_0000", "ses_1", START + 1, type="text", text=TOLD)
    state = {"status": "completed", "input": {"filePath": f"/p/{NAME}"}, "output": ""}
    db.answer(1, "ses_1", START + 2, 1_000)
    db.part(
        "prt_00010a", "msg_0001", "ses_1", START + 2,
        type="tool", tool="read", callID="c", state=state,
    )  # fmt: skip
    heard = look("opencode", str(db.path), "ses_1", NAME, START)
    assert heard.prompt_at == START + 1
    assert heard.read_at is not None
    db.answer(3, "ses_1", START + 3, 1_000)
    assert look("opencode", str(db.path), "ses_1", NAME, START).went_on
    assert look("opencode", str(db.path), "ses_2", NAME, START).prompt_at is None


def test_a_long_session_is_read_from_its_end_until_the_prompt_is_found(tmp_path: Path) -> None:
    filler = [reply(n, 100, content=[{"type": "text", "text": "x" * 2_000}]) for n in range(200)]
    read = reply(999, 100, content=call("Read", file_path=NAME))
    found = claude(tmp_path, *filler, prompt(TOLD), *filler, read, *filler)
    assert (found.prompt_at, found.read_at, found.went_on) == (START, START, True)


def test_nothing_is_heard_of_what_cannot_be_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").write_text("")
    for where in ("none", "pipe", "empty", ".", "a\0b"):
        for agent in ("claude", "codex", "opencode", "gemini", "nobody"):
            assert look(agent, f"{tmp_path}/{where}", "s", NAME, START) == MessageEvidence(
                session_id="s"
            )
    assert look("claude", str(claude_session(tmp_path, prompt(""))), "s", "", 0.0).prompt_at is None


@pytest.mark.parametrize("agent", ["claude", "codex", "gemini"])
@settings(max_examples=30)
@given(data=st.binary(max_size=200))
def test_no_damage_raises(
    tmp_path_factory: pytest.TempPathFactory, agent: str, data: bytes
) -> None:
    file = tmp_path_factory.mktemp("damage") / "file.jsonl"
    file.write_bytes(prompt(TOLD).encode() + b"\n" + data + b"\n" + reply(1, 9).encode()[:-9])
    assert isinstance(look(agent, str(file), "s", NAME, START), MessageEvidence)


def test_the_records_say_how_the_last_turn_ended(tmp_path: Path) -> None:
    result = {"type": "tool_result", "tool_use_id": "toolu_Bash", "content": "ok"}
    done = json.dumps(json.loads(prompt(at=START + 3)) | {"message": {"content": [result]}})
    works = reply(1, 100, at=START + 2, stop="tool_use", content=call("Bash", command="make"))
    steps = [prompt(at=START + 1), works, done]
    ends = {
        "over": reply(2, 100, at=START + 4),
        "interrupted": interruption(at=START + 4),
    }

    def told(*lines: str) -> LatestTurn:
        return latest("claude", str(claude_session(tmp_path, *lines)), SESSION)

    assert told().turn == ""
    assert [told(*steps[:n]).turn for n in (1, 2, 3)] == ["open"] * 3
    assert [told(*steps[:n]).tool_runs for n in (1, 2, 3)] == [False, True, False]
    for turn, end in ends.items():
        for before in (steps, steps[:2]):
            found = told(*before, end)
            assert (found.turn, found.ended_at, found.tool_runs) == (turn, START + 4, False)
            assert found.spoken_at == START + 1
        again = told(*steps, end, prompt(at=START + 9))
        assert (again.turn, again.spoken_at) == ("open", START + 9)
    assert latest("claude", str(tmp_path / "none"), SESSION) == LatestTurn()
    assert latest("nobody", "", "") == LatestTurn()


def test_a_database_tells_of_an_abort(tmp_path: Path) -> None:
    db = OpencodeDb(tmp_path / "opencode.db")
    db.session("ses_1", "/p", START)
    db.message("msg_0001", "ses_1", START, role="user")
    db.part("prt_0001", "msg_0001", "ses_1", START, type="text", text="go on")
    assert latest("opencode", str(db.path), "ses_1").turn == "open"
    error = {"name": "MessageAbortedError", "data": {"message": "Aborted"}}
    db.message("msg_0002", "ses_1", START + 1, role="assistant", error=error)
    assert latest("opencode", str(db.path), "ses_1").turn == "interrupted"
