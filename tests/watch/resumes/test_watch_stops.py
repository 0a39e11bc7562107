"""Stops of real agents in real terminals, as the daemon sees them: the right verdict, and
resumed only where the user wants it. Enclosed: no test leaves loopback."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.agents.driven import Model
from support.terminals import tui as tuis
from support.terminals.tui import Tui, open_tui
from support.watching import Watching, watching

from segue.core.resumes.decisions import NOT_RESUMING
from segue.drill.model.answer import ModelAnswer, Refusal
from segue.drill.model.ask import Ask
from segue.drill.plays import job
from segue.drill.scenarios.types import Job, Scenario, ScenarioRule
from segue.watch.log import Note

pytestmark = pytest.mark.usefixtures("bash")

QUICK = "[policy]\nreset_jitter_min_s = 1\nreset_jitter_max_s = 1\nresume_gap_s = 0\n"
AGENTS = ["claude", "codex", "opencode"]
PLAN = {"claude": {"plan": "1"}}


@pytest.fixture
def bash(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell with a line editor: after a killed agent it still hears an Enter."""
    monkeypatch.setattr(tuis, "_SHELL", ("bash", "--norc", "--noprofile", "-i"))


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short path: sockets are in there."""
    return tmp_path_factory.mktemp("s")


class Refusing(Model):
    """Refuses whatever it is asked, once it is told to."""

    def answer(self, ask: Ask, now: float) -> ModelAnswer:
        if self.refusal is not None:
            return ModelAnswer(refusal=self.refusal)
        if "zebra" in ask.last_text and not self.commands:
            self.commands = ["touch at-work; sleep 90"]
        return super().answer(ask, now)


def idle(tui: Tui) -> None:
    tui.wait_for(lambda screen: screen.state == "idle", 60)


def begin(tui: Tui, text: str) -> None:
    """Gives it work, as a user who pastes."""
    idle(tui)
    tui.paste(text)
    tui.wait_for(lambda screen: screen.draft != "")
    tui.until(lambda: _sent(tui), what="its work")


def _sent(tui: Tui) -> bool:
    if (screen := tui.screen()).draft == "" or screen.state == "busy":
        return True
    time.sleep(tui.terminal.settle_s)
    tui.keys("Enter")
    return False


def greet(tui: Tui, watch: Watching, turns: int = 2) -> None:
    """Some turns, each seen: the daemon's first look at a session takes its time."""
    for _ in range(turns):
        idle(tui)
        before = seen(watch)
        tui.submit("Hello.")
        watch.until(lambda before=before: seen(watch) != before, "a turn")  # type: ignore[misc]


def seen(watch: Watching) -> list[str]:
    """The turns that the daemon knows to be over."""
    told = watch.remote.get("/v1/sessions")["sessions"]
    over = [s for s in told if (s["stop"] or {}).get("reason") == "completed"]
    return [str(s["context"]) for s in over]


def _leaves(tui: Tui) -> bool:
    """Ctrl+C, as often as the agent wants it."""
    if tui.pid:
        tui.keys("C-c")
        time.sleep(0.3)
    return tui.pid == 0


def gone(tui: Tui) -> None:
    tui.until(lambda: tui.pid == 0, what="its end")


def heard(tui: Tui) -> list[Ask]:
    """What the model is asked from now on, of the work."""
    asks: list[Ask] = []
    answer = tui.model.answer

    def listening(ask: Ask, now: float) -> ModelAnswer:
        if ask.tools:
            asks.append(ask)
        return answer(ask, now)

    tui.model.answer = listening  # type: ignore[method-assign]
    return asks


def at_work(tui: Tui) -> None:
    """Brings it into the middle of a turn."""
    tui.submit("zebra")
    mark = tui.project / "at-work"
    tui.until(mark.exists, what="its work")
    mark.unlink()


def stop_after(watch: Watching, seq: int, is_so: Callable[[Note], bool] = lambda n: True) -> Note:
    found: list[Note] = watch.until(
        lambda: [n for n in watch.notes("stop") if n.seq > seq and is_so(n)], "a stop"
    )
    return found[0]


def verdict(watch: Watching, stop: Note) -> dict[str, Any]:
    """What was decided on it first."""
    notes: list[Note] = watch.until(
        lambda: [n for n in watch.notes("wake") if n.seq > stop.seq], "a decision"
    )
    return notes[0].data


