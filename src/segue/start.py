"""Where the process starts. Any Python 3 can read this file, so that an old one is told what is
missing instead of dying on syntax that it does not know."""

import gc
import sys

_OLDEST = (3, 11)


def main() -> None:
    """The console script. Importing makes nothing that could be collected, so nothing is collected
    until a command is there: looking for it would take longer than some commands do."""
    if sys.version_info < _OLDEST:
        here = ".".join(map(str, sys.version_info[:3]))
        sys.exit(
            f"segue: needs Python 3.11 or newer, and {sys.executable} is {here}."
            " From a clone: uv tool install --python 3.11 . (uv fetches that Python)"
        )
    gc.disable()
    from segue.cli import main

    main()
