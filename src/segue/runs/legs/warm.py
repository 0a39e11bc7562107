"""Loads what the first verdict needs while the agent works: half a second of imports and
patterns that would otherwise pass between the agent's exit and the decision."""

import threading
from contextlib import suppress
from typing import get_args

from segue.core.policy import Policy


class Warm:
    """Begun once, in a thread of its own; whoever needs it waits until it is done."""

    def __init__(self, policy: Policy) -> None:
        self._thread = threading.Thread(target=_load, args=(policy,), daemon=True)

    def begin(self) -> None:
        """From now on, beside everything else."""
        if self._thread.ident is None:
            self._thread.start()

    def wait(self) -> None:
        """Until all is loaded; not at all if it was never begun."""
        if self._thread.ident is not None:
            self._thread.join()


def _load(policy: Policy) -> None:
    from segue import api
    from segue.core.sessions.spend import Spend
    from segue.core.stops.wordings import Where
    from segue.system.config import prices

    with suppress(Exception):  # whatever is wrong is said where it is needed
        catalogue = api.load_catalogue(policy.exit_patterns)
        for where in get_args(Where):
            catalogue.find("x", where)  # compiles its patterns
        prices.cost_usd("claude-sonnet-4-5", Spend(input_tokens=1))  # any that is on the list
