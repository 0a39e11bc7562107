"""Through `segue run`, a full window is a boundary between sessions, not the end of the work. The
rules themselves are tested in test_machine, test_marks and test_checkpoint_promises.

The scripted model reports the usage that a test wants, to the token, in a window of a million:
there claude's own limit (967,000) lies above the 90% mark.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.running import Ended, Staged, stage
from support.runs.full_windows import END, LATE, SMALL, WINDOW, rule, scenario, turn

from segue.core.sessions.reading import Reading

GOOD = "<checkpoint>\n## Goal\nThe job.\n## Remaining Tasks\nOnly the end.\n</checkpoint>"


def asked(ended: Ended) -> list[int]:
    """The legs that were asked for a checkpoint."""
    found = [d for event in ended.events for d in event["decisions"]]
    return [d["leg"] for d in found if d["decision"] == "ask"]


def started(ended: Ended) -> list[dict[str, Any]]:
    """The decisions to start a leg."""
    found = [d for event in ended.events for d in event["decisions"]]
    return [d for d in found if d["decision"] == "startleg"]


def told(s: Staged, leg: int) -> str:
    """What a leg was told."""
    return (s.leg(s.run_ids()[0], leg) / "prompt.md").read_text()


# The usage ratio, and the threshold


@pytest.mark.parametrize("window", [200_000, WINDOW])
@pytest.mark.parametrize(("percent", "ratio"), [(0, 0.0), (50, 0.5), (100, 1.0)])
def test_usage_ratio_at_0_50_and_100_percent(percent: int, ratio: float, window: int) -> None:
    used = window * percent // 100
    reading = Reading(cache_read_tokens=used // 2, input_tokens=used - used // 2)
    whole = Reading(input_tokens=used, window_tokens=window)
    assert whole.fraction == ratio
    assert Reading(input_tokens=0, window_tokens=0).fraction == 0.0, "no window, no pressure"
    assert reading.used_tokens == used


@pytest.mark.parametrize(
    ("percent", "hands_over"), [(0, False), (50, False), (89, False), (90, True), (91, True)]
)
def test_threshold_at_89_90_and_91_percent_decides_whether_a_new_session_begins(
    percent: int, hands_over: bool, tmp_path: Path
) -> None:
    used = WINDOW * percent // 100
    place = scenario(tmp_path, turn(used, "sleep 5" if hands_over else "sleep 0.5"), END)
    with stage(place, within=tmp_path) as s:
        ended = s.run("--json", "--policy", "continuous")
        assert ended.code == 0, ended.stderr
        reads = [e["data"]["reading"] for e in ended.events if e["kind"] == "read"]
        if percent:
            sizes = [(r["input_tokens"], r["window_tokens"]) for r in reads]
            assert (used, WINDOW) in sizes, "the size is the one that was reported"
        assert asked(ended) == ([1] if hands_over else [])
        at_once = [d["now"] for e in ended.events for d in e["decisions"] if d["decision"] == "ask"]
        assert all(at_once), "not only at the next boundary"
        assert len(started(ended)) == (2 if hands_over else 1)


def test_one_token_below_90_percent_is_below_it(tmp_path: Path) -> None:
    with stage(scenario(tmp_path, turn(899_999, "sleep 0.5"), END), within=tmp_path) as s:
        ended = s.run("--json", "--policy", "continuous")
        assert ended.code == 0, ended.stderr
        assert asked(ended) == []


def test_threshold_above_1_disables_handoffs(tmp_path: Path) -> None:
    """A mark of 1.1 never triggers, which switches handoffs off."""
    with stage(scenario(tmp_path, turn(965_000, "sleep 0.5"), END), within=tmp_path) as s:
        ended = s.run("--json", "--set", "hard_mark=1.1", "--set", "soft_mark=1.1")
        assert ended.code == 0, ended.stderr
        assert asked(ended) == []
        assert len(started(ended)) == 1


# Restarts in sequence, each with fresh state


@pytest.fixture(scope="module")
def thrice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Staged, Ended]]:
    """Three full windows, one after the other."""
    folder = tmp_path_factory.mktemp("thrice")
    early = turn(SMALL, "true")  # the new session acts: it has taken over
    place = scenario(folder, LATE, early, LATE, early, LATE, early, END)
    with stage(place, within=folder) as s:
        yield s, s.run("--json", "--policy", "continuous")


def test_restarts_in_sequence_1_2_3(thrice: tuple[Staged, Ended]) -> None:
    s, ended = thrice
    assert ended.code == 0, ended.stderr
    assert [each["leg"] for each in started(ended)] == [1, 2, 3, 4]
    assert asked(ended) == [1, 2, 3]
    logs = s.segue("logs", s.run_ids()[0]).stdout
    for number in (1, 2, 3):
        assert f"handoff {number} done: leg {number + 1} is working" in logs
        assert f"leg {number + 1}" in told(s, number + 1).lower()


def test_each_leg_has_fresh_state(thrice: tuple[Staged, Ended]) -> None:
    s, ended = thrice
    with s.store() as store:
        legs = store.legs(s.run_ids()[0])
    sessions = [leg.session_id for leg in legs]
    assert len(set(sessions)) == 4, "each has a session of its own"
    assert all(sessions)
    assert all(each["session_id"] == "" for each in started(ended)), "none is resumed"
    for leg in (2, 3, 4):
        own = [e["data"] for e in ended.events if e["data"].get("leg") == leg]
        sizes = [data["reading"]["input_tokens"] for data in own if "reading" in data]
        assert sizes[0] == SMALL, "no old reading is left"


def test_the_same_work_continues_in_one_process_of_segue(thrice: tuple[Staged, Ended]) -> None:
    s, ended = thrice
    assert ended.events[-1]["state"] == "done"
    assert [e["kind"] for e in ended.events].count("created") == 1
    assert s.answers.count("checkpoint") == 3


# Missing usage

MUTE = "import sys\nprint('I did it.', flush=True)\n"


def test_missing_usage_is_one_warning_and_the_run_continues_untracked(tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        script = s.root / "mute.py"
        script.write_text(MUTE)
        s.config(f"[agents.mute]\ncommand = {json.dumps([sys.executable, str(script)])}\n")
        check = "test -e tried || { touch tried; exit 1; }"  # so that there are two legs
        ended = s.segue("run", "--agent", "mute", "--check", check, "do it")
        assert ended.code == 0, ended.stderr
        with s.store() as store:
            (run,) = store.runs()
            assert store.readings(run.id) == []
        assert run.leg == 2
        assert ended.stderr.count("its context is not tracked") == 1


def test_a_claude_that_reports_no_usage_continues_untracked(tmp_path: Path) -> None:
    nothing = "[[rules]]\ntimes = 99\nusage = {}\n"
    place = scenario(tmp_path, nothing, turn(1, "true"), turn(1, "true"), END)
    with stage(place, within=tmp_path) as s:
        ended = s.run("--policy", "continuous")
        assert ended.code == 0, ended.stderr
        with s.store() as store:
            (run,) = store.runs()
        assert (run.leg, run.handoffs) == (1, 0)
        assert ended.stderr.count("its context is not tracked") == 1


def test_missing_usage_leaves_the_run_going(tmp_path: Path) -> None:
    nothing = "[[rules]]\ntimes = 99\nusage = {}\n"
    place = scenario(tmp_path, nothing, turn(1, "true"), turn(1, "true"), END)
    with stage(place, within=tmp_path) as s:
        ended = s.run("--json", "--policy", "continuous")
        assert ended.code == 0, ended.stderr
        assert (asked(ended), len(started(ended))) == ([], 1)
        assert "read" not in [event["kind"] for event in ended.events]


# The checkpoint, as agents really write it


def test_a_checkpoint_without_tags_is_handed_on_as_the_full_text(tmp_path: Path) -> None:
    words = (
        "Two of three parts are done {so far}.\n\nThe third one, `end`, is left: see <b>notes</b>."
    )
    place = scenario(tmp_path, rule(text=words), LATE, turn(SMALL, "true"), END)
    with stage(place, within=tmp_path) as s:
        ended = s.run("--json", "--policy", "continuous")
        assert ended.code == 0, ended.stderr
        assert started(ended)[1]["strategy"] == "checkpoint"
        for line in filter(None, words.split("\n")):
            assert line in told(s, 2)
        assert s.task.splitlines()[0] in told(s, 2)


@pytest.mark.parametrize("fence", ["```xml", "```markdown", "```", "~~~"])
def test_a_checkpoint_wrapped_in_code_fences_is_found(fence: str, tmp_path: Path) -> None:
    wrapped = f"Here it is:\n\n{fence}\n{GOOD}\n{fence[:3]}\n\nI stop now."
    place = scenario(tmp_path, rule(text=wrapped), LATE, turn(SMALL, "true"), END)
    with stage(place, within=tmp_path) as s:
        ended = s.run("--json", "--policy", "continuous")
        assert ended.code == 0, ended.stderr
        assert started(ended)[1]["strategy"] == "checkpoint"
        prompt = told(s, 2)
        assert "Only the end." in prompt
        assert "Here it is" not in prompt
        assert fence not in prompt.replace("```sh", "")


REFUSED = '[options.rehearsal]\ncompact = "0"\n'


def test_a_checkpoint_prompt_that_is_too_long_leads_to_a_continuation_made_by_rules(
    tmp_path: Path,
) -> None:
    """Even without the agent, segue knows something."""
    done = turn(SMALL, "echo first > first.txt")
    refuse = rule(fault="too_long", times=99)
    place = scenario(tmp_path, refuse, done, LATE, turn(SMALL, "true"), END, options=REFUSED)
    with stage(place, within=tmp_path) as s:
        ended = s.run("--json", "--policy", "continuous")
        assert ended.code == 0, ended.stderr
        assert asked(ended) == [1]
        assert "too_long" in s.answers, "the request was refused"
        second = started(ended)[1]
        assert (second["prompt"], second["strategy"]) == ("continuation", "rules")
        assert second["session_id"] == ""
        assert "echo first > first.txt" in told(s, 2), "what is known without the agent"
        assert s.task.splitlines()[0] in told(s, 2)


def test_a_checkpoint_prompt_that_a_mute_agent_refuses_leads_to_the_same(tmp_path: Path) -> None:
    """Codex is asked in a leg of its own, in the same session."""
    late = turn(240_000, "sleep 5")
    refuse = rule(fault="too_long", times=99)
    place = tmp_path / "codex.toml"
    context = "[context]\nwindow_tokens = 272000\nrefuses = false\n"
    parts = "".join((refuse, turn(SMALL, "echo first > first.txt"), late, turn(SMALL, "true"), END))
    options = '[options.rehearsal-codex]\ncompact = "0"\n'
    place.write_text(f'about = "A full window."\n{context}{options}{parts}')
    with stage(place, "rehearsal-codex", within=tmp_path) as s:
        ended = s.run("--json", "--policy", "continuous")
        assert ended.code == 0, ended.stderr
        legs = [(each["purpose"], each["prompt"], each["strategy"]) for each in started(ended)]
        assert legs == [
            ("work", "task", "checkpoint"),
            ("checkpoint", "checkpoint", "checkpoint"),
            ("work", "continuation", "rules"),
        ]
        assert "echo first > first.txt" in told(s, 3)


# After the checkpoint the old session does nothing more


def test_a_tool_call_in_the_same_message_as_the_checkpoint_is_cut_short(tmp_path: Path) -> None:
    """It is interrupted with its tool, and the model hears nothing more of this session."""
    answer = rule(text=GOOD, command="sleep 2; touch after.txt")
    with stage(scenario(tmp_path, answer, LATE, turn(SMALL, "true"), END), within=tmp_path) as s:
        ended = s.run("--json", "--policy", "continuous")
        assert ended.code == 0, ended.stderr
        assert started(ended)[1]["strategy"] == "checkpoint"
        assert s.answers == ["turn 1", "command", "turn 2", "turn 3"]
        assert not (s.project / "after.txt").exists()


def test_a_tool_call_right_after_the_checkpoint_is_not_carried_out(tmp_path: Path) -> None:
    """The reply is cut, so the agent asks on. A model thinks for longer than segue needs."""
    place = scenario(
        tmp_path,
        rule(text=GOOD, stop="length"),
        '[[rules]]\nafter_requests = 1\ncommand = "touch after.txt"\ndelay_s = 1.0\n',
        LATE,
        turn(SMALL, "true"),
        END,
    )
    with stage(place, within=tmp_path) as s:
        ended = s.run("--json", "--policy", "continuous")
        assert ended.code == 0, ended.stderr
        assert started(ended)[1]["strategy"] == "checkpoint"
        first = (s.leg(s.run_ids()[0], 1) / "stdout").read_text()
        assert "after.txt" not in first, "the old session made a call"
        # If segue was quicker than the old session's next request, that answer went to the new one.
        second = (s.leg(s.run_ids()[0], 2) / "stdout").read_text()
        assert (s.project / "after.txt").exists() == ("after.txt" in second)
