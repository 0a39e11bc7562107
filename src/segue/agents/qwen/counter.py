"""Counts Qwen Code's session files."""

from segue.agents.contracts.counter import RecordCounter
from segue.agents.qwen.profile import split_usage
from segue.agents.shared.fields import JSON, instant, items, obj, text

_WRITERS = {"write_file", "edit"}


class QwenCounter(RecordCounter):
    """See `Counter`."""

    def count(self, record: JSON) -> None:
        at = instant(record.get("timestamp"))
        self.tally.seen_at(at)
        self.tally.session_id = self.tally.session_id or text(record, "sessionId")
        self.tally.cwd = self.tally.cwd or text(record, "cwd")
        if text(record, "subtype") == "chat_compression":
            self.tally.compactions += 1
        if text(record, "type") != "assistant":
            return
        calls = [obj(part, "functionCall") for part in items(record, "message", "parts")]
        for call in filter(None, calls):
            if text(call, "name") in _WRITERS:
                self.tally.changed(text(call, "args", "file_path"))
        spend = split_usage(obj(record, "usageMetadata"))
        if spend.total_tokens:
            ends = not any(calls)
            name = text(record, "uuid")
            self.count_reply(name, at, text(record, "model"), spend, ends_turn=ends)


COUNTER = QwenCounter
