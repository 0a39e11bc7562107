"""The daemon's API over real sockets: each route, who may ask, and clients that behave badly."""

import ast
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.waiting import until
from support.watch.api import COMMON, DOCS, OPENAPI, described, fault_of
from support.watch.daemons import FakeDaemon, Follower, ask, raw, read_all, serving, session_dict

import segue
from segue.watch.server import api, feed, metrics
from segue.watch.server.server import MAX_STREAMS, Server

PACKAGE = Path(segue.__file__).parent


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "_WAIT_S", 0.05)


@pytest.fixture
def daemon() -> FakeDaemon:
    return FakeDaemon()


@pytest.fixture
def there(daemon: FakeDaemon, tmp_path: Path) -> Iterator[Server]:
    with serving(daemon, path=str(tmp_path / "w" / "api.sock")) as found:
        yield found


# --- what is described ----------------------------------------------------------------------------

QUESTIONS: list[tuple[str, str, Any, int]] = [
    ("GET", "/metrics", None, 200),
    ("GET", "/v1/status", None, 200),
    ("GET", "/v1/sessions", None, 200),
    ("GET", "/v1/sessions/s-1", None, 200),
    ("GET", "/v1/sessions/s%2D1", None, 200),
    ("GET", "/v1/sessions/nobody", None, 404),
    ("GET", "/v1/changes", None, 200),
    ("GET", "/v1/changes?after=7", None, 200),
    ("GET", "/v1/changes?after=x", None, 400),
    ("GET", "/v1/figures", None, 200),
    ("GET", "/v1/figures?since=x", None, 400),
    ("GET", "/v1/handoffs", None, 200),
    ("GET", "/v1/handoffs/h-1", None, 200),
    ("GET", "/v1/handoffs/..%2F..%2Fetc%2Fpasswd", None, 404),
    ("GET", "/v1/fits?session=s-1&tokens=400", None, 200),
    ("GET", "/v1/fits?session=s-1", None, 400),
    ("GET", "/v1/fits?session=s-1&tokens=-1", None, 400),
    ("GET", "/v1/fits?session=s-1&tokens=%D9%A3", None, 400),
    ("GET", "/v1/fits?tokens=1", None, 400),
    ("GET", "/v1/fits?" + "a&" * 60, None, 400),
    ("GET", "/v1/events?after=x", None, 400),
    ("POST", "/v1/pause", {"what": "s-1"}, 200),
    ("POST", "/v1/pause", None, 200),
    ("POST", "/v1/pause", {"what": 3}, 400),
    ("POST", "/v1/pause", b"[", 400),
    ("POST", "/v1/pause", b"[" * 100_000, 400),
    ("POST", "/v1/pause", [], 400),
    ("POST", "/v1/unpause", {}, 200),
    ("POST", "/v1/yes", {"what": ""}, 200),
    ("POST", "/v1/handoff", {"session": "s-1", "retry": True}, 200),
    ("POST", "/v1/handoff", {"session": "s-1", "retry": 1}, 400),
    ("POST", "/v1/handoff", {"session": "nobody"}, 400),
    ("POST", "/v1/handoff", {"session": "full"}, 503),
    ("POST", "/v1/handoff", {}, 400),
    ("POST", "/v1/cancel", {"session": "s-1"}, 200),
    ("POST", "/v1/cancel", {"session": ""}, 400),
    ("POST", "/v1/hook", {"hook_event_name": "Stop"}, 200),
    ("POST", "/v1/hook", b"", 400),
    ("POST", "/v1/statusline", {"model": {}}, 200),
]


def test_each_route_answers_as_it_is_described(there: Server) -> None:
    seen = set()
    for method, target, body, status in QUESTIONS:
        got = ask(there, method, target, body)
        assert got.status == status, (target, body, got.body)
        route, _ = api.find(target.partition("?")[0])
        assert route is not None
        content = described(method, route, status)["content"]
        kind = got.headers["content-type"].partition(";")[0]
        assert kind in content, target
        if kind == "application/json":
            assert not fault_of(content[kind]["schema"], got.json), target
        seen.add(route)
    assert seen == set(OPENAPI["paths"])


def test_code_openapi_and_docs_name_the_same_routes_and_statuses() -> None:
    in_code = {(method, path) for path, ways in api.ROUTES.items() for method in ways}
    in_openapi = {
        (method.upper(), path): set(about["responses"])
        for path, ways in OPENAPI["paths"].items()
        for method, about in ways.items()
    }
    text = (DOCS / "api.md").read_text()
    rows = re.findall(r"^\| (GET|POST) \| `([^`]+)` \| ([\d ]+) \|", text, re.M)
    in_docs = {(method, path): set(said.split()) | COMMON for method, path, said in rows}
    assert in_code == in_openapi.keys()
    assert in_docs == in_openapi
    # 404 and 405 are also what paths and methods get that are not described.
    statuses = set(re.findall(r"^\| (\d{3}) \|", text, re.M))
    assert statuses == COMMON | {"404", "405"}
    assert statuses == {str(status) for status in _refused_in_code()} | {"431", "501"}  # h11's


