"""What can go wrong, and whose fault it is. One line each: what, where, what to do."""


class SegueError(Exception):
    """Base of all errors that segue raises on purpose; never raised itself. `lines`: what is said,
    in one line, and those that belong to it, such as a list to choose from."""

    exit_code = 1

    def __init__(self, said: object = "", *more: str) -> None:
        super().__init__("\n".join((str(said), *more)))
        self.lines = (str(said), *more)


class InputError(SegueError):
    """The user named something that cannot be used: a missing file, a bad value."""

    exit_code = 2


class StateError(SegueError):
    """segue's own state cannot be read or written: no permission, a full disk, another writer."""


class ConfigError(SegueError):
    """A file in the config folder is wrong."""

    exit_code = 2
