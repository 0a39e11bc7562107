"""Whatever is given: a verdict or one clear line, the right exit code, and never a traceback.

The command line as users call it, in a process and a home of its own. Generated and damaged endings
are in test_any_input.py.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.hostile.bad_input import LIMIT, assert_whole, no_constant

from segue import api
from segue.cli import cli
from segue.core.stops.reasons import StopReason

Run = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture(autouse=True, scope="module")
def _private_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """In-process tests must not read the user's own wordings either."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.setenv("SEGUE_HOME", str(home / "segue"))
        yield


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """`segue …` in a process of its own, with a home of its own."""
    env = {
        "PATH": os.environ.get("PATH", ""),
        "HOME": str(tmp_path / "home"),
        "SEGUE_HOME": str(tmp_path / "home" / "segue"),
        "TZ": "UTC",
        "LC_ALL": "C.UTF-8",
    }

    def call(*words: str | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, "-m", "segue", *map(str, words)],
            input=stdin, env=env, cwd=tmp_path, capture_output=True, timeout=60, check=False,
        )  # fmt: skip

    return call


def complaints(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    """The lines on stderr, without click's reminder of the usage; a traceback fails the test."""
    text = done.stderr.decode()
    assert "Traceback" not in text, text[-600:]
    return [
        line
        for line in text.splitlines()
        if line.strip() and not line.startswith(("Usage:", "Try '"))
    ]


def verdicts(done: subprocess.CompletedProcess[bytes]) -> list[dict[str, Any]]:
    """Stdout as JSON lines, each a whole verdict."""
    found = [
        json.loads(line, parse_constant=no_constant) for line in done.stdout.decode().splitlines()
    ]
    for verdict in found:
        assert_whole(verdict)
    return found


# --- files that can be read ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "reason", "note"),
    [
        (b"", "unknown", "is empty"),
        (b" \n\t\n", "unknown", "is empty"),
        (bytes(range(256)) * 64, None, "binary"),
        (b"\x7fELF\x02\x01\x01" + b"\0" * 4096, None, "binary"),
        (f"{LIMIT} …".encode()[:-1], "rate_limit", "not UTF-8"),
        (b"\xf0\x9f\x98 " + LIMIT.encode(), None, "not UTF-8"),
        (LIMIT.encode("utf-16"), "rate_limit", ""),
        (b"\xfe\xff" + LIMIT.encode("utf-16-be"), "rate_limit", ""),
        (LIMIT.encode("utf-16")[:-1], "rate_limit", None),
        (b"\xef\xbb\xbf" + LIMIT.encode(), "rate_limit", ""),
        (LIMIT.replace(" ", "\r\n ").encode(), None, ""),
        (b'{"type":"result","subtype":"error_max_turns","is_er', "max_turns", ""),
        (b'{"type":"assistant","message":{"content":[{"type":"te', None, ""),
        (b'{"type"', None, ""),
        (b"[" * 100_000, None, ""),
        (b'{"a":' * 5_000, None, ""),
        (b'[{"type":"result","x":' * 2_000 + b"\n" + LIMIT.encode(), None, ""),
        (b'{"type":"result","is_error":true,"result":"' + LIMIT.encode() + b' \\ud800"}', None, ""),
        (b"NaN\nInfinity\n" + b'{"type":"result","num_turns":NaN}', None, ""),
        (b"\0\n" * 2000, None, "binary"),
    ],
    ids=lambda value: repr(value[:24]) if isinstance(value, bytes) else None,
)  # fmt: skip
@pytest.mark.parametrize("name", ["tail.txt", "session.jsonl"])
def test_odd_file_gets_a_verdict(
    run: Run, tmp_path: Path, name: str, data: bytes, reason: str | None, note: str | None
) -> None:
    (tmp_path / name).write_bytes(data)
    done = run("classify", "--json", name)
    said = complaints(done)
    assert done.returncode == 0, said
    (verdict,) = verdicts(done)
    if reason is not None and name == "tail.txt":
        assert verdict["reason"] == reason
    said = [line for line in said if "the last line is cut off" not in line]
    if note is not None:
        assert len(said) == bool(note)
        assert all(
            line.startswith((f"segue: {name}: ", f"segue: {name} ")) and note in line
            for line in said
        )


