"""The claude form's work: turns of requests and tools, and compaction."""

import json
import time

from segue.drill.rehearsal import claude_file, hooks
from segue.drill.rehearsal.claude_endings import KILLED, TOKENS_PER_BYTE, Endings
from segue.drill.rehearsal.inbox import JSON, Interrupted
from segue.drill.rehearsal.messages_api import FailedError, Reply
from segue.drill.rehearsal.tools import Tool

SUMMARISE = (
    "Your task is to create a detailed summary of the conversation so far. Do not use a tool. "
    "First think in an <analysis> block: go through the conversation in order. Then give the "
    "<summary> block: what was asked, what is done, what is left, what must not be done again."
)
_CONTINUED = (
    "This session is being continued from a previous conversation that ran out of context. "
    "The conversation is summarized below:\n"
)
_GO_ON = "\n\nPlease continue the conversation from where we left it off without asking further."
_CUT_OUTPUT = (
    "Output token limit hit. Resume directly — no apology, no recap of what you were doing. Pick "
    "up mid-thought if that is where the cut happened. Break remaining work into smaller pieces."
)
_OUTPUT_TEXT = "API Error: Claude's response exceeded the 32000 output token maximum."
_MAX_CUT = 3


class ClaudeSession(Endings):
    """One conversation. `turn` does what the user asks, and returns the exit code that the process
    has if no other turn follows."""

    def go_on(self, history: claude_file.History) -> None:
        """Continues the conversation of an earlier process."""
        self.messages, self.used = history.messages, history.used_tokens
        self.spent.models = history.models
        self.voice.file.parent = history.parent
        self.voice.file.recent = [str(record.get("uuid")) for record in history.recent]
        if calls := history.open_calls():
            self.say("user", self.voice.repaired(calls))
            self.say("assistant", claude_file.FILLER)

    def turn(self, prompt: str, line: JSON | None = None) -> int:
        """Works until the model has nothing more to do, or something ends the turn. `line` is the
        input line of the prompt. Raises Interrupted for a signal that ends the process."""
        self.began, self.requests, self.stop_reason = time.monotonic(), 0, None
        self.voice.init()
        self.voice.tell_back(line or {})
        self.voice.prompt(prompt)
        self.say("user", prompt)
        if not (self.settings.api_key or self.settings.is_plan):
            return self.give_up("Not logged in · Please run /login", "authentication_failed")
        try:
            return self.work()
        except Interrupted as by:
            if by.number in KILLED:
                raise
            return self.stop(by)

    def work(self) -> int:
        cut = 0
        while True:
            if self.settings.max_turns is not None and self.requests >= self.settings.max_turns:
                return self.out_of_turns(self.settings.max_turns)
            if not self.settings.is_compacting and self.used >= self.max_used:
                return self.give_up("Prompt is too long", "invalid_request", "blocking_limit")
            try:
                reply = self.api.ask(self.messages)
            except FailedError as failed:
                if failed.is_too_long and self.can_compact and self.compact():
                    continue
                return self.fail(failed)
            self.take(reply)
            if reply.stop_reason in ("max_tokens", "model_context_window_exceeded"):
                cut += 1
                if cut > _MAX_CUT:
                    return self.give_up(_OUTPUT_TEXT, "max_output_tokens")
                self.voice.user(_CUT_OUTPUT, isMeta=True)
                self.say("user", _CUT_OUTPUT)
            elif not reply.calls:
                return self.end(reply)
            self.calls = [str(call.get("id", "")) for call in reply.calls]
            for call in reply.calls:
                self.say("user", [self.run(call)])
                self.calls.pop(0)
            self.take_input()

    @property
    def max_used(self) -> int:
        """The size at which it makes no more requests if it may not compact: 177K of 200K."""
        window = self.settings.claude_window
        return window - min(23_000, window * 23 // 200)

    @property
    def can_compact(self) -> bool:
        """Whether it may compact, and there is something to summarise."""
        return self.settings.is_compacting and self.has_history

    def take(self, reply: Reply) -> None:
        self.requests += 1
        self.spent.take(reply)
        self.used, self.added = claude_file.used(reply.usage), 0
        self.stop_reason = reply.stop_reason
        self.voice.reply(reply)
        if reply.content:
            claude_file.add(self.messages, "assistant", reply.content)

    def run(self, call: JSON) -> JSON:
        """Runs a tool call; returns the result as a block of the conversation."""
        ident = self.calls[0]
        given = call.get("input")
        command = given.get("command") if isinstance(given, dict) else None
        if call.get("name") != "Bash" or not isinstance(command, str):
            text = f"<tool_use_error>Error: No such tool available: {call.get('name')}"
            return self.voice.result_of(ident, text, is_error=True)
        self.tool = Tool(self.inbox, command)
        ran = self.tool.run()
        self.tool = None
        text = ran.output.rstrip("\n")
        if ran.exit_code:
            code = ran.exit_code if ran.exit_code > 0 else 128 - ran.exit_code
            text = f"Exit code {code}\n{text}".rstrip("\n")
        return self.voice.result_of(ident, text, is_error=ran.exit_code != 0)

    def take_input(self) -> None:
        """Adds the messages that the user sent in the meantime."""
        while self.inbox.lines:
            line = self.inbox.lines.popleft()
            text = text_of(line)
            self.voice.tell_back(line)
            self.voice.said_between(text)
            self.say("user", text)

    def compact(self) -> bool:
        """Compacts; returns whether the conversation got shorter. The last exchange stays unless it
        is the only one, so the request for a summary is shorter than the refused one."""
        before, began = self.used + int(self.added * TOKENS_PER_BYTE), time.monotonic()
        self.voice.compacting()
        older, last = _split(self.messages)
        asked = older
        for _ in range(2):
            try:
                reply = self.api.ask([*asked, {"role": "user", "content": SUMMARISE}])
                break
            except FailedError as failed:
                if not failed.is_too_long:
                    self.voice.not_compacted(failed.text)
                    return False
                asked = _later_half(asked)
            except Interrupted:
                self.api.partial = None  # half a summary is not a reply
                raise
        else:
            self.voice.not_compacted("exhausted")
            return False
        self.spent.take(reply, is_main=False)
        summary_text = reply.text.partition("<summary>")[2].partition("</summary>")[0] or reply.text
        summary = _CONTINUED + summary_text.strip() + _GO_ON
        after = int((len(summary) + len(json.dumps(last))) * TOKENS_PER_BYTE) + 500
        took_s = time.monotonic() - began
        session = self.voice.file.session
        added = hooks.after_compaction(self.settings.hooks, session, self.settings.cwd)
        self.voice.compacted(summary, before, after, took_s, keeps=bool(last))
        self.messages = []
        self.say("user", summary)
        self.messages += last
        for text in added:
            self.say("user", self.voice.told_by_hook(text))
        self.used, self.added = after, 0
        return True


def _split(messages: list[JSON]) -> tuple[list[JSON], list[JSON]]:
    """The messages to summarise, and the last exchange if there is an earlier one."""
    spoken = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
    cut = spoken[-1] if len(spoken) > 1 else len(messages)
    return messages[:cut], messages[cut:]


def _later_half(messages: list[JSON]) -> list[JSON]:
    """Drops the oldest messages, and every tool result whose call was dropped."""
    half = len(messages) // 2
    while half < len(messages) - 1 and messages[half]["role"] != "assistant":
        half += 1
    return [{"role": "user", "content": "(The beginning is left out.)"}, *messages[half:]]


def text_of(line: JSON) -> str:
    """The text of a user's input line."""
    message = line.get("message")
    content = message.get("content") if isinstance(message, dict) else ""
    if isinstance(content, list):
        return "\n".join(str(b.get("text", "")) for b in content if isinstance(b, dict))
    return str(content)
