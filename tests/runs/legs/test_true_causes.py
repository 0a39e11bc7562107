"""People and sessions are told the cause that was seen, not the timer that fired."""

import base64
import json
import random
import re
import sys
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path

import pytest
from support.running import QUICK, Ended, Staged, stage
from support.runs.machine_rules import Dice, moves, walk
from support.runs.stepping import AT, Led

from segue.core.runs.outcomes import span
from segue.core.runs.types import (
    CancelAsked,
    CheckpointComposed,
    Finish,
    HungUp,
    InterruptRequested,
    LegEnded,
    Run,
    RunState,
)
from segue.core.stops.reasons import StopReason
from segue.views.run.story import news

SOON_FULL = "[context]\nfills_after_steps = 4.5\n[job]\nsteps = 6\nstep_s = 0.2\n"
USAGE = "{input_tokens = 9, cache_read_tokens = 870000, output_tokens = 1}"


def written(folder: Path, text: str) -> Path:
    file = folder / "scenario.toml"
    file.write_text(f'about = "True causes."\n{text}')
    return file


def told(s: Staged, ended: Ended) -> str:
    """All that a user can read of a run that is over."""
    (run_id,) = s.run_ids()
    parts = [ended.stderr, ended.stdout]
    for command in ("show", "logs"):
        parts += [s.segue(command, *more, run_id).stdout for more in ((), ("--json",))]
    return "\n".join(parts)


# Through the command


def test_a_session_that_calls_a_tool_instead_of_a_checkpoint_did_not_take_too_long(
    tmp_path: Path,
) -> None:
    rule = '[[rules]]\nkind = "checkpoint"\ncommand = "true"\ntimes = 1\n'
    with stage(written(tmp_path, SOON_FULL + rule), within=tmp_path) as s:
        ended = s.run()
        found = told(s, ended)
        assert ended.code == 0, ended.stderr
    assert "called a tool instead" in found
    assert "longer than" not in found
    assert "took too long" not in found


def test_a_handed_over_leg_is_not_told_as_completed(tmp_path: Path) -> None:
    with stage(written(tmp_path, SOON_FULL), within=tmp_path) as s:
        assert s.run().code == 0
        (run_id,) = s.run_ids()
        shown = json.loads(s.segue("show", "--json", run_id).stdout)
        text = s.segue("show", run_id).stdout
        log = [json.loads(line) for line in s.segue("logs", "--json", run_id).stdout.splitlines()]
        lines = s.segue("logs", run_id).stdout
    first, last = shown["leg_list"][0], shown["leg_list"][-1]
    assert (first["ended_for"], first["reason"]) == ("handoff", "context_exhausted")
    assert (last["ended_for"], last["reason"]) == ("", "completed")
    stop = shown["stops"][0]
    assert stop["details"]["ended_for"] == "handoff"
    assert stop["remediation"] == "Nothing: a new session continues the work."
    (of_first,) = [e for e in log if e["kind"] == "legended" and e["data"]["leg"] == 1]
    assert of_first["data"]["stop"]["reason"] != "completed"
    assert re.search(r"leg +1 +task +handed over", text)
    assert "leg 1 ended: handed over" in lines


def test_sessions_that_hand_over_and_do_nothing_did_not_fail(tmp_path: Path) -> None:
    turns = f'[[turns]]\ntext = "Working."\ncommand = "true"\nusage = {USAGE}\n' * 400
    context = "[context]\nwindow_tokens = 1000000\nrefuses = false\n"
    with stage(written(tmp_path, context + turns), within=tmp_path) as s:
        # How many turns fit in before the interrupt is up to the machine: their tokens don't count.
        ended = s.run("--set", "max_idle_tokens=1000000000")
        found = told(s, ended)
    assert ended.code == 1
    assert "3 legs in a row changed nothing" in found
    assert not re.search(r"failed \d+ times", found)


def test_a_limit_on_tokens_is_not_a_timeout_and_needs_no_guess(tmp_path: Path) -> None:
    slow = "[job]\nsteps = 40\nstep_s = 1.0\n"
    with stage(written(tmp_path, slow), within=tmp_path) as s:
        ended = s.run("--set", "max_tokens=10")
        found = told(s, ended)
        (run_id,) = s.run_ids()
        (stop,) = json.loads(s.segue("show", "--json", run_id).stdout)["stops"]
    assert ended.code == 1
    assert "10 tokens are spent: the limit of this run" in ended.stderr
    assert "timed out" not in found
    assert "% sure" not in found
    assert (stop["reason"], stop["confidence"]) == ("max_budget", 1.0)
    assert stop["details"]["ended_for"] == "limit"


PLAIN = """
import pathlib, sys
folder = pathlib.Path(sys.argv[1])
number = len(list(folder.glob("prompt-*")))
(folder / f"prompt-{number}").write_text(sys.argv[2])
print("done")
"""


