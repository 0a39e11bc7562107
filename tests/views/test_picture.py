"""The table of a drill, at any width, still and moving."""

import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from segue.drill.plays.outcome import PlayOutcome, requests_of
from segue.drill.scenarios.types import Expectation
from segue.views import drill_table as picture
from segue.views.drill_row import DrillRow
from segue.views.drill_table import DrillLines, MovingDrill, table


def outcome(steps: int, **given: object) -> PlayOutcome:
    told = {
        "agent": "rehearsal", "version": "1", "scenario": "success", "played_on": "2026-11-16",
        "steps": steps, "done": list(range(1, steps + 1)), "lost": [], "repeated": [],
        "out_of_order": [], "reason": "completed", "confidence": 1.0, "exit_code": 0,
        "requests": 3, "legs": 1, "seconds": 0.84, "expects": Expectation(),
    }  # fmt: skip
    return PlayOutcome(**{**told, **given})  # type: ignore[arg-type]


def request(answered: str, **given: object) -> dict[str, Any]:
    told = {
        "answered": answered, "delivery": "whole", "kind": "main", "tokens": 20_000,
        "method": "POST", "path": "/v1/messages",
    }  # fmt: skip
    return {"kind": "request", "window": 200_000, "request": {**told, **given}}


def step(number: int) -> dict[str, Any]:
    return {"kind": "step", "step": number, "of": 20}


def finished(
    scenario: str = "success", steps: int = 6, *, with_segue: bool = False, **given: object
) -> DrillRow:
    row = DrillRow("rehearsal", scenario, steps, with_segue=with_segue)
    row.hear(request("step 1"))
    row.outcome = outcome(steps, scenario=scenario, with_segue=with_segue, **given)
    return row


def both(scenario: str, steps: int, done: int, reason: str, **given: object) -> list[DrillRow]:
    """Without segue it stopped, with segue it did not."""
    stopped = list(range(1, done + 1))
    return [
        finished(scenario, steps, done=stopped, reason=reason, exit_code=1),
        finished(scenario, steps, with_segue=True, **given),
    ]


def running(*events: dict[str, Any], steps: int = 20, with_segue: bool = False) -> DrillRow:
    row = DrillRow("rehearsal", "window-fills-slowly", steps, with_segue=with_segue)
    row.started = 0.0
    for event in events:
        row.hear(event)
    return row


def screen(width: int, height: int = 24) -> Console:
    return Console(
        file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None,
        legacy_windows=False, _environ={},
    )  # fmt: skip


def drawn(rows: list[DrillRow], width: int) -> list[str]:
    console = screen(width)
    with console.capture() as got:
        console.print(table(rows, width))
    return [line.rstrip() for line in got.get().splitlines()]


@pytest.fixture
def default() -> list[DrillRow]:
    """What `segue drill` plays."""
    return [
        *both("plan-limit", 6, 2, "rate_limit", legs=2, waits=1, seconds=10.3),
        *both("too-long-no-compaction", 10, 7, "context_exhausted", legs=2, handoffs=1),
        *both("crash-in-tool", 6, 2, "crash", legs=2),
    ]


@pytest.mark.parametrize("width", [60, 80, 100, 120, 140])
def test_nothing_of_the_default_drill_is_cut(width: int, default: list[DrillRow]) -> None:
    lines = drawn(default, width)
    assert len(lines) == 4
    assert all(len(line) <= width for line in lines)
    assert "…" not in "".join(lines)
    assert "plan-limit" in lines[1]
    assert lines[1].index("✗") < lines[1].index("✓")


LONG = "✗ stopped after 2 of 6: rate_limit"
WORDS = ("██", "10%", "10.3 s", "rehearsal", "1 wait", LONG, "✗ 2/6")


@pytest.mark.parametrize(
    ("width", "has"),
    [
        (60, {"✗ 2/6"}),
        (80, {"✗ 2/6", "1 wait"}),
        (90, {"✗ 2/6", "1 wait", "rehearsal"}),
        (100, {"✗ 2/6", "1 wait", "rehearsal", "10.3 s"}),
        (125, {LONG, "1 wait", "rehearsal", "10.3 s"}),
        (145, {LONG, "1 wait", "rehearsal", "10.3 s", "10%"}),
    ],
)
def test_the_narrower_the_more_is_left_out(
    width: int, has: set[str], default: list[DrillRow]
) -> None:
    line = drawn(default, width)[1]
    assert {word for word in WORDS if word in line} == has


