"""Builds the messages for sessions in terminals, from the user's own templates or the built-in
ones."""

from pathlib import Path

from segue.core.handoffs import prompts as continuation
from segue.core.sessions.reading import Reading
from segue.core.stops.reasons import StopReason
from segue.system.config import prompts

_TYPED = (continuation.RESUME, continuation.HANDOFF_REQUEST, continuation.HANDOFF_RESUME)
_MIN_CHARS = 20  # a template that says less by itself is not recognised


class Messages:
    """All templates, loaded and checked. `own`: the user's templates, by name. Raises
    ConfigError."""

    def __init__(self, own: dict[str, Path]) -> None:
        self.templates = {name: prompts.load(name, own.get(name)) for name in continuation.NAMES}
        self._pieces = [_pieces(self.templates[name]) for name in _TYPED]

    def is_own(self, text: str) -> bool:
        """Whether this text is one of segue's own messages, whatever its placeholders contain,
        and not the user's."""
        plain = " ".join(text.split())
        return any(_has_all(plain, pieces) for pieces in self._pieces)

    def large_task(self, reading: Reading, *, task_tokens: int, max_tokens: int) -> str:
        """The message before a task that is too large for the rest of the window."""
        return continuation.large_task(
            self.templates[continuation.LARGE_TASK],
            percent=reading.percent,
            task_tokens=task_tokens,
            max_tokens=max_tokens,
        )

    def high_context(self, reading: Reading) -> str:
        """The reminder in the critical zone."""
        return continuation.high_context(
            self.templates[continuation.HIGH_CONTEXT],
            percent=reading.percent,
            used_tokens=reading.used_tokens,
            window_tokens=reading.window_tokens,
        )

    def handoff_request(self, *, percent: float, file: str) -> str:
        """The request for the document."""
        template = self.templates[continuation.HANDOFF_REQUEST]
        return continuation.handoff_request(template, percent=percent, file=file)

    def recall(self, known: str) -> str:
        """What the agent's own compaction left out."""
        return continuation.after_compaction(
            self.templates[continuation.AFTER_COMPACTION], known=known
        )

    def handoff_resume(
        self,
        *,
        file: str,
        reason: StopReason = StopReason.CONTEXT_EXHAUSTED,
        call_in_doubt: str | None = None,
        relay: continuation.Relay | None = None,
    ) -> str:
        """The first prompt of the session that continues."""
        template = self.templates[continuation.HANDOFF_RESUME]
        return continuation.handoff_resume(
            template, file=file, reason=reason, call_in_doubt=call_in_doubt, relay=relay
        )

    def resume(self, *, reason: StopReason, leg: int, call_in_doubt: str | None) -> str:
        """The prompt of a session that is resumed after a stop."""
        return continuation.resume(
            self.templates[continuation.RESUME],
            reason=reason,
            leg=leg,
            call_in_doubt=call_in_doubt,
        )


def _pieces(template: str) -> list[str]:
    """The fixed parts of a template, between its placeholders."""
    mark = "\0"
    blanks = {name: mark for names in continuation.NAMES.values() for name in names}
    blanks |= {name: mark for names in continuation.OPTIONAL.values() for name in names}
    parts = continuation.fill(template, blanks).split(mark)
    return [plain for part in parts if (plain := " ".join(part.split()))]


def _has_all(text: str, pieces: list[str]) -> bool:
    place = 0
    for piece in pieces:
        place = text.find(piece, place)
        if place < 0:
            return False
        place += len(piece)
    return sum(map(len, pieces)) >= _MIN_CHARS
