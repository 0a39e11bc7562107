"""A separate worktree and branch for a task: created, measured, removed.

Nothing that the repository names is run: no hook, no filter, no remote's helper. git itself
writes the branch and the worktree's location, without checking anything out; the files are then
written with the repository's objects and segue's own config (`repository`). So files with a
filter, such as git-lfs files, are as they are in the repository; a setup command can fetch them.

All in one file: what is removed, and what must be known before, belong together.
"""

import os
import re
import shutil
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from segue.core.queue.types import Work
from segue.errors import SegueError
from segue.system.git import repository
from segue.system.git.git import submodules
from segue.system.git.repository import Apart, GitOutput, Repository

LOOK_S = 20.0
MAKE_S = 600.0
CLONE_S = 1_800.0
_MAX_NAMES = 20
_FULL_BYTES = 1 << 20
_URL = re.compile(r"(?:https?|ssh|git|file)://|[A-Za-z0-9_.-]+@[A-Za-z0-9_.-]+:")
_STAT = re.compile(rb"(\d+) files? changed(?:, (\d+) insertions?\(\+\))?(?:, (\d+) deletions?)?")
_NETWORK = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false")
"""A mirror of segue's own has nobody else's config: the user's own config is needed to
authenticate."""
_ADD = ("--literal-pathspecs", "add", "--all")


class GitError(SegueError):
    """git failed; one line with git's message."""


class Start(Struct, frozen=True, kw_only=True):
    """Where a task's branch begins."""

    top: str
    commit: str
    branch: str  # the checked-out branch; "" if none is
    changes: int  # changed files that are in no commit


def is_url(repo: str) -> bool:
    """Whether a repository is given as a URL."""
    return _URL.match(repo) is not None


def find(path: str) -> Repository:
    """The repository that contains a folder. Raises GitError."""
    found = repository.find(path, time.monotonic() + LOOK_S)
    if isinstance(found, GitOutput):
        raise GitError(f"{path}: not in a git repository that git can read")
    return found


def start(path: str, ref: str) -> Start:
    """The start of a task in this folder; `ref` "" is what is checked out. Raises GitError."""
    repo, until = find(path), time.monotonic() + LOOK_S
    with repo.apart(until) as git:
        commit = _commit(git, ref or "HEAD", until)
        if not commit:
            known = f"{ref}: no commit, branch or tag of {repo.top}" if ref else ""
            raise GitError(
                known or f"{repo.top}: has no commit yet, and a task's worktree must start at one"
            )
        changes = _changed(git, until)
    return Start(top=repo.top, commit=commit, branch=_branch(repo), changes=len(changes))


def mirror(url: str, folder: str) -> str:
    """A bare copy of a repository, fetched again; returns its path. Raises GitError."""
    env, until = _env(), time.monotonic() + CLONE_S
    if not os.path.isdir(os.path.join(folder, "objects")):
        os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
        aside = f"{folder}.{os.getpid()}"
        shutil.rmtree(aside, ignore_errors=True)
        words = ("clone", "--quiet", "--bare", "--template=", "--", url, aside)
        _must(_loud(os.path.dirname(folder), words, until, env), url)
        try:
            os.rename(aside, folder)
        except OSError:  # another task created it first
            shutil.rmtree(aside, ignore_errors=True)
    # Only refs of the remote: branches of tasks stay.
    refspec = "+refs/heads/*:refs/remotes/origin/*"
    fetch = ("--git-dir", folder, "fetch", "--quiet", "--tags", "--", url, refspec)
    _must(_loud(folder, fetch, until, env), url)
    return folder


def mirrored(folder: str, ref: str) -> Start:
    """The start of a task of a mirror. Raises GitError."""
    repo, until = Repository(folder, folder, folder), time.monotonic() + LOOK_S
    with repo.apart(until) as git:
        branch = _branch(repo)
        names = (f"refs/remotes/origin/{ref}", ref) if ref else ()
        names = names or (f"refs/remotes/origin/{branch}", "HEAD")
        commit = next((found for name in names if (found := _commit(git, name, until))), "")
        if not commit:
            raise GitError(f"{ref or 'HEAD'}: no commit, branch or tag of the repository")
    return Start(top=folder, commit=commit, branch=branch, changes=0)


