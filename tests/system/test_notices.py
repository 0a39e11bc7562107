"""Notices: once each, terse, and never in anybody's way."""

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, get_args

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from support.hangs import stopped_hang
from support.paths import ROOT
from support.waiting import LONG_S

from segue.cli.daemon.notify import command
from segue.system import notices
from segue.system.notices import KINDS, Kind, Notice, Notices, make_notice

KEY = "sk-ant-" + "a1" * 20


def test_every_kind_is_in_the_docs() -> None:
    page = (ROOT / "docs/notifications.md").read_text()
    assert set(KINDS) == set(get_args(Kind))
    assert [kind for kind in KINDS if f"| `{kind}` |" not in page] == []


class Service:
    """An HTTP service on loopback that keeps what it was sent."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.status = 200
        self.hangs = threading.Event()  # set: it goes on
        self.hangs.set()
        self.asked = threading.Event()
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                service.asked.set()
                service.hangs.wait(30)
                service.got.append(json.loads(body))
                self.send_response(service.status)
                self.end_headers()

            def log_message(self, *args: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"json://127.0.0.1:{self.server.server_address[1]}/"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()

    def close(self) -> None:
        self.hangs.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def service() -> Iterator[Service]:
    found = Service()
    yield found
    found.close()


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def kept() -> tuple[list[Notice], Clock, Notices]:
    """What is told, without any service."""
    told: list[Notice] = []

    def keep(notice: Notice) -> str:
        told.append(notice)
        return ""

    clock = Clock()
    return told, clock, Notices(clock=clock, ways=[keep])


def test_the_table_has_a_row_for_every_kind() -> None:
    assert tuple(KINDS) == get_args(Kind)


@pytest.mark.parametrize("kind", notices.KINDS)
def test_the_same_thing_is_reported_once_in_its_window_and_again_after_it(
    kind: notices.Kind,
) -> None:
    told, clock, tells = kept()
    assert tells.tell(kind, "s1", "title")
    clock.now += KINDS[kind].window_s - 1
    assert not tells.tell(kind, "s1", "title")
    assert tells.tell(kind, "s2", "title"), "another session's is another thing"
    clock.now += 1
    assert tells.tell(kind, "s1", "title")
    tells.close()
    assert len(told) == 3


def test_another_kind_of_the_same_session_is_reported_and_a_clock_set_back_hides_nothing() -> None:
    told, clock, tells = kept()
    assert tells.tell("stop", "s1", "a")
    assert tells.tell("resume", "s1", "b")
    clock.now -= 500
    assert tells.tell("stop", "s1", "c")
    tells.close()
    assert [n.title for n in told] == ["a", "b", "c"]
    assert not tells.tell("stop", "s9", "after the end")


def test_a_terse_notice_names_no_path_and_quotes_no_session() -> None:
    notice = make_notice(
        "stop",
        "claude stopped in /home/me/secret-project",
        f"rate limit at 5,000/200,000 in ~/code/x.py; key {KEY}\nthe session said: all my plans",
        "transcript /home/me/.claude/projects/x.jsonl",
        terse=True,
    )
    assert notice.title == "claude stopped in …"
    assert notice.body.startswith("rate limit at 5,000/200,000 in …")
    assert not {"plans", KEY, "jsonl"} & set(notice.body.split())


def test_a_word_without_end_is_cut_before_it_is_looked_at() -> None:
    with stopped_hang():
        found = make_notice("stop", "t", "a" * 1_000_000, "", terse=True)
    assert len(found.body) == 200


def test_a_full_notice_has_the_detail_but_no_secret_and_no_control_character() -> None:
    detail = f"in /home/me/x: {KEY}\x1b]0;owned\x07"
    notice = make_notice("stop", "a\nb", "body", detail, terse=False)
    assert notice.title == "a b"
    assert "/home/me/x" in notice.body
    assert KEY not in notice.body
    assert all(c.isprintable() or c == "\n" for c in notice.body)


@given(st.text(max_size=300), st.text(max_size=300), st.booleans())
def test_any_text_makes_a_notice_that_a_terminal_shows_as_text(
    title: str, body: str, terse: bool
) -> None:
    notice = make_notice("wait", title, body, body, terse=terse)
    assert notice.title.isprintable()
    assert len(notice.title) <= 200
    assert all(c.isprintable() or c == "\n" for c in notice.body)
    if terse:
        assert "\n" not in notice.body
        assert "/home" not in make_notice("wait", title, f"{body} /home/x", "", terse=True).body


def test_a_notice_reaches_a_real_service_through_apprise(service: Service) -> None:
    tells = Notices([service.url], environment={})
    assert tells.tell("needs_you", "s1", "claude needs you", "a permission", detail="/home/me/x")
    assert tells.wait(LONG_S)
    tells.close()
    (got,) = service.got
    assert (got["title"], got["message"], got["type"]) == (
        "claude needs you",
        "a permission",
        "warning",
    )
    assert tells.sent == 1
    assert not tells.notes


def test_a_service_that_hangs_blocks_nobody_and_is_left_in_time(
    service: Service,
) -> None:
    service.hangs.clear()
    tells = Notices([service.url], environment={})
    accepted = [tells.tell("stop", str(n), "x") for n in range(100)]
    assert 60 < sum(accepted) < 70, "the queue has an end"
    assert tells.dropped == 100 - sum(accepted)
    assert service.asked.wait(LONG_S)
    tells.close(0.3)
    assert not tells.wait(0), "it is still being sent, and nobody waits for that"
    assert not service.got


def test_a_process_with_a_hanging_service_ends_all_the_same(service: Service) -> None:
    service.hangs.clear()
    code = (
        "import sys\n"
        "from segue.system.notices import Notices\n"
        "tells = Notices([sys.argv[1], sys.argv[1]], environment={})\n"
        "tells.tell('stop', 'x', 'x')\n"
        "sys.stdin.readline()\n"
        "tells.close(0.2)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-P", "-c", code, service.url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert service.asked.wait(LONG_S)
        child.communicate("go\n", timeout=LONG_S)
        assert child.returncode == 0
        assert not service.got, "it ends before the service answers"
    finally:
        child.kill()
        child.wait()


def test_a_failing_service_gives_way_to_the_next_and_its_token_is_not_told(
    service: Service, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    service.status = 500
    bell = Terminal()
    url = service.url.replace("json://", f"json://user:{KEY}@")
    tells = Notices([url], bell=bell, environment={})
    tells.tell("stop", "s1", "claude stopped", "rate limit")
    assert tells.wait(LONG_S)
    tells.close()
    assert list(tells.notes) == ["notice not sent: json:// did not accept it"]
    assert bell.getvalue() == "\x1b]9;claude stopped: rate limit\x07\x07"
    assert tells.sent == 1
    assert KEY not in "".join(capfd.readouterr())
    assert not caplog.records, "Apprise's own words name URLs"


def test_with_a_broken_apprise_or_nonsense_for_a_url_the_bell_rings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for url, why in (("nobody://x", "is not an Apprise URL"), ("", "is not an Apprise URL")):
        (said,) = notices.Services([url]).each(Notice("stop", "a", "b"))
        assert said[1] == why
    monkeypatch.setitem(sys.modules, "apprise", None)
    bell = Terminal()
    tells = Notices(["json://127.0.0.1:1/"], bell=bell, environment={})
    tells.tell("stop", "s", "a")
    assert tells.wait(LONG_S)
    tells.close()
    assert tells.notes[0] == "notice not sent: ModuleNotFoundError"
    assert bell.getvalue()


def test_one_way_that_raises_does_not_end_the_thread() -> None:
    def breaks(notice: Notice) -> str:
        raise RuntimeError(notice.title)

    tells = Notices(ways=[breaks])
    for number in range(3):
        assert tells.tell("stop", str(number), "x")
    assert tells.wait(LONG_S)
    assert list(tells.notes) == ["notice not sent: RuntimeError"] * 3
    tells.close()


class Terminal(io.StringIO):
    """Says that it is one."""

    def isatty(self) -> bool:
        return True


def test_the_bell_is_for_terminals_alone_and_a_closed_one_is_not_a_fault() -> None:
    log = io.StringIO()
    assert notices.ring(log, Notice("stop", "a", "b"))
    assert log.getvalue() == ""
    closed = Terminal()
    closed.close()
    assert notices.ring(closed, Notice("stop", "a", "b"))


def test_the_desktop_gets_texts_as_arguments_and_only_if_there_is_one(tmp_path: Path) -> None:
    program = tmp_path / "notify-send"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/said\n')
    program.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert notices.make_ways((), None, env) == []
    (way,) = notices.make_ways((), None, env | {"DISPLAY": ":0"})
    canary = tmp_path / "canary"
    assert way(Notice("needs_you", f"$(touch {canary})", f"<b>`touch {canary}`")) == ""
    said = (tmp_path / "said").read_text().splitlines()
    assert said[-3:] == ["--", f"$(touch {canary})", f"&lt;b&gt;`touch {canary}`"]
    assert not canary.exists()


def config(own_home: Path, *lines: str) -> None:
    folder = own_home / "segue"
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text("\n".join(("[policy]", *lines)) + "\n")


def test_notify_test_sends_to_each_service_and_says_what_became_of_it(
    service: Service, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    config(own_home, f'notify = ["{service.url}"]')
    result = CliRunner().invoke(command, ["test"])
    assert (result.exit_code, result.stdout) == (0, "json:// accepted it\n")
    assert service.got[0]["title"] == "segue: test notification"
    assert os.getcwd() not in json.dumps(service.got)
    service.status = 500
    config(own_home, f'notify = ["{service.url}"]', "notify_terse = false")
    result = CliRunner().invoke(command, ["test"])
    assert (result.exit_code, result.stderr) == (1, "json:// did not accept it\n")
    assert os.getcwd() in json.dumps(service.got[1])


def test_notify_test_without_a_service_says_how_to_set_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    result = CliRunner().invoke(command, ["test"])
    assert result.exit_code == 1
    assert "notify = [" in result.output
    assert "pip" not in result.output
