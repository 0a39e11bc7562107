"""`segue mcp`: the MCP server that agents start."""

import sys

import click

from segue.views import printing


@click.command()
def command() -> None:
    """Serve MCP on stdin and stdout, so that an agent can see how full its session is and hand it
    over.

    Agents start it themselves: `segue setup` registers it (docs/mcp.md).
    """
    if sys.stdin.isatty():
        printing.say(
            "segue: waiting for MCP messages on stdin; agents start it themselves, see docs/mcp.md",
            err=True,
        )
    from segue.mcp.server import serve

    serve()
