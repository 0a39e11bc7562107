"""Snapshots of the working tree, as git commits outside all branches: `refs/segue/RUN/NAME`.

They are made with a separate index, by a git that does not read the repository's config (see
`repository`). HEAD, the user's index, stash, branches and ignored files are never touched. A
snapshot does not contain the contents of nested repositories and submodules, or files larger
than `MAX_FILE_BYTES`.
"""

import os
import re
import shutil
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from segue.errors import InputError, StateError
from segue.system.git import git, repository
from segue.system.git.repository import Apart, GitOutput

MAX_S = 30.0
MAX_FILE_BYTES = 50 << 20
MAX_BYTES = 1 << 30  # of changed files, in all
_BASE = "refs/segue/"
_NAME = re.compile(r"leg-(\d{1,9})(?:\.(\d{1,9}))?")
_RUN = re.compile(r"run-[0-9a-z-]{1,40}")
_WHO = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "segue"), ("EMAIL", "segue@localhost"))
}
_FORM = "%(refname)%00%(objectname)%00%(committerdate:unix)"
_DIFF = ("diff-tree", "-r", "--no-ext-diff", "--no-textconv", "--no-renames")


class NoRepository(InputError):  # noqa: N818 - a fact about the folder
    """The folder is not in a git repository."""


class Snapshot(Struct, frozen=True, kw_only=True):
    """`leg-2.0` is the tree when leg 2 began, `leg-2.1` at its first recorded boundary, and `leg-2`
    when it had ended."""

    run: str
    name: str
    commit: str
    at: float

    @property
    def leg(self) -> int:
        """The leg that it belongs to."""
        return _place(self.name)[0]

    @property
    def is_start(self) -> bool:
        """Whether it was taken before that leg did anything."""
        return self.name.endswith(".0")


class FileDiff(Struct, frozen=True, kw_only=True):
    """A file that differs between two snapshots; lines are None for a binary one."""

    path: str
    added: int | None
    removed: int | None


class SnapshotResult(Struct, frozen=True, kw_only=True):
    """A snapshot, and how many files are too large for it."""

    snapshot: Snapshot
    left_out: int = 0


def start_name(leg: int) -> str:
    """The name of the tree when a leg began."""
    return f"leg-{leg}.0"


def end_name(leg: int) -> str:
    """The name of the tree when a leg had ended."""
    return f"leg-{leg}"


def next_name(leg: int) -> str:
    """The name for the next boundary of a leg: `take` numbers them, and stores none if nothing
    changed."""
    return f"leg-{leg}.*"


def _place(name: str) -> tuple[int, float]:
    """Sorts names in the order in which they are taken; (0, 0) for an invalid name."""
    found = _NAME.fullmatch(name)
    if found is None:
        return 0, 0.0
    return int(found[1]), float("inf") if found[2] is None else float(found[2])


@contextmanager
def _apart(cwd: str, until: float) -> Iterator[Apart]:
    """git on the repository around a folder. Raises NoRepository, and StateError if git takes too
    long or no folder can be created."""
    if not os.path.isdir(cwd):
        raise NoRepository(f"{cwd}: the folder no longer exists")
    found = repository.find(cwd, until)
    if isinstance(found, GitOutput):
        if found.is_late:
            raise StateError("git took too long")
        raise NoRepository(f"{cwd} is not in a git repository: there are no snapshots")
    try:
        with found.apart(until) as ready:
            yield ready
    except OSError as fault:
        raise StateError(f"git: {fault.strerror or fault}") from None


def take(cwd: str, run: str, name: str, now: float, *, max_s: float = MAX_S) -> SnapshotResult:
    """Stores the tree around a folder under that name; an existing snapshot stays as it is. Raises
    NoRepository, and StateError with one line if it cannot be stored."""
    until = time.monotonic() + max_s
    with _apart(cwd, until) as ready:
        older = _list(ready, until, run)
        for old in older:
            if old.name == name:
                return SnapshotResult(snapshot=old)
        own = _own_index(ready)
        changed = git.changed_paths(ready, until)
        paths, left_out = _storable(ready.top, changed.paths)
        given = b"".join(path + b"\0" for path in paths)
        words = ("update-index", "-z", "--add", "--remove", "--replace", "--stdin")
        if paths and own(words, until, given).code != 0:
            # A file may have disappeared or changed while it was read.
            _must(own(words, until, given), "update-index")
        tree = _word(own(("write-tree", "--missing-ok"), until), "write-tree")
        if name.endswith(".*"):
            if older and _tree_of(own, older[-1].commit, until) == tree:
                return SnapshotResult(snapshot=older[-1], left_out=left_out)
            name = _next(name, older)
        parents = ("-p", changed.head) if changed.head else ()
        message = f"segue: {run} {name}\n".encode()
        date = {f"GIT_{who}_DATE": f"@{int(now)} +0000" for who in ("AUTHOR", "COMMITTER")}
        author = own.with_environment(_WHO | date)
        commit = _word(author(("commit-tree", tree, *parents), until, message), "commit-tree")
        ref = f"{_BASE}{run}/{name}"
        given = f"create {ref}\0{commit}\0".encode()
        _must(own(("update-ref", "-z", "--stdin"), until, given), "update-ref")
    return SnapshotResult(
        snapshot=Snapshot(run=run, name=name, commit=commit, at=float(int(now))),
        left_out=left_out,
    )


