"""What is known about a session without its agent: from recordings, from damage, from any size."""

import json
import os
import resource
from pathlib import Path
from typing import Any

import pytest
from conftest import bare, lines
from hypothesis import given, settings
from hypothesis import strategies as st
from support.hangs import bytes_read, stopped_hang
from support.homes import SESSION, START, OpencodeDb, call, claude_session, prompt, reply

from segue import agents
from segue.agents.contracts.profile import Record
from segue.agents.shared.calls import argument_of, command_of, patched, todo_lists
from segue.core.handoffs.compose import CallMade, Salvaged, combine, merge
from segue.core.sessions.remarks import Todo
from segue.core.stops.events import Event, ToolCall, ToolResult
from segue.runs.legs.stream import LegStream
from segue.sessions import salvage as module
from segue.sessions.salvage import salvage

AGENTS = ("claude", "codex", "gemini", "pi", "qwen")


def recorded(agent: str, name: str, folder: Path) -> tuple[str, str]:
    """A recording's session file and stream."""
    (found,) = (run for run in lines(f"recordings/{agent}.jsonl") if run["name"] == name)
    file, stream = folder / "session.jsonl", folder / "stdout"
    file.write_text(found.get("transcript") or "")
    stream.write_text(found.get("stdout") or "")
    return str(file), str(stream)


def salvage_stream(agent: str, path: str) -> Salvaged:
    """What a leg printed, as the process that drives its run reads it."""
    profile = agents.find(agent)
    assert profile is not None
    stream = LegStream(Path(path), profile)
    assert all(isinstance(event, Event) for event in stream.replay())
    return stream.salvager.result()


def write(folder: Path, *records: dict[str, Any] | str) -> str:
    file = folder / "records.jsonl"
    said = (r if isinstance(r, str) else json.dumps(r) for r in records)
    file.write_text("".join(line + "\n" for line in said))
    return str(file)


# Real recordings


@pytest.mark.parametrize(
    ("agent", "name", "command"),
    [
        ("claude", "a1-success-stream", "echo tool-ran"),
        ("codex", "a-success", "echo one; ls"),
        ("gemini", "c2-below", "echo hello > out.txt; cat out.txt"),
    ],
)
def test_a_command_that_file_and_stream_tell_is_one_with_its_exit_code(
    agent: str, name: str, command: str, tmp_path: Path
) -> None:
    file, stream = recorded(agent, name, tmp_path)
    for found in (
        salvage(agent, file),
        combine(salvage(agent, file), salvage_stream(agent, stream)),
    ):
        assert [(c.text, c.exit_code, c.has_result) for c in found.commands] == [(command, 0, True)]
        assert found.last_call is None
        assert found.instructions == ()  # the one prompt is the task
        assert found.text_tail.startswith(("Running it.", "I will"))


@pytest.mark.parametrize(
    ("agent", "name", "command"),
    [
        ("claude", "h1-tool-sigkill", "python3 -c 'import time; time.sleep(61)'"),
        ("claude", "h4-tool-sigint-group", "python3 -c 'import time; time.sleep(61)'"),
        ("claude", "old-h1-tool-sigint", "python3 -c 'import time; time.sleep(61)'"),
        ("codex", "f-kill-tool", "sleep 301"),
        ("codex", "f-int-tool", "sleep 301"),
        ("codex", "f-bgchild-kill", "sleep 304 & sleep 305"),
        ("gemini", "f-tool-sigkill", "echo started; sleep 300"),  # only its stream has the call
        ("gemini", "f-toolgrp-sigint", "echo started; sleep 300"),
    ],
)
def test_the_call_that_a_signal_cut_short_is_the_one_in_doubt(
    agent: str, name: str, command: str, tmp_path: Path
) -> None:
    file, stream = recorded(agent, name, tmp_path)
    found = combine(salvage(agent, file), salvage_stream(agent, stream))
    assert found.last_call == command
    assert [(c.text, c.exit_code) for c in found.commands] == [(command, None)]


@pytest.mark.parametrize("name", ["f-kill-model", "f-term-model"])
def test_a_leg_that_was_killed_after_its_call_was_answered_leaves_none_in_doubt(
    name: str, tmp_path: Path
) -> None:
    file, stream = recorded("codex", name, tmp_path)
    assert combine(salvage("codex", file), salvage_stream("codex", stream)).last_call is None


