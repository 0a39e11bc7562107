"""Counts the messages of opencode's database."""

from segue.agents.contracts.counter import RecordCounter
from segue.agents.opencode.profile import as_object, parts
from segue.agents.shared.fields import JSON, instant, obj, text


class OpencodeCounter(RecordCounter):
    """See `Counter`; fed with rows instead of lines."""

    def count(self, record: JSON) -> None:
        message = as_object(record.get("data"))
        at = instant(obj(message, "time").get("created") or record.get("time_created"))
        self.tally.seen_at(at)
        if text(message, "role") != "assistant":
            return
        spend = parts(obj(message, "tokens"))
        if spend.total_tokens:
            side = record.get("parent_id") is not None
            ends = text(message, "finish") == "stop"
            name, model = text(record, "id"), text(message, "modelID")
            self.count_reply(name, at, model, spend, side=side, ends_turn=ends)


COUNTER = OpencodeCounter
