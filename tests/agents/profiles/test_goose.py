"""Goose's stream."""

from typing import Any

from segue.agents.contracts.profile import Record
from segue.agents.goose import profile as goose
from segue.core.stops.events import Ended, Failure, Reply


def message(text: str) -> dict[str, Any]:
    return {
        "type": "message",
        "message": {
            "role": "assistant",
            "content": [{"type": "text", "text": text}],
            "metadata": {"agentVisible": True},
        },
    }


def events(*records: dict[str, Any]) -> list[Any]:
    return list(goose.parse([Record(data) for data in records]))


def test_complete_after_a_reply_is_a_good_end() -> None:
    reply, end = events(message("All done."), {"type": "complete", "total_tokens": 9})
    assert isinstance(reply, Reply)
    assert isinstance(end, Ended)
    assert end.ok


def test_complete_after_an_error_in_the_models_mouth_is_not() -> None:
    said = "Ran into this error: Request failed: credit balance is too low"
    failure, end = events(message(said), {"type": "complete", "total_tokens": 9})
    assert isinstance(failure, Failure)
    assert failure.message == said
    assert not end.ok


def test_its_records_are_known_and_others_are_not() -> None:
    assert goose.knows(message("x"))
    assert not goose.knows({"type": "message", "message": {"role": "assistant"}})
    assert not goose.knows({"type": "complete"})
