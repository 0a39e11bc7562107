"""The entry point of the process. Any Python 3 can read this file, so an old Python gets a
message about what is missing instead of a syntax error."""

import atexit
import gc
import sys

_OLDEST = (3, 11)


def main() -> None:
    """The console script. Importing creates nothing to collect, so garbage collection stays off
    until a command is loaded: it would take longer than some commands do."""
    if sys.version_info < _OLDEST:
        here = ".".join(map(str, sys.version_info[:3]))
        sys.exit(
            f"segue: needs Python 3.11 or newer, and {sys.executable} is {here}."
            " From a clone: uv tool install --python 3.11 . (uv fetches that Python)"
        )
    gc.disable()
    gc.set_threshold(10_000)  # cycles are rare here, and most commands end before they matter
    from segue.cli import main

    atexit.register(gc.freeze)  # else Python looks at everything once more before it exits
    main()
