"""Counts parrot's session files."""

from segue.agents.contracts.counter import RecordCounter
from segue.agents.shared.fields import JSON, amount, instant, text
from segue.core.sessions.spend import Spend


class ParrotCounter(RecordCounter):
    """See `segue.agents.contracts.counter.Counter`."""

    def count(self, record: JSON) -> None:
        at = instant(record.get("at"))
        self.tally.seen_at(at)
        if text(record, "squawk") == "hello":
            self.tally.session_id = text(record, "session")
            self.tally.cwd = text(record, "cwd")
        elif text(record, "squawk") == "say":
            spend = Spend(input_tokens=amount(record, "used"))
            self.count_reply(f"{self.tally.session_id} {at}", at, "parrot-1", spend, ends_turn=True)


COUNTER = ParrotCounter
