"""Verdicts on a full context window, and the settings of `Policy` that they depend on."""

import json
import logging
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from segue import Policy, Stop, StopReason, classify
from segue.core.sessions.windows import KNOWN_WINDOWS, window_tokens
from segue.core.stops.types import ContextExhaustionInfo, RateLimitInfo, Tokens

ENDINGS = Path(__file__).parents[3] / "data" / "endings"
NOW = 1_790_000_000.0


def verdict(source: str | bytes | Path | None = None, **more: Any) -> Stop:
    return classify(source, now=NOW, tz=UTC, **more)


def stream(used: int, *after: dict[str, Any], model: str = "claude-sonnet-4-5") -> str:
    """A claude stream whose last reply left `used` tokens in the window."""
    usage = {"input_tokens": 10, "cache_read_input_tokens": used - 11, "output_tokens": 1}
    message = {
        "id": "msg_1",
        "model": model,
        "content": [{"type": "text", "text": "Reading on."}],
        "usage": usage,
    }
    opened = {"type": "system", "subtype": "init", "model": model, "apiKeySource": "none"}
    said = {"type": "assistant", "message": message, "parent_tool_use_id": None}
    return "\n".join(json.dumps(record) for record in (opened, said, *after))


RESULT = {"type": "result", "total_cost_usd": 0.1, "num_turns": 2, "session_id": "s1"}
DONE = {**RESULT, "subtype": "success", "is_error": False, "result": "All done."}


# AC1: "context_length_exceeded" in a session file or log


def test_ac1_context_length_exceeded_in_a_session_output_is_context_exhausted() -> None:
    stop = verdict(ENDINGS / "context_exceeded.txt")
    assert stop.reason is StopReason.CONTEXT_EXHAUSTED
    assert stop.resume == "new_session"
    assert stop.evidence[0].where == "tui:6"


def test_ac1_the_info_carries_usage_window_and_message() -> None:
    stop = verdict(ENDINGS / "context_exceeded.txt")
    assert isinstance(stop.details, ContextExhaustionInfo)
    assert stop.details.used_tokens == 131_347
    assert stop.details.window_tokens == 128_000
    assert stop.details.percent == 102.6
    assert "maximum context length" in stop.details.message


def test_ac1_a_log_line_with_the_code_is_context_exhausted() -> None:
    line = "2026-01-01T10:00:00Z ERROR request failed: code=context_length_exceeded"
    assert verdict(line, channel="log").reason is StopReason.CONTEXT_EXHAUSTED


def test_ac1_token_limit_file_gives_both_numbers_of_the_sentence() -> None:
    stop = verdict(ENDINGS / "token_limit.txt", exit_code=1)
    assert stop.reason is StopReason.CONTEXT_EXHAUSTED
    assert stop.tokens == Tokens(32_531, 32_000)


@pytest.mark.parametrize(
    "words",
    [
        "context_length_exceeded",
        "context length exceeded",
        "maximum context length exceeded",
        "token limit exceeded",
        "conversation too long",
        "context window full",
        "context window exceeded",
        "context window limit reached",
        "prompt is too long",
    ],
)
def test_ac1_each_pattern_of_the_seed_is_context_exhausted_where_the_agent_speaks(
    words: str,
) -> None:
    assert verdict(f"Error: {words}").reason is StopReason.CONTEXT_EXHAUSTED


@pytest.mark.parametrize("words", ["token_limit_exceeded", "context window limit"])
def test_ac1_the_seeds_other_spellings_are_context_exhausted(words: str) -> None:
    assert verdict(f"Error: {words}").reason is StopReason.CONTEXT_EXHAUSTED


def test_ac1_max_tokens_reached_is_an_error() -> None:
    """Corrected: on real agents `max_tokens` is the cap of one answer, not the window."""
    assert verdict("Error: max tokens reached").reason is StopReason.ERROR


@pytest.mark.parametrize(
    "text",
    [
        "I added a branch for context_length_exceeded to the client.",
        "● Read(client.py)\n  ⎿  raise ApiError('context_length_exceeded')",
        "+    if code == 'context_length_exceeded':",
        "> what does context_length_exceeded mean?",
    ],
)
def test_ac1_prose_files_diffs_and_prompts_that_name_the_code_are_not_exhaustion(text: str) -> None:
    """Corrected: the seed greps the whole tail; here the agent itself must speak as an error."""
    stop = verdict(text, exit_code=0)
    assert stop.reason is not StopReason.CONTEXT_EXHAUSTED
    assert StopReason.CONTEXT_EXHAUSTED not in stop.also


