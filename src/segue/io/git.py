"""What a repository says of the work in it. Looks only: takes no lock, writes no index, runs no
hook and no pager, and waits for nobody for long."""

import hashlib
import os
import select
import signal
import subprocess
import time
from contextlib import suppress

from msgspec import Struct

from segue.core.compose import GitState
from segue.io import tree

__all__ = ["GitState", "mark", "status"]

MOST_S = 10.0
_MOST_BYTES = 16 << 20  # of what git prints
_UNTRACKED = 20_000
_LINES = 200
_STAT_LINES = 100
_HASHED_BYTES = 512 << 20  # of changed files, in all; more are told by size and time
_NESTED = 20  # repositories in it

_QUIET = (
    *("--no-optional-locks", "--no-pager", "-c", "core.fsmonitor=false"),
    *("-c", "core.hooksPath=/dev/null", "-c", "core.quotePath=false", "-c", "color.ui=never"),
    *("-c", "status.relativePaths=false", "-c", "status.showStash=false"),
)
_STATUS = (
    *("status", "--porcelain=v2", "--branch", "-z", "--untracked-files=all"),
    *("--ignore-submodules=none", "--no-renames", "--no-ahead-behind"),
)
_DIFF = ("diff", "--stat=100", "--no-ext-diff", "--no-textconv", "--no-renames")


def status(cwd: str, *, most_s: float = MOST_S) -> GitState | None:
    """The repository that this folder is in; None if it is in none, or git cannot tell. If it takes
    too long, there is a state with an empty digest."""
    return _status(cwd, time.monotonic() + most_s, depth=0)


def mark(cwd: str) -> str:
    """The digest of the work in a folder: git's where there is a repository, else the folder's own;
    "" if neither can be told."""
    found = status(cwd)
    return (found.digest if found else "") or tree.digest(cwd)


def _status(cwd: str, until: float, depth: int) -> GitState | None:
    root = _git(cwd, ("rev-parse", "--show-toplevel"), until)
    if root.is_late:
        return GitState()
    top = os.fsdecode(root.out.removesuffix(b"\n"))
    if root.code != 0 or not top:
        return None
    said = _git(top, _STATUS, until)
    if said.code != 0 and not said.is_cut:
        return GitState() if said.is_late else None
    seen = _Status(said.out)
    digest = _digest(top, seen, until, depth)
    stat = ""
    if depth == 0 and seen.changed:
        against = ("HEAD",) if seen.head else ("--cached",)
        told = _git(top, (*_DIFF, *against), until)
        if told.code == 0:
            stat = _first(told.out.decode("utf-8", "replace").rstrip("\n"), _STAT_LINES)
    return GitState(
        head=seen.head,
        branch=seen.branch,
        status=_first("\n".join(seen.lines()), _LINES),
        diff_stat=stat,
        digest=digest,
    )


class _Status:
    """What `git status --porcelain=v2 -z` printed."""

    def __init__(self, said: bytes) -> None:
        self.head = self.branch = ""
        self.changed: list[tuple[bytes, bytes]] = []  # all that git says of an entry, its path
        self.untracked: list[bytes] = []
        entries = said.split(b"\0")
        entries.pop()  # what is cut off, or nothing
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

    def lines(self) -> list[str]:
        """As `git status --short` shows it."""
        shown = [
            f"{entry[2:4].decode('ascii', 'replace').replace('.', ' ')}"
            f" {path.decode('utf-8', 'replace')}"
            for entry, path in self.changed
        ]
        return shown + [f"?? {path.decode('utf-8', 'replace')}" for path in self.untracked]


def _digest(top: str, seen: _Status, until: float, depth: int) -> str:
    """Git names what is in the index; what is only in the files is read."""
    found = hashlib.blake2b(digest_size=16)
    found.update(f"{seen.head}\0{seen.branch}\0".encode("utf-8", "replace"))
    left, nested = _HASHED_BYTES, _NESTED
    for entry, path in sorted(seen.changed):
        if time.monotonic() > until:
            return ""
        found.update(entry + b"\0")
        file = os.path.join(os.fsencode(top), path)
        if entry[5:6] == b"S" and nested > 0:  # a submodule
            nested -= 1
            found.update(_inner(os.fsdecode(file), until, depth))
        elif entry[3:4] not in b". ":  # not as it is in the index
            size, stamp = _stamp(file)
            left -= size
            found.update(_content(file) if left > 0 else stamp)
    for path in sorted(seen.untracked):
        file = os.path.join(os.fsencode(top), path)
        found.update(path + b"\0" + _stamp(file)[1])
        if path.endswith(b"/") and nested > 0:  # a repository in it that is no submodule
            nested -= 1
            found.update(_inner(os.fsdecode(file), until, depth))
    return "" if time.monotonic() > until else found.hexdigest()


def _inner(folder: str, until: float, depth: int) -> bytes:
    inner = _status(folder, until, depth + 1) if depth < 2 else None
    return inner.digest.encode() if inner else b"-"


def _content(file: bytes) -> bytes:
    """Tells other content from this: touching the file changes nothing."""
    try:
        if os.path.islink(file):
            return b"link " + os.readlink(file)
        mode = b"%o " % (os.lstat(file).st_mode & 0o111)
    except (OSError, ValueError):
        return b"gone\0"
    found = tree.sha256(os.fsdecode(file))
    return mode + (found.encode() if found else _stamp(file)[1])


def _stamp(file: bytes) -> tuple[int, bytes]:
    """Size, and a text that tells other files from this; a folder's own time says nothing."""
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


# The process


class _Said(Struct, frozen=True):
    code: int | None = None  # None: it did not come to its end
    out: bytes = b""
    is_late: bool = False
    is_cut: bool = False  # it printed more than is read


def _git(cwd: str, words: tuple[str, ...], until: float) -> _Said:
    """What git printed; it and all that it started are ended at that time."""
    try:
        process = subprocess.Popen(  # noqa: S603 - nothing of it is anybody's text
            ("git", *_QUIET, *words),  # noqa: S607 - the user's own, by the PATH
            cwd=cwd,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError):
        return _Said()
    assert process.stdout is not None
    handle = process.stdout.fileno()
    ready = select.poll()
    ready.register(handle, select.POLLIN)
    out = bytearray()
    is_late = is_cut = False
    try:
        while True:
            left = until - time.monotonic()
            if left <= 0 or not ready.poll(left * 1000):
                is_late = True
                break
            data = os.read(handle, 1 << 16)
            if not data:
                break
            out += data
            if len(out) > _MOST_BYTES:
                del out[_MOST_BYTES:]  # the same for the same tree
                is_cut = True
                break
        if not is_late and not is_cut:
            try:
                code = process.wait(max(0.1, until - time.monotonic()))
                return _Said(code, bytes(out))
            except subprocess.TimeoutExpired:
                is_late = True
    finally:
        process.stdout.close()
        if process.returncode is None:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return _Said(None, bytes(out), is_late, is_cut)


def _environment() -> dict[str, str]:
    """The user's, without what would point git elsewhere or make it ask."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {**kept, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
