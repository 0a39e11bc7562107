"""The rehearsal agent's claude form: behaves as measured, and segue understands what it leaves."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.agents.rehearsing import (
    LONG_S,
    SUMMARY,
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

from segue.drill import casts
from segue.drill.model.answer import ModelAnswer, ModelReply
from segue.drill.model.ask import Ask, Kind, Part

STREAM = ("-p", "do it", "--output-format", "stream-json", "--verbose")
TOO_LONG = refuses("too_long", used_tokens=208_310, window_tokens=200_000)
DONE = says("All done.")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_it_runs_commands_tells_its_records_and_ends_well(place: Place) -> None:
    with model(place, Scripted(runs("echo hi > made; echo printed"), DONE)) as script:
        ran = place.run(*STREAM)
    assert (ran.exit_code, ran.err) == (0, "")
    assert (place.project / "made").read_text() == "hi\n"
    assert ran.kinds == ["init", "assistant", "assistant", "user", "assistant", "success"]
    assert ran.result["result"] == "All done."
    assert ran.result["num_turns"] == 2
    assert ran.result["usage"]["output_tokens"] == 47, "of both requests"
    assert ran.result["modelUsage"]["claude-sonnet-4-5"]["contextWindow"] == 200_000
    assert ran.reason == "completed"
    told = script.asks[1].parts[-1]
    assert (told.role, told.text, told.answers) == ("tool", "printed", "toolu_1")
    assert script.asks[0].tools == ("Bash",)


def test_the_stream_tells_the_first_count_of_output_and_the_file_the_last(place: Place) -> None:
    with model(place, Scripted(runs("true"), DONE)):
        ran = place.run(*STREAM)
    spoken = [e["message"] for e in ran.events if e["type"] == "assistant"]
    assert [m["usage"]["output_tokens"] for m in spoken] == [1, 1, 1]
    assert {m["stop_reason"] for m in spoken} == {None}
    kept = [r["message"] for r in place.records() if r["type"] == "assistant"]
    assert [m["usage"]["output_tokens"] for m in kept] == [40, 40, 7]
    assert kept[0]["id"] == kept[1]["id"], "one record for each block"


def test_segue_sees_how_full_it_is(place: Place) -> None:
    with model(place, Scripted(runs("true"), says("All done.", used=50_000))):
        place.run(*STREAM)
    status = place.status()
    assert status["context"]["used"] == 50_000
    assert status["context"]["window"] == 200_000
    assert status["cwd"] == str(place.project)
    assert place.transcripts()[0].stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("form", "printed"), [("text", "All done.\n"), ("json", None)])
def test_other_forms_print_the_end_only(place: Place, form: str, printed: str | None) -> None:
    with model(place, Scripted(runs("true"), DONE)):
        ran = place.run("-p", "do it", "--output-format", form)
    assert printed is None or ran.out == printed
    assert printed is not None or ran.result["result"] == "All done."
    assert ran.reason == "completed"


def test_the_first_prompt_that_is_too_long_ends_it(place: Place) -> None:
    with model(place, Scripted(TOO_LONG)) as script:
        ran = place.run(*STREAM)
    assert ran.exit_code == 1
    assert len(script.asks) == 1
    assert ran.result["subtype"] == "success", "as the real one"
    assert ran.result["terminal_reason"] == "prompt_too_long"
    assert ran.result["api_error_status"] == 400
    assert "208310 tokens (limit 200000)" in ran.result["result"]
    assert ran.reason == "context_exhausted"


def test_a_later_one_is_compacted_and_the_work_continues(place: Place) -> None:
    script = Scripted(runs("echo one", used=150_000), TOO_LONG, says("All done.", used=3_000))
    script.summaries = [says(SUMMARY, used=150_100)]
    with model(place, script):
        ran = place.run(*STREAM)
    assert ran.exit_code == 0
    assert [ask.kind for ask in script.asks] == ["main", "main", "compaction", "main"]
    last = script.asks[-1].parts
    assert [part.role for part in last] == ["system", "user"]
    assert "the first step is done" in last[1].text
    assert "looked" not in last[1].text
    assert "status" in ran.kinds
    assert "compact_boundary" in ran.kinds
    assert ran.result["usage"]["output_tokens"] == 47, "without the summary's"
    assert ran.result["modelUsage"]["claude-sonnet-4-5"]["outputTokens"] == 54
    assert ran.reason == "completed"
    assert place.status()["context"]["used"] == 3_000


def test_a_compaction_leaves_the_last_exchange_as_it_is_also_for_a_resume(place: Place) -> None:
    steps = [runs(f"echo step {number}", number=number) for number in (1, 2, 3)]
    script = Scripted(*steps, TOO_LONG, DONE, summaries=[says(SUMMARY)])
    with model(place, script):
        place.run(*STREAM)
    summarised = [part.text for part in script.asks[4].parts if part.role == "tool"]
    assert summarised == ["step 1", "step 2"], "shorter than what was refused"
    kept = [(part.role, part.text) for part in script.asks[5].parts[2:]]
    assert kept == [("assistant", "On it."), ("tool", "step 3")]
    with model(place, Scripted(DONE)) as later:
        place.run("-p", "and more", "--continue")
    assert later.asks[0].parts[:4] == script.asks[5].parts
    assert [part.text for part in later.asks[0].parts[4:]] == ["All done.", "and more"]


def test_a_refused_compaction_ends_it(place: Place) -> None:
    script = Scripted(runs("echo one"), TOO_LONG, summaries=[TOO_LONG])
    with model(place, script):
        ran = place.run(*STREAM)
    assert [ask.kind for ask in script.asks].count(Kind.COMPACTION) == 2
    assert ran.exit_code == 1
    assert ran.result["terminal_reason"] == "prompt_too_long"
    assert ran.result["result"] == "Prompt is too long"
    assert ran.result["num_turns"] == 2
    failed = [e for e in ran.events if e.get("compact_result") == "failed"]
    assert [e["compact_error"] for e in failed] == ["exhausted"]
    assert ran.reason == "context_exhausted"


def test_without_compaction_a_full_window_is_not_even_asked(place: Place) -> None:
    with model(place, Scripted(runs("echo one", used=178_000), DONE)) as script:
        ran = place.run(*STREAM, DISABLE_AUTO_COMPACT="1")
    assert len(script.asks) == 1
    assert ran.result["terminal_reason"] == "blocking_limit"
    assert ran.reason == "context_exhausted"


def test_room_for_less_output_is_used(place: Place) -> None:
    over = "input length and `max_tokens` exceed context limit: 188240 + 32000 > 200000"
    with model(place, Scripted(refuses("bad_request", message=over), DONE)) as script:
        ran = place.run(*STREAM)
    assert (ran.exit_code, len(script.asks)) == (0, 2)


FAILURES = [  # fault, what is printed, requests, reason
    ("rate_limit", "API Error: Request rejected (429) · ", 3, "rate_limit"),
    ("overloaded", "API Error: 529 Overloaded. ", 3, "overloaded"),
    ("server_error", "API Error: 500 Internal server error. ", 3, "overloaded"),
    ("auth", "Invalid API key · Fix external API key", 3, "auth"),
    ("billing", "Credit balance is too low", 1, "billing"),
    ("bad_request", "API Error: 400 ", 1, "error"),
]


@pytest.mark.parametrize(("fault", "said", "asked", "reason"), FAILURES)
def test_failures_are_retried_worded_and_understood(
    place: Place, fault: Any, said: str, asked: int, reason: str
) -> None:
    with model(place, Scripted(refuses(fault))) as script:
        ran = place.run(*STREAM)
    assert ran.exit_code == 1
    assert len(script.asks) == asked
    assert ran.kinds.count("api_retry") == asked - 1
    assert [r["subtype"] for r in place.records() if "retryInMs" in r] == ["api_error"] * (
        asked - 1
    )
    assert ran.result["result"].startswith(said)
    assert (ran.result["is_error"], ran.result["subtype"]) == (True, "success")
    assert ran.result["terminal_reason"] == "api_error"
    assert ran.reason == reason


def test_an_overload_that_passes_is_not_a_failure(place: Place) -> None:
    with model(place, Scripted(refuses("overloaded"), runs("true"), DONE)):
        ran = place.run(*STREAM)
    assert ran.exit_code == 0
    assert ran.kinds.count("api_retry") == 1
    assert ran.reason == "completed"


def test_a_wait_that_the_server_asks_for_is_kept_and_a_long_one_is_not(place: Place) -> None:
    with model(place, Scripted(refuses("rate_limit", retry_after_s=1), DONE)):
        ran = place.run(*STREAM, REHEARSAL_WAIT_SCALE="0")
    assert [e["retry_delay_ms"] for e in ran.events if "retry_delay_ms" in e] == [1000]
    assert ran.exit_code == 0
    with model(place, Scripted(refuses("rate_limit", retry_after_s=61))) as script:
        ran = place.run(*STREAM)
    assert (ran.exit_code, len(script.asks)) == (1, 1)
    assert ran.reason == "rate_limit"


def test_a_plan_limit_ends_a_subscriber_at_once_and_tells_the_reset(place: Place) -> None:
    resets_at = int(time.time()) // 60 * 60 + 3600
    limit = refuses("plan_limit", resets_at=resets_at)
    with model(place, Scripted(runs("true"), limit)) as script:
        ran = place.run(*STREAM, CLAUDE_CODE_OAUTH_TOKEN="none", ANTHROPIC_API_KEY="")
    assert (ran.exit_code, len(script.asks)) == (1, 2)
    told = [e["rate_limit_info"] for e in ran.events if e["type"] == "rate_limit_event"]
    assert [(t["status"], t["resetsAt"]) for t in told] == [("rejected", resets_at)]
    assert ran.result["result"].startswith("You've hit your 5-hour limit · resets ")
    found = ran.verdict()
    assert found["reason"] == "rate_limit"
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(resets_at))
    assert found["retry_at"] == at


def test_what_the_client_said_is_not_sent_again(place: Place) -> None:
    with model(place, Scripted(runs("echo one"), refuses("billing"))):
        place.run(*STREAM)
    with model(place, Scripted(DONE)) as script:
        place.run("-p", "go on", "--continue")
    texts = [part.text for part in script.asks[0].parts[1:]]
    assert texts == ["do it", "On it.", "one", "go on"]


def test_a_plan_limit_means_nothing_to_a_key(place: Place) -> None:
    with model(place, Scripted(refuses("plan_limit", resets_at=time.time() + 60))) as script:
        ran = place.run(*STREAM)
    assert len(script.asks) == 3
    assert "rate_limit_event" not in ran.kinds


def test_a_warning_of_the_plan_is_reported(place: Place) -> None:
    prefix = "anthropic-ratelimit-unified-"
    headers = {f"{prefix}status": "allowed_warning", f"{prefix}5h-utilization": "0.92"}
    with model(place, Scripted(says("All done.", headers=headers))):
        ran = place.run(*STREAM, CLAUDE_CODE_OAUTH_TOKEN="none")
    told = next(e for e in ran.events if e["type"] == "rate_limit_event")
    assert told["rate_limit_info"]["utilization"] == 0.92
    assert ran.reason == "completed"


@pytest.mark.parametrize("delivery", ["drop", "drop_midway", "unfinished", "garbage"])
def test_broken_answers_are_asked_for_again(place: Place, delivery: Any) -> None:
    with model(place, Scripted(says("All done.", delivery=delivery), DONE)):
        ran = place.run(*STREAM)
    assert ran.exit_code == 0
    assert ran.kinds == ["init", "api_retry", "assistant", "success"], "nothing is told twice"
    assert ran.reason == "completed"


def test_streams_that_always_break_are_replaced_by_a_whole_answer(place: Place) -> None:
    class Breaking(Scripted):
        def answer(self, ask: Ask, now: float) -> ModelAnswer:
            self.asks.append(ask)
            return says("All done.", delivery="drop_midway") if ask.is_stream else DONE

    with model(place, Breaking(DONE)) as script:
        ran = place.run(*STREAM)
    assert [ask.is_stream for ask in script.asks] == [True, True, True, False]
    assert ran.exit_code == 0
    with model(place, Breaking(DONE)):
        ran = place.run(*STREAM, CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK="1")
    assert ran.exit_code == 1
    assert "Connection to the API was lost" in ran.result["result"]
    assert ran.reason == "overloaded"


def test_no_server_and_no_answer_are_told_apart(place: Place) -> None:
    place.url = "http://127.0.0.1:1"
    refused = place.run(*STREAM)
    assert "Connection refused" in refused.result["result"]
    assert refused.reason == "overloaded"
    with model(place, Scripted(says("", delivery="hang"))):
        silent = place.run(*STREAM, API_TIMEOUT_MS="300", CLAUDE_CODE_MAX_RETRIES="1")
    assert silent.result["result"] == "Request timed out"
    assert silent.kinds.count("api_retry") == 1
    assert silent.reason in ("timeout", "overloaded")


def test_it_talks_to_this_machine_only(place: Place) -> None:
    place.url = "http://192.0.2.1:80"
    ran = place.run(*STREAM)
    assert (ran.exit_code, ran.out) == (1, "")
    assert "this machine only" in ran.err


def test_a_hang_that_the_driver_ends_is_a_timeout(place: Place) -> None:
    with model(place, Scripted(says("", delivery="hang"))) as script:
        process = place.start(*STREAM)
        script.came.get(timeout=LONG_S)
        process.send_signal(signal.SIGTERM)
        ran = place.end(process)
    assert ran.exit_code == 143
    assert ran.kinds == ["init"]
    assert ran.verdict("--ended-by", "segue")["reason"] == "timeout"


def test_turns_that_run_out(place: Place) -> None:
    calls = [runs("true", number=number) for number in range(5)]
    with model(place, Scripted(*calls)) as script:
        ran = place.run(*STREAM, "--max-turns", "3")
    assert (ran.exit_code, len(script.asks)) == (1, 3)
    assert ran.result["subtype"] == "error_max_turns"
    assert ran.result["num_turns"] == 4
    assert "result" not in ran.result
    assert ran.reason == "max_turns"
    with model(place, Scripted(runs("true"))):
        text = place.run("-p", "do it", "--max-turns", "1")
    assert text.out == "Error: Reached max turns (1)\n"


def test_output_that_is_cut_continues_three_times(place: Place) -> None:
    cut = ModelAnswer(reply=ModelReply(text="and then", stop="length"))
    with model(place, Scripted(cut, DONE)) as script:
        ran = place.run(*STREAM)
    assert ran.reason == "completed"
    assert script.asks[1].last_text.startswith("Output token limit hit.")
    with model(place, Scripted(cut)) as script:
        ran = place.run(*STREAM)
    assert (ran.exit_code, len(script.asks)) == (1, 4)
    assert ran.reason == "error"


# Signals


def test_ctrl_c_in_a_tool_is_the_users_will(place: Place) -> None:
    gate = Gate(place.root)
    with model(place, Scripted(runs(gate.command))):
        process = place.start(*STREAM)
        tool = gate.pid()
        process.send_signal(signal.SIGINT)
        ran = place.end(process)
    assert ran.exit_code == 0
    assert is_gone(tool)
    assert ran.result["subtype"] == "error_during_execution"
    assert ran.result["terminal_reason"] == "aborted_tools"
    said = json.dumps(place.records()[-4:])
    assert "The user doesn't want to proceed" in said
    assert "[Request interrupted by user for tool use]" in said
    assert ran.reason == "user_exit"


def test_ctrl_c_leaves_no_call_without_a_result(place: Place) -> None:
    gate = Gate(place.root)
    first, second = runs(gate.command).reply, runs("echo never", number=2).reply
    assert first is not None
    assert second is not None
    both = ModelAnswer(reply=ModelReply(text="Two.", calls=(*first.calls, *second.calls)))
    with model(place, Scripted(both)):
        process = place.start(*STREAM)
        gate.pid()
        process.send_signal(signal.SIGINT)
        place.end(process)
    with model(place, Scripted(DONE)) as script:
        place.run("-p", "go on", "--continue")
    results = [part for part in script.asks[0].parts if part.role == "tool"]
    assert [part.answers for part in results] == ["toolu_1", "toolu_2"]
    assert all(part.text.startswith("The user doesn't want") for part in results)


def test_ctrl_c_while_the_model_is_silent(place: Place) -> None:
    with model(place, Scripted(says("", delivery="hang"))) as script:
        process = place.start(*STREAM)
        script.came.get(timeout=LONG_S)
        process.send_signal(signal.SIGINT)
        ran = place.end(process)
    assert ran.exit_code == 0
    assert ran.result["terminal_reason"] == "aborted_streaming"
    assert ran.reason == "user_exit"


@pytest.mark.parametrize(
    ("number", "code", "kept"), [(signal.SIGTERM, 143, True), (signal.SIGHUP, 129, False)]
)
def test_ended_by_the_system_it_takes_its_tool_along(
    place: Place, number: signal.Signals, code: int, kept: bool
) -> None:
    gate = Gate(place.root)
    with model(place, Scripted(runs(gate.command))):
        process = place.start(*STREAM)
        tool = gate.pid()
        process.send_signal(number)
        ran = place.end(process)
    assert ran.exit_code == code
    assert is_gone(tool)
    assert "result" not in ran.kinds
    assert "Exit code 137" in ran.out
    assert ("Exit code 137" in place.transcripts()[0].read_text()) is kept
    assert ran.reason == "user_exit"


def test_killed_it_leaves_its_tool_and_can_be_resumed(place: Place) -> None:
    gate = Gate(place.root)
    with model(place, Scripted(runs(gate.command))):
        process = place.start(*STREAM)
        tool = gate.pid()
        process.kill()
        ran = place.end(process)
    assert ran.exit_code == -9
    assert is_there(tool), "as the real one's"
    os.kill(tool, signal.SIGKILL)
    assert place.records()[-1]["message"]["content"][0]["type"] == "tool_use"
    assert ran.reason == "crash"
    session = place.transcripts()[0].stem
    with model(place, Scripted(DONE)) as script:
        again = place.run("-p", "go on", "--resume", session, "--output-format", "stream-json")
    assert again.exit_code == 0
    assert place.transcripts() == [place.transcripts()[0]], "the same file"
    roles = [part.role for part in script.asks[0].parts]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]
    result, filler, prompt = script.asks[0].parts[3:]
    assert result.text.startswith("[Tool call interrupted:")
    assert result.is_error
    assert filler.text == "No response requested."
    assert prompt.text == "go on"
    assert again.reason == "completed"


# Sessions


def test_it_continues_with_all_that_was_said(place: Place) -> None:
    with model(place, Scripted(runs("echo one"), DONE)):
        first = place.run(*STREAM)
    with model(place, Scripted(says("More is done."))) as script:
        second = place.run("-p", "and more", "--continue", "--output-format", "json")
    assert second.result["session_id"] == first.result["session_id"]
    texts = [part.text for part in script.asks[0].parts[1:]]
    assert texts == ["do it", "On it.", "one", "All done.", "and more"]
    assert second.result["modelUsage"]["claude-sonnet-4-5"]["outputTokens"] == 54, "of both"


def test_a_compacted_session_is_resumed_from_its_summary(place: Place) -> None:
    script = Scripted(runs("echo one"), TOO_LONG, DONE, summaries=[says(SUMMARY)])
    with model(place, script):
        place.run(*STREAM)
    with model(place, Scripted(DONE)) as script:
        place.run("-p", "and more", "--continue")
    first, reply, last = script.asks[0].parts[1:]
    assert "the first step is done" in first.text
    assert (reply.text, last.text) == ("All done.", "and more")


def test_broken_lines_of_a_session_are_passed_over(place: Place) -> None:
    with model(place, Scripted(DONE)):
        place.run(*STREAM)
        with place.transcripts()[0].open("ab") as file:
            file.write(b"\0" * 5000 + b'\n{"type":"user","mess')
    with model(place, Scripted(DONE)) as script:
        assert place.run("-p", "and more", "--continue").exit_code == 0
    assert [part.text for part in script.asks[0].parts[1:]] == ["do it", "All done.", "and more"]


def test_a_session_that_is_not_there_cannot_be_resumed(place: Place) -> None:
    place.url = "http://127.0.0.1:1"
    ran = place.run("-p", "go on", "--resume", "no-such", "--output-format", "stream-json")
    assert ran.exit_code == 1
    assert ran.result["errors"] == ["No conversation found with session ID: no-such"]
    assert "No conversation found" in ran.err
    assert place.transcripts() == []


def test_a_session_id_is_taken_once(place: Place) -> None:
    ident = "0f0e0d0c-0000-4000-8000-000000000001"
    with model(place, Scripted(DONE)):
        assert place.run(*STREAM, "--session-id", ident).result["session_id"] == ident
        again = place.run(*STREAM, "--session-id", ident)
    assert (again.exit_code, again.out) == (1, "")
    assert "already in use" in again.err


def test_without_a_key_nothing_is_asked(place: Place) -> None:
    with model(place, Scripted(DONE)) as script:
        ran = place.run(*STREAM, ANTHROPIC_API_KEY="")
    assert (ran.exit_code, script.asks) == (1, [])
    assert ran.reason == "auth"


# Input lines


def _line(text: str) -> str:
    return json.dumps({"type": "user", "message": {"role": "user", "content": text}}) + "\n"


TWO_WAY = ("-p", "--input-format", "stream-json", "--output-format", "stream-json")


def test_words_that_come_while_a_tool_runs_go_along_with_its_result(place: Place) -> None:
    heard = place.root / "heard"
    os.mkfifo(heard)
    gate = Gate(place.root)
    wait = f"echo $$ > '{gate.path}'; cat '{heard}'"
    with model(place, Scripted(runs(wait), DONE)) as script:
        process = place.start(*TWO_WAY)
        assert process.stdin is not None
        process.stdin.write(_line("do it") + _line("and be quick"))
        process.stdin.flush()
        gate.pid()
        heard.write_text("ended")
        ran = place.end(process)
    assert ran.exit_code == 0
    result, words = script.asks[1].parts[-2:]
    assert (result.text, words.text) == ("ended", "and be quick")
    assert ran.kinds.count("init") == 1
    assert ran.reason == "completed"


def test_every_line_after_a_turn_is_a_turn_of_its_own(place: Place) -> None:
    with model(place, Scripted(DONE)):
        process = place.start(*TWO_WAY)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(_line("one"))
        process.stdin.flush()
        said = ""
        while '"result"' not in said:
            said = process.stdout.readline()
        asks = {"subtype": "get_context_usage"}
        process.stdin.write(
            json.dumps({"type": "control_request", "request_id": "r", "request": asks})
        )
        process.stdin.write("\n" + _line("two"))
        process.stdin.flush()
        ran = place.end(process)
    assert ran.exit_code == 0
    meter = next(e for e in ran.events if e["type"] == "control_response")["response"]
    assert meter["response"]["totalTokens"] == 2_000
    assert ran.kinds.count("init") == 1, "of the second turn"
    assert ran.result["result_index"] == 1


def test_an_interrupt_by_input_ends_the_turn_and_not_the_process(place: Place) -> None:
    gate = Gate(place.root)
    with model(place, Scripted(runs(gate.command), DONE)) as script:
        process = place.start(*TWO_WAY)
        assert process.stdin is not None
        process.stdin.write(_line("do it"))
        process.stdin.flush()
        tool = gate.pid()
        asks = {"type": "control_request", "request_id": "r1", "request": {"subtype": "interrupt"}}
        process.stdin.write(json.dumps(asks) + "\n" + _line("now this"))
        process.stdin.flush()
        ran = place.end(process)
    assert ran.exit_code == 0
    assert is_gone(tool)
    endings = [e["terminal_reason"] for e in ran.events if e["type"] == "result"]
    assert endings == ["aborted_tools", "completed"]
    assert script.asks[1].last_text.endswith("now this")


def test_an_interrupt_between_two_turns_ends_nothing(place: Place) -> None:
    asks = {"type": "control_request", "request_id": "r1", "request": {"subtype": "interrupt"}}
    with model(place, Scripted(DONE)):
        ran = place.end(place.start(*TWO_WAY), json.dumps(asks) + "\n" + _line("do it"))
    assert ran.kinds == ["control_response", "init", "assistant", "success"]


def test_a_signal_ends_it_while_it_waits_for_a_prompt(place: Place) -> None:
    place.url = "http://127.0.0.1:1"
    process = place.start("-p", "--input-format", "stream-json", "--output-format", "stream-json")
    assert process.stdin is not None
    process.stdin.write('{"type": "control_request", "request_id": "r", "request": {}}\n')
    process.stdin.flush()
    assert process.stdout is not None
    assert "control_response" in process.stdout.readline(), "it is there"
    process.send_signal(signal.SIGTERM)
    assert process.wait(LONG_S) == 143
    process.communicate()


# Commands


def test_what_a_command_leaves_in_the_background_is_not_waited_for(place: Place) -> None:
    gate = Gate(place.root)
    with model(
        place, Scripted(runs(f"sleep 300 & echo $! > '{gate.path}'; echo on"), DONE)
    ) as script:
        ran = place.run(*STREAM)
        os.kill(gate.pid(), signal.SIGKILL)
    assert ran.exit_code == 0
    assert script.asks[1].last_text == "on"


def test_a_command_that_fails_tells_its_exit_code(place: Place) -> None:
    with model(place, Scripted(runs("echo oh; exit 3"), DONE)) as script:
        place.run(*STREAM)
    told = script.asks[1].parts[-1]
    assert (told.text, told.is_error) == ("Exit code 3\noh", True)


def test_it_speaks_utf8_whatever_it_is_told(place: Place) -> None:
    with model(place, Scripted(says("naïve — 你好"))):
        ran = place.end(place.start("-p", PYTHONIOENCODING="latin-1"), "schön")
    assert ran.out == "naïve — 你好\n"
    assert '"schön"' in place.transcripts()[0].read_text(encoding="utf-8")


# The cast


def stage(place: Place, **more: Any) -> casts.PlayStage:
    home = place.root / "home"
    return casts.PlayStage(home=home, project=place.project, port=1, window_tokens=200_000, **more)


def test_the_cast_starts_it_with_nothing_of_the_users(place: Place) -> None:
    cast = casts.find("rehearsal")
    program = cast.find({})
    assert program == sys.executable
    cast.prepare(stage(place))
    (place.project / "json.py").write_text("raise SystemExit('the wrong one')")
    with model(place, Scripted(runs("env"), DONE)) as script:
        there = casts.PlayStage(
            home=place.root / "home",
            project=place.project,
            port=int(place.url.rpartition(":")[2]),
            window_tokens=200_000,
        )
        assert cast.session(there) == ("", None)
        part = cast.start(program, there, "a prompt\nof two lines", "")
        done = subprocess.run(
            part.argv, env=part.env, cwd=place.project, input=part.stdin, capture_output=True
        )
    assert (done.returncode, done.stderr) == (0, b"")
    assert script.asks[0].last_text == "a prompt\nof two lines"
    assert "PYTHONPATH" not in script.asks[1].last_text, "its tools have their own Python"
    ident, file = cast.session(there)
    assert file is not None
    assert file.stem == ident
    assert "--resume" in cast.start(program, there, "go on", ident).argv


def test_the_casts_options_reach_it(place: Place) -> None:
    cast = casts.find("rehearsal")
    options = {"plan": "1", "retries": "7", "compact": "0"}
    part = cast.start("python", stage(place, max_turns=4, options=options), "go", "")
    assert part.env["CLAUDE_CODE_MAX_RETRIES"] == "7"
    assert "CLAUDE_CODE_OAUTH_TOKEN" in part.env
    assert "ANTHROPIC_API_KEY" not in part.env
    assert part.env["DISABLE_AUTO_COMPACT"] == "1"
    assert part.argv[part.argv.index("--max-turns") + 1] == "4"
    assert casts.version_of(cast.version(sys.executable), os.environ)


def test_its_summaries_are_told_from_its_work() -> None:
    from segue.drill.rehearsal import claude_form, codex_form

    kind = casts.find("rehearsal").kind
    for wire, said in (("anthropic", claude_form.SUMMARISE), ("responses", codex_form.SUMMARISE)):
        ask = Ask(wire=wire, model="m", parts=(Part("user", "do it"), Part("user", said)))
        assert kind(ask) is Kind.COMPACTION
        assert kind(Ask(wire=wire, model="m", parts=ask.parts[:1])) is Kind.MAIN


def test_it_needs_the_standard_library_only() -> None:
    code = (
        "import sys\n"
        "from segue.drill.rehearsal import claude_form, codex_form\n"
        "import segue.drill.rehearsal.__main__\n"
        "print([m for m in sys.modules if m in ('msgspec', 'click', 're2', 'h11', 'asyncio')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
