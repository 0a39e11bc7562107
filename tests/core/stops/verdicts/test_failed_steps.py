"""A failed step is a timeout, a full context or a general error, and the verdict says what to do:
`Stop` has the reason, tokens, details and remediation as data."""

import json
from datetime import UTC
from typing import Any

import pytest

from segue import Stop, StopReason, classify
from segue.core.policy import PRESETS
from segue.core.stops.remedies import remedy
from segue.core.stops.types import ContextExhaustionInfo, FailureInfo, Tokens

JSON = dict[str, Any]
NOW = 1_790_000_000.0
MODEL = "claude-sonnet-4-5"
INIT = {"type": "system", "subtype": "init", "model": MODEL, "apiKeySource": "none"}
REPLY = {
    "type": "assistant",
    "parent_tool_use_id": None,
    "message": {
        "id": "msg_1",
        "model": MODEL,
        "content": [{"type": "text", "text": "Reading on."}],
        "usage": {
            "input_tokens": 10,
            "cache_creation_input_tokens": 1_000,
            "cache_read_input_tokens": 188_980,
            "output_tokens": 10,
        },
    },
}
USED = 190_000


def result(**fields: Any) -> JSON:
    window = {MODEL: {"contextWindow": 200_000}}
    base = {"type": "result", "is_error": True, "total_cost_usd": 0.1, "num_turns": 3}
    return {**base, "modelUsage": window, **fields}


def verdict(*records: JSON, **more: Any) -> Stop:
    text = "\n".join(json.dumps(record) for record in (INIT, REPLY, *records))
    return classify(text, now=NOW, tz=UTC, **more)


# The three classes


@pytest.mark.parametrize("subtype", ["error_during_execution", "success"])
@pytest.mark.parametrize(
    "said",
    [
        "Prompt is too long",
        "prompt is too long",
        "API Error: 400 prompt is too long: 210883 tokens > 199999 maximum",
        "Claude Code failed: Prompt is too long",
    ],
)
def test_prompt_is_too_long_in_the_result_text_is_context_exhausted(
    subtype: str, said: str
) -> None:
    """Corrected: claude says subtype "success" for it; `is_error` and the text decide."""
    stop = verdict(result(subtype=subtype, result=said), exit_code=1)
    assert stop.reason is StopReason.CONTEXT_EXHAUSTED
    assert stop.resume == "new_session"


@pytest.mark.parametrize(
    "said", ["Request timed out", "API Error: Request timed out.", "context deadline exceeded"]
)
def test_a_time_out_in_the_result_text_is_timeout(said: str) -> None:
    """Go's "context deadline exceeded" is not a full context."""
    stop = verdict(result(subtype="error_during_execution", result=said), exit_code=1)
    assert stop.reason is StopReason.TIMEOUT
    assert stop.resume == "same_session"


@pytest.mark.parametrize(
    "fields",
    [
        {"subtype": "error_during_execution"},
        {"subtype": "error_during_execution", "errors": ["TypeError: x is undefined"]},
        {"subtype": "error_of_a_later_version"},
        {},
    ],
)
def test_a_failed_result_that_names_no_cause_is_a_general_error(fields: JSON) -> None:
    stop = verdict(result(**fields), exit_code=1)
    assert stop.reason is StopReason.ERROR
    assert stop.resume == "none"


def test_error_max_turns_is_max_turns_and_no_exhaustion() -> None:
    """Corrected: the seed counts it among the signs of a full context."""
    stop = verdict(result(subtype="error_max_turns"), exit_code=1)
    assert stop.reason is StopReason.MAX_TURNS
    assert StopReason.CONTEXT_EXHAUSTED not in stop.also
    assert stop.resume == "none"


def test_success_is_completed_even_if_the_answer_speaks_of_long_prompts() -> None:
    done = result(subtype="success", is_error=False, result="Error: Prompt is too long is handled.")
    assert verdict(done, exit_code=0).reason is StopReason.COMPLETED


def test_the_exit_code_does_not_decide_between_the_classes() -> None:
    for code in (None, 0, 1, 137):
        full = result(subtype="success", result="Prompt is too long")
        assert verdict(full, exit_code=code).reason is StopReason.CONTEXT_EXHAUSTED


# A timeout by the driver


