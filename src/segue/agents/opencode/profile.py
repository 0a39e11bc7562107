"""opencode (and kilo, which has the same records): what its records say.

Forms read:

- `opencode run --format json`: `{type, timestamp, sessionID, part | error}`
- events of `opencode serve`: `{type, properties}`, and the records that `opencode/bridge` adds
- stored messages: rows of the database as `{table, …, data}`, the same without the wrapper,
  what the server answers (`{info, parts}`) and `opencode export` (`{info, messages}`)

Rows come table by table, so stored messages are collected, sorted and reported at the end.

`run` has no closing record, continues silently after an error, and prints the summary of a
compaction as if it were an answer. So the end of a step is held back until it is known not to be
the summary's, and an error is only a `Failure`: what follows it decides.

All in one file, because one reader reads the messages of all forms.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from segue.agents.contracts.profile import Profile, Record
from segue.agents.shared.calls import argument_of, command_of, patched, todos_of, written_by
from segue.agents.shared.fields import JSON, amount, images, instant, items, obj, text, whole
from segue.core.runs.failing_tests import failing_tests
from segue.core.sessions.spend import Spend
from segue.core.stops.codes import PROVIDER_CODES
from segue.core.stops.events import (
    Compaction,
    Ended,
    Event,
    Failure,
    Other,
    Prompt,
    Reply,
    Retry,
    Started,
    Summary,
    TodoList,
    ToolCall,
    ToolResult,
    Usage,
)
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import Reset

# `error.name`, then the provider's own code or type in the response body. "APIError" and
# "UnknownError" say nothing; the status and message do.
_REASONS = {
    **PROVIDER_CODES,
    "ContextOverflowError": StopReason.CONTEXT_EXHAUSTED,
    "MessageAbortedError": StopReason.USER_EXIT,
    "MessageOutputLengthError": StopReason.ERROR,
    "ProviderAuthError": StopReason.AUTH,
}
_ERRORS = {name for name in _REASONS if name.endswith("Error")} | {"APIError", "UnknownError"}
# Why a step ended, if the turn ends with it. "stop" is a success; "tool-calls" and "unknown" (a
# reply that broke off and is retried at once) continue; "error" has a separate record.
_FINISHES = {"length": StopReason.ERROR, "content-filter": StopReason.REFUSAL, "other": None}

# opencode's own error for a tool that was not allowed to run. After the first two the turn ends;
# after the third the model is told and continues.
_REJECTED = ("The user rejected permission", "The user dismissed this question")
_DENIED = (*_REJECTED, "The user has specified a rule which prevents you")

_STACK = "\n    at "
_SHELL = "bash"
_LINES = {"step_start", "step_finish", "text", "tool_use", "reasoning"}
_PARTS = {"text", "tool", "step-start", "step-finish", "compaction", "retry"}
_QUIET_PARTS = {"reasoning", "snapshot", "patch", "file", "agent", "subtask"}
_EVENTS = re.compile(
    r"(server|session|message|plugin|catalog|integration|reference|permission|question|file|lsp"
    r"|todo|tui|pty|vcs|project|installation|mcp|command|ide|bridge)\."
)

Put = dict[str, Any]  # where and at


def parse(records: Iterable[Record]) -> Iterator[Event]:
    """Events of one run's output, one event stream, or one database or export."""
    teller, stored = _Teller(), _Stored()
    for record in records:
        data, kind = record.data, text(record.data, "type")
        put: Put = {"where": record.where, "at": instant(data.get("timestamp"))}
        if isinstance(data.get("properties"), dict):
            yield from teller.server(kind, data["properties"], put)
        elif kind in _LINES and isinstance(data.get("part"), dict):
            yield from teller.session(text(data, "sessionID"), put)
            yield from teller.part(data["part"], put)
        elif text(data, "name") in _ERRORS and "data" in data:  # an error without a wrapper
            yield from teller.error(data, put)
        elif kind == "error":
            yield from teller.session(text(data, "sessionID"), put)
            yield from teller.error(obj(data, "error"), put)
        elif not stored.add(data, record.where):
            yield Other(kind=kind, known=False, **put)
    yield from stored.tell(teller)
    yield from teller.end()