def test_half_a_json_line_is_reported_in_one_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "half.jsonl").write_bytes(b'{"type":"assistant","message":{"content":"ab')
    assert complaints(run("classify", "--json", "half.jsonl")) == [
        "segue: half.jsonl: the last line is cut off; the rest of it is missing"
    ]


def test_the_end_of_a_long_pipe_is_what_counts(run: Run) -> None:
    text = b"an ordinary line\n" * 600_000 + b"API Error: Rate limit reached\n"
    done = run("classify", "--json", "-", stdin=text)
    assert verdicts(done)[0]["reason"] == "rate_limit"
    assert complaints(done) == ["segue: standard input: only its last 8 MB were read"]


def test_line_of_50_mb_gets_a_verdict(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "long.txt"
    with file.open("wb") as out:
        for _ in range(50):
            out.write((b"you have reached the " * 50_000)[: 1 << 20])
    done = run("classify", "--json", file)
    said = complaints(done)
    assert done.returncode == 0
    assert len(verdicts(done)) == 1
    assert 1 <= len(said) <= 2  # only its end was read; the line began before that
    assert all(line.startswith(f"segue: {file}: ") for line in said)


def test_sparse_file_of_50_mb_gets_a_verdict(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "sparse.txt"
    with file.open("wb") as out:
        out.seek(50 << 20)
        out.write(b"\n" + LIMIT.encode() + b"\n")
    done = run("classify", "--json", file)
    complaints(done)
    assert done.returncode == 0
    assert verdicts(done)[0]["reason"] == "rate_limit"


def test_end_of_a_long_file_is_what_counts(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "long.txt"
    lines = 1_000_000
    file.write_bytes(b"reading src\n" * lines + LIMIT.encode() + b"\n")
    done = run("classify", "--json", file)
    assert complaints(done) == [f"segue: {file}: only its last 8 MB were read"]
    (verdict,) = verdicts(done)
    assert verdict["reason"] == "rate_limit"
    assert verdict["evidence"][0]["where"] == f"long.txt:{lines + 1}"


# --- what cannot be read ------------------------------------------------------------------------


def _missing(place: Path) -> Path:
    return place / "nowhere.txt"


def _folder(place: Path) -> Path:
    return place


def _below_a_file(place: Path) -> Path:
    (place / "file").write_text("x")
    return place / "file" / "below"


def _pipe(place: Path) -> Path:
    os.mkfifo(place / "pipe")
    return place / "pipe"


def _loop(place: Path) -> Path:
    (place / "loop").symlink_to("loop")
    return place / "loop"


def _dangling(place: Path) -> Path:
    (place / "link").symlink_to("gone")
    return place / "link"


def _long_name(place: Path) -> Path:
    return place / ("n" * 300)


def _bytes_name(place: Path) -> Path:
    return place / os.fsdecode(b"caf\xe9.txt")


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (_missing, "no such file"),
        (_folder, "is a folder"),
        (_below_a_file, "cannot be read"),
        (_pipe, "is a pipe"),
        (_loop, "cannot be read"),
        (_dangling, "no such file"),
        (_long_name, "cannot be read"),
        (_bytes_name, "no such file"),
    ],
)
@pytest.mark.parametrize("option", [None, "--stdout", "--transcript"])
def test_unreadable_file_is_refused_in_one_line(
    run: Run, tmp_path: Path, make: Callable[[Path], Path], fault: str, option: str | None
) -> None:
    path = make(tmp_path)
    done = run("classify", "--json", *([option] if option else []), path)
    said = complaints(done)
    assert (done.returncode, done.stdout) == (2, b"")
    assert len(said) == 1
    assert said[0].startswith("segue: ")
    assert fault in said[0]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything; see the next test")
def test_file_without_permission_is_refused(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "secret.txt"
    file.write_text(LIMIT)
    file.chmod(0)
    done = run("classify", "--json", file)
    assert (done.returncode, done.stdout) == (2, b"")
    assert complaints(done) == [f"segue: {file}: cannot be read: Permission denied"]


def test_file_without_permission_is_refused_in_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "secret.txt"
    file.write_text(LIMIT)
    really = os.open

    def refuse(path: Any, *rest: Any, **more: Any) -> int:
        if str(path) == str(file):
            raise PermissionError(13, "Permission denied", str(path))
        return really(path, *rest, **more)

    monkeypatch.setattr(os, "open", refuse)
    done = CliRunner().invoke(cli, ["classify", "--json", str(file)])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == f"segue: {file}: cannot be read: Permission denied\n"
    stop = api.classify(file)
    assert (stop.reason, stop.confidence) == (StopReason.UNKNOWN, 0.0)


def test_file_that_fails_while_it_is_read_is_refused(run: Run) -> None:
    """A process's memory opens, and fails at the first read."""
    if not Path("/proc/self/mem").exists():
        pytest.skip("no /proc here")
    done = run("classify", "--json", "/proc/self/mem")
    assert (done.returncode, done.stdout) == (2, b"")
    assert len(complaints(done)) == 1


def test_empty_stdin_gets_a_verdict(run: Run) -> None:
    done = run("classify", "--json", "-")
    assert done.returncode == 0
    assert verdicts(done)[0]["reason"] == "unknown"
    (said,) = complaints(done)
    assert said.startswith("segue: standard input is empty")


def test_closed_stdin_is_refused_in_one_line(run: Run, tmp_path: Path) -> None:
    for words in ("classify --json -", "classify --batch", "wordings test"):
        done = subprocess.run(
            ["sh", "-c", f'exec "$0" -m segue {words} <&-', sys.executable],
            env={"HOME": str(tmp_path), "SEGUE_HOME": str(tmp_path), "PATH": os.environ["PATH"]},
            capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        assert len(complaints(done)) <= 1
        assert done.returncode in (0, 2)
        verdicts(done)


# --- words that make no sense -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["classify", "--exit-code", "abc"], "abc"),
        (["classify", "--exit-code", "1.5"], "1.5"),
        (["classify", "--exit-code", "9" * 5000], "--exit-code"),
        (["classify", "--bogus"], "--bogus"),
        (["explain", "--bogus"], "--bogus"),
        (["wordings", "list", "--bogus"], "--bogus"),
        (["bogus"], "bogus"),
        (["classify", "--ended-by", "me"], "me"),
        (["classify", "--channel", "fax", "-"], "fax"),
        (["classify", "--tz", "Mars/Olympus", "-"], "Mars/Olympus"),
        (["classify", "--tz", "../../etc/passwd", "-"], "../../etc/passwd"),
        (["classify", "--now", "yesterday", "-"], "yesterday"),
        (["classify", "--now", "nan", "-"], "nan"),
        (["classify", "--now", "1e300", "-"], "1e+300"),
        (["classify", "--example", "nobody"], "nobody"),
        (["classify", "--example", "../wordings"], "../wordings"),
        (["explain", "--example", "nobody"], "nobody"),
        (["simulate", "--sessions", "many"], "must be a whole number from 1 to 1,000,000"),
        (["simulate", "--sessions", "0"], "must be a whole number from 1 to 1,000,000, not 0."),
        (["simulate", "--days", "x"], "--days must be a number from 0.1 to 3,650, not x."),
        (["notes", "-n", "0"], "-n must be a whole number of at least 1, not 0."),
        (["logs", "--leg", "0"], "--leg must be a whole number of at least 1, not 0."),
        (["queue", "cancel"], "TASK is missing. See: segue queue cancel --help"),
        (["wordings", "suggest", "f"], "--reason: choose rate_limit, completed"),
        (["status", "--jsn"], "unknown option --jsn: did you mean --json?"),
        (["status", "--json=1"], "--json takes no value."),
        (["run", "x", "--check"], "--check needs a value."),
        (["statusline", "x"], "unexpected argument: x."),
        (["forget", "--all", "--older-than", "3d"], "--all and --older-than cannot be combined"),
        (["wordings", "review", "--since", "ages"], "--since: 'ages' is not an age"),
        (["run", "x", "--set", "zzz=1"], "unknown key 'zzz' in [policy]: segue config show lists"),
        (["classify"], "nothing to classify"),
        (["explain"], "nothing to classify"),
    ],
    ids=lambda value: " ".join(value)[:50] if isinstance(value, list) else "",
)  # fmt: skip
def test_bad_word_is_named_in_one_line(run: Run, words: list[str], named: str) -> None:
    done = run(*words)
    said = complaints(done)
    assert (done.returncode, done.stdout) == (2, b"")
    assert len(said) == 1
    assert named in said[0]


@pytest.mark.parametrize(
    "code", ["0", "-1", "-9", "-31", "-64", "128", "159", "255", "-99999", "9" * 30]
)
def test_any_whole_exit_code_gets_a_verdict(run: Run, code: str) -> None:
    done = run("classify", "--json", "--exit-code", code)
    assert complaints(done) == []
    assert done.returncode == 0
    assert len(verdicts(done)) == 1


@pytest.mark.parametrize(
    "now", ["-90000000000", "90000000000", "0001-01-01T00:00", "9999-12-31T23:59"]
)
@pytest.mark.parametrize(
    "when", ["3pm", "in 3 hours", "Oct 31, 9am", "at 23:59", "tomorrow at 9am"]
)
def test_any_time_is_refused_or_gets_a_verdict(run: Run, now: str, when: str) -> None:
    text = f"API Error: usage limit reached, resets {when}"
    done = run("classify", "--json", "--now", now, "--tz", "Asia/Tokyo", "-", stdin=text.encode())
    said = complaints(done)
    assert (done.returncode, len(said), len(verdicts(done))) in ((0, 0, 1), (2, 1, 0))


@pytest.mark.parametrize(
    "words", [["classify", "--json", "-"], ["wordings", "test", "--json", "-"]]
)
def test_bytes_that_are_not_text_are_heard_all_the_same(run: Run, words: list[str]) -> None:
    done = run(*words, stdin=b"\xff\xfa " + LIMIT.encode() + b"\n" + LIMIT.encode())
    assert len(complaints(done)) <= 1
    assert done.returncode == 0
    assert verdicts(done)[0]["reason"] == "rate_limit"


def test_message_that_is_not_text_on_the_command_line_gets_a_verdict(run: Run) -> None:
    done = run("wordings", "test", "--json", os.fsdecode(b"API Error: caf\xe9: Rate limit reached"))
    assert complaints(done) == []
    assert done.returncode == 0
    assert verdicts(done)[0]["reason"] == "rate_limit"


# --- batches ------------------------------------------------------------------------------------

GOOD = json.dumps({"id": "good", "text": LIMIT}).encode()
BAD_LINES = [
    b"not JSON",
    b"{",
    b'{"text": "half a li',
    b"[1, 2]",
    b"null",
    b"7",
    b'"text"',
    b"\xff\xfe\x00",
    b"[" * 100_000,
    b'{"text":' * 5_000,
    b'{"text": 5}',
    b'{"text": null}',
    b'{"text": ["a"]}',
    b'{"text": "a", "exit_code": "1"}',
    b'{"text": "a", "exit_code": true}',
    b'{"text": "a", "exit_code": 1.5}',
    b'{"text": "a", "exit_code": NaN}',
    b'{"text": "a", "agent": 5}',
    b'{"text": "a", "agent": ["claude"]}',
    b'{"text": "a", "channel": "fax"}',
    b'{"text": "a", "channel": ["log"]}',
    b'{"text": "a", "ended_by": "me"}',
    b'{"text": "a", "ended_by": {"who": "me"}}',
    b'{"text": "a", "tz": "Mars/Olympus"}',
    b'{"text": "a", "tz": "../../etc/passwd"}',
    b'{"text": "a", "tz": 5}',
    b'{"text": "a", "tz": ["UTC"]}',
    b'{"text": "a", "tz": "\\u0000"}',
    b'{"text": "a", "tz": "\\ud800"}',
    b'{"text": "a", "now": "yesterday"}',
    b'{"text": "a", "now": NaN}',
    b'{"text": "a", "now": Infinity}',
    b'{"text": "a", "now": 1e300}',
    b'{"text": "a", "now": true}',
    b'{"text": "a", "now": [1]}',
    b'{"text": "a", "now": "2026-99-99T00:00:00Z"}',
]
ODD_LINES = [
    b'{"id": "odd", "text": "API Error: rate limit reached \\ud800"}',
    b'{"id": "odd", "text": "\\udfff\\ud800"}',
    b'{"id": "\\ud800", "text": "a"}',
    b'{"id": NaN, "text": "a"}',
    b'{"id": {"deep": [1, null]}, "text": "a"}',
    b'{"id": 99999999999999999999999999, "text": "a"}',
    b'{"id": 1, "id": 2}',
    b"{}",
    b'{"text": "a\x00b"}',
    b'{"text": "caf\xe9"}',
    b'{"text": "a", "agent": "\\ud800"}',
    b'{"text": "a", "agent": "nobody\'s"}',
    b'{"text": "a", "exit_code": 99999999999999999999999999}',
    b'{"text": "a", "exit_code": -99999999999999999999999999}',
    b'{"text": "a", "exit_code": ' + b"9" * 5000 + b"}",
    b'{"text": "API Error: usage limit reached; resets 3pm", "now": -90000000000}',
    b'{"text": "API Error: usage limit reached; resets 3pm", "now": "9999-12-31T23:59:59"}',
    b'{"text": "API Error: usage limit reached; resets 3pm", "now": "0001-01-01T00:00:00"}',
    b'{"text": "a", "unknown": 1}',
]  # fmt: skip


@pytest.mark.parametrize("line", BAD_LINES, ids=lambda line: repr(line[:48]))
def test_bad_line_of_a_batch_is_reported_and_the_rest_is_judged(run: Run, line: bytes) -> None:
    done = run("classify", "--batch", stdin=b"\n".join([GOOD, line, b"", GOOD]))
    said = complaints(done)
    assert done.returncode == 1
    assert len(said) == 1
    assert said[0].startswith("segue: line 2: ")
    first, bad, last = verdicts(done)
    assert first == last
    assert (first["id"], first["reason"]) == ("good", "rate_limit")
    assert (bad["reason"], bad["confidence"]) == ("unknown", 0.0)


@pytest.mark.parametrize("line", ODD_LINES, ids=lambda line: repr(line[:72]))
def test_odd_line_of_a_batch_is_judged_or_told(run: Run, line: bytes) -> None:
    done = run("classify", "--batch", stdin=b"\n".join([GOOD, line, GOOD]))
    said = complaints(done)
    assert (done.returncode, len(said)) in ((0, 0), (1, 1))
    first, _, last = verdicts(done)
    assert first == last
    assert first["reason"] == "rate_limit"


def test_batch_of_nothing_is_nothing(run: Run) -> None:
    for stdin in (b"", b"\n \n\n"):
        done = run("classify", "--batch", stdin=stdin)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_batch_keeps_the_order_and_the_ids(run: Run) -> None:
    lines = [json.dumps({"id": n, "text": LIMIT if n % 2 else ""}) for n in range(50)]
    done = run("classify", "--batch", stdin="\n".join(lines).encode())
    assert done.returncode == 0
    assert [v["id"] for v in verdicts(done)] == list(range(50))
