"""Conversations to measure recall on: facts of fifteen kinds, each said once at a known depth, in
as much noise as wanted; written as each agent writes its sessions. The same seed gives the same
bytes.

Noise is what fills real windows: files read again and again, long logs, encoded data, commands that
print a line, replies that announce the next step and replies that report a small change."""

import base64
import json
import random
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

JSON = dict[str, Any]
FIRST = datetime(2026, 11, 1, tzinfo=UTC).timestamp()
SESSION = "11111111-2222-4333-8444-555555555555"
DEPTHS = (0.04, 0.25, 0.5, 0.75, 0.95)
_SYLLABLES = [first + last for first in "bdfghklmnprstvwz" for last in "aeiou"]
_TASK = "Port the billing service to the new queue, and keep the tests green."


@dataclass
class Turn:
    """One thing that happens: `kind` is user, agent, shell, read, edit, helper or todos."""

    kind: str
    text: str = ""  # what is said, or printed
    call: str = ""  # the command, the path, the helper's task
    code: int = 0
    new: str = ""
    todos: tuple[tuple[str, str], ...] = ()


@dataclass
class Fact:
    """Something that a next session must know: found if the text holds `needle`."""

    kind: str
    depth: float
    needle: str
    turns: list[Turn]


class Words:
    """Words that nobody has used before."""

    def __init__(self, pick: random.Random) -> None:
        self.pick = pick

    def one(self) -> str:
        return "".join(self.pick.choices(_SYLLABLES, k=4))

    def number(self) -> str:
        return str(self.pick.randrange(20_000, 65_000))


def facts(pick: random.Random) -> list[Fact]:
    """One of each kind at each depth."""
    words = Words(pick)
    found = []
    for depth in DEPTHS:
        for kind, make in KINDS.items():
            needle, turns = make(words)
            found.append(Fact(kind, depth, needle, turns))
    return found


def _correction(words: Words) -> tuple[str, list[Turn]]:
    name = words.one()
    return name, [Turn("user", f"No, call the table {name} instead; the old name is taken.")]


def _constraint(words: Words) -> tuple[str, list[Turn]]:
    name = words.one()
    return name, [Turn("user", f"One thing: do not touch the {name} module, others work on it.")]


def _detail(words: Words) -> tuple[str, list[Turn]]:
    name = words.one()
    text = f"Good so far. When you come to the export: the customer calls it {name}. Carry on."
    return name, [Turn("user", text)]


def _decision(words: Words) -> tuple[str, list[Turn]]:
    name = words.one()
    text = f"I looked at both. I decided to use {name} for the cache, because it needs no server."
    return name, [Turn("agent", text)]


def _dropped(words: Words) -> tuple[str, list[Turn]]:
    name = words.one()
    return name, [Turn("agent", f"The {name} driver does not work with TLS, so I reverted it.")]


def _finding(words: Words) -> tuple[str, list[Turn]]:
    name = words.one()
    text = f"Found the cause: jobs vanish when the {name} header is empty.\n\nLet me fix that."
    return name, [Turn("agent", text)]


def _printed(words: Words) -> tuple[str, list[Turn]]:
    name, day = words.one(), words.one()
    return name, [Turn("shell", f"The word for {day} is {name}.", f"sh job/word {day}")]


def _in_log(words: Words) -> tuple[str, list[Turn]]:
    port = words.number()
    lines = list(_log(words.pick, 160))
    lines.insert(90, f"server listening on port {port}")
    return port, [Turn("shell", "\n".join(lines), f"make serve-{words.one()}")]


def _stamped(words: Words) -> tuple[str, list[Turn]]:
    """A line of the log itself, with a stamp as all have."""
    name = words.one()
    lines = list(_log(words.pick, 200))
    lines.insert(70, f"2026-11-03T10:11:12Z INFO assigned worker name {name}")
    return name, [Turn("shell", "\n".join(lines), f"make work-{words.one()}")]


