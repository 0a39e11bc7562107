"""`segue dashboard`: sessions, runs and limits as a web page."""

import click

from segue.cli.support.numbers import Whole
from segue.views import printing


@click.command()
@click.option("--port", type=Whole(0, 65535), default=0, help="By default, any free port.")
@click.option("--no-open", is_flag=True, help="Print the URL only; open no browser.")
def command(port: int, no_open: bool) -> None:
    """Serve a live page of sessions, runs and limits on this machine; Ctrl+C ends it.

    Prints one URL, which works once and in one browser. Works with or without segue watch.
    """
    from segue.dashboard.server import serve

    serve(port, printing.say, is_opened=not no_open)
