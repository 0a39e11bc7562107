"""After an agent's own compaction, it is told once what its summary left out."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from string import ascii_lowercase
from typing import Any

import pytest
from support.running import QUICK, Ended, Staged, stage

HERE = Path(__file__).parents[2] / "support/runs"
WORD = "quokka-48613"
OWN = {**QUICK, "stall_s": 40.0, "soft_mark": 2.0, "hard_mark": 2.0}
"""No handoff of segue's: the agent compacts by itself."""
TOLD = "AFTER YOUR COMPACTION"
# A tool that runs until segue has told, so that the turn is not over before.
WAITS = (
    "for i in $(seq 150); do cat $SEGUE_HOME/runs/*/leg-*/control.jsonl 2>/dev/null"
    " | grep -q recall-1 && break; sleep 0.1; done; sleep 0.3; echo waited"
)


FULL = '[[rules]]\nafter_requests = 4\nfault = "too_long"\n'


def scenario(folder: Path, commands: Sequence[str], *rules: str) -> Path:
    """These commands, one a turn."""
    turns = "".join(f"[[turns]]\ncommand = {json.dumps(command)}\n" for command in commands)
    file = folder / "lossy.toml"
    head = 'about = "The agent compacts, and its summary forgets."\nsummary = "forgets"\n'
    file.write_text(f"{head}[job]\nsteps = 3\n{''.join(rules or (FULL,))}{turns}")
    return file


BEFORE = (
    "sh tell",
    "echo one thing",
    "echo another thing",
    "echo a third thing",
)


@contextmanager
def staged(
    played: Path,
    cast: str = "rehearsal",
    policy: Mapping[str, object] = OWN,
    *,
    waits: bool = False,
) -> Iterator[Staged]:
    """With a tool that tells the word, and nothing else that knows it. `waits`: the agent runs
    hooks, so that it waits for what its compaction left out."""
    with stage(played, cast, within=played.parent, policy=policy) as s:
        s.env["REHEARSAL_HOOKS"] = str(int(waits))
        (s.project / "tell").write_text(f"echo 'the staging name is {WORD}'; rm tell\n")
        s.server.server.bodies = True
        yield s


def bodies(s: Staged) -> list[dict[str, Any]]:
    """What the model was sent, request by request."""
    return [dict(request.body) for request in s.server.requests if isinstance(request.body, dict)]


def after_compaction(s: Staged) -> list[str]:
    """The requests that came after the agent's own compaction."""
    answers = s.answers
    assert "summary" in answers, answers
    return [json.dumps(body) for body in bodies(s)[answers.index("summary") + 1 :]]


def facts(s: Staged, run_id: str, kind: str) -> list[dict[str, Any]]:
    with s.store() as store:
        return [dict(entry.data) for entry in store.log(run_id) if entry.kind == kind]


def test_a_session_is_told_what_its_own_summary_left_out(tmp_path: Path) -> None:
    played = scenario(tmp_path, [*BEFORE, WAITS, "echo and on", "echo the last"])
    with staged(played) as s:
        ended = s.run()
        assert ended.code == 0, ended.stderr
        assert ended.stdout.strip() == "Done."
        first, *_, last = after_compaction(s)
        assert WORD not in first, "the summary forgot it"
        assert last.count(WORD) == 1
        assert last.count(TOLD) == 1
        assert "not an instruction" in last
        (run_id,) = s.run_ids()
        (told,) = facts(s, run_id, "recalled")
        assert (told["leg"], told["compaction"]) == (1, 1)
        assert len(facts(s, run_id, "legended")) == 1, "the turn went on in the same leg"


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    played = scenario(tmp_path, [*BEFORE, "sleep 1", "sleep 1", "echo the last"])
    off = {**OWN, "recall_after_compaction": False}
    with staged(played, policy=off) as s:
        assert s.run().code == 0
        assert not any(WORD in request for request in after_compaction(s))


@pytest.mark.parametrize("place", ["before", "after"])
def test_a_kill_between_the_compaction_and_the_words_changes_nothing(
    place: str, tmp_path: Path
) -> None:
    played = scenario(tmp_path, [*BEFORE, WAITS, "echo and on", "echo the last"])
    with staged(played) as s:
        dead = killed_at(s, f"working recalled {place}")
        assert dead.code == -signal.SIGKILL, dead.stderr
        again = s.segue("resume")
        assert again.code == 0, again.stderr
        assert after_compaction(s)[-1].count(WORD) == 1


def test_a_kill_after_the_words_does_not_repeat_them(tmp_path: Path) -> None:
    played = scenario(tmp_path, [*BEFORE, WAITS, *["sleep 0.5"] * 12, "echo the last"])
    with staged(played) as s:
        process = s.start_run()
        s.until(lambda: any(s.home.glob("runs/*/leg-001/recall-1.md")))
        s.until(lambda: TOLD in json.dumps(bodies(s)[-1]))
        process.kill()
        process.wait()
        again = s.segue("resume")
        assert again.code == 0, again.stderr
        assert after_compaction(s)[-1].count(WORD) == 1


