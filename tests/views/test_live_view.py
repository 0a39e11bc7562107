"""What a person sees of a run: at any width, of any text, moving and in lines."""

import io
import re
import time
from collections.abc import Callable
from datetime import UTC
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len

from segue.core.policy import Policy
from segue.core.runs.types import (  # fmt: skip
    Abilities,
    AnyFact,
    AskCheckpoint,
    Boundary,
    CancelAsked,
    Checked,
    CheckpointComposed,
    ContextMeasured,
    Created,
    Elapsed,
    EndLeg,
    Finish,
    InterruptRequested,
    LegEnded,
    LegNotStarted,
    Looped,
    Outcome,
    Replied,
    Run,
    RunCheck,
    RunState,
    RunStep,
    StartLeg,
    Wait,
    WaitUntil,
)
from segue.core.sessions.forecasts.forecast import forecast
from segue.core.sessions.forecasts.growth import Growth
from segue.core.sessions.reading import Reading
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import Evidence, Stop
from segue.views.run import view as live
from segue.views.run.block import block, clean, countdown, cut
from segue.views.run.view import (
    LegActivity,
    MovingRun,
    RunLines,
    RunPicture,
    Story,
    choose,
    news,
    report,
)

NOW = 1_794_800_000.0  # 2026-11-16 03:33:20
RUN = Run(
    id="run-1", task="t", agent="claude", cwd="/w", created_at=NOW - 3_780, policy=Policy(),
    state=RunState.WORKING, leg=2, is_live=True,
)  # fmt: skip
LIMITED = Stop(
    reason=StopReason.RATE_LIMIT,
    confidence=0.97,
    evidence=(Evidence("x", "You've hit your limit\x1b[2J", "stdout:4"),),
)
WAIT = Wait(until=NOW + 4_323, since=NOW, why=StopReason.RATE_LIMIT, reset_at=NOW + 4_300)
NASTY = "rm \x1b[31mx\x1b]0;owned\x07 \r\n\t\x9b2J \u202eevil\u2066 \x00 \ud800 日本語 done"


def picture(
    used: int = 124_000, what: str = "pytest -q", reason: str = "why", **more: Any
) -> RunPicture:
    reading = Reading(input_tokens=used, window_tokens=200_000)
    growth = Growth(tokens_per_minute=3_100.0)
    run = replace(RUN, reading=reading, **more)
    return RunPicture(
        run=run,
        activity=LegActivity(what, NOW - 12),
        forecast=forecast(reading, growth, run.policy),
        growth=growth,
        reason=reason,
    )


def drawn(shown: RunPicture, width: int) -> list[str]:
    lines = block(shown, now=NOW, width=width, tz=UTC)
    return ["".join(text for text, _ in line) for line in lines]


def test_a_wide_terminal_shows_all() -> None:
    assert drawn(picture(handoffs=1), 121) == [
        "claude · leg 2 · working · ███████░░░░░ 62% · handoff in 15 min · 124K of 200K · +3.1K/min"
        " · 1 handoff · 1 h 3 min so far",
        "  pytest -q · 12 s",
        "  why",
    ]


def test_at_80_and_60_columns_the_lesser_parts_go() -> None:
    shown = picture(handoffs=1)
    assert drawn(shown, 80)[0] == (
        "claude · leg 2 · working · ███████░░░░░ 62% · handoff in 15 min · 124K of 200K"
    )
    assert drawn(shown, 120)[0].endswith("+3.1K/min · 1 handoff")
    assert drawn(shown, 60)[0] == "claude · leg 2 · working · ████░░ 62% · handoff in 15 min"
    assert drawn(shown, 30)[0] == "claude · leg 2 · working · 62%"


@pytest.mark.parametrize("width", [1, 5, 20, 40, 60, 80, 120, 400])
@pytest.mark.parametrize("state", list(RunState))
def test_no_line_is_wider_than_the_terminal(width: int, state: RunState) -> None:
    shown = picture(198_000, NASTY * 20, NASTY * 20, state=state, wait=WAIT, check=NASTY * 9)
    lines = drawn(shown, width)
    assert lines
    assert all(cell_len(line) <= width for line in lines if width >= 3)


