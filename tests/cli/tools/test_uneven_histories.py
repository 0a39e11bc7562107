"""`segue tune` on session files whose turns are drawn from a known distribution. The best mark is
found by playing thousands of other sessions from the same distribution."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from support.homes import START, claude_session, prompt, reply, stamp

from segue.cli import cli
from segue.system import clock

Draw = Callable[[Random], float]  # what one turn adds: a share of the window

MAX_LATE = 0.05
MARKS = [mark / 100 for mark in range(90, 29, -1)]


def long_tail(random: Random) -> float:
    """As tool results are: mostly small, now and then 5 to 12% of the window."""
    return random.uniform(0.05, 0.12) if random.random() < 0.06 else random.expovariate(1 / 0.012)


def lognormal(random: Random) -> float:
    return min(0.3, random.lognormvariate(-4.2, 0.9))


def two_sizes(random: Random) -> float:
    return random.choice((0.004, 0.05))


def small(random: Random) -> float:
    return random.uniform(0.002, 0.02)


def large(random: Random) -> float:
    return random.uniform(0.02, 0.09)


class Agent(NamedTuple):
    """An agent, its window, and from which share of it a request is late."""

    write: Callable[[str, Sequence[int], str], None]
    window: int
    late: float = 0.90


def of_claude(name: str, sizes: Sequence[int], cwd: str) -> None:
    lines = [prompt("go", session=name, cwd=cwd)]
    before = 0
    for place, used in enumerate(sizes):
        if used < before:  # only the context that follows is as small
            lines.append(_record("system", subtype="compact_boundary", sessionId=name, cwd=cwd))
        number = int(name[:8]) * 1_000 + place
        lines.append(reply(number, used, session=name, cwd=cwd))
        before = used
    claude_session(Path.home(), *lines, session=name)


def of_codex(name: str, sizes: Sequence[int], cwd: str) -> None:
    lines = [
        _record("session_meta", payload={"id": name, "cwd": cwd, "originator": "codex_cli"}),
        _record("turn_context", payload={"turn_id": "t", "cwd": cwd, "model": "gpt-5.5"}),
    ]
    total = before = 0
    for used in sizes:
        if used < before:
            lines.append(_record("compacted", payload={"message": ""}))
        total += used
        info = {
            "total_token_usage": _codex_usage(total),
            "last_token_usage": _codex_usage(used),
            "model_context_window": CODEX.window,
        }
        lines.append(_record("event_msg", payload={"type": "token_count", "info": info}))
        before = used
    _write(f".codex/sessions/2026/11/16/rollout-2026-11-16T00-00-00-{name}.jsonl", lines)


def _codex_usage(used: int) -> dict[str, int]:
    return {"input_tokens": used - 40, "output_tokens": 40, "total_tokens": used}


def of_pi(name: str, sizes: Sequence[int], cwd: str) -> None:
    lines = [
        _record("session", version=3, id=name, cwd=cwd),
        _record("model_change", id="m", provider="fake", modelId="fake-model"),
    ]
    before = 0
    for place, used in enumerate(sizes):
        if used < before:
            lines.append(
                _record("compaction", id=f"c{place}", summary="so far", tokensBefore=before)
            )
        usage = {"input": used - 40, "output": 40, "cacheRead": 0, "cacheWrite": 0}
        message = {
            "role": "assistant", "content": [{"type": "text", "text": "Done."}],
            "model": "fake-model", "usage": {**usage, "totalTokens": used}, "stopReason": "stop",
        }  # fmt: skip
        lines.append(_record("message", id=f"r{place}", message=message))
        before = used
    _write(f".pi/agent/sessions/--p--/2026-11-16T00-00-00-000Z_{name}.jsonl", lines)


def _record(kind: str, **more: Any) -> str:
    return json.dumps({"type": kind, "timestamp": stamp(START), **more})


def _write(place: str, lines: list[str]) -> None:
    file = Path.home() / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(line + "\n" for line in lines))


CLAUDE = Agent(of_claude, 200_000)
CODEX = Agent(of_codex, 258_400)
PI = Agent(of_pi, 200_000, late=(200_000 - 16_384 - 10_000) / 200_000)


@pytest.fixture(autouse=True)
def midnight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "now", lambda: START + 600)


class Work(NamedTuple):
    """Sessions that are handed over at 85%, as long as there is work of so many windows."""

    agent: Agent
    draw: Draw
    windows: float = 60.0
    cwd: str = "/p"
    compacts: float = 0.0  # the chance, at each turn above 60%, that the agent compacts


def play(work: Work, random: Random) -> list[list[float]]:
    """The shares of the window after each reply of each session."""
    grown, sessions = 0.0, []
    while grown < work.windows:
        sizes = [0.08 + random.random() * 0.05]
        is_asked = False
        while not is_asked:
            is_asked = sizes[-1] >= 0.85
            if not is_asked and sizes[-1] > 0.6 and random.random() < work.compacts:
                sizes.append(0.08 + random.random() * 0.05)
                continue
            sizes.append(sizes[-1] + work.draw(random))
            grown += sizes[-1] - sizes[-2]
        sessions.append(sizes)
    return sessions


def write(*works: Work, seed: int) -> None:
    number = 0
    for work in works:
        for shares in play(work, Random(f"{seed}{number}")):
            number += 1
            name = f"{number:08}-2222-4333-8444-555555555555"
            work.agent.write(name, [int(share * work.agent.window) for share in shares], work.cwd)


def best_mark(*works: Work) -> float:
    """The highest mark at which at most 5% of the handoffs are late. At every mark, each of these
    kinds of work needs as many handoffs as it grows."""
    late = dict.fromkeys(MARKS, 0.0)
    for work in works:
        random, count = Random(99), 4_000
        for _ in range(count):
            size, left = 0.08 + random.random() * 0.05, MARKS[::-1]
            while left:
                reached, size = size, size + work.draw(random)
                while left and reached >= left[0]:
                    late[left.pop(0)] += (size > work.agent.late) * work.windows / count
    total = sum(work.windows for work in works)
    return next(mark for mark in MARKS if late[mark] <= MAX_LATE * total)


def tuned() -> dict[tuple[str, str], dict[str, Any]]:
    done = CliRunner().invoke(cli, ["tune", "--json"])
    assert done.exit_code == 0, done.output
    return {(each["of"], each["name"]): each for each in json.loads(done.stdout)["advice"]}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("draw", [long_tail, lognormal, two_sizes])
def test_turns_with_a_long_tail(draw: Draw, seed: int) -> None:
    work = Work(CLAUDE, draw)
    write(work, seed=seed)
    advice = tuned()["agent", "claude"]
    assert advice["hard_mark"] == pytest.approx(best_mark(work), abs=0.02)
    assert advice["late_then"] <= MAX_LATE


@pytest.mark.parametrize("agent", [CLAUDE, CODEX, PI])
def test_compactions_in_between_are_no_turns(agent: Agent) -> None:
    work = Work(agent, long_tail, compacts=0.1)
    write(work, seed=1)
    [advice] = [each for (of, _), each in tuned().items() if of == "agent"]
    assert advice["hard_mark"] == pytest.approx(best_mark(work), abs=0.02)


def test_agents_and_projects_each_have_their_own_mark() -> None:
    works = (
        Work(CLAUDE, small, cwd="/even"),
        Work(CLAUDE, large, windows=30.0, cwd="/mixed"),
        Work(CODEX, small, cwd="/mixed"),
        Work(CODEX, long_tail, cwd="/uneven"),
    )
    write(*works, seed=1)
    found = tuned()
    for key, chosen in {
        ("agent", "claude"): [works[0], works[1]],
        ("agent", "codex"): [works[2], works[3]],
        ("project", "/even"): [works[0]],
        ("project", "/mixed"): [works[1], works[2]],
        ("project", "/uneven"): [works[3]],
    }.items():
        assert found[key]["hard_mark"] == pytest.approx(best_mark(*chosen), abs=0.02), key


@pytest.mark.parametrize("order", [1, -1])
def test_a_project_of_agents_with_limits_of_their_own_counts_each_by_its_own(order: int) -> None:
    """pi compacts 26,384 tokens before the end of its window, less what a checkpoint needs."""
    works = (Work(CLAUDE, small), Work(PI, large, windows=20.0))[::order]
    write(*works, seed=1)
    found = tuned()
    assert found["project", "/p"]["hard_mark"] == pytest.approx(best_mark(*works), abs=0.02)


def test_only_the_advice_for_its_own_agents_makes_that_for_a_project_superfluous() -> None:
    """Claude's mark happens to be that of /small, where only codex works."""
    large_turns = Work(CODEX, large, cwd="/large")
    write(Work(CLAUDE, small), Work(CODEX, small, windows=15.0, cwd="/small"), large_turns, seed=1)
    found = tuned()
    claude, codex = found["agent", "claude"], found["agent", "codex"]
    in_small, in_large = found["project", "/small"], found["project", "/large"]
    assert in_small["hard_mark"] == pytest.approx(claude["hard_mark"], abs=0.01)
    assert in_small["hard_mark"] > codex["hard_mark"] + 0.05
    assert in_large["hard_mark"] == pytest.approx(codex["hard_mark"], abs=0.01)
    assert (codex["is_needed"], in_large["is_needed"]) == (True, False)
    assert (claude["is_needed"], in_small["is_needed"]) == (True, True)
