"""Reads the state of a repository's work: takes no lock, writes no index, runs nothing that the
repository names (see `repository`), and never waits for long."""

import hashlib
import os
import re
import time
from collections.abc import Iterator

from msgspec import Struct

from segue.core.handoffs.compose import GitState
from segue.core.handoffs.quoting import name
from segue.errors import StateError
from segue.system.files import tree
from segue.system.git import repository
from segue.system.git.repository import Apart, GitOutput

__all__ = ["Changed", "GitState", "changed_paths", "mark", "status"]

MAX_S = 10.0
_UNTRACKED = 20_000
_LINES = 200
_STAT_LINES = 100
# total bytes of changed files to read; others are compared by size and time
_HASHED_BYTES = 512 << 20
_NESTED = 20  # nested repositories
_MODULES_BYTES = 1 << 20
_LEFT_OUT = 200  # files that a diff is told to exclude

_STATUS = (
    *("status", "--porcelain=v2", "--branch", "-z", "--untracked-files=all"),
    *("--ignore-submodules=dirty", "--no-renames", "--no-ahead-behind"),
)
_DIFF = (
    *("diff", "--stat=100", "--no-ext-diff", "--no-textconv", "--no-renames"),
    *("--ignore-submodules=dirty", "--submodule=short"),
)
_PATHS = ("--get-regexp", r"^submodule\..*\.path$")
_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:.*\n)*?"
    rb"oid sha256:([0-9a-f]{64})\nsize ([0-9]{1,18})\n"
)


class Changed(Struct, frozen=True):
    """What differs from HEAD in a working tree."""

    head: str  # "" before the first commit
    # including untracked files; those that end with "/" are repositories themselves
    paths: list[bytes]


def changed_paths(git: Apart, until: float) -> Changed:
    """What `status` says about the tree. Raises StateError if git cannot tell."""
    status = git(_STATUS, until)
    if status.code != 0:
        raise StateError("git status took too long" if status.is_late else "git status failed")
    parsed = _Status(status.out)
    parsed.drop(_as_in_lfs(git, parsed, until))
    return Changed(parsed.head, [*(path for _, path in parsed.changed), *parsed.untracked])


def status(cwd: str, *, max_s: float = MAX_S) -> GitState | None:
    """The repository that contains this folder; None if there is none, or git cannot tell. If it
    takes too long, the state has an empty digest."""
    return _status(cwd, time.monotonic() + max_s, depth=0)


def mark(cwd: str) -> str:
    """The digest of the work in a folder: git's if there is a repository, otherwise the folder's
    own; "" if neither is available."""
    found = status(cwd)
    return (found.digest if found else "") or tree.digest(cwd)


def _status(cwd: str, until: float, depth: int) -> GitState | None:
    found = repository.find(cwd, until)
    if isinstance(found, GitOutput):
        return GitState() if found.is_late else None
    if depth and os.path.realpath(found.top) != os.path.realpath(cwd):
        return None  # not checked out: git found the repository around it
    try:
        with found.apart(until) as git:
            return _state(git, until, depth)
    except (OSError, ValueError):
        return GitState()


def _state(git: Apart, until: float, depth: int) -> GitState:
    status = git(_STATUS, until)
    if status.code != 0 and not status.is_cut:
        return GitState()
    parsed = _Status(status.out)
    same = parsed.drop(_as_in_lfs(git, parsed, until))
    for path in submodules(git, until) if depth < 2 else ():
        inner = _status(os.path.join(git.top, os.fsdecode(path)), until, depth + 1)
        if inner is not None:
            parsed.inner[path] = inner
    digest = _digest(git.top, parsed, until)
    stat = ""
    if depth == 0 and parsed.changed and len(same) <= _LEFT_OUT:
        against = ("HEAD",) if parsed.head else ("--cached",)
        without = (f":(top,literal,exclude){os.fsdecode(path)}" for path in same)
        diff = git((*_DIFF, *against, "--", *without), until)
        if diff.code == 0:
            stat = _first(diff.out.decode("utf-8", "replace").rstrip("\n"), _STAT_LINES)
    return GitState(
        head=parsed.head,
        branch=parsed.branch,
        status=_first("\n".join(parsed.lines()), _LINES),
        diff_stat=stat,
        digest=digest,
    )


class _Status:
    """What `git status --porcelain=v2 -z` printed."""

    def __init__(self, output: bytes) -> None:
        self.head = self.branch = ""
        # all that git says about an entry, and its path
        self.changed: list[tuple[bytes, bytes]] = []
        self.untracked: list[bytes] = []
        self.inner: dict[bytes, GitState] = {}  # submodules, by path
        entries = output.split(b"\0")
        entries.pop()  # cut off, or empty
        for entry in entries:
            kind = entry[:2]
            if kind == b"? ":
                if len(self.untracked) < _UNTRACKED and not _is_ignored(entry[2:]):
                    self.untracked.append(entry[2:])
            elif kind == b"1 ":
                self.changed.append((entry, entry.split(b" ", 8)[-1]))
            elif kind == b"u ":
                self.changed.append((entry, entry.split(b" ", 10)[-1]))
            elif entry.startswith(b"# branch.oid "):
                oid = entry[13:].decode("ascii", "replace")
                self.head = "" if oid == "(initial)" else oid
            elif entry.startswith(b"# branch.head "):
                name = entry[14:].decode("utf-8", "replace")
                self.branch = "" if name == "(detached)" else name

    def drop(self, paths: set[bytes]) -> set[bytes]:
        """Removes these from the changes, and returns them."""
        self.changed = [(entry, path) for entry, path in self.changed if path not in paths]
        return paths

    def lines(self) -> list[str]:
        """As `git status --short` shows it."""
        listed = {path for _, path in self.changed}
        dirty = [p for p, state in self.inner.items() if state.status and p not in listed]
        shown = [
            f"{entry[2:4].decode('ascii', 'replace').replace('.', ' ')}"
            f" {name(path.decode('utf-8', 'replace'))}"
            for entry, path in self.changed
        ]
        shown += [f" M {name(path.decode('utf-8', 'replace'))}" for path in dirty]
        return shown + [f"?? {name(path.decode('utf-8', 'replace'))}" for path in self.untracked]


