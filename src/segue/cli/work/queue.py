"""`segue queue`: the tasks, and what to do about them."""

import os
import time
from typing import Any

import click
from msgspec.structs import replace

from segue.agents import canonical
from segue.cli.support.numbers import Whole
from segue.cli.support.run.lookup import opened
from segue.cli.support.tasks import find_task, opened_queue
from segue.core.queue.types import Task
from segue.errors import InputError
from segue.fleet import outlook
from segue.queue import trees
from segue.queue.port import Queue
from segue.runs.store import leases
from segue.runs.store.port import Store
from segue.system import clock
from segue.system.config import settings as layered
from segue.views import printing, tasks

_RECENT_S = 7 * 86_400.0
_CANCEL_S = 60.0
_LOOK_S = 0.1


@click.group(invoke_without_command=True)
@click.option("--all", "all_", is_flag=True, help="Also tasks that ended more than a week ago.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@click.pass_context
def command(ctx: click.Context, all_: bool, as_json: bool) -> None:
    """List the tasks: what is running, what is waiting and why, and how to merge finished work."""
    if ctx.invoked_subcommand is not None:
        return
    with opened_queue() as queue, opened() as store:
        for each in trees.refreshed(queue.with_trees(leases.machine())):
            queue.note(each)
        now = clock.now()
        found = [t for t in queue.tasks() if all_ or as_json or _is_shown(t, now)]
        verdicts = outlook.verdicts(queue, store, now)
    if as_json:
        listed = [
            tasks.as_dict(task, verdicts.get(task.id), trees.how_to_merge(task)) for task in found
        ]
        printing.say_json({"tasks": listed})
        return
    if not found:
        printing.say('no tasks; to queue one: segue submit "TASK"', err=True)
        return
    screen = printing.console()
    printing.draw(screen, tasks.table(found, verdicts, now, screen.width))
    for task in found:
        verdict = verdicts.get(task.id)
        if verdict is not None and verdict.is_blocked:
            printing.say(f"{task.id} {verdict.why}")
        for line in tasks.next_lines(task, trees.how_to_merge(task)):
            printing.say(line)


def _is_shown(task: Task, now: float) -> bool:
    has_tree = bool(task.tree) and not task.is_tree_removed
    return not task.state.is_final or has_tree or now - (task.ended_at or now) < _RECENT_S


@command.command()
@click.argument("names", metavar="TASK...", nargs=-1, required=True)
def cancel(names: tuple[str, ...]) -> None:
    """End tasks and the agents that work on them. Their work stays in their worktrees."""
    with opened_queue() as queue, opened() as store:
        for task in [find_task(queue, name) for name in names]:
            if task.state.is_final:
                printing.say(f"{task.id} has already ended: {task.state.value}")
                continue
            ended = _cancel(queue, store, task)
            if not ended.state.is_final:
                raise InputError(
                    f"{task.id} was asked to end but has not after {_CANCEL_S:.0f} s; to see why:"
                    f" segue logs {ended.run}"
                )
            printing.say(f"{ended.id} is {ended.state.value}")


def _cancel(queue: Queue, store: Store, task: Task) -> Task:
    """Asks the process that carries out the task to end it, and waits; ends a task without a
    process here. Returns the task, which may still be running after `_CANCEL_S`."""
    until = time.monotonic() + _CANCEL_S
    holder = queue.holder(task.id)
    is_carried = holder is not None and queue.is_alive(holder)
    if task.run and not is_carried and store.run(task.run) is not None:
        from segue.cli.work.cancel import end_run

        end_run(store, task.run)
    found = queue.cancel(task.id, clock.now())
    is_asked = False
    while not found.state.is_final and time.monotonic() < until:
        if found.run and not is_asked and store.run(found.run) is not None:
            store.ask(found.run, "cancel", clock.now())
            is_asked = True
        time.sleep(_LOOK_S)
        found = queue.cancel(task.id, clock.now())  # again: its process may have died meanwhile
    if found.run and not found.state.is_final:
        return found
    return queue.task(task.id) or found


@command.command()
@click.argument("name", metavar="TASK")
@click.option("--text", help="The new text of the task.")
@click.option(
    "--agent", metavar="A,B", help="The first of these that is not limited takes the task."
)
@click.option("--check", metavar="CMD", help="The task is done once this command exits with 0.")
@click.option("--priority", type=Whole(), metavar="N", help="Higher priorities go first.")
@click.option("--after", multiple=True, metavar="TASK", help="Wait until this task is done.")
@click.option("--no-after", is_flag=True, help="Wait for no other task.")
def edit(
    name: str,
    text: str | None,
    agent: str | None,
    check: str | None,
    priority: int | None,
    after: tuple[str, ...],
    no_after: bool,
) -> None:
    """Change a task that has not started."""
    changes: dict[str, Any] = {}
    if text is not None:
        if not text.strip() or "\0" in text:
            raise InputError("--text: the task is empty, or contains a NUL byte")
        changes["text"] = text
    if agent is not None:
        from segue.runs.starting import installed_agents

        installed_agents.register(layered.load("/", os.environ))
        changes["agents"] = tuple(canonical(each.strip()) for each in agent.split(","))
        for each in changes["agents"]:
            installed_agents.driven(each, os.environ, "--agent")
    if check is not None:
        changes["check"] = check
    if priority is not None:
        changes["priority"] = priority
    with opened_queue() as queue:
        if after or no_after:
            changes["after"] = tuple(find_task(queue, each).id for each in after)
        if not changes:
            raise InputError("nothing to change; see segue queue edit --help")
        task = find_task(queue, name)
        if task.id in changes.get("after", ()):
            raise InputError(f"{task.id} cannot come after itself")
        changed = queue.edit(task.id, lambda now: replace(now, **changes))
    printing.say(f"{changed.id} was changed")


@command.command()
@click.argument("names", metavar="TASK...", nargs=-1, required=True)
def retry(names: tuple[str, ...]) -> None:
    """Queue failed, cancelled or needs-you tasks again; they continue where they ended."""
    with opened_queue() as queue:
        for task in [find_task(queue, name) for name in names]:
            queue.retry(task.id, clock.now())
            printing.say(f"{task.id} is queued again")


@command.command()
@click.argument("names", metavar="TASK...", nargs=-1, required=True)
def forget(names: tuple[str, ...]) -> None:
    """Delete the records of finished tasks. Worktrees with work in them are never deleted."""
    with opened_queue() as queue:
        found = [find_task(queue, name) for name in names]
        for task in found:
            if task.tree and not task.is_tree_removed:
                raise InputError(
                    f"{task.id} has work in {task.tree}; merge it, or discard it first:"
                    f" git worktree remove --force {task.tree}"
                )
        for task in found:
            queue.forget(task.id)
            printing.say(f"{task.id} is forgotten")
