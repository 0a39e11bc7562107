"""`segue simulate`: thousands of sessions over months, with faults, in a simulated world."""

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from segue.cli.support.numbers import Decimal, Whole
from segue.core.policy import PRESETS, Policy
from segue.views import printing

if TYPE_CHECKING:
    from segue.cli.support.simulation import Broken
    from segue.testing.simulation.models import Growth
    from segue.testing.simulation.search import Failure

_MARKS = ((0.65, 0.70), (0.75, 0.80), (0.80, 0.85), (0.85, 0.90), (0.90, 0.90))
_COMPARED = 200  # at most this many sessions for each pair of marks
_SHRINKING = 200  # at most this many plays to shorten a trace
_HISTORY_S = 30 * 86_400.0


@click.command()
@click.option(
    "--sessions",
    type=Whole(1, 1_000_000),
    default=200,
    show_default=True,
    help="How many sessions to simulate.",
)
@click.option(
    "--days",
    type=Decimal(0.1, 3_650),
    default=30.0,
    show_default=True,
    help="How many days they span.",
)
@click.option(
    "--seed", type=Whole(), default=7, show_default=True, help="The seed of all random draws."
)
@click.option("--policy", "preset", metavar="NAME", help="A preset, instead of your own policy.")
@click.option("--history", is_flag=True, help="Let sessions grow as yours did in the last 30 days.")
@click.option("--compare/--no-compare", default=True, help="Also simulate other marks.")
@click.option("--jobs", type=Whole(1, 64), help="How many processes to use; default: one per core.")
@click.option(
    "--keep-going", is_flag=True, help="Do not stop at the first broken world; list all of them."
)
@click.option("--world", type=Whole(0), help="Simulate only the world with this number.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@click.pass_context
def command(
    ctx: click.Context,
    sessions: int,
    days: float,
    seed: int,
    preset: str | None,
    history: bool,
    compare: bool,
    jobs: int | None,
    keep_going: bool,
    world: int | None,
    as_json: bool,
) -> None:
    """Run segue's own machinery in a simulated world with faults, under your policy, and check
    after every step that nothing is lost, done twice or resumed against the user's will.

    Exit code 0 means that every invariant held; 1 that one was broken, and segue prints the seed
    and the shortest trace that breaks it; with --keep-going, also every other world in which one
    was. The same numbers give the same result on any machine. No agent is started and nothing is
    sent.
    """
    from segue.cli.support import simulation
    from segue.errors import InputError
    from segue.testing.simulation.models import Growth
    from segue.testing.simulation.search import Order, coverage, search
    from segue.testing.simulation.world import SESSIONS

    policy, growth = _policy(preset), _growth() if history else Growth()
    order = Order(
        sessions=sessions, days=days, seed=seed, policy=policy, growth=growth, world=world
    )
    if world is not None and world >= order.worlds:
        raise InputError(
            f"--world {world}: {sessions:,} sessions make only {order.worlds:,} worlds"
        )
    with ExitStack() as stack:
        progress: Callable[[int], None] = lambda count: None  # noqa: E731
        if sys.stderr.isatty():
            total = sessions if world is None else SESSIONS
            bar = stack.enter_context(printing.progress("simulating", total))
            progress = lambda count: bar.update(count - bar.pos)  # noqa: E731
        found = search(order, jobs=jobs, keep_going=keep_going, on_world=progress)
    broken = None if found.failure is None else _shortest(found.failure)
    compared = []
    if compare and broken is None and world is None:
        least = min(sessions, max(_COMPARED // 10, sessions // 10), _COMPARED)
        for soft, hard in _MARKS:
            # Zones must stay in order; lower ones do not affect handoffs.
            critical = min(order.policy.critical_mark, hard)
            policy = replace(order.policy, soft_mark=soft, hard_mark=hard, critical_mark=critical)
            got = search(replace(order, sessions=least, policy=policy), jobs=jobs)
            compared.append(simulation.Marked(policy, got.figures, least))
    walked = coverage(found)
    if as_json:
        printing.say_json(simulation.as_object(order, found, walked, compared, broken))
    elif broken is not None:
        printing.say("\n".join(simulation.broken_lines(order, broken)))
        if keep_going:
            printing.say("\n".join(simulation.all_broken(order, found, walked)))
    else:
        printing.say("\n".join(simulation.for_people(order, found, walked, compared)))
    ctx.exit(0 if broken is None else 1)


def _policy(preset: str | None) -> Policy:
    from segue.core.nearest import did_you_mean
    from segue.errors import InputError
    from segue.system.config.policies import Policies

    if preset is None:
        return replace(Policies(os.environ).policy("", "", os.getcwd()), notify=())
    if preset not in PRESETS:
        hint = did_you_mean(preset, list(PRESETS)) or f"choose one of {', '.join(PRESETS)}"
        raise InputError(f"--policy {preset}: no such preset; {hint}")
    return PRESETS[preset]


def _growth() -> "Growth":
    """How the sessions of this machine have grown in the last 30 days. Raises InputError if they
    have too few turns."""
    from segue.core.sessions.forecasts.tuning import MIN_TURNS
    from segue.errors import InputError
    from segue.testing.simulation.models import Growth
    from segue.views.machine import list_sessions, sizes_of, with_machine

    _, found = with_machine(
        lambda machine: sizes_of(machine, list_sessions(machine, machine.now - _HISTORY_S)),
        with_processes=False,
    )
    rises = [
        later - size for sizes in found.values() for size, later in pairwise(sizes) if later > size
    ]
    if len(rises) < MIN_TURNS:
        too_few = f"{len(rises)} turns in the last 30 days, but at least {MIN_TURNS} are needed"
        raise InputError(f"--history: {too_few}; leave --history out")
    # The growth of a turn includes its reply.
    return Growth(reply_tokens=1.0, sizes=tuple(rises))


def _shortest(failure: "Failure") -> "Broken":
    """The failure with the shortest trace that can be found. That takes a while, so a message says
    so on a terminal."""
    if sys.stderr.isatty():
        printing.say(f"broken: {failure.result.rule}; looking for the shortest trace", err=True)
    from segue.cli.support.simulation import Broken
    from segue.testing.simulation.shrink import shrunk, story

    plan, result = shrunk(failure.plan, failure.result, most=_SHRINKING)
    return Broken(
        rule=result.rule,
        what=result.what,
        world=failure.number,
        sessions=plan.sessions,
        days=plan.days,
        faults=tuple(each.fault.value for each in plan.faults),
        trace=tuple(story(plan, result)),
    )