def add(top: str, path: str, branch: str, commit: str) -> None:
    """Creates the worktree at `path`, on a new branch, with all files of that commit. May be
    repeated after an interruption: leftovers are thrown away, so not once a run has worked in it.
    Raises GitError."""
    until = time.monotonic() + MAKE_S
    remove(top, path)
    if os.path.lexists(path):
        shutil.rmtree(path)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    _set_aside(top, branch, commit, until)
    # -B: a branch with this name is left over from an interrupted try.
    words = ("worktree", "add", "--quiet", "--no-checkout", "-B", branch, "--", path, commit)
    _must(_loud(top, words, until), "git worktree add")
    with find(path).apart(until) as git:
        output = git(("read-tree", "--reset", "-u", "HEAD"), until)
        if output.code != 0:
            raise _unwritten(path, commit)


def _set_aside(top: str, branch: str, commit: str, until: float) -> None:
    """A branch of this name with its own commits is from an earlier version of the same task, which
    the queue has forgotten (it was restored from a backup): it gets another name."""
    output = _loud(top, ("rev-parse", "--verify", "-q", f"refs/heads/{branch}"), until)
    head = output.out.decode("ascii", "replace").strip() if output.code == 0 else ""
    if not head or _loud(top, ("merge-base", "--is-ancestor", head, commit), until).code != 1:
        return
    backup = f"refs/heads/{branch}-{head[:12]}"
    _must(_loud(top, ("update-ref", backup, head), until), "git update-ref")


def remove(top: str, path: str) -> None:
    """Removes the worktree and everything in it; its branch stays."""
    _loud(top, ("worktree", "remove", "--force", "--force", "--", path), time.monotonic() + MAKE_S)


def delete_branch(top: str, branch: str, head: str) -> bool:
    """Deletes a branch if it is at this commit; otherwise False."""
    words = ("update-ref", "-d", f"refs/heads/{branch}", head)
    return _loud(top, words, time.monotonic() + LOOK_S).code == 0


def commit_rest(path: str, message: str, leave: Sequence[str] = ()) -> str:
    """Commits what is in a task's worktree and not yet on its branch; returns why it could not,
    or "". Files with a filter are never committed this way: they would be stored as they are on
    disk."""
    until = time.monotonic() + MAKE_S
    repo = find(path)
    branch = _branch(repo)
    with repo.apart(until) as git:
        # A nested repository would be committed as a mere link to objects that nobody else has.
        names = [name for name in _changed(git, until, leave) if not name.endswith(b"/")]
        if not names:
            return ""
        if not branch:
            return "no branch is checked out in its tree"
        if filtered := _filtered(git, names, until):
            return f"{filtered} has a git filter; commit it yourself"
        env = {**git.env, **_identity(repo.top, until)}
        git = Apart(git.top, git.folder, env, git.options)
        given = b"".join(name + b"\0" for name in names)
        if git((*_ADD, "--pathspec-from-file=-", "--pathspec-file-nul"), until, given).code != 0:
            return "git add failed in its tree"
        tree = git(("write-tree",), until).out.decode().strip()
        head = _commit(git, "HEAD", until)
        made = git(
            ("commit-tree", "-F", "-", "-p", head, tree), until, message.encode("utf-8", "replace")
        )
        commit = made.out.decode().strip()
        if made.code != 0 or not commit:
            return "git commit failed in its tree"
    if _loud(path, ("update-ref", f"refs/heads/{branch}", commit, head), until).code != 0:
        return "its branch moved in the meantime"
    return ""


def changed_files(path: str) -> dict[str, tuple[int, int]]:
    """The files of a worktree that differ from its checked-out commit and are not ignored, with
    their sizes and times, which change with their content. Raises GitError, OSError."""
    until = time.monotonic() + MAKE_S
    found = {}
    with find(path).apart(until) as git:
        names = _changed(git, until)
    for name in names:
        with suppress(OSError):  # deleted
            info = os.lstat(os.path.join(os.fsencode(path), name))
            found[os.fsdecode(name)] = (info.st_size, info.st_mtime_ns)
    return found


def push(path: str, url: str, commit: str, ref: str) -> None:
    """Stores a commit in another repository, under a name that no branch shows; "" deletes that
    name. Raises GitError."""
    words = (
        "push",
        "--quiet",
        "--no-verify",
        "--",
        url,
        f"+{commit}:{ref}" if commit else f":{ref}",
    )
    _must(_loud(path, words, time.monotonic() + CLONE_S, _env()), url)


def fetched(folder: str, url: str, ref: str) -> tuple[str, str, float]:
    """A commit that was stored in this way, now in the mirror at `folder`: itself, its parent, and
    its time; "" if there is none, or it cannot be fetched."""
    until = time.monotonic() + CLONE_S
    words = ("--git-dir", folder, "fetch", "--quiet", "--", url, f"+{ref}:{ref}")
    if _loud(folder, words, until, _env()).code != 0:
        return "", "", 0.0
    with Repository(folder, folder, folder).apart(until) as git:
        output = git(("show", "-s", "--format=%H %ct %P", ref, "--"), until).out.decode(
            "ascii", "replace"
        )
    commit, at, *parents = output.split() or ("", "0")
    return commit, parents[0] if parents else "", float(at)


