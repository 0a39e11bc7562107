"""Which reset is waited for, of a limit that is told of twice: by `segue watch` as a process."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.homes import OpencodeDb
from support.watching import Watching, watching

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

HOUR = 3600.0
TEXT = "You have reached your usage limit. Try again in {hours} hours."


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="segue-") as folder:
        monkeypatch.setenv("SEGUE_HOME", folder)
        yield Path(folder)


class Limited:
    """A session of opencode's, open in a terminal, that is refused again and again."""

    def __init__(self, own_home: Path, cwd: Path) -> None:
        self.db = OpencodeDb(own_home / ".local/share/opencode/opencode.db")
        now = time.time()
        self.db.session("ses_1", str(cwd), now)
        self.db.answer(1, "ses_1", now, 9_000)
        self.number, self.cwd = 1, cwd

    def open(self, folder: Path) -> "subprocess.Popen[bytes]":
        """A process by opencode's name, in the session's folder, that has its database open."""
        folder.mkdir()
        program = folder / "opencode"
        shutil.copy(os.path.realpath(shutil.which("sleep") or "/bin/sleep"), program)
        with self.db.path.open("rb") as database:
            return subprocess.Popen([str(program), "600"], cwd=self.cwd, stdin=database)

    def refuse(self, source: str, hours: float) -> float:
        """One more message is refused; when that was. Records and texts tell their time in hours
        from then."""
        self.number += 1
        at = time.time()
        asked = f"msg_{self.number:04}a"
        self.db.message(asked, "ses_1", at, role="user")
        self.db.part(f"prt_{asked}", asked, "ses_1", at, type="text", text="go on")
        headers = {"retry-after": str(round(hours * HOUR))} if source == "record" else {}
        said = (
            TEXT.format(hours=hours) if source == "text" else "You have reached your usage limit."
        )
        body = json.dumps({"error": {"type": "usage_limit_reached", "message": said}})
        data = {"message": said, "statusCode": 429, "isRetryable": False, "responseBody": body}
        error = {"name": "APIError", "data": {**data, "responseHeaders": headers}}
        self.db.message(
            f"msg_{self.number:04}b",
            "ses_1",
            at,
            role="assistant",
            modelID="test-model",
            providerID="fake",
            error=error,
        )
        return at


def has_stopped(there: Watching, times: int) -> bool:
    return len(there.notes("stop")) == times


def waits_until(there: Watching) -> float | None:
    found: list[dict[str, Any]] = there.remote.get("/v1/status")["waiting"]
    return found[0]["until"] if found else None


@pytest.mark.parametrize(
    ("first", "second", "counts"),
    [
        (("record", 4), ("text", 2), "first"),  # a record outranks a text, also a later one
        (("text", 2), ("record", 4), "second"),  # and one that was there before it
        (("text", 4), ("text", 2), "second"),  # of two alike, the earlier reset
        (("text", 2), ("text", 4), "first"),
        (("record", 2), ("record", 4), "first"),
        (("record", 2), ("none", 0), "first"),  # who says nothing says nothing new
    ],
)
def test_the_reset_that_is_waited_for_is_by_the_best_source_then_the_earliest(
    own_home: Path, home: Path, first: tuple[str, int], second: tuple[str, int], counts: str
) -> None:
    cwd = own_home / "project"
    cwd.mkdir()
    limited = Limited(own_home, cwd)
    agent = limited.open(own_home / "bin")
    config = "[policy]\nreset_jitter_min_s = 0\nreset_jitter_max_s = 0\nwait_jitter = 0\n"
    try:
        with watching(home, {"HOME": str(own_home)}, "--auto", config=config) as there:
            resets = []
            for number, (source, hours) in enumerate((first, second), 1):
                at = limited.refuse(source, hours)
                resets.append(at + hours * HOUR)
                there.until(partial(has_stopped, there, number), f"stop {number}")
                there.until(lambda: waits_until(there) is not None, "a wait")
            expected = resets[0] if counts == "first" else resets[1]
            until = waits_until(there)  # decided before anybody is told of the stop
            assert until is not None
            assert abs(until - expected) < 90, (until - resets[0], until - resets[1])
    finally:
        agent.kill()
        agent.wait()
