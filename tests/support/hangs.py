"""What never ends fails its test instead of holding up all the others."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

_HANGS_S = 600
"""Nothing that ends at all takes so long. This is no measure of speed: what is searched in
quadratic time is given so much that it would take days."""


@contextmanager
def stopped_hang() -> Iterator[None]:
    """Ends what never ends, with an error."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"this does not end, not even within {_HANGS_S} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(_HANGS_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def bytes_read() -> int:
    """How many bytes this process has read from files and pipes so far."""
    counted = Path("/proc/self/io").read_text()
    return next(int(line.split()[1]) for line in counted.splitlines() if line.startswith("rchar"))
