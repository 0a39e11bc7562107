"""Markdown session files with YAML front matter.

A workflow keeps its progress in the front matter: `stepsCompleted`, `lastStep`, `totalSteps`,
`status`. `lastStep` is the last step that was *executed*, so a count that equals it proves
nothing: complete means that the status says so, or that every step is done.
"""

import re
from typing import Any

from msgspec import Struct

_FRONT = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.*?)\r?\n(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.S)
_STEP_NUMBER = re.compile(r"(?i)^(?:step|phase|task)?[-_ .#]*0*(\d{1,4})(?:\b|[-_])")
_STEPS = re.compile(r"stepsCompleted|lastStep|status")
_BRACKETS = re.compile(r"[\[\]{}]")
_MAX_DEPTH = 20
_MAX_FRONT = 64_000  # characters; the YAML parser is pure Python, and slow
_MAX_STEPS = 1_000_000
_DONE = {"complete", "completed", "done", "finished"}


class Workflow(Struct, frozen=True, kw_only=True):
    """A workflow's progress, according to its front matter."""

    steps_done: tuple[str, ...] = ()
    total_steps: int | None = None
    step_names: tuple[str, ...] = ()  # if the file lists all steps by name
    status: str = ""
    has_steps: bool = False  # it mentions steps, even if none is done; a status alone is not enough

    @property
    def is_complete(self) -> bool:
        """Whether every step is done or the status says so. A count that happens to match proves
        nothing."""
        if self.status in _DONE:
            return True
        if self.step_names:
            return set(self.step_names) <= set(self.steps_done)
        if self.total_steps is None or self.total_steps < 1:
            return False
        numbers = {_number(step) for step in self.steps_done}
        if self.total_steps > len(numbers):
            return False
        return set(range(1, self.total_steps + 1)) <= numbers

    @property
    def next_step(self) -> str:
        """The next step; "" if all are done, or if it is unknown."""
        if self.is_complete or not self.has_steps:
            return ""
        if self.step_names:
            done = set(self.steps_done)
            return next((name for name in self.step_names if name not in done), "")
        numbers = [number for step in self.steps_done if (number := _number(step)) is not None]
        if not numbers and self.steps_done:
            return ""
        following = max(numbers, default=0) + 1
        if self.total_steps is None:
            return str(following)
        return f"{following} of {self.total_steps}" if following <= self.total_steps else ""


def is_session(text: str) -> bool:
    """Whether a text begins like a session's front matter, readable or not."""
    return text[:4].lstrip("\ufeff").startswith("---") and bool(_STEPS.search(text[:_MAX_FRONT]))


def workflow(text: str) -> Workflow | None:
    """The workflow of a Markdown session file; None if it has no readable front matter."""
    found = _FRONT.match(text)
    if found is None or len(found[1]) > _MAX_FRONT or not _STEPS.search(found[1]):
        return None
    if _depth(found[1]) > _MAX_DEPTH:
        return None
    try:
        data = _loaded(found[1])
    except Exception:  # a date without a day, a tag on the wrong thing: it can raise anything
        return None
    if not isinstance(data, dict) or not {"stepsCompleted", "lastStep", "status"} & data.keys():
        return None
    total = data.get("totalSteps")
    done = data.get("stepsCompleted")
    return Workflow(
        steps_done=_names(done),
        total_steps=total if _is_count(total) else None,
        step_names=_names(total),
        status=next(iter(_names([data.get("status")])), "").strip().lower(),
        has_steps=bool({"stepsCompleted", "lastStep", "totalSteps"} & data.keys()),
    )


def _loaded(front: str) -> Any:
    """The content of the YAML without merges, a few lines of which can make gigabytes."""
    import yaml

    class Loader(yaml.SafeLoader):
        def flatten_mapping(self, node: Any) -> None:
            node.value = [pair for pair in node.value if pair[0].tag != "tag:yaml.org,2002:merge"]

    return yaml.load(front, Loader)  # noqa: S506 - a safe one


def _depth(text: str) -> int:
    """The deepest nesting of brackets; the parser's time is quadratic in it."""
    depth = most = 0
    for char in _BRACKETS.findall(text):
        depth = depth + 1 if char in "[{" else max(0, depth - 1)
        most = max(most, depth)
    return most


def _names(value: Any) -> tuple[str, ...]:
    """Only plain names and numbers, because nested aliases may be endless."""
    items = value if isinstance(value, list) else ()
    return tuple(str(item) for item in items if isinstance(item, str | bool) or _is_count(item))


def _is_count(value: Any) -> bool:
    """Whether this can be a number of steps; one with thousands of digits cannot."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return is_whole and abs(value) <= _MAX_STEPS


def body(text: str) -> str:
    """The file without its front matter."""
    found = _FRONT.match(text)
    return text[found.end() :] if found else text


def _number(step: str) -> int | None:
    found = _STEP_NUMBER.match(step.strip())
    return int(found[1]) if found else None
