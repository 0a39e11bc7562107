"""`segue pause`: stops the daemon from acting on something."""

import os

import click

from segue.cli.support.asking import ask
from segue.errors import InputError


@click.command()
@click.argument("what", required=False)
@click.option("--all", "everything", is_flag=True, help="All projects.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(what: str | None, everything: bool, as_json: bool) -> None:
    """Stop the daemon from handing over or resuming anything in WHAT: a folder (by default, this
    one), or a session's id.

    It keeps watching and recording. To let it act again: segue unpause.
    """
    name = target(what, everything=everything)
    if name.startswith("/") and not os.path.isdir(name):
        raise InputError(f"{name}: no such folder")
    ask("/v1/pause", {"what": name}, as_json=as_json)


def target(what: str | None, *, everything: bool) -> str:
    """What to pause, as the daemon's API takes it: "all", a folder's full path, or a session's
    name."""
    if everything:
        if what is not None:
            raise InputError(f"--all and {what} cannot be combined")
        return "all"
    folder = os.path.expanduser(what or ".")
    if what is None or "/" in folder or os.path.isdir(folder):
        return os.path.realpath(folder)
    return what
