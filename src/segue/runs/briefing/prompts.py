"""Builds the prompt of a leg from the decision to start it."""

from pathlib import Path

import msgspec

from segue.core.handoffs import prompts as continuation
from segue.core.handoffs.checkpoint import Checkpoint
from segue.core.handoffs.digest import budget_chars
from segue.core.runs import outcomes
from segue.core.runs.types import Run, StartLeg
from segue.core.stops.reasons import StopReason
from segue.system.config import prompts

_CHECK_CHARS = 12_000


class Prompts:
    """All templates, loaded and checked before anything is started. `own`: the user's templates,
    by name. Raises ConfigError."""

    def __init__(self, own: dict[str, Path]) -> None:
        self.templates = {name: prompts.load(name, own.get(name)) for name in continuation.NAMES}

    def request(self, run: Run, why: StopReason | None = None) -> str:
        """The request for a checkpoint."""
        return continuation.request(
            self.templates[continuation.REQUEST],
            why=why,
            max_tokens=run.policy.checkpoint_tokens,
        )

    def of(
        self,
        run: Run,
        decision: StartLeg,
        *,
        checkpoint: Checkpoint | None,
        doubt: str | None,
        printed: str = "",
        checked: tuple[int, str],
        forgotten: str = "",
        relay: continuation.Relay | None = None,
    ) -> str:
        """The prompt of this leg. `doubt`: the last tool call, if its result is unknown. `printed`:
        what segue saw of that result all the same, which a resumed session may lack. `checked`: the
        exit code and output of the user's check. `forgotten`: what the session's own compaction
        left out and it has not been told since. `relay`: another agent worked on the run before."""
        is_recall = forgotten != "" and decision.prompt == "recall"
        if is_recall:
            prompt = self.recall(forgotten, moment="done")
        else:
            prompt = self._of(run, decision, checkpoint, doubt, printed, checked, relay)
        if decision.session_id and decision.purpose == "work":
            prompt = continuation.with_user_words(prompt, run.unanswered_additions)
        return f"{self.recall(forgotten)}\n{prompt}" if forgotten and not is_recall else prompt

    def recall(self, known: str, *, moment: continuation.RecallMoment = "resumed") -> str:
        """Tells a session what its own compaction left out."""
        template = self.templates[continuation.AFTER_COMPACTION]
        return continuation.after_compaction(template, known=known, moment=moment)

    def _of(
        self,
        run: Run,
        decision: StartLeg,
        checkpoint: Checkpoint | None,
        doubt: str | None,
        printed: str,
        checked: tuple[int, str],
        relay: continuation.Relay | None,
    ) -> str:
        match decision.prompt:
            case "task":
                return continuation.with_user_words(run.task, run.additions)
            case "checkpoint":
                return self.request(run, run.why)
            case "resume" | "recall":
                return continuation.resume(
                    self.templates[continuation.RESUME],
                    reason=run.why or StopReason.UNKNOWN,
                    leg=decision.leg,
                    call_in_doubt=doubt,
                    printed=printed,
                    changed=_changed(run, decision),
                )
            case "check":
                prompt = continuation.check_failed(
                    self.templates[continuation.CHECK_FAILED],
                    command=run.check,
                    exit_code=checked[0],
                    output=checked[1][-_CHECK_CHARS:],
                    leg=decision.leg,
                )
                # A new session knows nothing: it needs the task too.
                if decision.session_id:
                    return prompt
                return f"{self._whole(run, decision, checkpoint, doubt, relay)}\n\n{prompt}"
            case "continuation":
                return self._whole(run, decision, checkpoint, doubt, relay)

    def _whole(
        self,
        run: Run,
        decision: StartLeg,
        checkpoint: Checkpoint | None,
        doubt: str | None,
        relay: continuation.Relay | None,
    ) -> str:
        """The task and what is known about the work so far: all of it, all but the agent's own
        words, or nothing."""
        given = checkpoint if decision.strategy != "minimal" else None
        if decision.strategy == "rules" and given is not None:
            given = msgspec.structs.replace(given, summary=None)
        return continuation.continuation(
            self.templates[continuation.CONTINUATION],
            task=continuation.with_user_words(run.task, run.additions),
            checkpoint=given,
            reason=run.why or StopReason.UNKNOWN,
            leg=decision.leg,
            call_in_doubt=doubt,
            max_chars=budget_chars(given.window_tokens if given else 0),
            circles=outcomes.circles(run.circles) if run.circles else "",
            relay=relay,
            changed=_changed(run, decision),
        )


def _changed(run: Run, decision: StartLeg) -> str:
    """What changed in the tree between the rescued session and the first leg."""
    return run.origin.changed if run.origin is not None and decision.leg == 1 else ""
