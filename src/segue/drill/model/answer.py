"""The scripted model's answers, in one form for all APIs."""

from typing import Literal

from msgspec import Struct

from segue.core.sessions.spend import Spend
from segue.drill.model.ask import Call

Stop = Literal["end", "tool", "length", "refusal", "window"]
"""Why a reply ends: done, a tool comes, it is too long, the model will not, the window is full."""

Delivery = Literal[
    "whole",
    "trickle",  # slowly, bit by bit
    "drop",  # the connection is cut before the headers
    "drop_midway",  # in the middle of the stream
    "hang",  # never a byte
    "hang_midway",  # half of it, then never a byte
    "unfinished",  # a clean end without the wire's closing event
    "garbage",  # no JSON
]

Fault = Literal[
    "too_long",
    "rate_limit",
    "plan_limit",
    "overloaded",
    "server_error",
    "auth",
    "billing",
    "bad_request",
]
"""What an API answers instead of a reply; each wire has its own words for it."""


class Refusal(Struct, frozen=True, kw_only=True):
    """An HTTP answer that is no reply. `status`, `body` and `headers` go before what the wire says
    for `fault`."""

    fault: Fault | None = None
    status: int | None = None
    body: str | None = None
    headers: dict[str, str] = {}
    retry_after_s: float | None = None
    resets_at: float | None = None  # unix time, of a plan's window
    used_tokens: int | None = None  # of a prompt that is too long
    window_tokens: int | None = None
    message: str | None = None
    in_stream: bool = False  # as an event of a stream that began well, where the wire has one


class ModelReply(Struct, frozen=True, kw_only=True):
    """What the model says."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    stop: Stop | None = None  # None: "tool" if there are calls, else "end"
    spend: Spend = Spend()

    @property
    def ends_with(self) -> Stop:
        """Why it ends."""
        return self.stop or ("tool" if self.calls else "end")


class ModelAnswer(Struct, frozen=True, kw_only=True):
    """A reply or a refusal, and how it comes."""

    reply: ModelReply | None = None
    refusal: Refusal | None = None
    delivery: Delivery = "whole"
    delay_s: float = 0.0  # before the first byte
    chunk_s: float = 0.05  # between two pieces of a trickle
    headers: dict[str, str] = {}  # beside the wire's own, of a reply too
    input_tokens: int | None = None  # the answer to a count
    told: str = ""  # what was decided, in a word or two, for a log
    counted_tokens: int | None = None  # of the prompt, as it was sent
