"""Counts Gemini CLI's session files, in which a later record may replace an earlier one."""

from segue.agents.contracts.counter import RecordCounter
from segue.agents.gemini.profile import parts
from segue.agents.shared.fields import JSON, instant, items, joined, obj, text

_WRITERS = {"write_file", "replace", "edit"}


class GeminiCounter(RecordCounter):
    """See `Counter`."""

    def count(self, record: JSON) -> None:
        at = instant(record.get("timestamp") or record.get("startTime"))
        self.tally.seen_at(at)
        if "sessionId" in record:
            self.tally.session_id = text(record, "sessionId")
            self.tally.memory["side"] = record.get("kind", "main") != "main"
        if any(
            joined(obj(message).get("content")).startswith("<state_snapshot>")
            for message in items(record, "$set", "messages")[:2]
        ):
            self.compacted(joined(obj(items(record, "$set", "messages")[0]).get("content")))
        # The older format is one object with all messages.
        for message in [record, *items(record, "messages")]:
            if text(message, "type") == "gemini":
                self.reply(message)

    def compacted(self, summary: str) -> None:
        """Counts a compaction, unless its summary is the one before: a resumed session repeats
        it."""
        if summary != self.tally.memory.get("summary"):
            self.tally.compactions += 1
            self.tally.memory["summary"] = summary

    def reply(self, message: JSON) -> None:
        name, at = text(message, "id"), instant(message.get("timestamp"))
        called = self.tally.memory.setdefault("called", [])
        for call in items(message, "toolCalls"):
            if text(call, "name") in _WRITERS and text(call, "id") not in called:
                called.append(text(call, "id"))
                self.tally.changed(text(call, "args", "file_path"))
        spend = parts(obj(message, "tokens"))
        if spend.total_tokens:
            side = bool(self.tally.memory.get("side"))
            ends = not items(message, "toolCalls")
            self.count_reply(name, at, text(message, "model"), spend, side=side, ends_turn=ends)


COUNTER = GeminiCounter
