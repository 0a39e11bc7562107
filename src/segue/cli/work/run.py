"""`segue run TASK`: works on a task until it is done."""

import os
import shlex
import sys
from pathlib import Path

import click

from segue import fleet
from segue.cli.support.run.lookup import folder, opened
from segue.cli.support.run.options import RunCommand, options
from segue.errors import InputError
from segue.runs.starting import installed_agents, run_request
from segue.runs.starting.driver import Driver
from segue.runs.starting.run_request import RunRequest
from segue.system import clock
from segue.system.config import settings as layered
from segue.system.config import trust
from segue.system.config.settings import Flags, Settings
from segue.system.files import files
from segue.views import printing
from segue.views.run.block import clean
from segue.views.verdicts import time_of_day

_MAX_TASK_BYTES = 10_000_000


@click.command(cls=RunCommand, context_settings={"allow_interspersed_args": True})
@click.argument("task", nargs=-1)
@click.option("--task-file", metavar="FILE", help="Read the task from FILE; - is stdin.")
@click.option("--agent", metavar="A,B…", help="claude, codex, opencode, gemini, pi or your own.")
@click.option("--check", metavar="CMD", help="The task is done once this command exits with 0.")
@click.option("--detach", is_flag=True, help="Run in the background, and return at once.")
@click.option("--trust-check", is_flag=True, help="Accept the check of the project's .segue.toml.")
@click.option("--no-project-check", is_flag=True, help="Ignore that check.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print the command, the policy and the paths; start nothing.",
)
@click.option("--strict", is_flag=True, help="Do not start if there is anything to warn about.")
@options
@click.pass_context
def command(
    ctx: click.Context,
    *,
    task: tuple[str, ...],
    task_file: str | None,
    agent: str | None,
    check: str | None,
    detach: bool,
    trust_check: bool,
    no_project_check: bool,
    dry_run: bool,
    strict: bool,
    policy: str | None,
    sets: tuple[str, ...],
    share_tree: bool,
    as_json: bool,
    raw: bool,
) -> None:
    """Work on TASK until it is done, despite full windows, limits, hangs and crashes.

    TASK is one argument (quote it), or - to read it from stdin; --task-file reads it from a file.
    Arguments after -- go to the agent unchanged: segue run "fix the tests" -- --model opus

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 needs you, 75 gave up while limited, 124 timed
    out, 130 ended by you. Press Ctrl+C once to let the agent finish its current step and write a
    checkpoint.

    With several agents (--agent claude,codex), the next one continues from a checkpoint while one
    is limited. Arguments after -- are for the first agent; [run.flags] in the config has flags for
    the others.

    With --detach the run continues without this terminal; segue attach shows it.
    """
    if trust_check and no_project_check:
        raise InputError("--trust-check and --no-project-check cannot be combined")
    if as_json and raw:
        raise InputError("--json and --raw cannot be combined")
    flags = Flags(
        policy=policy,
        set=sets,
        agent=agent,
        check=check,
        share_tree=share_tree or None,
        project_check=not no_project_check,
    )
    wanted, settings = complete_request(
        read_task(task, task_file),
        flags,
        ctx.meta.get("segue.flags"),
        trusts=trust_check,
        dry=dry_run,
    )
    if dry_run:
        from segue.cli.support.run.dry_run import show

        show(wanted, settings, as_json=as_json)
        return
    from segue.cli.support.run.warnings import warn
    from segue.runs.briefing.prompts import Prompts

    # errors that prevent the run come before warnings, and without them
    Prompts(settings.prompts)
    with opened():
        pass
    warn(wanted, os.environ, strict=strict)
    if detach:
        from segue.cli.support.run.detach import begin as begin_detached

        begin_detached(wanted, settings, as_json=as_json, raw=raw)
        return
    sys.exit(play(wanted, settings, as_json=as_json, raw=raw))


def play(wanted: RunRequest, settings: Settings, *, as_json: bool, raw: bool) -> int:
    """Runs a new run in the foreground until it ends; returns its exit code. Raises SegueError if
    it cannot start."""
    from segue.cli.support.run.stage import RunStage  # slow to import: not for --help or a refusal
    from segue.views.rescues.listing import rescued

    stage = RunStage(settings, as_json=as_json, raw=raw)
    with (
        opened() as store,
        Driver(
            store, env=os.environ, prompts=settings.prompts, accounts=fleet.open_accounts()
        ) as driver,
    ):
        loop = driver.begin(wanted)
        names = ", then ".join(each.agent for each in wanted.all)
        stage.view.say(f"{loop.run.id}: {names} in {wanted.cwd}")
        if wanted.origin is not None:
            stage.say(rescued(wanted.origin))
            if (wait := loop.run.wait) is not None:
                until = time_of_day(wait.until, loop.clock.now(), clock.local_zone())
                stage.say(f"{wait.why.description}: waiting until {until}")
        if warning := whose_check(wanted, settings):
            stage.say(warning)
        code = stage.play(loop, None, store.log(loop.run.id))
    stage.finish()
    return code


def whose_check(wanted: RunRequest, settings: Settings) -> str:
    """A line that announces the check if it comes from the project's file, because it is somebody
    else's command; otherwise ""."""
    source = settings.sources["run.check"]
    if not wanted.check or wanted.check != settings.check or source.kind != "project file":
        return ""
    return f"once the agent is done, segue runs the check of {source.at}: {clean(wanted.check)}"


