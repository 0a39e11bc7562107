"""A task: submitted work, and its result. Types only."""

from enum import StrEnum

from msgspec import Struct

from segue.core.runs.types import Outcome


class TaskState(StrEnum):
    """The state of a task. Users see these values."""

    QUEUED = "queued"
    RUNNING = "running"  # a process has it: its worktree is being prepared, or its run is working
    WAITING = "waiting"  # its run waits for a limit; no process runs
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    NEEDS_YOU = "needs-you"

    @property
    def is_final(self) -> bool:
        """Whether nothing more happens automatically."""
        return self not in _OPEN


_OPEN = (TaskState.QUEUED, TaskState.RUNNING, TaskState.WAITING)


class Work(Struct, frozen=True, kw_only=True):
    """What a task's branch contains, compared with the branch that it is to be merged into."""

    head: str = ""  # the branch's newest commit
    target: str = ""  # what it is compared with: a branch's name, or a commit
    target_head: str = ""
    commits: int = 0
    files: int = 0
    insertions: int = 0
    deletions: int = 0
    uncommitted: int = 0  # files that exist only in the worktree
    conflicts: tuple[str, ...] = ()  # files that a merge could not resolve
    is_checked: bool = False  # whether a merge was tried; an old git needs a worktree for that
    is_merged: bool = False
    note: str = ""  # what is unknown, or could not be done

    @property
    def is_empty(self) -> bool:
        """Whether nothing would be lost if the branch and the worktree were deleted."""
        return not (self.commits or self.uncommitted or self.note) and bool(self.head)


class Task(Struct, frozen=True, kw_only=True):
    """One task. What the user asked for comes first; a worker fills in the rest."""

    id: str
    text: str
    agents: tuple[str, ...]  # in the user's order; the first one that is not limited starts
    cwd: str  # where it was submitted: the settings and the project of this folder apply
    created_at: float
    project: str = ""  # what per-project limits count: the repository, or the folder
    repo: str = ""  # a path or a URL; "" with `here`
    is_url: bool = False
    ref: str = ""  # as the user wrote it
    machine: str = ""  # the only machine that can do it, if it needs a folder there; "": any
    here: bool = False  # in `cwd` itself, without a separate worktree
    check: str = ""
    setup: str = ""  # a command for its worktree, as set when it was submitted
    link: tuple[str, ...] = ()  # untracked files that are linked into its worktree
    commits: bool = True  # commits what it leaves uncommitted, once it is done
    flags: tuple[str, ...] | None = None  # the agent's own flags
    policy: str = ""
    sets: tuple[str, ...] = ()
    priority: int = 0
    after: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()  # labels that a machine must have, all of them

    number: int = 0  # the order in which tasks were submitted, from 1
    state: TaskState = TaskState.QUEUED
    not_before: float = 0.0
    why: str = ""  # why it is not running, if known
    is_limited: bool = False  # it waits for an account's limit
    cancel_asked: bool = False
    agent: str = ""  # the chosen agent
    account: str = ""
    run: str = ""
    tree: str = ""  # its worktree, once there is one
    tree_machine: str = ""  # the machine with the worktree
    former_runs: tuple[str, ...] = ()  # its runs on machines that were lost
    salvaged_at: float | None = None  # the work of the last such machine until then is here
    salvaged: str = ""  # the snapshot of that work
    branch: str = ""
    base: str = ""  # the commit it started from
    links: tuple[str, ...] = ()  # files of the tree that are links to the user's own
    target: str = ""  # the branch it is to be merged into
    is_ready: bool = False  # the worktree exists, and its setup ran
    # files that its setup created or changed; "name/": everything in that folder
    made: tuple[str, ...] = ()
    setups: int = 0  # counts up with each new worktree, and each time the setup is restarted
    again: bool = False  # the user asked to continue its run, which has ended
    tries: int = 0  # consecutive processes that were lost
    tried_at: float = 0.0
    started_at: float | None = None
    ended_at: float | None = None
    outcome: Outcome | None = None
    work: Work | None = None
    is_tree_removed: bool = False

    @property
    def ending(self) -> str:
        """How it ended, as the rest of a sentence that begins with its id."""
        what = self.outcome.what if self.outcome is not None else ""
        what = what.removeprefix("failed with an error: ")
        return f"{self.how}: {what}" if what else self.how

    @property
    def how(self) -> str:
        """How it ended, in a word or two: "failed", "is done"."""
        how = {TaskState.FAILED: "failed", TaskState.NEEDS_YOU: "needs you"}
        return how.get(self.state, f"is {self.state.value}")

    @property
    def place(self) -> str:
        """The tree that only one task may use at a time."""
        return self.cwd if self.here else f"task:{self.id}"

    @property
    def is_half_done(self) -> bool:
        """Whether its run has begun and not ended, so that no other task may use its tree. That is
        not so for a task that the user retries: its run has ended, and two such tasks would wait
        for each other."""
        return bool(self.run) and self.state in (TaskState.RUNNING, TaskState.WAITING)


class Caps(Struct, frozen=True, kw_only=True):
    """How many tasks may run at once; None: any number."""

    jobs: int = 2  # on this machine
    max_per_project: int | None = None
    max_per_account: int | None = None
