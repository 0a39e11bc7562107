"""What `segue tune` shows: advice for agents, models and projects, and the TOML to paste."""

import json
from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct

from segue.core.sessions.forecasts.tuning import Advice

Kind = Literal["agents", "models", "projects"]


class Tuned(Struct, frozen=True, kw_only=True):
    """Advice for one agent, model or project. `is_needed`: it differs from what applies to its
    sessions anyway. `by_agent`: the advice for its agent covers it."""

    kind: Kind
    name: str
    advice: Advice
    soft_now: float
    hard_now: float
    soft_mark: float | None = None
    hard_mark: float | None = None
    is_needed: bool = False
    by_agent: bool = False

    @property
    def table(self) -> str:
        """The name of its table in config.toml."""
        return f"policy.{self.kind}.{json.dumps(self.name, ensure_ascii=False)}"

    @property
    def toml(self) -> str:
        """The lines to paste; "" if there is no advice."""
        if self.hard_mark is None or self.soft_mark is None:
            return ""
        return (
            f"[{self.table}]\nsoft_mark = {self.soft_mark:.2f}\nhard_mark = {self.hard_mark:.2f}\n"
        )


def as_object(tuned: Sequence[Tuned], *, days: int, max_late: float) -> dict[str, Any]:
    """The advice in the form of `--json`."""
    return {
        "days": days,
        "max_late": max_late,
        "advice": [_object(each) for each in tuned],
        "toml": toml(tuned),
    }


def _object(each: Tuned) -> dict[str, Any]:
    advice = each.advice
    return {
        "of": each.kind.removesuffix("s"),
        "name": each.name,
        "soft_mark": each.soft_mark,
        "hard_mark": each.hard_mark,
        "soft_mark_now": each.soft_now,
        "hard_mark_now": each.hard_now,
        "is_needed": each.is_needed,
        "why_not": advice.why,
        "sessions": advice.sessions,
        "turns": advice.turns,
        "median_turn_percent": round(advice.median_turn * 100, 2),
        "p95_turn_percent": round(advice.large_turn * 100, 2),
        "late_now": None if advice.late_now is None else round(advice.late_now, 4),
        "late_then": None if advice.late_then is None else round(advice.late_then, 4),
    }


def toml(tuned: Sequence[Tuned]) -> str:
    """The lines of all advice that is needed, to paste into config.toml."""
    return "\n".join(each.toml for each in tuned if each.is_needed)


def for_people(tuned: Sequence[Tuned], *, days: int, max_late: float) -> list[str]:
    """The lines of the advice."""
    if not tuned:
        return [
            f"no session of the last {days} days states its size: there is nothing to base marks on"
        ]
    lines = [f"Marks for at most {max_late:.0%} late handoffs, by the last {days} days:"]
    for each in tuned:
        advice, now = each.advice, f"{each.soft_now * 100:.0f}/{each.hard_now * 100:.0f}%"
        lines.append(f"{each.kind.removesuffix('s')} {each.name}")
        if each.hard_mark is None or each.soft_mark is None:
            lines.append(f"  {advice.why}; stays at {now}")
            continue
        then = f"{each.soft_mark * 100:.0f}/{each.hard_mark * 100:.0f}%"
        if each.is_needed:
            lines.append(f"  {then}, now {now}")
        else:
            marks = f"{then}, as for its agent" if each.by_agent else f"{now}, as it is now"
            lines.append(f"  {marks}")
        late = "" if advice.late_now is None else f"late now {advice.late_now:.1%}, "
        lines.append(
            f"  {advice.turns:,} turns of {advice.sessions:,} sessions; a turn adds"
            f" {advice.median_turn:.1%} of the window (in 95 of 100, at most"
            f" {advice.large_turn:.1%});"
            f" {late}then {advice.late_then or 0:.1%}"
        )
    needed = toml(tuned)
    lines += ["", needed, "To write this into config.toml: segue tune --apply"] if needed else []
    return lines
