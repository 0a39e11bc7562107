"""The errors segue raises on purpose, by who can fix them. Each message is one line: what,
where, what to do."""

import errno


class SegueError(Exception):
    """Base of all errors that segue raises on purpose; never raised itself. `lines`: the message
    in one line, followed by lines that belong to it, such as a list to choose from."""

    exit_code = 1

    def __init__(self, message: object = "", *more: str) -> None:
        super().__init__("\n".join((str(message), *more)))
        self.lines = (str(message), *more)


class InputError(SegueError):
    """The user named something that cannot be used: a missing file, an invalid value."""

    exit_code = 2


class StateError(SegueError):
    """segue's own state cannot be read or written: no permission, a full disk, another writer."""


class ConfigError(SegueError):
    """A file in the config folder is invalid."""

    exit_code = 2


def in_words(fault: BaseException) -> str:
    """An error in one line for the user. An error of the operating system is told with its file
    and without its number; if the disk is full, with what to do."""
    if not isinstance(fault, OSError) or not fault.strerror:
        return str(fault)
    full = fault.errno in (errno.ENOSPC, errno.EDQUOT)
    what = f"{fault.strerror}; free some space" if full else fault.strerror
    return f"{fault.filename}: {what}" if fault.filename else what
