"""`segue unpause`: the daemon may act again."""

import click

from segue.cli.daemon.pause import target
from segue.cli.support.asking import ask


@click.command()
@click.argument("what", required=False)
@click.option("--all", "everything", is_flag=True, help="Everything that was paused.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(what: str | None, everything: bool, as_json: bool) -> None:
    """Let the daemon act in WHAT again: a folder (by default, this one), or a session's id."""
    ask("/v1/unpause", {"what": target(what, everything=everything)}, as_json=as_json)
