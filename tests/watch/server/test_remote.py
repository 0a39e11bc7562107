"""The daemon as commands see it: answers, refusals, and nobody there."""

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.waiting import until
from support.watch.daemons import FakeDaemon, serving

from segue.errors import InputError, StateError
from segue.watch.server import feed
from segue.watch.server.remote import NoDaemon, Remote
from segue.watch.server.server import Server


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> FakeDaemon:
    monkeypatch.setattr(feed, "_WAIT_S", 0.05)
    return FakeDaemon()


@pytest.fixture
def there(daemon: FakeDaemon) -> Iterator[Server]:
    with serving(daemon) as found:  # where this user's is: the remote finds it by itself
        yield found


def test_it_finds_the_daemon_and_gives_what_it_says(there: Server, daemon: FakeDaemon) -> None:
    remote = Remote()
    assert remote.path == there.path
    assert remote.is_there()
    assert remote.sessions() == daemon.found
    assert remote.session("s-1") == daemon.found[0]
    assert remote.handoff_text("h-1") == "# Handoff\n"
    assert remote.get("/v1/fits", session="s 1&x", tokens=7)["why"] == "of s 1&x"
    assert remote.post("/v1/pause", {"what": "/päth"}) == {"said": "paused: /päth"}
    assert remote.post("/v1/unpause") == {"said": "unpaused"}
    assert "segue_uptime_seconds 12.5" in remote.get("/metrics")


def test_what_the_daemon_refuses_is_the_callers_mistake_in_its_words(there: Server) -> None:
    remote = Remote()
    with pytest.raises(InputError, match=r"^no session nobody$"):
        remote.post("/v1/handoff", {"session": "nobody"})
    with pytest.raises(InputError, match="no session a/b c"):
        remote.session("a/b c")
    with pytest.raises(InputError, match="4 MB"):
        remote.post("/v1/hook", {"x": "y" * (5 << 20)})
    with pytest.raises(StateError, match="the disk is full"):
        remote.post("/v1/handoff", {"session": "full"})
    with pytest.raises(InputError, match="must be a non-negative whole number"):
        next(remote.events(after=-1))


def test_events_come_one_by_one_until_the_daemon_ends(daemon: FakeDaemon) -> None:
    daemon.say("stop", number=1)
    with serving(daemon):
        stream = Remote().events(after=0, kinds=("stop", "crossing"))
        assert next(stream)["data"] == {"number": 1}
        daemon.say("reading")
        daemon.say("crossing", text="ä\n\n")
        assert next(stream)["data"] == {"text": "ä\n\n"}
    with pytest.raises(NoDaemon, match="connection"):
        next(stream)


def test_who_hears_no_more_of_them_leaves_the_daemon_alone(
    there: Server, daemon: FakeDaemon
) -> None:
    daemon.say("stop")
    stream = Remote().events(after=0)
    next(stream)
    stream.close()
    until(lambda: not there.feed.followers)


def test_nobody_there_is_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    line = "^no daemon is running; start it: segue watch$"
    with pytest.raises(NoDaemon, match=line):
        Remote().sessions()
    with pytest.raises(NoDaemon, match=line):
        next(Remote().events())
    assert not Remote().is_there()
    left = str(tmp_path / "left.sock")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(left)
    with pytest.raises(NoDaemon, match=line):
        Remote(left).sessions()
    with pytest.raises(NoDaemon, match="no daemon is running"):
        Remote(str(tmp_path / ("x" * 200))).sessions()


def test_nothing_is_told_to_another_users_socket(
    there: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(NoDaemon, match="another user"):
        Remote(there.path).sessions()


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (b"", "connection"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{}", "connection"),
        (b"nonsense\r\n\r\n", "connection"),
        (b"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n{", "did not answer with JSON"),
        (b"HTTP/1.0 500 Oh\r\n\r\n<html>", "the daemon answered with status 500"),
    ],
)
def test_what_is_not_a_daemon_is_one_line(tmp_path: Path, said: bytes, line: str) -> None:
    path = str(tmp_path / "odd.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def answer() -> None:
            other, _ = listener.accept()
            with other:
                other.recv(4096)
                other.sendall(said)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(StateError, match=line):
            Remote(path).get("/v1/status")
        thread.join()


def test_a_daemon_that_hangs_is_not_waited_for(tmp_path: Path) -> None:
    path = str(tmp_path / "odd.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        with pytest.raises(StateError, match="does not respond"):
            Remote(path, timeout_s=0.05).get("/v1/status")