@pytest.mark.parametrize("agent", [*AGENTS, "opencode"])
def test_every_recording_can_be_read_and_no_call_is_reported_twice(
    agent: str, tmp_path: Path
) -> None:
    for run in lines(f"recordings/{agent}.jsonl"):
        file, stream = recorded(agent, run["name"], tmp_path)
        told, printed = salvage(agent, file), salvage_stream(agent, stream)
        both = combine(told, printed)
        assert len(both.calls) <= max(len(told.calls), len(printed.calls)), run["name"]


# What the parsers tell


def events(agent: str, *records: dict[str, Any]) -> list[Event]:
    profile = agents.find(agent)
    assert profile is not None
    return list(profile.parse(Record(record) for record in records))


def claude_result(content: str, *, is_error: bool = False, **more: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": "t", "content": content, "is_error": is_error}
    return {"type": "user", "message": {"role": "user", "content": [block]}, **more}


RUN = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "pytest"}}
BASH = {"type": "assistant", "message": {"id": "m", "content": [RUN]}}


@pytest.mark.parametrize(
    ("result", "code", "failed", "tests"),
    [
        (claude_result("ok"), 0, False, ()),
        (claude_result("FAILED a.py::t - x"), 0, False, ("a.py::t",)),
        (claude_result("Exit code 2\nFAILED a.py::t", is_error=True), 2, True, ("a.py::t",)),
        (claude_result("Exit code 3 is what it says"), 0, False, ()),
        (claude_result("Command timed out after 2m", is_error=True), None, True, ()),
        (claude_result("Command running in background with ID: x"), None, False, ()),
        (claude_result("x", tool_use_result={"backgroundTaskId": "b"}), None, False, ()),
        (claude_result("x", tool_use_result={"stdout": "x", "interrupted": True}), None, False, ()),
    ],
)
def test_claudes_results_tell_exit_codes_and_failing_tests(
    result: dict[str, Any], code: int | None, failed: bool, tests: tuple[str, ...]
) -> None:
    asked, answered = events("claude", BASH, result)
    assert bare([asked]) == [
        ToolCall(name="Bash", call_id="t", command="pytest", argument='{"command":"pytest"}')
    ]
    assert isinstance(answered, ToolResult)
    assert (answered.exit_code, answered.failed, answered.failing_tests) == (code, failed, tests)


def test_what_a_file_says_about_tests_is_not_a_failing_test() -> None:
    block = {"type": "tool_use", "id": "t", "name": "Read", "input": {"file_path": "/a.log"}}
    asked = {"type": "assistant", "message": {"id": "m", "content": [block]}}
    called, answered = events("claude", asked, claude_result("FAILED a.py::t - x"))
    assert isinstance(called, ToolCall)
    assert isinstance(answered, ToolResult)
    assert (called.files, answered.failing_tests, answered.exit_code) == ((), (), None)


def codex_call(name: str, **payload: Any) -> dict[str, Any]:
    payload = {"type": "function_call", "name": name, "call_id": "c", **payload}
    return {"type": "response_item", "payload": payload}


def codex_output(output: Any) -> dict[str, Any]:
    payload = {"type": "function_call_output", "call_id": "c", "output": output}
    return {"type": "response_item", "payload": payload}


PATCH = "*** Begin Patch\n*** Add File: a b.txt\n+x\n*** Update File: c.py\n*** Move to: d.py\n"


@pytest.mark.parametrize(
    ("record", "command", "files"),
    [
        (codex_call("exec_command", arguments='{"cmd": "ls -l"}'), "ls -l", ()),
        (codex_call("shell", arguments='{"command": ["bash", "-lc", "ls"]}'), "ls", ()),
        (codex_call("shell", arguments='{"command": ["ls", "-l"]}'), "ls -l", ()),
        (codex_call("exec_command", arguments="{not JSON"), "", ()),
        (
            codex_call("apply_patch", type="custom_tool_call", input=PATCH),
            "",
            ("a b.txt", "c.py", "d.py"),
        ),
        (
            codex_call("shell", arguments=json.dumps({"command": f"apply_patch <<'E'\n{PATCH}E"})),
            f"apply_patch <<'E'\n{PATCH}E",
            ("a b.txt", "c.py", "d.py"),
        ),
    ],
)
def test_codexs_calls_tell_commands_and_files(
    record: dict[str, Any], command: str, files: tuple[str, ...]
) -> None:
    (found,) = events("codex", record)
    assert isinstance(found, ToolCall)
    assert (found.command, found.files) == (command, files)
    assert found.argument


