"""What test_printing and other tests share."""

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

OWN_STYLE = re.compile("\x1b\\[[0-9;]*m")


def env_of(home: Path) -> dict[str, str]:
    return {
        "PATH": os.environ.get("PATH", ""),
        "HOME": str(home),
        "SEGUE_HOME": str(home / "segue"),
        "TZ": "UTC",
        "LC_ALL": "C.UTF-8",
        "TERM": "xterm-256color",
        "COLUMNS": "300",
    }


def on_terminal(home: Path, *words: str, cwd: Path | None = None) -> str:
    """All that `segue …` prints on a terminal, and nothing of segue's own colours."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "segue", *words],
        stdin=slave, stdout=slave, stderr=slave, env=env_of(home), cwd=cwd or home,
        start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    data, until = b"", time.monotonic() + 120
    waiting = select.poll()
    waiting.register(master, select.POLLIN)
    while time.monotonic() < until:
        if waiting.poll(1_000):
            try:
                more = os.read(master, 65536)
            except OSError:
                break
            if not more:
                break
            data += more
        elif process.poll() is not None:
            break
    os.close(master)
    process.wait(60)
    text = data.decode("utf-8", "surrogateescape").replace("\r\n", "\n")
    return OWN_STYLE.sub("", text)
