"""Edits the user's own files: never without a copy, whole or not at all, and reversibly.

The state folder remembers each edit. Once the file without segue's entries has the same content
as the copy, the copy's own bytes are restored, however the file was written in between.
"""

import json
import os
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO

import msgspec

from segue.errors import InputError, SegueError, StateError
from segue.system.files import files, state

_RECORD = "setup.json"
_MAX_BYTES = 4_000_000
_MAX_DEPTH = 100
_PLAIN = (str, int, float, type(None))


class Edit(msgspec.Struct, kw_only=True):
    """The record of an edit of one file."""

    agent: str
    backups: list[str] = []  # the first one is the original file; "": there was none
    former: str = ""  # JSON: what segue's entry replaces
    aside: str = ""  # segue's own file that the entry names


class Raw(str):
    """A number of a JSON text as it was written: 1E5 stays 1E5."""


def parse(text: str, path: str, *, exact: bool = True) -> Any:
    """Parses JSON; an empty text is an empty object. Numbers keep their notation or, if that does
    not matter, become floats, as claude reads them. Raises InputError with one line."""
    number = Raw if exact else float
    if not text.strip("\ufeff \t\r\n"):
        return {}
    try:
        found = json.loads(
            text.removeprefix("\ufeff"),
            parse_float=number,
            parse_int=number,
            parse_constant=_refuse,
        )
        if _is_deep(found):  # not everything that can be parsed can be written
            raise RecursionError
        return found
    except (ValueError, RecursionError) as fault:
        reason = str(fault) if isinstance(fault, ValueError) else "nested too deeply"
        raise InputError(f"{path}: not JSON: {reason}; nothing was written") from None


def _is_deep(value: Any) -> bool:
    layer = [value]
    for _ in range(_MAX_DEPTH):
        inner = [x.values() if isinstance(x, dict) else x for x in layer]
        layer = [each for part in inner if not isinstance(part, _PLAIN) for each in part]
        if not layer:
            return False
    return True


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not a value")


def dump(value: Any, like: str = "") -> str:
    """JSON text, indented like another one."""
    indent = "  "
    for line in like.splitlines()[1:]:
        if line.strip():
            indent = line[: len(line) - len(line.lstrip())] or indent
            break
    return _dumped(value, indent, "\n") + "\n"


def _dumped(value: Any, indent: str, new_line: str) -> str:
    deeper = new_line + indent
    if isinstance(value, Raw):
        return str.__str__(value)
    if isinstance(value, dict) and value:
        inner = f",{deeper}".join(
            f"{_string(key)}: {_dumped(each, indent, deeper)}" for key, each in value.items()
        )
        return f"{{{deeper}{inner}{new_line}}}"
    if isinstance(value, list) and value:
        inner = f",{deeper}".join(_dumped(each, indent, deeper) for each in value)
        return f"[{deeper}{inner}{new_line}]"
    return _string(value) if isinstance(value, str) else json.dumps(value)


