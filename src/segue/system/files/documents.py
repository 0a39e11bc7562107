"""Handoff documents on disk: where a project's documents are, listing, reading and writing them.

A name is a single path component; segue does not read through links, and writes nothing where a
repository's link points outside the project.
"""

import errno
import os
import re
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from segue.core.handoffs.document import MAX_BYTES
from segue.errors import InputError, StateError
from segue.system.config.project import inside

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,150}\.md")
_MAX_LISTED = 1_000
_MISSING = "no such file"


class Document(Struct, frozen=True):
    """One existing document."""

    name: str
    size_bytes: int
    changed_at: float


def folder_of(project: str, folder: str) -> Path:
    """The folder of a project's handoffs, whether or not it exists yet (`policy.handoff_folder`).
    Raises InputError if a relative path points outside the project."""
    if not project:
        raise InputError(
            "the session's folder is unknown, so segue cannot tell where its handoffs belong"
        )
    own = Path(os.path.expanduser(folder))
    place = Path(project) / own
    if not own.is_absolute() and not inside(place, Path(project)):
        raise InputError(f"{place} points outside the project; handoffs are not saved there")
    return place


def listed(folder: Path) -> list[Document]:
    """The documents in it, the newest first; none if it cannot be read."""
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if is_name(entry.name) and entry.is_file(follow_symlinks=False):
                    info = entry.stat(follow_symlinks=False)
                    found.append(Document(entry.name, info.st_size, info.st_mtime))
    except OSError:
        return []
    found.sort(key=lambda document: (document.changed_at, document.name), reverse=True)
    return found[:_MAX_LISTED]


def is_name(name: str) -> bool:
    """Whether a document may have this name."""
    return _NAME.fullmatch(name) is not None


def read(folder: Path, name: str) -> str:
    """One document's text. Raises InputError with one line."""
    if not is_name(name):
        raise InputError(f"{name[:80]!r} is not the name of a handoff; give one as it is listed")
    text, why = read_document(str(folder / name))
    if why == _MISSING:
        raise InputError(f"no handoff {name} in this project")
    if why:
        raise InputError(f"{name} is not a handoff: {why}")
    return text


def read_document(path: str, *, project: str = "") -> tuple[str, str]:
    """A document's text, or why there is none: it must be a plain UTF-8 file of at most 1 MB,
    inside the project if one is named (with links resolved), otherwise not a link itself."""
    if project and not inside(Path(path), Path(project)):
        return "", "it is not inside the project"
    try:
        real = os.path.realpath(path) if project else path
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY | os.O_NOFOLLOW
        handle = os.open(real, flags)
    except FileNotFoundError:
        return "", _MISSING
    except (OSError, ValueError) as fault:
        if isinstance(fault, OSError) and fault.errno == errno.ELOOP:
            return "", "it is a link"
        return "", f"it cannot be read: {_error_text(fault)}"
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            return "", "it is not a plain file"
        if info.st_size > MAX_BYTES:
            return "", f"it is larger than {MAX_BYTES >> 20} MB"
        data = b""
        while len(data) <= MAX_BYTES and (more := os.read(handle, MAX_BYTES + 1 - len(data))):
            data += more
    except OSError as fault:
        return "", f"it cannot be read: {_error_text(fault)}"
    finally:
        os.close(handle)
    if len(data) > MAX_BYTES:
        return "", f"it is larger than {MAX_BYTES >> 20} MB"
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return "", "it is not UTF-8"
    return ("", "it is not text") if "\0" in text else (text, "")


def prepare(folder: Path) -> None:
    """Creates the folder, private, if it does not exist. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _keep_out_of_git(folder)


def write(folder: Path, name: str, text: str) -> Path:
    """Writes a document completely or not at all, private, and synced to disk when this returns.
    Replaces one of the same name. Raises StateError with one line."""
    if not is_name(name):
        raise InputError(f"{name[:80]!r} is not the name of a handoff")
    path = folder / name
    try:
        prepare(folder)
        handle, aside = tempfile.mkstemp(prefix=".handoff-", dir=folder)  # 0600
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(text.encode("utf-8", "replace"))
                file.flush()
                os.fsync(handle)
            os.replace(aside, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(aside)
            raise
        _sync(folder)
    except OSError as fault:
        raise StateError(f"{path} cannot be written: {fault.strerror or fault}") from None
    return path


def _keep_out_of_git(folder: Path) -> None:
    """Excludes segue's own folder in a project from git, so that it does not show up as a
    change."""
    if folder.parent.name != ".segue":
        return
    with suppress(OSError):  # it exists, possibly as a link, which may lead anywhere
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(folder.parent / ".gitignore", flags, 0o644), "w") as file:
            file.write("*\n")


def _sync(folder: Path) -> None:
    with suppress(OSError):  # some file systems do not support this
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _error_text(fault: Exception) -> str:
    return (fault.strerror or str(fault)) if isinstance(fault, OSError) else str(fault)
