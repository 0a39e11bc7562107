"""Tasks of the queue, for people and for programs."""

import shlex
from typing import Any

import msgspec

from segue.core.queue.schedule import Verdict
from segue.core.queue.types import Task, TaskState
from segue.views import tables
from segue.views.run.block import clean, countdown, counted, cut
from segue.views.verdicts import iso

STATE_COLOURS = {
    TaskState.QUEUED: "",
    TaskState.RUNNING: "green",
    TaskState.WAITING: "yellow",
    TaskState.DONE: "dim",
    TaskState.FAILED: "red",
    TaskState.CANCELLED: "dim",
    TaskState.NEEDS_YOU: "bold red",
}
_TEXT = 60
_WHY = 48
_STATE_AT, _AGENT_AT, _TEXT_AT = 1, 2, 5
_MIN_STATE, _MIN_AGENT, _MIN_TEXT = 16, 6, 12  # columns of a narrow terminal


def as_dict(task: Task, verdict: Verdict | None, merge: str) -> dict[str, Any]:
    """A task in its documented form (docs/json.md)."""
    outcome, work = task.outcome, task.work
    return {
        "task": task.id,
        "state": task.state.value,
        "is_final": task.state.is_final,
        "text": task.text,
        "agents": list(task.agents),
        "agent": task.agent or None,
        "account": task.account or None,
        "priority": task.priority,
        "after": list(task.after),
        "repo": task.repo or None,
        "ref": task.ref or None,
        "cwd": task.cwd,
        "here": task.here,
        "check": task.check or None,
        "run": task.run or None,
        "created_at": iso(task.created_at),
        "started_at": iso(task.started_at),
        "ended_at": iso(task.ended_at),
        "waits_until": iso(_until(task, verdict)),
        "why": _why(task, verdict) or None,
        "is_blocked": verdict is not None and verdict.is_blocked,
        "tree": None if task.is_tree_removed else task.tree or None,
        "branch": None if task.is_tree_removed else task.branch or None,
        "base": task.base or None,
        "target": task.target or None,
        "work": None if work is None else msgspec.to_builtins(work),
        "merge": merge or None,
        "exit_code": None if outcome is None else outcome.exit_code,
        "reason": None if outcome is None else outcome.reason,
        "outcome": None if outcome is None else outcome.what,
        "advice": None if outcome is None else outcome.advice,
    }


def table(tasks: list[Task], verdicts: dict[str, Verdict], now: float, width: int) -> Any:
    """The table of tasks. If it is too wide, first the text of the tasks is cut, then states and
    reasons, then agents; ids and sizes are needed for commands, and stay complete."""
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    names = ("task", "state", "agent", "age", "work", "text")
    cells = [_cells(task, verdicts.get(task.id), now) for task in tasks]
    widths = [max(map(cell_len, column)) for column in zip(names, *cells, strict=True)]
    room = width - 2 * (len(names) - 1)
    over = sum(widths) - room
    for place, least in ((_TEXT_AT, _MIN_TEXT), (_STATE_AT, _MIN_STATE), (_AGENT_AT, _MIN_AGENT)):
        taken = min(max(over, 0), max(widths[place] - least, 0))
        widths[place] -= taken
        over -= taken
    rows = Table(box=None, pad_edge=False, header_style="dim", show_edge=False)
    for name in names:
        rows.add_column(name, no_wrap=True, overflow="ellipsis",
                        justify="right" if name == "age" else "left")  # fmt: skip
    for task, row in zip(tasks, cells, strict=True):
        shown = [Text(cut(cell, most)) for cell, most in zip(row, widths, strict=True)]
        shown[_STATE_AT].stylize(STATE_COLOURS[task.state])
        rows.add_row(*shown)
    return rows


def _cells(task: Task, verdict: Verdict | None, now: float) -> tuple[str, ...]:
    return (
        task.id,
        _state(task, verdict, now),
        cut(clean(task.agent or ",".join(task.agents)), 20),
        tables.ago(task.created_at, now).removesuffix(" ago"),
        size(task),
        cut(clean(task.text), _TEXT),
    )


def size(task: Task) -> str:
    """How much work is on a task's branch."""
    work = task.work
    if work is None or task.is_tree_removed:
        return "merged" if work is not None and work.is_merged else ""
    text = f"+{work.insertions} −{work.deletions} in {counted(work.files, 'file')}"
    if work.uncommitted:
        return f"{counted(work.uncommitted, 'file')} uncommitted"
    return text if work.commits else "nothing"


def next_lines(task: Task, merge: str) -> list[str]:
    """The commands to type next for a task."""
    found = []
    work = task.work
    if task.state is TaskState.NEEDS_YOU or task.state is TaskState.FAILED:
        found.append(f"{task.id} {clean(task.ending)}")
        found.append(f"  segue queue retry {task.id}  # to continue where it ended")
    elif task.tries and task.why and not task.state.is_final:
        found.append(f"{task.id} could not continue: {clean(task.why)}; segue retries it")
        found.append(f"  segue queue cancel {task.id}  # to give up")
    if work is not None and work.note and not task.is_tree_removed:
        found.append(f"{task.id}: {clean(work.note)}")
        if not merge:
            found.append(f"  cd {shlex.quote(task.tree)}")
    if work is None or not merge:
        return found
    into = task.target.removeprefix("refs/remotes/origin/")
    if work.conflicts:
        names = ", ".join(clean(name) for name in work.conflicts[:5])
        more = f" and {len(work.conflicts) - 5} more" if len(work.conflicts) > 5 else ""
        found.append(f"{task.id} conflicts with {clean(into)} in {names}{more}: merge it by hand")
    elif work.uncommitted:
        found.append(f"{task.id} has uncommitted work in {task.tree}")
    else:
        checked = "" if work.is_checked else "; whether it merges cleanly is unknown"
        found.append(f"{task.id}: {task.branch}, {size(task)}, ready to merge into {clean(into)}"
                     f"{checked}")  # fmt: skip
    found.append(f"  {merge}")
    return found


def waiting(task: Task, verdict: Verdict | None) -> tuple[str, float | None]:
    """Why a task waits ("" if it does not), and until when, if known."""
    return _why(task, verdict), _until(task, verdict)


def _state(task: Task, verdict: Verdict | None, now: float) -> str:
    why, until = waiting(task, verdict)
    state = task.state.value
    if until is not None and until > now:
        state += f" {countdown(until - now)}"
    return cut(f"{state}: {clean(why)}" if why else state, _WHY)


def _why(task: Task, verdict: Verdict | None) -> str:
    return verdict.why if verdict is not None else task.why


def _until(task: Task, verdict: Verdict | None) -> float | None:
    if verdict is not None and verdict.until is not None:
        return verdict.until
    return task.not_before if task.state is TaskState.WAITING else None
