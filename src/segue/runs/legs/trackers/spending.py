"""Computes what a session has cost so far, from its own records."""

import os
from collections.abc import Iterable
from pathlib import Path

from segue import agents
from segue.agents.contracts.counter import Tally
from segue.core.sessions.ledger import Ledger
from segue.core.sessions.spend import Spend
from segue.runs.folders import read, read_json
from segue.runs.legs.follower import LegFollower
from segue.sessions import database, find
from segue.sessions.count import scan

INHERITED = "inherited"
"""A file in a leg's folder: what was spent in its session before the run continued it."""


def spend_by_model(agent: str, path: str, session_id: str) -> dict[str, Spend]:
    """Tokens by model; empty if unreadable. Without sub-agents' files."""
    try:
        if agents.stores()[agent].database:
            found: dict[str, Spend] = {}
            for model, spend in database.spend_by_model(path, session_id):
                found[model] = found.get(model, Spend()) + spend
            return found
        count = agents.counter(agent)
        if count is None:
            return {}
        ledger = Ledger()
        handle = find.open_file(path)
        try:
            scan.feed(handle, 0, os.fstat(handle).st_size, count(Tally(), ledger))
        finally:
            os.close(handle)
        return ledger.totals()
    except (OSError, KeyError, database.Unreadable):
        return {}


def tokens_of(spend: dict[str, Spend]) -> int:
    """The sum over all kinds of tokens and all models."""
    return sum(each.total_tokens for each in spend.values())


def cost_of(spend: dict[str, Spend]) -> float:
    """The cost at the API's list prices, for models on the list."""
    from segue.system.config import prices  # slow, and only needed if something was spent

    costs = [prices.cost_usd(model, tokens) for model, tokens in spend.items()]
    prices.keep([*spend])  # the next leg or run has the same models
    return float(sum(cost for cost in costs if cost is not None))


def of_leg(agent: str, follower: LegFollower, earlier: Iterable[Path]) -> tuple[int, float]:
    """Tokens and dollars of a leg so far. `earlier` are the folders of the previous legs, which say
    what they spent in the same session. What others spent in it before does not count for this
    run."""
    own = Path(follower.leg.folder)
    total = spend_by_model(agent, follower.file.path, follower.session_id)
    tokens, cost = tokens_of(total), 0.0
    mine = [folder for folder in earlier if read(folder / "session") == follower.session_id]
    before = [read_json(folder / "spent") or [0, 0.0] for folder in mine]
    before += [found for folder in (*mine, own) if (found := read_json(folder / INHERITED))]
    tokens = max(0, tokens - sum(one[0] for one in before))
    if tokens:
        cost = max(0.0, cost_of(total) - sum(one[1] for one in before))
    return tokens, cost
