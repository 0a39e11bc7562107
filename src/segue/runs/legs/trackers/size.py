"""Tracks how full a leg's session is, from whichever source reported it last."""

from segue.agents.shared.live import Live
from segue.core.policy import Policy
from segue.core.sessions.reading import Reading
from segue.core.sessions.types import Look
from segue.sessions.windows import Windows


class ContextSize:
    """Turns the sizes that a leg's stream and session file report into readings, with the window
    that the model is assumed to have."""

    def __init__(self, agent: str, windows: Windows, *, cwd: str, policy: Policy) -> None:
        self._agent, self._windows, self._cwd, self._policy = agent, windows, cwd, policy
        self._model = ""
        self._accepted = 0  # the largest size that the window was seen to hold
        self._last: tuple[int, int] | None = None  # the last size and window reported

    def accept(self, tokens: int) -> None:
        """Records that the window holds at least this much."""
        self._accepted = max(self._accepted, tokens)

    def read(
        self,
        used: int,
        window_tokens: int | None,
        model: str | None,
        now: float,
        *,
        live: Live,
        session_id: str,
        in_file: bool = False,
    ) -> tuple[Reading, int | None] | None:
        """The reading, and where the agent itself compacts or refuses, if it does; None if the last
        one was the same. `live` is the stream, for what this size does not say itself."""
        self._model = model or live.model or self._model
        self.accept(used)
        stated = window_tokens or (live.reading.window_tokens if live.reading else None)
        look = Look(
            session_id=session_id,
            cwd=self._cwd,
            model=self._model,
            told_window_tokens=stated,
            accepted_tokens=self._accepted,
        )
        window, enforced = self._windows.of(self._agent, look, self._policy)
        if (used, window.tokens) == self._last:
            return None
        self._last = (used, window.tokens)
        reading = Reading(
            input_tokens=used,
            window_tokens=window.tokens,
            source="transcript" if in_file else "stream",
            at=now,
        )
        return reading, enforced
