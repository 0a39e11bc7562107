"""Runs plays, each in its own process and scratch folder, isolated if necessary."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from segue.drill import casts
from segue.drill.plays import enclosure
from segue.drill.plays.outcome import PlayOutcome
from segue.drill.plays.play import MARK
from segue.drill.plays.process import adopt_orphans, end_all, marked
from segue.drill.scenarios.types import Scenario
from segue.errors import SegueError

Event = dict[str, Any]

_LEAVE_S = 15.0  # for a play to end its agent and the agent's tools


_STRAY = (
    *("CLAUDE.md", "AGENTS.md", "GEMINI.md", ".claude", ".codex", ".gemini", ".opencode"),
    *(".pi", "opencode.json", ".env", ".git"),
)
"""Files that agents look for in parent folders."""


class DrillError(SegueError):
    """The play could not take place, so nothing is known about the agent."""

    exit_code = 3

    def __init__(self, what: str, folder: str = "") -> None:
        super().__init__(what)
        self.folder = folder  # the scratch folder; "" if there is none


class Director:
    """Runs plays one after another. Scratch folders are deleted unless they are to be kept;
    `within` is their parent, by default the folder for temporary files."""

    def __init__(self, *, keep: bool = False, within: Path | None = None) -> None:
        self.keep, self.within = keep, within
        self.no_enclosure = enclosure.why_not()

    def why_not(self, cast: casts.Cast) -> str:
        """Why this agent cannot play here, in one line, or ""."""
        if cast.needs_namespace and self.no_enclosure:
            return f"{cast.name} is not started: {self.no_enclosure}"
        if cast.find(os.environ) is None:
            return f"{cast.name} is not installed: {cast.install}"
        return ""

    def version(self, cast: casts.Cast) -> str:
        """The version of the program that would play, or ""."""
        program = cast.find(os.environ)
        if program is None:
            return ""
        argv = cast.version(program)
        with tempfile.TemporaryDirectory(prefix="segue-drill-") as home:
            words = enclosure.command(argv) if cast.needs_namespace else argv
            return casts.version_of(words, _environment(Path(home)))

    def play(
        self,
        cast: casts.Cast,
        scenario: Scenario,
        source: str,
        tell: Callable[[Event], None],
        *,
        with_segue: bool = False,
    ) -> PlayOutcome:
        """Runs one play and returns its outcome. `source` is what `load` takes; `tell` receives
        each event. Raises DrillError if the play could not take place."""
        prefix = f"segue-drill-{cast.name}-{scenario.name}-{'with-' if with_segue else ''}"
        place = self.within or Path(tempfile.gettempdir())
        if cast.needs_namespace and (stray := _stray(place)):
            raise DrillError(f"{stray} would be read by agents; set TMPDIR to another place")
        try:
            folder = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
        except OSError as fault:
            raise DrillError(f"{place}: cannot create a scratch folder: {fault.strerror}") from None
        try:
            command = self._command(cast, source, folder, with_segue)
            return self._watch(command, folder, tell)
        finally:
            if not self.keep:
                shutil.rmtree(folder, ignore_errors=True)

    def _command(
        self, cast: casts.Cast, source: str, folder: Path, with_segue: bool
    ) -> Sequence[str]:
        play = [sys.executable, "-m", "segue.drill.plays.play", cast.name, source, str(folder)]
        program = cast.find(os.environ)
        if program is not None:
            play += ["--program", program]
        if with_segue:
            play.append("--with-segue")
        if self.no_enclosure and not cast.needs_namespace:
            return play
        return enclosure.command(play)

    def _watch(
        self, command: Sequence[str], folder: Path, tell: Callable[[Event], None]
    ) -> PlayOutcome:
        outcome: PlayOutcome | None = None
        adopt_orphans()
        mark, started = uuid.uuid4().hex, time.time()
        with (
            open(folder / "play.stderr", "w+b") as err,
            subprocess.Popen(  # noqa: S603 - ourselves
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=err,
                env={**_environment(folder), MARK: mark},
                # Ctrl+C in the terminal is for this process, which passes it on
                start_new_session=True,
            ) as play,
        ):
            try:
                for line in play.stdout or ():
                    event = json.loads(line)
                    if event["kind"] == "outcome":
                        outcome = msgspec.convert(event["outcome"], PlayOutcome)
                    else:
                        tell(event)
            except BaseException:
                play.terminate()  # it ends its agent and everything that the agent left behind
                play.wait(_LEAVE_S)
                raise
            finally:
                # In case it was killed itself.
                end_all(lambda: marked(MARK, mark, started))
            code = play.wait()
            err.seek(0)
            errors = err.read().decode("utf-8", "replace").strip()
        if outcome is None:
            last = errors.rpartition("\n")[2] or f"exit code {code}"
            raise DrillError(last.removeprefix("segue: "), str(folder))
        return outcome


def _stray(place: Path) -> str:
    """A file above a scratch folder that agents would read as their own, or ""."""
    for folder in (place, *place.parents):
        for name in _STRAY:
            if (folder / name).exists():
                return str(folder / name)
    return ""


def _environment(folder: Path) -> dict[str, str]:
    """An environment without anything of the user's: a drill must not read their config or keys."""
    passed_on = ("PATH", "LANG", "LC_ALL", "TZ", "PYTHONPATH", "SEGUE_AGENTS", "VIRTUAL_ENV")
    found = {name: os.environ[name] for name in passed_on if name in os.environ}
    return {**found, "HOME": str(folder), "SEGUE_HOME": str(folder / "segue")}
