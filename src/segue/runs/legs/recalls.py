"""Tracks what a session's own compactions left out, and how much of that the session was told
again."""

import uuid

from segue.core.handoffs.digest import Compactions


class Recalls:
    """The compactions of one leg, each with the words that make up for it.

    `told` is the last one of which it was seen to that the session is told, `heard` the last one
    whose words the session has in its conversation, `cut` the last one after which its turn was
    interrupted, so that it hears the words before it acts."""

    def __init__(self, run_id: str, leg: int) -> None:
        self.compactions = Compactions()
        self.told = self.heard = self.cut = 0
        self._name = f"segue:recall:{run_id}:{leg}"

    @property
    def is_awaited(self) -> bool:
        """Whether the end of a turn is only the interrupt: the words begin another."""
        return self.cut > self.heard

    def key(self, compaction: int) -> str:
        """Of the words that say what this one left out: the same in every process."""
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self._name}:{compaction}"))

    def hear(self, keys: set[str]) -> None:
        """Words with these keys are part of the conversation now."""
        for number in range(1, self.compactions.count + 1) if keys else ():
            if self.key(number) in keys:
                self.heard = max(self.heard, number)
