"""Whose move it is, with the real daemon and the real TUIs above the mark: what the user
interrupts, what is finished and what sat there before is left alone, until the user's next words.
The many ways in which these can meet are in tests/core/handoffs (test_handoff_*)."""

import os
import signal
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from support.terminals.tui import Tui, open_tui
from support.watching import LIMIT_S, Watching, begin_work, done, watching

from segue.agents.claude import setup as claude_settings
from segue.cli.tools.setup import hook_groups
from segue.drill.model.ask import Kind
from segue.drill.plays import job as jobs
from segue.drill.scenarios.types import Context, Job, Scenario

POLICY = """
[policy]
busy_wait_s = {busy_wait_s}
monitor_mark = 0.10
warning_mark = 0.12
critical_mark = 0.14
soft_mark = 0.20
hard_mark = 0.20
"""
# Above the mark after some steps, and far from full after the last one.
JOB = Job(steps=10, step_s=1.0, output_bytes=4_000)
CONTEXT = Context(fills_after_steps=14, refuses=False)
OFF = "[policy]\nsoft_mark = 2.0\nhard_mark = 2.0\n"
WORK = (Kind.MAIN, Kind.CONTINUATION, Kind.HANDOFF)


@pytest.fixture(autouse=True)
def utf8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C.UTF-8")


def asked(tui: Tui) -> int:
    """How many requests of the work the model got."""
    return sum(request.kind in WORK for request in tui.requests)


def is_above(watch: Watching) -> bool:
    return any(note.data["zone"] == "handoff" for note in watch.notes("crossing"))


def cycle(watch: Watching) -> dict[str, Any]:
    notes = watch.notes("handoff")
    found: dict[str, Any] = notes[-1].data["cycle"] if notes else {"step": ""}
    return found


def is_left(watch: Watching) -> bool:
    """Whether the daemon has seen that the next move is the user's."""
    return cycle(watch)["step"] in ("resting", "cancelled")


def interrupt(tui: Tui, keys: tuple[str, ...]) -> None:
    """As a user does it: presses the keys again if the agent works on, for between two tools it may
    miss them."""
    for tries in range(3, -1, -1):
        for number, key in enumerate(keys):
            if number:
                tui.wait_for("again to interrupt")
            tui.keys(key)
        with suppress(AssertionError) if tries else nullcontext():
            tui.wait_for(lambda s: s.state == "idle", 3.0 if tries else LIMIT_S, "its prompt")
            return


def untouched(watch: Watching, tui: Tui) -> None:
    """Nothing was typed and no key pressed: by what the daemon wrote down before it would have, and
    by what the agent shows."""
    cycles = [note.data["cycle"] for note in watch.notes("handoff")]
    assert not any(each["was_cut"] or each["is_cleared"] for each in cycles)
    assert all(set(each["tries"]) <= {"request"} for each in cycles)  # by its own hook
    assert (tui.screen().state, tui.screen().draft) == ("idle", "")


def reread(watch: Watching, config: str) -> None:
    """Other settings; and whoever asks the daemon for something after that is answered after it had
    a chance to act on all that it knows."""

    def reloads() -> int:
        return watch.said.read_text().count("was reloaded")

    before = reloads()
    (watch.home / "config.toml").write_text(config)
    assert watch.process is not None
    os.kill(watch.process.pid, signal.SIGHUP)
    watch.until(lambda: reloads() > before, "the config")


def idle_and_full(tui: Tui, home: Path, config: str) -> None:
    """A daemon that begins now finds it so, and leaves it so."""
    requests = asked(tui)
    with watching(home, tui.env, "--auto", config=config) as later:
        later.until(lambda: is_above(later), "the mark")
        reread(later, config)
        assert "nothing is in progress" in later.segue("cancel", tui.session())
        assert later.notes("handoff") == []
    assert asked(tui) == requests


@pytest.mark.parametrize(
    ("agent", "keys", "has_hooks"),
    [
        ("claude", ("Escape",), True),
        ("claude", ("C-c",), False),
        ("codex", ("Escape",), False),
        ("codex", ("C-c",), False),
        ("opencode", ("Escape", "Escape"), False),
    ],
)
def test_what_the_user_interrupts_above_the_mark_is_left_to_them_until_their_next_words(
    agent: str,
    keys: tuple[str, ...],
    has_hooks: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = tmp_path / "segue"
    monkeypatch.setenv("SEGUE_HOME", str(home))
    settings = claude_settings.added({}, hook_groups(), None, "") if has_hooks else None
    patient, at_once = (POLICY.format(busy_wait_s=wait_s) for wait_s in (600, 0))
    scenario = Scenario(about="", job=JOB, context=CONTEXT)
    with (
        open_tui(agent, tmp_path, scenario, settings=settings) as tui,
        watching(home, tui.env, "--auto", config=patient) as watch,
    ):
        begin_work(tui)
        watch.until(lambda: is_above(watch), "the mark")
        interrupt(tui, keys)
        requests = asked(tui)
        assert done(tui, JOB) < JOB.steps
        watch.until(lambda: is_left(watch), "its rest")
        reread(watch, at_once)
        if not has_hooks:  # which know one home
            idle_and_full(tui, tmp_path / "later", at_once)
        untouched(watch, tui)
        assert asked(tui) == requests

        was_resting = cycle(watch)["step"] == "resting"
        if was_resting:  # the turn lasts until the daemon has seen it
            tui.hold(1)
        tui.submit("Go on.")
        if was_resting:
            watch.until(lambda: cycle(watch)["step"] != "resting", "the user's turn")
            tui.let_go()
            watch.until(lambda: any(step == "done" for step in watch.steps()), "the handoff")
        # The words that a new session begins with are above this mark already.
        reread(watch, OFF)
        tui.until(lambda: done(tui, JOB) == JOB.steps, LIMIT_S, "the job")
        assert jobs.check(tui.project, JOB, finished=True).is_whole


@pytest.mark.parametrize(("agent", "has_hooks"), [("claude", True), ("codex", False)])
def test_what_is_finished_above_the_mark_stays_finished(
    agent: str, has_hooks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "segue"
    monkeypatch.setenv("SEGUE_HOME", str(home))
    settings = claude_settings.added({}, hook_groups(), None, "") if has_hooks else None
    job = Job(steps=3, step_s=1.0, output_bytes=4_000)
    scenario = Scenario(about="", job=job, context=Context(fills_after_steps=10, refuses=False))
    config = POLICY.format(busy_wait_s=600).replace("0.20", "0.28")  # with its last step or two
    with (
        open_tui(agent, tmp_path, scenario, settings=settings) as tui,
        watching(home, tui.env, "--auto", config=config) as watch,
    ):
        begin_work(tui)
        watch.until(lambda: is_above(watch), "the mark")
        tui.until(lambda: done(tui, job) == job.steps, LIMIT_S, "the job")
        tui.wait_for(lambda s: s.state == "idle", LIMIT_S, "its prompt")
        if watch.steps():
            watch.until(lambda: is_left(watch), "its rest")
        requests = asked(tui)
        watch.stop()
        idle_and_full(tui, tmp_path / "later", POLICY.format(busy_wait_s=0))
        untouched(watch, tui)
        assert asked(tui) == requests