def decisions(watch: Watching) -> list[str]:
    return [n.data["verdict"] for n in watch.notes("wake")]


def done(tui: Tui) -> int:
    folder = tui.project / "steps"
    return sum(name.isdigit() for name in os.listdir(folder)) if folder.exists() else 0


def too_long(tui: Tui, watch: Watching, model: Refusing) -> int:
    """A window that is full leaves an agent at its prompt; the last note's number."""
    model.refusal = Refusal(fault="too_long")
    tui.submit("Hello.")
    long = stop_after(watch, 0)
    assert (long.data["reason"], long.data["state"]) == ("context_exhausted", "at_prompt")
    assert verdict(watch, long)["why"] == "auto_resume is off for this project"
    model.refusal = None
    return long.seq


def limited(tui: Tui, watch: Watching, model: Refusing, seq: int) -> int:
    """A limit does, too."""
    greet(tui, watch, 1)
    idle(tui)
    resets_at = float(int(time.time()) + 600)
    model.refusal = Refusal(fault="plan_limit", resets_at=resets_at)
    tui.submit("Hello again.")
    limit = stop_after(watch, seq, lambda n: n.data["reason"] != "context_exhausted")
    assert (limit.data["reason"], limit.data["state"]) == ("rate_limit", "at_prompt")
    assert abs(limit.data["retry_at"] - resets_at) < 60  # some tell it by the minute
    assert verdict(watch, limit)["verdict"] == "leave"
    tui.keys("Escape")  # offers of another model, and claude's own going on
    return limit.seq


@pytest.mark.parametrize("agent", AGENTS)
def test_the_verdict_is_right_and_nothing_is_done_where_nothing_is_switched_on(
    agent: str, place: Path
) -> None:
    model = Refusing()
    with (
        open_tui(agent, place, model, in_shell=True, options=PLAN.get(agent)) as tui,
        watching(place / "segue", tui.env) as watch,
    ):
        greet(tui, watch, 1 if agent == "opencode" else 2)
        idle(tui)
        seq = too_long(tui, watch, model)
        if agent != "opencode":  # at a limit, that one tries again by itself, for ever
            seq = limited(tui, watch, model, seq)
        # The user leaves it there, with Ctrl+C: whatever had stopped it, that is a user's exit.
        idle(tui)
        tui.until(lambda: _leaves(tui), what="its end")
        gone(tui)
        left = stop_after(watch, seq, lambda n: n.data["state"] == "exited")
        assert left.data["ended_by"] == "user"
        assert verdict(watch, left)["why"] == NOT_RESUMING
        # The terminal is closed in the middle of a turn.
        model.refusal = None
        tui.start_again()
        idle(tui)
        at_work(tui)
        watch.until(lambda: len(watch.notes("live")) == 2, "the session")
        tui.place.tmux("new-window", "-d")
        tui.place.tmux("kill-pane", "-t", tui.pane)
        closed = stop_after(watch, left.seq)
        assert closed.data["reason"] == "user_exit"
        assert closed.data["details"]["exit_type"] == "terminal_closed"
        assert verdict(watch, closed)["why"] == NOT_RESUMING
        assert {*decisions(watch)} == {"leave"}
        stops = [(note.data["reason"], note.data["state"]) for note in watch.notes("stop")]
        assert len(stops) == (3 if agent == "opencode" else 4), stops
        assert watch.notes("order", "back") == []


