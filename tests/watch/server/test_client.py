"""The client of hooks and status line: quick, private, and never in anybody's way."""

import json
import os
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.waiting import LONG_S, until
from support.watch.fake_daemon import FakeDaemon, http

from segue import client
from segue.core.sessions.reading import Zone
from segue.system import units
from segue.system.files import spool, state
from segue.watch.server.remote import NoDaemon, Remote

MARKS = "0.3,0.5,0.7,0.85"  # as former versions wrote it
LINE = "██████░░░░ 55% warning\n"
PAYLOAD = {
    "session_id": "s",
    "context_window": {
        "context_window_size": 200_000,
        "current_usage": {
            "input_tokens": 10,
            "cache_creation_input_tokens": 1_000,
            "cache_read_input_tokens": 108_950,
            "output_tokens": 40,
        },
        "used_percentage": 55,
    },
}
Serve = Callable[..., "FakeDaemon"]


@pytest.fixture
def serve() -> Iterator[Serve]:
    made: list[FakeDaemon] = []

    def start(answer: bytes | None = None, *, pause_s: float = 0.0) -> FakeDaemon:
        made.append(FakeDaemon(state.socket_path(), answer, pause_s))
        return made[-1]

    yield start
    for each in made:
        each.close()


@pytest.fixture
def short_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """One whose socket is in the state folder itself."""
    with tempfile.TemporaryDirectory(prefix="segue-") as folder:
        monkeypatch.setenv("SEGUE_HOME", folder)
        state.make_watch_folder()
        assert Path(state.spool_path()).is_relative_to(folder)
        yield Path(folder)


def run(
    kind: str, told: str, given: bytes | Any, former: str = "", **env: str
) -> "subprocess.CompletedProcess[bytes]":
    data = given if isinstance(given, bytes) else json.dumps(given).encode()
    return subprocess.run(
        ["sh", "-c", units.client_command(kind, told, former)],
        input=data,
        capture_output=True,
        timeout=600,
        check=False,
        env={**os.environ, "NO_COLOR": "1", **env},
    )


def test_a_hook_prints_what_the_daemon_says(serve: Serve) -> None:
    daemon = serve(http(b'{"decision": "block"}'))
    done = run("hook", "UserPromptSubmit", {"hook_event_name": "UserPromptSubmit", "prompt": "é"})
    assert (done.returncode, done.stdout, done.stderr) == (0, b'{"decision": "block"}', b"")
    assert daemon.asked[0].startswith(b"POST /v1/hook HTTP/1.0\r\n")
    assert daemon.events() == [{"hook_event_name": "UserPromptSubmit", "prompt": "é"}]


def test_an_exit_code_of_two_is_passed_on_with_its_text_on_stderr(serve: Serve) -> None:
    serve(http(b"not now", more=b"X-Exit: 2\r\n"))
    done = run("hook", "PreToolUse", {})
    assert (done.returncode, done.stdout, done.stderr) == (2, b"", b"not now")


def test_other_exit_codes_are_not(serve: Serve) -> None:
    serve(http(b"", more=b"X-Exit: 1\r\n"))
    assert run("hook", "Stop", {}).returncode == 0


def test_a_daemon_that_accepts_and_never_answers_is_not_waited_for(serve: Serve) -> None:
    daemon = serve(None)
    done = run("hook", "UserPromptSubmit", {"prompt": "x"})  # it returns
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert daemon.asked


def test_a_daemon_that_answers_byte_by_byte_gets_no_more_time(serve: Serve) -> None:
    serve(http(b"x" * 500), pause_s=0.05)
    done = run("hook", "SessionEnd", {"reason": "clear"})
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), "not the whole answer"
    assert len(spool.take(state.spool_path())) == 1, "given up in time to keep the event"


STRANGER = """
import os, socket, sys
listener = socket.socket(socket.AF_UNIX)
os.setgid(65534)
os.setuid(65534)
listener.bind(sys.argv[1])
listener.listen(5)
print("there", flush=True)
while True:
    line, _ = listener.accept()
    line.settimeout(5)
    try:
        print("heard", len(line.recv(65536)), flush=True)
        line.sendall(b"HTTP/1.0 200 OK\\r\\nx-exit: 2\\r\\nContent-Length: 4\\r\\n\\r\\nEVIL")
    except OSError:
        pass
    line.close()
"""


