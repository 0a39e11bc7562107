"""One play of a drill: what is known about it while it runs, and its events in plain words."""

import re
from typing import Any

from segue.drill.plays.outcome import PlayOutcome

WITHOUT, WITH = "without segue", "with segue"
_STEP = re.compile(r"step (\d+)")
_SIDE_KINDS = frozenset({"title", "count"})
"""Requests that say nothing about the work."""
_REQUESTS = {
    "checkpoint": "request for a checkpoint",
    "compaction": "the agent's own compaction",
    "continuation": "the new session's first request",
    "handoff": "request for a handoff document",
    "other": "side request",
}
"""Names of kinds of requests, for answers without an entry in `_ANSWERS`."""
_ANSWERS = {
    ("main", "look"): "checking what is done so far",
    ("main", "end"): "the agent says that the task is done",
    ("main", "gives up"): "the agent gives up",
    ("main", "text"): "the agent answers without a tool",
    ("checkpoint", "checkpoint"): "the agent wrote a checkpoint",
    ("compaction", "summary"): "the agent compacted its context",
    ("continuation", "look"): "the new session checks what is done",
    ("continuation", "step"): "the new session continues with {}",
    ("continuation", "end"): "the new session says that the task is done",
}
"""What the answer to a kind of request means for the work."""
_ACTS = {
    "kill": "killed",
    "interrupt": "Ctrl+C",
    "terminate": "terminated",
    "hang_up": "terminal closed",
}


class DrillRow:
    """What is known about one play so far."""

    def __init__(self, agent: str, scenario: str, steps: int, *, with_segue: bool = False) -> None:
        self.agent, self.scenario, self.steps = agent, scenario, steps
        self.with_segue = with_segue
        self.step: int | None = None  # the step that began last
        self.done: set[int] = set()  # steps that have ended, as far as events show
        self.used: int | None = None
        self.most = 0
        self.window: int | None = None
        self.news = ""
        self.started: float | None = None
        self.outcome: PlayOutcome | None = None
        self.refused = ""
        self.broke_off = ""
        self.folder = ""  # the play's; set when it ends

    @property
    def name(self) -> str:
        """The agent, scenario and mode of the play, in words."""
        return f"{self.agent} · {self.scenario} · {WITH if self.with_segue else WITHOUT}"

    @property
    def is_over(self) -> bool:
        return self.outcome is not None or bool(self.refused or self.broke_off)

    @property
    def in_words(self) -> str:
        """How the play ended, or why it was not played."""
        if self.broke_off:
            return f"broke off: {self.broke_off}"
        done = self.outcome
        if done is None:
            return self.refused
        return "; ".join(filter(None, (done.in_words, done.reason, done.way)))

    def hear(self, event: dict[str, Any]) -> str:
        """Handles an event of the play; returns a line about it, or "" for an event that is not
        news."""
        match event["kind"]:
            case "step":
                self._begin(event["step"])
                self.news = f"step {self.step} of {self.steps}"
            case "request":
                request = event["request"]
                self.used = request["tokens"] or self.used
                self.most = max(self.most, self.used or 0)
                self.window = event["window"]
                if request["kind"] in _SIDE_KINDS:
                    return ""
                if request["kind"] in (None, "main") and (step := _STEP.match(request["answered"])):
                    self._begin(int(step[1]))  # a step may end before an event shows it running
                    self.news = f"step {self.step} of {self.steps}"
                    return ""  # reported when it runs
                self.news = _news(request)
            case "segue":
                self.news = _line(event["said"])
            case "act":
                act = str(event["act"])
                self.news = f"{_ACTS.get(act, act)} in step {event['in_step']}"
            case "said":
                self.news = f"the user: {event['words']}"
            case "limit":
                self.news = f"ended by the drill after {event['after_s']:.0f} s"
            case _:
                return ""
        return self.news

    def _begin(self, step: int) -> None:
        """Notes that a step begins. A new step means that the one before is done; the same step
        again means that it broke off."""
        if self.step is not None and self.step != step:
            self.done.add(self.step)
        self.step = step


def _news(request: dict[str, Any]) -> str:
    """A line about the model's answer to a request: what it means for the work or, if nothing, the
    answer itself."""
    answered = str(request["answered"])
    kind = request["kind"]
    if kind is None:
        answer = f"request for {request['method']} {request['path']}"
    elif words := _ANSWERS.get((kind, answered)) or _ANSWERS.get(
        (kind, answered.partition(" ")[0])
    ):
        answer = words.format(answered)
    elif (request.get("status") or 200) >= 400:
        answer = f"API error: {answered.replace('_', ' ')}"
    elif kind in _REQUESTS:
        answer = f"{_REQUESTS[kind]}: {answered.replace('_', ' ')}"
    else:
        answer = answered.replace("_", " ")
    if request["delivery"] != "whole":
        answer += f" ({request['delivery'].replace('_', ' ')})"
    return _line(answer)  # it may contain any command


def _line(text: str) -> str:
    return "".join(c for c in " ".join(text.split()) if c.isprintable())