def killed_at(s: Staged, point: str) -> Ended:
    return s.end(s.start_script(HERE / "killed.py", point, *s.words()))


LIMIT = """\
[[rules]]
after_requests = 5
fault = "plan_limit"
resets_in_s = 2
[options.rehearsal]
plan = "1"
"""


def test_what_a_message_could_not_tell_the_next_prompt_does(tmp_path: Path) -> None:
    """The plan's limit comes right after the compaction: there is no tool call at which the session
    could be told."""
    played = scenario(tmp_path, [*BEFORE, "echo and on", "echo the last"], FULL, LIMIT)
    with staged(played) as s:
        ended = s.run()
        assert ended.code == 0, ended.stderr
        assert "plan_limit" in s.answers
        last = after_compaction(s)[-1]
        assert last.count(WORD) == 1
        assert last.count(TOLD) == 1
        assert "RESUMING" in last


def test_an_agent_that_does_not_talk_is_told_with_the_next_prompt(tmp_path: Path) -> None:
    """codex says nothing of its compaction but in its session's file."""
    full = "[[rules]]\nafter_requests = 3\nusage = {input_tokens = 260000, output_tokens = 9}\n"
    played = scenario(tmp_path, [*BEFORE, "echo and on", "echo the last"], full)
    with staged(played, "rehearsal-codex") as s:
        ended = s.run("--check", "test -e passed || { touch passed; false; }")
        assert ended.code == 0, (ended.stderr, s.answers)
        first, *_, last = after_compaction(s)
        assert WORD not in first
        assert last.count(WORD) == 1
        assert last.count(TOLD) == 1
        assert "THE CHECK DID NOT PASS" in last


def test_an_agent_that_does_not_talk_is_resumed_with_it_between_two_tools(tmp_path: Path) -> None:
    """In the same session, once; nothing of what was done is done again."""
    full = "[[rules]]\nafter_requests = 3\nusage = {input_tokens = 260000, output_tokens = 9}\n"
    works = [f"sleep 1; echo {number} >> done" for number in range(6)]
    with staged(scenario(tmp_path, [*BEFORE, *works], full), "rehearsal-codex") as s:
        ended = s.run()
        assert ended.code == 0, (ended.stderr, s.answers)
        first, *_, last = after_compaction(s)
        assert WORD not in first
        assert (last.count(WORD), last.count(TOLD)) == (1, 1)
        legs = sorted(s.home.glob("runs/*/leg-*"))
        assert len(legs) == 2
        assert len({(leg / "session").read_text() for leg in legs}) == 1
        assert "to tell it what its own compaction left out" in ended.stderr
        told = (s.project / "done").read_text().split()
        assert told == sorted(set(told))


USED_UP = "[[rules]]\nafter_requests = 3\nusage = {input_tokens = 260000, output_tokens = 9}\n"


@pytest.mark.parametrize("has_begun", [False, True])
@pytest.mark.parametrize(
    ("cast", "full", "before", "legs"),
    [("rehearsal-codex", USED_UP, 4, 2), ("rehearsal", FULL, 5, 1)],
)
def test_an_agent_that_would_act_on_its_summary_alone_is_told_before_it_does(
    cast: str, full: str, before: int, legs: int, has_begun: bool, tmp_path: Path
) -> None:
    """codex and claude work on at once after their own compaction: the reply to that would do work
    again, and so does a tool that has just begun. claude is interrupted for it, and stays."""
    slow = f"[[rules]]\nafter_requests = {before}\ndelay_s = 15\n" * (not has_begun)
    again = "sleep 15; " * has_begun + "echo it again >> done"  # what it would do
    played = scenario(tmp_path, [*BEFORE, again, "echo and on >> done"], full, slow)
    with staged(played, cast) as s:
        ended = s.run()
        assert ended.code == 0, (ended.stderr, s.answers)
        first, *others = after_compaction(s)
        assert WORD not in first
        assert all(request.count(WORD) == 1 for request in others)
        assert (s.project / "done").read_text() == "and on\n"
        assert len(sorted(s.home.glob("runs/*/leg-*"))) == legs


@pytest.mark.parametrize("point", ["", "working recalled before", "working recalled after"])
def test_an_agent_that_waits_has_it_before_its_next_request(point: str, tmp_path: Path) -> None:
    """And no turn is interrupted for it, also if segue is killed in between."""
    played = scenario(tmp_path, [*BEFORE, "echo and on >> done", "echo the last >> done"])
    with staged(played, waits=True) as s:
        if point:
            dead = killed_at(s, point)
            assert dead.code == -signal.SIGKILL, dead.stderr
        ended = s.segue("resume") if point else s.run()
        assert ended.code == 0, ended.stderr
        requests = after_compaction(s)
        assert [request.count(WORD) for request in requests] == [1] * len(requests)
        assert (requests[-1].count(TOLD), "interrupted by user" in requests[-1]) == (1, False)
        (run_id,) = s.run_ids()
        assert [told["compaction"] for told in facts(s, run_id, "recalled")][-1:] == [1]
        assert (s.project / "done").read_text() == "and on\nthe last\n"
        assert len(sorted(s.home.glob("runs/*/leg-*"))) == 1


