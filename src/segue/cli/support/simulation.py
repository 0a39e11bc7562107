"""The output of a simulation: its figures, a comparison of marks, and the trace of a broken
invariant."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from segue.core.policy import Policy
from segue.testing.simulation.figures import Figures, in_time, quantile
from segue.testing.simulation.search import Coverage, Order, SearchResult


class Marked(Struct, frozen=True):
    """The figures of other marks in the same worlds."""

    policy: Policy
    figures: Figures
    sessions: int


class Broken(Struct, frozen=True, kw_only=True):
    """A broken invariant, with the shortest trace that was found."""

    rule: str
    what: str
    world: int
    sessions: int
    days: float
    faults: tuple[str, ...]
    trace: tuple[str, ...]


def as_object(
    order: Order,
    found: SearchResult,
    walked: Coverage,
    compared: Sequence[Marked],
    broken: Broken | None,
) -> dict[str, Any]:
    """The result in the form of `--json`."""
    return {
        "ok": broken is None,
        "sessions": order.sessions,
        "days": order.days,
        "seed": order.seed,
        "policy": order.policy.name,
        "growth": "history" if order.growth.sizes else "model",
        "soft_mark": order.policy.soft_mark,
        "hard_mark": order.policy.hard_mark,
        "digest": found.digest,
        "figures": found.figures.as_object(),
        "coverage": {
            "rules": walked.rules,
            "walked": walked.walked,
            "with_faults": walked.with_faults,
            "missing": list(walked.missing),
        },
        "marks": [_marked(each) for each in compared],
        "broken": None if broken is None else _broken(broken),
        "broken_worlds": [
            {"world": each.number, "rule": each.result.rule, "what": each.result.what}
            for each in found.failures
        ],
    }


def _marked(each: Marked) -> dict[str, Any]:
    marks = {"soft_mark": each.policy.soft_mark, "hard_mark": each.policy.hard_mark}
    return {**marks, "sessions": each.sessions, **each.figures.as_object()}


def _broken(broken: Broken) -> dict[str, Any]:
    return {
        "rule": broken.rule,
        "what": broken.what,
        "world": broken.world,
        "sessions": broken.sessions,
        "days": broken.days,
        "faults": list(broken.faults),
        "trace": list(broken.trace),
    }


def for_people(
    order: Order, found: SearchResult, walked: Coverage, compared: Sequence[Marked]
) -> list[str]:
    """The lines of a simulation in which every invariant held, for 80 columns."""
    lines = [
        f"{found.figures.sessions:,} sessions × {order.days:g} days, seed {order.seed}: every"
        " invariant held",
        *_figures(order, found, walked),
    ]
    if compared:
        lines += ["", *comparison(compared)]
    return lines


def all_broken(order: Order, found: SearchResult, walked: Coverage) -> list[str]:
    """Lines about every world in which an invariant was broken, and the figures of all worlds."""
    return [
        "",
        f"{len(found.failures):,} of {found.worlds:,} worlds broke an invariant:",
        *(f"  world {each.number}: {each.result.rule}: {each.result.what}"
          for each in found.failures),
        "",
        *_figures(order, found, walked),
    ]  # fmt: skip


def _figures(order: Order, found: SearchResult, walked: Coverage) -> list[str]:
    got, asked = found.figures, found.figures.request_percent
    in_terminals = got.terminal_percent
    steep, alone = got.steep_exhaustions, got.lone_exhaustions
    policy = order.policy
    growth = "your own sessions" if order.growth.sizes else "the built-in model"
    return [
        f"Policy {policy.name}: handoff at {_marks(policy)} of the window (at a pause / at once)",
        f"Growth of sessions: from {growth}",
        "",
        *_row(
            "runs",
            f"{got.runs:,} in {got.legs:,} legs; {got.done:,} completed",
            f"{got.tasks:,} of them from the queue; {got.tasks_done:,} of those completed",
        ),
        *_row("faults", f"{got.faults.total():,} of {len(got.faults)} kinds"),
        *_row("handoffs", f"{got.handoffs:,} in runs, {got.terminal_handoffs:,} in terminals"),
        *_row(
            "windows full",
            f"{got.exhaustions - steep - alone:,} (goal: none)",
            f"plus {steep:,} where one turn took over half of the room above",
            f"the marks, and {alone:,} while no segue was running",
        ),
        *_row(
            "request read at",
            f"{_percent(quantile(asked, 0.5))} of the window (median),"
            f" {_percent(quantile(asked, 0.95))} (95th percentile)",
            f"at 90% or less: {_in_time(asked)} of {asked.total():,} (goal: 95%)",
            f"in terminals: {_in_time(in_terminals)} of {in_terminals.total():,}",
        ),
        *_row(
            "compacted",
            f"{got.terminal_compactions - got.steep_compactions:,} sessions in terminals, before"
            " their handoff",
            f"plus {got.steep_compactions:,} where one turn took over half of the room",
        ),
        *_row(
            "left unused",
            f"{_percent(quantile(got.unused_percent, 0.5))} of the window (median of all handoffs)",
        ),
        *_row("waited", f"{got.waited_s / 3600:,.0f} h in {got.waits:,} waits"),
        *_row(
            "covered",
            f"{walked.walked} of {walked.rules} transitions of a run;"
            f" {walked.with_faults:,} combined with a fault",
        ),
    ]


def _row(name: str, *text: str) -> list[str]:
    """Lines, of which the first is labelled with the name."""
    return [f"  {name if not place else '':<17}{line}" for place, line in enumerate(text)]


def _in_time(asked: Counter[int]) -> str:
    """The share of requests for a checkpoint that were read in time; "-" if there were none."""
    share = in_time(asked)
    return "-" if share is None else f"{share:.1%}"


def comparison(compared: Sequence[Marked]) -> list[str]:
    """A table of the figures of other marks, one line each."""
    lines = [
        f"Other marks in the same {compared[0].sessions:,} sessions:",
        f"  {'marks':>8}  {'windows full':>12}  {'handoffs':>8}  {'left unused':>11}"
        f"  {'read ≤ 90%':>11}  {'waited':>6}",
    ]
    for each in compared:
        got = each.figures
        unused = _percent(quantile(got.unused_percent, 0.5))
        lines.append(
            f"  {_marks(each.policy):>8}  {got.exhaustions:>12,}  {got.handoffs:>8,}  {unused:>11}"
            f"  {_in_time(got.request_percent):>11}  {got.waited_s / 3600:>4,.0f} h"
        )
    return lines


def broken_lines(order: Order, broken: Broken) -> list[str]:
    """The trace of a broken invariant, and the command that repeats it."""
    return [
        f"broken: {broken.rule}: {broken.what}",
        f"seed {order.seed}, world {broken.world}; the shortest trace has {len(broken.faults)}"
        f" faults in {broken.days:.2f} days:",
        *(f"  {line}" for line in broken.trace),
        f"to repeat it: segue simulate --sessions {order.sessions} --days {order.days:g}"
        f" --seed {order.seed} --world {broken.world}",
    ]


def _marks(policy: Policy) -> str:
    return f"{policy.soft_mark * 100:.0f}/{policy.hard_mark * 100:.0f}%"


def _percent(value: int | None) -> str:
    return "-" if value is None else f"{value}%"