def _among_tests(words: Words) -> tuple[str, list[Turn]]:
    """In another form and language than all around it."""
    name, pick = words.one(), words.pick
    lines = [f"tests/test_{words.one()}.py::test_{words.one()} PASSED [{n:3}%]" for n in range(100)]
    told = (
        f"Das Losungswort lautet {name}, bitte merken.",
        f'{{\n  "state": "up",\n  "shard": "{name}"\n}}',
        f"Кодовое слово: {name}",
        f"Created volume {name} in zone b",
        f"| region | {name} |",
    )
    lines.insert(40, pick.choice(told))
    return name, [Turn("shell", "\n".join(lines), f"pytest -v {words.one()}")]


def _in_data(words: Words) -> tuple[str, list[Turn]]:
    """In one long line of data."""
    name = words.one()
    rows = [{"id": n, "name": words.one(), "up": True} for n in range(120)]
    rows.insert(50, {"id": 7, "name": words.one(), "up": False, "held by": name})
    return name, [Turn("shell", json.dumps(rows), f"curl localhost/{words.one()}")]


def _failing(words: Words) -> tuple[str, list[Turn]]:
    name = words.one()
    text = (
        f"=== FAILURES ===\n    assert total == 41\nE   assert 40 == 41\n"
        f"FAILED tests/test_{name}.py::test_total - assert 40 == 41\n1 failed, 88 passed in 3.1s"
    )
    return name, [Turn("shell", text, f"pytest tests/test_{name}.py", code=1)]


def _changed(words: Words) -> tuple[str, list[Turn]]:
    place, old, new = words.one(), words.number(), words.number()
    return new, [
        Turn("shell", f"{place} port is {old}", f"./ports {place}"),
        Turn("shell", f"{place} port is {new}", f"./ports {place} --again"),
    ]


def _helper(words: Words) -> tuple[str, list[Turn]]:
    name = words.one()
    text = f"I searched the tree. The retry logic lives in src/{name}/backoff.py, nowhere else."
    return name, [Turn("helper", text, f"find the retry logic ({words.number()})")]


def _question(words: Words) -> tuple[str, list[Turn]]:
    name = words.one()
    return name, [Turn("agent", f"Should the {name} report be sent weekly or monthly?")]


KINDS: dict[str, Callable[[Words], tuple[str, list[Turn]]]] = {
    "user corrects": _correction,
    "user forbids": _constraint,
    "user adds": _detail,
    "agent decides": _decision,
    "agent drops": _dropped,
    "agent finds": _finding,
    "tool prints": _printed,
    "in a long log": _in_log,
    "in a log's form": _stamped,
    "among tests": _among_tests,
    "in data": _in_data,
    "test fails": _failing,
    "value changes": _changed,
    "helper reports": _helper,
    "open question": _question,
}


def _log(pick: random.Random, lines: int) -> Iterator[str]:
    at = pick.randrange(10**6)
    for number in range(lines):
        level = pick.choice(("INFO", "DEBUG", "INFO", "INFO", "WARN"))
        what = pick.choice(("handled request", "cache miss for", "wrote batch", "polling shard"))
        when = f"2026-11-0{number % 9 + 1}T10:{at % 60:02}:{number % 60:02}Z"
        yield f"{when} {level} {what} {at + number}"


def noise(pick: random.Random) -> Iterator[Turn]:
    """Without end."""
    files = [f"src/module_{number}/part_{pick.randrange(99)}.py" for number in range(40)]
    count = 0
    while True:
        count += 1
        match pick.randrange(9):
            case 0 | 1:
                path = pick.choice(files)
                body = "\n".join(
                    f"    value_{n} = compute(alpha_{pick.randrange(99)}, beta={n})"
                    for n in range(pick.randrange(20, 600))
                )
                yield Turn("read", body, path)
            case 2:
                yield Turn(
                    "shell", "\n".join(_log(pick, pick.randrange(40, 700))), f"make it-{count}"
                )
            case 3:
                data = base64.b64encode(pick.randbytes(pick.randrange(500, 20_000))).decode()
                yield Turn("shell", data, f"openssl enc -base64 -in blob{count}")
            case 4 | 5:
                yield Turn("shell", f"ok {count} ({pick.random():.2f} s)", f"./check {count}")
            case 6:
                path = pick.choice(files)
                yield Turn("edit", f"    x = {count}", path, new=f"    x = {count + 1}\n    y = 0")
            case 7:
                name = pick.choice(files)
                yield Turn(
                    "agent", f"I updated `value_{count}` in {name} and ran the checks again."
                )
            case _:
                yield Turn(
                    "agent", pick.choice(("Let me look at the next module.", "Now the tests."))
                )