class _Teller:
    """Turns parts, messages and errors into events, in order."""

    def __init__(self) -> None:
        self.now: str = ""  # the current session
        self.children: set[str] = set()  # sessions of sub-agents
        self.roles: dict[str, str] = {}  # by message: user, assistant, compaction
        self.models: dict[str, str] = {}  # by message
        self.done: set[str] = set()  # steps, messages and prompts that were reported
        self.calls: set[str] = set()
        self.summed: set[str] = set()  # messages whose summary was reported
        # the last words and the end of a step, which may be a summary's
        self.step: list[Event] = []
        self.last: Event | None = None  # the end of the turn, if nothing follows
        self.overflow = False  # in the output of `run`, the next step is then the summary's
        self.manual = False  # the user asked for the compaction: the turn ends with it
        self.rejected = False
        self.clock: float | None = None
        self.windows: dict[str, int] = {}  # by model
        self.is_closing = False  # the bridge ended it, so its records do not show the reason
        self.asked: Failure | None = None  # the last question to the user
        self.unanswered: dict[str, str] = {}  # calls that wait for a permission, by question
        self.has_failed = False  # since the last prompt

    def session(self, ident: str, put: Put) -> Iterator[Event]:
        if ident and ident != self.now:
            self.now = ident
            yield Started(session_id=ident, **put)

    def end(self) -> Iterator[Event]:
        yield from self.flush()
        if self.last is not None:
            yield self.last
        self.last = None

    def flush(self) -> Iterator[Event]:
        yield from self.step
        self.step = []

    def server(self, kind: str, what: JSON, put: Put) -> Iterator[Event]:
        ident = text(what, "sessionID") or text(what, "info", "sessionID")
        if kind in ("session.created", "session.updated") and text(what, "info", "parentID"):
            self.children.add(text(what, "info", "id"))
        if kind.startswith("bridge."):
            yield from self.bridge(kind.removeprefix("bridge."), what, put)
            return
        # a sub-agent's question also stops everything
        if kind in ("permission.asked", "question.asked"):
            asked = text(what, "permission")
            self.unanswered[text(what, "id")] = text(what, "tool", "callID")
            self.asked = Failure(reason=StopReason.NEEDS_USER, code=kind, message=asked, **put)
            yield self.asked
            return
        if kind == "permission.replied":
            self.unanswered.pop(text(what, "requestID"), None)
        if ident in self.children:
            return
        put["at"] = instant(what.get("time"))
        self.clock = put["at"] or self.clock
        match kind:
            case "message.updated":
                yield from self.session(ident, put)
                yield from self.message(obj(what, "info"), put)
            case "message.part.updated":
                yield from self.session(ident or text(what, "part", "sessionID"), put)
                yield from self.part(obj(what, "part"), put)
                if text(what, "part", "messageID") in self.roles:
                    yield from self.flush()  # the author of these words is known
            case "session.error" if not self.is_closing:
                yield from self.session(ident, put)
                message = text(what, "error")  # of other servers, which send only words
                yield from self.error(
                    {"data": {"message": message}} if message else obj(what, "error"), put
                )
            case "session.status" if text(what, "status", "type") == "retry":
                # The only place where opencode says that it waits, and until when.
                until = instant(obj(what, "status").get("next"))
                wait_s = max(0.0, until - self.clock) if until and self.clock else None
                yield Retry(message=text(what, "status", "message"), wait_s=wait_s, **put)
            case "session.idle":
                yield from self.end()
            case _ if not _EVENTS.match(kind):
                yield Other(kind=kind, known=False, **put)

    def bridge(self, kind: str, what: JSON, put: Put) -> Iterator[Event]:
        """A record that `opencode/bridge` adds."""
        message = text(what, "message")
        match kind:
            case "session":
                yield from self.session(text(what, "id"), put)
            case "model":
                self.windows[text(what, "model")] = amount(what, "window")
            case "idle":
                yield from self.end()
            case "long_wait":
                # It would wait by itself; whoever ends it now needs to know why it waited.
                yield Failure(
                    message=message, resets_at=instant(what.get("until")), code=kind, **put
                )
            case "closing":
                self.is_closing = True
                if text(what, "while") == "asked" and self.asked is not None:
                    # The call that it asks about may be recorded after the question.
                    yield self.asked
            case "error" if text(what, "about") in ("server", "session", "prompt"):
                yield Failure(message=message, status=whole(what, "status"), code=kind, **put)
            case "server_exited":
                reason = StopReason.CRASH if what.get("was_up") is True else None
                message = f"opencode serve ended with exit code {whole(what, 'exit_code')}"
                yield Ended(reason=reason, code=kind, message=message, **put)

    def message(self, info: JSON, put: Put) -> Iterator[Event]:
        """A whole message; the server repeats it at every change."""
        ident, role = text(info, "id"), text(info, "role")
        if role == "assistant" and (
            "compaction" in (text(info, "mode"), text(info, "agent")) or info.get("summary") is True
        ):
            role = "compaction"
        self.roles[ident] = role
        if role == "user":
            self.is_closing = self.has_failed = False
        if model := text(info, "modelID"):
            self.models[ident] = model
        over = obj(info, "time").get("completed") is not None or bool(obj(info, "error"))
        if role not in ("assistant", "compaction") or not over or f"{ident} over" in self.done:
            return
        if self.is_closing:
            return
        self.done.add(f"{ident} over")
        finish = text(info, "finish")
        if obj(info, "error"):
            yield from self.flush()
            if role == "compaction":
                yield Compaction(phase="failed", message=_message(obj(info, "error")), **put)
            yield from self.error(obj(info, "error"), put)
        elif finish and ident not in self.done:
            yield from self.finish(ident, finish, obj(info, "tokens"), put)
        elif not finish and ident not in self.done:
            # It ended without a finish and without an error: given up while waiting to retry
            # (measured: abort and Ctrl+C), or about to compact, in which case more follows.
            self.last = Ended(
                reason=StopReason.USER_EXIT, code="no finish", may_continue=True, **put
            )

    def part(self, part: JSON, put: Put) -> Iterator[Event]:
        kind, ident = text(part, "type"), text(part, "messageID")
        if kind == "text" and obj(part, "metadata").get("compaction_continue") is True:
            # In the output of `run`, only this shows that the previous step was a summary.
            if self.step:
                self.step = []
                yield Compaction(phase="done", **put)
            self.last = None
            return
        if kind != "step-finish":
            yield from self.flush()
            self.last = None
        match kind:
            case "text":
                yield from self.words(part, ident, put)
            case "tool":
                yield from self.tool(part, put)
            case "step-start":
                self.rejected = False
                if self.overflow and ident not in self.roles:
                    self.roles[ident] = "compaction"
                    yield Compaction(phase="started", **put)
                self.overflow = False
            case "step-finish":
                yield from self.finish(ident, text(part, "reason"), obj(part, "tokens"), put)
            case "compaction":
                self.manual = part.get("auto") is False
                yield Compaction(phase="started", **put)
            case "file" if self.roles.get(ident) == "user":
                if text(part, "mime").startswith("image/"):
                    yield Prompt(images=images([part]), **put)
            case "retry":
                yield Retry(message=_message(obj(part, "error")), **put)
            case _ if kind not in _QUIET_PARTS:
                yield Other(kind=f"part {kind}", known=False, **put)

    def words(self, part: JSON, ident: str, put: Put) -> Iterator[Event]:
        role, content = self.roles.get(ident, "assistant"), text(part, "text")
        if part.get("synthetic") is True or part.get("ignored") is True or role == "compaction":
            is_whole = "time" not in part or obj(part, "time").get("end") is not None
            if role == "compaction" and content and is_whole and ident not in self.summed:
                self.summed.add(ident)
                yield Summary(text=content, **put)
            return
        if role == "user":
            if ident not in self.done:
                self.done.add(ident)
                yield Prompt(text=content, **put)
        elif content and ("time" not in part or obj(part, "time").get("end") is not None):
            self.step.append(Reply(text=content, **put))

    def tool(self, part: JSON, put: Put) -> Iterator[Event]:
        call, status = text(part, "callID"), text(part, "state", "status")
        if status != "pending" and call not in self.calls:
            self.calls.add(call)
            name, given = text(part, "tool"), obj(part, "state", "input")
            yield _call(name, call, given, put)
            if todos := todos_of(name, given):
                yield TodoList(todos=todos, **put)
        if status in ("completed", "error"):
            error = text(part, "state", "error") if status == "error" else ""
            self.rejected |= error.startswith(_REJECTED)
            code = whole(part, "state", "metadata", "exit")
            # A shell that was ended half-way (Esc, its time limit) is "completed" too, without an
            # exit code.
            is_cut_short = obj(part, "state", "metadata").get("exit", "") is None
            output = text(part, "state", "output")
            asked = [each for each in self.unanswered.values() if each]
            yield ToolResult(
                call_id=call,
                # Ending the agent while it asks also ends the call: it was not allowed.
                denied=error.startswith(_DENIED) or (bool(error) and call in asked),
                exit_code=code,
                failed=bool(error or code) or is_cut_short,
                failing_tests=failing_tests(output) if text(part, "tool") == _SHELL else (),
                printed=output or error,
                **put,
            )

    def finish(self, ident: str, reason: str, tokens: JSON, put: Put) -> Iterator[Event]:
        self.done.add(ident)
        self.last = None
        if self.roles.get(ident) == "compaction":
            # Its tokens are those of the summary request, and its "stop" ends nothing. The message
            # and its last part both report the end, in either order.
            if f"{ident} compacted" in self.done:
                return
            self.done.add(f"{ident} compacted")
            yield Compaction(phase="done" if reason == "stop" else "failed", **put)
            if reason == "stop" and self.manual:
                yield Ended(ok=True, **put)
            return
        used = _size(tokens)
        if used:
            model = self.models.get(ident)
            window = self.windows.get(model or "") or None
            use = Usage(
                used_tokens=used, window_tokens=window, parts=parts(tokens), model=model, **put
            )
            self.step.append(use)
        if reason == "stop":
            self.step.append(Ended(ok=True, **put))
            return
        yield from self.flush()
        if reason == "unknown":
            yield Retry(message="the reply broke off", **put)
        elif reason == "tool-calls" and self.rejected:
            self.last = Ended(reason=StopReason.NEEDS_USER, code="permission rejected", **put)
        elif reason in _FINISHES:
            yield Ended(reason=_FINISHES[reason], code=reason, **put)

    def error(self, error: JSON, put: Put) -> Iterator[Event]:
        yield from self.flush()
        self.last = None
        name, data = text(error, "name"), obj(error, "data")
        if self.has_failed and name == "UnknownError" and _STACK in _message(error):
            return  # the server repeats the previous error, with less information
        self.has_failed = True
        self.overflow = name == "ContextOverflowError"
        body = obj(as_object(data.get("responseBody")), "error")
        codes = [name, text(body, "code"), text(body, "type")]
        code = next((c for c in codes if c in _REASONS), name)
        wait = _retry_after(obj(data, "responseHeaders"))
        yield Failure(
            message=_message(error),
            reason=_REASONS.get(code),
            code=code or None,
            status=whole(data, "statusCode"),
            retry_after_s=wait.after_s if wait else None,
            resets_at=wait.at if wait and wait.after_s is None else None,
            **put,
        )