def test_a_line_has_both_plays_of_an_agent_in_a_scenario(default: list[DrillRow]) -> None:
    head, limited, full, crashed = drawn(default, 145)
    assert head.index("without segue") < head.rindex("with segue")
    assert "✗ stopped after 2 of 6: rate_limit " in limited
    assert "✓ all 6 steps, 2 legs, 1 wait " in limited
    assert "✗ stopped after 7 of 10: context_exhausted " in full
    assert "✓ all 10 steps, 2 legs, 1 handoff " in full
    assert "✓ all 6 steps, 2 legs " in crashed


@pytest.mark.parametrize("with_segue", [True, False])
def test_what_was_not_wanted_has_no_column(with_segue: bool) -> None:
    head = drawn([finished(with_segue=with_segue)], 120)[0]
    assert ("with segue" in head) == with_segue
    assert ("without segue" in head) != with_segue


def test_the_agents_are_named_at_any_width_if_there_are_several(default: list[DrillRow]) -> None:
    other = finished("plan-limit")
    other.agent = "pi"
    assert drawn([*default, other], 60)[-1].startswith("pi")


@pytest.mark.parametrize(
    ("event", "news"),
    [
        (request("checkpoint", kind="checkpoint"), "the agent wrote a checkpoint"),
        (request("step 6", kind="continuation"), "the new session continues with step 6"),
        (request("summary", kind="compaction"), "the agent compacted its context"),
        (request("too_long", kind="compaction", status=413), "API error: too long"),
        (request("plan_limit", status=429), "API error: plan limit"),
        (request("text", delivery="cut_off"), "the agent answers without a tool (cut off)"),
        (request("title", kind="title"), ""),
        ({"kind": "act", "act": "hang_up", "in_step": 3}, "terminal closed in step 3"),
    ],
)
def test_news_says_what_the_agent_did(event: dict[str, Any], news: str) -> None:
    assert running().hear(event) == news


def test_what_segue_decides_is_news() -> None:
    row = running(with_segue=True)
    said = "context at 93%: handing over now"
    assert row.hear({"kind": "segue", "said": said}) == said
    assert said in drawn([row], 120)[1]


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_a_long_command_in_the_news_takes_no_room_from_the_others(
    width: int, default: list[DrillRow]
) -> None:
    before = drawn(default, width)
    long = running(request("for each in a b c; do echo $each; done" * 3))
    long.started = None  # a time takes room too
    lines = drawn([*default, long], width)
    assert all(len(line) <= width for line in lines)
    for old, new in zip(before, lines, strict=False):
        assert set(old.split()) <= set(new.split())
    assert "…" in lines[-1]
    assert len(lines[-1].partition("0/20")[2].partition("…")[0]) < 40


@pytest.mark.parametrize("width", [20, 30, 40])
def test_names_are_cut_before_anything_breaks_in_two(width: int, default: list[DrillRow]) -> None:
    lines = drawn(default, width)
    assert len(lines) == 4
    assert all(len(line) <= width for line in lines)


def test_news_of_several_lines_is_one_line_and_no_markup() -> None:
    row = running()
    said = row.hear(request("cat <<EOF\nfor [bold]all\x1b[2J[/bold]\nEOF"))
    assert said == "cat <<EOF for [bold]all[2J[/bold] EOF"
    assert len(drawn([row], 120)) == 2
    assert "[bold]all" in drawn([row], 120)[1]


def test_why_a_play_was_not_played_stands_below_the_table_once() -> None:
    refused = [
        DrillRow("claude", name, 6, with_segue=with_segue)
        for name in ("success", "billing")
        for with_segue in (False, True)
    ]
    for row in refused:
        row.refused = "claude is not started: no network namespace can be created here, sorry"
    assert picture.below([*refused, finished()]) == [refused[0].refused]
    broken = DrillRow("claude", "success", 6, with_segue=True)
    broken.broke_off = "git went missing"
    said = "claude · success · with segue: broke off: git went missing"
    assert picture.below([broken]) == [said]