def conversation(seed: int, megabytes: float) -> tuple[list[Turn], list[Fact]]:
    """The turns, the task first, and the facts in them."""
    pick = random.Random(seed)
    planted = sorted(facts(pick), key=lambda fact: fact.depth)
    size = int(megabytes * 1_000_000)
    turns, written, waiting = [Turn("user", _TASK)], 0, list(planted)
    filler = noise(pick)
    while written < size or waiting:
        while waiting and written >= waiting[0].depth * size:
            turns += waiting.pop(0).turns
        turn = next(filler)
        turns.append(turn)
        written += len(turn.text) + len(turn.call) + len(turn.new) + 200
    # The newest of what failed is repaired, and work goes on.
    turns += [Turn("agent", "Now the tests."), Turn("shell", "ok", "./check last")]
    return turns, planted


# How each agent writes them


def _stamp(number: int) -> str:
    return datetime.fromtimestamp(FIRST + number, UTC).isoformat().replace("+00:00", "Z")


def _line(record: JSON) -> bytes:
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def _given(turn: Turn) -> tuple[str, JSON]:
    match turn.kind:
        case "shell":
            return "Bash", {"command": turn.call}
        case "read":
            return "Read", {"file_path": turn.call}
        case "edit":
            given = {"file_path": turn.call, "old_string": turn.text, "new_string": turn.new}
            return "Edit", given
    return "Task", {"prompt": turn.call, "description": "look"}


def claude(turns: list[Turn]) -> Iterator[bytes]:
    """Claude Code's transcript."""
    for number, turn in enumerate(turns):
        base: JSON = {
            "sessionId": SESSION,
            "cwd": "/p",
            "timestamp": _stamp(number),
            "uuid": str(number),
        }
        usage = {"input_tokens": 10, "output_tokens": 10}
        message: JSON = {"id": f"msg_{number}", "model": "claude-opus-5-5", "usage": usage}
        if turn.kind == "user":
            said: JSON = {"role": "user", "content": turn.text}
            yield _line({**base, "type": "user", "promptSource": "typed", "message": said})
            continue
        if turn.kind == "agent":
            block: JSON = {"type": "text", "text": turn.text}
            yield _line({**base, "type": "assistant", "message": {**message, "content": [block]}})
            continue
        name, given = _given(turn)
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": given}
        yield _line({**base, "type": "assistant", "message": {**message, "content": [block]}})
        printed = "done" if turn.kind == "edit" else turn.text
        if turn.code:
            printed = f"Exit code {turn.code}\n{printed}"
        result: JSON = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": printed}
        result["is_error"] = bool(turn.code)
        answer: JSON = {"role": "user", "content": [result]}
        yield _line({**base, "type": "user", "message": answer})


def codex(turns: list[Turn]) -> Iterator[bytes]:
    """Codex's rollout."""

    def record(number: int, kind: str, payload: JSON) -> bytes:
        return _line({"timestamp": _stamp(number), "type": kind, "payload": payload})

    yield record(0, "session_meta", {"id": SESSION, "cwd": "/p"})
    for number, turn in enumerate(turns):
        if turn.kind == "user":
            yield record(number, "event_msg", {"type": "user_message", "message": turn.text})
        elif turn.kind == "agent":
            yield record(number, "event_msg", {"type": "agent_message", "message": turn.text})
        else:
            call = f"call_{number}"
            if turn.kind == "edit":
                lines = (f"*** Update File: {turn.call}", f"-{turn.text}", f"+{turn.new}")
                patch = "\n".join(("*** Begin Patch", *lines, "*** End Patch"))
                called: JSON = {"type": "custom_tool_call", "name": "apply_patch", "input": patch}
            elif turn.kind == "helper":
                given = json.dumps({"prompt": turn.call})
                called = {"type": "function_call", "name": "spawn_agent", "arguments": given}
            else:
                command = f"cat {turn.call}" if turn.kind == "read" else turn.call
                given = json.dumps({"cmd": command})
                called = {"type": "function_call", "name": "exec_command", "arguments": given}
            yield record(number, "response_item", {**called, "call_id": call})
            head = f"Chunk ID: 1\nWall time: 0.1 seconds\nProcess exited with code {turn.code}\n"
            printed = turn.text if turn.kind == "helper" else f"{head}Output:\n{turn.text}"
            answer = {"type": "function_call_output", "call_id": call, "output": printed}
            yield record(number, "response_item", answer)


