"""Whether a process has ended."""

import psutil


def is_gone(pid: int) -> bool:
    """Also one that nobody has asked for its exit code yet: not every machine's first process does
    so at once."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