# AC2: token count over the threshold


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("used 170000 of 200000 tokens", Tokens(170_000, 200_000)),
        ("Token usage: 163153/200000; 36847 remaining", Tokens(163_153, 200_000)),
        ("Context: 91.6% (183,153/200,000 tokens)", Tokens(183_153, 200_000)),
    ],
)
def test_ac2_usage_over_the_threshold_is_reported_as_a_risk(text: str, tokens: Tokens) -> None:
    stop = verdict(text)
    assert stop.tokens == tokens
    assert stop.context_risk


def test_ac2_a_bare_count_of_tokens_used_is_measured_against_the_default_window() -> None:
    stop = verdict("170000 tokens used")
    assert stop.tokens is not None
    assert stop.tokens.used == 170_000
    assert stop.context_risk
    assert not verdict("150000 tokens used").context_risk


def test_ac2_the_last_reading_of_a_text_counts() -> None:
    text = (
        "Token usage: 190000/200000; 10000 remaining\nToken usage: 40000/200000; 160000 remaining"
    )
    stop = verdict(text)
    assert stop.tokens == Tokens(40_000, 200_000)
    assert not stop.context_risk


@pytest.mark.parametrize(("used", "risk"), [(159_999, False), (160_000, True), (160_001, True)])
def test_ac2_the_mark_is_80_percent_and_inclusive(used: int, risk: bool) -> None:
    """Corrected: the seed says over 80%, segue's marks are all inclusive."""
    assert verdict(f"used {used} of 200000 tokens").context_risk is risk


def test_ac2_a_risk_does_not_overrule_a_completed_turn() -> None:
    """Corrected: the seed makes every stop over the threshold an exhaustion."""
    stop = verdict(stream(190_000, DONE), exit_code=0)
    assert stop.reason is StopReason.COMPLETED
    assert stop.context_risk


def test_ac2_a_risk_is_the_verdict_when_nothing_else_explains_the_stop() -> None:
    stop = verdict(stream(190_000), exit_code=0)
    assert stop.reason is StopReason.CONTEXT_EXHAUSTED
    assert stop.confidence < verdict("Error: context_length_exceeded").confidence
    assert not Policy().may_resume_alone(stop)
    assert verdict(stream(100_000), exit_code=0).reason is StopReason.UNKNOWN


def test_ac2_a_risk_is_the_verdict_after_a_bare_exit_code_1() -> None:
    assert verdict(stream(190_000), exit_code=1).reason is StopReason.CONTEXT_EXHAUSTED


def test_ac2_defaults_are_the_seeds() -> None:
    policy = Policy()
    assert policy.context_risk_mark == 0.80
    assert policy.default_window_tokens == 200_000
    assert policy.tail_lines == 100
    assert policy.unknown_reset_wait_s == 30.0
    assert policy.known_windows == {}


def test_ac2_context_risk_mark_moves_the_mark() -> None:
    text = "used 100000 of 200000 tokens"
    assert not verdict(text).context_risk
    assert verdict(text, policy=Policy(context_risk_mark=0.5)).context_risk
    assert not verdict(
        "used 190000 of 200000 tokens", policy=Policy(context_risk_mark=0.96)
    ).context_risk


def test_ac2_default_window_tokens_is_used_when_nobody_states_a_window() -> None:
    text = stream(9_000, DONE, model="my-own-model")
    assert not verdict(text, agent="claude").context_risk
    assert verdict(text, agent="claude", policy=Policy(default_window_tokens=10_000)).context_risk


def test_ac2_a_stated_window_goes_before_the_default() -> None:
    policy = Policy(default_window_tokens=10_000)
    assert not verdict("used 9000 of 200000 tokens", policy=policy).context_risk


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("claude-3-5-sonnet", 200_000),
        ("claude-3-opus", 200_000),
        ("gpt-4-turbo", 128_000),
        ("gpt-4", 8_192),
    ],
)
def test_ac2_the_seeds_table_of_windows_is_known(model: str, tokens: int) -> None:
    assert KNOWN_WINDOWS[model] == tokens
    assert window_tokens(model) == tokens


def test_ac2_known_windows_of_the_user_decide_the_risk() -> None:
    text = stream(9_000, DONE, model="claude-sonnet-4-5")
    assert verdict(text, policy=Policy(known_windows={"claude-sonnet-4-5": 10_000})).context_risk


def test_ac2_the_models_own_window_decides_the_risk_before_the_default() -> None:
    text = stream(170_000, DONE, model="claude-sonnet-4-5[1m]")
    assert not verdict(text).context_risk


# AC3: a completed workflow


def test_ac3_all_steps_done_in_the_front_matter_is_completed_not_exhausted() -> None:
    stop = verdict(ENDINGS / "session_complete.md")
    assert stop.reason is StopReason.COMPLETED
    assert stop.resume == "none"


