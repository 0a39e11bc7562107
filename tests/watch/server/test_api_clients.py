"""The daemon's API over real sockets: clients that behave badly, who may ask, and its file."""

import fcntl
import os
import re
import select
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.waiting import LONG_S, until
from support.watch.daemons import FakeDaemon, Follower, ask, raw, read_all, serving, session_dict

from segue.errors import StateError
from segue.system.files import state
from segue.watch.server import feed, server, sockets
from segue.watch.server.connection import Connection
from segue.watch.server.server import MAX_CLIENTS, Server

GET = b"GET /v1/status HTTP/1.1\r\nhost: x\r\n\r\n"


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


@pytest.fixture
def by_port(daemon: FakeDaemon, tmp_path: Path) -> Iterator[Server]:
    place = tmp_path / "w"
    with serving(
        daemon, path=str(place / "api.sock"), port=0, token_file=str(place / "token")
    ) as found:
        yield found


# --- clients that behave badly --------------------------------------------------------------------


def test_half_a_request_is_let_go_and_delays_nobody(daemon: FakeDaemon, tmp_path: Path) -> None:
    with serving(daemon, path=str(tmp_path / "w/api.sock"), patience_s=0.3) as there:
        halves = [
            raw(there, b"GET /v1/sta"),
            raw(there, GET[:-2]),
            raw(there, b"POST /v1/hook HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{"),
            raw(there, GET + b"GE"),
        ]
        silent = raw(there)
        assert ask(there, "GET", "/v1/status").status == 200
        for half in halves:
            assert b" 408 Request Timeout" in read_all(half)
        silent.sendall(GET)
        assert b" 200 OK" in silent.recv(4096)


def test_a_byte_now_and_then_does_not_buy_time(daemon: FakeDaemon, tmp_path: Path) -> None:
    with serving(daemon, path=str(tmp_path / "w/api.sock"), patience_s=0.2) as there:
        drip = raw(there)
        for _ in range(1000):
            drip.sendall(b"G")
            if select.select([drip], [], [], 0.01)[0]:
                break
        else:
            pytest.fail("it goes on and on")
        assert b" 408 " in drip.recv(4096)


def test_too_much_is_refused_before_it_is_read(there: Server) -> None:
    huge = b"GET /v1/status HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 200_000
    with raw(there) as found:
        found.sendall(huge[:60_000])
        assert b" 431 " in read_all(found)
    with raw(there, b"POST /v1/hook HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999\r\n\r\n") as f:
        assert b" 413 " in read_all(f)
    head = b"POST /v1/hook HTTP/1.1\r\nhost: x\r\n"
    with raw(there, head + b"transfer-encoding: chunked\r\n\r\n") as found:
        for _ in range(5):
            found.sendall(b"100000\r\n" + b" " * (1 << 20) + b"\r\n")
        assert b" 413 " in read_all(found)
    with raw(there, head + b"content-encoding: gzip\r\ncontent-length: 1\r\n\r\nx") as found:
        assert b" 415 " in read_all(found)
    with raw(there, head + b"transfer-encoding: gzip\r\n\r\n") as found:
        assert b" 501 " in read_all(found)
    assert ask(there, "GET", "/v1/status").status == 200


def test_a_large_body_may_wait_for_its_leave(there: Server) -> None:
    head = b"POST /v1/hook HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n"
    with raw(there, head + b"content-length: 2\r\n\r\n") as found:
        assert found.recv(4096).startswith(b"HTTP/1.1 100 ")
        found.sendall(b"{}")
        assert found.recv(4096).startswith(b"HTTP/1.1 200 OK")


def test_requests_in_one_go_are_answered_in_order(there: Server) -> None:
    last = GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    other = b"GET /v1/handoffs/h-1 HTTP/1.1\r\nhost: x\r\n\r\n"
    got = read_all(raw(there, (GET + other) * 20 + last))
    kinds = re.findall(rb"content-type: ([a-z]+/[a-z]+)", got)
    assert kinds == [b"application/json", b"text/markdown"] * 20 + [b"application/json"]