class _Stored:
    """Messages and parts from a database or an export, in any order."""

    def __init__(self) -> None:
        self.messages: dict[str, JSON] = {}
        self.sessions: dict[str, JSON] = {}
        self.time = 0.0  # of the last record that has one, for those without

    def add(self, data: JSON, where: str) -> bool:
        if text(data, "table") == "session":
            self.sessions[text(data, "id")] = data
            return True
        if isinstance(data.get("messages"), list):
            info = obj(data, "info")
            self.sessions[text(info, "id")] = {"parent_id": info.get("parentID")}
            for message in data["messages"]:
                self.whole(obj(message), where)
            return True
        if "parts" in data and isinstance(data.get("info"), dict):
            self.whole(data, where)
            return True
        if "data" in data:
            row = {"sessionID": data.get("session_id"), "created": data.get("time_created")}
            row |= {"messageID": data.get("message_id"), **as_object(data["data"])}
            row["id"] = data.get("id")
        else:
            row = data
        if text(row, "role") in ("user", "assistant"):
            self.message(row, where)
        elif text(row, "type") in _PARTS | _QUIET_PARTS:
            self.part(row, where)
        else:
            return "table" in data  # other tables do not matter
        return True

    def whole(self, data: JSON, where: str) -> None:
        self.message(obj(data, "info"), where)
        for part in items(data, "parts"):
            self.part({"messageID": text(data, "info", "id"), **obj(part)}, where)

    def message(self, info: JSON, where: str) -> None:
        message = self.get(text(info, "id"), info, where)
        message["info"] = info

    def part(self, part: JSON, where: str) -> None:
        message = self.get(text(part, "messageID"), part, where)
        message["parts"].append((part, where))

    def get(self, ident: str, found: JSON, where: str) -> JSON:
        created = instant(obj(found, "time").get("created") or found.get("created"))
        self.time = created or self.time
        new = {"info": {}, "parts": [], "at": self.time, "where": where}
        new["session"] = text(found, "sessionID")
        return self.messages.setdefault(ident, new)

    def tell(self, teller: _Teller) -> Iterator[Event]:
        main = [
            m
            for m in self.messages.values()
            if not self.sessions.get(m["session"], {}).get("parent_id")
        ]
        # A fork's copies keep their old times, so sort by session first, the newest last.
        newest: dict[str, float] = {}
        for m in main:
            newest[m["session"]] = max(m["at"], newest.get(m["session"], 0.0))
        for m in sorted(main, key=lambda m: (newest[m["session"]], m["session"], m["at"])):
            info = m["info"]
            put = {"where": m["where"], "at": m["at"] or None}
            yield from teller.session(m["session"], put)
            yield from teller.message({k: v for k, v in info.items() if k in _HEAD}, put)
            for part, where in m["parts"]:
                at = instant(part.get("created")) or put["at"]
                yield from teller.part(part, {"where": where, "at": at})
            over = instant(obj(info, "time").get("completed"))
            yield from teller.message(info, {"where": m["where"], "at": over or put["at"]})