@pytest.mark.parametrize("agent", AGENTS)
def test_what_crashed_continues_in_its_pane_and_what_the_user_leaves_does_not(
    agent: str, place: Path
) -> None:
    work = Scenario(about="A crash.", job=Job(steps=4, step_s=0.5))
    with (
        open_tui(agent, place, work, in_shell=True) as tui,
        watching(place / "segue", tui.env, "--auto", config=QUICK) as watch,
    ):
        asks = heard(tui)
        begin(tui, tui.prompt)
        watch.until(lambda: done(tui) >= 1 and watch.notes("reading"), "a step")
        os.kill(tui.pid, signal.SIGKILL)
        crash = stop_after(watch, 0)
        assert crash.data["reason"] == "crash", crash.data
        decided = verdict(watch, crash)
        assert (decided["verdict"], decided["place"]) == ("resume", "pane")
        assert decided["price"]["tokens"] > 0
        assert "tokens cached" in decided["why"]
        watch.until(lambda: decided["why"] in watch.said.read_text(), "the decision in words")
        watch.until(lambda: not job.check(tui.project, work.job, finished=True).lost, "the work")
        watch.until(lambda: "resumed" in decisions(watch), "that it goes on")
        idle(tui)
        assert job.check(tui.project, work.job, finished=True).is_whole
        # It was told once, and its shell was given one line, of segue's own.
        assert sum("RESUMING (leg 2)" in part.text for part in asks[-1].parts) == 1
        assert decisions(watch) == ["resume", "resumed"]
        # Left by its user, it is left alone, also with --auto.
        tui.submit("/exit")
        gone(tui)
        left = stop_after(watch, crash.seq)
        assert left.data["reason"] == "user_exit"
        assert verdict(watch, left)["why"] == NOT_RESUMING
        shown = tui.text().rstrip().splitlines()
        assert shown[-1].strip() == "$"
        assert len(watch.notes("back")) == 1


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_after_a_limit_it_is_told_to_continue_once(agent: str, place: Path) -> None:
    """Claude says that it goes on by itself: that is waited for, and did not come in time."""
    rules = [ScenarioRule(before_step=3, fault="plan_limit", resets_in_s=4)]
    work = Scenario(about="A limit.", job=Job(steps=4, step_s=0.2), rules=rules, options=PLAN)
    with (
        open_tui(agent, place, work, in_shell=True) as tui,
        watching(place / "segue", tui.env, "--auto", config=f"{QUICK}stand_by_s = 2\n") as watch,
    ):
        asks = heard(tui)
        begin(tui, tui.prompt)
        stop = stop_after(watch, 0)
        assert (stop.data["reason"], stop.data["state"]) == ("rate_limit", "at_prompt")
        # A daemon that is killed while it waits is no reason not to.
        first = verdict(watch, stop)
        watch.kill()
        watch.start()
        watch.until(lambda: not job.check(tui.project, work.job, finished=True).lost, "the work")
        watch.until(lambda: "resumed" in decisions(watch), "that it goes on")
        idle(tui)
        assert job.check(tui.project, work.job, finished=True).is_whole
        assert first["verdict"] == ("stand_by" if agent == "claude" else "wait")
        assert [d for d in decisions(watch) if d in ("resume", "resumed")] == ["resume", "resumed"]
        resumed = next(n for n in watch.notes("wake") if n.data["verdict"] == "resume")
        assert resumed.at >= stop.data["retry_at"]
        assert (resumed.data["place"], resumed.data["prompt"]) == ("pane", "continue")
        assert len(watch.notes("stop")) == 1
        assert sum("RESUMING" in part.text for part in asks[-1].parts) == 1


ODD = "$(touch P)`touch P`;'\" &|"  # as a part of a socket's path it must be short


def test_a_pane_that_went_with_its_agent_is_a_new_window_and_no_name_is_ever_run(
    place: Path,
) -> None:
    work = Scenario(about="A crash.", job=Job(steps=3, step_s=0.5))
    folder = place / ODD
    folder.mkdir()
    with (
        open_tui("claude", folder, work) as tui,
        watching(place / "segue", tui.env, "--auto", config=QUICK) as watch,
    ):
        branch = "b$(touch${IFS}P)`touch${IFS}P`;touch${IFS}P"
        subprocess.run(["git", "checkout", "-q", "-b", branch], cwd=tui.project, check=True)
        tui.place.tmux("new-window", "-d")  # so that the server outlives the pane
        begin(tui, tui.prompt)
        tui.until(lambda: done(tui) >= 1, what="a step")
        os.kill(tui.pid, signal.SIGKILL)
        crash = stop_after(watch, 0)
        assert crash.data["reason"] == "crash", crash.data
        assert verdict(watch, crash)["place"] == "window"
        watch.until(lambda: not job.check(tui.project, work.job, finished=True).lost, "the work")
        watch.until(lambda: "resumed" in decisions(watch), "that it goes on")
        assert len(watch.notes("back")) == 1
        assert [*place.rglob("P")] == []
