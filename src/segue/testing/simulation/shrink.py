"""Makes a world that breaks an invariant as small as possible: fewer faults and less time, with the
same invariant broken. What remains reads like a story."""

from collections.abc import Callable

from msgspec.structs import replace

from segue.testing.simulation.clock import EPOCH
from segue.testing.simulation.faults import DAY_S
from segue.testing.simulation.world import Line, Plan, Result, play, quieter

_MAX_PLAYS = 300
_LAST_LINES = 30


def shrunk(
    plan: Plan, found: Result, *, most: int = _MAX_PLAYS, play: Callable[[Plan], Result] = play
) -> tuple[Plan, Result]:
    """The smallest plan that breaks the same invariant, as far as `most` plays find it, with its
    result. `found` is the result of `plan`."""
    plays = 0

    def breaks(candidate: Plan) -> Result | None:
        nonlocal plays
        plays += 1
        result = play(candidate)
        return result if result.rule == found.rule else None

    plan = replace(plan, days=found.at_s / DAY_S + 1e-6)
    plan = quieter(plan, [each for each in plan.faults if each.at_s <= found.at_s])
    bare = breaks(quieter(plan, ()))
    if bare is not None:  # it needs no fault at all
        return replace(quieter(plan, ()), days=bare.at_s / DAY_S + 1e-6), bare
    size = max(1, len(plan.faults) // 2)
    while plan.faults and plays < most:
        place, was_smaller = 0, False
        while place < len(plan.faults) and plays < most:
            left = (*plan.faults[:place], *plan.faults[place + size :])
            result = breaks(quieter(plan, left))
            if result is None:
                place += size
                continue
            was_smaller = True
            found = result
            plan = replace(quieter(plan, left), days=result.at_s / DAY_S + 1e-6)
        if size == 1 and not was_smaller:
            break
        size = max(1, size // 2)
    return plan, found


def story(plan: Plan, result: Result) -> list[str]:
    """The last lines about the session with the broken invariant, and about all faults, for
    people."""
    last = result.story[-1].session if result.story else 0
    lines = [line for line in result.story if line.session == last or "FAULT" in line.what]
    last_lines = [_line(line) for line in lines[-_LAST_LINES:]]
    left_out = len(lines) - len(last_lines)
    begin = [f"… {left_out} earlier lines …"] if left_out else []
    return [*begin, *last_lines, f"{_time(result.at_s)}  BROKEN: {result.rule}: {result.what}"]


def _line(line: Line) -> str:
    return f"{_time(line.at_s)}  session {line.session}: {line.what}"


def _time(at_s: float) -> str:
    seconds = (EPOCH + at_s) % DAY_S
    day = int(at_s // DAY_S) + 1
    return (
        f"day {day} {int(seconds // 3600):02}:{int(seconds % 3600 // 60):02}:{seconds % 60:05.2f}"
    )