def gemini(turns: list[Turn]) -> Iterator[bytes]:
    """Gemini CLI's session file."""
    yield _line({"sessionId": SESSION, "projectHash": "h", "startTime": _stamp(0), "kind": "main"})
    for number, turn in enumerate(turns):
        base: JSON = {"id": f"m{number}", "timestamp": _stamp(number)}
        if turn.kind == "user":
            yield _line({**base, "type": "user", "content": [{"text": turn.text}]})
            continue
        model = {"type": "gemini", "model": "gemini-3-pro", "tokens": {"input": 9, "total": 9}}
        if turn.kind == "agent":
            yield _line({**base, **model, "content": turn.text})
            continue
        names = {"shell": "run_shell_command", "read": "read_file", "edit": "replace"}
        name, given = names.get(turn.kind, "delegate"), _given(turn)[1]
        printed = turn.text
        if turn.kind == "shell":
            code = f"\nExit Code: {turn.code}" if turn.code else ""
            printed = f"<untrusted_context>\nOutput: {turn.text}{code}\n</untrusted_context>"
        answer = {"id": f"c{number}", "name": name, "response": {"output": printed}}
        call: JSON = {"id": f"c{number}", "name": name, "args": given, "status": "success"}
        call["result"] = [{"functionResponse": answer}]
        yield _line({**base, **model, "content": "", "toolCalls": [call]})


def pi(turns: list[Turn]) -> Iterator[bytes]:
    """pi's session file."""
    yield _line({"type": "session", "version": 3, "id": SESSION, "timestamp": _stamp(0)})
    for number, turn in enumerate(turns):

        def entry(message: JSON, number: int = number, more: str = "") -> bytes:
            base = {"type": "message", "id": f"e{number}{more}", "timestamp": _stamp(number)}
            return _line({**base, "message": message})

        if turn.kind in ("user", "agent"):
            role = "user" if turn.kind == "user" else "assistant"
            content: list[JSON] = [{"type": "text", "text": turn.text}]
            yield entry({"role": role, "content": content, "stopReason": "toolUse"})
            continue
        names = {"shell": "bash", "read": "read", "edit": "edit"}
        name, given = names.get(turn.kind, "task"), _given(turn)[1]
        if "file_path" in given:
            given["path"] = given.pop("file_path")
        block = {"type": "toolCall", "id": f"c{number}", "name": name, "arguments": given}
        yield entry({"role": "assistant", "content": [block], "stopReason": "toolUse"}, more="a")
        said = f"{turn.text}\n\nCommand exited with code {turn.code}" if turn.code else turn.text
        result: JSON = {"role": "toolResult", "toolCallId": f"c{number}", "toolName": name}
        content = [{"type": "text", "text": said}]
        yield entry({**result, "content": content, "isError": bool(turn.code)}, more="b")


