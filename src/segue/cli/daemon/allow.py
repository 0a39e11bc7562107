"""`segue allow SESSION`: the user's yes to what the daemon asked about."""

import click

from segue.cli.daemon.pause import meant
from segue.cli.support.asking import ask


@click.command()
@click.argument("session", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(session: str | None, as_json: bool) -> None:
    """Say yes to what the daemon asked about SESSION (an id, or a folder: this one).

    Such as going on after a weekly limit, or with more of a window than you allow unattended. It
    counts for a day, for the whole project.
    """
    ask("/v1/yes", {"what": meant(session, everything=False)}, as_json=as_json)
