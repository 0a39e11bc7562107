"""How full the window is, and which zone that is."""

from enum import StrEnum
from typing import Literal, Self

from msgspec import Struct

from segue.core.policy import Policy
from segue.core.sessions.windows import DEFAULT_WINDOW_TOKENS

Source = Literal["stream", "transcript", "status_line", "message", "text", "estimate"]


class Zone(StrEnum):
    """The five zones, emptiest first. Marks are inclusive and come from the policy."""

    NORMAL = "normal"
    MONITOR = "monitor"
    WARNING = "warning"
    CRITICAL = "critical"
    HANDOFF = "handoff"

    @classmethod
    def of(cls, fraction: float, policy: Policy) -> Self:
        """The zone of a fraction of the window."""
        found = cls("normal")
        for zone, mark in zip(cls, (0.0, *policy.marks), strict=True):
            if fraction >= mark and not (zone is cls.HANDOFF and mark > 1):
                found = zone  # a mark above 1 switches handoffs off altogether
        return found


class Reading(Struct, frozen=True, kw_only=True):
    """Tokens in the window after the last main-thread reply: never a sum over requests. The
    parts are disjoint, as Anthropic reports them: `input_tokens` is only the uncached tail,
    so the prompt's size is input + cache write + cache read. For agents that report
    differently, their parsers convert to this form."""

    input_tokens: int = 0
    cache_write_tokens: int = 0
    cache_read_tokens: int = 0
    output_tokens: int = 0
    window_tokens: int = DEFAULT_WINDOW_TOKENS
    source: Source = "stream"
    at: float | None = None

    @property
    def used_tokens(self) -> int:
        """The tokens that occupy the window. The reply counts too, because it is part of the next
        request's input."""
        return (
            self.input_tokens
            + self.cache_write_tokens
            + self.cache_read_tokens
            + self.output_tokens
        )

    @property
    def fraction(self) -> float:
        """Used tokens as a fraction of the window; may exceed 1 if the assumed window is wrong."""
        return self.used_tokens / self.window_tokens if self.window_tokens > 0 else 0.0

    @property
    def percent(self) -> float:
        """The fraction in percent, to one decimal."""
        return round(self.fraction * 100, 1)

    def zone(self, policy: Policy) -> Zone:
        """The zone by this policy's marks."""
        return Zone.of(self.fraction, policy)
