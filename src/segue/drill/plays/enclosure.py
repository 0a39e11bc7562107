"""A network with loopback and nothing else, for agents that might call the real API.

`python -m segue.drill.plays.enclosure -- command…` runs a command in its own network namespace,
in which only `lo` is up. It needs Linux, and either root or user namespaces; no other program.
The user's ids and files stay the same. The namespace ends with the last process in it.
"""

import ctypes
import errno
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from segue.errors import SegueError

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1
_ROUTES = (("route", 0), ("ipv6_route", -1))  # below /proc/net, and which column is the interface
_CHECK_S = 20.0


class NotEnclosedError(SegueError):
    """No enclosure could be created, or this process is not in one; segue does not start anything
    that must not reach the internet."""

    exit_code = 3


def command(argv: Sequence[str]) -> list[str]:
    """The command that runs `argv` enclosed. It exits with code 3 and one line if that is
    impossible."""
    return [sys.executable, "-m", "segue.drill.plays.enclosure", "--", *argv]


def enter() -> None:
    """Encloses this process, which must have a single thread, for good. Raises NotEnclosedError;
    then nothing that must not reach the internet may be started."""
    if sys.platform != "linux":
        raise NotEnclosedError("an isolated network needs Linux's network namespaces")
    try:
        _new_network()
    except NotEnclosedError:
        if is_enclosed():  # as in a container without a network
            return
        raise
    try:
        _raise_loopback()
    except OSError as error:
        raise NotEnclosedError(
            f"lo cannot be brought up in a new network: {error.strerror}"
        ) from error
    demand()


def demand() -> None:
    """Raises NotEnclosedError unless this process is enclosed."""
    if not is_enclosed():
        raise NotEnclosedError("this process can reach more than loopback")


def is_enclosed() -> bool:
    """Whether this process can reach only loopback: `lo` is up, no other interface is, and no route
    leads elsewhere. Asks the kernel on every call."""
    if sys.platform != "linux":
        return False
    try:
        up = [name for _, name in socket.if_nameindex() if _flags(name) & _IFF_UP]
        return up == ["lo"] and _routed() <= {"lo"}
    except OSError:
        return False


def why_not() -> str:
    """Why no enclosure can be created here, in one line, or "". Tries it in a separate process."""
    if is_enclosed():
        return ""
    if sys.platform != "linux":
        return "an isolated network needs Linux's network namespaces"
    try:
        tried = subprocess.run(  # noqa: S603 - ourselves
            command([sys.executable, "-c", ""]),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_CHECK_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"creating an isolated network could not be tried: {error}"
    if tried.returncode == 0:
        return ""
    reason = tried.stderr.strip().rpartition("\n")[2].removeprefix("segue: ")
    return reason or f"an isolated network could not be created (exit code {tried.returncode})"


def _unshare(flags: int) -> int:
    """Makes the system call; returns 0 or the error number. Python has it only since 3.12."""
    libc = ctypes.CDLL(None, use_errno=True)
    return 0 if libc.unshare(flags) == 0 else ctypes.get_errno()


def _new_network() -> None:
    # Root needs no user namespace, and is really root without one. In many containers root may not
    # create a network namespace directly, and a user namespace works as it does for any user.
    if os.geteuid() == 0 and _unshare(_CLONE_NEWNET) == 0:
        return
    uid, gid = os.geteuid(), os.getegid()
    failed = _unshare(_CLONE_NEWUSER | _CLONE_NEWNET)
    if failed:
        raise NotEnclosedError(f"no network namespace can be created here: {_meaning(failed)}")
    try:
        _write("/proc/self/setgroups", "deny")  # otherwise the kernel refuses one of the next calls
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
    except OSError as error:
        raise NotEnclosedError(f"a user namespace gets no ids here: {error.strerror}") from error


def _meaning(number: int) -> str:
    hints = {
        errno.EPERM: "neither root nor user namespaces are allowed (a container's seccomp profile, "
        "or kernel.unprivileged_userns_clone)",
        errno.EACCES: "user namespaces are restricted (AppArmor: "
        "kernel.apparmor_restrict_unprivileged_userns)",
        errno.ENOSPC: "user.max_user_namespaces or user.max_net_namespaces is used up",
        errno.ENOSYS: "the kernel does not support them",
        errno.EINVAL: "the kernel does not support them, or this process has several threads",
    }
    return hints.get(number, os.strerror(number))


def _write(path: str, text: str) -> None:
    # In one write: the kernel accepts a whole map or nothing.
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _flags(name: str) -> int:
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        asked = struct.pack("16sH14x", name.encode(), 0)
        flags: int = struct.unpack("16xH14x", fcntl.ioctl(control, _SIOCGIFFLAGS, asked))[0]
    return flags


def _raise_loopback() -> None:
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        wanted = struct.pack("16sH14x", b"lo", _flags("lo") | _IFF_UP)
        fcntl.ioctl(control, _SIOCSIFFLAGS, wanted)


def _routed() -> set[str]:
    """The interfaces of all routes."""
    found = set()
    for name, column in _ROUTES:
        try:
            lines = Path("/proc/net", name).read_text(encoding="ascii").splitlines()
        except FileNotFoundError:
            continue  # no IPv6: no routes
        found |= {line.split()[column] for line in lines if line.strip()} - {"Iface"}
    return found


def main(argv: Sequence[str]) -> None:
    """Encloses this process and becomes the command; does not return."""
    if len(argv) < 2 or argv[0] != "--":
        sys.exit("usage: python -m segue.drill.plays.enclosure -- command…")
    try:
        enter()
        os.execvp(argv[1], list(argv[1:]))  # noqa: S606 - no shell is wanted
    except NotEnclosedError as error:
        print(f"segue: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        print(f"segue: {argv[1]}: {error.strerror}", file=sys.stderr)
        sys.exit(127)


if __name__ == "__main__":
    main(sys.argv[1:])