def qwen(turns: list[Turn]) -> Iterator[bytes]:
    """Qwen Code's session file."""
    for number, turn in enumerate(turns):
        base: JSON = {"uuid": str(number), "sessionId": SESSION, "timestamp": _stamp(number)}
        base |= {"cwd": "/p", "provenance": "x"}
        if turn.kind == "user":
            said: JSON = {"role": "user", "parts": [{"text": turn.text}]}
            yield _line({**base, "type": "user", "message": said})
            continue
        if turn.kind == "agent":
            said = {"role": "model", "parts": [{"text": turn.text}]}
            yield _line({**base, "type": "assistant", "message": said})
            continue
        names = {"shell": "run_shell_command", "read": "read_file", "edit": "edit"}
        name, given = names.get(turn.kind, "task"), _given(turn)[1]
        call = {"functionCall": {"id": f"c{number}", "name": name, "args": given}}
        yield _line({**base, "type": "assistant", "message": {"role": "model", "parts": [call]}})
        key = "error" if turn.code else "output"
        answer = {"functionResponse": {"id": f"c{number}", "response": {key: turn.text}}}
        said = {"role": "user", "parts": [answer]}
        result = {"callId": f"c{number}", "status": "error" if turn.code else "success"}
        yield _line({**base, "type": "tool_result", "message": said, "toolCallResult": result})


def opencode(path: Path, turns: list[Turn]) -> None:
    """opencode's database."""
    db = sqlite3.connect(path)
    db.executescript(
        "CREATE TABLE session (id text PRIMARY KEY, parent_id text, directory text, model text,"
        " time_created integer, time_updated integer);"
        "CREATE TABLE message (id text PRIMARY KEY, session_id text, time_created integer,"
        " time_updated integer, data text);"
        "CREATE TABLE part (id text PRIMARY KEY, message_id text, session_id text,"
        " time_created integer, time_updated integer, data text);"
        "CREATE INDEX parts ON part (message_id);"
    )
    names = {"shell": "bash", "read": "read", "edit": "edit", "helper": "task"}
    for number, turn in enumerate(turns):
        at, message = int((FIRST + number) * 1000), f"msg_{number:08}"
        role = "user" if turn.kind == "user" else "assistant"
        info: JSON = {"role": role, "time": {"created": at, "completed": at + 1}}
        info |= {} if role == "user" else {"finish": "tool-calls"}
        row = (message, SESSION, at, at, json.dumps(info))
        db.execute("INSERT INTO message VALUES (?, ?, ?, ?, ?)", row)
        if turn.kind in ("user", "agent"):
            part: JSON = {"type": "text", "text": turn.text, "time": {"start": at, "end": at}}
        else:
            given = _given(turn)[1]
            if "file_path" in given:
                given["filePath"] = given.pop("file_path")
            state: JSON = {"status": "completed", "input": given, "output": turn.text}
            state["metadata"] = {"exit": turn.code} if turn.kind == "shell" else {}
            part = {
                "type": "tool",
                "callID": f"c{number}",
                "tool": names[turn.kind],
                "state": state,
            }
        part_row = (f"prt_{number:08}", message, SESSION, at, at, json.dumps(part))
        db.execute("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", part_row)
    db.execute("INSERT INTO session VALUES (?, NULL, '/p', '{}', 0, 0)", (SESSION,))
    db.commit()
    db.close()


def markdown(turns: list[Turn]) -> str:
    """A workflow's own notes: what was said, and nothing of what was printed."""
    said = [turn.text for turn in turns if turn.kind in ("user", "agent", "helper")]
    return "\n\n".join(("---\nlastStep: 3\n---", *said))


FORMS = {"claude": claude, "codex": codex, "gemini": gemini, "pi": pi, "qwen": qwen}


def write(folder: Path, agent: str, turns: list[Turn]) -> Path:
    """Writes the session; the file or database that holds it."""
    if agent == "opencode":
        path = folder / "opencode.db"
        opencode(path, turns)
        return path
    if agent == "markdown":
        path = folder / "session.md"
        path.write_text(markdown(turns), encoding="utf-8")
        return path
    path = folder / f"{agent}.jsonl"
    with path.open("wb") as file:
        for line in FORMS[agent](turns):
            file.write(line)
    return path


def plain(turns: list[Turn]) -> list[str]:
    """What was said and printed, message by message, as a reader would see it."""
    return [f"{turn.kind}: {turn.call}\n{turn.text}\n{turn.new}".strip() for turn in turns]
