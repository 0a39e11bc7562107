"""Figures of this machine: both logs, opened and closed again."""

import os

from segue.reports.figures import Facts, Figure, facts, figures
from segue.runs.store import open_store
from segue.system.files import state
from segue.system.telemetry.types import Sample
from segue.watch.log import LOG_NAME, Log

_UNITS = {"share": "1", "number": "1", "seconds": "s"}


def read_facts(since: float = 0.0, project: str = "") -> Facts:
    """What both logs tell. Raises SegueError if one cannot be read."""
    place = os.path.join(state.state_folder(), LOG_NAME)
    log = Log(place) if os.path.exists(place) else None
    try:
        with open_store() as store:
            return facts(store, log, since=since, project=project)
    finally:
        if log is not None:
            log.close()


def figure_samples() -> list[Sample]:
    """The figures and the stops as metrics, of all time."""
    known = read_facts()
    found = [as_sample(each) for each in figures(known) if each.value is not None]
    return found + [
        Sample(
            name="segue.figure.stops",
            value=count,
            unit="{stop}",
            description="Stops by reason.",
            attributes={"segue.stop.reason": reason},
            is_total=True,
        )
        for reason, count in known.stops.items()
    ]


def as_sample(figure: Figure) -> Sample:
    """One figure, with what it counts and what it should be."""
    target = f"; target: {figure.target}" if figure.target else ""
    return Sample(
        name=f"segue.figure.{figure.name}",
        value=float(figure.value or 0.0),
        unit=_UNITS.get(figure.unit, "1"),
        description=f"{figure.definition}{target}",
    )
