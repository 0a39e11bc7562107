"""Which accounts are limited now, and until when: what the queue has to know about them.

One account, one limit: any limit that a run, session or task of this machine has hit is in
`system/accounts`, and the plan uses that, so nobody starts a process that would only wait.
"""

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from segue.core import accounts
from segue.core.queue.schedule import Proving
from segue.core.queue.types import Task
from segue.errors import SegueError
from segue.runs.starting import installed_agents
from segue.system.accounts import Accounts, account_of
from segue.system.config import settings as layered

_FRESH_S = 10.0
"""How long a login that was looked up is valid: plans are made twice a second."""


class Limits(Protocol):
    """A source of the accounts' limits."""

    def account_of(self, task: Task, agent: str) -> str:
        """The account whose limits apply if this agent works on this task."""

    def limited(self, now: float) -> Mapping[str, float]:
        """The accounts that hit a limit which has not reset, and until when."""

    def proving(self, now: float) -> Mapping[str, Proving]:
        """The accounts whose limit has reset, and that have had no reply since."""


class _AccountFound(Struct, frozen=True):
    account: str
    at: float


class AccountLimits:
    """The limits that this machine knows. `env`: the environment of the tasks' processes."""

    def __init__(self, env: Mapping[str, str], known: Accounts | None = None) -> None:
        self._env, self._known = env, known or Accounts()
        self._accounts_found: dict[tuple[object, ...], _AccountFound] = {}
        self._now = 0.0

    def account_of(self, task: Task, agent: str) -> str:
        key = (agent, task.flags, task.cwd)
        found = self._accounts_found.get(key)
        if found is None or not 0 <= self._now - found.at < _FRESH_S:
            found = self._accounts_found[key] = _AccountFound(self._look(task, agent), self._now)
        return found.account

    def limited(self, now: float) -> dict[str, float]:
        self._now = now
        found = {each.id: accounts.limited_until(each, now) for each in self._known.all(now)}
        return {
            account: limit.resets_at
            for account, limit in found.items()
            if limit is not None and limit.resets_at is not None
        }

    def proving(self, now: float) -> dict[str, Proving]:
        self._now = now
        found = {}
        for each in self._known.all(now):
            reset_at = accounts.unproven_since(each, now)
            if reset_at is not None:
                first = accounts.first_now(each, now)
                found[each.id] = Proving(reset_at, first.who if first is not None else "")
        return found

    def _look(self, task: Task, agent: str) -> str:
        """The account that a run of this task would use, by its flags. Settings that cannot be read
        make the task fail, but not this."""
        flags = task.flags
        try:
            settings = layered.load(task.cwd, self._env)
            installed_agents.register(settings)
            if flags is None:
                flags = settings.flags.get(agent, ())
        except (SegueError, OSError):
            pass
        return account_of(agent, self._env, flags=flags or (), cwd=task.cwd).id
