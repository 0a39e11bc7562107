"""Loads the price list while the agent works, so that its import does not pass between the
agent's exit and the decision. Wordings are not prepared: most legs leave no text to read, and a
few texts need only a few of them."""

import threading
from contextlib import suppress


class Warm:
    """Begun once, in a thread of its own; whoever needs it waits until it is done."""

    def __init__(self) -> None:
        self._thread = threading.Thread(target=_load, daemon=True)

    def begin(self) -> None:
        """From now on, beside everything else."""
        if self._thread.ident is None:
            self._thread.start()

    def wait(self) -> None:
        """Until all is loaded; not at all if it was never begun."""
        if self._thread.ident is not None:
            self._thread.join()


def _load() -> None:
    from segue.core.sessions.spend import Spend
    from segue.system.config import prices

    with suppress(Exception):  # whatever is wrong is said where it is needed
        prices.cost_usd("claude-sonnet-4-5", Spend(input_tokens=1))  # any that is on the list
