"""The options shared by `run`, `resume`, `rerun` and `rescue`. It imports nothing that a run needs,
because `rescue` may only print a list."""

from typing import Any

import click

from segue.core.nearest import did_you_mean
from segue.errors import InputError

_SEPARATOR = "--"


class RunCommand(click.Command):
    """A command that leaves the arguments after `--` to the agent: click does not see them, and
    they are in `ctx.meta["segue.flags"]`."""

    takes = '"TASK"'

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if _SEPARATOR in args:
            place = args.index(_SEPARATOR)
            ctx.meta["segue.flags"] = tuple(args[place + 1 :])
            args = args[:place]
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as fault:
            given, name = fault.option_name, ctx.info_name
            known = [each for option in self.params for each in option.opts]
            hint = did_you_mean(given, known)
            raise InputError(
                f"{given} is not an option of segue {name}{': ' + hint if hint else '.'}"
                f" The agent's own options go after --: segue {name} {self.takes} -- {given} …"
            ) from None


class AgainCommand(RunCommand):
    """The same, for commands that take a run instead of a task."""

    takes = "RUN"


def options(command: Any) -> Any:
    """Adds the options that these commands share."""
    for option in reversed(
        (
            click.option("--policy", metavar="NAME", help="graduated, continuous or early."),
            click.option(
                "--set",
                "sets",
                multiple=True,
                metavar="KEY=VALUE",
                help="Change a setting; can be repeated.",
            ),
            click.option(
                "--share-tree", is_flag=True, help="Allow another run in the same working tree."
            ),
            click.option(
                "--json",
                "as_json",
                is_flag=True,
                help="Print events as they happen, one JSON object per line.",
            ),
            click.option("--raw", is_flag=True, help="Pass the agent's own output through."),
        )
    ):
        command = option(command)
    return command
