"""Markdown session files with YAML front matter (seed 000 AC3).

A workflow keeps its progress in the front matter: `stepsCompleted`, `lastStep`, `totalSteps`,
`status`. `lastStep` is the last step that was *executed*, so a count that equals it proves
nothing: complete means that the status says so, or that every step is done.
"""

import re
from typing import Any

from msgspec import Struct

_FRONT = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.*?)\r?\n(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.S)
_STEP_NUMBER = re.compile(r"(?i)^(?:step|phase|task)?[-_ .#]*0*(\d{1,4})(?:\b|[-_])")
_DONE = {"complete", "completed", "done", "finished"}


class Workflow(Struct, frozen=True, kw_only=True):
    """A workflow's progress as its front matter tells it."""

    steps_done: tuple[str, ...] = ()
    total_steps: int | None = None
    step_names: tuple[str, ...] = ()  # when the file lists all steps by name
    last_step: str = ""
    status: str = ""
    has_steps: bool = False  # it tells of steps, if only that none is done; not of a status alone

    @property
    def is_complete(self) -> bool:
        """Every step is done, or the status says so; a count that happens to match is not it."""
        if self.status in _DONE:
            return True
        if self.step_names:
            return set(self.step_names) <= set(self.steps_done)
        if self.total_steps is None or self.total_steps < 1:
            return False
        numbers = {_number(step) for step in self.steps_done}
        return set(range(1, self.total_steps + 1)) <= numbers


def workflow(text: str) -> Workflow | None:
    """The workflow of a Markdown session file; None if it has no readable front matter."""
    found = _FRONT.match(text)
    if found is None:
        return None
    import yaml

    try:
        data: Any = yaml.safe_load(found[1])
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or not {"stepsCompleted", "lastStep", "status"} & data.keys():
        return None
    total = data.get("totalSteps")
    done = data.get("stepsCompleted")
    return Workflow(
        steps_done=_names(done),
        total_steps=total if isinstance(total, int) and not isinstance(total, bool) else None,
        step_names=_names(total),
        last_step=next(iter(_names([data.get("lastStep")])), ""),
        status=next(iter(_names([data.get("status")])), "").strip().lower(),
        has_steps=bool({"stepsCompleted", "lastStep", "totalSteps"} & data.keys()),
    )


def _names(value: Any) -> tuple[str, ...]:
    """Plain names and numbers only: what nested aliases stand for may be without end."""
    items = value if isinstance(value, list) else ()
    return tuple(str(item) for item in items if isinstance(item, str | int))


def body(text: str) -> str:
    """The file without its front matter."""
    found = _FRONT.match(text)
    return text[found.end() :] if found else text


def _number(step: str) -> int | None:
    found = _STEP_NUMBER.match(step.strip())
    return int(found[1]) if found else None
