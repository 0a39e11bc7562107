"""The scripted model over real sockets: each kind of delivery, and whatever clients do."""

import asyncio
import http.client
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
import pytest

from segue.core.sessions.spend import Spend
from segue.drill.model.answer import Delivery, ModelAnswer, ModelReply, Refusal
from segue.drill.model.ask import Ask, Call, Kind
from segue.drill.model.connection import MAX_BODY_BYTES
from segue.drill.model.log import Logged
from segue.drill.model.server import Running, running

PATIENCE_S = 60.0  # longer than any of it takes: a test that waits so long has failed
TEXT = "Hello, here are some words to say."
HELLO = ModelAnswer(reply=ModelReply(text=TEXT, spend=Spend(input_tokens=5, output_tokens=2)))
STEP = ModelAnswer(reply=ModelReply(calls=(Call("c1", "sh job/step 3", "Bash", {"command": "x"}),)))
PATHS = {
    "anthropic": "/v1/messages",
    "responses": "/v1/responses",
    "chat": "/v1/chat/completions",
    "gemini": "/v1beta/models/m:generateContent",
}
STREAMED = {"messages": [{"role": "user", "content": "Go"}], "stream": True, "model": "m"}
ASKED = {**STREAMED, "stream": False}


class Says:
    """Answers by a function of the request."""

    def __init__(self, decide: Callable[[Ask], ModelAnswer]) -> None:
        self.decide = decide
        self.asked: list[Ask] = []

    def answer(self, ask: Ask, now: float) -> ModelAnswer:
        self.asked.append(ask)
        return self.decide(ask)


class Watch:
    """A log that can be waited for."""

    def __init__(self) -> None:
        self.seen: list[Logged] = []
        self.changed = threading.Condition()

    def __call__(self, logged: Logged) -> None:
        with self.changed:
            self.seen.append(msgspec.structs.replace(logged))
            self.changed.notify_all()

    def until(self, fits: Callable[[Logged], bool]) -> Logged:
        with self.changed:
            assert self.changed.wait_for(lambda: any(map(fits, self.seen)), PATIENCE_S), self.seen
            return next(filter(fits, self.seen))


def is_main(ask: Ask) -> Kind:
    return Kind.MAIN


@contextmanager
def serving(answer: ModelAnswer | Callable[[Ask], ModelAnswer], **more: Any) -> Iterator[Running]:
    def decide(ask: Ask) -> ModelAnswer:
        if ask.kind is Kind.COUNT:
            return ModelAnswer(input_tokens=1)  # for `still_works`
        return answer(ask) if callable(answer) else answer

    with running(Says(decide), kind_of=is_main, **more) as server:
        yield server


def client(server: Running) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)


def post(server: Running, body: Any, path: str = "/v1/messages") -> http.client.HTTPResponse:
    connection = client(server)
    connection.request("POST", path, body if isinstance(body, bytes) else json.dumps(body))
    return connection.getresponse()


def raw(server: Running, sent: bytes = b"") -> socket.socket:
    found = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S)
    found.sendall(sent)
    return found


def request(body: Any = STREAMED, path: str = "/v1/messages") -> bytes:
    data = json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(data)}\r\n\r\n".encode() + data


def reset(found: socket.socket) -> None:
    """Leaves without a word of farewell."""
    found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    found.close()


def read_all(found: socket.socket) -> bytes:
    """All until the other end closes."""
    data = b""
    while more := found.recv(65536):
        data += more
    return data


def still_works(server: Running) -> None:
    response = post(server, ASKED, "/v1/messages/count_tokens")
    assert response.status == 200
    response.read()


def sent(delivery: Delivery, **more: Any) -> ModelAnswer:
    return ModelAnswer(reply=HELLO.reply, delivery=delivery, **more)


# Deliveries.


def test_a_stream_comes_whole_and_says_so_in_the_log() -> None:
    with serving(HELLO) as server:
        response = post(server, STREAMED)
        body = response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        assert body.endswith(b'data: {"type":"message_stop"}\n\n')
    (logged,) = server.requests
    assert (logged.number, logged.wire, logged.model) == (1, "anthropic", "m")
    assert (logged.kind, logged.is_stream, logged.tokens) == (Kind.MAIN, True, 5)
    assert (logged.answered, logged.status, logged.is_finished) == ("text", 200, True)
    assert logged.ended_at is not None