def put(path: str, commit: str) -> None:
    """Writes the files of a commit into a worktree; what differs from its branch is then
    uncommitted. Raises GitError."""
    until = time.monotonic() + MAKE_S
    with find(path).apart(until) as git:
        for words in (("read-tree", "--reset", "-u", commit), ("read-tree", "--reset", "HEAD")):
            if git(words, until).code != 0:
                raise _unwritten(path, commit)


def _unwritten(path: str, commit: str) -> GitError:
    """Explains why files could not be written: most often the disk is full."""
    with suppress(OSError):
        if shutil.disk_usage(path).free < _FULL_BYTES:
            return GitError(f"{path}: no space left there for the files of {commit[:12]}")
    return GitError(f"{path}: git could not write the files of {commit[:12]} there")


def heads(top: str, branches: Sequence[str]) -> dict[str, str]:
    """The newest commits of these branches, as far as they exist; "" is what is checked out."""
    words = ("for-each-ref", "--format=%(refname) %(objectname)", "refs/heads/")
    output = repository.run(top, words, time.monotonic() + LOOK_S, repository.environment())
    found = {}
    for line in output.out.decode("utf-8", "replace").splitlines():
        name, _, commit = line.partition(" ")
        found[name.removeprefix("refs/heads/")] = commit
    return {name: found[name] for name in branches if name in found}


def look(top: str, path: str, branch: str, target: str, leave: Sequence[str] = ()) -> Work:
    """The state of a branch compared with its target: what it has in addition, and whether it
    merges."""
    until = time.monotonic() + LOOK_S
    try:
        repo = Repository(top, top, top) if _is_bare(top) else find(top)
        with repo.apart(until) as git:
            work = _compared(git, branch, target, until)
        if path and os.path.isdir(path) and work.head:
            with find(path).apart(until) as git:
                left = len(_changed(git, until, leave)) + _inside(git, until)
                stray = _stray(git, _branch(find(path)), branch, work, until)
                work = replace(work, uncommitted=left, note=work.note or stray)
    except (GitError, OSError, ValueError) as fault:
        return Work(note=str(fault))
    return work


def _compared(git: Apart, branch: str, target: str, until: float) -> Work:
    head = _commit(git, f"refs/heads/{branch}", until)
    to = _commit(git, target, until)
    if not head or not to:
        missing = branch if not head else target
        return Work(head=head, target=target, note=f"{missing} no longer exists")
    commits = _count(git, (f"{to}..{head}",), until)
    words = ("diff", "--shortstat", "--no-ext-diff", "--no-textconv", f"{to}...{head}")
    stat = _STAT.search(git(words, until).out)
    files, more, less = (int(n or 0) for n in stat.groups()) if stat else (0, 0, 0)
    conflicts, is_checked = _conflicts(git, to, head, until) if commits else ((), True)
    return Work(
        head=head, target=target, target_head=to, commits=commits, files=files, insertions=more,
        deletions=less, conflicts=conflicts, is_checked=is_checked,
    )  # fmt: skip


def _count(git: Apart, which: tuple[str, ...], until: float) -> int:
    """The number of these commits. Raises GitError: zero would mean that nothing can be lost."""
    output = git(("rev-list", "--count", *which), until)
    count = output.out.strip()
    if output.code != 0 or not count.isdigit():
        raise GitError(f"{git.top}: git rev-list {_why(output)}")
    return int(count)


def _stray(git: Apart, now: str, branch: str, work: Work, until: float) -> str:
    """What is committed in a task's worktree, but neither on its branch nor merged: an agent may
    have created its own branch, or none. `now`: the branch that is checked out there."""
    head = _commit(git, "HEAD", until)
    if now == branch or not head:
        return ""
    known = [f"^{commit}" for commit in (work.head, work.target_head) if commit]
    if not (number := _count(git, (head, *known), until)):
        return ""
    what = "1 commit is" if number == 1 else f"{number} commits are"
    return f"{what} on {f'the branch {now}' if now else 'no branch'}, not on {branch}"


