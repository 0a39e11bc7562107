"""The rehearsal agent's codex form: behaves as measured, and segue understands what it leaves."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from support.agents.rehearsing import (
    LONG_S,
    Gate,
    Place,
    Scripted,
    is_gone,
    is_there,
    model,
    refuses,
    runs,
    says,
)

from segue.drill.model.ask import Kind

DONE = says("All done.")
TOO_LONG = refuses("too_long", used_tokens=300_000, window_tokens=272_000)
ROOM = "Codex ran out of room in the model's context window."


def shell(command: str, used: int = 1_000, number: int = 1) -> Any:
    return runs(command, used, number, name="exec_command")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, agent="codex", form=("exec", "--json"))


def kinds(place: Place) -> list[str]:
    """The session file's records, in short."""
    return [str(r["payload"].get("type") or r["type"]) for r in place.records()]


def test_it_runs_commands_tells_its_items_and_ends_well(place: Place) -> None:
    with model(place, Scripted(shell("echo hi > made; echo printed"), DONE)) as script:
        ran = place.run("do it")
    assert (ran.exit_code, ran.err) == (0, "")
    assert (place.project / "made").read_text() == "hi\n"
    assert [e["type"] for e in ran.events] == [
        "thread.started", "turn.started", "item.completed", "item.started", "item.completed",
        "item.completed", "turn.completed",
    ]  # fmt: skip
    assert ran.events[4]["item"]["aggregated_output"] == "printed\n"
    assert ran.events[-1]["usage"]["output_tokens"] == 47, "of the whole thread"
    assert script.asks[1].parts[-1].text.endswith("Output:\nprinted\n")
    assert script.asks[0].tools == ("exec_command",)
    file = place.transcripts()[0]
    assert file.name.endswith(f"-{ran.events[0]['thread_id']}.jsonl")
    assert [r["ordinal"] for r in place.records()] == list(range(len(place.records())))
    assert ran.reason == "completed"


def test_segue_sees_how_full_it_is(place: Place) -> None:
    with model(place, Scripted(shell("true"), says("All done.", used=50_000))):
        place.run("do it")
    assert place.status()["context"]["used"] == 50_000
    assert place.status()["context"]["window"] == 258_400


def test_for_people_it_prints_the_answer_alone(tmp_path: Path) -> None:
    place = Place(tmp_path, agent="codex", form=("exec",))
    with model(place, Scripted(DONE)):
        ran = place.run("do it")
    assert (ran.out, ran.exit_code) == ("All done.\n", 0)
    with model(place, Scripted(TOO_LONG)):
        ran = place.run("do it")
    assert (ran.out, ran.exit_code) == ("", 1)
    assert ran.err.startswith(f"ERROR: {ROOM}")


def test_a_full_window_ends_it_and_a_resume_compacts_first(place: Place) -> None:
    with model(place, Scripted(shell("echo one"), TOO_LONG)) as script:
        ran = place.run("do it")
    assert (ran.exit_code, len(script.asks)) == (1, 2), "no compaction, no retry"
    assert [e["type"] for e in ran.events[-2:]] == ["error", "turn.failed"]
    assert ran.events[-1]["error"]["message"].startswith(ROOM)
    assert ran.reason == "context_exhausted"
    assert place.status()["context"]["used"] == 258_400, "full"
    script = Scripted(DONE, summaries=[says("the first step is done")])
    with model(place, script):
        again = place.run("resume", "--last", "go on")
    assert again.exit_code == 0
    assert [ask.kind for ask in script.asks] == [Kind.COMPACTION, Kind.MAIN]
    texts = [part.text for part in script.asks[1].parts if part.role == "user"]
    assert texts[0] == "do it"
    assert "the first step is done" in texts[1]
    assert texts[2] == "go on"
    assert again.reason == "completed"


