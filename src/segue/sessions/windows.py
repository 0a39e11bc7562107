"""How large windows are assumed to be, and where agents compact or refuse by themselves."""

import json
from collections.abc import Callable, Mapping

from segue import agents
from segue.agents.contracts.profile import Profile
from segue.agents.shared.fields import obj
from segue.core.policy import Policy
from segue.core.sessions.types import Look
from segue.core.sessions.windows import Window, believed_window
from segue.sessions import find
from segue.sessions.find import profile_of
from segue.system.files.files import read_plain

_MAX_CONFIG_BYTES = 4_000_000


PriceWindow = Callable[[str], int | None]
"""The window of a model according to the price list; None if the model is not on it."""


def priced_window(model: str) -> int | None:
    """The model's window by the installed price list, which takes a quarter of a second to load."""
    from segue.system.config import prices

    return prices.window_tokens(model)


class Windows:
    """Caches what agents' own config files say. `price_window` is called only if nothing else
    states the size of a window."""

    def __init__(
        self, environment: Mapping[str, str], price_window: PriceWindow = priced_window
    ) -> None:
        self.environment, self.price_window = environment, price_window
        self.configured: dict[tuple[str, str, str], int | None] = {}

    def of(self, agent: str, look: Look, policy: Policy) -> tuple[Window, int | None]:
        """The size that the model's window is assumed to have, and where the agent itself compacts
        or refuses, if it does."""
        profile = profile_of(agent)
        priced, stated = None, look.told_window_tokens
        own = profile.windows if profile is not None else {}
        if not stated and profile is not None and profile.window_in is not None:
            stated = self._configured(profile, look)
        if not stated and look.model and "" not in own:
            priced = self.price_window(look.model)
        window = believed_window(
            told_tokens=stated,
            accepted_tokens=look.accepted_tokens,
            model=look.model,
            configured=policy.known_windows,
            agents_own=own,
            priced_tokens=priced,
            default_tokens=policy.default_window_tokens,
        )
        return window, profile.enforced(window.tokens) if profile is not None else None

    def _configured(self, profile: Profile, look: Look) -> int | None:
        """What the agent's own config says; files that are not plain JSON are skipped."""
        asked = (profile.name, look.model, look.cwd)
        if asked not in self.configured:
            self.configured[asked] = None
            for place in agents.stores()[profile.name].configs:
                file = find.filled(place.replace("{cwd}", look.cwd), self.environment)
                try:
                    config = json.loads(read_plain(file, _MAX_CONFIG_BYTES))
                except (OSError, ValueError, RecursionError):
                    continue
                found = profile.window_in(obj(config), look.model) if profile.window_in else None
                if found:
                    self.configured[asked] = found
                    break
        return self.configured[asked]
