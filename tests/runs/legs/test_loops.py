"""A model that asks for the same thing for ever, through `segue run`: the rehearsal agent, and the
real codex, which refuses `rm -f` and says nothing of that in its stream."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.paths import SCRIPT
from support.playing import AGENTS_FOLDER, missing
from support.running import QUICK, stage

from segue.core.policy import Policy
from segue.core.runs.idle import PATIENCE, RESULTS
from segue.core.sessions.spend import Spend
from segue.drill import casts
from segue.drill.model.answer import ModelAnswer, ModelReply
from segue.drill.model.ask import Ask, Kind, shell_call
from segue.drill.model.server import running
from segue.drill.plays import enclosure, guided
from segue.drill.plays.process import adopt_orphans

LONG_S = 240.0
SPARE = 30  # requests of a model that takes its time by then, until the agent has ended
SLOW_S = 1.0
WINDOW = 1_000_000


class Stubborn:
    """Asks for its commands in turn, for ever. Once a session has made `quick` calls, by which it
    should have been ended, each reply takes a second: how many more there are does not depend on
    how busy the machine is."""

    def __init__(self, commands: list[str], quick: int) -> None:
        self.commands, self.quick, self.asked = commands, quick, 0
        self.kinds: list[Kind] = []

    def answer(self, ask: Ask, now: float) -> ModelAnswer:
        self.kinds.append(ask.kind)
        spend = Spend(input_tokens=2_000, output_tokens=10)
        if ask.kind not in (Kind.MAIN, Kind.CONTINUATION):
            return ModelAnswer(reply=ModelReply(text="Nothing.", spend=spend))
        self.asked += 1
        command = self.commands[self.asked % len(self.commands)].replace("@", str(self.asked))
        call = shell_call(ask, f"call_{self.asked}", command)
        made = sum(part.role == "tool" for part in ask.parts)
        return ModelAnswer(
            reply=ModelReply(text="Once more.", calls=(call,), spend=spend),
            delay_s=SLOW_S if made >= self.quick else 0.0,
        )


def play(agent: str, folder: Path, policy: str, quick: int, commands: list[str]) -> dict[str, Any]:
    """`segue run` to its end, and how often the model was asked."""
    home, project = folder / "home", folder / "project"
    for each in (home, project):
        each.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    cast, model = casts.find(agent), Stubborn(commands, quick)
    with running(model) as server:
        stage = casts.PlayStage(home=home, project=project, port=server.port, window_tokens=WINDOW)
        cast.prepare(stage)
        program = cast.find(os.environ)
        assert program is not None
        settings = {"stall_s": LONG_S}
        part = guided.part(cast, program, stage, "Remove x.", folder / "segue", settings)
        with (folder / "segue/config.toml").open("a") as config:
            config.write(policy)
        done = subprocess.run(
            part.argv, env=part.env, cwd=project, capture_output=True, text=True, timeout=LONG_S
        )
        events = [json.loads(line) for line in done.stdout.splitlines()]
    ended = [e for e in events if e["kind"] == "looped"]
    return {
        "code": done.returncode,
        "asked": model.asked,
        "loops": [e["data"] for e in ended],
        "outcome": events[-1]["decisions"][-1]["outcome"],
        "prompts": [f.read_text() for f in sorted(folder.glob("segue/runs/*/leg-*/prompt.md"))],
    }


def enclosed(agent: str, folder: Path, policy: str, *commands: str, quick: int) -> dict[str, Any]:
    if casts.find(agent).find({"SEGUE_AGENTS": AGENTS_FOLDER, "PATH": os.environ["PATH"]}) is None:
        missing(f"{agent} is not installed: {casts.find(agent).install}")
    if reason := enclosure.why_not():
        missing(reason)
    words = [agent, str(folder / "play"), policy, str(quick), *commands]
    argv = [sys.executable, SCRIPT, __file__, *words]
    done = subprocess.run(
        enclosure.command(argv),
        env={**os.environ, "SEGUE_AGENTS": AGENTS_FOLDER},
        capture_output=True,
        text=True,
        timeout=LONG_S + 30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def gave_up(found: dict[str, Any], max_replies: int, call: str) -> None:
    """After three sessions, of which the later ones were told what led nowhere."""
    assert (found["code"], found["outcome"]["reason"]) == (1, "no_progress")
    assert found["asked"] <= 3 * (max_replies + SPARE)
    assert [loop["kind"] for loop in found["loops"]] == ["replies"] * 3
    assert call in found["outcome"]["what"]
    assert "max_idle_replies" in found["outcome"]["change"]
    assert len(found["prompts"]) == 3
    assert "going in circles" not in found["prompts"][0]
    for prompt in found["prompts"][1:]:
        assert "going in circles" in prompt
        assert call in prompt


def test_a_call_that_the_real_codex_refuses_every_time_ends_the_run(tmp_path: Path) -> None:
    """With the limits as they are by default: before, it went on for ever."""
    most = Policy().max_idle_replies
    assert most is not None
    found = enclosed("codex", tmp_path, "", "rm -f x", quick=most)
    gave_up(found, most, "rm -f x")
    assert all(loop["failed"] == loop["made"] > 0 for loop in found["loops"])


def test_two_calls_that_alternate_end_a_run_of_the_real_codex(tmp_path: Path) -> None:
    found = enclosed("codex", tmp_path, "max_idle_replies = 20\n", "rm -f x", "pwd", quick=22)
    gave_up(found, 22, "rm -f x" if found["loops"][-1]["failed"] else "pwd")


@pytest.mark.parametrize(
    ("commands", "call"),
    [
        (["false; exit 3"], "false; exit 3"),
        (["exit 3; echo @"], "exit 3; echo"),  # it fails each time, in new words
        (["pwd", "ls"], ""),
    ],
)
def test_a_loop_of_the_rehearsal_agents_ends_the_run(
    commands: list[str], call: str, tmp_path: Path
) -> None:
    most = 12 + len(commands)
    found = enclosed("rehearsal", tmp_path, "max_idle_replies = 12\n", *commands, quick=most)
    gave_up(found, most, call or "made")


def test_a_call_with_ever_other_results_ends_the_run(tmp_path: Path) -> None:
    """Before, each result was news, and it went on for ever."""
    noise = "head -c 12 /dev/urandom | base64"
    policy, most = "max_idle_replies = 4\nidle_legs = 1\n", RESULTS + 4 * PATIENCE
    found = enclosed("rehearsal", tmp_path, policy, noise, quick=most)
    assert (found["code"], found["outcome"]["reason"]) == (1, "no_progress")
    assert most <= found["asked"] <= most + SPARE


def test_a_session_that_reads_one_file_after_the_other_is_left_alone(tmp_path: Path) -> None:
    """Until it has read all of them, and begins again."""
    names = [f"echo {chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(60)]
    policy = "max_idle_replies = 12\nidle_legs = 1\n"
    found = enclosed("rehearsal", tmp_path, policy, *names, quick=60 + 12)
    assert 60 + 12 <= found["asked"] <= 60 + 12 + SPARE
    assert [loop["kind"] for loop in found["loops"]] == ["replies"]


@pytest.mark.parametrize("scenario", ["three-exhaustions", "window-fills-slowly", "crash-in-tool"])
def test_the_work_of_a_drill_is_not_a_loop_by_far(scenario: str, tmp_path: Path) -> None:
    limits = {"max_idle_replies": 5, "same_calls": 5, "max_idle_compactions": 1}
    with stage(scenario, within=tmp_path, policy={**QUICK, **limits}) as s:
        assert s.run().code == 0
        assert s.continuity().is_whole


if __name__ == "__main__":
    enclosure.demand()
    adopt_orphans()
    agent, folder, policy, quick, *commands = sys.argv[1:]
    print(json.dumps(play(agent, Path(folder), policy, int(quick), commands)))