def list_all(cwd: str, run: str, *, max_s: float = MAX_S) -> list[Snapshot]:
    """The snapshots of a run, in the order in which they were taken. Raises NoRepository,
    StateError."""
    until = time.monotonic() + max_s
    with _apart(cwd, until) as ready:
        return _list(ready, until, run)


def patch(cwd: str, old: str, new: str, *, max_s: float = MAX_S) -> tuple[bytes, bool]:
    """The patch between two commits, for `git apply`, and whether it is complete. Raises
    NoRepository, StateError."""
    until = time.monotonic() + max_s
    with _apart(cwd, until) as ready:
        output = ready((*_DIFF, "-p", "--binary", "--full-index", old, new), until)
        if output.code != 0 and not output.is_cut:
            raise StateError(_why(output, "diff"))
        return output.out, not output.is_cut


def files(cwd: str, old: str, new: str, *, max_s: float = MAX_S) -> list[FileDiff]:
    """What differs between two commits, by path. Raises NoRepository, StateError."""
    until = time.monotonic() + max_s
    with _apart(cwd, until) as ready:
        output = ready((*_DIFF, "--numstat", "-z", old, new), until)
        if output.code != 0 and not output.is_cut:
            raise StateError(_why(output, "diff"))
    found = []
    for entry in output.out.split(b"\0")[:-1]:
        added, removed, path = entry.split(b"\t", 2)
        found.append(
            FileDiff(
                path=path.decode("utf-8", "replace"),
                added=None if added == b"-" else int(added),
                removed=None if removed == b"-" else int(removed),
            )
        )
    return found


def commits(
    cwd: str, since: str, upto: str, *, max_count: int = 50, max_s: float = MAX_S
) -> list[tuple[str, str]]:
    """The commits between two snapshots, the oldest first: short hash and subject. Raises
    NoRepository, StateError."""
    until = time.monotonic() + max_s
    with _apart(cwd, until) as ready:
        heads = (f"{since}^1", f"{upto}^1")
        ends = [ready(("rev-parse", "--verify", "-q", head), until).out.strip() for head in heads]
        if not ends[1]:
            return []
        words = ("log", "--no-show-signature", "--format=%h%x00%s", f"--max-count={max_count}")
        without = (f"^{ends[0].decode()}",) if ends[0] else ()
        output = ready((*words, ends[1].decode(), *without, "--"), until)
    found = []
    for line in output.out.decode("utf-8", "replace").splitlines():
        name, _, subject = line.partition("\0")
        found.append((name, subject))
    return found[::-1]


def to_branch(cwd: str, snapshot: Snapshot, branch: str, *, max_s: float = MAX_S) -> bool:
    """Creates a branch at it, and checks nothing out; returns whether it is new. Raises InputError
    if another branch has that name, or the name is invalid."""
    until = time.monotonic() + max_s
    with _apart(cwd, until) as ready:
        # `--branch` would read "-" as the previous branch.
        is_fine = ready(("check-ref-format", f"refs/heads/{branch}"), until).code == 0
        if not is_fine or branch.startswith("-"):
            raise InputError(f"{branch!r} cannot be the name of a branch")
        ref = f"refs/heads/{branch}"
        current = ready(("rev-parse", "--verify", "-q", ref), until).out.strip().decode()
        if current == snapshot.commit:
            return False
        if current:
            raise InputError(f"there is a branch {branch} already; name another with --branch")
        given = f"create {ref}\0{snapshot.commit}\0".encode()
        _must(ready(("update-ref", "-z", "--stdin"), until, given), "update-ref")
    return True


