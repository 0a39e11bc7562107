"""Standard output and standard error as every command can rely on them: characters that cannot
be encoded are replaced, and writing to a closed stream does nothing."""

import os
import sys
from typing import TextIO


def settle() -> None:
    """Call this before anything is opened or printed. Afterwards all three streams exist, and
    printing never fails because of a character."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # A new file gets the lowest free number: no file of ours may become stdout.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdout, sys.stderr = _settled(sys.stdout), _settled(sys.stderr)


def _settled(stream: TextIO | None) -> TextIO:
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8", errors="replace")
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace")
    return stream


def leave() -> None:
    """Drops buffered output for stdout and stderr, so that the process does not wait for readers
    when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)
