"""Who holds a lease, and whether that process is still alive.

Leases are not renewed: a process that was suspended for an hour (a closed laptop) keeps its
lease, and one that was killed loses it to the first process that asks. A process that is wrongly
presumed dead can no longer write, because its epoch has passed.
"""

import os
import signal
import sys
from contextlib import suppress
from typing import NamedTuple

from segue.runs.store.port import Holder, LeaseLost

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_MACHINE_ID = "/etc/machine-id"


class LocalHost(NamedTuple):
    """The point of view from which holders are judged."""

    machine: str
    boot: str
    domain: str


def is_dead(holder: Holder, here: LocalHost, started: float | None) -> bool:
    """Whether the holder is certainly gone; `started` is when the process that has its pid here
    was started, None if there is none. A holder that cannot be seen from here counts as
    alive."""
    is_same_boot = holder.boot == here.boot
    if holder.machine != here.machine and not (is_same_boot and here.boot):
        return False
    if not is_same_boot:
        # "" is a system that does not report it; then the start times must be enough.
        if holder.boot and here.boot:
            return True
    elif holder.domain != here.domain:
        return False  # another container's: its pids are not ours
    return started is None or abs(started - holder.started) > 0.001


def lease_lost(key: str, holder: Holder | None) -> LeaseLost:
    """The error for a process that may no longer write."""
    who = (
        (f"process {holder.pid} of {holder.machine} holds it now")
        if holder
        else "no process holds it"
    )
    return LeaseLost(f"{key}: this process may no longer write: {who}")


def here() -> LocalHost:
    """Where this process runs, for judging whether a holder is alive."""
    from segue.system.process.procfs import system

    return LocalHost(machine(), _read(_BOOT_ID), system().domain())


def machine() -> str:
    """A stable name for this machine. The system's own id is private, so it is not shown as it
    is; a container without one uses its host name."""
    if found := _read(_MACHINE_ID):
        from hashlib import sha256

        return sha256(b"segue" + found.encode()).hexdigest()[:12]
    return os.uname().nodename


def me(note: str = "") -> Holder:
    """This process as a holder of leases."""
    place = here()
    pid = os.getpid()
    return Holder(
        machine=place.machine,
        boot=place.boot,
        pid=pid,
        started=_started(pid) or 0.0,
        domain=place.domain,
        note=note,
    )


def is_alive(holder: Holder) -> bool:
    """Whether a holder is alive, as far as this process can tell; True if it cannot."""
    return not is_dead(holder, here(), _started(holder.pid))


def is_here(holder: Holder) -> bool:
    """Whether its pid refers to a process of this machine, in this boot and this container."""
    place = here()
    return (holder.machine, holder.boot, holder.domain) == place


def send(holder: Holder, number: signal.Signals) -> None:
    """Sends a signal to a holder that is here, and never to a later process with its pid. Does
    nothing if the holder is gone or belongs to another user."""
    with suppress(OSError):
        try:
            handle = os.pidfd_open(holder.pid)
        except AttributeError:  # not available on this system
            if is_alive(holder):
                os.kill(holder.pid, number)
            return
        try:
            if is_alive(holder):
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def _started(pid: int) -> float | None:
    """The start time in ticks since boot, where available: setting the clock does not move it."""
    from segue.system.process.procfs import system

    facts = system().facts(pid)
    return None if facts is None else float(facts.start_ticks or facts.started_at)


def _read(path: str) -> str:
    if sys.platform != "linux":
        return ""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(64).strip()
    except OSError:
        return ""
