"""What the user says half-way is known to the session after: the real daemon, the real TUIs."""

import json
import subprocess
from pathlib import Path

import pytest
from support.terminals.tui import Tui, open_tui
from support.watch.handoffs import AT_ONCE, await_job
from support.watching import LIMIT_S, begin_work, done, watching

from segue.drill.scenarios.types import Context, Job, Scenario, ScenarioFact, ScenarioRule

# No step tells these two: the user does, once, and steps 9 to 12 are not done without them. The
# mark is reached after 6 to 8 steps, and in some agents' next session once more near the end.
NOBODY = 99
JOB = Job(
    steps=12,
    step_s=1.5,
    output_bytes=8_000,
    facts=[ScenarioFact(kind="printed", told_in=NOBODY, needed_from=9) for _ in range(2)],
)
ASKS = ScenarioRule(
    before_step=4, text="Steps 1 to 3 are done. Is there anything that I should know?"
)
SAID = """\
Yes. The customer calls the export something else: fact 1 is {}.
And do not touch the module of the others; it is the second name, so fact 2 is {}. Carry on."""


@pytest.fixture(autouse=True)
def utf8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C.UTF-8")


def word(tui: Tui, number: int) -> str:
    """As the steps know it."""
    script = (tui.project / "job" / "step").read_text()
    function = script[script.index("fact() {") : script.index("}\n", script.index("fact() {")) + 2]
    told = subprocess.run(
        ["sh", "-c", f"{function}fact {number} word"],
        cwd=tui.project, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return told.stdout


@pytest.mark.parametrize("agent", ["claude", "codex", "opencode"])
def test_what_the_user_says_half_way_is_known_after_a_handoff(agent: str, tmp_path: Path) -> None:
    """The agent's own document tells the steps that are done, and nothing that the user said."""
    context = Context(fills_after_steps=11, refuses=False)
    scenario = Scenario(about="", job=JOB, context=context, rules=[ASKS], summary="lazy")
    with (
        open_tui(agent, tmp_path, scenario) as tui,
        watching(tmp_path / "segue", tui.env, "--auto", config=AT_ONCE) as watch,
    ):
        begin_work(tui)
        tui.until(lambda: done(tui, JOB) == 3, LIMIT_S, "three steps")
        tui.wait_for(lambda s: s.state == "idle" and not s.draft, LIMIT_S, "its question")
        tui.submit(SAID.format(word(tui, 1), word(tui, 2)))
        watch.until(lambda: watch.notes("metrics"), "the handoff")
        await_job(tui, JOB)
        note = watch.notes("metrics")[0]
        assert (note.data["outcome"], note.data["source"]) == ("done", "agent")
        assert done(tui, JOB) == JOB.steps
        arrived = watch.until(lambda: watch.notes("arrival"), "what the new session did first")[0]
        assert arrived.session_id == note.data["new_session_id"]
        told = {key: arrived.data[key] for key in ("id", "from_session_id", "result")}
        assert told == {
            "id": note.data["id"], "from_session_id": note.data["session_id"], "result": "goes_on",
        }  # fmt: skip
        shown = json.loads(watch.segue("show", arrived.session_id, "--json"))
        assert shown["took_over"]["actions"] == arrived.data["actions"] > 3
        assert "took over from" in watch.segue("show", arrived.session_id)