def test_it_compacts_by_itself_before_the_window_is_full(place: Place) -> None:
    script = Scripted(shell("echo one", used=245_000), says("All done.", used=4_000))
    script.summaries = [says("the first step is done")]
    with model(place, script):
        ran = place.run("do it")
    assert [ask.kind for ask in script.asks] == ["main", "compaction", "main"]
    assert "compact" not in ran.out, "its stream says nothing of it"
    assert kinds(place).count("compacted") == 1
    assert ran.reason == "completed"
    assert place.status()["context"]["used"] == 4_000
    with model(place, Scripted(DONE)) as script:
        place.run("resume", "--last", "and more")
    assert [p.role for p in script.asks[0].parts] == ["system", "user", "user", "assistant", "user"]


def test_a_refused_compaction_ends_it(place: Place) -> None:
    script = Scripted(shell("echo one", used=245_000), DONE, summaries=[TOO_LONG])
    with model(place, script):
        ran = place.run("do it")
    assert ran.exit_code == 1
    assert len(script.asks) > 3, "it drops the oldest, and tries again"
    assert ran.reason == "context_exhausted"


FAILURES = [  # fault, what is printed, requests, reason
    ("rate_limit", "exceeded retry limit, last status: 429 Too Many Requests", 1, "rate_limit"),
    ("overloaded", "Selected model is at capacity.", 5, "overloaded"),
    ("server_error", "We’re currently experiencing high demand", 30, "overloaded"),
    ("auth", "unexpected status 401 Unauthorized: Incorrect API key", 6, "auth"),
    ("billing", "Quota exceeded. Check your plan and billing details.", 1, "billing"),
]


@pytest.mark.parametrize(("fault", "said", "asked", "reason"), FAILURES)
def test_failures_are_retried_worded_and_understood(
    place: Place, fault: Any, said: str, asked: int, reason: str
) -> None:
    with model(place, Scripted(refuses(fault))) as script:
        ran = place.run("do it")
    assert ran.exit_code == 1
    assert len(script.asks) == asked
    assert ran.events[-1]["type"] == "turn.failed"
    assert ran.events[-1]["error"]["message"].startswith(said)
    assert kinds(place)[-1] == "task_complete"
    assert ran.reason == reason


def test_a_wait_that_the_server_asks_for_is_kept(place: Place) -> None:
    with model(place, Scripted(refuses("rate_limit", retry_after_s=0.2), DONE)) as script:
        ran = place.run("do it")
    assert (ran.exit_code, len(script.asks)) == (0, 2)
    said = [e["message"] for e in ran.events if e["type"] == "error"]
    assert said == [
        "Reconnecting... 1/5 (exceeded retry limit, last status: 429 Too Many Requests)"
    ]
    assert ran.reason == "completed"


def test_a_usage_limit_ends_it_at_once_and_tells_the_reset(place: Place) -> None:
    resets_at = int(time.time()) // 60 * 60 + 3600
    with model(place, Scripted(shell("true"), refuses("plan_limit", resets_at=resets_at))):
        ran = place.run("do it")
    assert ran.exit_code == 1
    assert ran.events[-1]["error"]["message"].startswith("You’ve hit your usage limit.")
    found = ran.verdict()
    assert found["reason"] == "rate_limit"
    assert found["retry_at"] == time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(resets_at))


@pytest.mark.parametrize("delivery", ["drop", "drop_midway", "unfinished", "garbage"])
def test_broken_answers_are_asked_for_again(place: Place, delivery: Any) -> None:
    with model(place, Scripted(says("All done.", delivery=delivery), DONE)):
        ran = place.run("do it")
    assert ran.exit_code == 0
    said = [e["message"] for e in ran.events if e["type"] == "error"]
    assert len(said) == 1
    assert said[0].startswith("Reconnecting... 1/5 (stream disconnected before completion: ")
    spoken = [e for e in ran.events if e.get("item", {}).get("type") == "agent_message"]
    assert len(spoken) == 1, "nothing is told twice"
    assert ran.reason == "completed"


def test_a_missing_server_is_waited_for(place: Place) -> None:
    place.url = "http://127.0.0.1:1"
    process = place.start("do it")
    assert process.stdout is not None
    said = [process.stdout.readline() for _ in range(3)]
    assert "waiting for network" in said[-1]
    process.send_signal(signal.SIGTERM)
    ran = place.end(process)
    assert ran.exit_code == -signal.SIGTERM


