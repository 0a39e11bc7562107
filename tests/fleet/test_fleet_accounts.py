"""One account on many machines: a limit that one of them hits is known to all at once."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.fleet.postgres import Postgres, postgres

from segue.core.accounts import Account, Limit
from segue.errors import StateError
from segue.fleet import accounts
from segue.fleet.accounts import AccountCap, FleetAccounts
from segue.fleet.database import FleetDatabase
from segue.system.accounts import Accounts, account_of

HOUR_S = 3_600.0
SECRET = "sk-ant-api03-this-must-stay-here-0123456789"


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as found:
        yield found


class Fleet:
    """Machines with clocks of their own; `now` is the database's."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder, self.is_away = url, folder, False
        self.opened: list[FleetDatabase] = []
        ((self.now,),) = self.database().rows("SELECT extract(epoch FROM now())::float")

    def database(self) -> FleetDatabase:
        if self.is_away:
            raise StateError("no database")
        self.opened.append(FleetDatabase(self.url))
        return self.opened[-1]

    def machine(self, name: str, wrong_s: float = 0.0) -> FleetAccounts:
        folder = self.folder / name
        return FleetAccounts(self.database, str(folder), clock=lambda: self.now + wrong_s)


@pytest.fixture
def fleet(server: Postgres, tmp_path: Path) -> Iterator[Fleet]:
    server.sql("DROP SCHEMA IF EXISTS segue CASCADE")
    made = Fleet(server.url(), tmp_path)
    yield made
    for each in made.opened:
        each.close()


def met(fleet: Fleet, *, after_s: float = HOUR_S, seen_s: float = 0.0) -> Limit:
    return Limit(
        scope="five_hour", resets_at=fleet.now + after_s, is_met=True, source="run", by="run-1",
        seen_at=fleet.now + seen_s,
    )  # fmt: skip


def the_account(home: str) -> Account:
    return account_of("claude", {"HOME": home, "ANTHROPIC_API_KEY": SECRET})


def test_a_limit_that_one_machine_meets_stops_another_and_one_goes_first_after_it(
    fleet: Fleet,
) -> None:
    one, two, account = fleet.machine("one"), fleet.machine("two"), the_account("/home/a")
    assert one.ask(account, "run-1", fleet.now).until is None
    assert two.ask(account, "run-2", fleet.now).until is None
    one.note_limit(account, met(fleet))
    answer = two.ask(account, "run-2", fleet.now)
    assert answer.until == pytest.approx(fleet.now + HOUR_S, abs=2)
    assert two.limited_until(account, fleet.now) == pytest.approx(fleet.now + HOUR_S, abs=2)
    later = fleet.now + HOUR_S + 60
    assert two.ask(account, "run-2", later).until is None
    assert one.ask(account, "run-1", later).follows
    two.replied(account, "run-2", later + 1)
    assert one.ask(account, "run-1", later + 1).until is None


def test_it_is_the_same_account_on_every_machine_and_another_one_is_not_limited(
    fleet: Fleet,
) -> None:
    one, two = fleet.machine("one"), fleet.machine("two")
    one.note_limit(the_account("/home/a"), met(fleet))
    assert two.ask(the_account("/root"), "run-2", fleet.now).until is not None
    other = account_of("claude", {"HOME": "/root", "ANTHROPIC_API_KEY": "another"})
    assert two.ask(other, "run-2", fleet.now).until is None


def test_no_key_name_or_path_of_an_account_reaches_the_database(fleet: Fleet) -> None:
    one = fleet.machine("one")
    one.note_limit(the_account("/home/a-persons-name"), met(fleet))
    rows = fleet.database().rows("SELECT id, agent, encode(data, 'escape') FROM segue.account")
    assert len(rows) == 1
    told = repr(rows)
    assert "run-1" in told
    for private in (SECRET, "a-persons-name", "/home"):
        assert private not in told


@pytest.mark.parametrize("wrong_s", [-600.0, 600.0])
def test_a_clock_that_is_ten_minutes_wrong_neither_hides_a_limit_nor_shortens_it(
    fleet: Fleet, wrong_s: float
) -> None:
    right, wrong, account = (
        fleet.machine("right"),
        fleet.machine("wrong", wrong_s),
        the_account("/a"),
    )
    right.note_limit(account, Limit(scope="five_hour", used_percent=90.0, seen_at=fleet.now))
    here = fleet.now + wrong_s
    wrong.note_limit(account, met(fleet, seen_s=wrong_s))
    assert right.ask(account, "run-1", fleet.now).until == pytest.approx(fleet.now + HOUR_S, abs=2)
    # By its own clock it waits as long as all others do.
    answer = wrong.ask(account, "run-2", here)
    assert answer.until == pytest.approx(here + HOUR_S, abs=2)
    assert wrong.ask(account, "run-2", here + HOUR_S - 60).until is not None
    assert wrong.ask(account, "run-2", here + HOUR_S + 60).until is None


def test_while_the_database_is_away_the_machine_goes_by_what_it_met_itself(fleet: Fleet) -> None:
    account = the_account("/a")
    fleet.is_away = True
    alone = fleet.machine("one")
    alone.note_limit(account, met(fleet))
    assert alone.ask(account, "run-1", fleet.now).until == fleet.now + HOUR_S
    assert Accounts(str(fleet.folder / "one")).limited_until(account, fleet.now) is not None


def test_an_account_that_has_spent_its_cap_waits_on_all_machines(fleet: Fleet) -> None:
    one, two, account = fleet.machine("one"), fleet.machine("two"), the_account("/a")
    db = fleet.database()
    accounts.set_cap(db, AccountCap(account=account.id, max_cost_usd=10.0))
    assert one.ask(account, "run-1", fleet.now).until is None
    for leg, cost in ((1, 6.0), (1, 6.0), (2, 3.0)):  # said twice, counted once
        one.record_spend(account.id, "run-1", leg, 1_000, cost)
    assert two.ask(account, "run-2", fleet.now).until is None
    two.record_spend(account.id, "run-2", 1, 1_000, 2.0)
    db.rows("UPDATE segue.spent SET at = at - interval '20 hours' WHERE leg = 1 AND cost_usd = 6")
    answer = one.ask(account, "run-1", fleet.now)
    assert answer.scope == "max_cost_usd"
    assert answer.until == pytest.approx(fleet.now + 4 * HOUR_S, abs=60)
    assert two.limited_until(account, fleet.now) == pytest.approx(answer.until, abs=2)
    (cap,) = accounts.caps(db)
    assert cap.cost_usd == 11.0
    accounts.set_cap(db, AccountCap(account=account.id))
    assert one.ask(account, "run-1", fleet.now).until is None


def test_forgotten_limits_are_forgotten_on_all_machines(fleet: Fleet) -> None:
    one, two, account = fleet.machine("one"), fleet.machine("two"), the_account("/a")
    one.note_limit(account, met(fleet))
    assert two.clear() == [account.id]
    assert one.ask(account, "run-1", fleet.now).until is None  # although its own file has it


def test_what_the_daemon_of_a_machine_met_is_told_to_the_fleet_by_the_next_run(
    fleet: Fleet,
) -> None:
    account = the_account("/a")
    Accounts(str(fleet.folder / "one")).note_limit(account, met(fleet))
    one, two = fleet.machine("one"), fleet.machine("two")
    assert one.limited_until(account, fleet.now) is not None
    assert one.ask(account, "run-1", fleet.now).until is not None
    assert two.ask(account, "run-2", fleet.now).until is not None