@pytest.fixture
def stranger(short_home: Path) -> Iterator[Callable[[], list[str]]]:
    """Another user listens where the daemon should, although the folder is ours, as one who was
    quicker than a look at the file would. What it heard, by length, once it is gone."""
    if os.getuid() != 0:
        pytest.skip("takes two users")
    place = state.socket_path()
    folder = Path(state.make_watch_folder())
    for each in (folder, short_home):
        each.chmod(0o777)
    process = subprocess.Popen(
        [sys.executable, "-c", STRANGER, place], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    os.chown(place, 0, 0)
    for each in (folder, short_home):
        each.chmod(0o700)

    def heard() -> list[str]:
        process.kill()
        return process.communicate()[0].splitlines()

    yield heard
    process.kill()
    process.wait()
    process.stdout.close()


def test_nothing_is_told_to_a_stranger_nor_believed(stranger: Callable[[], list[str]]) -> None:
    hook = run("hook", "Stop", b'{"secret": 1}')
    assert (hook.returncode, hook.stdout, hook.stderr) == (0, b"", b"")
    line = run("statusline", "0.3,0.5,0.7,0.85", b'{"secret": 1}')
    assert b"EVIL" not in line.stdout
    assert b"context unknown" in line.stdout
    remote = Remote(state.socket_path())
    with pytest.raises(NoDaemon, match="another user"):
        remote.sessions()
    assert set(stranger()) <= {"heard 0"}


@pytest.mark.parametrize("how", ["writable", "stranger's", "link"])
def test_a_folder_in_which_others_may_write_is_not_asked(
    how: str, serve: Serve, short_home: Path
) -> None:
    serve(http(b"EVIL"))
    folder = Path(state.watch_folder())
    if how == "writable":
        folder.chmod(0o777)
    elif os.getuid() != 0:
        pytest.skip("takes two users")
    elif how == "stranger's":
        os.chown(folder, 65534, 65534)
    else:
        folder.rename(folder.with_name("real"))
        folder.symlink_to("real")
        os.lchown(folder, 65534, 65534)
    assert run("hook", "Stop", b"{}").stdout == b""
    assert run("hook", "SessionEnd", b"{}").stdout == b""
    assert not os.path.exists(state.spool_path())
    with pytest.raises(NoDaemon):
        Remote(state.socket_path()).sessions()


def test_an_input_that_never_ends_is_not_waited_for() -> None:
    argv = units.client_argv("hook", "Stop")
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.wait(timeout=LONG_S) == 0
        assert process.stdout is not None
        assert process.stdout.read() == b""


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\r\n\r\n",
        b"nonsense",
        http(b"oops", status=b"500 Oh"),
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nhalf",
        b"HTTP/1.1\r\n\r\n",
    ],
)
def test_an_invalid_answer_counts_as_silence(serve: Serve, answer: bytes) -> None:
    serve(answer)
    done = run("hook", "Stop", {})
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_without_a_daemon_what_nothing_else_tells_is_kept(own_home: Path) -> None:
    state.make_watch_folder()
    pretty = json.dumps({"hook_event_name": "SessionEnd", "reason": "clear"}, indent=2).encode()
    began = time.time()
    for event in ("SessionEnd", "UserPromptSubmit", "StopFailure"):
        done = run("hook", event, pretty)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    place = Path(state.spool_path())
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    found = spool.take(str(place))
    assert [each.event["reason"] for each in found] == ["clear", "clear"]
    assert all(began - 1 <= each.at <= time.time() + 1 for each in found)
    assert spool.take(str(place)) == found, "it is there until it is dropped"
    run("hook", "SessionEnd", pretty)
    spool.drop(str(place))
    assert len(spool.take(str(place))) == 1


def test_the_spool_does_not_grow_for_ever_and_broken_lines_are_passed_over(
    short_home: Path,
) -> None:
    place = Path(state.spool_path())
    place.write_bytes(b"x" * client.SPOOL_BYTES)
    run("hook", "SessionEnd", {"a": 1})
    assert place.stat().st_size == client.SPOOL_BYTES
    assert spool.take(str(place)) == []


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_what_is_kept_goes_nowhere_else(kind: str, short_home: Path) -> None:
    other = short_home / "other"
    other.write_bytes(b"theirs")
    place = Path(state.spool_path())
    if kind == "link":
        place.symlink_to(other)
    else:
        os.mkfifo(place)
    assert run("hook", "SessionEnd", {"a": 1}).returncode == 0  # though nobody reads there
    assert other.read_bytes() == b"theirs"