def test_a_failed_check_is_told_to_a_new_session_as_that(tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text(PLAIN)
    with stage("success", within=tmp_path) as s:
        command = json.dumps([sys.executable, str(script), str(tmp_path), "{prompt}"])
        s.config(f"[agents.plain]\ncommand = {command}\ndone = '^done'\n")
        given = ("--agent", "plain", "--check", "exit 3", "--set", "max_checks=1")
        ended = s.segue("run", *given, "x")
    assert ended.code == 1, ended.stderr
    first, second = (tmp_path / f"prompt-{n}" for n in (0, 1))
    assert first.read_text() == "x"
    assert "THE CHECK DID NOT PASS" in second.read_text()
    assert "The previous session ended, but the task is not done." in second.read_text()
    assert "context window" not in second.read_text()


def test_an_agent_that_the_config_names_wrongly_is_not_blamed_on_a_flag(tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        s.config('[run]\nagent = "claud"\n')
        ended = s.segue("run", "x")
        by_flag = s.segue("run", "--agent", "clod", "x")
        by_name = s.segue("run", "x", SEGUE_AGENT="clawed")
    assert (ended.code, by_flag.code, by_name.code) == (2, 2, 2)
    assert "config.toml:" in ended.stderr
    assert "--agent" not in ended.stderr
    assert "--agent clod: no such agent" in by_flag.stderr
    assert "SEGUE_AGENT clawed: no such agent" in by_name.stderr


def test_a_session_is_asked_for_its_checkpoint_for_the_true_reason(tmp_path: Path) -> None:
    """Ctrl+C does not fill a window."""
    slow = "[job]\nsteps = 40\nstep_s = 0.5\n"
    with stage(written(tmp_path, slow), within=tmp_path, policy={**QUICK, "stall_s": 60}) as s:
        process, run_id = s.new_run()
        process.send_signal(2)
        assert s.end(process).code == 130
        lines = (s.leg(run_id) / "control.jsonl").read_text().splitlines()
        inputs = [json.loads(line).get("input", "") for line in lines]
        given = "".join(base64.b64decode(each).decode() for each in inputs)
    assert "CHECKPOINT REQUIRED (the user ends this session)" in given
    assert "nearly full" not in given


# By chance: whatever happens to a run, nothing that is said of it is false.


def said(led: Led) -> Iterator[tuple[Run, object, list[str], Run, float]]:
    for (before, fact, step), (_, at, _) in zip(moves(led), led.log, strict=True):
        lines = news(before, fact, step, now=at, tz=UTC)
        reasons = [decision.reason for decision in step.decisions]
        yield before, fact, [*lines, *reasons], step.run, at


@pytest.mark.parametrize("seed", range(0, 3_000, 100))
def test_what_is_told_never_contradicts_the_facts(seed: int) -> None:
    for number in range(seed, seed + 100):
        led = walk(Dice(random.Random(number)), 60)
        seen: set[type] = set()
        for before, fact, lines, after, at in said(led):
            seen.add(type(fact))
            text = "\n".join(lines)
            asked = before.asked_at if before.asked_at is not None else AT
            for length in re.findall(r"(?:within|longer than) ((?:\d+ (?:d|h|min|s) ?)+)", text):
                assert length.strip() in (span(at - asked), "0 s"), text
            assert "checkpoint 0 is" not in text
            if isinstance(fact, CheckpointComposed) and fact.number > 0:
                assert "no checkpoint could be" not in text
            if isinstance(fact, LegEnded) and "handed over" in text:
                assert after.state in (RunState.CHECKPOINTING, RunState.HANDING_OVER), text
            if found := re.search(r"failed (\d+) times in the same way", text):
                assert int(found[1]) == after.failures >= after.policy.same_failures
                assert after.stop is not None
                assert after.stop.reason is not StopReason.COMPLETED
            if found := re.search(r"(\d+) legs in a row", text):
                assert int(found[1]) <= after.leg
            outcome = after.outcome
            if outcome is None or before.outcome is outcome:
                continue
            assert (outcome.exit_code == 0) == (after.state is RunState.DONE)
            assert ("completed" in outcome.what) == (after.state is RunState.DONE), outcome.what
            assert (outcome.exit_code == 3) == (after.state is RunState.NEEDS_YOU)
            if "ended by user" in outcome.what:
                by_stop = after.stop is not None and after.stop.reason is StopReason.USER_EXIT
                assert by_stop or seen & {InterruptRequested, CancelAsked, HungUp}
            if outcome.reason == "cap":
                assert "timed out" not in outcome.what or outcome.exit_code == 124
    assert any(isinstance(d, Finish) for d in led.decisions) or led.run.state is not None