@pytest.mark.parametrize(
    ("output", "code", "failed"),
    [
        ("Chunk ID: f\nWall time: 0 seconds\nProcess exited with code 7\nOutput:\nx", 7, True),
        ("Wall time: 0 s\nProcess running with session ID 5\nOutput:\nExit code: 3", None, False),
        ('{"output": "x", "metadata": {"exit_code": 1}}', 1, True),
        ("Exit code: 0\nWall time: 1 s\nOutput:\nx", 0, False),
        ("Wall time: 1.2 seconds\naborted by user", None, True),
        ({"content": "x", "success": False}, None, True),
        ("free text", None, False),
        (None, None, False),
    ],
)
def test_codexs_outputs_tell_exit_codes(output: Any, code: int | None, failed: bool) -> None:
    (found,) = events("codex", codex_output(output))
    assert isinstance(found, ToolResult)
    assert (found.exit_code, found.failed) == (code, failed)


def test_codexs_stream_tells_the_same() -> None:
    ran = {
        "id": "item_1",
        "type": "command_execution",
        "command": "/bin/bash -lc 'cargo test'",
        "aggregated_output": "test a::b ... FAILED\n",
        "exit_code": 101,
        "status": "failed",
    }
    changed = {"id": "i", "type": "file_change", "changes": [{"path": "/p/a.py", "kind": "add"}]}
    asked, answered, wrote, _ = events(
        "codex",
        {"type": "item.completed", "item": ran},
        {"type": "item.completed", "item": changed},
    )
    assert isinstance(asked, ToolCall)
    assert isinstance(answered, ToolResult)
    assert isinstance(wrote, ToolCall)
    assert asked.command == "cargo test"
    assert (answered.exit_code, answered.failing_tests) == (101, ("a::b",))
    assert wrote.files == ("/p/a.py",)


def gemini_call(output: str, status: str = "success") -> dict[str, Any]:
    response = {"functionResponse": {"id": "c", "response": {"output": output}}}
    given = {"command": "make"}
    made: dict[str, Any] = {"id": "c", "name": "run_shell_command", "args": given}
    made |= {"status": status, "result": [response]}
    return {"id": "m", "timestamp": "", "type": "gemini", "content": "", "toolCalls": [made]}


@pytest.mark.parametrize(
    ("output", "code", "failed"),
    [
        ("<untrusted_context>\nOutput: hi\nProcess Group PGID: 5\n</untrusted_context>", 0, False),
        ("Output: Exit Code: 9\nhi\nExit Code: 2\nProcess Group PGID: 5", 2, True),
        ("Output: (empty)\nSignal: 9\nProcess Group PGID: 5", None, False),
        ("Command moved to background (PID: 5). Output hidden.", None, False),
    ],
)
def test_geminis_session_tells_exit_codes(output: str, code: int | None, failed: bool) -> None:
    asked, answered = events("gemini", gemini_call(output))
    assert isinstance(asked, ToolCall)
    assert isinstance(answered, ToolResult)
    assert asked.command == "make"
    assert (answered.exit_code, answered.failed) == (code, failed)


def test_geminis_stream_tells_an_exit_code_only_if_nothing_was_printed() -> None:
    use: dict[str, Any] = {"type": "tool_use", "tool_name": "run_shell_command", "tool_id": "c"}
    use["parameters"] = {"command": "false"}
    done = {"type": "tool_result", "tool_id": "c", "status": "success"}
    for output, code in (("Command exited with code: 1", 1), ("hello", None)):
        _, found = events("gemini", use, {**done, "output": output})
        assert isinstance(found, ToolResult)
        assert found.exit_code == code


