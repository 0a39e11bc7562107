"""The command line. Each command has its own file, which is imported only when it is called: `segue
--version` must import nothing but click."""

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from types import TracebackType
from typing import Any

import click

from segue import __version__
from segue.views import streams

COMMANDS = {
    "run": "Finish a task despite full windows, limits and crashes.",
    "resume": "Resume a run.",
    "rescue": "List sessions that died without segue, and continue one.",
    "attach": "Show a run that is running in the background.",
    "runs": "List runs, their state and what to type next.",
    "logs": "Print what happened in a run; -f follows it.",
    "cancel": "End a run and its agent, or cancel a handoff.",
    "rerun": "Start the task of a run again from the beginning.",
    "diff": "Show what a run changed, or one leg of it.",
    "restore": "Restore the work of a run, on a branch or in a folder.",
    "forget": "Delete what segue stores about finished runs.",
    "submit": "Queue a task, or a list of them.",
    "queue": "List the tasks: running, waiting, ready to merge.",
    "worker": "Work through the queue, as limits allow.",
    "fleet": "Manage the machines that share one queue.",
    "status": "Show recent sessions: how full they are, and time left.",
    "sessions": "List all sessions, or filter by agent, project or state.",
    "dashboard": "Open a live dashboard in your browser.",
    "limits": "Show each account's limits: usage and reset times.",
    "show": "Show everything about one session or run.",
    "checkpoint": "Print what a new session needs to continue this one.",
    "open": "Start an agent that the daemon can hand over and resume.",
    "watch": "Watch all sessions; with --auto, hand over and resume.",
    "notes": "Print what the daemon saw, decided and did.",
    "pause": "Stop the daemon from acting on a project or session.",
    "unpause": "Let the daemon act there again.",
    "handoff": "Hand over a session in tmux to a fresh one now.",
    "allow": "Allow what the daemon asked about.",
    "service": "Run the daemon as a service: install, remove, status.",
    "setup": "Connect an agent: hooks, status line, MCP server.",
    "uninstall": "Remove segue from agents' settings.",
    "statusline": "Print the status line for claude.",
    "notify": "Test the notifications.",
    "mcp": "Serve sessions and handoffs to agents over MCP.",
    "report": "Report what was done, what it cost, and what needs you.",
    "fits": "Check whether a task of N tokens fits into a session.",
    "scan": "Add up the tokens of all sessions.",
    "drill": "Rehearse full windows, limits and crashes.",
    "simulate": "Simulate thousands of sessions with faults.",
    "tune": "Suggest marks, based on your own sessions.",
    "classify": "Explain why an agent stopped.",
    "explain": "Show the evidence behind a verdict.",
    "config": "Show the settings, and where each value comes from.",
    "doctor": "Check that this machine is ready for unattended runs.",
    "completion": "Print a completion script for your shell.",
    "wordings": "List, test and check the wordings that segue knows.",
}
GROUPS = {
    "Work": (
        "run",
        "resume",
        "rescue",
        "attach",
        "cancel",
        "rerun",
        "runs",
        "logs",
        "diff",
        "restore",
        "forget",
    ),
    "Queue": ("submit", "queue", "worker", "fleet"),
    "Inspect": (
        "status",
        "dashboard",
        "sessions",
        "limits",
        "show",
        "report",
        "checkpoint",
        "fits",
        "scan",
        "classify",
        "explain",
    ),
    "Daemon": (
        "watch",
        "open",
        "service",
        "notes",
        "handoff",
        "pause",
        "unpause",
        "allow",
        "notify",
    ),
    "Set up": ("doctor", "setup", "uninstall", "config", "completion", "wordings"),
    "Rehearse": ("drill", "simulate", "tune"),
    "For agents": ("mcp", "statusline"),
}
"""The commands in the order of `--help`."""
_FOLDERS = {"Work": "work", "Queue": "work", "Inspect": "look", "Daemon": "daemon"}
"""Where the commands of a group live; those of the other groups are tools."""
_ELSEWHERE = {"fleet": "tools", "back": "daemon"}
_UNLISTED = ("back",)
"""Commands that only the daemon starts."""


def _folder(command: str) -> str:
    if command in _ELSEWHERE:
        return _ELSEWHERE[command]
    group = next(group for group, names in GROUPS.items() if command in names)
    return _FOLDERS.get(group, "tools")


class _ReaderGone(Exception):  # noqa: N818 - not an error
    """The reader of our output has closed it (`segue … | head`)."""


