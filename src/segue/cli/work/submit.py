"""`segue submit TASK`: puts tasks into the queue."""

import os
import secrets
import sys

import click

from segue import fleet
from segue.agents import canonical, drives
from segue.cli.support.numbers import Whole
from segue.cli.support.run.lookup import folder
from segue.cli.support.run.options import RunCommand
from segue.cli.support.tasks import find_task, opened_queue
from segue.cli.work.run import choose_agent, read_file, read_input, read_task
from segue.core.queue import lists
from segue.core.queue.types import Task
from segue.errors import InputError
from segue.queue.port import Queue
from segue.runs.starting import installed_agents, run_request
from segue.runs.store import leases
from segue.system import clock
from segue.system.config import settings as layered
from segue.system.config import trust
from segue.system.config.settings import Flags, Settings
from segue.system.git import worktrees
from segue.views import printing
from segue.views.run.block import counted

_NOWHERE = "/"  # the folder for tasks of a URL: no project's settings apply there


@click.command(cls=RunCommand, context_settings={"allow_interspersed_args": True})
@click.argument("task", nargs=-1)
@click.option(
    "--from", "file", metavar="FILE", help="One task per line, or a Markdown list; - is stdin."
)
@click.option(
    "--agent", metavar="A,B", help="The first of these that is not limited takes the task."
)
@click.option("--check", metavar="CMD", help="A task is done once this command exits with 0.")
@click.option("--repo", metavar="PATH|URL", help="The repository; default: the one of this folder.")
@click.option(
    "--ref", metavar="REF", help="Where the task's branch starts; default: the checked-out commit."
)
@click.option("--here", is_flag=True, help="Work in this folder instead of a separate worktree.")
@click.option(
    "--priority",
    type=Whole(),
    default=0,
    metavar="N",
    help="Higher priorities go first.",
)
@click.option("--after", multiple=True, metavar="TASK", help="Wait until this task is done.")
@click.option(
    "--on", "labels", multiple=True, metavar="LABEL", help="Only on machines with this label."
)
@click.option("--policy", metavar="NAME", help="graduated, continuous or early.")
@click.option(
    "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Change a setting; can be repeated."
)
@click.option("--trust-check", is_flag=True, help="Accept the check of the project's .segue.toml.")
@click.option("--no-project-check", is_flag=True, help="Ignore that check.")
@click.option("--trust-setup", is_flag=True, help="Accept the setup of the project's .segue.toml.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@click.pass_context
def command(
    ctx: click.Context,
    *,
    task: tuple[str, ...],
    file: str | None,
    agent: str | None,
    check: str | None,
    repo: str | None,
    ref: str | None,
    here: bool,
    priority: int,
    after: tuple[str, ...],
    labels: tuple[str, ...],
    policy: str | None,
    sets: tuple[str, ...],
    trust_check: bool,
    no_project_check: bool,
    trust_setup: bool,
    as_json: bool,
) -> None:
    """Queue TASK for `segue worker`, which works through the queue as limits allow.

    Each task works in its own git worktree, on the branch segue/TASK. `segue queue` shows what
    there is to merge. TASK is one argument (quote it), or - to read it from stdin. --from reads
    many tasks: one per line, or the items of a Markdown list. Arguments after -- go to the agent
    unchanged.
    """
    if here and (repo or ref):
        raise InputError("--here works in this folder as it is: leave out --repo and --ref")
    texts = _texts(task, file)
    flags = Flags(
        policy=policy, set=sets, agent=None, check=check, project_check=not no_project_check
    )
    cwd = _cwd(repo)
    settings = layered.load(cwd, os.environ, flags)
    installed_agents.register(settings)
    names = _agents(agent, settings)
    own = ctx.meta.get("segue.flags")
    if own and len(names) > 1:
        raise InputError("flags after -- are for one agent: name only one, or use [run.flags]")
    _accept(settings, trust_check, "run.check", settings.check, "--trust-check")
    _accept(settings, trust_setup, "worktree.setup", settings.worktree.setup, "--trust-setup")
    if labels and not fleet.url():
        raise InputError("--on needs a fleet, and this machine belongs to none (docs/fleet.md)")
    for name in names:
        _can_do(name, texts[0], settings, cwd, own)
    model = Task(
        id="",
        text="",
        agents=tuple(names),
        cwd=cwd,
        created_at=clock.now(),
        here=here,
        check=settings.check,
        setup="" if here else settings.worktree.setup,
        link=() if here else settings.worktree.link,
        commits=settings.worktree.commit,
        flags=tuple(own) if own is not None else None,
        policy=policy or "",
        sets=sets,
        priority=priority,
        labels=labels,
        ref=ref or "",
    )
    model = _placed(model, repo)
    with opened_queue() as queue:
        model = _with(model, after=tuple(find_task(queue, name).id for name in after))
        tasks = queue.submit([_with(model, id=_new_id(queue), text=text) for text in texts])
    if as_json:
        printing.say_json({"tasks": [each.id for each in tasks]})
        return
    for each in tasks:
        printing.say(each.id)
    queued = counted(len(tasks), "task")
    printing.say(
        f"segue: {queued} queued\n  segue worker  # works through the queue\n"
        "  segue queue  # lists the tasks",
        err=True,
    )


def _can_do(name: str, text: str, settings: Settings, cwd: str, flags: list[str] | None) -> None:
    """Raises InputError if this agent cannot do the task. In a fleet, a task of a URL needs no
    agent on this machine: another one may have it."""
    try:
        run_request.request(text, name, settings, os.environ, cwd=cwd, flags=flags)
    except installed_agents.NoAgent:
        if not fleet.url() or cwd != _NOWHERE or drives.find(name) is None:
            raise


def _with(task: Task, **changes: object) -> Task:
    from msgspec.structs import replace

    return replace(task, **changes)


def _new_id(queue: Queue) -> str:
    while queue.find(name := f"task-{secrets.token_hex(4)}"):
        pass
    return name


def _texts(words: tuple[str, ...], file: str | None) -> list[str]:
    if file is None:
        return [read_task(words, None, command="submit")]
    if words:
        raise InputError("TASK and --from cannot be combined")
    listed = lists.read(read_input() if file == "-" else read_file(file))
    where = "stdin" if file == "-" else file
    if listed.ignored:
        first = f"first in line {listed.ignored[0]}"
        lines = counted(len(listed.ignored), "line")
        printing.complain(
            f"{where}: {lines} of prose ignored, {first}; only the list's items are tasks"
        )
    if listed.ticked:
        printing.complain(
            f"{where}: {counted(listed.ticked, 'item')} already ticked off and ignored"
        )
    if not listed.tasks:
        raise InputError(f"{where}: no task in it; write one per line, or a Markdown list")
    if any("\0" in text for text in listed.tasks):
        raise InputError(f"{where}: a task contains a NUL byte: it is not text")
    return list(listed.tasks)


def _cwd(repo: str | None) -> str:
    if repo is None:
        return folder()
    if worktrees.is_url(repo):
        return _NOWHERE
    found = os.path.abspath(os.path.expanduser(repo))
    if not os.path.isdir(found):
        raise InputError(f"--repo {repo}: neither a folder nor a URL")
    return found


def _agents(given: str | None, settings: Settings) -> list[str]:
    chosen = given or settings.agent or choose_agent(settings)
    names = [canonical(name.strip()) for name in chosen.split(",")]
    if not all(names):
        raise InputError(f"--agent {chosen}: a name is missing; write --agent claude,codex")
    return list(dict.fromkeys(names))


def _placed(task: Task, repo: str | None) -> Task:
    """The task with its repository, project and machine. Raises InputError if the folder has no
    repository."""
    if task.here:
        return _with(task, project=os.path.realpath(task.cwd), machine=_machine())
    if task.cwd == _NOWHERE and repo is not None:
        return _with(task, repo=repo, is_url=True, project=repo)
    try:
        start = worktrees.start(task.cwd, task.ref)
    except worktrees.GitError as fault:
        raise InputError(f"{fault}; to work in the folder itself: segue submit --here") from None
    if start.changes and not task.ref:
        those = "it" if start.changes == 1 else "them"
        printing.complain(
            f"{counted(start.changes, 'uncommitted file')} in {start.top}: a task's worktree"
            f" starts at commit {start.commit[:9]}, without {those}"
        )
    project = os.path.realpath(start.top)
    return _with(task, repo=start.top, project=project, machine=_machine())


def _machine() -> str:
    """The machine for a task in a local folder: in a fleet, this one, because the others do not
    have the folder; otherwise ""."""
    return leases.machine() if fleet.url() else ""


def _accept(settings: Settings, trusts: bool, key: str, text: str, option: str) -> None:
    """Asks the user to accept a command from the project's file, unless they have; `trusts` accepts
    it. Raises InputError if they do not, or cannot be asked."""
    source = settings.sources[key]
    if not text or source.kind != "project file" or settings.project_file is None:
        return
    place = settings.project_file.parent
    if trust.is_accepted(place, text):
        return
    shown = run_request.literal(text)
    if not trusts:
        if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
            raise InputError(
                f"{source.at} sets a command that you have not accepted: {shown}; accept it with"
                f" {option}"
            )
        printing.say(f"{source.at} sets a command that segue runs:\n\n    {shown}\n", err=True)
        if not printing.confirm("Accept it, as long as its text stays the same?"):
            raise InputError("not accepted; nothing was queued")
    trust.accept(place, text)
