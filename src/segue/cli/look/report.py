"""`segue report`: what was done, what it cost, what needs you."""

import os
from contextlib import suppress
from datetime import datetime, timedelta, tzinfo

import click

from segue.cli.support.run.lookup import find, opened
from segue.cli.support.times import instant
from segue.errors import ConfigError, InputError, StateError
from segue.reports.runs import run_report, runs_since
from segue.reports.types import Report, WatchedReport
from segue.reports.watched import watched_since
from segue.runs.starting import installed_agents
from segue.system import clock
from segue.system.config import settings
from segue.system.files import state
from segue.views import printing
from segue.watch.log import LOG_NAME, Log

_EVENING_HOUR = 18


@click.command()
@click.argument("run", required=False)
@click.option("--since", metavar="TIME", help="Start here: 12h, 7d, or a time.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "md", "html", "json"]),
    default="text",
    help="text fits 80 columns; html is a single file.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option(
    "--figures", "is_figures", is_flag=True, help="How well handoffs work, against targets."
)
@click.option("--project", metavar="FOLDER", help="With --figures: only this project.")
def command(
    run: str | None,
    since: str | None,
    form: str,
    as_json: bool,
    is_figures: bool,
    project: str | None,
) -> None:
    """Report what runs and watched sessions did since yesterday evening (or TIME), or what RUN
    did: outcome, answer, changes, cost, decisions, and what needs your attention."""
    if run is not None and since is not None:
        raise InputError("name a RUN or --since, not both")
    now, tz = clock.now(), clock.local_zone()
    if project is not None and not is_figures:
        raise InputError("--project needs --figures")
    if is_figures:
        if run is not None:
            raise InputError("--figures covers all runs; leave RUN out")
        begun = None if since is None else instant(since, now)
        _figures(begun, now, project, as_json or form == "json")
        return
    with suppress(ConfigError):  # runs of the user's own agents, too
        installed_agents.register(settings.load(os.getcwd(), os.environ))
    begun = None if run else (_yesterday(now, tz) if since is None else instant(since, now))
    with opened() as store:
        chosen = [find(store, run)] if begun is None else runs_since(store, begun)
        reports = [run_report(store, each, now, os.environ) for each in chosen]
    watched, notes = ([], []) if begun is None else _watched(begun)
    report = Report(since=begun, until=now, runs=reports, watched=watched, notes=notes)
    if as_json or form == "json":
        from segue.views.report import shapes

        printing.say_json(shapes.as_dict(report))
        return
    from segue.views.report import FORMS

    printing.say(FORMS[form](report, tz))


def _figures(since: float | None, now: float, project: str | None, as_json: bool) -> None:
    from segue.reports.figures import figures
    from segue.reports.reading import read_facts
    from segue.views.report import figures as views

    folder = os.path.realpath(os.path.expanduser(project)) if project else ""
    known = read_facts(since or 0.0, folder)
    found = figures(known)
    if as_json:
        printing.say_json(views.as_dict(found, known.stops, since, now))
    else:
        printing.say(views.text(found, known.stops))


def _yesterday(now: float, tz: tzinfo) -> float:
    """Yesterday at 18:00 in this zone."""
    day = datetime.fromtimestamp(now, tz) - timedelta(days=1)
    return day.replace(hour=_EVENING_HOUR, minute=0, second=0, microsecond=0).timestamp()


def _watched(since: float) -> tuple[list[WatchedReport], list[str]]:
    place = os.path.join(state.state_folder(), LOG_NAME)
    if not os.path.exists(place):
        return [], []
    try:
        log = Log(place)
        try:
            return watched_since(log, since), []
        finally:
            log.close()
    except StateError as fault:
        return [], [str(fault)]
