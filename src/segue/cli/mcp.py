"""`segue mcp`: the MCP server that agents start."""

import sys

import click

from segue.errors import InputError

INSTALL = "pip install 'segue[mcp]'"


@click.command()
def command() -> None:
    """Serve MCP on stdin and stdout: an agent asks how full its session is, and hands it over.

    Agents start it themselves: `segue setup` registers it (docs/mcp.md).
    """
    try:
        import mcp.server.mcpserver  # noqa: F401
    except ImportError:
        raise InputError(f"segue mcp needs the MCP SDK, 2.3 or later: {INSTALL}") from None
    if sys.stdin.isatty():
        click.echo("segue: speaks MCP on stdin; agents start this, see docs/mcp.md", err=True)
    from segue.mcp_server import serve

    serve()