def _string(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return json.dumps(text)
    return json.dumps(text, ensure_ascii=False)


def read(path: str) -> str | None:
    """A file's text; None if it does not exist. Raises InputError with one line."""
    try:
        return files.read_plain(path, _MAX_BYTES).decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8; nothing was written") from None
    except OSError as fault:
        raise InputError(f"{path}: {fault.strerror or fault}; nothing was written") from None


def change(
    path: str,
    before: str | None,
    after: str,
    edit: Edit,
    *,
    stamp: str,
    aside: str = "",
) -> str:
    """Replaces `before` with `after`, and remembers `edit`; returns the path of the copy, "" if
    there was nothing to copy. `stamp` is part of the copy's name. Raises InputError or StateError,
    and then nothing has changed."""
    backup = ""
    if before is not None:
        backup = _free(f"{path}.segue-{stamp}")
        _write(backup, before, _mode(path) & 0o700)  # it may contain keys, and outlive the file
    edit.backups = [*edit.backups, backup]
    key, former = os.path.abspath(path), load()
    try:
        _save({**former, key: edit})
        if aside:
            state.make_watch_folder()
            _write(edit.aside, aside, 0o600)
        _check_same(path, before)
        _write(path, after, _mode(path))
    except SegueError:
        _drop([backup, "" if key in former else edit.aside])
        with suppress(SegueError):
            _save(former)
        raise
    return backup


def take_back(path: str, now: str, rest: str, same: Callable[[str, str], bool]) -> str:
    """Writes the rest of a file; returns in a few words how. `same` says whether two texts are
    equivalent."""
    records = load()
    edit = records.pop(os.path.abspath(path), None)
    first = edit.backups[0] if edit is not None and edit.backups else None
    original = read(first) if first else None
    how = "segue's entries were removed from it"
    _check_same(path, now)
    if first == "" and same(rest, ""):
        _unlink(path)
        how = "deleted: it contained nothing else"
    elif original is not None and same(rest, original):
        _write(path, original, _mode(path))
        how = "as it was before"
    elif rest != now:
        _write(path, rest, _mode(path))
        how += f"; the earlier copy: {first}" if first else ""
        edit = msgspec.structs.replace(edit, backups=[]) if edit is not None else None
    _drop([*edit.backups, edit.aside] if edit is not None else [])
    _save(records)
    return how


def _check_same(path: str, text: str | None) -> None:
    """Checks for changes by others: the agent itself writes to the file too."""
    if read(path) != text:
        raise InputError(f"{path}: changed in the meantime; nothing was written, try again")


def _unlink(path: str) -> None:
    try:
        os.unlink(os.path.realpath(path))
    except OSError as fault:
        raise StateError(f"{path}: cannot be deleted: {fault.strerror or fault}") from None


def _drop(files: list[str]) -> None:
    for file in filter(None, files):
        with suppress(OSError):
            os.unlink(file)


def load() -> dict[str, Edit]:
    """All recorded edits, by file."""
    try:
        with open(_record(), "rb") as file:
            return msgspec.json.decode(file.read(), type=dict[str, Edit])
    except (OSError, ValueError):
        return {}


def _save(records: dict[str, Edit]) -> None:
    if records:
        _write(_record(), msgspec.json.encode(records).decode(), 0o600)
        return
    with suppress(FileNotFoundError):
        os.unlink(_record())


def _record() -> str:
    return os.path.join(state.watch_folder(), _RECORD)


def _mode(path: str) -> int:
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        return 0o600


def _free(path: str) -> str:
    number, found = 1, path
    while os.path.lexists(found):
        number += 1
        found = f"{path}-{number}"
    return found


def _write(path: str, text: str, mode: int) -> None:
    """Writes completely or not at all. A link stays a link, and a file with several names or
    another owner stays the same file."""
    real = os.path.realpath(path)
    folder = os.path.dirname(real)
    try:
        if _must_stay(real):
            _write_in_place(real, text)
            return
        os.makedirs(folder, mode=0o700, exist_ok=True)
        handle, aside = tempfile.mkstemp(prefix=f".{os.path.basename(real)}.", dir=folder)
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
                file.write(text)
                file.flush()
                os.fsync(handle)
            os.chmod(aside, mode)
            if os.path.exists(real):
                _keep_attributes(real, aside)
            os.replace(aside, real)
        except BaseException:
            with suppress(OSError):
                os.unlink(aside)
            raise
    except OSError as fault:
        raise StateError(f"{path}: cannot be written: {fault.strerror or fault}") from None


def _must_stay(real: str) -> bool:
    """Whether replacing the file would change what it is: a link, a file with several names, or one
    with another owner."""
    try:
        info = os.stat(real)
    except FileNotFoundError:
        return False
    folder = os.stat(os.path.dirname(real))
    own = os.geteuid(), folder.st_gid if folder.st_mode & stat.S_ISGID else os.getegid()
    return info.st_nlink > 1 or (info.st_uid, info.st_gid) != own


def _write_in_place(real: str, text: str) -> None:
    """Writes into the same file, and restores the content if that fails. Meanwhile a copy next to
    it can repair the damage of a power cut."""
    data = text.encode("utf-8")
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    with os.fdopen(os.open(real, flags), "r+b") as file:
        before = file.read()
        handle, aside = tempfile.mkstemp(
            prefix=f".{os.path.basename(real)}.", dir=os.path.dirname(real)
        )
        try:
            with os.fdopen(handle, "wb") as copy:
                copy.write(before)
                copy.flush()
                os.fsync(handle)
            # so that a full disk is noticed first
            os.posix_fallocate(file.fileno(), 0, max(1, len(data)))
            try:
                _overwrite(file, data)
            except OSError:
                _overwrite(file, before)
                raise
        except OSError:
            with suppress(OSError):
                os.ftruncate(file.fileno(), len(before))
            raise
        finally:
            with suppress(OSError):
                os.unlink(aside)


def _overwrite(file: BinaryIO, data: bytes) -> None:
    file.seek(0)
    file.write(data)
    file.flush()
    os.ftruncate(file.fileno(), len(data))
    os.fsync(file.fileno())


def _keep_attributes(real: str, aside: str) -> None:
    """Copies access lists and the like, as far as the system allows."""
    if not hasattr(os, "listxattr"):
        return
    with suppress(OSError):
        for name in os.listxattr(real):
            with suppress(OSError):
                os.setxattr(aside, name, os.getxattr(real, name))
