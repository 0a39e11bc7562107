"""Sessions that died without segue go on as runs: whatever they died of, by the same agent and by
another, every step once; and a rescue that is itself killed goes on too."""

import json
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.runs.ward import Ward, ward
from support.waiting import until

HERE = Path(__file__).parents[1] / "support/runs"
CLAUDE, CODEX = "rehearsal", "rehearsal-codex"
NAMES = {CLAUDE: "claude", CODEX: "codex"}

KILLED = """\
about = "Whoever works is killed by hand."
[job]
steps = 4
step_s = 0.4
"""
LIMITED = """\
about = "The plan's limit is reached; there is a new one some seconds later."
[job]
steps = 4
[[rules]]
before_step = 3
fault = "plan_limit"
resets_in_s = 12  # commands are asked before, and that may take long
[options.rehearsal]
plan = "1"
"""
FULL = """\
about = "The window is full, and the request for a summary is too long as well."
[job]
steps = 6
[context]
fills_after_steps = 3.5
[[rules]]
kind = "compaction"
fault = "too_long"
times = "for ever"
"""
FACTS = """\
about = "Facts that only the conversation holds are needed at the end."
[job]
steps = 6
step_s = 0.3
[[job.facts]]
kind = "printed"
told_in = 2
needed_from = 5
[[job.facts]]
kind = "decided"
told_in = 1
needed_from = 5
"""


