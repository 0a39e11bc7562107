"""The command line. Each command lives in a file of its own that is imported when it is called:
`segue --version` must cost no more than click."""

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

import click

from segue import __version__

COMMANDS = {
    "run": "Carry a task to its end, over full windows, limits, hangs and crashes.",
    "resume": "Go on with a run.",
    "runs": "List runs: where they stand, and how to go on.",
    "logs": "Print what happened in a run, also while it goes on.",
    "cancel": "End a run and its agent, or take back a handoff or a resume.",
    "rerun": "Begin the task of a run anew.",
    "status": "Show live and recent sessions: how full, how fast, how long left.",
    "sessions": "List all sessions, or those of an agent, a project, a state.",
    "show": "Tell all about one session or one run.",
    "watch": "Watch all sessions: zones, stops, reminders; with --auto handoffs and resumes.",
    "notes": "Print what the daemon saw, decided and did.",
    "pause": "Let the daemon leave a project or a session alone for a while.",
    "unpause": "Let it act there again.",
    "handoff": "Hand a session in tmux over to a fresh one, now.",
    "allow": "Say yes to what the daemon asked about.",
    "service": "Run the daemon as a service: install, remove, status.",
    "setup": "Connect an agent: hooks and status line for claude, the MCP server.",
    "uninstall": "Take out of agents' settings what segue put there.",
    "statusline": "Print the status line for claude.",
    "notify": "Try the notifications.",
    "mcp": "Serve sessions and handoffs to agents, over MCP.",
    "fits": "Say whether a task of so many tokens fits into a session.",
    "scan": "Read what is new in all sessions, and sum up the tokens.",
    "drill": "Rehearse full windows, limits and crashes against a scripted model.",
    "classify": "Say why an agent stopped, from what it left behind.",
    "explain": "Show which signs made a verdict, and which lost and why.",
    "config": "Show what is set, and where each value comes from.",
    "doctor": "Check that a run can go through the night on this machine.",
    "wordings": "List, test and check the wordings that segue knows.",
}
_UNLISTED = ("back",)
"""What the daemon starts, and nobody types."""


class _ReaderGone(Exception):  # noqa: N818 - not an error
    """Who read our output went away (`segue … | head`)."""


@contextmanager
def _piping() -> Iterator[None]:
    """click and rich make a broken pipe an exit code of their own, unless it is told before."""
    try:
        yield
    except BrokenPipeError:
        raise _ReaderGone from None
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):
            raise _ReaderGone from None
        raise


class LazyGroup(click.Group):
    """A group that knows its commands by name only."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _piping():
            return super().make_context(*args, **kwargs)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS and name not in _UNLISTED:
            return None
        command: click.Command = import_module(f"segue.cli.{name}").command
        if not gc.isenabled():  # see segue.start: what was imported stays, and is not looked at
            gc.freeze()
            gc.enable()
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        from segue.errors import SegueError

        try:
            with _piping():
                return super().invoke(ctx)
        except SegueError as fault:
            click.echo(f"segue: {fault}", err=True)
            ctx.exit(fault.exit_code)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="segue", message="%(prog)s %(version)s")
def cli() -> None:
    """Keep AI coding agents working, over full windows, limits, hangs and crashes."""
    if os.environ.get("NO_COLOR"):
        click.get_current_context().color = False


def main() -> None:
    """Runs the command line, and exits."""
    with suppress(_ReaderGone, BrokenPipeError):
        sys.exit(_run())
    # Not an error, and nobody is left to tell.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    sys.exit(141)


def _run() -> int:
    try:
        code = cli.main(prog_name="segue", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.NoArgsIsHelpError as fault:
        click.echo(fault.ctx.get_help() if fault.ctx else fault.format_message())
        return fault.exit_code
    except click.UsageError as fault:
        where = fault.ctx.command_path if fault.ctx else "segue"
        click.echo(f"segue: {fault.format_message()} See: {where} --help", err=True)
        return fault.exit_code
    except click.ClickException as fault:
        click.echo(f"segue: {fault.format_message()}", err=True)
        return fault.exit_code
    except click.Abort:
        return 130
