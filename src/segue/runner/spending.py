"""What a session has cost so far, by its own records."""

import os

from segue import agents
from segue.agents.counters.base import Tally
from segue.core.ledger import Ledger
from segue.core.spend import Spend
from segue.transcripts import database, find, scan


def spent(agent: str, path: str, session_id: str) -> dict[str, Spend]:
    """Tokens by model; nothing if it cannot be read. Sub-agents' files are not in it."""
    try:
        if agents.stores()[agent].database:
            found: dict[str, Spend] = {}
            for model, spend in database.spent(path, session_id):
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
    """All kinds, all models."""
    return sum(each.total_tokens for each in spend.values())


def cost_of(spend: dict[str, Spend]) -> float:
    """At the API's list prices, of the models that are on the list."""
    from segue.io import prices  # slow, and only needed where something was spent

    costs = [prices.cost_usd(model, tokens) for model, tokens in spend.items()]
    return float(sum(cost for cost in costs if cost is not None))
