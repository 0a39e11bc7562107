"""How a turn of the claude form ends: completed, failed, out of turns, stopped by the user,
killed."""

import json
import signal

from segue.drill.rehearsal import claude_file
from segue.drill.rehearsal.claude_voice import TurnUsage, Voice
from segue.drill.rehearsal.inbox import JSON, Inbox, Interrupted
from segue.drill.rehearsal.messages_api import Api, FailedError, Reply
from segue.drill.rehearsal.settings import Settings
from segue.drill.rehearsal.tools import Tool

TOKENS_PER_BYTE = 0.25  # estimates the tokens of a text
KILLED = {signal.SIGTERM: 143, signal.SIGHUP: 129}
_REJECTED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was "
    "a file edit, the new_string was NOT written to the file). STOP what you are doing and wait "
    "for the user to tell you how to proceed."
)


class Endings:
    """A session's state, and its endings: each reports the result and returns the exit code."""

    def __init__(self, settings: Settings, inbox: Inbox, api: Api, voice: Voice) -> None:
        self.settings, self.inbox, self.api, self.voice = settings, inbox, api, voice
        self.messages: list[JSON] = []
        self.used = 0  # tokens of the last reply
        self.added = 0  # bytes since the last reply
        self.spent = TurnUsage(settings.claude_window, {})
        self.tool: Tool | None = None
        self.calls: list[str] = []  # calls of the last reply that have no result yet
        self.requests = 0
        self.began = 0.0
        self.stop_reason: str | None = None
        api.on_retry, api.on_limits = voice.retry, voice.limits

    @property
    def has_history(self) -> bool:
        """Whether the model has replied before: without that there is nothing to summarise."""
        return any(message["role"] == "assistant" for message in self.messages)

    def say(self, role: str, content: str | list[JSON]) -> None:
        """Adds a message to the conversation."""
        claude_file.add(self.messages, role, content)
        self.added += len(json.dumps(content))

    def end(self, reply: Reply) -> int:
        self.result(reply.text, subtype="success", is_error=False, terminal_reason="completed")
        return 0

    def fail(self, failed: FailedError) -> int:
        reason = "api_error"
        if failed.is_too_long:
            reason = "prompt_too_long"
            if not self.has_history:
                failed.text += self.alone(failed)
        elif failed.status == 413:
            reason = "image_error"
        self.requests += 1
        self.voice.failed(failed)
        result: JSON = {"subtype": "success", "is_error": True, "terminal_reason": reason}
        if failed.status:
            result |= {"api_error_status": failed.status, "api_error_type": failed.type}
        self.result(failed.text, **result)
        return 1

    def alone(self, failed: FailedError) -> str:
        """The words with which the real client says that a single exchange cannot be compacted."""
        own = int(self.added * TOKENS_PER_BYTE)
        if failed.used is None:
            return " · this conversation is a single exchange and cannot be compacted"
        return (
            f" · the request is ~{failed.used} tokens (limit {failed.window}) but this "
            f"conversation is only ~{own} tokens — the rest is system prompt, tool definitions, "
            "and attachment content. A single-exchange conversation cannot be compacted; reduce "
            "what is loaded at startup."
        )

    def give_up(self, text: str, name: str, reason: str = "api_error") -> int:
        """Ends the turn with an error of the client's own, without a request."""
        event = {"error": name, "is_api_error_message": True}
        self.voice.client_says(text, event, {"error": name, "isApiErrorMessage": True})
        self.result(text, subtype="success", is_error=True, terminal_reason=reason)
        return 1

    def out_of_turns(self, most: int) -> int:
        attachment = {"type": "max_turns_reached", "maxTurns": most, "turnCount": most + 1}
        self.voice.file.add({"type": "attachment", "attachment": attachment})
        self.requests += 1
        self.result(
            None,
            f"Error: Reached max turns ({most})",
            subtype="error_max_turns",
            is_error=True,
            terminal_reason="max_turns",
            errors=[f"Reached maximum number of turns ({most})"],
        )
        return 1

    def stop(self, by: Interrupted) -> int:
        """Ends the turn because the user stopped it. After a signal the exit code is 0. After a
        request on its input the agent continues, and exits with 1 if no input follows."""
        if self.tool is not None:
            self.tool.kill()
            for call in self.calls:
                block = self.voice.result_of(call, _REJECTED, is_error=True, denied=True)
                self.say("user", [block])
            self.tool, self.calls, reason = None, [], "aborted_tools"
            note = "[Request interrupted by user for tool use]"
        else:
            if self.api.partial is not None and self.api.partial.text:
                self.voice.reply(self.api.partial, cut=True)
                self.say("assistant", self.api.partial.text)
            note, reason = "[Request interrupted by user]", "aborted_streaming"
        if by.request:
            self.agree(by.request)
        self.voice.interrupted(note)
        self.say("user", note)
        self.result(
            None,
            subtype="error_during_execution",
            is_error=True,
            terminal_reason=reason,
            errors=[],
        )
        return 1 if by.request else 0

    def agree(self, request: str) -> None:
        """Confirms an interruption that was requested on the input."""
        response = {"subtype": "success", "request_id": request}
        self.voice.emit({"type": "control_response", "response": response})

    def die(self, number: int) -> int:
        """Ends because of a signal from the system. It reports no result, only the end of the tool
        (after a hang-up only in the stream)."""
        if self.tool is not None:
            self.tool.kill()
            is_kept = number != signal.SIGHUP
            self.voice.result_of(self.calls[0], "Exit code 137", is_error=True, is_kept=is_kept)
        return KILLED[signal.Signals(number)]

    def result(self, result: str | None, text: str = "", **fields: object) -> None:
        self.voice.result(
            self.spent,
            text or result or "",
            self.began,
            self.api.seconds,
            num_turns=self.requests,
            stop_reason=self.stop_reason,
            **({} if result is None else {"result": result}),
            **fields,
        )
