"""A worktree for each task: created before its run, measured and cleaned up after it."""

import hashlib
import os
import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from segue.core.queue.types import Task, TaskState, Work
from segue.runs.folders import read_json, write_json
from segue.runs.store import leases
from segue.system.files import state
from segue.system.git import worktrees
from segue.system.git.worktrees import GitError

BRANCHES = "segue/"
_MADE = "setup-made.json"
_MAX_MADE = 200  # names that are stored with a task; beyond that, only their folders


def folder(task_id: str) -> str:
    """The folder of a task's own files: its log, and its setup's."""
    return os.path.join(state.state_folder(), "tasks", task_id)


def make(task: Task, start_ref: str = "") -> Task:
    """Creates the worktree of a task that has none, on its branch; returns the task with its
    location. `start_ref`: where to start if the user named nothing. Raises GitError, OSError."""
    ref = task.base or task.ref or start_ref
    if task.is_url:
        start = worktrees.mirrored(worktrees.mirror(task.repo, top(task)), ref)
        target = f"refs/remotes/origin/{start.branch}"
    else:
        start = worktrees.start(task.repo, ref)
        target = start.branch or start.commit
    branch = f"{BRANCHES}{task.id}"
    tree = os.path.join(state.state_folder(), "trees", task.id)
    worktrees.add(start.top, tree, branch, start.commit)
    return replace(
        task, tree=tree, tree_machine=leases.machine(), branch=branch, base=start.commit,
        target=target,
        is_tree_removed=False, is_ready=False, setups=task.setups + 1,
    )  # fmt: skip


def snapshot_ref(task: Task) -> str:
    """Where a task's work is pushed, for the machine that takes it over."""
    return f"refs/segue/{task.id}"


def salvage(task: Task) -> Task:
    """A worktree with the work that a lost machine had pushed; the unchanged task if there is
    none. Raises GitError, OSError."""
    if not task.is_url:
        return task
    place = worktrees.mirror(task.repo, top(task))
    commit, parent, at = worktrees.fetched(place, task.repo, snapshot_ref(task))
    if not commit or not parent:
        return task
    made = make(replace(task, base=parent))
    worktrees.put(made.tree, commit)
    return replace(made, base=task.base, salvaged_at=at, salvaged=commit)