@pytest.mark.parametrize("status", ["complete", "completed", "done", "Complete", "'finished'"])
def test_ac3_a_status_that_says_so_is_completed(status: str) -> None:
    text = f"---\nstatus: {status}\n---\n"
    assert verdict(transcript=text).reason is StopReason.COMPLETED
    assert verdict(text).reason is StopReason.UNKNOWN  # any document may have a status


def test_ac3_last_step_of_many_is_not_completed_and_the_error_counts() -> None:
    """Corrected: `lastStep` is the last executed step, so [1, 2, 3] of 12 is unfinished."""
    assert verdict(ENDINGS / "session_in_progress.md").reason is StopReason.CONTEXT_EXHAUSTED


def test_ac3_an_unfinished_workflow_without_an_error_is_unknown() -> None:
    text = "---\nstepsCompleted: [1, 2, 3]\nlastStep: 3\ntotalSteps: 12\n---\nNotes.\n"
    assert verdict(text).reason is StopReason.UNKNOWN


def test_ac3_a_session_file_beside_the_output_completes_it_too() -> None:
    stop = verdict(stdout="Saved.", transcript=ENDINGS / "session_complete.md", exit_code=0)
    assert stop.reason is StopReason.COMPLETED
    assert any(e.where == "transcript:1" for e in stop.evidence)


def test_ac3_evidence_in_the_body_has_the_line_number_of_the_file() -> None:
    assert verdict(ENDINGS / "session_in_progress.md").evidence[0].where == "transcript:9"


# AC4: truncated context, reset conversation


@pytest.mark.parametrize(
    "text",
    [
        "Error: conversation was reset because the context window is full",
        "Error: Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)",
        "Compaction exhausted: context still exceeds model limits after 3 attempts",
    ],
)
def test_ac4_a_reset_or_truncation_that_failed_is_context_exhausted(text: str) -> None:
    assert verdict(text).reason is StopReason.CONTEXT_EXHAUSTED


@pytest.mark.parametrize(
    ("text", "channel"),
    [
        ("Error: context was truncated", "stdout"),
        ("Error: context truncated, conversation reset", "stdout"),
        ("2026-01-01T10:00:00Z WARN context truncated: oldest messages dropped", "log"),
        ("2026-01-01T10:00:00Z ERROR conversation reset: context window", "log"),
    ],
)
def test_ac4_a_log_whose_last_word_is_truncation_or_reset_is_context_exhausted(
    text: str, channel: str
) -> None:
    assert verdict(text, channel=channel).reason is StopReason.CONTEXT_EXHAUSTED


@pytest.mark.parametrize(
    "text",
    [
        "Conversation was compacted\n\nAll tests pass now.",
        "Context limit reached. Compacting to continue\n\nAll tests pass now.",
        "> /clear\n\nAll tests pass now.",
        "● I reset the conversation state in the store and truncated the log.",
    ],
)
def test_ac4_a_successful_compaction_or_the_users_clear_is_not_exhaustion(text: str) -> None:
    """Corrected: "truncated" or "reset" counts only if nothing went on after it."""
    stop = verdict(text, exit_code=0)
    assert stop.reason is StopReason.COMPLETED
    assert StopReason.CONTEXT_EXHAUSTED not in stop.also


def test_ac4_a_compaction_that_was_begun_and_never_ended_is_context_exhausted() -> None:
    begun = {"type": "system", "subtype": "status", "status": "compacting"}
    done = {"type": "system", "subtype": "compact_boundary"}
    assert verdict(stream(50_000, begun), exit_code=0).reason is StopReason.CONTEXT_EXHAUSTED
    assert verdict(stream(50_000, begun, done), exit_code=0).reason is StopReason.UNKNOWN


# AC5: rate limit before context


def test_ac5_rate_limit_wins_and_context_is_kept_as_secondary() -> None:
    stop = verdict(ENDINGS / "rate_limit_and_context.txt", exit_code=1)
    assert stop.reason is StopReason.RATE_LIMIT
    assert stop.also == (StopReason.CONTEXT_EXHAUSTED,)
    assert stop.resume == "same_session"
    assert stop.retry_after_s == 30.0
    assert isinstance(stop.details, RateLimitInfo)


def test_ac5_rate_limit_wins_across_output_and_errors_of_one_rank() -> None:
    for stdout, stderr in (
        ("Error: Prompt is too long", "Error: Rate limit reached"),
        ("Error: Rate limit reached", "Error: Prompt is too long"),
    ):
        stop = verdict(stdout=stdout, stderr=stderr)
        assert stop.reason is StopReason.RATE_LIMIT
        assert StopReason.CONTEXT_EXHAUSTED in stop.also


