"""Counts pi's session files."""

from segue.agents.contracts.counter import RecordCounter
from segue.agents.pi.profile import parts
from segue.agents.shared.fields import JSON, instant, items, obj, text

_WRITERS = {"edit", "write"}


class PiCounter(RecordCounter):
    """See `Counter`."""

    def count(self, record: JSON) -> None:
        at = instant(record.get("timestamp"))
        self.tally.seen_at(at)
        match text(record, "type"):
            case "session":
                self.tally.session_id = text(record, "id")
                self.tally.cwd = text(record, "cwd")
            case "compaction":
                self.tally.compactions += 1
            case "message":
                message = obj(record, "message")
                if message.get("role") == "assistant":
                    self.reply(text(record, "id"), at, message)

    def reply(self, key: str, at: float | None, message: JSON) -> None:
        for block in items(message, "content"):
            if text(block, "type") == "toolCall" and text(block, "name") in _WRITERS:
                self.tally.changed(text(block, "arguments", "path"))
        spend = parts(obj(message, "usage"))
        if spend.total_tokens:
            # Entry ids are short, so two files may share one.
            unique = f"{self.tally.session_id} {key}" if key else ""
            stop = text(message, "stopReason")
            self.count_reply(unique, at, text(message, "model"), spend, ends_turn=stop == "stop")


COUNTER = PiCounter