_HEAD = ("id", "role", "mode", "agent", "summary", "modelID")


def _call(name: str, call_id: str, given: JSON, put: Put) -> ToolCall:
    return ToolCall(
        name=name,
        call_id=call_id,
        command=command_of(given.get("command")) if name == _SHELL else "",
        argument=argument_of(given),
        files=written_by(name, given) or patched(text(given, "patchText")),
        given=given,
        **put,
    )


def as_object(value: Any) -> JSON:
    """An object, or one that is written as a string."""
    if isinstance(value, str) and value.startswith("{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return obj(value)


def _message(error: JSON) -> str:
    return text(error, "data", "message") or text(error, "message") or text(error, "name")


def _size(tokens: JSON) -> int:
    """The size after a step; 0 for one that broke off."""
    return amount(tokens, "total") or parts(tokens).total_tokens


def parts(tokens: JSON) -> Spend:
    """The parts of a step's tokens, which do not overlap."""
    return Spend(
        input_tokens=amount(tokens, "input"),
        output_tokens=amount(tokens, "output") + amount(tokens, "reasoning"),
        cache_read_tokens=amount(tokens, "cache", "read"),
        cache_write_tokens=amount(tokens, "cache", "write"),
    )


def _retry_after(headers: JSON) -> Reset | None:
    """What the headers of the refused request say, whatever their case."""
    if not headers:
        return None
    from segue.core.stops import resets

    named = {name.lower(): value for name, value in headers.items()}
    ms = resets.retry_after(str(named.get("retry-after-ms", "")), now=0.0)
    if ms is not None and ms.after_s is not None:
        return Reset(after_s=ms.after_s / 1000, source="header")
    return resets.retry_after(str(named.get("retry-after", "")), now=0.0)


def knows(record: JSON) -> bool:
    """Whether this is certainly opencode's or kilo's record."""
    kind = text(record, "type")
    if kind in _LINES or kind == "error":
        named = bool(text(record, "error", "name") or obj(record, "part"))
        return named and isinstance(record.get("sessionID"), str)
    if isinstance(record.get("properties"), dict):
        return _EVENTS.match(kind) is not None
    if text(record, "table") in ("message", "part", "session"):
        return "time_created" in record
    info = record.get("info") if "parts" in record or "messages" in record else record
    if text(info, "role"):
        return text(info, "id").startswith("msg_") or text(info, "parentID").startswith("msg_")
    if kind in _PARTS:
        return text(record, "messageID").startswith("msg_")
    return "messages" in record and text(info, "id").startswith("ses_")


def resembles(record: JSON) -> bool:
    """Whether this is a message or an error that lost its ids on the way."""
    name = text(record, "error", "name") or (text(record, "name") if "data" in record else "")
    return name in _ERRORS


def _window_in(config: JSON, model: str) -> int | None:
    """`provider.<name>.models.<model>.limit.context`."""
    for provider in obj(config, "provider").values():
        if found := amount(obj(provider, "models", model, "limit"), "context"):
            return found
    return None


PROFILE = Profile(
    name="opencode",
    knows=knows,
    resembles=resembles,
    parse=parse,
    zero_means_done=True,
    window_in=_window_in,
)
