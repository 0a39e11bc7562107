"""Many machines, one queue: the store and the queue are in a PostgreSQL database that all machines
can reach."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from segue.fleet.machines import Offer, Pulse
    from segue.queue.port import Queue
    from segue.runs.store.port import Holder, Store
    from segue.system.accounts import Accounts

VARIABLE = "SEGUE_FLEET"


def url(env: Mapping[str, str] | None = None) -> str:
    """The URL of the fleet's database, or "" if this machine is not in a fleet. The environment
    takes precedence over `[fleet]` in the user's file. Raises ConfigError."""
    given = (os.environ if env is None else env).get(VARIABLE, "")
    if given:
        return given
    from segue.system.config import config

    return config.fleet().url


def open_store(beside: "Queue | None" = None) -> "Store":
    """Opens the store of runs: the fleet's, or this machine's own. `beside` is a queue whose
    connection the store can share. Raises StateError, ConfigError."""
    from segue.runs import store

    if not (where := url()):
        return store.open_store()
    from segue.fleet.database import FleetDatabase
    from segue.fleet.store import PostgresStore

    return PostgresStore(where, beside=beside if isinstance(beside, FleetDatabase) else None)


def driver(store: "Store", run_id: str) -> "Holder | None":
    """The live process that drives a run now, on any machine. Raises StateError."""
    from segue.runs.store import leases
    from segue.runs.store.port import run_key

    holder = store.holder(run_key(run_id))
    if holder is None or not leases.is_alive(holder):
        return None
    if holder.machine == leases.machine() or not url():
        return holder
    from segue.fleet import machines
    from segue.fleet.database import FleetDatabase

    if isinstance(store, FleetDatabase) and not machines.may_live(store, holder, run_id):
        return None
    return holder


def open_queue() -> "Queue":
    """Opens the queue of tasks: the fleet's, or this machine's own. Raises StateError,
    ConfigError."""
    from segue import queue

    if not (where := url()):
        return queue.open_queue()
    from segue.fleet.queue import PostgresQueue

    return PostgresQueue(where)


def open_accounts(beside: "Queue | None" = None) -> "Accounts":
    """The accounts and their limits: the fleet's, or this machine's own. Opens nothing yet.
    `beside` is a queue whose connection they can share."""
    from segue.errors import ConfigError
    from segue.system.accounts import Accounts

    try:
        where = url()
    except ConfigError:  # callers that need the fleet report it
        where = ""
    if not where:
        return Accounts()
    from segue.fleet.accounts import FleetAccounts
    from segue.fleet.database import FleetDatabase

    shared = beside if isinstance(beside, FleetDatabase) else None
    return FleetAccounts(lambda: FleetDatabase(where, beside=shared))


def offer(jobs: int, env: Mapping[str, str]) -> "Offer":
    """What this machine offers to tasks. Raises ConfigError."""
    from segue.fleet.machines import Offer
    from segue.runs.starting import installed_agents
    from segue.system.accounts import account_of
    from segue.system.config import config, settings

    installed_agents.register(settings.load("/", env))
    agents = tuple(installed_agents.installed(env))
    accounts = tuple(dict.fromkeys(account_of(name, env).id for name in agents))
    labels = config.fleet().labels
    return Offer(labels=labels, agents=agents, accounts=accounts, jobs=jobs)


def pulse() -> "Pulse":
    """Makes what sends this machine's heartbeats. Raises ConfigError."""
    from segue.fleet.database import FleetDatabase
    from segue.fleet.leash import Leash
    from segue.fleet.machines import Pulse
    from segue.runs.store import leases
    from segue.system.config import config

    where = url()
    return Pulse(
        lambda: FleetDatabase(where),
        leases.machine(),
        lease_s=config.fleet().lease_s,
        leash=Leash(),
        boot=leases.here().boot,
    )
