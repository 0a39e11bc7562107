"""What sessions in terminals are told, by the user's own templates or ours."""

from pathlib import Path

from segue.core import continuation
from segue.core.reading import Reading
from segue.core.stop import StopReason
from segue.io import prompts


class Messages:
    """All templates, loaded and tried. `own`: the user's, by name. Raises ConfigError."""

    def __init__(self, own: dict[str, Path]) -> None:
        self.templates = {name: prompts.load(name, own.get(name)) for name in continuation.NAMES}

    def large_task(self, reading: Reading, *, task_tokens: int, most_tokens: int) -> str:
        """Before a task that is too large for what is left."""
        return continuation.large_task(
            self.templates[continuation.LARGE_TASK],
            percent=reading.percent,
            task_tokens=task_tokens,
            most_tokens=most_tokens,
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
        """What asks for the document."""
        template = self.templates[continuation.HANDOFF_REQUEST]
        return continuation.handoff_request(template, percent=percent, file=file)

    def handoff_resume(
        self,
        *,
        file: str,
        reason: StopReason = StopReason.CONTEXT_EXHAUSTED,
        call_in_doubt: str | None = None,
    ) -> str:
        """The first words of the session that goes on."""
        template = self.templates[continuation.HANDOFF_RESUME]
        return continuation.handoff_resume(
            template, file=file, reason=reason, call_in_doubt=call_in_doubt
        )

    def resume(self, *, reason: StopReason, leg: int, call_in_doubt: str | None) -> str:
        """What a session is told when it goes on after a stop."""
        return continuation.resume(
            self.templates[continuation.RESUME],
            reason=reason,
            leg=leg,
            call_in_doubt=call_in_doubt,
        )
