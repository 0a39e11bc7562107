"""What a simulation shows: its figures, a comparison of marks, and the story of a broken rule."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from segue.core.policy import Policy
from segue.testing.simulation.figures import Figures, quantile
from segue.testing.simulation.search import Coverage, Found, Order


class Marked(Struct, frozen=True):
    """What other marks come to in the same worlds."""

    policy: Policy
    figures: Figures
    sessions: int


class Broken(Struct, frozen=True, kw_only=True):
    """A broken invariant, as short as it could be told."""

    rule: str
    what: str
    world: int
    sessions: int
    days: float
    faults: tuple[str, ...]
    trace: tuple[str, ...]


def as_object(
    order: Order,
    found: Found,
    walked: Coverage,
    compared: Sequence[Marked],
    broken: Broken | None,
) -> dict[str, Any]:
    """As `--json` prints it."""
    return {
        "ok": broken is None,
        "sessions": order.sessions,
        "days": order.days,
        "seed": order.seed,
        "policy": order.policy.name,
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
    order: Order, found: Found, walked: Coverage, compared: Sequence[Marked]
) -> list[str]:
    """The lines of a simulation in which every invariant held."""
    got, asked = found.figures, found.figures.request_percent
    late = sum(n for percent, n in asked.items() if percent > 90)
    share = f"{(1 - late / asked.total()):.1%}" if asked.total() else "none was asked"
    no_room = got.steep_exhaustions
    kept = got.exhaustions - no_room - got.lone_exhaustions
    unused = _percent(quantile(got.unused_percent, 0.5))
    lines = [
        f"{order.sessions:,} sessions × {order.days:g} days, seed {order.seed}, policy"
        f" {order.policy.name} ({_marks(order.policy)}): every invariant held",
        "",
        f"  runs                  {got.runs:,}, {got.done:,} of them completed; {got.legs:,} legs",
        f"  faults                {got.faults.total():,} of {len(got.faults)} kinds",
        f"  handoffs              {got.handoffs:,} in runs, {got.terminal_handoffs:,} in terminals",
        f"  windows exhausted     {kept:,}; besides, {no_room:,} in sessions that one turn"
        f" fills past the marks, and {got.lone_exhaustions:,} while segue was killed",
        f"  context at request    ≤ 90 % of the window: {share}; median"
        f" {_percent(quantile(asked, 0.5))}, 95th percentile {_percent(quantile(asked, 0.95))}",
        f"  context left unused   {unused} at the median handoff",
        f"  waited                {got.waited_s / 3600:,.0f} h in {got.waits:,} waits",
        f"  covered               {walked.walked} of {walked.rules} states × facts, and"
        f" {walked.with_faults:,} of them × faults",
    ]
    if compared:
        lines += ["", *comparison(compared)]
    return lines


def comparison(compared: Sequence[Marked]) -> list[str]:
    """What other marks come to, one line each."""
    head = (
        f"  {'marks':>9}  {'exhausted':>9}  {'handoffs':>8}  {'unused':>6}  {'≤ 90 %':>7}  waited"
    )
    lines = [f"The same {compared[0].sessions:,} sessions with other marks:", head]
    for each in compared:
        got = each.figures
        asked = got.request_percent
        late = sum(n for percent, n in asked.items() if percent > 90)
        share = f"{1 - late / asked.total():.1%}" if asked.total() else "-"
        unused = _percent(quantile(got.unused_percent, 0.5))
        lines.append(
            f"  {_marks(each.policy):>9}  {got.exhaustions:>9,}  {got.handoffs:>8,}  {unused:>6}"
            f"  {share:>7}  {got.waited_s / 3600:,.0f} h"
        )
    return lines


def broken_lines(order: Order, broken: Broken) -> list[str]:
    """The story of a broken invariant, with what plays it again."""
    return [
        f"broken: {broken.rule}: {broken.what}",
        f"seed {order.seed}, world {broken.world}; the shortest trace has {len(broken.faults)}"
        f" faults in {broken.days:.2f} days:",
        *(f"  {line}" for line in broken.trace),
        f"again: segue simulate --sessions {order.sessions} --days {order.days:g}"
        f" --seed {order.seed}",
    ]


def _marks(policy: Policy) -> str:
    return f"{policy.soft_mark * 100:.0f}/{policy.hard_mark * 100:.0f} %"


def _percent(value: int | None) -> str:
    return "-" if value is None else f"{value} %"
