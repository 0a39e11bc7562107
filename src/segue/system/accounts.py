"""The accounts of this machine and their limits: one small private file, shared by all runs, the
daemon, the queue and the commands of one state folder.

A change is made under a lock and replaces the whole file; readers need no lock. The content can
be collected again, so a file that cannot be read is set aside and a new one is started; and a
full disk stops nobody from working.
"""

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from segue.agents import canonical, drives
from segue.agents.contracts.login import hashed
from segue.core import accounts
from segue.core.accounts import Account, Answer, Limit
from segue.system.files import state

FILE_NAME = "accounts.json"
_MAX_BYTES = 4_000_000


class AccountsFile(Struct):
    """The content of the file."""

    accounts: list[Account] = []
    schema: int = 1


def account_of(
    agent: str, env: Mapping[str, str], *, flags: Sequence[str] = (), cwd: str = ""
) -> Account:
    """The account whose limits apply to this agent, started in this way. Never raises: if the login
    cannot be determined, the agent's config home identifies the account."""
    name = canonical(agent)
    drive = drives.find(name)
    look = drive.login if drive is not None else None
    if drive is None or look is None:
        return Account(id=f"{name}-{hashed(name)}", agent=name)
    found = look(flags, env, cwd)
    who = found.who or hashed(found.home)
    return Account(id=f"{drive.agent}-{who}", agent=name, home=found.home, kind=found.kind)


def account_at(
    agent: str,
    path: str,
    env: Mapping[str, str],
    homes: dict[str, Account] | None = None,
    *,
    flags: Sequence[str] = (),
) -> Account | None:
    """The account of a session file: the login that its home has now, or None if it is in another
    home. `homes` caches logins; `flags` are those of its process, if known."""
    known = {} if homes is None else homes
    if agent not in known:
        known[agent] = account_of(agent, env, flags=flags)
    home = known[agent].home
    is_below = home != "" and os.path.realpath(path).startswith(home.rstrip("/") + "/")
    return known[agent] if is_below else None


class Accounts:
    """The known accounts. Nothing here raises because of the file."""

    def __init__(self, folder: str | None = None) -> None:
        self.path = Path(folder or state.state_folder(), FILE_NAME)

    def all(self, now: float) -> list[Account]:
        """All accounts, each with the limits that still matter."""
        return [accounts.current(account, now) for account in self.all_accounts()]

    def all_accounts(self) -> list[Account]:
        """All accounts, each with everything that was recorded."""
        return self._read().accounts

    def find(self, account: Account) -> Account:
        """The account with its recorded limits."""
        known = {each.id: each for each in self.all_accounts()}
        return known.get(account.id, account)

    def limited_until(self, account: Account, now: float) -> float | None:
        """When requests are allowed again; None if the account is not limited."""
        found = accounts.limited_until(self.find(account), now)
        return found.resets_at if found is not None else None

    def note_limit(self, account: Account, *limits: Limit) -> None:
        """Records a limit that was just observed."""
        if limits:
            self._change(account, lambda known: accounts.note(known, limits))

    def ask(self, account: Account, who: str, now: float) -> Answer:
        """Whether `who` may send a request now. After a reset, the first to ask goes first."""
        known, answer = accounts.ask(self.find(account), who, now)
        if not accounts.met_limits(known):
            return answer  # the usual case needs no lock
        found = Answer()

        def change(known: Account) -> Account:
            nonlocal found
            known, found = accounts.ask(known, who, now)
            return known

        return found if self._change(account, change) else answer

    def replied(self, account: Account, who: str, now: float) -> None:
        """The model has answered `who`, so the others may follow."""
        if accounts.met_limits(self.find(account)):
            self._change(account, lambda known: accounts.replied(known, who, now))

    def yield_first(self, account: Account, who: str) -> None:
        """The one that was to go first does not send a request after all, so another may."""
        if self.find(account).first is not None:
            self._change(account, lambda known: accounts.without_first(known, who))

    def clear(self, ids: Iterable[str] | None = None) -> list[str]:
        """Forgets the limits of these accounts, or of all. Returns the ids of the accounts that had
        any."""
        wanted = None if ids is None else set(ids)
        cleared: list[str] = []
        with suppress(OSError), self._alone():
            file = self._read()
            remaining = []
            for account in file.accounts:
                if wanted is None or account.id in wanted:
                    cleared += [account.id] if account.limits else []
                    account = replace(account, limits=(), first=None)
                remaining.append(account)
            self._write(AccountsFile(remaining))
        return cleared

    def _change(self, account: Account, change: Callable[[Account], Account]) -> bool:
        """Applies a change to the file; returns whether it is stored."""
        try:
            with self._alone():
                file = self._read()
                before = next((each for each in file.accounts if each.id == account.id), account)
                after = change(replace(before, home=account.home, kind=account.kind))
                if after != before or before not in file.accounts:
                    rest = [each for each in file.accounts if each.id != account.id]
                    self._write(AccountsFile([*rest, after]))
        except OSError:
            return False
        return True

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(
            self.path.with_suffix(".lock"),
            os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC,
            0o600,
        )
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _read(self) -> AccountsFile:
        try:
            with open(self.path, "rb") as file:
                data = file.read(_MAX_BYTES + 1)
            if len(data) <= _MAX_BYTES:
                return msgspec.json.decode(data, type=AccountsFile)
        except OSError:
            return AccountsFile()
        except (msgspec.MsgspecError, UnicodeDecodeError):
            pass
        with suppress(OSError):
            os.replace(self.path, self.path.with_suffix(".damaged"))
        return AccountsFile()

    def _write(self, file: AccountsFile) -> None:
        aside = self.path.with_name(f".{FILE_NAME}.{os.getpid()}")
        handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as out:
            out.write(msgspec.json.encode(file))
        os.replace(aside, self.path)
