"""The figures of this machine. Opens both logs and closes them again."""

import os

from segue.reports.figures import Facts, Figure, facts, figures
from segue.runs.store import open_store
from segue.system.files import state
from segue.system.telemetry.types import Sample
from segue.watch.log import LOG_NAME, Log

_UNITS = {"share": "1", "number": "1", "seconds": "s"}


def read_facts(since: float = 0.0, project: str = "") -> Facts:
    """What happened, as `figures.facts` has it. Raises SegueError if a log cannot be read."""
    place = os.path.join(state.state_folder(), LOG_NAME)
    log = Log(place) if os.path.exists(place) else None
    try:
        with open_store() as store:
            return facts(store, log, since=since, project=project)
    finally:
        if log is not None:
            log.close()


def figure_samples() -> list[Sample]:
    """All figures and the stops by reason as metrics, since the logs began. Raises SegueError if a
    log cannot be read."""
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
    """A figure as a metric, with its definition and target as the description."""
    target = f"; target: {figure.target}" if figure.target else ""
    return Sample(
        name=f"segue.figure.{figure.name}",
        value=float(figure.value or 0.0),
        unit=_UNITS.get(figure.unit, "1"),
        description=f"{figure.definition}{target}",
    )