def test_when_sessions_were_asked_stands_below_the_table() -> None:
    bare = finished(asked_at_percent=[99.0])  # not by segue
    rows = [bare, finished(with_segue=True, handoffs=3, asked_at_percent=[81.5, 90.0])]
    rows.append(finished(with_segue=True, handoffs=1, asked_at_percent=[90.1]))
    assert picture.below(rows) == [
        "2 of 3 requests for a checkpoint were read at 90% of the window or less (81.5 to 90.1%)"
    ]
    assert requests_of(row.outcome for row in rows) == (4, 3, 2, 81.5, 90.1)
    assert picture.below([bare, finished(with_segue=True)]) == []


def test_what_never_came_about_stands_below_the_table() -> None:
    row = finished("billing", with_segue=True, unfired=["rule 2", "kill in step 3"])
    said = "rehearsal · billing · with segue: never took effect: kill in step 3"
    assert picture.below([row, finished()]) == [said]
    bare = finished("billing", unfired=["rule 2"])
    said = "rehearsal · billing · without segue: never took effect: rule 2"
    assert picture.below([bare]) == [said]


# Steps


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ([1], "0/20"),
        ([1, 2, 3], "2/20"),
        ([1, 2, 3, 1], "3/20"),  # repeated: three were done
        ([1, 2, 3, 3], "2/20"),  # broken off, begun again
        ([1, 2, 3, 1, 2], "3/20"),
    ],
)
def test_steps_are_counted_as_they_are_reported(told: list[int], shown: str) -> None:
    assert f" {shown} step " in drawn([running(*map(step, told))], 120)[1]


def test_a_step_too_short_to_be_seen_running_is_counted_by_its_request() -> None:
    row = running(step(1), request("step 2"), request("step 3"), step(3))
    assert " 2/20 " in drawn([row], 120)[1]


def test_when_it_is_over_the_repository_says_how_many_steps() -> None:
    row = running(step(1), step(2), step(1))
    row.outcome = outcome(20, done=[1, 2, 3, 1], repeated=[1])
    assert "✗ 3/20 repeated step 1 " in drawn([row], 65)[1]


@pytest.mark.parametrize("why", ["refused", "broke_off"])
def test_what_was_not_played_has_no_steps_and_no_time(why: str) -> None:
    row = DrillRow("claude", "success", 6)
    row.started = 0.0
    setattr(row, why, "no such luck")
    line = drawn([row], 120)[1]
    assert "0/6" not in line
    assert not line.endswith(" s")
    assert {"refused": "not played", "broke_off": "broke off"}[why] in line


def test_a_scenario_without_steps_shows_none() -> None:
    row = DrillRow("rehearsal", "mine", 0)
    row.outcome = outcome(0)
    assert "0/0" not in drawn([row], 120)[1]


# Moving


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    at = [0.0]
    monkeypatch.setattr(picture, "time", SimpleNamespace(monotonic=lambda: at[0]))
    return at


def shown(moving: MovingDrill) -> list[str]:
    console = moving.live.console
    with console.capture() as got:
        console.print(moving.live.get_renderable())
    return [line.rstrip() for line in got.get().splitlines()]


def test_the_clock_continues_between_events(seconds: list[float]) -> None:
    moving = MovingDrill(screen(120))
    moving.begin(running(step(1)))
    seconds[0] = 7.0
    assert shown(moving)[-1].endswith(" 7 s")
    seconds[0] = 8.0
    assert shown(moving)[-1].endswith(" 8 s")


def test_only_the_last_rows_that_fit_are_drawn_while_it_moves(seconds: list[float]) -> None:
    console = screen(120, height=10)
    moving = MovingDrill(console)
    with moving:
        for _ in range(30):
            moving.begin(finished())
        moving.begin(running(step(17)))
        moving.live.refresh()
    written = console.file.getvalue()  # type: ignore[attr-defined]
    assert "..." not in written
    assert len(shown(moving)) < 10
    assert "step 17 of 20" in shown(moving)[-1]


def test_lines_say_that_a_play_broke_off_and_not_that_a_refused_one_begins(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = DrillLines()
    row = DrillRow("claude", "success", 6)
    row.broke_off = "the machine is on fire"
    lines.end(row)
    row = DrillRow("claude", "billing", 6)
    row.refused = "not here"
    lines.begin(row)
    lines.end(row)
    assert capsys.readouterr().err.splitlines() == [
        "claude · success · without segue: broke off: the machine is on fire",
        "claude · billing · without segue: not here",
    ]