@pytest.mark.parametrize(
    ("given", "command"),
    [
        ("/bin/bash -lc 'echo one; ls'", "echo one; ls"),
        ("bash -lc ls", "ls"),
        ("/usr/bin/zsh -lc \"echo 'a b'\"", "echo 'a b'"),
        ("bash -lc 'a' 'b'", "bash -lc 'a' 'b'"),
        ("bash -lc 'half", "bash -lc 'half"),
        ("bash -c '", "bash -c '"),
        ("echo bash -lc 'x'", "echo bash -lc 'x'"),
        (["bash", "-lc", "a b"], "a b"),
        ([1, "ls"], "ls"),
        (None, ""),
    ],
)
def test_a_command_is_told_without_its_shell(given: Any, command: str) -> None:
    assert command_of(given) == command


def test_the_same_call_has_the_same_short_argument_and_another_has_another() -> None:
    long = {"content": "x" * 10_000, "file_path": "a"}
    assert argument_of(long) == argument_of(dict(long))
    assert argument_of(long) != argument_of({**long, "content": "x" * 9_999 + "y"})
    assert argument_of(long) != argument_of({**long, "file_path": "b"})
    assert len(argument_of(long)) < 600
    one = {"command": "ls", "description": "List"}
    assert argument_of(one) == argument_of({**one, "description": "Look"})
    assert argument_of({"a": "\ud800"})
    assert argument_of({}) == argument_of(None) == ""


def test_a_patch_names_files_however_many_blanks_are_in_their_names() -> None:
    with stopped_hang():
        found = patched("*** Begin Patch\n" + ("*** Add File: a" + " " * 200_000 + "b\n") * 50)
    assert found == ("a" + " " * 200_000 + "b",)


# Sessions


def test_a_whole_claude_session_is_salvaged(tmp_path: Path) -> None:
    todos = [{"content": "one", "status": "completed"}, {"content": "two", "status": "pending"}]
    file = claude_session(
        tmp_path,
        prompt("The task."),
        reply(1, 100, content=call("Write", file_path="/p/src/a.py", content="x")),
        reply(2, 200, content=call("TodoWrite", todos=todos)),
        reply(3, 300, content=call("Bash", command="pytest -q")),
        json.dumps(
            {
                "type": "user",
                "sessionId": SESSION,
                "message": {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": "toolu_Bash",
                            "content": "Exit code 1\nFAILED tests/a.py::t - x",
                            "is_error": True,
                        }
                    ],
                },
            }
        ),
        prompt("Use tabs."),
        prompt("RESUMING\n\nThis message is automatic: nobody typed it."),
        prompt("  Segue's   own,\nset by the user. "),
        reply(4, 400, content=[{"type": "text", "text": "I will use tabs."}]),
        reply(5, 500, content=call("Edit", file_path="/elsewhere/b.py")),
    )
    found = salvage("claude-code", str(file), known=["The task.", "Segue's own, set by the user."])
    assert found.instructions == ("Use tabs.",)
    assert found.todos == (Todo("one", "completed"), Todo("two", "pending"))
    assert [(c.text, c.exit_code) for c in found.commands] == [("pytest -q", 1)]
    assert found.files == ("src/a.py", "/elsewhere/b.py")
    assert found.failing_tests == ("tests/a.py::t",)
    assert found.last_call == 'Edit {"file_path":"/elsewhere/b.py"}'
    assert found.text_tail == "I will use tabs."


def test_a_call_after_which_the_agent_spoke_on_is_not_in_doubt(tmp_path: Path) -> None:
    lost = reply(1, 100, content=call("Bash", command="make"))
    said = reply(2, 200, content=[{"type": "text", "text": "It is made."}])
    assert salvage("claude", str(claude_session(tmp_path, lost))).last_call == "make"
    assert salvage("claude", str(claude_session(tmp_path, lost, said))).last_call is None


def test_only_what_happened_since_then_counts_if_asked(tmp_path: Path) -> None:
    file = claude_session(
        tmp_path,
        prompt("The task.", at=START),
        reply(1, 100, at=START, content=call("Write", file_path="/p/a.py")),
        prompt("Later.", at=START + 100),
        reply(2, 200, at=START + 100, content=call("Bash", command="ls")),
    )
    found = salvage("claude", str(file), since=START + 50, known=["The task."])
    assert (found.instructions, found.files) == (("Later.",), ())
    assert [c.text for c in found.commands] == ["ls"]


