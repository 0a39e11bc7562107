"""An account at a provider: it answers, refuses until a reset, or is out of reach."""

from typing import Literal

from msgspec import Struct

Refusal = Literal["limited", "overloaded", "outage", "refused"]


class Account(Struct):
    """Whose limits count. Times are true ones."""

    limited_until: float = 0.0
    limit_told: Literal["time", "seconds", "nothing"] = "time"
    overloaded_until: float = 0.0
    outage_until: float = 0.0
    refused_until: float = 0.0
    known_until: float = 0.0  # the reset that a run of this machine was told of
    first: str = ""  # the run that went first after that reset, until it got a reply
    first_at: float = 0.0
    requests: int = 0
    refusals: int = 0

    def told(self, now: float) -> None:
        """Somebody of this machine was told when its limit ends."""
        if self.limited_until > now:
            self.known_until, self.first = self.limited_until, ""

    def replied(self, now: float) -> None:
        """Somebody got a reply: nobody has to wait for the first any more."""
        if now >= self.known_until:
            self.known_until, self.first = 0.0, ""

    def ask(self, now: float) -> Refusal | None:
        """What a request is answered with now; None: a reply."""
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
