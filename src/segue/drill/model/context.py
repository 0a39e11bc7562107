"""How full the window is: counts what is really sent, so the window fills only because a
conversation grew. Pure; a meter lives as long as the scripted model."""

from msgspec import Struct

from segue.core.sessions.spend import Spend
from segue.drill.model.answer import Refusal
from segue.drill.model.ask import Ask, Kind
from segue.drill.scenarios.types import Context, Job

BYTES_A_TOKEN = 4
CALL_BYTES = 300  # a call, and what an agent adds around its result, until one has been measured
_SPARE = 0.01  # a full window is a little over its size, however the numbers are rounded
_UNCACHED_TOKENS = 10  # of a prompt that continues a conversation: providers report only a few
_FAULTED = 1.04  # a multiple of the window: the size of a prompt that a rule declares too long

_WORK = (Kind.MAIN, Kind.CONTINUATION, Kind.HANDOFF)
_TALK = (*_WORK, Kind.COMPACTION, Kind.CHECKPOINT, Kind.COUNT)
"""The kinds of requests that carry the conversation of the work."""


class WindowGauge(Struct, frozen=True):
    """One prompt, and the window that it must fit into."""

    used_tokens: int
    window_tokens: int

    @property
    def is_over(self) -> bool:
        """Whether the prompt is too long."""
        return self.used_tokens > self.window_tokens


class Meter:
    """Counts prompts.

    A prompt's bytes are divided by four. What came after the first request of the work (the
    instructions, the tools and the job are in that already) is counted `inflation` times, so that
    a small job fills a large window: a conversation that a compaction made short is small again,
    and a new session starts where the first one did."""

    def __init__(self, context: Context | None, job: Job, window_tokens: int) -> None:
        self.job = job
        self.refuses = context is not None and context.refuses
        self.window_tokens = (context and context.window_tokens) or window_tokens
        self._fills_after = context.fills_after_steps if context else None
        self._opening_bytes: int | None = None
        self._call_bytes: int | None = None  # as measured
        self._sent_tokens = 0  # of the last prompt of the work that was answered
        self._base_tokens = 0

    @property
    def inflation(self) -> float:
        """The factor by which the growth of a conversation is multiplied."""
        if self._fills_after is None:
            return 1.0
        room = self.window_tokens - (self._opening_bytes or 0) / BYTES_A_TOKEN
        grown = self._bytes_after(self._fills_after) / BYTES_A_TOKEN
        return max(room, 1.0) * (1 + _SPARE) / grown

    def read(self, ask: Ask, steps_known: int) -> WindowGauge:
        """How full the window is with this prompt, which reports `steps_known` steps as done."""
        sent = ask.base_bytes + ask.said_bytes
        if ask.kind not in _TALK:
            return WindowGauge(_tokens(sent), self.window_tokens)
        if ask.kind in _WORK:
            self._learn(ask, sent, steps_known)
        opening = sent if self._opening_bytes is None else min(sent, self._opening_bytes)
        used = (opening + (sent - opening) * self.inflation) / BYTES_A_TOKEN
        return WindowGauge(round(used), self.window_tokens)

    def spend(self, ask: Ask, gauge: WindowGauge, output_bytes: int) -> Spend:
        """What a reply to this prompt costs: everything that was sent before comes from the
        cache."""
        used, output = gauge.used_tokens, max(1, _tokens(output_bytes))
        if ask.kind not in _TALK:
            return Spend(input_tokens=used, output_tokens=output)
        grew = 0 < self._sent_tokens <= used
        # After a compaction, only the instructions are unchanged.
        cached = self._sent_tokens if grew else min(self._base_tokens, used)
        fresh = min(_UNCACHED_TOKENS, used - cached)
        if ask.kind in _WORK:
            self._sent_tokens, self._base_tokens = used, _tokens(ask.base_bytes)
        return Spend(
            input_tokens=fresh,
            output_tokens=output,
            cache_read_tokens=cached,
            cache_write_tokens=used - cached - fresh,
        )

    def refusal(self, gauge: WindowGauge) -> Refusal:
        """A refusal of this prompt as too long. If it fits and only a rule demands the refusal, the
        size that it reports is made up."""
        claimed = round(self.window_tokens * _FAULTED)
        return Refusal(
            fault="too_long",
            used_tokens=gauge.used_tokens if gauge.is_over else claimed,
            window_tokens=self.window_tokens,
        )

    def _learn(self, ask: Ask, sent: int, steps_known: int) -> None:
        """Learns from the first request how large the opening is, and from the next one what a step
        adds."""
        if self._opening_bytes is None:
            # A session that starts with a history had an opening too.
            grown = self._bytes_after(steps_known)
            self._opening_bytes = max(ask.base_bytes, sent - round(grown))
        elif self._call_bytes is None and steps_known:
            grown = sent - self._opening_bytes
            if grown > 0:
                printed = self._printed_after(steps_known)
                self._call_bytes = max(1, round((grown - printed) / steps_known))

    def _bytes_after(self, steps: float) -> float:
        around = CALL_BYTES if self._call_bytes is None else self._call_bytes
        return self._printed_after(steps) + steps * around

    def _printed_after(self, steps: float) -> float:
        job, printed = self.job, steps * self.job.output_bytes
        if job.spike_step is not None:
            part = min(1.0, max(0.0, steps - job.spike_step + 1))
            printed += part * (job.spike_bytes - job.output_bytes)
        return printed


def _tokens(size: int) -> int:
    return -(-size // BYTES_A_TOKEN)
