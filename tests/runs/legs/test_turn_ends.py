"""The end of a turn is known by what it is, whatever its record is called: an agent that stays open
and silent after it has not stalled."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PI = r"""
import json, sys

USAGE = {"input": 9, "output": 1, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 10}

def say(**record):
    print(json.dumps(record), flush=True)

for line in sys.stdin:
    order = json.loads(line)
    if order["type"] == "get_state":
        state = {"sessionId": "s1", "model": {"id": "m", "contextWindow": 200000}}
        say(type="response", command="get_state", success=True, id=order.get("id"), data=state)
    elif order["type"] == "prompt":
        say(type="response", command="prompt", success=True, id=order.get("id"))
        words = [{"type": "text", "text": "All done."}]
        said = {"role": "assistant", "content": words, "usage": USAGE, "stopReason": "stop"}
        say(type="turn_start")
        say(type="message_end", message=said)
        say(type="turn_end", message=said, toolResults=[])
        say(type="went_quiet")  # no version of pi says this
"""
CLAUDE = r"""
import json, sys

def say(**record):
    print(json.dumps({"session_id": "s-1", **record}), flush=True)

say(type="system", subtype="init", cwd=".", model="claude-x", tools=[])
for line in sys.stdin:
    usage = {"input_tokens": 9, "output_tokens": 1}
    words = [{"type": "text", "text": "All done."}]
    message = {"id": "m", "role": "assistant", "model": "claude-x", "content": words}
    say(type="assistant", message={**message, "usage": usage})
    say(type="turn_summary", subtype="success", is_error=False, result="All done.", num_turns=1)
"""


@pytest.mark.parametrize(("agent", "program"), [("pi", PI), ("claude", CLAUDE)])
def test_a_turn_that_is_over_has_not_stalled_whatever_its_end_is_called(
    agent: str, program: str, tmp_path: Path, own_home: Path
) -> None:
    """With `stall_s` at five minutes, this test would end before the run."""
    script = tmp_path / agent
    script.write_text(f"#!{sys.executable}\n{program}")
    script.chmod(0o755)
    config = own_home / "segue" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(
        f'[policy]\nstall_s = 300\n[agents.{agent}-of-then]\ncommand = ["{script}"]\n'
        f'like = "{agent}"\n'
    )
    work = tmp_path / "work"
    work.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "segue", "run", "--json", "--agent", f"{agent}-of-then", "do it"],
        cwd=work, env=os.environ, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (ended,) = (
        entry["data"]["stop"]
        for entry in map(json.loads, done.stdout.splitlines())
        if entry["kind"] == "legended"
    )
    assert ended["reason"] == "completed"
