"""Agents as models: the size of their windows, how they grow and how long they take.

The numbers are those of ordinary sessions: a tool's result has a median of 1,200 tokens and a long
tail, which most agents cut off; a reply takes half a minute, or a minute with its tool.
"""

from math import exp
from random import Random

from msgspec import Struct

from segue.core.runs.types import Abilities


class AgentModel(Struct, frozen=True, kw_only=True):
    """What all sessions of one agent have in common."""

    name: str
    windows: tuple[int, ...]
    talks: bool
    resumes: bool = True
    resume_factor: float = 1.0
    # share of the window at which it compacts; None if it refuses when full
    compacts_at: float | None = None
    base_tokens: int = 15_000
    max_result_tokens: int = 25_000
    size_after_tools: bool = False  # reports its size only after the tools have run

    @property
    def abilities(self) -> Abilities:
        """Its abilities, as the run machine knows them."""
        return Abilities(talks=self.talks, resumes=self.resumes, resume_factor=self.resume_factor)


MODELS = (
    AgentModel(name="claude", windows=(200_000, 200_000, 1_000_000), talks=True),
    AgentModel(name="codex", windows=(258_400,), talks=False, compacts_at=0.947),
    AgentModel(name="opencode", windows=(200_000, 128_000), talks=True, size_after_tools=True),
    AgentModel(name="gemini", windows=(1_000_000,), talks=False, resume_factor=2.0),
    AgentModel(name="pi", windows=(200_000,), talks=True),
    AgentModel(name="plain", windows=(128_000,), talks=False, resumes=False),
)


class Growth(Struct, frozen=True, kw_only=True):
    """How a session grows, in tokens."""

    median_result_tokens: float = 1_200.0
    spread: float = 1.05  # standard deviation of the logarithm
    reply_tokens: float = 500.0
    sizes: tuple[int, ...] = ()
    """What turns really added, taken from a history; if there are any, sizes are drawn from
    these."""

    def result(self, random: Random, most: int) -> int:
        """The tokens that a tool's result adds."""
        if self.sizes:
            return min(most, random.choice(self.sizes))
        drawn = self.median_result_tokens * exp(self.spread * random.gauss(0.0, 1.0))
        return int(min(most, max(20.0, drawn)))

    def reply(self, random: Random) -> int:
        """The tokens that a reply adds."""
        return int(max(20.0, self.reply_tokens * exp(0.7 * random.gauss(0.0, 1.0))))


def reply_s(random: Random) -> float:
    """The time from a request to its reply."""
    return round(min(280.0, 18.0 * exp(0.7 * random.gauss(0.0, 1.0))), 3)


def tool_s(random: Random) -> float:
    """The time from a call to its result."""
    return round(min(1_700.0, 12.0 * exp(1.2 * random.gauss(0.0, 1.0))), 3)


def steps_of_task(random: Random) -> int:
    """The number of steps of a task: mostly a few, sometimes hundreds."""
    return int(min(400.0, max(2.0, 14.0 * exp(1.1 * random.gauss(0.0, 1.0)))))
