"""gemini before it accepted a session's id (0.28, not yet bundled): its command line."""

import os
import subprocess
import sys
from pathlib import Path

from segue.agents.installed import NODES

GEMINI = r"""
import json, sys

if "--session-id" in sys.argv:
    sys.exit("Unknown arguments: session-id, sessionId")

def say(**record):
    print(json.dumps({"timestamp": "2026-11-16T20:00:00.000Z", **record}), flush=True)

say(type="init", session_id="025e3f94-fd0a-49a6-bb10-24383b0062ba", model="gemini-2.5-pro")
say(type="message", role="user", content=sys.stdin.read())
say(type="message", role="assistant", content="All done.", delta=True)
say(type="result", status="success", stats={"total_tokens": 10, "input_tokens": 8})
"""


def test_an_unbundled_gemini_makes_up_its_own_session(tmp_path: Path, own_home: Path) -> None:
    modules = tmp_path / "agents/gemini/0.28.2/node_modules"
    program = modules / "@google/gemini-cli/dist/index.js"
    node = modules / NODES[0]
    for file in (program, node):
        file.parent.mkdir(parents=True)
    program.write_text(GEMINI)
    node.symlink_to(sys.executable)
    work = tmp_path / "work"
    work.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "segue", "run", "--agent", "gemini", "do it"],
        cwd=work,
        env={**os.environ, "SEGUE_AGENTS": str(tmp_path / "agents")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "All done." in done.stdout