def complete_request(
    task: str,
    flags: Flags,
    given: tuple[str, ...] | None,
    *,
    trusts: bool = False,
    dry: bool = False,
) -> tuple[RunRequest, Settings]:
    """The request for a run in this folder, and the settings, from the user's arguments and config.
    `given`: flags for the agent; `trusts`: accepts the project's check; `dry`: asks nothing and
    accepts nothing. Raises InputError or ConfigError."""
    cwd = folder()
    settings = layered.load(cwd, os.environ, flags)
    installed_agents.register(settings)
    name = settings.agent or choose_agent(settings)
    successors = settings.relay[1:]
    if not dry:
        accept_check(settings, trusts)
    wanted = run_request.request(
        task, name, settings, os.environ, cwd=cwd, flags=given, dry=dry, successors=successors
    )
    return wanted, settings


def accept_check(settings: Settings, trusts: bool) -> None:
    """Asks about a project's check that is not accepted yet, and remembers the answer if it is yes;
    `trusts` accepts it without asking. Without a terminal, does nothing: the request then fails.
    Raises InputError if the user says no."""
    if not run_request.needs_yes(settings) or settings.project_file is None:
        return
    if not trusts:
        if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
            return  # the request fails with one line
        printing.say(
            f"{settings.sources['run.check'].at} sets a check, a command that segue runs here when"
            f" the agent says that it is done:\n\n    {run_request.literal(settings.check)}\n",
            err=True,
        )
        if not printing.confirm("Accept it, as long as its text stays the same?"):
            raise InputError("the check was not accepted; to run without it: --no-project-check")
    trust.accept(settings.project_file.parent, settings.check)


def choose_agent(settings: Settings) -> str:
    """The agent to use if none is named: the only installed one, or the one that the user chooses,
    which is then remembered. Raises NoAgent if none is installed, or if there is no terminal to ask
    in."""
    found = list(installed_agents.installed(os.environ))
    if len(found) == 1:
        return found[0]
    if not found:
        raise installed_agents.none_installed()
    names = ", ".join(found)
    how = f'--agent NAME, or agent = "{found[0]}" under [run] in {settings.user_file}'
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
        raise installed_agents.NoAgent(
            f"several agents are installed ({names}): choose one with {how}"
        )
    chosen = printing.choose(f"Which agent? ({names})", found)
    from segue.system.config.config import remember_agent

    printing.complain(remember_agent(chosen))
    return chosen


def read_task(words: tuple[str, ...], file: str | None, command: str = "run") -> str:
    """The task, from the arguments or a file. Raises InputError unless there is exactly one, and it
    is text."""
    if words and file is not None:
        raise InputError("TASK and --task-file cannot be combined")
    if not words and file is None:
        more = "--task-file FILE" if command == "run" else "--from FILE"
        raise InputError(
            f'what is the task? write segue {command} "TASK", or segue {command} {more}'
        )
    if len(words) > 1:
        text = shlex.join(words)
        raise InputError(
            f"the task must be one argument: quote it, {shlex.quote(' '.join(words))}"
            f" instead of {text}"
        )
    task = read_file(file) if file is not None else _of_word(words[0])
    if not task.strip():
        raise InputError("the task is empty")
    if "\0" in task:
        raise InputError("the task contains a NUL byte: it is not text")
    return task


def _of_word(word: str) -> str:
    """The task in an argument; - is stdin. If it is the name of a file, the user may have meant its
    content: on a terminal, segue asks."""
    if word == "-":
        return read_input()
    if not _is_file(word):
        return word
    name = shlex.quote(word)
    if sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty():
        question = f"{name} is a file. Use its content as the task? (no: use its name)"
        return read_file(word) if printing.confirm(question) else word
    printing.complain(
        f"the task is the name {name}, not the content of that file; to use the content:"
        f" segue run --task-file {name}"
    )
    return word


def _is_file(word: str) -> bool:
    try:
        return os.path.isfile(word)
    except ValueError:  # it contains a NUL byte
        return False


def read_file(file: str) -> str:
    """The content of a file; - is stdin. Raises InputError if it cannot be read, is too large or is
    not UTF-8."""
    if file == "-":
        return read_input()
    try:
        data = files.read_plain(Path(file), _MAX_TASK_BYTES + 1)
    except OSError as fault:
        raise InputError(f"{file}: cannot be read: {fault.strerror or fault}") from None
    if len(data) > _MAX_TASK_BYTES:
        raise InputError(f"{file}: the task is larger than {_MAX_TASK_BYTES:,} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InputError(f"{file}: the task is not UTF-8") from None


def read_input() -> str:
    """The content of stdin. Raises InputError if it cannot be read, is too large or is not
    UTF-8."""
    if sys.stdin is None or sys.stdin.closed:
        raise InputError("cannot read the task from stdin, which is closed")
    try:
        data = sys.stdin.buffer.read(_MAX_TASK_BYTES + 1)
        if len(data) > _MAX_TASK_BYTES:
            raise InputError(f"the task on stdin is larger than {_MAX_TASK_BYTES:,} bytes")
        return data.decode()
    except UnicodeDecodeError:
        raise InputError("the task on stdin is not UTF-8") from None
    except OSError as fault:
        raise InputError(f"the task on stdin cannot be read: {fault.strerror}") from None