@pytest.mark.parametrize("code", [143, -15, 137, -9, None])
def test_a_leg_that_segue_ended_without_a_result_is_timeout(code: int | None) -> None:
    stop = verdict(exit_code=code, ended_by="segue")
    assert stop.reason is StopReason.TIMEOUT
    assert stop.tokens == Tokens(USED, 200_000)


def test_a_result_flushed_after_sigterm_beats_the_timeout() -> None:
    full = result(subtype="success", result="Prompt is too long")
    stop = verdict(full, exit_code=143, ended_by="segue")
    assert stop.reason is StopReason.CONTEXT_EXHAUSTED
    assert stop.also == (StopReason.TIMEOUT,)


def test_a_flushed_failure_without_a_cause_does_not_hide_the_timeout() -> None:
    stop = verdict(result(subtype="error_during_execution"), exit_code=143, ended_by="segue")
    assert stop.reason is StopReason.TIMEOUT


def test_timeout_1_kills_with_124() -> None:
    assert verdict(exit_code=124).reason is StopReason.TIMEOUT


# Remediation and token data


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"subtype": "success", "result": "Prompt is too long"}, "new session with a checkpoint"),
        ({"subtype": "success", "result": "Request timed out"}, "time limit"),
        ({"subtype": "error_during_execution"}, "Read the error"),
        ({"subtype": "error_max_turns"}, "turn limit"),
    ],
)
def test_each_class_says_what_to_do(fields: JSON, words: str) -> None:
    assert words in verdict(result(**fields), exit_code=1).remediation


def test_every_reason_has_a_remediation_of_its_own() -> None:
    assert len({remedy(reason) for reason in StopReason}) == len(StopReason)
    assert all(remedy(reason).endswith(".") for reason in StopReason)


def test_remediation_for_a_full_window_names_the_window() -> None:
    stop = verdict(result(subtype="success", result="Prompt is too long"), exit_code=1)
    assert "200,000 tokens" in stop.remediation


def test_remediation_for_a_models_limit_names_another_model() -> None:
    assert "another model" in remedy(StopReason.RATE_LIMIT, scope="model")
    assert remedy(StopReason.RATE_LIMIT, scope="model") != remedy(StopReason.RATE_LIMIT)


@pytest.mark.parametrize("said", ["Prompt is too long", "Request timed out", "boom"])
def test_token_data_is_kept_on_every_failure(said: str) -> None:
    stop = verdict(result(subtype="error_during_execution", result=said), exit_code=1)
    assert stop.tokens == Tokens(USED, 200_000)


def test_numbers_in_the_message_go_before_the_last_reply() -> None:
    said = "prompt is too long: 210883 tokens > 199999 maximum"
    stop = verdict(result(subtype="success", result=said), exit_code=1)
    assert stop.details == ContextExhaustionInfo(
        used_tokens=210_883, window_tokens=199_999, percent=105.4, message=said
    )


def test_a_general_error_carries_its_code_message_and_exit_code_as_data() -> None:
    failed = result(subtype="error_during_execution", errors=["boom: it broke"])
    assert verdict(failed, exit_code=1).details == FailureInfo(
        message="boom: it broke", code="error_during_execution", exit_code=1
    )


def test_a_summed_usage_of_the_result_is_never_the_context_size() -> None:
    summed = result(subtype="error_during_execution", usage={"input_tokens": 5_000_000})
    assert verdict(summed, exit_code=1).tokens == Tokens(USED, 200_000)


# The lowered mark


def test_the_seeds_70_percent_is_the_early_preset() -> None:
    early = PRESETS["early"]
    assert (early.soft_mark, early.hard_mark) == (0.65, 0.70)


def test_an_interrupt_that_segue_itself_sent_is_a_timeout_and_no_user_exit() -> None:
    result = {
        "type": "result",
        "subtype": "error_during_execution",
        "is_error": True,
        "terminal_reason": "aborted_streaming",
        "num_turns": 1,
        "session_id": "s",
    }
    text = json.dumps(result)
    assert classify(text, agent="claude", exit_code=0).reason is StopReason.USER_EXIT
    ours = classify(text, agent="claude", exit_code=0, ended_by="segue")
    assert ours.reason is StopReason.TIMEOUT