def test_a_stream_tells_the_todos_of_every_form(tmp_path: Path) -> None:
    expected = (Todo("one", "completed"), Todo("two", "pending"))
    items = [{"text": "one", "completed": True}, {"text": "two", "completed": False}]
    codex = {"type": "item.updated", "item": {"id": "i", "type": "todo_list", "items": items}}
    plan = [{"content": "one", "status": "completed"}, {"content": "two", "status": "pending"}]
    block = {"type": "tool_use", "id": "t", "name": "TodoWrite", "input": {"todos": plan}}
    claude = {"type": "assistant", "message": {"id": "m", "content": [block]}}
    its = [{"content": "a sub-agent's", "status": "pending"}]
    message = {"id": "m", "content": [{**block, "input": {"todos": its}}]}
    other = {**claude, "parent_tool_use_id": "toolu_sub", "message": message}
    assert salvage_stream("codex", write(tmp_path, codex)).todos == expected
    assert salvage_stream("claude", write(tmp_path, claude, other)).todos == expected
    assert list(todo_lists({"items": [{"text": "no todo"}], "todos": "x", "plan": [1]})) == []


def test_opencodes_database_is_salvaged(tmp_path: Path) -> None:
    db = OpencodeDb(tmp_path / "opencode.db")
    db.session("ses_1", "/p", START)
    db.message("msg_0000", "ses_1", START, role="user")
    db.part("prt_0000", "msg_0000", "ses_1", START, type="text", text="The task.")
    db.answer(1, "ses_1", START + 1, 1_000)
    state = {"status": "completed", "input": {"filePath": "/p/a.py"}, "output": ""}
    db.part(
        "prt_00010a", "msg_0001", "ses_1", START, type="tool", tool="edit", callID="c", state=state
    )
    db.message("msg_0002", "ses_1", START + 2, role="user")
    db.part("prt_0002", "msg_0002", "ses_1", START + 2, type="text", text="More.")
    db.db.execute("INSERT INTO todo VALUES ('ses_1', 'one', 'cancelled', 'high', 0, 1, 1)")
    found = salvage("opencode", str(db.path), session_id="ses_1", cwd="/p")
    assert found.instructions == ("More.",)
    assert found.files == ("a.py",)
    assert found.todos == (Todo("one", "completed"),)
    assert found.text_tail == "ok"
    assert salvage("opencode", str(db.path), session_id="none") == Salvaged()


# Merging


def made(text: str, call_id: str = "", **more: Any) -> CallMade:
    return CallMade(text=text, call_id=call_id, is_command=True, **more)


def test_what_only_the_stream_saw_is_added_and_calls_are_one_by_their_id() -> None:
    file = Salvaged(
        calls=(made("a", "1", exit_code=0, has_result=True), made("b", "2", in_doubt=True))
    )
    stream = Salvaged(
        calls=(
            made("b", "2", exit_code=1, has_result=True),
            made("a", "3", in_doubt=True),
        )
    )
    found = combine(file, stream)
    assert [(c.text, c.exit_code) for c in found.calls] == [("a", 0), ("b", 1), ("a", None)]
    assert found.last_call == "a"


def test_where_ids_differ_the_last_calls_of_the_file_are_the_streams() -> None:
    file = Salvaged(calls=(made("ls", "c1", exit_code=0), made("ls", "c2"), made("x", "c3")))
    stream = Salvaged(
        calls=(made("ls", "item_1", exit_code=3, has_result=True), made("x", "item_2"))
    )
    found = combine(file, stream)
    assert [(c.text, c.exit_code) for c in found.calls] == [("ls", 0), ("ls", 3), ("x", None)]


def test_sessions_of_a_run_become_one_and_only_the_newest_has_a_call_in_doubt() -> None:
    first = Salvaged(
        todos=(Todo("a"),),
        calls=(made("one", "item_1", in_doubt=True),),
        files=("a", "b"),
        failing_tests=("t1", "t2"),
        text_tail="first",
    )
    second = Salvaged(
        calls=(made("two", "item_1"),),
        files=("b", "c"),
        failing_tests=("t3",),
        passed_tests=("t1",),
    )
    found = merge([first, second])
    assert (found.files, found.failing_tests) == (("a", "b", "c"), ("t2", "t3"))
    assert [c.text for c in found.calls] == ["one", "two"]
    assert (found.last_call, found.todos, found.text_tail) == (None, (Todo("a"),), "first")
    assert merge([]) == Salvaged()
    assert merge([first]) == first


