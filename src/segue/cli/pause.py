"""`segue pause`: the daemon leaves something alone for a while."""

import os

import click

from segue.cli.asking import ask


@click.command()
@click.argument("what", required=False)
@click.option("--all", "everything", is_flag=True, help="All projects.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(what: str | None, everything: bool, as_json: bool) -> None:
    """Let the daemon hand off and resume nothing in WHAT: a folder (this one), or a session's id.

    It still watches and records. Goes on after: segue unpause.
    """
    ask("/v1/pause", {"what": meant(what, everything=everything)}, as_json=as_json)


def meant(what: str | None, *, everything: bool) -> str:
    """A folder by its full path; a session by the name that was given."""
    if everything:
        return "all"
    if what is None or os.path.isdir(os.path.expanduser(what)):
        return os.path.realpath(os.path.expanduser(what or "."))
    return what
