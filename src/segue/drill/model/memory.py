"""What a conversation says about the job: the only thing that an honest model acts on. Pure."""

import re
from collections.abc import Sequence

from msgspec import Struct

from segue.drill.model.ask import Part

_MARKER = re.compile(r"\bstep ([1-9][0-9]{0,3}) of ([1-9][0-9]{0,3}) done\b")
_STEP = re.compile(r"\bjob/step ([1-9][0-9]{0,3})\b")
_SHOW = "job/show"
_TRIES = 3  # then the model gives up, as a real one would

_BROKEN = re.compile(
    r"""\b(?:interrupted|aborted|cancell?ed|killed|terminated|timed\ out|crashed|cut\ off)\b
      | no\ result\ provided | before\ this\ call | doesn't\ want\ to\ proceed
      | exit(?:ed)?(?:\ with)?(?:\ code|\ status)?:?\ -?[1-9] | exit_code\W+-?[1-9]""",
    re.IGNORECASE | re.VERBOSE,
)
"""Phrases with which agents and supervisors describe a call or a session that was cut off."""


class ModelMemory(Struct, frozen=True):
    """What the model knows from the conversation, and what it tried for the next step."""

    known: frozenset[int] = frozenset()
    should_look: bool = False  # something broke, so only the repository knows what is done
    tried: tuple[str, ...] = ()  # the calls of the next step so far

    def is_stuck_with(self, command: str) -> bool:
        """Whether the model has tried this call so often that it gives up."""
        return self.tried.count(command) >= _TRIES


def recall(parts: Sequence[Part], steps: int) -> ModelMemory:
    """What the model knows from a conversation about a job of so many steps."""
    known = frozenset(
        int(number)
        for part in parts
        for number, of in _MARKER.findall(part.text)
        if int(of) == steps and int(number) <= steps
    )
    place, command = _last_command(parts)
    last = _STEP.search(command)
    after = [part for part in parts[place + 1 :] if part.role in ("user", "tool")]
    prompts = [part for part in after if part.role == "user"]
    if place < 0:
        # Only the newest message counts: an agent's standing instructions may contain such phrases
        # too.
        prompts = prompts[-1:]
    elif last and int(last[1]) not in known:
        prompts = after
    should_look = any(map(_is_broken, prompts))
    step = min(set(range(1, steps + 1)) - known, default=0)
    tried = tuple(
        call.command
        for part in parts
        for call in part.calls
        if (found := _STEP.search(call.command)) is not None and int(found[1]) == step
    )
    return ModelMemory(known, should_look, tried)


def _last_command(parts: Sequence[Part]) -> tuple[int, str]:
    """The last call of the job: the index of its part and its command; (-1, "") if there is
    none."""
    for place in range(len(parts) - 1, -1, -1):
        for call in reversed(parts[place].calls):
            if _STEP.search(call.command) or _SHOW in call.command:
                return place, call.command
    return -1, ""


def _is_broken(part: Part) -> bool:
    return part.is_error or _BROKEN.search(part.text) is not None
