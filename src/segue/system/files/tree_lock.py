"""Ensures that only one run works in a working tree, whatever state folder each segue uses, with a
lock that belongs to the tree.

The store's lease knows only the runs of one `SEGUE_HOME`. The kernel holds this lock as long as
the process lives, and no file of the user is created or changed: segue locks a repository's
`.git` itself (flock), so other users and containers see it too. For a folder without one, the
lock file is in a private folder below /tmp, by device and inode, because tools do lock folders
(`flock .`).
"""

import fcntl
import os
import stat

from segue.system.process.procfs import system


class TreeLocked(Exception):  # noqa: N818 - a fact about the world
    """Another process holds it; `pid` is 0 if the system does not say which."""

    def __init__(self, pid: int) -> None:
        super().__init__(pid)
        self.pid = pid


class TreeLock:
    """Held by this process, until it is released or ends."""

    def __init__(self, file: int) -> None:
        self._file = file

    def release(self) -> None:
        """Releases it."""
        os.close(self._file)


def hold(tree: str) -> TreeLock | None:
    """The lock of a tree; None if there can be none (a file system without locks, an unreadable
    folder), so only the store's lease protects it. Raises TreeLocked."""
    try:
        file = _opened(tree)
    except OSError:
        return None
    if file is None:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = _holder(os.fstat(file).st_ino)
        os.close(file)
        raise TreeLocked(pid) from None
    except OSError:
        os.close(file)
        return None
    return TreeLock(file)


def _opened(tree: str) -> int | None:
    git = os.path.join(tree, ".git")
    if os.path.exists(git):
        return os.open(git, os.O_RDONLY | os.O_CLOEXEC)
    folder = os.path.join("/tmp", f"segue-{os.getuid()}")  # noqa: S108 - made sure of below
    for place in (folder, os.path.join(folder, "trees")):
        try:
            os.mkdir(place, 0o700)
        except FileExistsError:
            found = os.lstat(place)
            is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
            if not is_ours or found.st_mode & 0o022:
                return None  # belongs to somebody else: it is not opened
    found = os.stat(tree)
    name = os.path.join(folder, "trees", f"{found.st_dev:x}-{found.st_ino:x}")
    return os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _holder(inode: int) -> int:
    return next((lock.pid for lock in system().locks() if lock.inode == inode), 0)
