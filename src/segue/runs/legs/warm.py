"""Loads the price list while the agent works, so that its import does not pass between the
agent's exit and the decision. Wordings are not prepared: most legs leave no text to read, and a
few texts need only a few of them."""

import threading
from contextlib import suppress


class Warm:
    """Loads once, in its own thread; whoever needs the result waits until it is done."""

    def __init__(self) -> None:
        self._thread = threading.Thread(target=_load, daemon=True)

    def begin(self) -> None:
        """Starts loading in the background."""
        if self._thread.ident is None:
            self._thread.start()

    def wait(self) -> None:
        """Waits until everything is loaded; returns at once if loading was never started."""
        if self._thread.ident is not None:
            self._thread.join()


def _load() -> None:
    from segue.core.sessions.spend import Spend
    from segue.system.config import prices

    with suppress(Exception):  # a problem is reported where it matters
        prices.cost_usd("claude-sonnet-4-5", Spend(input_tokens=1))  # any model on the list
