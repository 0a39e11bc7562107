"""`segue allow SESSION`: the user's yes to what the daemon asked about."""

import click

from segue.cli.daemon.pause import target
from segue.cli.support.asking import ask


@click.command()
@click.argument("session", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(session: str | None, as_json: bool) -> None:
    """Allow what the daemon asked about SESSION (an id, or a folder: by default, this one).

    Examples are resuming after a weekly limit, or using more of a limit window than you allow
    unattended. Your answer holds for one day and for the whole project.
    """
    ask("/v1/yes", {"what": target(session, everything=False)}, as_json=as_json)
