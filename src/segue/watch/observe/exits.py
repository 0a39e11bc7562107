"""How a process ended that segue did not start, as Linux tells it: once its parent has asked for
it, through a handle on the process; before that, from what /proc shows of the zombie. A tmux may
take minutes until it asks.
"""

import os
import signal
import struct

_GET_INFO, _INFO_EXIT, _INFO_BYTES = 0xC040FF0B, 8, 64  # Linux 6.15: PIDFD_GET_INFO
_STATE, _START_TICKS, _EXIT_CODE = 0, 19, 49  # fields of /proc/PID/stat after the name


def is_reaped(handle: int | None) -> bool:
    """Whether the parent has collected the exit code, or nobody can tell."""
    if handle is None:
        return True
    try:
        signal.pidfd_send_signal(handle, 0)
    except OSError:
        return True
    return False


def exit_code(handle: int | None) -> int | None:
    """The exit code as its parent received it, negative for a signal; known only after that. Older
    systems tell only the parent."""
    if handle is None:
        return None
    import fcntl

    info = bytearray(_INFO_BYTES)
    struct.pack_into("Q", info, 0, _INFO_EXIT)
    try:
        fcntl.ioctl(handle, _GET_INFO, info)
    except OSError:
        return None
    (mask,) = struct.unpack_from("Q", info, 0)
    (status,) = struct.unpack_from("i", info, 60)
    return os.waitstatus_to_exitcode(status) if mask & _INFO_EXIT else None


def zombie_exit_code(pid: int, start_ticks: int) -> int | None:
    """The exit code that a zombie holds for its parent. None if there is no such zombie, or if it
    is another user's: of those the system shows a 0, whatever the code."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
            owner = os.fstat(file.fileno()).st_uid
        state, ticks, status = fields[_STATE], int(fields[_START_TICKS]), int(fields[_EXIT_CODE])
    except (OSError, ValueError, IndexError):
        return None
    if state != b"Z" or ticks != start_ticks or os.geteuid() not in (0, owner):
        return None
    return os.waitstatus_to_exitcode(status)
