"""An account at a provider, which answers, refuses until a reset, or is unreachable."""

from typing import Literal

from msgspec import Struct

Refusal = Literal["limited", "overloaded", "outage", "refused"]


class Account(Struct):
    """The login whose limits apply. Times are true time."""

    limited_until: float = 0.0
    limit_told: Literal["time", "seconds", "nothing"] = "time"
    overloaded_until: float = 0.0
    outage_until: float = 0.0
    refused_until: float = 0.0
    known_until: float = 0.0  # the reset that a run on this machine was told
    first: str = ""  # the run that went first after that reset, until it gets a reply
    first_at: float = 0.0
    requests: int = 0
    refusals: int = 0

    def learn_limit(self, now: float) -> None:
        """Records that a run or session on this machine learned when the limit resets."""
        if self.limited_until > now:
            self.known_until, self.first = self.limited_until, ""

    def replied(self, now: float) -> None:
        """Records that a run or session got a reply, so that nobody waits for the first one any
        longer."""
        if now >= self.known_until:
            self.known_until, self.first = 0.0, ""

    def ask(self, now: float) -> Refusal | None:
        """The provider's refusal of a request now; None if it replies."""
        self.requests += 1
        found: Refusal | None = None
        if now < self.outage_until:
            found = "outage"
        elif now < self.refused_until:
            found = "refused"
        elif now < self.limited_until:
            found = "limited"
        elif now < self.overloaded_until:
            found = "overloaded"
        self.refusals += found is not None
        return found