def test_an_answer_that_nobody_reads_delays_nobody_and_is_given_up(
    daemon: FakeDaemon, tmp_path: Path
) -> None:
    daemon.found = [session_dict(f"s-{n}") for n in range(4000)]  # 2 MB
    with serving(daemon, path=str(tmp_path / "w/api.sock"), patience_s=0.2) as there:
        stuck = [raw(there, GET.replace(b"status", b"sessions")) for _ in range(4)]
        assert ask(there, "GET", "/v1/status").status == 200
        until(lambda: not there.clients)
        assert len(ask(there, "GET", "/v1/sessions").json["sessions"]) == 4000
        assert len(stuck) == 4


def test_a_client_that_has_no_room_from_the_start_is_not_waited_for_either(
    there: Server,
) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        client = Connection(ours, there.doors[0], now=0.0, patience_s=7.0)
        with suppress(BlockingIOError):
            while True:
                ours.send(b"x" * 65536)
        client.begin_stream()
        assert client.due_at is None
        assert not client.write(now=5.0)
        assert client.due_at == 12.0


def test_what_is_kept_for_all_clients_together_is_bounded(
    there: Server, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_HELD_BYTES", 3 << 20)
    head = b"POST /v1/hook HTTP/1.1\r\nhost: x\r\ncontent-length: 4000000\r\n\r\n"
    stuck = [raw(there, head + b" " * 1_000_000) for _ in range(8)]
    assert ask(there, "POST", "/v1/hook", b"{}" + b" " * 2_000_000).status == 200
    assert sum(client.held_bytes for client in there.clients) <= 3 << 20
    assert len(stuck) == 8


def test_one_client_too_many_takes_the_place_of_the_most_silent(there: Server) -> None:
    follower = Follower(there)
    oldest = raw(there, b"GET /v1")
    until(lambda: len(there.clients) == 2)
    others = [raw(there, GET[:20] if n % 2 else b"") for n in range(MAX_CLIENTS + 30)]
    assert ask(there, "GET", "/v1/status").status == 200
    assert oldest.recv(10) == b""
    until(lambda: len(there.clients) <= MAX_CLIENTS)
    assert follower.sock.fileno() > 0
    assert there.feed.followers
    others[-1].sendall(GET[20:] if len(others) % 2 == 0 else GET)
    assert others[-1].recv(4096).startswith(b"HTTP/1.1 200")


def test_a_daemon_that_hangs_is_said_to_and_close_does_not_wait_for_it(
    daemon: FakeDaemon, tmp_path: Path
) -> None:
    daemon.hold = threading.Event()
    with serving(daemon, path=str(tmp_path / "w/api.sock"), patience_s=0.1) as there:
        got = ask(there, "GET", "/v1/sessions")
        assert (got.status, got.json) == (503, {"error": "the daemon does not respond"})
        assert ask(there, "GET", "/v1/status").status == 200  # others are asked meanwhile
        daemon.hold.set()


def test_a_slow_call_delays_no_other(there: Server, daemon: FakeDaemon) -> None:
    daemon.hold = threading.Event()
    waiting = raw(there, GET.replace(b"status", b"sessions"))
    until(lambda: daemon.told == [("sessions", None)])
    assert ask(there, "GET", "/v1/status").status == 200
    daemon.hold.set()
    assert waiting.recv(4096).startswith(b"HTTP/1.1 200")


def test_close_ends_every_connection_and_thread_and_takes_the_file_away(
    daemon: FakeDaemon, tmp_path: Path
) -> None:
    files = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    before = set(threading.enumerate())
    with serving(daemon, path=str(tmp_path / "w/api.sock"), port=0,
                 token_file=str(tmp_path / "w/token")) as there:  # fmt: skip
        follower, idle, half = Follower(there), raw(there), raw(there, b"GET")
        assert ask(there, "GET", "/v1/status").status == 200
        port = there.port
    assert [follower.file.read(), idle.recv(1), half.recv(1)] == [b"", b"", b""]
    assert set(threading.enumerate()) == before
    assert sorted(os.listdir(tmp_path / "w")) == ["api.sock.lock", "token"]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=LONG_S)
    for sock in (follower, idle, half):
        sock.close()
    assert not files or len(os.listdir("/proc/self/fd")) == files
    there.close()  # once more does nothing


