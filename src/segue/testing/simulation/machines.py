"""A machine: its processes, sleep, reboots, and a disk that may be full."""

from msgspec import Struct

from segue.runs.store.port import Holder
from segue.testing.simulation.clock import VirtualClock


class Machine(Struct, kw_only=True):
    """The machine of a world, which all sessions share."""

    clock: VirtualClock
    boot: int = 1
    awake_at: float = 0.0  # true time at which it wakes up
    disk_full_until: float = 0.0
    pids: int = 100  # the newest process id
    has_tmux: bool = True  # it has a tmux server with a pane
    jumped_at: float = -1e12  # true time at which the clock was last set

    def spawn(self) -> Holder:
        """Starts a new process."""
        self.pids += 1
        return Holder(machine="m", boot=f"b{self.boot}", pid=self.pids, started=float(self.pids))

    def sleep(self, now: float, wait_s: float) -> None:
        """Puts the machine to sleep: nothing runs for that long."""
        until = max(self.awake_at, now) + round(wait_s, 3)
        self.clock.slept_s += until - max(self.awake_at, now)
        self.awake_at = until

    def reboot(self, now: float) -> None:
        """Ends every process."""
        self.boot += 1
        self.has_tmux = False
        self.clock.booted_at = now