@given(st.text(max_size=300), st.integers(0, 130))
def test_nothing_but_printable_text_reaches_the_terminal(text: str, width: int) -> None:
    shown = picture(what=text, reason=text, agent=text, check=text)
    fact = LegEnded(leg=2, stop=replace(LIMITED, evidence=(Evidence("x", text, text),)))
    outcome = Outcome(exit_code=1, reason=text, what=text, advice=text, change=text)
    ended = replace(shown.run, state=RunState.FAILED, outcome=outcome, stop=fact.stop)
    told = [
        *drawn(shown, width),
        *drawn(replace(shown, run=replace(shown.run, state=RunState.CHECKING)), width),
        *news(shown.run, fact, RunStep(ended, (RunCheck(reason=text),)), now=NOW, tz=UTC),
        *news(shown.run, LegNotStarted(leg=2, what=text), RunStep(ended), now=NOW, tz=UTC),
        *news(shown.run, CancelAsked(by=text), RunStep(ended), now=NOW, tz=UTC),
        *click.unstyle(report(ended, now=NOW, story=Story(tried=(clean(text),)))).split("\n"),
    ]
    assert all(line.isprintable() for line in told)


def test_a_reason_tells_times_of_the_users_own_clock() -> None:
    shown = picture(reason="waited until 2026-11-16T03:33:05Z: resuming")
    assert drawn(shown, 80)[-1] == "  waited until 03:33:05: resuming"


def test_an_escape_sequence_is_taken_out_as_a_whole() -> None:
    assert clean(NASTY) == "rm x 2J evil 日本語 done"
    assert clean("\x1b[38;5;1mred\x1b[0m") == "red"


def test_a_cut_says_so_and_counts_wide_characters() -> None:
    assert cut("日本語日本語", 7) == "日本語…"
    assert cut("abc", 3) == "abc"
    assert cut("abcd", 3) == "ab…"
    assert cut("abcd", 0) == ""


def test_a_wait_counts_down() -> None:
    lines = drawn(picture(state=RunState.WAITING, is_live=False, wait=WAIT), 80)
    assert lines[1] == "  1:12:03 left, until 04:45:23: rate limited"
    unknown = replace(WAIT, until=NOW + 30, reset_at=None, tries=3)
    lines = drawn(picture(state=RunState.WAITING, is_live=False, wait=unknown), 80)
    assert lines[1] == "  0:30 left, until 03:33:50: rate limited; no reset time is known, try 3"
    assert [countdown(s) for s in (-5, 59.6, 3_600, 200_000)] == [
        "0:00", "1:00", "1:00:00", "2 d 7:33:20",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("used", "more", "said"),
    [
        (124_000, {}, "handoff in 15 min"),
        (163_000, {"is_due": True}, "handoff at the next pause"),
        (171_000, {}, "handoff now"),
        (124_000, {"policy": Policy(hard_mark=2.0)}, "no handoffs"),
    ],
)
def test_it_says_when_the_handoff_comes(used: int, more: dict[str, Any], said: str) -> None:
    assert f"% · {said}" in drawn(picture(used, **more), 120)[0]


def test_the_gauge_has_the_colour_of_the_zone() -> None:
    def colours(used: int) -> str:
        line = block(picture(used), now=NOW, width=120, tz=UTC)[0]
        return next(style for text, style in line if "█" in text)

    assert [colours(n) for n in (20_000, 70_000, 110_000, 150_000, 171_000)] == [
        "green", "cyan", "yellow", "magenta", "red",
    ]  # fmt: skip


def test_without_a_reading_nothing_is_made_up() -> None:
    assert drawn(RunPicture(run=replace(RUN, state=RunState.STARTING)), 80) == [
        "claude · leg 2 · starting · 1 h 3 min so far"
    ]


def told(fact: AnyFact, *decisions: Any, before: Run = RUN, **after: Any) -> list[str]:
    return news(before, fact, RunStep(replace(before, **after), decisions), now=NOW, tz=UTC)