def test_a_body_comes_whole() -> None:
    with serving(HELLO) as server:
        response = post(server, ASKED)
        assert response.headers["content-type"] == "application/json"
        assert json.loads(response.read())["content"] == [{"type": "text", "text": TEXT}]


def paused(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that the server makes from now on, each of which takes no time."""
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def pause(delay_s: float, *_: Any) -> None:
        pauses.append(delay_s)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", pause)
    return pauses


@pytest.mark.parametrize("body", [STREAMED, ASKED])
def test_a_trickle_keeps_its_beat_and_arrives_whole(
    body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(HELLO) as server:
        number = post(server, body).read()
    pauses = paused(monkeypatch)
    with serving(sent("trickle", chunk_s=60.0)) as server:
        assert post(server, body).read() == number
    beats = [round(each / 60) for each in pauses[1:]]  # each counts from the first piece
    assert beats == list(range(len(beats)))
    assert len(beats) > 5


@pytest.mark.parametrize("body", [STREAMED, ASKED])
def test_a_drop_sends_not_even_headers(body: dict[str, Any]) -> None:
    with serving(sent("drop")) as server:
        assert read_all(raw(server, request(body))) == b""
        (logged,) = server.requests
        assert (logged.status, logged.is_finished, logged.delivery) == (None, False, "drop")


@pytest.mark.parametrize("body", [STREAMED, ASKED])
def test_a_drop_midway_sends_some_and_never_the_end(body: dict[str, Any]) -> None:
    with serving(sent("drop_midway")) as server:
        with pytest.raises(http.client.IncompleteRead) as broken:
            post(server, body).read()
        assert b'"type":"message' in broken.value.partial
        assert b"message_stop" not in broken.value.partial
    assert not server.requests[0].is_finished


@pytest.mark.parametrize("body", [STREAMED, ASKED])
def test_a_hang_sends_nothing_and_ends_when_the_client_goes(body: dict[str, Any]) -> None:
    log = Watch()
    with serving(sent("hang"), log=log) as server:
        found = raw(server, request(body))
        assert log.until(lambda logged: logged.delivery == "hang").ended_at is None
        found.settimeout(0.1)
        with pytest.raises(TimeoutError):
            found.recv(1)
        found.close()
        assert not log.until(lambda logged: logged.ended_at is not None).is_finished


@pytest.mark.parametrize("body", [STREAMED, ASKED])
def test_a_hang_midway_sends_some_and_then_nothing(body: dict[str, Any]) -> None:
    log = Watch()
    with serving(sent("hang_midway"), log=log) as server:
        found = raw(server, request(body))
        data = b""
        while b'"type":"message' not in data:
            data += found.recv(65536)
        found.settimeout(0.1)
        with pytest.raises(TimeoutError):
            read_all(found)
        found.close()
        assert not log.until(lambda logged: logged.ended_at is not None).is_finished


@pytest.mark.parametrize("delivery", ["hang", "hang_midway"])
def test_a_hang_ends_when_the_server_closes(delivery: Delivery) -> None:
    log = Watch()
    with serving(sent(delivery), log=log) as server:
        found = raw(server, request())
        log.until(lambda logged: logged.delivery == delivery)
    with suppress(ConnectionResetError):  # an end too
        assert b"message_stop" not in read_all(found)
    assert server.requests[0].ended_at is not None


def test_a_client_that_resets_ends_a_hang() -> None:
    log = Watch()
    with serving(sent("hang"), log=log) as server:
        found = raw(server, request())
        log.until(lambda logged: logged.delivery == "hang")
        reset(found)
        log.until(lambda logged: logged.ended_at is not None)
        still_works(server)


def test_an_unfinished_stream_ends_cleanly_without_its_last_event() -> None:
    with serving(sent("unfinished")) as server:
        body = post(server, STREAMED).read()
    assert body.count(b"content_block_stop") == 2  # name and type
    assert b'stop_reason":"' not in body
    assert server.requests[0].is_finished


def test_an_unfinished_body_is_half_of_one() -> None:
    with serving(sent("unfinished")) as server, pytest.raises(ValueError):
        json.loads(post(server, ASKED).read())


@pytest.mark.parametrize("body", [STREAMED, ASKED])
def test_garbage_is_not_json(body: dict[str, Any]) -> None:
    with serving(sent("garbage")) as server:
        response = post(server, body)
        assert response.status == 200
        data = response.read().removeprefix(b"data: ")
    with pytest.raises(ValueError):
        json.loads(data)


def test_a_delay_comes_before_the_first_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = paused(monkeypatch)
    with serving(ModelAnswer(reply=HELLO.reply, delay_s=0.2)) as server:
        post(server, STREAMED)
        assert pauses[0] == 0.2


# Refusals.


def test_a_refusal_has_its_status_body_and_headers() -> None:
    answer = ModelAnswer(
        refusal=Refusal(fault="rate_limit", retry_after_s=3), headers={"x-mine": "1"}
    )
    with serving(answer) as server:
        response = post(server, STREAMED)
        assert (response.status, response.headers["retry-after"]) == (429, "3")
        assert response.headers["x-mine"] == "1"
        assert json.loads(response.read())["error"]["type"] == "rate_limit_error"
    assert (server.requests[0].answered, server.requests[0].status) == ("rate_limit", 429)


def test_a_refusal_in_the_stream_follows_its_beginning() -> None:
    answer = ModelAnswer(refusal=Refusal(fault="overloaded", in_stream=True))
    with serving(answer) as server:
        response = post(server, STREAMED)
        body = response.read()
        assert response.status == 200
        assert body.startswith(b"event: message_start\n")
        assert b"event: error\ndata: " in body
        assert b"overloaded_error" in body
        assert b"message_stop" not in body
        assert post(server, ASKED).status == 529  # no stream, no event


def test_a_full_window_is_told_in_the_stream_where_the_real_api_does() -> None:
    body = {"input": "Go", "stream": True}
    with serving(ModelAnswer(refusal=Refusal(fault="too_long"))) as server:
        response = post(server, body, PATHS["responses"])
        assert response.status == 200
        assert b"context_length_exceeded" in response.read()
    by_status = ModelAnswer(refusal=Refusal(fault="too_long", status=400))
    with serving(by_status) as server:
        assert post(server, body, PATHS["responses"]).status == 400


def test_headers_of_a_scenario_cannot_break_the_framing() -> None:
    headers = {"x-a": "1\r\nx-evil: 2", "content-length": "3", "no good": "x", "x-ü": "y"}
    answer = ModelAnswer(refusal=Refusal(status=500, body="boom", headers=headers))
    with serving(answer) as server:
        response = post(server, ASKED)
        assert response.read() == b"boom"
        assert response.headers["x-a"] == "1  x-evil: 2"
        assert response.headers["x-evil"] is None


# Requests.


@pytest.mark.parametrize("wire", PATHS)
@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b'{"x":1}', b"[" * 100_000, b"null"])
def test_a_malformed_body_is_refused_in_the_wire_s_own_form(wire: str, body: bytes) -> None:
    with serving(HELLO) as server:
        response = post(server, body, PATHS[wire])
        assert response.status == 400
        error = json.loads(response.read())["error"]
        assert error["message"]
        still_works(server)
    assert server.requests[0].answered == "bad_request"
    assert server.requests[0].error


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("HEAD", "/", 200),
        ("GET", "/", 200),
        ("GET", "/api/hello", 200),
        ("HEAD", "/api/hello", 200),
        ("GET", "/v1/models", 200),
        ("HEAD", "/v1/models", 200),
        ("GET", "/v1beta/models", 200),
        ("GET", "/v1/messages", 404),
        ("POST", "/v1/other", 404),
        ("DELETE", "/", 404),
    ],
)
def test_paths_of_no_wire(method: str, path: str, status: int) -> None:
    with serving(HELLO) as server:
        connection = client(server)
        for _ in range(2):  # on one connection: the framing is right
            connection.request(method, path, b"{}" if method == "POST" else None)
            response = connection.getresponse()
            body = response.read()
            assert response.status == status
            if status == 404:
                assert path in json.loads(body)["error"]["message"]


def test_many_requests_go_over_one_connection() -> None:
    with serving(HELLO) as server:
        connection = client(server)
        for body in (STREAMED, ASKED, STREAMED):
            connection.request("POST", "/v1/messages", json.dumps(body))
            assert connection.getresponse().read()
    assert [logged.number for logged in server.requests] == [1, 2, 3]


def test_requests_sent_at_once_are_answered_one_after_the_other() -> None:
    with serving(HELLO) as server:
        found = raw(server, request(ASKED) * 3)
        found.shutdown(socket.SHUT_WR)
        assert read_all(found).count(b"HTTP/1.1 200") == 3


def test_the_kind_is_known_before_the_script_is_asked_and_a_count_is_a_count() -> None:
    script = Says(lambda ask: HELLO)
    with running(script, kind_of=lambda ask: Kind.TITLE) as server:
        post(server, ASKED).read()
        post(server, ASKED, "/v1/messages/count_tokens").read()
    assert [ask.kind for ask in script.asked] == [Kind.TITLE, Kind.COUNT]
    assert [ask.number for ask in script.asked] == [1, 2]


def test_a_step_is_named_in_the_log() -> None:
    with serving(STEP) as server:
        post(server, STREAMED).read()
    assert server.requests[0].answered == "step 3"


def test_bodies_are_kept_only_if_asked_for() -> None:
    with serving(HELLO) as server:
        post(server, ASKED).read()
    assert "Go" not in json.dumps(msgspec.to_builtins(server.requests))
    with serving(HELLO, bodies=True) as server:
        post(server, ASKED).read()
    assert server.requests[0].body == ASKED


def test_a_script_that_breaks_is_a_server_error_and_not_the_end() -> None:
    def broken(ask: Ask) -> ModelAnswer:
        raise KeyError("nothing")

    with serving(broken) as server:
        response = post(server, ASKED)
        assert response.status == 500
        assert "KeyError" in json.loads(response.read())["error"]["message"]
        still_works(server)
    assert "KeyError" in server.requests[0].error


def test_an_unknown_kind_is_a_server_error_too() -> None:
    def lost(ask: Ask) -> Kind:
        raise LookupError("who asks?")

    with running(Says(lambda ask: HELLO), kind_of=lost) as server:
        assert post(server, ASKED).status == 500
        still_works(server)


def test_a_client_may_wait_for_leave_to_send() -> None:
    head, _, body = request().partition(b"\r\n\r\n")
    with serving(HELLO) as server:
        found = raw(server, head + b"\r\nexpect: 100-continue\r\n\r\n")
        assert found.recv(1000).startswith(b"HTTP/1.1 100")
        found.sendall(body)
        found.shutdown(socket.SHUT_WR)
        assert b"message_stop" in read_all(found)


# What goes wrong.


@pytest.mark.parametrize(
    "junk",
    [
        b"hello\r\n\r\n",
        b"GET / HTTP/x.y\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",  # no host
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",  # TLS
        b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 300_000,
    ],
)
def test_malformed_http_is_refused_and_closed(junk: bytes) -> None:
    with serving(HELLO) as server:
        found = raw(server, junk)
        assert read_all(found).startswith(b"HTTP/1.1 4")
        still_works(server)


def test_a_compressed_body_is_refused() -> None:
    head = b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-encoding: gzip\r\n"
    with serving(HELLO) as server:
        found = raw(server, head + b"content-length: 2\r\n\r\nxx")
        assert read_all(found).startswith(b"HTTP/1.1 415")


@pytest.mark.parametrize("part", [b"POST /v1/mess", request()[:-5]])
def test_a_request_that_never_ends_is_let_go(part: bytes) -> None:
    with serving(HELLO, patience_s=0.1) as server:
        found = raw(server, part)
        assert read_all(found).startswith(b"HTTP/1.1 408")
        still_works(server)


def test_a_client_that_is_idle_between_requests_is_kept() -> None:
    with serving(HELLO, patience_s=0.05) as server:
        connection = client(server)
        for _ in range(2):
            connection.request("POST", "/v1/messages", json.dumps(ASKED))
            response = connection.getresponse()
            assert (response.status, bool(response.read())) == (200, True)
            slow = raw(server, b"P")  # lives as long as the patience: one more than that passes
            assert read_all(slow).startswith(b"HTTP/1.1 408")
        assert connection.sock is not None


def test_a_client_that_only_connects_harms_nobody() -> None:
    with serving(HELLO) as server:
        held = [raw(server) for _ in range(50)]
        still_works(server)
    for found in held:
        found.close()


@pytest.mark.parametrize("part", [b"", b"POST", request()[:-5]])
def test_a_client_that_closes_before_it_asked_harms_nobody(part: bytes) -> None:
    with serving(HELLO) as server:
        raw(server, part).close()
        still_works(server)


def test_a_client_that_has_said_all_still_hears_its_answer() -> None:
    with serving(sent("trickle", chunk_s=0.01)) as server:
        found = raw(server, request())
        found.shutdown(socket.SHUT_WR)
        assert b"message_stop" in read_all(found)


def test_a_client_that_vanishes_from_a_stream_is_noticed() -> None:
    log = Watch()
    long = ModelAnswer(reply=ModelReply(text="x" * 200), delivery="trickle", chunk_s=0.02)
    with serving(long, log=log) as server:
        found = raw(server, request())
        assert found.recv(20)
        reset(found)
        gone = log.until(lambda logged: logged.ended_at is not None)
        assert not gone.is_finished
        assert gone.error
        still_works(server)


def test_a_client_that_vanishes_during_the_response_does_not_break_the_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clients: list[socket.socket] = []

    def leaves(ask: Ask) -> ModelAnswer:
        reset(clients.pop())  # before a byte of the answer is sent
        return sent("drop")

    log = Watch()
    with serving(leaves, log=log) as server:
        clients.append(raw(server))
        clients[0].sendall(request())
        log.until(lambda logged: logged.ended_at is not None)
        still_works(server)
    assert not caplog.records, caplog.text


def test_a_client_that_reads_nothing_stops_nobody() -> None:
    huge = ModelAnswer(reply=ModelReply(text="x" * (8 << 20)))
    log = Watch()
    with serving(huge, log=log) as server:
        found = raw(server, request())
        log.until(lambda logged: logged.answered == "text")
        still_works(server)
    assert not server.requests[0].is_finished
    found.close()


def big(size: int) -> bytes:
    empty = json.dumps({"messages": [{"role": "user", "content": ""}]}).encode()
    return empty.replace(b'""', b'"' + b"x" * (size - len(empty)) + b'"')


def test_a_body_of_64_mb_is_read() -> None:
    with serving(HELLO) as server:
        assert post(server, big(MAX_BODY_BYTES)).status == 200
    assert server.requests[0].sent_bytes == MAX_BODY_BYTES


def chunks(size: int) -> Iterator[bytes]:
    for _ in range(size >> 20):
        yield b" " * (1 << 20)
    yield b" "


@pytest.mark.parametrize("chunked", [False, True])
def test_a_larger_one_is_refused_though_the_client_still_sends(chunked: bool) -> None:
    with serving(HELLO) as server:
        connection = client(server)
        body: Any = chunks(MAX_BODY_BYTES) if chunked else big(MAX_BODY_BYTES + 1)
        connection.request(
            "POST",
            "/v1/messages",
            body,
            encode_chunked=chunked,
            headers=({"transfer-encoding": "chunked"} if chunked else {}),
        )
        response = connection.getresponse()
        assert response.status == 413
        assert "64 MB" in json.loads(response.read())["error"]["message"]
        still_works(server)


def test_fifty_streams_at_once_do_not_mix() -> None:
    def decide(ask: Ask) -> ModelAnswer:
        text = f"You said {ask.last_text}. " * 5
        return ModelAnswer(reply=ModelReply(text=text), delivery="trickle", chunk_s=0.01)

    async def one(port: int, number: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        said = {"messages": [{"role": "user", "content": f"<{number}>"}], "stream": True}
        writer.write(request(said))
        data = await asyncio.wait_for(reader.readuntil(b"\r\n0\r\n\r\n"), PATIENCE_S)
        writer.close()
        return data

    async def all_of_them(port: int) -> list[bytes]:
        return await asyncio.gather(*(one(port, number) for number in range(50)))

    with serving(decide) as server:
        found = asyncio.run(all_of_them(server.port))
    for number, data in enumerate(found):
        lines = [line for line in data.split(b"\r\n") if line.startswith(b"event: ")]
        events = [json.loads(line.partition(b"data: ")[2]) for line in lines[:-1]]
        text = "".join(e["delta"]["text"] for e in events if e["type"] == "content_block_delta")
        assert text == f"You said <{number}>. " * 5
    assert all(logged.is_finished for logged in server.requests)


def test_a_port_that_is_taken_is_an_error_and_leaves_no_thread() -> None:
    with serving(HELLO) as server:
        before = threading.active_count()
        with pytest.raises(OSError), serving(HELLO, port=server.port):
            pass
        assert threading.active_count() == before


def test_closing_does_not_wait_for_idle_clients() -> None:
    with serving(HELLO) as server:
        connection = client(server)
        connection.request("POST", "/v1/messages", json.dumps(ASKED))
        connection.getresponse().read()
    assert connection.sock.recv(1) == b""  # the client has not left, and the server is closed