def test_ac5_a_structured_exhaustion_outranks_a_rate_limit_in_text() -> None:
    """Rank comes before the priority of reasons: the agent's own closing record knows best."""
    full = {**RESULT, "subtype": "success", "is_error": True, "terminal_reason": "prompt_too_long"}
    stop = verdict(stdout=stream(190_000, full), stderr="Error: Rate limit reached", exit_code=1)
    assert stop.reason is StopReason.CONTEXT_EXHAUSTED
    assert stop.also == (StopReason.RATE_LIMIT,)


def test_ac5_an_older_context_error_above_a_rate_limit_is_kept_as_secondary() -> None:
    stop = verdict("Error: context_length_exceeded\n\nError: Rate limit reached")
    assert stop.reason is StopReason.RATE_LIMIT
    assert StopReason.CONTEXT_EXHAUSTED in stop.also


def test_ac5_a_rate_limit_above_a_context_error_is_at_least_kept_as_secondary() -> None:
    stop = verdict("Error: Rate limit reached\n\nError: context_length_exceeded")
    assert StopReason.RATE_LIMIT in (stop.reason, *stop.also)


def test_ac5_priorities_are_the_seeds_in_order() -> None:
    order = [
        StopReason.RATE_LIMIT,
        StopReason.COMPLETED,
        StopReason.CONTEXT_EXHAUSTED,
        StopReason.USER_EXIT,
        StopReason.UNKNOWN,
    ]
    assert sorted(order, key=lambda reason: reason.priority) == order


# AC6: errors while parsing


def test_ac6_a_missing_file_is_logged_and_comes_back_as_unknown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "segue"):
        stop = verdict(tmp_path / "gone.txt")
    assert (stop.reason, stop.confidence, stop.resume) == (StopReason.UNKNOWN, 0.0, "none")
    assert "no such file" in stop.evidence[0].quote
    assert "no such file" in caplog.text


def test_ac6_a_folder_is_not_a_crash_and_never_resumed(tmp_path: Path) -> None:
    stop = verdict(tmp_path)
    assert (stop.reason, stop.confidence, stop.resume) == (StopReason.UNKNOWN, 0.0, "none")


def test_ac6_a_folder_is_named_as_such_with_its_path(tmp_path: Path) -> None:
    quote = verdict(tmp_path).evidence[0].quote
    assert str(tmp_path) in quote
    assert "is a folder" in quote


@pytest.mark.parametrize(
    "head",
    [
        "---\nstepsCompleted: [1, 2\nlastStep: : :\n---\n",
        "---\nno end of the front matter\n",
        "{not json at all}\n",
        '{"type": "result", "subtype"\n',
        "\x00\x01\x02\n\n",
    ],
)
def test_ac6_malformed_content_falls_through_to_the_other_patterns(head: str) -> None:
    stop = verdict(f"{head}\nError: context_length_exceeded")
    assert stop.reason is StopReason.CONTEXT_EXHAUSTED


def test_ac6_bytes_that_are_not_utf8_fall_through_too() -> None:
    assert verdict(b"\xc3\x28 \xff\nError: context_length_exceeded\n").reason is (
        StopReason.CONTEXT_EXHAUSTED
    )


def test_ac6_wrong_arguments_do_not_crash() -> None:
    assert classify(5).confidence == 0.0  # type: ignore[arg-type]
    assert verdict("text", ended_by="nobody").confidence == 0.0


@settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(st.one_of(st.binary(max_size=400), st.text(max_size=400)), st.integers(-300, 300))
def test_ac6_no_input_raises_and_every_verdict_is_sound(given: bytes | str, code: int) -> None:
    stop = verdict(given, exit_code=code)
    assert 0.0 < stop.confidence <= 1.0
    assert stop.remediation


# Configuration


def test_tail_lines_says_how_far_back_text_is_read() -> None:
    text = "\n".join(["Error: context_length_exceeded", "", *["fine"] * 98])
    assert verdict(text).reason is StopReason.CONTEXT_EXHAUSTED
    assert verdict(text + "\nfine").reason is StopReason.UNKNOWN
    assert verdict(text + "\nfine", policy=Policy(tail_lines=101)).reason is (
        StopReason.CONTEXT_EXHAUSTED
    )
    assert verdict(text, policy=Policy(tail_lines=50)).reason is StopReason.UNKNOWN


def test_tail_lines_bounds_readings_too() -> None:
    text = "\n".join(["used 170000 of 200000 tokens", *["fine"] * 10])
    assert verdict(text).context_risk
    assert not verdict(text, policy=Policy(tail_lines=10)).context_risk