@contextmanager
def _piping() -> Iterator[None]:
    """Handles a broken pipe first: click and rich would turn it into an exit code of their own."""
    try:
        yield
    except BrokenPipeError:
        raise _ReaderGone from None
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):
            raise _ReaderGone from None
        raise


class CommandContext(click.Context):
    """A context that usage errors name even where click's parser names none: when an option lacks
    its value."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        if isinstance(fault, click.UsageError) and fault.ctx is None:
            fault.ctx = self
        return super().__exit__(kind, fault, trace)


def _set_context(command: click.Command) -> None:
    """Makes usage errors of a command, and of the commands in a group, name that command."""
    command.context_class = CommandContext
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        _set_context(each)


class LazyGroup(click.Group):
    """A group that lists its commands without importing them."""

    context_class = CommandContext

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _piping():
            return super().make_context(*args, **kwargs)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS and name not in _UNLISTED:
            return None
        command: click.Command = import_module(f"segue.cli.{_folder(name)}.{name}").command
        _set_context(command)
        _add_help(command)
        if not gc.isenabled():  # off since segue.start; imported objects stay for good
            gc.freeze()
            gc.enable()
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        listed = {name for names in GROUPS.values() for name in names}
        rest = tuple(name for name in COMMANDS if name not in listed)
        wide = max(map(len, COMMANDS))
        for title, names in (*GROUPS.items(), ("More", rest)):
            rows = [(f"{name:<{wide}}", COMMANDS[name]) for name in names if name in COMMANDS]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_paragraph()
        formatter.write_text(
            "Run `segue COMMAND --help` for details. resume, attach, cancel, rerun, logs and show"
            " use the newest run of this folder if none is named."
        )

    def invoke(self, ctx: click.Context) -> Any:
        from segue.errors import SegueError

        try:
            with _piping():
                return super().invoke(ctx)
        except SegueError as fault:
            _printing().fail(fault.lines)
            ctx.exit(fault.exit_code)


def _say_version(ctx: click.Context, param: click.Parameter, is_given: bool) -> None:
    if is_given and not ctx.resilient_parsing:
        click.echo(f"segue {__version__}")
        ctx.exit()


def _say_help(ctx: click.Context, param: click.Parameter, is_given: bool) -> None:
    if is_given and not ctx.resilient_parsing:
        _printing().say(ctx.get_help())
        ctx.exit()


def _flag(*names: str, help: str, callback: Any) -> click.Option:
    given = {"is_flag": True, "is_eager": True, "expose_value": False}
    return click.Option(names, help=help, callback=callback, **given)


def _add_help(command: click.Command) -> None:
    """Adds the help option that click would add. Click also looks up translations of its text, of
    which there are none; in a scan that finds nothing new, that takes 2% of the time."""
    if command.add_help_option:
        command.add_help_option = False
        description = "Show this message and exit."
        command.params.append(_flag("-h", "--help", help=description, callback=_say_help))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Keep AI coding agents working despite full windows, limits, hangs and crashes."""
    if os.environ.get("NO_COLOR"):
        click.get_current_context().color = False


cli.params.append(_flag("--version", help="Show the version and exit.", callback=_say_version))
_add_help(cli)


def main() -> None:
    """Runs the command line, and exits."""
    if os.environ.get("_SEGUE_COMPLETE", "").endswith("_complete"):
        from segue.cli.support import completing

        if completing.answer(tuple(COMMANDS.items())):
            return
    streams.settle()
    with suppress(_ReaderGone, BrokenPipeError):
        sys.exit(_run())
    # Not an error, and nobody is left to read a message.
    streams.leave()
    sys.exit(141)


def _run() -> int:
    sys.excepthook = _broke
    try:
        code = cli.main(prog_name="segue", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.NoArgsIsHelpError as fault:
        _printing().say(fault.ctx.get_help() if fault.ctx else fault.format_message())
        return fault.exit_code
    except click.UsageError as fault:
        from segue.cli.support import usage

        where = fault.ctx.command_path if fault.ctx else "segue"
        _printing().complain(f"{usage.sentence(fault)} See: {where} --help")
        return fault.exit_code
    except click.ClickException as fault:
        _printing().complain(fault.format_message())
        return fault.exit_code
    except click.Abort:
        streams.leave()  # output that nobody has read by now is dropped
        return 130


def _printing() -> Any:
    """`views.printing`, imported only when there is something to print."""
    from segue.views import printing

    return printing


def _broke(kind: type[BaseException], fault: BaseException, trace: Any) -> None:
    """Prints an internal error, made harmless: its text may quote foreign data."""
    import traceback

    _printing().say("".join(traceback.format_exception(kind, fault, trace)), err=True, nl=False)
