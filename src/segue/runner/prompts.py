"""What a leg is told, by what was decided."""

from pathlib import Path

import msgspec

from segue.core import continuation
from segue.core.checkpoint import Checkpoint
from segue.core.run import Run, StartLeg
from segue.core.stop import StopReason
from segue.io import prompts

_CHECK_CHARS = 12_000


class Prompts:
    """All templates, loaded and tried before anything is started. `own`: the user's, by name.
    Raises ConfigError."""

    def __init__(self, own: dict[str, Path]) -> None:
        self.templates = {name: prompts.load(name, own.get(name)) for name in continuation.NAMES}

    def request(self) -> str:
        """What asks a session for its checkpoint."""
        return continuation.request(self.templates[continuation.REQUEST])

    def of(
        self,
        run: Run,
        decision: StartLeg,
        *,
        checkpoint: Checkpoint | None,
        doubt: str | None,
        checked: tuple[int, str],
    ) -> str:
        """For this leg. `doubt`: the last tool call, if nobody knows whether it was done;
        `checked`: the exit code of the user's check, and what it printed."""
        match decision.prompt:
            case "task":
                return run.task
            case "checkpoint":
                return self.request()
            case "resume":
                return continuation.resume(
                    self.templates[continuation.RESUME],
                    reason=run.why or StopReason.UNKNOWN,
                    leg=decision.leg,
                    call_in_doubt=doubt,
                )
            case "check":
                told = continuation.check_failed(
                    self.templates[continuation.CHECK_FAILED],
                    command=run.check,
                    exit_code=checked[0],
                    output=checked[1][-_CHECK_CHARS:],
                    leg=decision.leg,
                )
                # A new session knows nothing: it needs the task too.
                if decision.session_id:
                    return told
                return f"{self._whole(run, decision, checkpoint, doubt)}\n\n{told}"
            case "continuation":
                return self._whole(run, decision, checkpoint, doubt)

    def _whole(
        self, run: Run, decision: StartLeg, checkpoint: Checkpoint | None, doubt: str | None
    ) -> str:
        """The task, and what is known of the work so far: all, without the agent's own words, or
        nothing."""
        given = checkpoint if decision.strategy != "minimal" else None
        if decision.strategy == "rules" and given is not None:
            given = msgspec.structs.replace(given, told=None)
        return continuation.continuation(
            self.templates[continuation.CONTINUATION],
            task=run.task,
            checkpoint=given,
            reason=run.why or StopReason.CONTEXT_EXHAUSTED,
            leg=decision.leg,
            call_in_doubt=doubt,
        )
