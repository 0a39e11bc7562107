"""Tracks what a session's own compactions left out, and how much of that the session was told
again."""

import uuid

from segue.core.handoffs.digest import Compactions


class Recalls:
    """The compactions of one leg, each with the message that makes up for it.

    `told` is the last one about which segue has sent the session a message, `heard` the last one
    whose message is part of the conversation, and `cut` the last one after which its turn was
    interrupted so that it gets the message before it acts.
    """

    def __init__(self, run_id: str, leg: int) -> None:
        self.compactions = Compactions()
        self.told = self.heard = self.cut = 0
        self._name = f"segue:recall:{run_id}:{leg}"

    @property
    def is_awaited(self) -> bool:
        """Whether the end of a turn is only the interrupt, because the message starts another
        turn."""
        return self.cut > self.heard

    def key(self, compaction: int) -> str:
        """The key of the message about what this compaction left out: the same in every process."""
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self._name}:{compaction}"))

    def hear(self, keys: set[str]) -> None:
        """Records that messages with these keys are now part of the conversation."""
        for number in range(1, self.compactions.count + 1) if keys else ():
            if self.key(number) in keys:
                self.heard = max(self.heard, number)
