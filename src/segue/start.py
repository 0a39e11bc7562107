"""Where the process starts."""

import gc


def main() -> None:
    """The console script. Importing makes nothing that could be collected, so nothing is collected
    until a command is there: looking for it would take longer than some commands do."""
    gc.disable()
    from segue.cli import main

    main()
