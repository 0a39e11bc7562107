"""What a leg's session file says about its size."""

import json
from pathlib import Path

import pytest

from segue.agents.gemini.drive import DRIVE
from segue.agents.gemini.profile import PROFILE
from segue.runs.legs.trackers.session_file import SessionFileTracker


def reply(number: int, used: int) -> dict[str, object]:
    tokens = {"input": used, "output": 0, "cached": 0, "thoughts": 0, "tool": 0, "total": used}
    content = f"Step {number}."
    return {"id": str(number), "type": "gemini", "content": content, "tokens": tokens}


@pytest.mark.parametrize(("before_bytes", "expected"), [(0, 222_000), (7, 0)])
def test_a_new_session_began_with_the_size_of_its_first_reply(
    before_bytes: int, expected: int, tmp_path: Path
) -> None:
    file = tmp_path / "session.jsonl"
    records = [{"sessionId": "s1", "kind": "main"}, reply(1, 222_000), reply(2, 412_000)]
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    tracker = SessionFileTracker(DRIVE, PROFILE, env={}, cwd="/p", file_from=before_bytes)
    assert tracker.opening_tokens() == 0  # where it is, is not known yet
    tracker.path = str(file)
    assert tracker.opening_tokens() == expected
    file.unlink()
    assert tracker.opening_tokens() == expected