def to_folder(cwd: str, snapshot: Snapshot, folder: str, *, max_s: float = 600.0) -> None:
    """Writes its files into a new or empty folder. Raises InputError, StateError."""
    until = time.monotonic() + max_s
    target = os.path.abspath(folder)
    try:
        os.makedirs(target, exist_ok=True)
        if os.listdir(target):
            raise InputError(f"{target} is not empty; name a new folder with --to")
    except OSError as fault:
        raise InputError(f"{target}: {fault.strerror}") from None
    with _apart(cwd, until) as ready:
        own = ready.with_environment({"GIT_INDEX_FILE": str(ready.folder / "index")})
        _must(own(("read-tree", snapshot.commit), until), "read-tree")
        _must(own(("checkout-index", "-a", f"--prefix={target}/"), until), "checkout-index")


def prune(cwd: str, before: float, *, keep: str = "", max_s: float = MAX_S) -> int:
    """Deletes the snapshots of runs whose newest one is older than that; returns how many. Raises
    NoRepository, StateError."""
    until = time.monotonic() + max_s
    with _apart(cwd, until) as ready:
        newest: dict[str, float] = {}
        found = _list(ready, until)
        for each in found:
            newest[each.run] = max(each.at, newest.get(each.run, 0.0))
        old = [each for each in found if each.run != keep and newest[each.run] < before]
        _drop(ready, until, old)
    return len(old)


def drop(cwd: str, run: str, *, max_s: float = MAX_S) -> int:
    """Deletes all snapshots of a run; returns how many. Raises NoRepository, StateError."""
    until = time.monotonic() + max_s
    with _apart(cwd, until) as ready:
        found = _list(ready, until, run)
        _drop(ready, until, found)
    return len(found)


# Inside


def _list(ready: Apart, until: float, run: str = "") -> list[Snapshot]:
    if run and not _RUN.fullmatch(run):
        return []
    output = ready(("for-each-ref", f"--format={_FORM}", f"{_BASE}{run}"), until)
    if output.code != 0:
        raise StateError(_why(output, "for-each-ref"))
    found = []
    for line in output.out.decode("utf-8", "replace").splitlines():
        ref, _, rest = line.partition("\0")
        commit, _, at = rest.partition("\0")
        of, _, name = ref.removeprefix(_BASE).partition("/")
        if _RUN.fullmatch(of) and _NAME.fullmatch(name) and at.isdigit():
            found.append(Snapshot(run=of, name=name, commit=commit, at=float(at)))
    return sorted(found, key=lambda each: (each.run, _place(each.name)))


def _drop(ready: Apart, until: float, which: Sequence[Snapshot]) -> None:
    given = "".join(f"delete {_BASE}{each.run}/{each.name}\0{each.commit}\0" for each in which)
    if given:
        _must(ready(("update-ref", "-z", "--stdin"), until, given.encode()), "update-ref")


def _next(name: str, older: Sequence[Snapshot]) -> str:
    stem = name.removesuffix("*")
    numbers = [int(each.name[len(stem) :]) for each in older if each.name.startswith(stem)]
    return f"{stem}{max(numbers, default=0) + 1}"


def _tree_of(ready: Apart, commit: str, until: float) -> str:
    return ready(("rev-parse", "--verify", "-q", f"{commit}^{{tree}}"), until).out.decode().strip()


def _own_index(ready: Apart) -> Apart:
    """A copy of the user's index: git need not read unchanged files again."""
    own = ready.folder / "index"
    users = Path(ready.env["GIT_INDEX_FILE"])
    if users.exists():
        shutil.copyfile(users, own)
    apart = ready.with_environment({"GIT_INDEX_FILE": str(own)})
    return apart.with_options("-c", "core.splitIndex=false")


def _storable(top: str, paths: Sequence[bytes]) -> tuple[list[bytes], int]:
    """The files that can be stored, and how many cannot."""
    found, left, left_out = [], MAX_BYTES, 0
    for path in paths:
        if path.endswith(b"/"):  # a nested repository
            continue
        file = os.path.join(os.fsencode(top), path)
        try:
            info = os.lstat(file)
        except (OSError, ValueError):
            found.append(path)  # it has disappeared
            continue
        size = info.st_size if stat.S_ISREG(info.st_mode) else 0
        is_readable = not stat.S_ISREG(info.st_mode) or os.access(file, os.R_OK)
        if size > MAX_FILE_BYTES or size > left or not is_readable:
            left_out += 1
            continue
        left -= size
        found.append(path)
    return found, left_out


def _must(output: GitOutput, what: str) -> None:
    if output.code != 0:
        raise StateError(_why(output, what))


def _word(output: GitOutput, what: str) -> str:
    _must(output, what)
    return output.out.decode("ascii", "replace").strip()


def _why(output: GitOutput, what: str) -> str:
    return f"git {what} took too long" if output.is_late else f"git {what} failed"
