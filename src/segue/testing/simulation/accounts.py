"""The accounts of a simulated machine: the real `runs/staff` and `system/accounts`, with their file
in memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from segue.core.accounts import Account
from segue.core.runs.types import Run
from segue.core.stops.types import Stop
from segue.runs.staff import Staff
from segue.system.accounts import Accounts, AccountsFile


class MachineAccounts(Accounts):
    """What all sessions of a machine know about their accounts. A full disk stores nothing."""

    def __init__(self, world: Any) -> None:
        self._world, self._file = world, AccountsFile()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if self._world.is_disk_full:
            raise OSError("no space left on the disk")
        yield

    def _read(self) -> AccountsFile:
        return self._file

    def _write(self, file: AccountsFile) -> None:
        self._file = file


def known_account(number: int) -> Account:
    """The world's account of this number, as segue knows it."""
    return Account(id=f"account-{number}", agent="claude")


class SimulatedStaff(Staff):
    """One agent, with one of the world's accounts."""

    def __init__(self, session: Any) -> None:
        world = session.world
        number = session.number % len(world.accounts)
        self.accounts, self._watch = world.known_limits, session.watch
        self._account = known_account(number)

    def hand(self, agent: str) -> Any:
        """The agent itself: nothing needs its drive."""
        return cast("Any", agent)

    def account(self, run: Run, agent: str = "", *, anew: bool = False) -> Account:
        """The world's account."""
        return self._account

    def replied(self, run: Run, now: float) -> None:
        """The real method; also informs the invariants."""
        super().replied(run, now)
        self._watch.account_replied()

    def stopped(self, run: Run, stop: Stop, now: float) -> None:
        """The real method; also informs the invariants."""
        super().stopped(run, stop, now)
        self._watch.account_stopped(stop)
