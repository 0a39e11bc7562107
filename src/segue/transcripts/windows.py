"""How large windows are believed to be (design rule 2), and where agents act by themselves."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from segue import agents
from segue.agents.fields import obj
from segue.agents.profile import Profile
from segue.core.glance import Window, believed_window
from segue.core.policy import Policy
from segue.core.session import Look
from segue.transcripts import find
from segue.transcripts.find import profile_of


class Windows:
    """Remembers what agents' own config files said. `price_window` looks a model up in the price
    list, which is slow."""

    def __init__(
        self,
        policy: Policy,
        environment: Mapping[str, str],
        price_window: Callable[[str], int | None] = lambda model: None,
    ) -> None:
        self.policy, self.environment, self.price_window = policy, environment, price_window
        self.configured: dict[tuple[str, str, str], int | None] = {}

    def of(self, agent: str, told: Look) -> tuple[Window, int | None]:
        """How large the window is believed to be, and where the agent itself acts."""
        profile = profile_of(agent)
        priced, said = None, told.told_window_tokens
        own = profile.windows if profile is not None else {}
        if not said and profile is not None and profile.window_in is not None:
            said = self._configured(profile, told)
        if not said and told.model and "" not in own:
            priced = self.price_window(told.model)
        window = believed_window(
            told_tokens=said,
            accepted_tokens=told.accepted_tokens,
            model=told.model,
            configured=self.policy.known_windows,
            agents_own=own,
            priced_tokens=priced,
            default_tokens=self.policy.default_window_tokens,
        )
        return window, self.enforced(agent, window.tokens)

    def enforced(self, agent: str, window_tokens: int) -> int | None:
        """The point at which the agent itself compacts or refuses, if it does."""
        profile = profile_of(agent)
        return profile.enforced(window_tokens) if profile is not None else None

    def _configured(self, profile: Profile, told: Look) -> int | None:
        """What the agent's own config says; files that are not plain JSON are passed over."""
        asked = (profile.name, told.model, told.cwd)
        if asked not in self.configured:
            self.configured[asked] = None
            for place in agents.stores()[profile.name].configs:
                file = find.filled(place.replace("{cwd}", told.cwd), self.environment)
                try:
                    config = json.loads(Path(file).read_text(encoding="utf-8"))
                except (OSError, ValueError, RecursionError):
                    continue
                found = profile.window_in(obj(config), told.model) if profile.window_in else None
                if found:
                    self.configured[asked] = found
                    break
        return self.configured[asked]