def _digest(top: str, parsed: _Status, until: float) -> str:
    """git hashes what is in the index; other files are read."""
    found = hashlib.blake2b(digest_size=16)
    found.update(f"{parsed.head}\0{parsed.branch}\0".encode("utf-8", "replace"))
    left, nested = _HASHED_BYTES, _NESTED
    for entry, path in sorted(parsed.changed):
        if time.monotonic() > until:
            return ""
        found.update(entry + b"\0")
        if entry[3:4] not in b". " and entry[5:6] != b"S":  # differs from the index
            file = os.path.join(os.fsencode(top), path)
            size, stamp = _stamp(file)
            left -= size
            found.update(_content(file) if left > 0 else stamp)
    for path in sorted(parsed.untracked):
        file = os.path.join(os.fsencode(top), path)
        found.update(path + b"\0" + _stamp(file)[1])
        if path.endswith(b"/") and nested > 0:  # a nested repository that is not a submodule
            nested -= 1
            left_s = until - time.monotonic()
            found.update(tree.digest(os.fsdecode(file), max_s=left_s).encode())
    for path, inner in sorted(parsed.inner.items()):
        if not inner.digest:
            return ""
        found.update(path + b"\0" + inner.digest.encode())
    return "" if time.monotonic() > until else found.hexdigest()


def submodules(git: Apart, until: float) -> Iterator[bytes]:
    """The submodules that are checked out. `git status` would run another git in each, with its
    config."""
    file = os.path.join(git.top, ".gitmodules")
    if tree.is_plain(file, _MODULES_BYTES):
        output = git(("config", "-z", "--no-includes", "--file", file, *_PATHS), until)
        paths = {entry.partition(b"\n")[2] for entry in output.out.split(b"\0")}
        for path in sorted(filter(None, paths))[:_NESTED]:
            inner = os.path.join(os.fsencode(git.top), path)
            if os.path.lexists(os.path.join(inner, b".git")) and _is_below(inner, git.top):
                yield path


def _is_below(path: bytes, top: str) -> bool:
    """A `.gitmodules` may contain anything."""
    real, base = os.path.realpath(path), os.path.realpath(os.fsencode(top))
    return real != base and real.startswith(base.rstrip(b"/") + b"/")


def _as_in_lfs(git: Apart, parsed: _Status, until: float) -> set[bytes]:
    """Files of git-lfs that only look changed: because their filter does not run, git compares them
    with their pointers. Files with another filter cannot be compared, so they count as changed."""
    found = [(e.split(b" ", 8)[7], path) for e, path in parsed.changed if e.startswith(b"1 .M N")]
    if not found:
        return set()
    paths = b"".join(path + b"\0" for _, path in found)
    fields = git(("check-attr", "-z", "--stdin", "filter"), until, paths).out.split(b"\0")
    filtered = {
        path for path, value in zip(fields[::3], fields[2::3], strict=False) if value == b"lfs"
    }
    wanted = [(oid, path) for oid, path in found if path in filtered]
    if not wanted:
        return set()
    blobs = git(("cat-file", "--batch"), until, b"".join(oid + b"\n" for oid, _ in wanted)).out
    same = set()
    for _, path in wanted:
        head, _, blobs = blobs.partition(b"\n")
        size = int(head.rpartition(b" ")[2]) if b" blob " in head else -1
        text, blobs = blobs[: max(0, size)], blobs[size + 1 :]
        file = os.path.join(os.fsencode(git.top), path)
        match = _POINTER.match(text) if time.monotonic() < until else None
        is_as_large = match is not None and _stamp(file)[0] == int(match[2])
        if match and is_as_large and tree.sha256(os.fsdecode(file)) == match[1].decode():
            same.add(path)
    return same


def _content(file: bytes) -> bytes:
    """Identifies the content: touching the file changes nothing."""
    try:
        if os.path.islink(file):
            return b"link " + os.readlink(file)
        mode = b"%o " % (os.lstat(file).st_mode & 0o111)
    except (OSError, ValueError):
        return b"gone\0"
    found = tree.sha256(os.fsdecode(file))
    return mode + (found.encode() if found else _stamp(file)[1])


def _stamp(file: bytes) -> tuple[int, bytes]:
    """The size, and a text that identifies the file; a folder's own time means nothing."""
    try:
        info = os.lstat(file)
    except (OSError, ValueError):
        return 0, b"gone\0"
    if file.endswith(b"/"):
        return 0, b"folder\0"
    return info.st_size, b"%d %d\0" % (info.st_size, info.st_mtime_ns)


def _is_ignored(path: bytes) -> bool:
    return not tree.IGNORED.isdisjoint(os.fsdecode(path).split("/"))


def _first(text: str, lines: int) -> str:
    found = text.split("\n")
    if len(found) <= lines:
        return text
    return "\n".join([*found[: lines - 1], f"[… {len(found) - lines + 1:,} more lines …]"])