# --- at the port ----------------------------------------------------------------------------------


def asked(there: Server, **headers: str) -> int:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return ask(there, "GET", "/v1/status", by_port=True, headers=given).status


def test_the_port_wants_the_token_of_a_private_file(by_port: Server, tmp_path: Path) -> None:
    token = (tmp_path / "w" / "token").read_text().strip()
    assert stat.S_IMODE((tmp_path / "w" / "token").stat().st_mode) == 0o600
    assert len(token) > 40
    assert asked(by_port, authorization=f"Bearer {token}") == 200
    assert asked(by_port, authorization=f"bearer {token}") == 200
    for wrong in ("", "Bearer", "Bearer ", f"Basic {token}", f"Bearer {token}x", "Bearer \xe9"):
        assert asked(by_port, authorization=wrong) == 401
    got = ask(by_port, "GET", "/v1/status", by_port=True)
    assert (got.status, got.headers["www-authenticate"]) == (401, "Bearer")
    assert token not in got.body.decode()
    assert ask(by_port, "GET", "/v1/status").status == 200  # the socket is private as it is


def test_the_port_answers_no_page_of_a_browser(by_port: Server, tmp_path: Path) -> None:
    known = f"Bearer {(tmp_path / 'w' / 'token').read_text().strip()}"
    port = by_port.port
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", "localhost", f"LOCALHOST:{port}"):
        assert asked(by_port, host=host, authorization=known) == 200
        assert asked(by_port, host=host, origin=f"http://{host}", authorization=known) == 200
    for host in ("evil.example", f"evil.example:{port}", f"127.0.0.1.evil.example:{port}",
                 f"localhost:{port + 1}", f"user@localhost:{port}", "", "[::1]"):  # fmt: skip
        assert asked(by_port, host=host, authorization=known) == 403, host
    for origin in ("http://evil.example", "null", f"https://localhost:{port}", "http://localhost:1",
                   f"http://127.0.0.1:{port}"):  # fmt: skip
        assert asked(by_port, host=f"localhost:{port}", origin=origin, authorization=known) == 403
    old = b"GET /v1/status HTTP/1.0\r\nauthorization: %s\r\n\r\n" % known.encode()
    assert b" 403 " in read_all(raw(by_port, old, by_port=True))


def test_without_the_token_not_even_a_body_is_read(by_port: Server) -> None:
    head = "POST /v1/hook HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4000000\r\n\r\n"
    assert b" 401 " in read_all(raw(by_port, head.encode() + b"x" * 1000, by_port=True))


def test_a_crowd_at_the_port_takes_no_place_at_the_socket(by_port: Server) -> None:
    mine = raw(by_port)
    until(lambda: len(by_port.clients) == 1)
    crowd = [raw(by_port, b"GET", by_port=True) for _ in range(MAX_CLIENTS + 10)]
    assert ask(by_port, "GET", "/v1/status").status == 200
    mine.sendall(GET)
    assert mine.recv(4096).startswith(b"HTTP/1.1 200")
    assert len(crowd) > MAX_CLIENTS


def test_only_loopback_listens(by_port: Server) -> None:
    assert by_port.doors[1].listener.getsockname()[0] == "127.0.0.1"


def test_a_port_that_is_taken_is_one_line_and_leaves_no_socket(
    by_port: Server, tmp_path: Path
) -> None:
    path = tmp_path / "x" / "api.sock"
    with pytest.raises(StateError, match=f"port {by_port.port} of 127.0.0.1: Address already"):
        Server(FakeDaemon(), path=str(path), port=by_port.port, token_file=str(tmp_path / "t/t"))
    assert not path.exists()
    with pytest.raises(StateError, match="port 99999"):
        Server(FakeDaemon(), path=str(path), port=99999, token_file=str(tmp_path / "t/t"))


