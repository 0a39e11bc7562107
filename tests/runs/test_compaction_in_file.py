"""An agent whose own compaction only its session's file shows: segue sees it while the agent works,
and does not take a turn for done that ended on nothing but the summary."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

WORD = "quokka-48613"
TOLD = "AFTER YOUR COMPACTION"

# Of the form of Gemini CLI. The first process is killed. The next one compacts, with a summary that
# forgets, and does what MANNER says; one that knows the word is done.
AGENT = r"""
import json, os, signal, sys, time
from datetime import UTC, datetime
from pathlib import Path

MANNER = "@MANNER@"
is_resumed = "-r" in sys.argv
session = sys.argv[sys.argv.index("-r" if is_resumed else "--session-id") + 1]
chats = Path.home() / ".gemini/tmp/work/chats"
chats.mkdir(parents=True, exist_ok=True)
file = chats / f"session-2026-01-01T00-00-{session[:8]}.jsonl"
prompt = sys.stdin.read()

def now():
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")

def say(**record):
    print(json.dumps({"timestamp": now(), **record}), flush=True)

def keep(**record):
    with file.open("a") as records:
        records.write(json.dumps(record) + "\n")

def reply(words):
    say(type="message", role="assistant", content=words, delta=True)
    tokens = {"input": 900, "output": 9, "cached": 0, "thoughts": 0, "tool": 0, "total": 909}
    id = str(time.monotonic_ns())
    keep(id=id, timestamp=now(), type="gemini", content=words, tokens=tokens, model="m")

def call(number, command, output):
    name = "run_shell_command"
    say(type="tool_use", tool_name=name, tool_id=f"c{number}", parameters={"command": command})
    say(type="tool_result", tool_id=f"c{number}", status="success", output=output)

def compact(summary):
    words = f"<state_snapshot>{summary}</state_snapshot>"
    message = {"id": summary, "type": "user", "timestamp": now(), "content": [{"text": words}]}
    keep(**{"$set": {"messages": [message], "lastUpdated": now()}})

def done(words):
    reply(words)
    say(type="result", status="success", stats={"input_tokens": 9})
    sys.exit(0)

keep(sessionId=session, projectHash="p", startTime=now(), lastUpdated=now(), kind="main")
keep(id="u" + now(), timestamp=now(), type="user", content=[{"text": prompt}])
say(type="init", session_id=session, model="m")
say(type="message", role="user", content=prompt)
if "@WORD@" in prompt:
    if MANNER == "compacts-again":
        compact("still nothing")
    Path("knew").write_text(prompt)
    done("All done.")
if not is_resumed:
    reply("I begin.")
    call(1, "sh tell", "the staging name is @WORD@")
    reply("And now?")
    call(2, "pwd", "here")
    os.kill(os.getpid(), signal.SIGKILL)
compact("nothing")
reply("I look.")
if MANNER == "works":
    call(3, "ls", "nothing to see")
    time.sleep(60)
done("I stop here.")
"""


def ran(
    tmp_path: Path, own_home: Path, manner: str, *words: str, agent: str = AGENT
) -> tuple[subprocess.CompletedProcess[str], Path]:
    """A run of such an agent, and its working folder."""
    script = tmp_path / "agent"
    text = agent.replace("@MANNER@", manner).replace("@WORD@", WORD)
    script.write_text(f"#!{sys.executable}\n{text}")
    script.chmod(0o755)
    config = own_home / "segue" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'[agents.forgets]\ncommand = ["{script}"]\nlike = "gemini"\n')
    work = tmp_path / "work"
    work.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "segue", "run", "--json", "--agent", "forgets", *words, "do it"],
        cwd=work, env=os.environ, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    return done, work


def legs(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """The decisions to start a leg."""
    events = [json.loads(line) for line in done.stdout.splitlines()]
    decisions = [each for event in events for each in event.get("decisions", [])]
    return [each for each in decisions if each["decision"] == "startleg"]


@pytest.mark.parametrize("manner", ["ends", "compacts-again"])
def test_a_turn_that_ends_on_a_summary_alone_is_not_taken_for_done(
    manner: str, tmp_path: Path, own_home: Path
) -> None:
    """The same session is told once what the summary left out, also if it compacts again."""
    done, work = ran(tmp_path, own_home, manner)
    assert done.returncode == 0, done.stderr
    known = (work / "knew").read_text()
    assert (known.count(TOLD), known.count("RESUMING")) == (1, 0)
    assert "You ended your turn without this" in known
    assert [leg["prompt"] for leg in legs(done)] == ["task", "resume", "recall"]
    assert legs(done)[1]["session_id"] == legs(done)[2]["session_id"] != ""


@pytest.mark.parametrize(
    "words", [["--check", "true"], ["--set", "policy.recall_after_compaction=false"]]
)
def test_a_check_of_the_users_or_their_setting_spares_it_that(
    words: list[str], tmp_path: Path, own_home: Path
) -> None:
    done, work = ran(tmp_path, own_home, "ends", *words)
    assert done.returncode == 0, done.stderr
    assert not (work / "knew").exists()


def test_a_session_that_works_on_its_summary_is_replaced_at_once(
    tmp_path: Path, own_home: Path
) -> None:
    """Resuming it would make it twice as large, so a new session gets what is known."""
    done, work = ran(tmp_path, own_home, "works")
    assert done.returncode == 0, done.stderr
    assert [leg["prompt"] for leg in legs(done)] == ["task", "resume", "continuation"]
    assert WORD in (work / "knew").read_text()


# As Gemini CLI, again: killed after a tool's result, before its session's file has that.
CUT = r"""
import json, os, signal, sys
from pathlib import Path

prompt = sys.stdin.read()

def say(**record):
    print(json.dumps({"timestamp": "2026-01-01T00:00:00Z", **record}), flush=True)

is_resumed = "-r" in sys.argv
say(type="init", session_id=sys.argv[-1], model="m")
say(type="message", role="user", content=prompt)
if is_resumed:
    Path("knew").write_text(prompt)
    say(type="message", role="assistant", content="Done.")
    say(type="result", status="success", stats={"input_tokens": 9})
    sys.exit(0)
say(type="message", role="assistant", content="I begin.")
ran = {"command": "make release"}
say(type="tool_use", tool_name="run_shell_command", tool_id="c1", parameters=ran)
say(type="tool_result", tool_id="c1", status="success", output="released as @WORD@\n" * 2)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_doubtful_call_printed_is_told_to_the_session_that_may_lack_it(
    tmp_path: Path, own_home: Path
) -> None:
    done, work = ran(tmp_path, own_home, "", agent=CUT)
    assert done.returncode == 0, done.stderr
    known = (work / "knew").read_text()
    assert known.index("    make release") < known.index(f"    released as {WORD}")