def test_what_matters_gets_a_line() -> None:
    assert told(Created(), StartLeg(leg=1, reason="the task")) == [
        "leg 1: a new session starts with the task"
    ]
    assert told(LegEnded(leg=2, stop=LIMITED), WaitUntil(reason="it resets then", wait=WAIT)) == [
        "leg 2 ended: rate limited (You've hit your limit)",
        "waiting 1 h 12 min (until 04:45:23): rate limited",
    ]
    assert told(Elapsed(timer="wait"), StartLeg(leg=3, prompt="resume", reason="it has reset")) == [
        "leg 3: resuming the same session"
    ]
    assert told(
        CheckpointComposed(number=1, has_summary=True),
        StartLeg(leg=3, prompt="continuation", strategy="rules", reason=""),
    ) == [
        "checkpoint 1 written, with the session's own summary",
        "leg 3: a new session continues with a checkpoint made without the old session",
    ]
    assert told(Replied(leg=2, acted=True), handoffs=1) == ["handoff 1 done: leg 2 is working"]
    assert told(Boundary(leg=2), AskCheckpoint(leg=2, reason="soft mark")) == [
        "asking leg 2 for a checkpoint: soft mark"
    ]
    assert told(Elapsed(timer="stall"), EndLeg(leg=2, how="gentle", reason="330 s")) == [
        "no output for too long",
    ]
    assert told(Checked(ok=False, exit_code=2)) == ["the check failed, exit code 2"]
    assert told(Looped(leg=2, calls=9, kind="replies", call="rm -f x", made=9, failed=9)) == [
        "leg 2: no progress in 9 replies: no file changed, no new call succeeded, no todo was"
        " closed; most often: rm -f x (made 9 times, failed each time)"
    ]
    assert told(Looped(leg=2, calls=9, kind="calls", call="rm -f x", made=1, failed=1))[0].endswith(
        "; for example: rm -f x (failed)"
    )
    assert told(InterruptRequested(), presses=1)[0].startswith("Ctrl+C: the agent finishes")
    assert told(InterruptRequested(), presses=9) == ["Ctrl+C again: killing the agent"]


def test_what_does_not_matter_gets_none() -> None:
    reading = Reading(input_tokens=5)
    assert told(ContextMeasured(leg=2, reading=reading), reading=reading) == []
    assert told(Boundary(leg=2)) == []
    assert told(Replied(leg=2)) == []
    assert told(Elapsed(timer="stall")) == []  # nothing was done about it
    assert told(LegEnded(leg=1, stop=LIMITED)) == []  # an old one's


def test_the_soft_mark_is_reported_once() -> None:
    read = ContextMeasured(leg=2, reading=Reading(input_tokens=163_000, window_tokens=200_000))
    assert told(read, is_due=True) == ["the window is 82% full: handoff at the next pause"]
    assert told(read, before=replace(RUN, is_due=True)) == []


def test_a_story_counts_waits_and_what_was_tried() -> None:
    waiting = replace(RUN, state=RunState.WAITING, wait=WAIT)
    ended = LegEnded(leg=2, stop=LIMITED)
    step = RunStep(waiting, (WaitUntil(reason="it resets then", wait=WAIT),))
    story = Story().add(RUN, ended, step, NOW)
    story = story.add(waiting, Boundary(leg=2), RunStep(waiting), NOW + 50)  # nothing
    story = story.add(waiting, Elapsed(timer="wait"), RunStep(replace(RUN, leg=3)), NOW + 4_323)
    assert (story.waits, story.waited_s) == (1, 4_323)
    assert story.tried == (
        "leg 2 ended: rate limited (You've hit your limit); then: it resets then",
    )


OUTCOME = Outcome(
    exit_code=75,
    reason="rate_limit",
    what="the limit has not reset for 8 days",
    advice="Use another plan.",
    change="max_limited_s = 691200 in [policy], or --set max_limited_s=N",
)


def test_success_is_one_line() -> None:
    run = replace(RUN, state=RunState.DONE, handoffs=1, tokens=1_234_567, cost_usd=3.2)
    said = click.unstyle(report(run, now=NOW, story=Story(waits=1, waited_s=7_980)))
    assert said == ("✓ done: 2 legs, 1 handoff, 1 wait (2 h 13 min), 1.2M tokens, $3.20, 1 h 3 min")


def test_a_failure_has_all_that_helps() -> None:
    run = replace(RUN, state=RunState.FAILED, outcome=OUTCOME, stop=LIMITED, tokens=900)
    story = Story(waits=2, waited_s=60, tried=("leg 1 ended: crashed",))
    assert click.unstyle(report(run, now=NOW, story=story)).split("\n") == [
        "✗ failed: the limit has not reset for 8 days (exit code 75)",
        "  why       leg 2: rate limited (rate_limit, 97% sure)",
        "  evidence  You've hit your limit  (stdout:4)",
        "  tried     leg 1 ended: crashed",
        "  used      2 legs, 0 handoffs, 2 waits (1 min), 900 tokens, 1 h 3 min",
        "  setting   max_limited_s = 691200 in [policy], or --set max_limited_s=N",
        "  next      Use another plan.",
        "            segue resume run-1  # resume it",
        "            segue logs run-1    # all that happened",
    ]


