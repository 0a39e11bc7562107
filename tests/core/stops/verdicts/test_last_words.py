"""Records whose own fields need the words beside them: denied tools, refusals, crashed tools."""

import json

import pytest

from segue import classify

RESULT = {"type": "result", "subtype": "success", "is_error": False, "session_id": "s"}
DENIED = [{"tool_name": "Bash", "tool_input": {"command": "make"}}]


def result(words: str, denied: list[dict[str, object]]) -> str:
    return json.dumps({**RESULT, "result": words, "permission_denials": denied})


@pytest.mark.parametrize(
    ("words", "denied", "wanted"),
    [
        ("I need permission to run make. Please allow it.", DENIED, "needs_user"),
        ("", DENIED, "needs_user"),
        ("I could not run make, so I compiled by hand. All tests pass.", DENIED, "completed"),
        ("The permissions page is finished.", [], "completed"),
    ],
)
def test_a_denied_tool_needs_the_user_where_the_last_words_say_so(
    words: str, denied: list[dict[str, object]], wanted: str
) -> None:
    stop = classify(result(words, denied), agent="claude", channel="stream-json", exit_code=0)
    assert stop.reason.value == wanted


@pytest.mark.parametrize(("refusal", "wanted"), [("I cannot.", "refusal"), (None, "unknown")])
def test_an_answer_that_is_only_a_refusal_is_one(refusal: str | None, wanted: str) -> None:
    message = {"content": None, "refusal": refusal}
    body = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]})
    assert classify(body, channel="http-body").reason.value == wanted


@pytest.mark.parametrize(
    ("channel", "wanted"), [("stderr", "crash"), ("transcript-record", "unknown")]
)
def test_what_crashed_in_a_conversation_is_not_the_agent(channel: str, wanted: str) -> None:
    text = "thread 'main' has overflowed its stack\nfatal runtime error: stack overflow, aborting"
    assert classify(text, channel=channel).reason.value == wanted  # type: ignore[arg-type]
