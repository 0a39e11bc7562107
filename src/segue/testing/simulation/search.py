"""Plays many worlds on all cores: their figures together, and the first world that breaks an
invariant."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from hashlib import sha256
from multiprocessing import get_context
from tempfile import TemporaryDirectory

from msgspec import Struct
from msgspec.structs import replace

from segue.core.policy import Policy
from segue.core.runs import machine
from segue.testing.simulation.figures import Figures
from segue.testing.simulation.models import Growth
from segue.testing.simulation.world import SESSIONS, Plan, Result, planned, play

_SQLITE_EVERY = 50
"""One world in this many keeps its runs in a database on disk: the same store, but slower."""


class Failure(Struct, frozen=True, kw_only=True):
    """A world that broke an invariant."""

    number: int
    plan: Plan
    result: Result


class Found(Struct, kw_only=True):
    """The result of a search."""

    figures: Figures
    digest: str
    worlds: int
    covered: Counter[tuple[str, str, str]]
    failure: Failure | None = None


class Order(Struct, frozen=True, kw_only=True):
    """What to search."""

    sessions: int
    days: float
    seed: int
    policy: Policy = Policy()
    growth: Growth = Growth()

    def plans(self) -> Iterator[Plan]:
        """The plans of the worlds, in order; the last one may have fewer sessions."""
        for number, begin in enumerate(range(0, self.sessions, SESSIONS)):
            yield planned(
                self.seed,
                number,
                sessions=min(SESSIONS, self.sessions - begin),
                days=self.days,
                policy=self.policy,
                growth=self.growth,
            )


def search(
    order: Order, *, jobs: int | None = None, seen: Callable[[int], None] = lambda sessions: None
) -> Found:
    """Plays all worlds, or until one breaks an invariant. The result depends only on `order`, not
    on the number of jobs."""
    found = Found(figures=Figures(), digest="", worlds=0, covered=Counter())
    digest, sessions = sha256(), 0
    for number, (plan, result) in enumerate(_played(order, jobs or os.cpu_count() or 1)):
        found.worlds += 1
        found.figures.add(result.figures)
        found.covered.update(result.covered)
        digest.update(result.digest.encode())
        sessions += plan.sessions
        seen(sessions)
        if result.rule:
            found.failure = Failure(number=number, plan=plan, result=result)
            break
    found.digest = digest.hexdigest()
    return found


def _played(order: Order, jobs: int) -> Iterator[tuple[Plan, Result]]:
    if jobs == 1 or order.sessions <= 8 * SESSIONS:
        for number, plan in enumerate(order.plans()):
            yield plan, _play(number, plan)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        plans = list(order.plans())
        try:
            yield from zip(
                plans, pool.map(_play, range(len(plans)), plans, chunksize=4), strict=True
            )
        finally:
            pool.shutdown(cancel_futures=True)


def _play(number: int, plan: Plan) -> Result:
    if number % _SQLITE_EVERY != _SQLITE_EVERY - 1:
        result = play(plan)
    else:
        with TemporaryDirectory(prefix="segue-simulation-") as folder:
            result = play(replace(plan, sqlite=folder))
    if not result.rule:
        result.story = []
    return result


class Coverage(Struct, frozen=True, kw_only=True):
    """How much of the run machine's table was used."""

    rules: int
    walked: int
    with_faults: int  # combinations of state, fact and fault
    missing: tuple[str, ...]


def coverage(found: Found) -> Coverage:
    """Counts the combinations of state and fact of the run machine, and those with a fault."""
    tags = {fact: fact.__struct_config__.tag for _, fact, _ in machine.transitions()}
    rules = {(state.value, str(tags[fact])) for state, fact, _ in machine.transitions()}
    walked = {(state, fact) for state, fact, _ in found.covered} & rules
    together = {key for key in found.covered if key[2] and key[:2] in rules}
    return Coverage(
        rules=len(rules),
        walked=len(walked),
        with_faults=len(together),
        missing=tuple(f"{state} × {fact}" for state, fact in sorted(rules - walked)),
    )
