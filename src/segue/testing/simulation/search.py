"""Plays many worlds on all cores: their figures together, and the worlds that break an
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


class SearchResult(Struct, kw_only=True):
    """The result of a search: the sums over all worlds, and the worlds that failed."""

    figures: Figures
    digest: str
    worlds: int
    covered: Counter[tuple[str, str, str]]
    failures: list[Failure] = []

    @property
    def failure(self) -> Failure | None:
        """The first failure; None if no world broke an invariant."""
        return self.failures[0] if self.failures else None


class Order(Struct, frozen=True, kw_only=True):
    """What to search: so many sessions for so many days, spread over as many worlds as that
    needs."""

    sessions: int
    days: float
    seed: int
    policy: Policy = Policy()
    growth: Growth = Growth()
    world: int | None = None  # only the world with this number

    @property
    def worlds(self) -> int:
        """How many worlds so many sessions need."""
        return -(-self.sessions // SESSIONS)

    def plans(self) -> Iterator[tuple[int, Plan]]:
        """The worlds' numbers and plans, in order; the last one may have fewer sessions."""
        for number in range(self.worlds) if self.world is None else (self.world,):
            yield (
                number,
                planned(
                    self.seed,
                    number,
                    sessions=min(SESSIONS, self.sessions - number * SESSIONS),
                    days=self.days,
                    policy=self.policy,
                    growth=self.growth,
                ),
            )


def search(
    order: Order,
    *,
    jobs: int | None = None,
    keep_going: bool = False,
    on_world: Callable[[int], None] = lambda sessions: None,
) -> SearchResult:
    """Plays worlds until one breaks an invariant, or all of them with `keep_going`; only the first
    failure has its story. The result does not depend on the number of jobs. `on_world` is called
    after each world with the number of sessions so far."""
    found = SearchResult(figures=Figures(), digest="", worlds=0, covered=Counter())
    digest, sessions = sha256(), 0
    for number, plan, result in _played(order, jobs or os.cpu_count() or 1):
        found.worlds += 1
        found.figures.add(result.figures)
        found.covered.update(result.covered)
        digest.update(result.digest.encode())
        sessions += plan.sessions
        on_world(sessions)
        if result.rule:
            if found.failures:
                result.story = []
            found.failures.append(Failure(number=number, plan=plan, result=result))
            if not keep_going:
                break
    found.digest = digest.hexdigest()
    return found


def _played(order: Order, jobs: int) -> Iterator[tuple[int, Plan, Result]]:
    if jobs == 1 or order.sessions <= 8 * SESSIONS or order.world is not None:
        for number, plan in order.plans():
            yield number, plan, _play(number, plan)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        numbers, plans = zip(*order.plans(), strict=True)
        try:
            yield from zip(
                numbers, plans, pool.map(_play, numbers, plans, chunksize=4), strict=True
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


def coverage(found: SearchResult) -> Coverage:
    """Which rules (state and fact) of the run machine a search used, and how many of them in the
    hour after a fault."""
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