# Signals


def test_ctrl_c_is_told_in_the_file_only(place: Place) -> None:
    gate = Gate(place.root)
    with model(place, Scripted(shell(gate.command))):
        process = place.start("do it")
        tool = gate.pid()
        process.send_signal(signal.SIGINT)
        ran = place.end(process)
    assert ran.exit_code == 1
    assert is_gone(tool)
    assert ran.events[-1]["type"] == "item.started"
    assert kinds(place)[-1] == "turn_aborted"
    assert ran.reason == "user_exit"
    with model(place, Scripted(DONE)) as script:
        again = place.run("resume", ran.events[0]["thread_id"], "go on")
    assert again.exit_code == 0
    texts = [part.text for part in script.asks[0].parts]
    assert "aborted by user" in texts
    assert any(text.startswith("<turn_aborted>") for text in texts)


def test_ctrl_c_while_the_model_is_silent(place: Place) -> None:
    with model(place, Scripted(says("", delivery="hang"))) as script:
        process = place.start("do it")
        script.came.get(timeout=LONG_S)
        process.send_signal(signal.SIGINT)
        ran = place.end(process)
    assert ran.exit_code == 1
    assert ran.reason == "user_exit"


@pytest.mark.parametrize(
    ("number", "reason"), [(signal.SIGTERM, "user_exit"), (signal.SIGHUP, "user_exit")]
)
def test_other_signals_end_it_where_it_is(
    place: Place, number: signal.Signals, reason: str
) -> None:
    gate = Gate(place.root)
    with model(place, Scripted(shell(gate.command))):
        process = place.start("do it")
        tool = gate.pid()
        process.send_signal(number)
        ran = place.end(process)
    assert ran.exit_code == -number
    assert is_gone(tool)
    assert "turn_aborted" not in kinds(place)
    assert ran.reason == reason


def test_killed_it_leaves_its_tool_and_can_be_resumed(place: Place) -> None:
    gate = Gate(place.root)
    with model(place, Scripted(shell(gate.command, used=7_000))):
        process = place.start("do it")
        tool = gate.pid()
        process.kill()
        ran = place.end(process)
    assert ran.exit_code == -9
    assert is_there(tool)
    os.kill(tool, signal.SIGKILL)
    assert kinds(place)[-1] == "token_usage_record", "the count comes after the tool"
    assert place.status()["context"]["used"] == 7_000
    assert ran.reason == "crash"
    with model(place, Scripted(DONE)) as script:
        again = place.run("resume", "--last", "go on")
    assert again.exit_code == 0
    assert again.events[0]["thread_id"] == ran.events[0]["thread_id"]
    result, prompt = script.asks[0].parts[-2:]
    assert (result.role, result.text, prompt.text) == ("tool", "aborted", "go on")
    assert again.reason == "completed"
    assert again.events[-1]["usage"]["output_tokens"] == 47, "of the whole thread"


# Threads


def test_a_thread_has_one_writer(place: Place) -> None:
    gate = Gate(place.root)
    with model(place, Scripted(shell(gate.command))):
        process = place.start("do it")
        gate.pid()
        second = place.run("resume", "--last", "go on")
        process.send_signal(signal.SIGINT)
        place.end(process)
    assert (second.exit_code, second.out) == (1, "")
    assert "already has an active writer" in second.err


def test_a_thread_that_is_not_there_cannot_be_resumed(place: Place) -> None:
    place.url = "http://127.0.0.1:1"
    ran = place.run("resume", "01a1e06d-cdfa-7eb1-915f-0567d8ce11b3", "go on")
    assert (ran.exit_code, ran.out) == (1, "")
    assert "no rollout found for thread id" in ran.err


def test_without_a_key_nothing_is_asked(place: Place) -> None:
    with model(place, Scripted(DONE)) as script:
        ran = place.run("do it", OPENAI_API_KEY="")
    assert (ran.exit_code, script.asks) == (1, [])
    assert "Missing environment variable" in ran.out