def test_a_token_that_others_could_read_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "w" / "token"
    first = sockets.token(str(path))
    assert sockets.token(str(path)) == first
    path.chmod(0o644)
    second = sockets.token(str(path))
    assert second != first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_bytes(b"short")
    assert sockets.token(str(path)) not in (b"short", second)


# --- the socket's file ----------------------------------------------------------------------------


def test_only_the_user_reaches_the_socket(daemon: FakeDaemon, tmp_path: Path) -> None:
    folder = tmp_path / "w"
    folder.mkdir(mode=0o755)
    old = os.umask(0)
    try:
        with serving(daemon, path=str(folder / "api.sock")):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            for name in os.listdir(folder):
                assert stat.S_IMODE((folder / name).lstat().st_mode) == 0o600, name
            assert sorted(os.listdir(folder)) == ["api.sock", "api.sock.lock"]
    finally:
        os.umask(old)


def test_a_second_daemon_is_turned_away_and_the_first_continues(
    there: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StateError, match=r"another daemon is listening at .*api\.sock"):
        Server(FakeDaemon(), path=there.path)
    # Also where files cannot be locked: whoever answers is alive.
    monkeypatch.setattr(fcntl, "flock", _no_locks)
    with pytest.raises(StateError, match=r"another daemon is listening at .*api\.sock"):
        Server(FakeDaemon(), path=there.path)
    assert ask(there, "GET", "/v1/status").status == 200


def _no_locks(*_: object) -> None:
    raise OSError(38, "Function not implemented")


def test_what_a_killed_daemon_left_is_replaced(daemon: FakeDaemon, tmp_path: Path) -> None:
    path = str(tmp_path / "w" / "api.sock")
    code = (
        "import sys\nsys.path.insert(0, sys.argv[2])\n"
        "from support.watch.daemons import FakeDaemon\n"
        "from segue.watch.server.server import Server\n"
        "Server(FakeDaemon(), path=sys.argv[1]).start()\nprint('up', flush=True)\n"
        "sys.stdin.read()\n"
    )
    argv = [sys.executable, "-c", code, path, str(Path(__file__).parents[2])]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"up\n"
        with pytest.raises(StateError, match="another daemon"):
            Server(daemon, path=path)
        other.send_signal(signal.SIGKILL)
    assert Path(path).is_socket()
    with serving(daemon, path=path) as there:
        assert ask(there, "GET", "/v1/status").status == 200


def test_what_is_not_a_socket_is_left_alone(daemon: FakeDaemon, tmp_path: Path) -> None:
    path = tmp_path / "w" / "api.sock"
    path.parent.mkdir()
    path.write_text("mine")
    with pytest.raises(StateError, match="exists and is not a socket"):
        Server(daemon, path=str(path))
    assert path.read_text() == "mine"


def test_close_takes_no_other_daemons_file_away(daemon: FakeDaemon, tmp_path: Path) -> None:
    path = tmp_path / "w" / "api.sock"
    with serving(daemon, path=str(path)):
        path.unlink()
        path.write_text("another's")
    assert path.read_text() == "another's"


def test_a_state_folder_with_a_long_path_has_its_socket_elsewhere(
    daemon: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEGUE_HOME", "/short")
    assert state.socket_path() == "/short/watch/segue.sock"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("SEGUE_HOME", str(tmp_path / ("long" * 40)))
    path = state.socket_path()
    assert path == state.socket_path()
    with serving(daemon) as there:
        assert there.path == path
        assert ask(there, "GET", "/v1/status").status == 200
    monkeypatch.setenv("SEGUE_HOME", str(tmp_path / ("long" * 41)))
    assert state.socket_path() != path


def test_a_folder_of_another_kind_or_owner_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(StateError, match="does not belong to this user"):
        state.private_folder(str(tmp_path / "link"))
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="File exists"):
        state.private_folder(str(tmp_path / "file"))
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(StateError, match="does not belong to this user"):
        state.private_folder(str(tmp_path / "real"))