def play(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "scenario.toml"
    file.write_text(text)
    return file


def listed(w: Ward, session: str) -> dict[str, Any]:
    (found,) = w.segue("rescue", "--json").json["sessions"]
    assert found["session_id"] == session
    return dict(found)


def rescue(w: Ward, session: str, rescuer: str, *more: str) -> dict[str, Any]:
    """To its end; the run as `show` tells it."""
    ended = w.segue("rescue", session, "--agent", NAMES[rescuer], *more)
    assert ended.code == 0, ended.err
    assert "steps are done" in ended.out
    found = w.continuity()
    assert found.is_whole, found
    return dict(w.segue("show", "--json").json)


@pytest.mark.parametrize(("dies", "rescuer"), [(CODEX, CODEX), (CLAUDE, CODEX), (CODEX, CLAUDE)])
def test_a_session_that_was_killed_in_a_tool_continues_and_repeats_nothing(
    dies: str, rescuer: str, tmp_path: Path
) -> None:
    with ward(tmp_path / "w", play(tmp_path, KILLED), *dict.fromkeys((dies, rescuer))) as w:
        session = w.dies(dies, in_step=2)
        run = rescue(w, session, rescuer)
        assert run["origin"]["same_session"] == (dies == rescuer)
        assert (run["session_id"] == session) == (dies == rescuer)
        assert run["task"] == w.task  # word for word


def test_a_rescue_says_what_it_is_and_asks_no_model_before_it(tmp_path: Path) -> None:
    with ward(tmp_path / "w", play(tmp_path, KILLED), CLAUDE) as w:
        session = w.dies(CLAUDE, in_step=2)
        told = listed(w, session)
        assert told["reason"] == "crash"
        assert told["ways"] == ["same_session", "new_session", "other_agent"]
        assert told["task"].startswith("This repository has a job of 4 numbered steps.")
        asked = len(w.server.requests)
        dry = w.segue("rescue", "--last", "--dry-run", "--json").json
        assert dry["way"] == "same_session"
        assert "it may have been\ndone already" in dry["prompt"]
        assert "sh job/step 2" in dry["prompt"]
        assert len(w.server.requests) == asked
        run = rescue(w, session, CLAUDE)
        assert run["origin"] == {
            "agent": "claude",
            "session_id": session,
            "path": told["path"],
            "reason": "crash",
            "stopped_at": told["stopped_at"],
            "same_session": True,
            "changed": None,
        }
        assert f"rescued from claude session {session}" in w.segue("show").out
        assert f"rescued from claude session {session}" in w.segue("runs").out
        # What it cost before is not the run's.
        total = sum(spent_in(w.file(CLAUDE)))
        assert 0 < run["tokens"] < total
        # It is the run's now: nobody rescues it twice.
        assert w.segue("rescue", "--json").json["sessions"] == []
        again = w.segue("rescue", session)
        assert again.code == 2
        assert (
            f"is part of {run['run']} (done); to resume it: segue resume {run['run']}" in again.err
        )


def spent_in(file: Path) -> list[int]:
    """The tokens of each reply."""
    found = {}
    for line in file.read_text().splitlines():
        message = json.loads(line).get("message", {})
        if "usage" in message and "id" in message:
            found[message["id"]] = sum(
                value
                for name, value in message["usage"].items()
                if name.endswith("_tokens") and isinstance(value, int)
            )
    return list(found.values())


@pytest.mark.parametrize("rescuer", [CLAUDE, CODEX])
def test_a_session_whose_window_is_full_continues_in_a_new_one(
    rescuer: str, tmp_path: Path
) -> None:
    with ward(tmp_path / "w", play(tmp_path, FULL), *dict.fromkeys((CLAUDE, rescuer))) as w:
        session = w.dies(CLAUDE)
        told = listed(w, session)
        assert (told["reason"], told["ways"]) == (
            "context_exhausted",
            ["new_session", "other_agent"],
        )
        run = rescue(w, session, rescuer)
        assert run["session_id"] != session


def test_a_limited_session_continues_after_the_reset_in_itself(tmp_path: Path) -> None:
    with ward(tmp_path / "w", play(tmp_path, LIMITED), CLAUDE) as w:
        session = w.dies(CLAUDE)
        told = listed(w, session)
        assert (told["reason"], told["ways"][0]) == ("rate_limit", "same_session")
        refused = [r.answered for r in w.server.requests].count("plan_limit")
        run = rescue(w, session, CLAUDE)
        assert run["session_id"] == session
        assert run["waits"]  # before its first leg
        assert [r.answered for r in w.server.requests].count("plan_limit") == refused


@pytest.mark.parametrize(("dies", "rescuer"), [(CLAUDE, CLAUDE), (CODEX, CLAUDE)])
def test_a_transcript_that_ends_in_mid_line_is_not_written_on(
    dies: str, rescuer: str, tmp_path: Path
) -> None:
    with ward(tmp_path / "w", play(tmp_path, KILLED), *dict.fromkeys((dies, rescuer))) as w:
        session = w.dies(dies, in_step=3, cut=True)
        before = w.file(dies).read_bytes()
        file = w.file(dies)
        assert listed(w, session)["ways"] == ["new_session", "other_agent"]
        run = rescue(w, session, rescuer)
        assert run["session_id"] != session
        assert file.read_bytes() == before


@pytest.mark.parametrize("rescuer", [CLAUDE, CODEX])
def test_a_fact_that_only_the_dead_session_knew_is_known_to_the_one_that_continues(
    rescuer: str, tmp_path: Path
) -> None:
    with ward(tmp_path / "w", play(tmp_path, FACTS), *dict.fromkeys((CLAUDE, rescuer))) as w:
        session = w.dies(CLAUDE, in_step=3)
        rescue(w, session, rescuer, "--fresh")
        checkpoint = w.segue("checkpoint", session).out
        assert "fact 1 is w" in checkpoint
        assert "decided to use choice-" in checkpoint


def test_a_session_that_is_being_rescued_is_not_rescued_again(tmp_path: Path) -> None:
    with ward(tmp_path / "w", play(tmp_path, KILLED), CLAUDE) as w:
        session = w.dies(CLAUDE, in_step=1)
        first = w.begin("rescue", session, "--fresh")
        until(lambda: w.segue("runs", "--json").json["runs"])
        second = w.segue("rescue", session)
        assert second.code == 2
        assert f"session {session} is part of run-" in second.err
        assert first.wait(120) == 0
        assert w.continuity().is_whole


# Killed itself


def killed(w: Ward, session: str, point: str, *more: str) -> None:
    dead = w.segue(point, "rescue", session, *more, script=HERE / "killed.py")
    assert dead.code == -9, f"this rescue came by no {point}: {dead.err}"
    again = w.segue("resume")
    assert again.code == 0, again.err
    found = w.continuity()
    assert found.is_whole, found
    assert not [p for p in psutil.process_iter() if _home(p) == w.env["HOME"]]


def _home(process: psutil.Process) -> str:
    try:
        return str(process.environ().get("HOME"))
    except psutil.Error:
        return ""


@pytest.mark.parametrize(
    ("point", "more"),
    [
        ("starting created after", ("--fresh",)),
        ("checkpointing composed before", ("--fresh",)),
        ("checkpointing composed after", ("--fresh",)),
        ("starting created after", ()),
        ("resuming started after", ()),
    ],
    ids=lambda each: each if isinstance(each, str) else " ".join(each) or "same",
)
def test_a_rescue_that_was_killed_continues_and_repeats_nothing(
    point: str, more: tuple[str, ...], tmp_path: Path
) -> None:
    with ward(tmp_path / "w", play(tmp_path, KILLED), CLAUDE) as w:
        killed(w, w.dies(CLAUDE, in_step=2), point, *more)


@pytest.mark.parametrize("more", [(), ("--fresh",)], ids=["same", "fresh"])
def test_a_rescue_that_was_killed_while_it_waits_continues_after_the_reset(
    more: tuple[str, ...], tmp_path: Path
) -> None:
    with ward(tmp_path / "w", play(tmp_path, LIMITED), CLAUDE) as w:
        session = w.dies(CLAUDE)
        refused = [r.answered for r in w.server.requests].count("plan_limit")
        point = "checkpointing composed after" if more else "starting created after"
        killed(w, session, point, *more)
        assert [r.answered for r in w.server.requests].count("plan_limit") == refused
