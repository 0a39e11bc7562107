"""How an answer is sent over a connection, decided before the first byte. Pure."""

import re
from typing import Literal

from msgspec import Struct

from segue.drill.model.answer import ModelAnswer, ModelReply, Refusal
from segue.drill.model.ask import Ask, Kind
from segue.drill.model.wires import Http, Wire

Ending = Literal["whole", "cut", "hang"]

_JSON = "application/json"
_SSE = "text/event-stream; charset=utf-8"
_GARBAGE = b"<html><body><h1>502 Bad Gateway</h1></body></html>"
_SLICES = 16  # of a slow body without events
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
FRAMING = {"content-length", "transfer-encoding", "connection", "keep-alive", "upgrade"}


class Plan(Struct, frozen=True, kw_only=True):
    """What is sent: headers, pieces on a schedule, and how it ends."""

    status: int | None = None  # None: not even headers
    headers: dict[str, str] = {}
    length: int | None = None  # as announced; None: a stream, whose end is marked
    pieces: tuple[bytes, ...] = ()
    beat_s: float = 0.0  # between two pieces; 0: all at once
    ending: Ending = "whole"


def plan(wire: Wire, ask: Ask, answer: ModelAnswer, now: float) -> Plan:
    """Decides how an answer is delivered. A refusal is sent in one piece, with its status, unless
    it is dropped, hangs, or belongs in the stream."""
    if answer.delivery == "drop":
        return Plan(ending="cut")
    if answer.delivery == "hang":
        return Plan(ending="hang")
    streams = ask.is_stream and ask.kind is not Kind.COUNT
    if answer.refusal is not None:
        return _refused(wire, ask, answer, answer.refusal, streams, now)
    headers = {"content-type": _SSE if streams else _JSON, **answer.headers}
    if streams:
        headers.setdefault("cache-control", "no-cache")
        pieces = tuple(wire.pieces(ask, answer))
        return _stream(headers, pieces, answer)
    return _body(200, headers, wire.whole(ask, answer), answer)


def _refused(
    wire: Wire, ask: Ask, answer: ModelAnswer, refusal: Refusal, streams: bool, now: float
) -> Plan:
    worded = refusal.status is None and refusal.body is None
    in_stream = refusal.in_stream or (worded and refusal.fault in wire.streamed)
    if streams and in_stream and wire.stream_refusal is not None:
        begun = ModelAnswer(reply=answer.reply or ModelReply())
        opening = _first_half(tuple(wire.pieces(ask, begun)), at_least=1)
        pieces = (*opening, wire.stream_refusal(refusal, now))
        return _stream({"content-type": _SSE, **answer.headers, **refusal.headers}, pieces, answer)
    return simple(wire.refuse(ask, refusal, now), answer.headers)


def simple(http: Http, more: dict[str, str] | None = None) -> Plan:
    """An answer that is not a stream, in one piece."""
    looks = _JSON if http.body[:1] in (b"{", b"[") else "text/plain; charset=utf-8"
    headers = {"content-type": looks, **(more or {}), **http.headers}
    status = http.status if 200 <= http.status <= 599 else 500
    body = b"" if status in (204, 304) else http.body
    return Plan(status=status, headers=clean(headers), length=len(body), pieces=(body,))


def _stream(headers: dict[str, str], pieces: tuple[bytes, ...], answer: ModelAnswer) -> Plan:
    headers = clean(headers)
    way = answer.delivery
    if way == "garbage":
        return Plan(status=200, headers=headers, pieces=(b"data: " + _GARBAGE + b"\n\n",))
    if way in ("drop_midway", "hang_midway"):
        ending: Ending = "cut" if way == "drop_midway" else "hang"
        return Plan(status=200, headers=headers, pieces=_first_half(pieces), ending=ending)
    if way == "unfinished":
        return Plan(status=200, headers=headers, pieces=pieces[:-1])
    beat = answer.chunk_s if way == "trickle" else 0.0
    return Plan(status=200, headers=headers, pieces=pieces, beat_s=beat)


def _first_half(pieces: tuple[bytes, ...], at_least: int = 0) -> tuple[bytes, ...]:
    """The pieces that a stream sends before it breaks off: never the last one, and of two pieces
    none, because a wire that sends a call in one piece must not deliver it."""
    return pieces[: min(max(at_least, (len(pieces) - 1) // 2), len(pieces) - 1)]


def _body(status: int, headers: dict[str, str], body: bytes, answer: ModelAnswer) -> Plan:
    headers = clean(headers)
    way, length = answer.delivery, len(body)
    if way == "garbage":
        body = _GARBAGE
    if way in ("drop_midway", "hang_midway"):
        half = (body[: length // 2],)
        ending: Ending = "cut" if way == "drop_midway" else "hang"
        return Plan(status=status, headers=headers, length=length, pieces=half, ending=ending)
    if way == "unfinished":
        body = body[: length // 2]
    pieces: tuple[bytes, ...] = (body,)
    if way == "trickle":
        step = max(1, -(-len(body) // _SLICES))
        pieces = tuple(body[at : at + step] for at in range(0, len(body), step))
    beat = answer.chunk_s if way == "trickle" else 0.0
    return Plan(status=status, headers=headers, length=len(body), pieces=pieces, beat_s=beat)


def clean(headers: dict[str, str]) -> dict[str, str]:
    """Headers with lower-case names, and without anything that would break the framing: they come
    from scenario files."""
    allowed = {}
    for name, value in headers.items():
        if _NAME.fullmatch(name) and name.lower() not in FRAMING:
            line = "".join(c if c.isprintable() else " " for c in str(value))
            allowed[name.lower()] = line.encode("latin-1", "replace").decode("latin-1").strip()
    return allowed
