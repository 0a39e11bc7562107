"""`segue run TASK`: carries a task to its end."""

import os
import shlex
import sys
from typing import Any

import click

from segue.cli.kept import folder, opened
from segue.cli.stage import Stage
from segue.cli.telling import clean
from segue.errors import InputError
from segue.io import settings as layered
from segue.io.settings import Flags, Settings
from segue.runner import begin
from segue.runner.begin import Driver, Wanted

_SEPARATOR = "--"


class RunCommand(click.Command):
    """What stands after `--` is the agent's own, and not looked at here."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if _SEPARATOR in args:
            place = args.index(_SEPARATOR)
            ctx.meta["segue.flags"] = tuple(args[place + 1 :])
            args = args[:place]
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as fault:
            raise InputError(
                f"{fault.option_name} is no option of segue run; the agent's own stand after --:"
                f' segue run "TASK" -- {fault.option_name} …'
            ) from None


def options(command: Any) -> Any:
    """What `run`, `resume` and `rerun` have in common."""
    for option in reversed(
        (
            click.option("--policy", metavar="NAME", help="graduated, continuous or early."),
            click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="A setting."),
            click.option("--share-tree", is_flag=True, help="Beside another run in this tree."),
            click.option("--json", "as_json", is_flag=True, help="What happens, one event a line."),
            click.option("--raw", is_flag=True, help="The agent's own output, as it comes."),
        )
    ):
        command = option(command)
    return command


@click.command(cls=RunCommand, context_settings={"allow_interspersed_args": True})
@click.argument("task", nargs=-1, required=True)
@click.option("--agent", metavar="NAME", help="claude, codex, opencode, gemini, pi or your own.")
@click.option("--check", metavar="CMD", help="The task is done once this command exits with 0.")
@click.option("--dry-run", is_flag=True, help="Print what would be started, and by which policy.")
@options
@click.pass_context
def command(
    ctx: click.Context,
    *,
    task: tuple[str, ...],
    agent: str | None,
    check: str | None,
    dry_run: bool,
    policy: str | None,
    sets: tuple[str, ...],
    share_tree: bool,
    as_json: bool,
    raw: bool,
) -> None:
    """Carry TASK to its end, over full windows, limits, hangs and crashes.

    TASK is one argument (quote it), or - to read it from the input. What follows -- goes to the
    agent as it is: segue run "mend the tests" -- --model opus

    Exit codes: 0 done, 1 failed, 2 wrong use, 3 needs you, 75 gave up while limited, 124 timed out,
    130 ended by you. Ctrl+C once lets the agent finish what it is at and write a checkpoint.
    """
    flags = Flags(policy=policy, set=sets, agent=agent, check=check, share_tree=share_tree or None)
    wanted, settings = wish(_task(task), flags, ctx.meta.get("segue.flags"))
    if dry_run:
        from segue.cli.dry import show

        show(wanted, settings, as_json=as_json)
        return
    sys.exit(play(wanted, settings, as_json=as_json, raw=raw))


def play(wanted: Wanted, settings: Settings, *, as_json: bool, raw: bool) -> int:
    """A new run, in the foreground; its exit code. Raises SegueError if it cannot be begun."""
    stage = Stage(settings, as_json=as_json, raw=raw)
    with opened() as store, Driver(store, env=os.environ, prompts=settings.prompts) as driver:
        loop = driver.begin(wanted)
        stage.view.say(f"{loop.run.id}: {wanted.agent} in {wanted.cwd}")
        if told := whose_check(wanted, settings):
            stage.say(told)
        return stage.play(loop, None, store.log(loop.run.id))


def whose_check(wanted: Wanted, settings: Settings) -> str:
    """A check that came with the repository is a command of somebody else's: the user is told."""
    source = settings.sources["run.check"]
    if not wanted.check or wanted.check != settings.check or source.kind != "project file":
        return ""
    return f"once the agent is done, the check of {source.at} will be run: {clean(wanted.check)}"


def wish(task: str, flags: Flags, given: tuple[str, ...] | None) -> tuple[Wanted, Settings]:
    """What the user wants, from all that they said. Raises InputError, ConfigError."""
    cwd = folder()
    settings = layered.load(cwd, os.environ, flags)
    begin.register(settings)
    name = settings.agent or choose_agent(settings)
    return begin.wanted(task, name, settings, os.environ, cwd=cwd, flags=given), settings


def choose_agent(settings: Settings) -> str:
    """One: that one. Several: the user is asked, once. None: how to get one."""
    found = list(begin.installed(os.environ))
    if len(found) == 1:
        return found[0]
    if not found:
        raise begin.NoAgent(begin.how_to_install())
    names = ", ".join(found)
    how = f'--agent NAME, or agent = "{found[0]}" under [run] in {settings.user_file}'
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise begin.NoAgent(f"several agents are installed ({names}): choose one with {how}")
    chosen: str = click.prompt(
        f"Which agent? ({names})", type=click.Choice(found), show_choices=False, err=True
    )
    from segue.io.config import remember_agent

    click.echo(f"segue: {remember_agent(chosen)}", err=True)
    return chosen


def _task(words: tuple[str, ...]) -> str:
    if len(words) > 1:
        said = shlex.join(words)
        raise InputError(
            f"the task must be one argument: quote it, {shlex.quote(' '.join(words))}"
            f" instead of {said}"
        )
    task = _read() if words == ("-",) else words[0]
    if not task.strip():
        raise InputError("the task is empty")
    if "\0" in task:
        raise InputError("the task holds a NUL byte: it is no text")
    return task


def _read() -> str:
    if sys.stdin is None or sys.stdin.closed:
        raise InputError("the task was to come on stdin, which is closed")
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError:
        raise InputError("the task on stdin is not UTF-8") from None
    except OSError as fault:
        raise InputError(f"the task on stdin cannot be read: {fault.strerror}") from None
