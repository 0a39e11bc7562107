"""Whatever is sent to the daemon's socket: an answer that is described or the end, and the next
client notices nothing."""

import json
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.watch.api import COMMON, OPENAPI, described, fault_of
from support.watch.daemons import FakeDaemon, ask, raw, read_all, serving

from segue.watch.server import api, connection, metrics
from segue.watch.server.server import Server


@pytest.fixture(scope="module")
def broken() -> list[Exception]:
    return []


@pytest.fixture(scope="module")
def there(broken: list[Exception]) -> Iterator[Server]:
    connection._LINGER_S, kept = 0.05, connection._LINGER_S
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "w", "api.sock")
        with serving(FakeDaemon(), path=path, patience_s=0.05, broke=broken.append) as found:
            yield found
    connection._LINGER_S = kept


PATHS = sorted({path.replace("{id}", "s-1") for path in api.ROUTES})
FRAGMENTS = [
    b"GET ", b"POST ", b"HEAD ", b"CONNECT ", b"* HTTP/1.1\r\n", b" HTTP/1.1\r\n", b" HTTP/1.0\r\n",
    b" HTTP/9.9\r\n", b"\r\n", b"\r\n\r\n", b"\n", b"\0", b"host: x\r\n", b"host: x\r\nhost: y\r\n",
    b"content-length: 5\r\n", b"content-length: -1\r\n", b"content-length: 99999999999999999\r\n",
    b"content-length: 1, 2\r\n", b"transfer-encoding: chunked\r\n", b"connection: close\r\n",
    b"connection: upgrade\r\nupgrade: websocket\r\n", b"expect: 100-continue\r\n", b"0\r\n\r\n",
    b"5\r\n{\"a\":", b"fffffffff\r\n", b"x-a: " + b"y" * 20_000, b"last-event-id: 99\r\n",
    b"{}", b"[", b'{"session": "s-1"}', b"http://evil/v1/status", b"/v1/fits?tokens=1e9", b"%ff%00",
    *(path.encode() for path in PATHS),
]  # fmt: skip
ANY_BYTES = st.one_of(
    st.binary(max_size=300),
    st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.binary(max_size=6)), max_size=14).map(
        b"".join
    ),
)


def well(there: Server, broken: list[Exception]) -> None:
    assert not broken
    assert ask(there, "GET", "/v1/sessions/s-1").status == 200


@settings(max_examples=150)
@given(pieces=st.lists(ANY_BYTES, min_size=1, max_size=3), leaves=st.booleans())
def test_any_bytes_get_an_answer_or_the_end_and_harm_nobody(
    there: Server, broken: list[Exception], pieces: list[bytes], leaves: bool
) -> None:
    with raw(there) as client, suppress(OSError):  # it may be closed before all is sent
        for piece in pieces:
            client.sendall(piece)
        if not leaves:
            client.shutdown(1)
            with suppress(TimeoutError):
                client.settimeout(0.2)  # a stream of events does not end
                got = read_all(client)
                assert not got or re.match(rb"HTTP/1\.1 [1-5]\d\d ", got), got
    well(there, broken)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "what": JSON,
        "session": st.sampled_from(["s-1", "nobody", "full", ""]) | JSON,
        "retry": st.booleans() | JSON,
    },
)
BODIES = st.one_of(
    st.none(), FIELDS.map(lambda v: json.dumps(v).encode()),
    JSON.map(lambda v: json.dumps(v).encode()), st.binary(max_size=60),
)  # fmt: skip
SAFE = st.text(st.characters(codec="ascii", exclude_characters="#"), max_size=12)
QUERIES = st.dictionaries(
    st.sampled_from(["session", "tokens", "after", "kinds", "x"]),
    st.integers(-1, 10**20).map(str) | st.text(max_size=8),
)


@settings(max_examples=250)
@given(
    path=st.sampled_from([p for p in PATHS if p != "/v1/events"])
    | SAFE.map("/v1/sessions/".__add__),
    method=st.sampled_from(["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"]),
    query=QUERIES,
    body=BODIES,
)  # fmt: skip
def test_any_request_gets_an_answer_that_is_described(
    broken: list[Exception], path: str, method: str, query: dict[str, str], body: bytes | None
) -> None:
    from urllib.parse import quote, urlencode

    target = f"{quote(path)}?{urlencode(query)}"
    found = api.Api(FakeDaemon(), broke=broken.append).answer(
        api.ApiRequest(method, target, body or b"")
    )
    assert not broken
    assert isinstance(found, api.ApiReply)
    route, _ = api.find(quote(path))
    if route is None:
        assert found.status == 404
    elif found.status == 405:
        assert method not in OPENAPI["paths"][route]
    else:
        asked = "get" if method == "HEAD" else method.lower()
        content = described(asked, route, found.status)["content"]
        kind = found.kind.partition(";")[0]
        assert kind in content
        if kind == "application/json":
            assert not fault_of(content[kind]["schema"], json.loads(found.body))
    if found.status != 200:
        line = json.loads(found.body)["error"]
        assert line
        assert "\n" not in line
        assert str(found.status) in COMMON | {"404", "405"}


@given(
    st.dictionaries(
        st.sampled_from(list(metrics.KNOWN)) | st.text(max_size=8),
        st.recursive(
            st.integers() | st.floats() | st.text(max_size=3),
            lambda inner: st.dictionaries(st.text(max_size=6) | st.none(), inner, max_size=3),
            max_leaves=5,
        ),
        max_size=5,
    )
)
def test_any_numbers_make_metrics_that_can_be_read(values: dict[str, Any]) -> None:
    sample = re.compile(
        r'segue_[a-zA-Z0-9_]*(\{(\w+="([^"\\\n]|\\[\\n"])*")(,\w+="([^"\\\n]|\\[\\n"])*")*\})? '
        r"(NaN|[+-]Inf|-?\d[\d.e+-]*)"
    )
    described: list[str] = []
    for line in metrics.text(values).split("\n"):
        if line.startswith("# TYPE "):
            described.append(line.split(" ")[2])
        elif line and not line.startswith("#"):
            assert sample.fullmatch(line), line
            assert re.split(r"[ {]", line)[0] == described[-1]
    assert len(described) == len(set(described))