def _refused_in_code() -> set[int]:
    found = set()
    for name in ("api", "connection", "server"):
        for node in ast.walk(ast.parse((PACKAGE / "watch" / "server" / f"{name}.py").read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in (
                "ApiRefusal",
                "api.ApiRefusal",
            ):
                found |= {
                    n.value
                    for n in ast.walk(node.args[0])
                    if isinstance(n, ast.Constant) and isinstance(n.value, int) and n.value > 99
                }
    return found


def test_the_docs_name_all_metrics_with_their_labels() -> None:
    rows = re.findall(r"^\| `(segue_\w+)` \| (\w+) \|(.*)\|", (DOCS / "api.md").read_text(), re.M)
    said = {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    assert said == {m.name: (m.type, m.labels) for m in metrics.KNOWN.values()}


def test_commands_reach_the_daemon_as_they_were_given(there: Server, daemon: FakeDaemon) -> None:
    ask(there, "POST", "/v1/pause", {"what": "$(touch x) `\n`"})
    ask(there, "POST", "/v1/unpause")
    ask(there, "POST", "/v1/handoff", {"session": "s-1"})
    ask(there, "POST", "/v1/handoff", {"session": "s-1", "retry": True})
    ask(there, "POST", "/v1/yes", {"what": "week"})
    assert daemon.told == [
        ("pause", "$(touch x) `\n`"),
        ("unpause", ""),
        ("handoff", ("s-1", False)),
        ("handoff", ("s-1", True)),
        ("yes", "week"),
    ]


def test_a_hook_gets_its_output_and_its_exit_code(there: Server, daemon: FakeDaemon) -> None:
    body = b'{"hook_event_name":"Stop"}'
    sent = b"POST /v1/hook HTTP/1.0\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    head, _, said = read_all(raw(there, sent)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"x-exit: 2" in head.lower()
    assert said == b'{"suppressOutput":true}'
    assert daemon.told == [("hook", {"hook_event_name": "Stop"})]


def test_a_path_that_is_not_utf8_is_reported_as_the_commands_tell_it(
    there: Server, daemon: FakeDaemon
) -> None:
    daemon.found = [{**session_dict(), "cwd": "/odd\udcff"}]
    assert ask(there, "GET", "/v1/sessions").json["sessions"][0]["cwd"] == "/odd\udcff"


def test_other_paths_and_methods_are_refused_in_one_line(there: Server) -> None:
    assert ask(there, "GET", "/v2/sessions").status == 404
    assert ask(there, "GET", "/v1/sessions/").status == 404
    assert ask(there, "GET", "/v1/sessions/a/b").status == 404
    assert ask(there, "OPTIONS", "*").status == 404
    got = ask(there, "OPTIONS", "/v1/pause")
    assert (got.status, got.headers["allow"]) == (405, "POST")
    assert not [name for name in got.headers if name.startswith("access-control")]
    assert ask(there, "POST", "/v1/sessions", {}).status == 405
    assert ask(there, "HEAD", "/v1/sessions").body == b""
    assert ask(there, "HEAD", "/v1/events").status == 200


def test_a_daemon_that_breaks_says_so_and_answers_the_next(
    daemon: FakeDaemon, tmp_path: Path
) -> None:
    told: list[Exception] = []
    with serving(daemon, path=str(tmp_path / "w/api.sock"), broke=told.append) as there:
        daemon.fault = KeyError("secret")
        got = ask(there, "GET", "/v1/sessions")
        assert (got.status, got.json) == (500, {"error": "internal error in the daemon: KeyError"})
        assert told == [daemon.fault]
        daemon.fault = None
        assert ask(there, "GET", "/v1/sessions").status == 200


# --- metrics --------------------------------------------------------------------------------------


def test_metrics_have_help_and_type_and_escaped_labels(there: Server, daemon: FakeDaemon) -> None:
    daemon.more_metrics = {
        "stops": {'a"b\\c\nd': 1},
        "odd name!": float("inf"),
        "deep": {"x": {"y": 0.25}},
        "no_number": "x",
    }
    got = ask(there, "GET", "/metrics")
    assert got.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = got.body.decode().splitlines()
    for line in (
        "# HELP segue_sessions Sessions by state and zone.",
        "# TYPE segue_sessions gauge",
        'segue_sessions{state="working",zone="critical"} 1',
        'segue_sessions{state="gone",zone=""} 3',
        "# TYPE segue_crossings_total counter",
        'segue_crossings_total{zone="warning"} 4',
        'segue_handoffs_total{result="needs_user"} 0',
        'segue_stops_total{reason="a\\"b\\\\c\\nd"} 1',
        "segue_resumes_total 5",
        'segue_hook_calls_total{event="Stop"} 7',
        "segue_uptime_seconds 12.5",
        "segue_log_seq 0",
        "segue_odd_name_ +Inf",
        'segue_deep{label_1="x",label_2="y"} 0.25',
        "segue_api_connections 1",
    ):
        assert line in lines, line
    names = {re.split(r"[ {]", line)[0] for line in lines if not line.startswith("#")}
    assert names == {line.split()[2] for line in lines if line.startswith("# TYPE")}
    assert "segue_no_number" not in names
    sample = re.compile(r'segue_\w+(\{(\w+="([^"\\]|\\[\\n"])*",?)+\})? [-+\w.]+')
    assert all(line.startswith("#") or sample.fullmatch(line) for line in lines)


# --- events ---------------------------------------------------------------------------------------


def test_events_come_as_they_happen_and_only_from_now_on(there: Server, daemon: FakeDaemon) -> None:
    daemon.say("stop", reason="old")
    one, two = Follower(there), Follower(there, "?kinds=crossing,health")
    daemon.say("stop", reason="new")
    daemon.say("crossing", zone="warning")
    got = one.next()
    assert got["data"] == {"reason": "new"}
    assert not fault_of(OPENAPI["components"]["schemas"]["Note"], got)
    assert one.next()["seq"] == 3
    assert two.next()["data"] == {"zone": "warning"}


def test_who_comes_back_gets_what_it_missed_in_order_and_once(
    there: Server, daemon: FakeDaemon
) -> None:
    for number in range(1, 501):  # more than two pages
        daemon.say("reading" if number % 2 else "stop", number=number)
    by_header = Follower(there, "?after=7", "last-event-id: 3")
    assert [by_header.next()["seq"] for _ in range(497)] == list(range(4, 501))
    chosen = Follower(there, "?after=0&kinds=stop")
    assert [chosen.next()["seq"] for _ in range(250)] == list(range(2, 501, 2))
    daemon.say("stop")
    assert by_header.next()["seq"] == chosen.next()["seq"] == 501


def test_a_number_of_a_lost_log_means_all_of_the_new_one(there: Server, daemon: FakeDaemon) -> None:
    daemon.say("stop")
    assert Follower(there, "?after=9999").next()["seq"] == 1


def test_a_silent_stream_has_a_heartbeat(daemon: FakeDaemon, tmp_path: Path) -> None:
    with serving(daemon, path=str(tmp_path / "w/api.sock"), beat_s=0.02) as there:
        follower = Follower(there)
        assert [follower.file.readline() for _ in range(4)] == [b": still here\n", b"\n"] * 2


def test_who_reads_no_events_delays_nobody_and_misses_nothing_if_it_reads_on(
    there: Server, daemon: FakeDaemon
) -> None:
    slow, quick = Follower(there), Follower(there)
    text = "x" * 20_000
    for number in range(1, 101):  # 2 MB: ten times what the kernel keeps for it
        daemon.say("stop", text=text)
        assert quick.next()["seq"] == number
    held = sum(client.held_bytes for client in there.clients)
    assert held < 1_000_000
    assert [slow.next()["seq"] for _ in range(100)] == list(range(1, 101))


def test_who_never_reads_its_events_is_let_go(daemon: FakeDaemon, tmp_path: Path) -> None:
    with serving(daemon, path=str(tmp_path / "w/api.sock"), patience_s=0.05) as there:
        Follower(there)
        stuck = Follower(there)
        until(lambda: daemon.waits > 0)
        for _ in range(40):
            daemon.say("stop", text="x" * 20_000)
        until(lambda: len(there.feed.followers) == 0)
        assert stuck.sock.fileno() > 0


def test_without_followers_nobody_waits_for_the_log(there: Server, daemon: FakeDaemon) -> None:
    assert ask(there, "GET", "/v1/status").status == 200
    assert daemon.waits == 0
    first = Follower(there)
    until(lambda: daemon.waits > 0)
    first.close()
    until(lambda: not there.feed.followers)
    until(lambda: "segue-news" not in {t.name for t in threading.enumerate()})
    again = Follower(there)
    daemon.say("stop")
    assert again.next()["seq"] == 1


def test_streams_are_few(there: Server) -> None:
    followers = [Follower(there) for _ in range(MAX_STREAMS)]
    assert b" 503 " in raw(there, b"GET /v1/events HTTP/1.0\r\n\r\n").recv(4096)
    followers.pop().close()
    until(lambda: len(there.feed.followers) < MAX_STREAMS)
    Follower(there)
    assert ask(there, "GET", "/v1/status").status == 200
