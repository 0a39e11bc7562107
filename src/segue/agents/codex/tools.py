"""Codex's tools: the arguments of a call, and its result. The exec stream and the server have
items; the session file has the API's calls and results."""

import re
from typing import Any

from segue.agents.shared.calls import argument_of, command_of, patched
from segue.agents.shared.fields import JSON, items, joined, obj, text, whole
from segue.agents.shared.lines import decode
from segue.core.runs.failing_tests import failing_tests
from segue.core.stops.events import ToolCall, ToolResult

Put = dict[str, Any]  # where and at
_GIVEN = ("server", "tool", "arguments", "query", "changes", "path", "prompt")  # of other tools
_EXIT = re.compile(r"(?:Process exited with code|Exit code:) (-?\d{1,10})\b")
_REJECTED = "rejected by user approval settings"
"""How the client's own message ends when a call would have needed an approval."""
_READ_ONLY = "Read-only file system"
_SHOWS = "Output:\n"
_RUNS_ON = "Process running with"  # in the background
_HEAD_CHARS = 400  # of what the client says before a command's output


def item_call(kind: str, item: JSON, put: Put) -> ToolCall:
    """The call that an item describes."""
    command = command_of(item.get("command"))
    changes = item.get("changes")  # a list, or by path
    paths = list(changes) if isinstance(changes, dict) else []
    paths += [text(change, "path") for change in items(changes)]
    given = {name: item[name] for name in _GIVEN if item.get(name)}
    return ToolCall(
        name=kind,
        call_id=text(item, "id"),
        command=command,
        argument=argument_of(command or given),
        files=tuple(path for path in paths if path) or patched(command),
        given=given,
        **put,
    )


def _item_result(item: JSON) -> str:
    """The result of a tool other than a shell."""
    result = item.get("result")
    return (
        joined(obj(result).get("content")) or text(item, "result") or text(item, "error", "message")
    )


def item_outcome(kind: str, item: JSON, sandbox: str, put: Put) -> ToolResult:
    """The result that a completed item describes. `sandbox` is the turn's sandbox mode."""
    status, code = text(item, "status"), whole(item, "exit_code")
    output = text(item, "aggregated_output") if kind == "command_execution" else ""
    return ToolResult(
        call_id=text(item, "id"),
        denied=status == "declined" or _is_kept_from(sandbox, code, output),
        exit_code=code,
        failed=status == "failed" or code not in (0, None),
        failing_tests=failing_tests(output),
        printed=output or _item_result(item),
        **put,
    )


def wire_call(name: str, call: str, payload: JSON, put: Put) -> ToolCall:
    """A call from the session file. Arguments are JSON in a string; those of custom tools are any
    text."""
    arguments = text(payload, "arguments")
    free = text(payload, "input")
    given = obj(decode(arguments)) if arguments else obj(payload, "action")
    command = command_of(given.get("cmd") or given.get("command"))
    return ToolCall(
        name=name,
        call_id=call,
        command=command,
        argument=argument_of(command or free or given or arguments),
        files=patched(free or command or text(given, "input")),
        given=given or free or arguments,
        **put,
    )


def _is_kept_from(sandbox: str, code: int | None, output: str) -> bool:
    """Whether a command failed because a sandbox forbids writing."""
    return sandbox == "read-only" and code not in (0, None) and _READ_ONLY in output


def wire_result(sandbox: str, call: str, output: Any, put: Put, *, is_shell: bool) -> ToolResult:
    """A result from the session file. The client's own words come first, then the output; older
    versions wrote JSON. For a shell that never started, the client says why it refused."""
    words = output if isinstance(output, str) else joined(output) or text(output, "content")
    code: int | None = None
    if words.startswith('{"'):
        decoded = obj(decode(words))
        code, words = whole(decoded, "metadata", "exit_code"), text(decoded, "output") or words
    head, found, _ = words[:_HEAD_CHARS].partition(_SHOWS)
    if code is None and found and (told_code := _EXIT.search(head)):
        code = int(told_code[1])
    failed = code not in (0, None) or obj(output).get("success") is False
    failed = failed or words.endswith("aborted by user")
    failed = failed or (is_shell and code is None and not found and _RUNS_ON not in head)
    tests = failing_tests(words) if code is not None else ()
    return ToolResult(
        call_id=call,
        denied=(not found and words.endswith(_REJECTED)) or _is_kept_from(sandbox, code, words),
        exit_code=code,
        failed=failed,
        failing_tests=tests,
        printed=words[len(head) + len(found) :] if found else words,
        **put,
    )
