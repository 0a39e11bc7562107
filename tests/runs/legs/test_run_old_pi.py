"""pi 0.73, as recorded: its failed turns end when they end, and not after a stall."""

import os
import subprocess
import sys
from pathlib import Path

PI = r"""
import json, sys

ERROR = '529 {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'
USAGE = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0}

def say(**record):
    print(json.dumps(record), flush=True)

for line in sys.stdin:
    order = json.loads(line)
    if order["type"] == "get_state":
        state = {"sessionId": "s1", "model": {"id": "m", "contextWindow": 200000}}
        say(type="response", command="get_state", success=True, id=order.get("id"), data=state)
    elif order["type"] == "prompt":
        say(type="response", command="prompt", success=True, id=order.get("id"))
        said = {"role": "assistant", "content": [], "usage": USAGE, "stopReason": "error"}
        say(type="agent_start")
        say(type="turn_start")
        say(type="message_end", message={**said, "errorMessage": ERROR})
        say(type="turn_end", message=said, toolResults=[])
        say(type="agent_end", messages=[said])
        say(type="auto_retry_end", success=False, attempt=1, finalError=ERROR)
"""


def test_an_overload_of_the_old_pi_ends_its_turn_and_not_a_stall(
    tmp_path: Path, own_home: Path
) -> None:
    """It stays open and silent afterwards: with `stall_s` at five minutes, this test would end."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    pi = bin_folder / "pi"
    pi.write_text(f"#!{sys.executable}\n{PI}")
    pi.chmod(0o755)
    config = own_home / "segue" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("[policy]\noverload_tries = 1\nunknown_reset_wait_s = 1\nstall_s = 300\n")
    work = tmp_path / "work"
    work.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "segue", "run", "--agent", "pi", "do it"],
        cwd=work,
        env={**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 75, done.stderr
    assert "no output" not in done.stderr
    assert "overloaded" in done.stderr.lower()
