"""The agents of a run: how to drive each one, and whether its account allows it to work."""

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from segue import agents
from segue.agents import drives
from segue.agents.contracts.drive import Drive
from segue.agents.contracts.profile import Profile
from segue.core.accounts import Account, Answer, Limit, limit_of
from segue.core.runs.types import Run
from segue.core.runs.waits import backoff_s
from segue.core.stops import events as ev
from segue.core.stops.events import Other
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import Stop
from segue.errors import StateError
from segue.runs.folders import read
from segue.system.accounts import Accounts, account_of


class Hand(Struct, frozen=True):
    """One agent, as segue drives it. `program` is None if it is not installed."""

    agent: str
    drive: Drive
    program: tuple[str, ...] | None
    profile: Profile

    @property
    def command(self) -> tuple[str, ...]:
        """The command. Raises StateError if there is none."""
        if self.program is None:
            raise StateError(f"{self.agent} is not installed: {self.drive.install}")
        return self.program


class Staff:
    """The agents of one run. `drive` and `command` are those of the current agent; others are
    looked up when it is their turn."""

    def __init__(
        self,
        run: Run,
        drive: Drive,
        command: tuple[str, ...],
        env: Mapping[str, str],
        home: str | None = None,
        accounts: Accounts | None = None,
    ) -> None:
        self.env, self.accounts = env, accounts or Accounts(home)
        self._staff = {run.agent: Hand(run.agent, drive, command, _profile(drive))}
        self._usual = run.relay[0].agent if run.relay else run.agent
        self._known: dict[str, Account] = {}

    def hand(self, agent: str) -> Hand:
        """The agent with this name. Raises StateError if segue does not know how to drive it."""
        if agent not in self._staff:
            drive = drives.find(agent)
            if drive is None:
                raise StateError(
                    f"{agent}: segue knows no such agent; if it is your own, put"
                    f" [agents.{agent}] back in config.toml"
                )
            self._staff[agent] = Hand(agent, drive, drive.find(self.env), _profile(drive))
        return self._staff[agent]

    def of_leg(self, folder: Path) -> Hand:
        """The agent of this leg. A run with one agent always has that one."""
        return self.hand(read(folder / "agent") or self._usual)

    # Accounts

    def account(self, run: Run, agent: str = "", *, anew: bool = False) -> Account:
        """The account whose limits apply to an agent of this run, as of the start of its last
        leg."""
        name = agent or run.agent
        if anew or name not in self._known:
            member = next((each for each in run.relay if each.agent == name), None)
            flags = member.flags if member is not None else run.flags
            self._known[name] = account_of(name, self.env, flags=flags, cwd=run.cwd)
        return self._known[name]

    def may_start(self, run: Run, now: float, *, anew: bool = True) -> Answer:
        """Whether the current agent may send a request; after a reset, whether it goes first."""
        return self.accounts.ask(self.account(run, anew=anew), run.id, now)

    def limits(self, run: Run, now: float) -> dict[str, float]:
        """Until when other agents of the list are limited, for those that are."""
        other_agents = [member.agent for member in run.relay if member.agent != run.agent]
        found = {
            name: self.accounts.limited_until(self.account(run, name, anew=True), now)
            for name in other_agents
        }
        return {name: until for name, until in found.items() if until is not None}

    def replied(self, run: Run, now: float) -> None:
        """The model replied: the account is free, and others may follow."""
        self.accounts.replied(self.account(run), run.id, now)

    def stopped(self, run: Run, stop: Stop, now: float) -> None:
        """A leg ended: if it hit a limit, nobody else on this account tries before the reset."""
        if stop.reason is not StopReason.RATE_LIMIT or not run.policy.is_sure(stop):
            return
        retry_at = stop.retry_at
        if retry_at is None and stop.retry_after_s is not None:
            retry_at = now + stop.retry_after_s
        is_guess = retry_at is None or retry_at <= now
        if retry_at is None or is_guess:
            retry_at = now + backoff_s(run.policy, run.limit_tries + 1, 0.0)
        limit = limit_of(stop, retry_at, is_guess=is_guess, source="run", by=run.id, now=now)
        self.accounts.note_limit(self.account(run), limit)

    def record_limits(self, run: Run, limits: Mapping[str, ev.Limit], now: float) -> None:
        """The stream reports how much of the account's limits is used."""
        found = [
            Limit(
                scope=scope,
                used_percent=limit.used_percent,
                resets_at=limit.resets_at,
                source="run",
                by=run.id,
                seen_at=now,
            )
            for scope, limit in limits.items()
            if limit.used_percent is not None and not limit.rejected
        ]
        self.accounts.note_limit(self.account(run), *found)


def _profile(drive: Drive) -> Profile:
    return agents.find(drive.agent) or _plain(drive.agent)


def _plain(name: str) -> Profile:
    """An agent whose output is plain text: its exit code says whether it is done."""
    return Profile(
        name=name,
        knows=lambda record: False,
        # Whatever it prints is text, also if it looks like a record.
        parse=lambda records: (Other(where=record.where) for record in records),
        zero_means_done=True,
    )