_CALLS = st.lists(
    st.builds(
        CallMade,
        call_id=st.sampled_from(["", "1", "2", "3"]),
        text=st.sampled_from("abc"),
        is_command=st.booleans(),
        has_result=st.booleans(),
        in_doubt=st.booleans(),
    ),
    max_size=8,
).map(tuple)


@given(_CALLS, _CALLS)
def test_combining_loses_no_call_and_invents_none(
    one: tuple[CallMade, ...], two: tuple[CallMade, ...]
) -> None:
    found = combine(Salvaged(calls=one), Salvaged(calls=two)).calls
    assert len(one) <= len(found) <= len(one) + len(two)
    assert {c.text for c in found} <= {c.text for c in (*one, *two)}


# Damage and size


def test_what_cannot_be_read_tells_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").write_text("")
    for name in ("none", "pipe", "empty", ".", "a\0b"):
        for agent in (*AGENTS, "opencode", "nobody"):
            assert salvage(agent, str(tmp_path / name)) == Salvaged()


_KEYS = ["type", "message", "content", "input", "command", "payload", "arguments", "item", "id"]
_KEYS += ["output", "toolCalls", "args", "name", "role", "todos", "status", "files", "changes"]
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=60)
@given(st.data())
def test_no_damage_raises(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    agent = data.draw(st.sampled_from(AGENTS))
    run = data.draw(st.sampled_from(lines(f"recordings/{agent}.jsonl")))
    text = bytearray((run.get("transcript") or run.get("stdout") or "{}").encode())
    start = data.draw(st.integers(0, len(text)))
    del text[start : start + data.draw(st.integers(0, 300))]
    text += json.dumps(data.draw(_JSON)).encode() + b"\n"
    text += data.draw(st.binary(max_size=20))
    file = tmp_path_factory.mktemp("damage") / "file"
    file.write_bytes(text)
    for found in (salvage(agent, str(file)), salvage_stream(agent, str(file))):
        assert isinstance(found, Salvaged)


def test_a_session_of_200_mb_is_read_at_most_twice_and_takes_little_memory(tmp_path: Path) -> None:
    file = tmp_path / "large.jsonl"
    output = {"tool_use_id": "t", "type": "tool_result", "content": "x" * 100_000}
    filler = json.dumps(
        {"isSidechain": False, "type": "user", "message": {"role": "user", "content": [output]}},
        separators=(",", ":"),
    )
    block = ((filler + "\n") * 100).encode()
    with file.open("wb") as out:
        out.write((prompt("The task.") + "\n").encode())
        out.write((reply(1, 100, content=call("Write", file_path="/p/a.py")) + "\n").encode())
        for _ in range(20):
            out.write(block)
        out.write((reply(2, 200, content=call("Bash", command="ls")) + "\n").encode())
    assert file.stat().st_size > 200_000_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    read = bytes_read()
    found = salvage("claude", str(file), known=["The task."])
    assert bytes_read() - read < 2 * file.stat().st_size
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150_000  # KB
    assert found.files == ("a.py",)  # from its beginning
    assert found.last_call == "ls"
    file.unlink()


def test_one_line_without_an_end_does_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LINE_BYTES", 1 << 20)
    monkeypatch.setattr(module, "TAIL_BYTES", 50)  # what follows is from the counter
    file = tmp_path / "line.jsonl"
    with file.open("wb") as out:
        out.write((reply(1, 100, content=call("Write", file_path="/p/a.py")) + "\n").encode())
        out.write(b'{"type":"user","x":"' + b"x" * (3 << 20) + b'"}\n')
        out.write((reply(2, 100, content=call("Write", file_path="/p/b.py")) + "\n").encode())
        out.write(b'{"half')
    assert salvage("claude", str(file), cwd="/p").files == ("a.py", "b.py")
