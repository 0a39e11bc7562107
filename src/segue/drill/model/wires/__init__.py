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
    """A way of asking a model."""

    name: str
    takes: Callable[[str, str], bool]
    """Whether a method and a path (without the query) belong to it."""
    read: Callable[[str, Mapping[str, str], Any], Ask]
    """Path, query and decoded body into what is asked. Raises ValueError with one clear line for a
    body that is none of this wire's."""
    pieces: Callable[[Ask, ModelAnswer], Iterator[bytes]]
    """The reply as a stream, event by event; the last piece is the wire's closing event, so that
    all but the last is an unfinished stream."""
    whole: Callable[[Ask, ModelAnswer], bytes]
    """The reply, or the count, as one body."""
    refuse: Callable[[Ask | None, Refusal, float], Http]
    """A refusal as this wire's API words it; the float is now."""
    stream_refusal: Callable[[Refusal, float], bytes] | None = None
    """A refusal as an event of a stream that began well."""
    streamed: frozenset[Fault] = frozenset()
    """Faults that this API tells in the stream, never by a status, if a stream was asked for."""


def find(method: str, path: str) -> Wire | None:
    """The wire of a request, or None."""
    for name in NAMES:
        wire: Wire = import_module(f"segue.drill.model.wires.{name}").WIRE
        if wire.takes(method, path):
            return wire
    return None
