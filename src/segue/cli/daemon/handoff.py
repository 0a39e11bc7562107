"""`segue handoff SESSION`: hands a session over now, in whatever zone it is."""

import click

from segue.cli.daemon.pause import target
from segue.cli.support.asking import ask


@click.command()
@click.argument("session", required=False)
@click.option("--retry", is_flag=True, help="Continue a handoff that is waiting for you.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(session: str | None, retry: bool, as_json: bool) -> None:
    """Ask SESSION for its handoff document, clear its context and continue from the document.

    SESSION is an id, the beginning of one, or a folder (by default, this one). It must be a
    session that you run in tmux yourself. `segue cancel SESSION` cancels the handoff.
    """
    name = target(session, everything=False)
    ask("/v1/handoff", {"session": name, "retry": retry}, as_json=as_json)