def top(task: Task) -> str:
    """The repository that a task's branch is in."""
    if not task.is_url:
        return task.repo
    name = hashlib.sha256(task.repo.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return os.path.join(state.state_folder(), "repos", f"{name}.git")


def link(task: Task) -> Task:
    """Links the untracked files that the user listed into the worktree; returns the task with
    the links that were made. Existing files are left as they are. Raises OSError."""
    made = []
    for name in () if task.is_url else task.link:  # a URL has no folder to link to
        source, here = os.path.join(task.repo, name), os.path.join(task.tree, name)
        inner = os.path.join(os.path.realpath(task.tree), os.path.dirname(name))
        if os.path.lexists(here) or not os.path.exists(source):
            continue
        os.makedirs(os.path.dirname(here), exist_ok=True)
        if os.path.realpath(os.path.dirname(here)) == os.path.normpath(inner):
            os.symlink(source, here)  # and not through a link of the repository's, to anywhere
            made.append(os.path.normpath(name))
    return replace(task, links=tuple(made))


def before_setup(task: Task) -> dict[str, tuple[int, int]]:
    """The files of a worktree that count as the task's work before its setup runs for the first
    time: none in a new worktree. In one that was taken over, files that an earlier setup made there
    do not count. Raises GitError, OSError."""
    if task.salvaged_at is None:
        return {}
    noted = Path(folder(task.id), f"before-setup-{task.setups}.json")
    found: dict[str, tuple[int, int]] | None = read_json(noted)
    if found is None:  # otherwise a setup was interrupted here, and left files
        files = worktrees.changed_files(task.tree)
        found = {name: info for name, info in files.items() if not _is_below(name, task.made)}
        os.makedirs(folder(task.id), mode=0o700, exist_ok=True)
        write_json(noted, found)
    return {name: (size, changed) for name, (size, changed) in found.items()}


def after_setup(task: Task, before: Mapping[str, tuple[int, int]]) -> Task:
    """Records which files the setup made or changed, as far as git does not ignore them: they are
    not the task's work. Raises GitError, OSError."""
    after = worktrees.changed_files(task.tree)
    made = {
        name: info
        for name, info in after.items()
        if before.get(name) != info and name not in task.links
    }
    os.makedirs(folder(task.id), mode=0o700, exist_ok=True)
    write_json(Path(folder(task.id), _MADE), made)
    names = sorted(made)
    if len(names) > _MAX_MADE:
        names = sorted({f"{top}/" if rest else top for top, _, rest in
                        (name.partition("/") for name in names)})[:_MAX_MADE]  # fmt: skip
    return replace(task, made=tuple(names))


def _is_below(name: str, places: tuple[str, ...]) -> bool:
    return any(name == place or (place[-1:] == "/" and name.startswith(place)) for place in places)


def not_its_work(task: Task) -> tuple[str, ...]:
    """The files of a worktree that are never committed with its task: links to the user's own
    files, and files that the setup made and nobody has changed since."""
    noted = read_json(Path(folder(task.id), _MADE))
    same = []
    for name, info in noted.items() if isinstance(noted, dict) else ():
        with suppress(OSError, ValueError):
            now = os.lstat(os.path.join(task.tree, name))
            if [now.st_size, now.st_mtime_ns] == list(info):
                same.append(name)
    return (*task.links, *same)


def cwd(task: Task) -> str:
    """Where the agent works: the folder of the worktree that corresponds to the one in which the
    task was submitted."""
    if task.here:
        return task.cwd
    if task.is_url:
        return task.tree
    inner = os.path.relpath(os.path.realpath(task.cwd), os.path.realpath(task.repo))
    if inner.startswith(".."):
        return task.tree
    found = os.path.normpath(os.path.join(task.tree, inner))
    return found if os.path.isdir(found) else task.tree


def finish(task: Task) -> Task:
    """Finishes a task's worktree after its run: commits the rest of a finished task, measures the
    work, and removes a worktree without any."""
    if not task.tree or task.is_tree_removed:
        return task
    note = ""
    if task.state is TaskState.DONE and task.commits:
        try:
            title = " ".join(task.text.split())[:60]
            note = worktrees.commit_rest(
                task.tree, f"{title}\n\n{task.id}, {task.run}\n", not_its_work(task)
            )
        except (GitError, OSError, ValueError) as fault:
            note = str(fault)
    return settle(task, note)


def settle(task: Task, note: str = "") -> Task:
    """Updates a task from the state of its branch. Once the branch is merged or empty, its worktree
    and the branch are removed, unless there is uncommitted work or its run may continue."""
    work = worktrees.look(top(task), task.tree, task.branch, task.target, not_its_work(task))
    if not work.head and not work.note:
        return task
    moved = work.head != task.base
    work = replace(work, note=note or work.note, is_merged=moved and _is_in(work))
    is_over = task.state in (TaskState.DONE, TaskState.CANCELLED)
    if is_over and work.is_empty:
        _remove(task, work)
        return replace(task, work=work, is_tree_removed=True)
    return replace(task, work=work)


def refreshed(tasks: list[Task]) -> list[Task]:
    """The tasks whose branches or targets have moved since the last look, in their current
    state."""
    found = []
    by_repo: dict[str, list[Task]] = {}
    for task in tasks:
        if task.state.is_final and task.tree and not task.is_tree_removed:
            by_repo.setdefault(top(task), []).append(task)
    for repo, group in by_repo.items():
        heads = worktrees.heads(repo, [name for t in group for name in (t.branch, t.target)])
        for task in group:
            work = task.work or Work()
            heads_now = (
                heads.get(task.branch, work.head),
                heads.get(task.target, work.target_head),
            )
            if heads_now != (work.head, work.target_head) or task.branch not in heads:
                new = settle(task)
                if new != task:
                    found.append(new)
    return found


def _is_in(work: Work) -> bool:
    return bool(work.head and work.target_head) and work.commits == 0


def _remove(task: Task, work: Work) -> None:
    with suppress(GitError, OSError):
        worktrees.remove(top(task), task.tree)
        worktrees.delete_branch(top(task), task.branch, work.head)


def how_to_merge(task: Task) -> str:
    """The next command to type for a task's branch; "" if there is nothing to merge."""
    work = task.work
    if work is None or task.is_tree_removed or not task.tree:
        return ""
    tree, repo = shlex.quote(task.tree), shlex.quote(top(task))
    if work.uncommitted:
        return f"git -C {tree} add -A && git -C {tree} commit"
    if not work.commits:
        return ""
    if task.is_url:
        into = task.target.removeprefix("refs/remotes/origin/")
        push = f"git -C {tree} push {shlex.quote(task.repo)} HEAD:{shlex.quote(task.branch)}"
        return f"{push}  # then merge it into {into}"
    return f"git -C {repo} merge {task.branch}"
