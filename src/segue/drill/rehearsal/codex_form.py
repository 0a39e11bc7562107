"""The codex form's work: one turn of requests and tools, compaction, endings."""

import json
import os
import signal
import sys
import time
from shlex import quote

from segue.drill.rehearsal.claude_file import new_id
from segue.drill.rehearsal.codex_file import NO_USAGE, BusyError, Past, Rollout, find
from segue.drill.rehearsal.inbox import JSON, Inbox, Interrupted
from segue.drill.rehearsal.responses_api import Api, FailedError, Reply
from segue.drill.rehearsal.settings import Settings
from segue.drill.rehearsal.tools import Tool

SUMMARISE = (
    "You are performing a CONTEXT CHECKPOINT COMPACTION. Write a handover for another language "
    "model that will go on with the task: what is done, what is left, what must not be done again."
)
_CONTINUED = (
    "Another language model started to solve this problem and produced a summary of its work. Use "
    "it to go on, and do nothing twice. Here is the summary:\n"
)
_ABORTED = "<turn_aborted>\nThe user interrupted the previous turn on purpose.\n</turn_aborted>"
_TOKENS_PER_BYTE = 0.25


class Thread:
    """One thread; `turn` returns the exit code."""

    def __init__(self, settings: Settings, inbox: Inbox, api: Api, file: Rollout) -> None:
        self.settings, self.inbox, self.api, self.file = settings, inbox, api, file
        self.window = settings.codex_window
        self.items: list[JSON] = []
        self.total: JSON = dict(NO_USAGE)
        self.last: JSON = dict(NO_USAGE)
        self.used = self.added = self.numbered = 0
        self.turn_id = new_id()
        self.tool: Tool | None = None
        self.call = ""
        self.began = time.time()
        self.last_message = ""
        api.on_retry = lambda message: self.emit({"type": "error", "message": message})

    def emit(self, event: JSON) -> None:
        if self.settings.output == "json":
            print(json.dumps(event, ensure_ascii=False, separators=(",", ":")), flush=True)

    def add(self, item: JSON, **more: object) -> None:
        """Adds an item to the conversation and to the file."""
        self.items.append(item)
        self.added += len(json.dumps(item))
        self.file.add("response_item", item, **more)

    def message(self, text: str) -> JSON:
        content = [{"type": "input_text", "text": text}]
        return {"type": "message", "role": "user", "content": content}

    def go_on(self, past: Past) -> None:
        """Continues the thread of an earlier process."""
        self.items, self.total, self.used = past.items, past.total, past.used
        self.file.ordinal = past.ordinal
        for call in past.open_calls():
            self.add({"type": "function_call_output", "call_id": call, "output": "aborted"})

    def turn(self, prompt: str) -> int:
        self.emit({"type": "thread.started", "thread_id": self.file.thread})
        self.file.event(
            "task_started",
            turn_id=self.turn_id,
            started_at=int(self.began),
            model_context_window=self.window,
        )
        self.file.add(
            "turn_context",
            {
                "turn_id": self.turn_id,
                "cwd": self.settings.cwd,
                "approval_policy": "never",
                "model": self.settings.model,
            },
        )
        self.emit({"type": "turn.started"})
        try:
            if self.is_full:
                self.compact()
            self.add(self.message(prompt))
            content = [{"type": "text", "text": prompt}]
            self.file.item("UserMessage", self.turn_id, content=content)
            self.work()
        except FailedError as failed:
            return self.fail(failed)
        except Interrupted as by:
            return self.stop(by.number)
        self.complete(last_agent_message=self.last_message)
        usage = {name: count for name, count in self.total.items() if name != "total_tokens"}
        self.emit({"type": "turn.completed", "usage": usage})
        if self.settings.output == "text":
            print(self.last_message, flush=True)
        return 0

    def work(self) -> None:
        if not self.settings.openai_key:
            raise FailedError("Missing environment variable: `OPENAI_API_KEY`.", "other")
        while True:
            reply = self.api.ask(self.items)
            calls = self.take(reply)
            for call in calls:
                self.run(call)
            self.file.counted(self.total, self.last, self.window, self.api.limits)
            if not calls:
                return
            if self.is_full:
                self.compact()

    @property
    def is_full(self) -> bool:
        """Whether nine tenths of the raw window are used; the window that it reports is 95% of
        that."""
        return self.used + int(self.added * _TOKENS_PER_BYTE) >= self.window * 90 // 95

    def take(self, reply: Reply) -> list[JSON]:
        """Records a reply; returns its tool calls."""
        calls = []
        for item in reply.items:
            if item.get("type") == "message":
                self.last_message = "".join(
                    str(part.get("text", "")) for part in item.get("content", [])
                )
                record = {"id": self.number(), "type": "agent_message", "text": self.last_message}
                self.emit({"type": "item.completed", "item": record})
                content = [{"type": "Text", "text": self.last_message}]
                self.file.item("AgentMessage", self.turn_id, content=content)
            elif item.get("type") == "function_call":
                calls.append(item)
            self.add(item)
        self.count(reply)
        return calls

    def count(self, reply: Reply) -> None:
        self.last = reply.usage
        self.total = {name: self.total[name] + reply.usage[name] for name in NO_USAGE}
        self.used, self.added = reply.usage["total_tokens"], 0
        usage = {"usage": self.last, "thread_token_usage": self.total}
        ids = {"thread_id": self.file.thread, "turn_id": self.turn_id, "response_id": reply.id}
        self.file.add("token_usage_record", {**ids, **usage})

    def number(self) -> str:
        self.numbered += 1
        return f"item_{self.numbered - 1}"

    def run(self, call: JSON) -> None:
        """Runs a command, and records its result."""
        try:
            command = json.loads(call.get("arguments", ""))["cmd"]
        except (ValueError, KeyError, TypeError):
            command = None
        self.call = str(call.get("call_id", ""))
        if call.get("name") != "exec_command" or not isinstance(command, str):
            self.answer(f"unsupported call: {call.get('name')}")
            return
        item = {
            "id": self.number(),
            "type": "command_execution",
            "command": f"/bin/sh -c {quote(command)}",
        }
        going = {"aggregated_output": "", "exit_code": None, "status": "in_progress"}
        self.emit({"type": "item.started", "item": {**item, **going}})
        began = time.monotonic()
        self.tool = Tool(self.inbox, command)
        ran = self.tool.run()
        self.tool = None
        status = "failed" if ran.exit_code else "completed"
        done = {"aggregated_output": ran.output, "exit_code": ran.exit_code, "status": status}
        self.emit({"type": "item.completed", "item": {**item, **done}})
        self.file.item("CommandExecution", self.turn_id, command=["/bin/sh", "-c", command], **done)
        took_s = time.monotonic() - began
        self.answer(
            f"Wall time: {took_s:.4f} seconds\nProcess exited with code {ran.exit_code}\n"
            f"Output:\n{ran.output}"
        )

    def answer(self, output: str) -> None:
        item = {"type": "function_call_output", "call_id": self.call, "output": output}
        self.add(item)

    def compact(self) -> None:
        """Compacts silently, except for the file. If its own request is too long, it drops the
        oldest messages until none are left."""
        asked = list(self.items)
        while True:
            try:
                reply = self.api.ask([*asked, self.message(SUMMARISE)])
                break
            except FailedError as failed:
                if not failed.is_full or not asked:
                    raise
                print("ERROR: Context window exceeded while compacting", file=sys.stderr)
                asked.pop(0)
        for item in reply.items:
            self.file.add("response_item", item, metadata={"compaction_output": True})
        self.count(reply)
        self.file.counted(self.total, self.last, self.window, self.api.limits)
        summary = "".join(
            str(part.get("text", "")) for i in reply.items for part in i.get("content", [])
        )
        mine = [i for i in self.items if i.get("role") == "user" and not _is_summary(i)]
        self.items = [*mine, self.message(_CONTINUED + summary)]
        message = _CONTINUED + summary
        self.file.add("compacted", {"message": message, "replacement_history": self.items})
        self.used = int(len(json.dumps(self.items)) * _TOKENS_PER_BYTE)
        guessed = {**NO_USAGE, "total_tokens": self.used}
        self.added = 0
        self.file.counted(self.total, guessed, self.window, self.api.limits)
        self.file.item("ContextCompaction", self.turn_id)

    # Endings

    def complete(self, **fields: object) -> None:
        self.file.event(
            "task_complete",
            turn_id=self.turn_id,
            **{"last_agent_message": None, **fields},
            completed_at=int(time.time()),
            duration_ms=int((time.time() - self.began) * 1000),
        )

    def fail(self, failed: FailedError) -> int:
        if failed.is_full:  # it marks the window as full, so a resume compacts first
            left = self.window - int(self.last["total_tokens"])
            full = {**NO_USAGE, "total_tokens": self.window}
            last = {**NO_USAGE, "total_tokens": left}
            self.file.counted(full, last, self.window, self.api.limits)
        elif self.api.limits:
            self.file.counted(self.total, self.last, self.window, self.api.limits)
        error = {"message": failed.message, "codex_error_info": failed.info}
        self.complete(error=error)
        self.emit({"type": "error", "message": failed.message})
        self.emit({"type": "turn.failed", "error": {"message": failed.message}})
        if self.settings.output == "text":
            print(f"ERROR: {failed.message}", file=sys.stderr)
        return 1

    def stop(self, number: int) -> int:
        """Ends the turn because of a signal. Ctrl+C is recorded in the file only. Any other signal
        ends the process at once, and the command's shell with it, but not what that shell
        started."""
        tool = self.tool
        if number != signal.SIGINT:
            if tool is not None:
                tool.process.kill()
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            signal.pause()
        if tool is not None:
            tool.kill()
            self.answer("aborted by user")
            self.file.counted(self.total, self.last, self.window, self.api.limits)
        self.add(self.message(_ABORTED))
        self.file.event("turn_aborted", turn_id=self.turn_id, reason="interrupted")
        return 1


def _is_summary(item: JSON) -> bool:
    return any(str(part.get("text", "")).startswith(_CONTINUED) for part in item["content"])


def run(settings: Settings, thread: str, prompt: str) -> int:
    """Starts or continues a thread; returns the exit code."""
    path = find(settings.home, thread) if thread else None
    failed = "Error: thread/resume: thread/resume failed:"
    if thread and path is None:
        print(f"{failed} no rollout found for thread id {thread} (code -32600)", file=sys.stderr)
        return 1
    inbox = Inbox()
    api = Api(settings, inbox)
    prompt = prompt or sys.stdin.read().strip()
    try:
        file = Rollout(settings.home, path)
    except BusyError:
        message = f"{failed} thread {thread} already has an active writer (code -32600)"
        print(message, file=sys.stderr)
        return 1
    going = Thread(settings, inbox, api, file)
    inbox.listen(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    if path is None:
        file.meta(settings.cwd)
    else:
        going.go_on(Past(path))
    return going.turn(prompt)
