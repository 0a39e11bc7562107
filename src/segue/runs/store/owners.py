"""Which run a session belongs to, and which of the run's sessions came next."""

from collections.abc import Collection
from typing import NamedTuple

from segue.core.runs.types import Run, RunState
from segue.core.sessions.types import RunSeen
from segue.runs.store import leases
from segue.runs.store.port import Holder, Store, StoredLeg, run_key


class Owner(NamedTuple):
    """A session's place in its run."""

    run: RunSeen
    successor: str = ""  # the session that continues its work; "": it is the run's last


def owners(store: Store, session_ids: Collection[str]) -> dict[str, Owner]:
    """The owner of each session, by the session's id; sessions without a run are left out. A
    session that was in several runs belongs to the newest."""
    wanted = set(session_ids)
    found: dict[str, Owner] = {}
    begun: dict[str, float] = {}
    for run_id in {run_id for session_id, run_id in store.sessions() if session_id in wanted}:
        run = store.run(run_id)
        if run is None:
            continue
        state = run_summary(run, _driver(store, run))
        for session_id, successor in _line(run, store.legs(run_id)).items():
            if session_id in wanted and run.created_at >= begun.get(session_id, 0.0):
                found[session_id] = Owner(state, successor)
                begun[session_id] = run.created_at
    return found


def run_summary(run: Run, driver: Holder | None) -> RunSeen:
    """A run as sessions refer to it; `driver`: the live process that drives it."""
    wait = run.wait if run.state is RunState.WAITING else None
    return RunSeen(
        id=run.id,
        state=run.state.value,
        is_final=run.state.is_final,
        is_driven=driver is not None,
        interrupted=bool(run.interrupted),
        waits_until=wait.until if wait is not None else None,
    )


def _driver(store: Store, run: Run) -> Holder | None:
    holder = None if run.state.is_final else store.holder(run_key(run.id))
    return holder if holder is not None and leases.is_alive(holder) else None


def _line(run: Run, legs: list[StoredLeg]) -> dict[str, str]:
    """Each session of a run with the one that came after it, beginning with the session that the
    run continues. Sessions of legs that never started do not count."""
    begun = [run.origin.session_id] if run.origin is not None else []
    begun += [leg.session_id for leg in legs if leg.session_id and leg.started_at is not None]
    order = list(dict.fromkeys(begun))
    return dict(zip(order, [*order[1:], ""], strict=True))
