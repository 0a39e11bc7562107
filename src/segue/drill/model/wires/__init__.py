"""One file for each model API: reads its requests and writes its answers. Pure.

Each module has a `WIRE`; `find` returns the one that a path belongs to.
"""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

from msgspec import Struct

from segue.drill.model.answer import Fault, ModelAnswer, Refusal
from segue.drill.model.ask import Ask

NAMES = ("anthropic", "responses", "chat", "gemini")


class Http(Struct, frozen=True):
    """An HTTP answer except for its body's delivery."""

    status: int
    headers: dict[str, str]
    body: bytes


class Wire(Struct, frozen=True, kw_only=True):
    """One model API."""

    name: str
    takes: Callable[[str, str], bool]
    """Whether a method and a path (without the query) belong to it."""
    read: Callable[[str, Mapping[str, str], Any], Ask]
    """Parses a path, a query and a decoded body into a request. Raises ValueError with a one-line
    message if the body does not fit this wire."""
    pieces: Callable[[Ask, ModelAnswer], Iterator[bytes]]
    """The reply as a stream, event by event; the last piece is the wire's closing event, so a
    stream without it is unfinished."""
    whole: Callable[[Ask, ModelAnswer], bytes]
    """The reply, or the token count, as one body."""
    refuse: Callable[[Ask | None, Refusal, float], Http]
    """A refusal as this API words it; the float is the current time."""
    stream_refusal: Callable[[Refusal, float], bytes] | None = None
    """A refusal as an event of a stream that began normally."""
    streamed: frozenset[Fault] = frozenset()
    """Faults that this API reports inside the stream and never with a status, if a stream was
    requested."""


def find(method: str, path: str) -> Wire | None:
    """The wire of a request, or None."""
    for name in NAMES:
        wire: Wire = import_module(f"segue.drill.model.wires.{name}").WIRE
        if wire.takes(method, path):
            return wire
    return None
