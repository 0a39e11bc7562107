"""The scripted model's answers, in one form for all APIs."""

from typing import Literal

from msgspec import Struct

from segue.core.sessions.spend import Spend
from segue.drill.model.ask import Call

Stop = Literal["end", "tool", "length", "refusal", "window"]
"""Why a reply ends: it is complete, it calls a tool, it is too long, the model refuses, the window
is full."""

Delivery = Literal[
    "whole",
    "trickle",  # slowly, in small pieces
    "drop",  # closes the connection before the headers
    "drop_midway",  # closes it in the middle of the stream
    "hang",  # never sends a byte
    "hang_midway",  # sends half of it, then nothing more
    "unfinished",  # ends cleanly, but without the wire's closing event
    "garbage",  # sends something that is not JSON
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
"""An error that an API returns instead of a reply; each wire has its own text for it."""


class Refusal(Struct, frozen=True, kw_only=True):
    """An HTTP answer that is not a reply. `status`, `body` and `headers` override the wire's own
    answer to `fault`."""

    fault: Fault | None = None
    status: int | None = None
    body: str | None = None
    headers: dict[str, str] = {}
    retry_after_s: float | None = None
    resets_at: float | None = None  # unix time; when a plan's limit resets
    used_tokens: int | None = None  # the size of a prompt that is too long
    window_tokens: int | None = None
    message: str | None = None
    # sent as an event of a stream that began normally, if the wire has such an event
    in_stream: bool = False


class ModelReply(Struct, frozen=True, kw_only=True):
    """The model's reply: its text, its tool calls, and the usage that it reports."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    stop: Stop | None = None  # None: "tool" if there are calls, else "end"
    spend: Spend = Spend()

    @property
    def ends_with(self) -> Stop:
        """Why the reply ends: `stop`, or what its calls imply if that is not set."""
        return self.stop or ("tool" if self.calls else "end")


class ModelAnswer(Struct, frozen=True, kw_only=True):
    """A reply or a refusal, and how it is delivered."""

    reply: ModelReply | None = None
    refusal: Refusal | None = None
    delivery: Delivery = "whole"
    delay_s: float = 0.0  # before the first byte
    chunk_s: float = 0.05  # between two pieces of a slow delivery
    headers: dict[str, str] = {}  # added to the wire's own headers, also for a reply
    input_tokens: int | None = None  # the answer to a request that counts tokens
    decision: str = ""  # the script's decision in a word or two, for the log
    counted_tokens: int | None = None  # the size of the prompt, as sent
