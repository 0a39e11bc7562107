"""A limited session in a real terminal is taken over by another real agent: `segue watch` as a
process, both TUIs in one tmux, each provider with a scripted model of its own. Enclosed. Other
pairs were played by hand: docs/watch.md."""

import json
import os
from pathlib import Path

import pytest
from support.playing import AGENTS_FOLDER, missing
from support.terminals.tui import open_tui
from support.watching import begin_work, done, watching

from segue.drill import casts
from segue.drill.model.answer import ModelAnswer
from segue.drill.model.ask import Ask
from segue.drill.model.script import Script
from segue.drill.plays import job
from segue.drill.scenarios.types import Job, Scenario, ScenarioRule

CONFIG = """\
[policy]
auto_resume = true
relay = true
[run]
agent = {agents}
[run.flags]
codex = ["--dangerously-bypass-approvals-and-sandbox", "--no-daemon", "-m", "drill-model"]
claude = ["--allowedTools", "Bash", "--model", "claude-sonnet-4-5"]
"""
LIMITED_AT = 3
WORK = Job()
WIRES = {"claude": "anthropic", "codex": "responses", "opencode": "chat"}
PAIRS = ["claude-codex"]


class Providers:
    """One model a wire: what one provider refuses, the other does not."""

    def __init__(self, limited: str) -> None:
        limit = ScenarioRule(before_step=LIMITED_AT, fault="plan_limit", resets_in_s=7_200.0)
        calm = Scenario(about="Nothing happens.", job=WORK)
        refuses = Scenario(about="Refused for two hours.", job=WORK, rules=[limit])
        self.models = {
            wire: Script(refuses if agent == limited else calm, window_tokens=200_000, seed=seed)
            for seed, (agent, wire) in enumerate(WIRES.items())
        }

    def answer(self, ask: Ask, now: float) -> ModelAnswer:
        return self.models[ask.wire].answer(ask, now)


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short path: sockets are in there."""
    return tmp_path_factory.mktemp("s")


@pytest.mark.parametrize("pair", PAIRS)
def test_a_limited_session_is_taken_over_by_another_agent_which_finishes(
    pair: str, place: Path
) -> None:
    first, second = pair.split("-")
    other = casts.find(second)
    if other.find({**os.environ, "SEGUE_AGENTS": AGENTS_FOLDER}) is None:
        missing(f"{second} is not installed: {other.install}")
    env = {"LC_ALL": "C.UTF-8"}  # not empty: what is added later must reach the panes

    def also(stage: casts.PlayStage) -> None:
        other.prepare(stage)
        env.update(other.start("x", stage, "x", "").env)

    config = CONFIG.format(agents=json.dumps([first, second]))
    with (
        open_tui(
            first, place, Providers(first), options={"plan": "1"}, env=env, prepare=also
        ) as tui,
        watching(place / "state", tui.env, config=config) as watch,
    ):

        def verdicts() -> list[str]:
            return [note.data["verdict"] for note in watch.notes("wake")]

        begin_work(tui)
        watch.until(lambda: verdicts()[-1:] == ["relayed"], "the relay")
        asked = [request.wire for request in tui.requests].count(WIRES[first])
        watch.until(lambda: done(tui, WORK) == WORK.steps, "the last step")
        found = job.check(tui.project, WORK, finished=True)
        assert found.is_whole, found
        # The limited one still sits there (codex offers another model), and will not continue by
        # itself.
        screen = tui.wait_for(lambda screen: screen.state == "idle" or screen.is_harmless)
        assert (screen.continues_at, screen.draft) == ("", "")
        assert [request.wire for request in tui.requests].count(WIRES[first]) == asked
        assert second in (tui.place.tmux("list-windows", "-F", "#{window_name}") or "").split()
        assert verdicts() == ["relay", "relayed"]
