"""Plays for tests: a real process in its own folder, enclosed as for users."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from segue.drill import casts
from segue.drill.plays.director import Director
from segue.drill.plays.outcome import PlayOutcome
from segue.drill.scenarios import load

AGENTS_FOLDER = os.environ.get("SEGUE_AGENTS") or str(
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "segue/agents"
)
"""As it was before the test got its own home."""


@dataclass
class Played:
    """A play that is over."""

    outcome: PlayOutcome
    events: list[dict[str, Any]]

    @property
    def folder(self) -> Path:
        return Path(self.outcome.folder)

    @property
    def stdout(self) -> str:
        """What the bare agent printed, or segue."""
        name = "segue.stdout" if self.outcome.with_segue else "leg-1.stdout"
        return (self.folder / name).read_text(encoding="utf-8", errors="replace")

    @property
    def said(self) -> list[str]:
        """What segue decided, and why."""
        return [e["said"] for e in self.events if e["kind"] == "segue"]

    @property
    def answers(self) -> list[str]:
        """What the scripted model did, request by request."""
        return [e["request"]["answered"] for e in self.events if e["kind"] == "request"]


def missing(reason: str) -> None:
    """CI has all that is needed, or it proves nothing."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def play(agent: str, scenario: str | Path, within: Path, *, with_segue: bool = False) -> Played:
    """Plays it; what cannot be played here is a skip, and in CI a failure."""
    director = Director(keep=True, within=within)
    cast = casts.find(agent)
    if why := director.why_not(cast):
        missing(why)
    events: list[dict[str, Any]] = []
    outcome = director.play(
        cast, load.load(scenario), str(scenario), events.append, with_segue=with_segue
    )
    return Played(outcome, events)