def test_an_agent_whose_segue_is_gone_waits_no_longer_than_it_must(tmp_path: Path) -> None:
    """Then it works on from its summary, and the next segue tells it."""
    played = scenario(tmp_path, [*BEFORE, WAITS, "echo and on", "echo the last"])
    with staged(played, waits=True) as s:
        dead = killed_at(s, "working recalled before")
        assert dead.code == -signal.SIGKILL, dead.stderr
        s.until(lambda: any(s.home.glob("runs/*/leg-001/halt-1.late")))
        again = s.segue("resume")
        assert again.code == 0, again.stderr
        assert after_compaction(s)[-1].count(WORD) == 1


def test_what_is_too_long_for_an_agent_that_waits_follows_with_its_next_tool(
    tmp_path: Path,
) -> None:
    random = Random(7)

    def decision() -> str:
        words = ["".join(random.choices(ascii_lowercase, k=random.randint(3, 9))) for _ in "x" * 12]
        return f"I decided to use {words[0]}-{random.randint(100, 999)} for {' '.join(words[1:])}."

    played = scenario(tmp_path, [*BEFORE[:-1], WAITS, "echo and on", "echo the last"])
    said = " ".join(decision() for _ in range(150))
    turn = f'[[turns]]\ntext = "{said}"\ncommand = "echo decided"\n'
    played.write_text(played.read_text().replace("[[turns]]", f"{turn}[[turns]]", 1))
    with staged(played, waits=True) as s:
        ended = s.run()
        assert ended.code == 0, ended.stderr
        first, *_, last = after_compaction(s)
        assert (first.count(TOLD), last.count(TOLD)) == (1, 2)
        assert len(first) < len(last) - 3_000
        assert "interrupted by user" not in last


def test_an_agent_is_not_made_to_wait_if_it_is_told_nothing(tmp_path: Path) -> None:
    played = scenario(tmp_path, [*BEFORE, "echo and on", "echo the last"])
    with staged(played, policy={**OWN, "recall_after_compaction": False}, waits=True) as s:
        assert s.run().code == 0
        assert not [*s.home.glob("runs/*/leg-*/halt-*"), *s.home.glob("runs/*/leg-*/settings*")]
        assert not any(WORD in request for request in after_compaction(s))


# Its turn is over but for its compaction, after which it looks whether it is told anything.
PI = r"""
import json, select, sys

USAGE = {"input": 9, "output": 1, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 10}

def say(**record):
    print(json.dumps(record), flush=True)

def reply(*content, stop="stop"):
    said = {"role": "assistant", "content": content, "usage": USAGE, "stopReason": stop}
    say(type="message_end", message=said)

for line in sys.stdin:
    order = json.loads(line)
    if order["type"] == "get_state":
        state = {"sessionId": "s1", "model": {"id": "m", "contextWindow": 200000}}
        say(type="response", command="get_state", success=True, id=order.get("id"), data=state)
    elif order["type"] == "prompt":
        say(type="response", command="prompt", success=True, id=order.get("id"))
        say(type="agent_start")
        call = {"id": "c1", "name": "bash", "arguments": {"command": "sh tell"}}
        reply({"type": "toolCall", **call}, stop="toolUse")
        ran = {"toolCallId": "c1", "toolName": "bash"}
        say(type="tool_execution_start", args=call["arguments"], **ran)
        result = {"content": [{"type": "text", "text": "the staging name is quokka-48613"}]}
        say(type="tool_execution_end", result=result, isError=False, **ran)
        answer = {"role": "toolResult", "isError": False, **result, **ran}
        say(type="message_end", message=answer)
        reply({"type": "text", "text": "All done."})
        say(type="agent_end", messages=[], willRetry=False)
        say(type="compaction_start", reason="threshold")
        short = {"summary": "Some work.", "estimatedTokensAfter": 9}
        say(type="compaction_end", reason="threshold", result=short, willRetry=False)
        if select.select([sys.stdin], [], [], 2)[0]:
            open("told", "w").close()
        say(type="agent_settled")
"""


def test_a_compaction_at_the_end_of_a_turn_begins_no_other(tmp_path: Path, own_home: Path) -> None:
    """pi compacts once more when it is done: told what that left out, it would work again."""
    script = tmp_path / "pi"
    script.write_text(f"#!{sys.executable}\n{PI}")
    script.chmod(0o755)
    config = own_home / "segue" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'[agents.settles]\ncommand = ["{script}"]\nlike = "pi"\n')
    work = tmp_path / "work"
    work.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "segue", "run", "--agent", "settles", "do it"],
        cwd=work, env=os.environ, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "All done."
    assert not (work / "told").exists()