def test_a_report_names_who_set_the_setting(tmp_path: Any) -> None:
    from segue.system.config.settings import load

    settings = load(tmp_path, {"SEGUE_MAX_LIMITED_S": "60"})
    run = replace(RUN, state=RunState.FAILED, outcome=OUTCOME, policy=settings.policy())
    said = click.unstyle(report(run, now=NOW, settings=settings))
    assert "--set max_limited_s=N (set by: SEGUE_MAX_LIMITED_S)" in said


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_report_is_wrapped_but_commands_are_whole(width: int) -> None:
    outcome = replace(OUTCOME, what="word " * 40, advice="advice " * 40, reason="check_failed")
    run = replace(
        RUN, state=RunState.FAILED, outcome=outcome, check="make " + "x" * 70, cwd="/w/with space"
    )
    lines = click.unstyle(report(run, now=NOW, width=width)).split("\n")
    (check,) = [line for line in lines if "# the check" in line]
    assert f"cd '/w/with space' && {run.check}  # the check" in check
    assert all(len(line) <= width for line in lines if "# " not in line)


def test_a_user_who_ended_it_is_told_how_to_continue() -> None:
    run = replace(RUN, state=RunState.CANCELLED, outcome=replace(OUTCOME, advice="", change=""))
    said = click.unstyle(report(run, now=NOW))
    assert said.startswith("! cancelled")
    assert "Session ended by user, not auto-resuming" in said
    assert "segue resume run-1" in said


def test_a_command_that_the_advice_has_is_not_said_twice() -> None:
    advice = "To resume: segue resume run-1"
    run = replace(RUN, state=RunState.FAILED, outcome=replace(OUTCOME, advice=advice))
    said = click.unstyle(report(run, now=NOW))
    assert said.count("segue resume run-1") == 1
    assert said.count("segue logs run-1") == 1


def test_a_forecast_is_made_where_none_is_given() -> None:
    shown = picture()
    assert drawn(replace(shown, forecast=None), 120) == drawn(shown, 120)
    lower = replace(shown.run, abilities=Abilities(enforced_tokens=140_000))
    assert "handoff in 2 min" in drawn(replace(shown, forecast=None, run=lower), 120)[0]


class Terminal(io.StringIO):
    """As much of one as the view uses: rows that wrap, erased lines, the cursor up."""

    def __init__(self, columns: int = 80) -> None:
        super().__init__()
        self.columns, self.rows, self.row, self.column = columns, [""], 0, 0
        self.writes = 0

    def isatty(self) -> bool:
        return True

    def size(self) -> tuple[int, int]:
        return self.columns, 24

    def write(self, text: str) -> int:
        self.writes += bool(text)
        for part in re.findall(r"\x1b\[[0-9;]*[A-Za-z]|[^\x1b]", text):
            self._take(part)
        return len(text)

    def _take(self, part: str) -> None:
        if part == "\x1b[2K":
            self.rows[self.row] = ""
        elif part == "\x1b[1A":
            self.row -= 1
            assert self.row >= 0
        elif part == "\r":
            self.column = 0
        elif part == "\n":
            self.row, self.column = self.row + 1, 0
            self.rows += [""] * (self.row + 1 - len(self.rows))
        elif not part.startswith("\x1b"):
            if self.column >= self.columns:
                self._take("\n")
            self.rows[self.row] = self.rows[self.row][: self.column].ljust(self.column) + part
            self.column += 1
        else:
            assert part.endswith("m"), part

    def narrow(self, columns: int) -> None:
        """Wraps what is there, as terminals do."""
        wrapped: list[str] = []
        for row in self.rows[: self.row + 1]:
            wrapped += [row[i : i + columns] for i in range(0, len(row), columns)] or [""]
        self.rows, self.columns = wrapped, columns
        self.row, self.column = len(wrapped) - 1, len(wrapped[-1])

    @property
    def screen(self) -> list[str]:
        return [row for row in self.rows if row]


def moving(terminal: Terminal, clock: Callable[[], float] = lambda: NOW) -> MovingRun:
    return MovingRun(terminal, tz=UTC, clock=clock, size=terminal.size)


def test_lines_stay_above_the_block_that_moves() -> None:
    terminal = Terminal()
    view = moving(terminal)
    view.show(picture())
    view.draw()
    view.step(RUN, LegEnded(leg=2, stop=LIMITED), RunStep(RUN), NOW)
    view.say("more")
    assert terminal.screen == [
        "03:33:20  leg 2 ended: rate limited (You've hit your limit)",
        "03:33:20  more",
        *drawn(picture(), 79),
    ]
    view.__exit__()
    assert terminal.screen == [
        "03:33:20  leg 2 ended: rate limited (You've hit your limit)",
        "03:33:20  more",
    ]