def _conflicts(git: Apart, to: str, head: str, until: float) -> tuple[tuple[str, ...], bool]:
    """The files in which merging the branch would cause conflicts. Merges in memory, and discards
    the resulting objects."""
    with tempfile.TemporaryDirectory(prefix="segue-merge-", ignore_cleanup_errors=True) as aside:
        env = {
            **git.env,
            "GIT_OBJECT_DIRECTORY": aside,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": git.env["GIT_OBJECT_DIRECTORY"],
        }
        words = ("merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", to, head)
        output = Apart(git.top, git.folder, env, git.options)(words, until)
    if output.code not in (0, 1):
        return (), False
    names = output.out.split(b"\0")[1:] if output.code == 1 else []
    paths = [name.decode("utf-8", "replace") for name in names if name]
    return tuple(dict.fromkeys(paths))[:_MAX_NAMES], True


def _changed(git: Apart, until: float, leave: Sequence[str] = ()) -> list[bytes]:
    """The files that differ from what is checked out, except for those that are left alone; those
    that end with "/" are repositories themselves. Raises GitError: a worktree that git could not
    read must not pass for one without changes."""
    words = ("status", "--porcelain", "-z", "--no-renames", "--untracked-files=all",
             "--ignore-submodules=dirty")  # fmt: skip
    output = git(words, until)
    if output.code != 0:
        raise GitError(f"{git.top}: git status {_why(output)}")
    names = [entry[3:] for entry in output.out.split(b"\0") if len(entry) > 3]
    left = {os.fsencode(name) for name in leave}
    return [name for name in names if name not in left]


def _inside(git: Apart, until: float) -> int:
    """How many submodules contain work that no remote has: they are removed with the worktree.
    Raises GitError."""
    found = 0
    for path in submodules(git, until):
        with find(os.path.join(git.top, os.fsdecode(path))).apart(until) as inner:
            own = ("HEAD", "--not", "--remotes")
            found += bool(_changed(inner, until) or _count(inner, own, until))
    return found


def _why(output: GitOutput) -> str:
    if output.is_late:
        return "took too long"
    return "listed more than segue reads" if output.is_cut else "failed"


def _filtered(git: Apart, names: Sequence[bytes], until: float) -> str:
    """The first of these files that has a filter."""
    given = b"".join(name + b"\0" for name in names)
    fields = git(("check-attr", "-z", "--stdin", "filter"), until, given).out.split(b"\0")
    for name, value in zip(fields[::3], fields[2::3], strict=False):
        if value not in (b"unspecified", b"unset"):
            return name.decode("utf-8", "replace")
    return ""


def _identity(top: str, until: float) -> dict[str, str]:
    """The committer: the user, as far as git knows them."""
    found: dict[str, str] = {}
    for key, default in (("name", "segue"), ("email", "segue@localhost")):
        output = repository.run(
            top, ("config", "--get", f"user.{key}"), until, repository.environment()
        )
        value = output.out.decode("utf-8", "replace").strip() or default
        found |= {f"GIT_{who}_{key.upper()}": value for who in ("AUTHOR", "COMMITTER")}
    return found


def _commit(git: Apart, name: str, until: float) -> str:
    words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    output = git(words, until)
    return output.out.decode("ascii", "replace").strip() if output.code == 0 else ""


def _branch(repo: Repository) -> str:
    with suppress(OSError), open(os.path.join(repo.git_dir, "HEAD"), "rb") as file:
        line = file.read(4096).decode("utf-8", "replace").strip()
        return line.removeprefix("ref: refs/heads/") if line.startswith("ref: refs/heads/") else ""
    return ""


def _is_bare(path: str) -> bool:
    return os.path.isdir(os.path.join(path, "objects")) and os.path.isdir(
        os.path.join(path, "refs")
    )


def _loud(
    cwd: str, words: tuple[str, ...], until: float, env: dict[str, str] | None = None
) -> GitOutput:
    if env is None:
        return repository.run(cwd, words, until, repository.environment(), with_errors=True)
    return repository.run(cwd, words, until, env, with_errors=True, quiet=_NETWORK)


def _env() -> dict[str, str]:
    """The environment for commands that must reach a remote: nothing asks, and no inherited GIT_DIR
    applies."""
    dropped = ("GIT_NO_LAZY_FETCH", "GIT_ALLOW_PROTOCOL")
    env = {name: value for name, value in repository.environment().items() if name not in dropped}
    return {**env, "GIT_SSH_COMMAND": "ssh -oBatchMode=yes", "GCM_INTERACTIVE": "never"}


def _must(output: GitOutput, what: str) -> None:
    if output.code == 0:
        return
    if output.is_late:
        raise GitError(f"{what}: git took too long")
    lines = [line for line in output.out.decode("utf-8", "replace").splitlines() if line.strip()]
    faults = [line for line in lines if line.startswith(("fatal:", "error:"))]
    message = (faults or lines or ["git is not installed, or failed"])[0]
    raise GitError(f"{what}: {message.removeprefix('fatal: ').removeprefix('error: ')}")
