"""Tracks what a session's own compactions left out, and how much of that the session was told
again."""

import uuid

from segue.core.handoffs.digest import Compactions
from segue.runs.legs.trackers.halts import Halts


class Recalls:
    """The compactions of one leg, each with the message that makes up for it.

    `last_sent` is the last one about which segue has sent the session a message, `last_received`
    the last one whose message is part of the conversation, and `last_cut` the last one after which
    its turn was interrupted so that it gets the message before it acts. `halts`: where an agent
    that can waits for the message before it continues. `has_worked`: see `Compactions`.
    """

    def __init__(
        self, run_id: str, leg: int, halts: Halts | None = None, *, has_worked: bool = False
    ) -> None:
        self.compactions = Compactions(has_worked=has_worked)
        self.halts = halts
        self.last_sent = self.last_received = self.last_cut = 0
        self._name = f"segue:recall:{run_id}:{leg}"
        self._keys: set[str] = set()  # of messages in the conversation

    @property
    def is_awaited(self) -> bool:
        """Whether the end of a turn is only the interrupt, because the message starts another
        turn."""
        return self.last_cut > self.last_received

    def key(self, compaction: int) -> str:
        """The key of the message about what this compaction left out: the same in every process."""
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self._name}:{compaction}"))

    def see_halts(self) -> None:
        """Records which messages an agent that waited has taken."""
        if self.halts is not None:
            self.halts.look()
            self.last_received = max(self.last_received, self.halts.last_received)
            self.last_sent = max(self.last_sent, self.halts.last_received)

    def hear(self, keys: set[str]) -> None:
        """Records that messages with these keys are now part of the conversation."""
        self._keys |= keys
        self.match()

    def match(self) -> None:
        """Counts the messages again, after more compactions: whoever reads a stream late reads a
        compaction and the message about it at once."""
        if not self._keys:
            return
        for number in range(self.last_received + 1, self.compactions.count + 1):
            if self.key(number) in self._keys:
                self.last_received = number