def test_a_narrower_terminal_leaves_no_ghosts_and_loses_no_line() -> None:
    terminal = Terminal(120)
    view = moving(terminal)
    view.show(picture(what="long " * 40))
    view.say("first")
    for columns in (50, 33, 110):
        if columns < terminal.columns:
            terminal.narrow(columns)
        terminal.columns = columns
        view.draw()
        assert terminal.screen == [
            "03:33:20  first",
            *drawn(picture(what="long " * 40), columns - 1),
        ]


def test_nothing_is_written_while_nothing_changes() -> None:
    terminal = Terminal()
    view = moving(terminal)
    view.show(picture())
    view.draw()
    writes = terminal.writes
    for _ in range(50):
        view.show(picture())
        view.draw()
    assert terminal.writes == writes


def test_it_is_drawn_at_most_four_times_a_second() -> None:
    terminal = Terminal()
    ticks = iter(range(10_000_000))
    with moving(terminal, lambda: NOW + next(ticks)) as view:  # each look is another second
        began = time.monotonic()
        until = began + 10
        while terminal.writes < 3 and time.monotonic() < until:
            view.show(picture())  # as fast as it can be told
        took = time.monotonic() - began
    assert terminal.writes >= 3
    assert took >= 3 * live._EVERY_S * 0.9


def test_somebody_else_may_write_in_between() -> None:
    terminal = Terminal()
    view = moving(terminal)
    view.show(picture())
    view.draw()
    with view.aside():
        terminal.write("the agent's own\n")
    view.draw()
    assert terminal.screen == ["the agent's own", *drawn(picture(), 79)]


def test_a_small_terminal_gets_what_fits() -> None:
    terminal = Terminal()
    view = MovingRun(terminal, tz=UTC, clock=lambda: NOW, size=lambda: (80, 2))
    view.show(picture())
    view.draw()
    assert len(terminal.screen) == 1


def test_no_colour_means_none() -> None:
    stream = io.StringIO()
    view = MovingRun(stream, tz=UTC, has_colour=False, clock=lambda: NOW, size=lambda: (80, 24))
    view.show(picture())
    view.say("x")
    assert not re.search(r"\x1b\[[0-9;]*m", stream.getvalue())


def test_a_pipe_gets_dated_lines_and_no_block() -> None:
    stream = io.StringIO()
    with choose(stream, {"TERM": "xterm"}, tz=UTC) as view:
        assert isinstance(view, RunLines)
        assert not isinstance(view, MovingRun)
        view.show(picture())
        view.step(RUN, LegEnded(leg=2, stop=LIMITED), RunStep(RUN), NOW)
    assert stream.getvalue() == (
        "2026-11-16 03:33:20  leg 2 ended: rate limited (You've hit your limit)\n"
    )


def test_a_terminal_that_can_do_nothing_gets_lines() -> None:
    assert isinstance(choose(Terminal(), {"TERM": "xterm"}, tz=UTC), MovingRun)
    assert not isinstance(choose(Terminal(), {"TERM": "dumb"}, tz=UTC), MovingRun)
    assert not isinstance(choose(Terminal(), {}, tz=UTC), MovingRun)


@pytest.mark.parametrize("fault", [BrokenPipeError(), OSError(5, "EIO"), ValueError("closed")])
def test_a_terminal_that_is_gone_ends_nothing(fault: Exception) -> None:
    class Gone(Terminal):
        def write(self, text: str) -> int:
            self.writes += 1
            raise fault

    terminal = Gone()
    with moving(terminal) as view:
        view.show(picture())
        view.say("a")
        view.say("b")
    assert terminal.writes == 1


def test_a_stream_without_the_characters_gets_others() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    RunLines(stream, tz=UTC, clock=lambda: NOW).say("a · b")
    assert raw.getvalue() == b"2026-11-16 03:33:20  a ? b\n"


def test_the_end_itself_is_left_to_the_report() -> None:
    finish = Finish(reason="", state=RunState.FAILED, outcome=OUTCOME)
    assert told(LegEnded(leg=2, stop=LIMITED), finish, state=RunState.FAILED) == [
        "leg 2 ended: rate limited (You've hit your limit)"
    ]


def test_the_agents_own_words_stand_below_its_command_in_one_line() -> None:
    shown = replace(picture(is_live=True), words="\n\x1b[31mI look at the tests first.\nThen more.")
    assert drawn(shown, 80)[1:] == ["  pytest -q · 12 s", "  “I look at the tests first.”", "  why"]
    assert drawn(shown, 20)[2] == "  “I look at the t…”"
    idle = replace(shown, run=replace(shown.run, is_live=False))
    assert not any("I look" in line for line in drawn(idle, 80))
    for width in (1, 3, 4, 5, 40):
        assert all(cell_len(line) <= width for line in drawn(shown, width) if width >= 3)