def test_a_scanner_that_asks_for_more_does_not_hide_the_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import _json

    real = _json.make_scanner
    asked: list[str] = []

    def newer(context: Any) -> Any:
        asked.append("array_hook")
        assert context.array_hook is None, "as 3.15 has it"
        return real(context)

    def newest(context: Any) -> Any:
        return context.something_else

    wanted = client.local_line(json.dumps(PAYLOAD).encode(), False)
    for scanner in (newer, newest):
        monkeypatch.setattr(_json, "make_scanner", scanner)
        assert client.local_line(json.dumps(PAYLOAD).encode(), False) == wanted
    assert asked


def test_a_session_of_a_run_is_left_to_the_run(serve: Serve) -> None:
    daemon = serve(http(b"{}"))
    done = run("hook", "Stop", {}, SEGUE_RUN="run-1")
    assert (done.returncode, done.stdout) == (0, b"")
    assert not daemon.asked


def test_where_segue_is_gone_a_hook_is_silent_and_the_former_line_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interpreter alone would end with 2, by which claude refuses every prompt."""
    former = tmp_path / "former.sh"
    former.write_text("echo theirs\n")
    monkeypatch.setattr(client, "__file__", str(tmp_path / "gone/segue/client.py"))
    assert run("hook", "Stop", {}).returncode == 0
    assert run("statusline", MARKS, PAYLOAD, str(former)).stdout == b"theirs\n"
    monkeypatch.undo()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "gone/python"))
    done = run("hook", "Stop", {})
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_the_status_line_of_the_daemon_is_printed_and_it_knows_the_terminal(serve: Serve) -> None:
    daemon = serve(http("█ 55%".encode()))
    # on a busy machine the daemon of the test may be late, and then is asked again
    until(lambda: run("statusline", MARKS, PAYLOAD, COLUMNS="83").stdout.decode() == "█ 55%\n")
    asked = daemon.events()[-1]
    assert asked["segue"] == {"columns": 83, "color": False}
    assert asked["context_window"] == PAYLOAD["context_window"]


@pytest.mark.parametrize("answer", [None, http(b"", status=b"503 no"), b"gone"])
def test_a_status_line_is_there_without_the_daemons_help(
    serve: Serve, answer: bytes | None
) -> None:
    if answer != b"gone":
        serve(answer)
    until(lambda: run("statusline", MARKS, PAYLOAD).stdout.decode() == LINE)


def test_a_line_made_without_the_daemon_is_kept_until_claude_says_something_else(
    short_home: Path,
) -> None:
    config = short_home / "config.toml"
    other = {**PAYLOAD, "session_id": "t"}

    def zone(payload: dict[str, Any] = PAYLOAD, **env: str) -> str:
        for each in short_home.rglob("*.line?"):
            os.utime(each)  # made this moment, however busy the machine is
        return run("statusline", MARKS, payload, **env).stdout.decode().split("%")[-1].strip()

    def is_kept() -> bool:
        config.write_text("[policy]\nmonitor_mark = 0.3\nwarning_mark = 0.5\n")
        for each in short_home.rglob("*.line?"):
            each.unlink()
        until(lambda: zone() == "warning")
        config.write_text("[policy]\nmonitor_mark = 0.3\nwarning_mark = 0.6\n")
        return zone({**PAYLOAD, "cost": {"total_cost_usd": 2}}) == "warning"

    until(is_kept)
    (place,) = short_home.rglob("*.line?")
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert zone(COLUMNS="60") == zone(other) == "monitor"
    more = json.loads(json.dumps(PAYLOAD))
    more["context_window"]["current_usage"]["output_tokens"] += 1
    assert zone(more) == "monitor"


def test_a_kept_line_is_for_its_key_and_its_time(short_home: Path) -> None:
    path = state.socket_path() + ".line0"
    client.keep_line(path, b"key", b"one\n")
    made = os.stat(path).st_mtime
    assert client.kept_line(path, b"key", made + client.KEPT_S - 1) == b"one\n"
    assert client.kept_line(path, b"key", made + client.KEPT_S) == b""
    assert client.kept_line(path, b"key", made - 1) == b"", "the clock was set back"
    assert client.kept_line(path, b"ke", made) == b""
    Path(path + ".new").write_bytes(b"")  # of a process that was killed
    client.keep_line(path, b"key", b"two\n")
    client.keep_line(path, b"key", b"three\n")
    assert client.kept_line(path, b"key", os.stat(path).st_mtime) == b"three\n"
    assert client.kept_line(str(short_home / "none"), b"key", made) == b""


def test_segue_knows_the_names_of_kept_lines() -> None:
    endings = {f".line{n}{more}" for n in range(client.KEPT_LINES) for more in ("", ".new")}
    assert endings == set(state.LINE_ENDINGS)


def test_the_former_status_line_comes_first(tmp_path: Path, serve: Serve) -> None:
    serve(http(b"ours"))
    former = tmp_path / "it's former.sh"
    former.write_text("printf 'theirs: '; cat | tr -d '\\n' | wc -c\n")
    done = run("statusline", MARKS, PAYLOAD, str(former))
    assert done.stdout.decode() == f"theirs: {len(json.dumps(PAYLOAD))}\nours\n"


@pytest.mark.parametrize("words", ["exit 3", "cat >/dev/null", "sleep 60", "no-such-command"])
def test_a_former_status_line_that_fails_or_hangs_does_not_hide_ours(
    tmp_path: Path, words: str
) -> None:
    former = tmp_path / "former.sh"
    former.write_text(words)
    until(lambda: run("statusline", MARKS, PAYLOAD, str(former)).stdout.decode() == LINE)


ANY_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["context_window", "current_usage", "used_percentage", "context_window_size"]
            )
            | st.text(),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
FIELDS = st.none() | st.floats() | st.integers() | st.booleans() | st.text(max_size=3)
WINDOWS = st.fixed_dictionaries(
    {},
    optional={
        "context_window_size": FIELDS,
        "used_percentage": FIELDS,
        "current_usage": FIELDS
        | st.dictionaries(st.sampled_from(list(client._USAGE)), FIELDS, max_size=4),
    },
)


@given(ANY_JSON | st.fixed_dictionaries({"context_window": WINDOWS}))
def test_any_json_makes_one_line(value: Any) -> None:
    said = client.local_line(json.dumps(value).encode(), False).decode()
    assert said.startswith(("█", "░"))
    assert "\n" not in said
    assert said.endswith(("%", "unknown"))


@given(st.binary(max_size=200))
def test_any_bytes_make_one_line(data: bytes) -> None:
    assert client.local_line(data, True).count(b"\n") == 0


@settings(max_examples=12)
@given(
    st.sampled_from(["hook", "statusline"]),
    st.one_of(ANY_JSON.map(lambda v: json.dumps(v).encode()), st.binary(max_size=100)),
)
def test_the_process_never_fails_on_what_it_is_given(kind: str, data: bytes) -> None:
    argv = [sys.executable, "-I", "-S", client.__file__, kind, "/nowhere/at/all", MARKS]
    done = subprocess.run(argv, input=data, capture_output=True, timeout=30, check=False)
    assert done.returncode == 0
    assert done.stderr == b""


@pytest.mark.parametrize("words", [(), ("hook",), ("nonsense", "x", "y"), ("statusline", "\n")])
def test_words_that_nobody_wrote_do_not_make_it_fail(words: tuple[str, ...]) -> None:
    argv = [sys.executable, "-I", "-S", client.__file__, *words]
    done = subprocess.run(argv, input=b"{}", capture_output=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_every_zone_has_a_colour() -> None:
    assert [zone.value for zone in Zone] == list(client.COLOURS)
    assert client.LIMIT_S["hook"] > client.HOOK_S
    assert state.spool_path() == state.socket_path() + ".hooks"


def test_it_loads_no_module_that_must_be_looked_for() -> None:
    names = ["posix", "sys", "time", "_socket", "_json", "_signal", "json"]
    found = [
        line.split()[1]
        for line in Path(client.__file__).read_text().splitlines()
        if line.strip().startswith(("import ", "from "))
    ]
    assert set(found) <= set(names)


def test_a_long_state_folder_has_its_socket_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SEGUE_HOME", str(tmp_path / ("x" * 120)))
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1000")
    assert state.socket_path().startswith(f"/run/user/1000/segue-{os.getuid()}/")
    assert len(state.socket_path()) < 104
