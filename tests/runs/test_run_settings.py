"""Settings do what docs/config.md says, through `segue run` and the other commands."""

from pathlib import Path
from typing import Any

import pytest
from support.running import QUICK, Staged, stage
from support.runs.full_windows import END, LATE, rule, scenario
from support.runs.progress import CLAUDE_END, play

POINTS = "\n".join(f"- point {number} of what the next session must know" for number in range(400))
LONG = f"<checkpoint>\n## Goal\nThe job.\n## Remaining Tasks\nOnly the end.\n\n{POINTS}\n"


def kept(s: Staged) -> dict[str, Any]:
    (run_id,) = s.run_ids()
    with s.store() as store:
        run = store.run(run_id)
        assert run is not None
        found = store.checkpoint(run_id, run.checkpoint)
    assert found is not None
    return found


@pytest.mark.parametrize(("tokens", "words"), [(200, "100"), (3_000, "1,500")])
def test_checkpoint_tokens_caps_what_is_asked_for_and_what_is_handed_on(
    tmp_path: Path, tokens: int, words: str
) -> None:
    place = scenario(tmp_path, LATE, END, rule(text=LONG + "</checkpoint>"))
    with stage(place, within=tmp_path, policy={**QUICK, "checkpoint_tokens": tokens}) as s:
        ended = s.run("--json")
        assert ended.code == 0, ended.stderr
        told = kept(s)["told"]
        assert told["goal"] == "The job."
        assert "Only the end." in told["raw"]
        assert len(told["raw"]) <= tokens * 4 + 100  # and a word about what is missing
        (run_id,) = s.run_ids()
        given = (s.leg(run_id, 2) / "prompt.md").read_text()
        assert given.count("- point ") < tokens * 4 / 40
        files = [file for file in s.root.rglob("*.jsonl") if file.is_file()]
        asked = [file for file in files if f"of at most {words} words" in file.read_text()]
        assert asked, "the agent is told how much it may write"


def test_an_answer_that_continues_beyond_the_cap_is_not_waited_for(tmp_path: Path) -> None:
    """Without an end of its block, and then it hangs: what is there is enough."""
    place = scenario(tmp_path, LATE, END, rule(text=LONG, command="sleep 300"))
    policy = {**QUICK, "checkpoint_tokens": 200, "checkpoint_s": 3_000.0, "stall_s": 3_000.0}
    with stage(place, within=tmp_path, policy=policy) as s:
        ended = s.run("--json")
        assert ended.code == 0, ended.stderr
        assert kept(s)["told"]["goal"] == "The job."


def test_the_wait_that_classify_tells_is_the_one_that_a_run_waits(tmp_path: Path) -> None:
    """A limit that states no reset."""
    said = "API Error: Request rejected (429) · this may be a temporary issue"
    refused = {"type": "assistant", "error": "rate_limit", "isApiErrorMessage": True}
    message = {"id": "m", "model": "<synthetic>", "content": [{"type": "text", "text": said}]}
    over = {"type": "result", "subtype": "success", "is_error": True, "api_error_status": 429}
    limited = [CLAUDE_END[0], {**refused, "message": message}, {**over, "result": said}]
    policy = {**QUICK, "unknown_reset_wait_s": 2.0, "wait_jitter": 0.0}
    with stage("success", within=tmp_path) as s:
        ended = play(s, "claude", [limited, CLAUDE_END], policy)
        assert ended.code == 0, ended.stderr
        waits = [
            d["wait"]["until"] - event["at"]
            for event in ended.events
            for d in event["decisions"]
            if d["decision"] == "waituntil"
        ]
        assert [round(wait, 1) for wait in waits] == [2.0]
        text = tmp_path / "said.txt"
        text.write_text(f"{said}\n")
        shown = s.segue("classify", "--agent", "claude", str(text))
        assert "no reset time was stated: try in 2 s," in shown.stdout, shown.stdout


def test_adaptive_marks_follow_how_the_last_handoffs_went(tmp_path: Path) -> None:
    """A request that was read above 90% of the window: from then on, in this run and in the
    agent's next one, more of the turns are looked ahead for."""
    read_late = "usage = {input_tokens = 9, cache_read_tokens = 930000, output_tokens = 1}\n"
    place = scenario(tmp_path, LATE, END, rule(text=LONG + "</checkpoint>") + read_late)
    with stage(place, within=tmp_path, policy={**QUICK, "adaptive": True}) as s:
        ended = s.run()
        assert ended.code == 0, ended.stderr
        assert "adaptive: now looking ahead for 93.8% of turns" in ended.stderr
        s.run()
        with s.store() as store:
            assert [run.quantile for run in store.runs()] == [0.938, 0.938]
