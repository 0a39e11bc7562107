"""Runs a loop in the foreground, for `run`, `resume` and `rerun`: shows it, prints what comes of
it, and knows its exit code."""

import os
import shutil
import sys
from collections.abc import Sequence

import click

from segue.cli.live import Activity, Picture, Quiet, Story, View, choose, report
from segue.cli.render import as_json
from segue.core.growth import Sample, growth
from segue.core.run import AnyFact, Read, Run, State, Step
from segue.io import clock
from segue.io.settings import Settings
from segue.runner.follower import Follower
from segue.runner.loop import Loop
from segue.store.port import Entry

_SAMPLES_KEPT = 400


class Stage:
    """One run, as the user sees it. `--json`: one entry of the log a line on stdout. `--raw`: what
    the agent prints, as it prints it. Else its last words on stdout, once it is done; all else is
    on stderr."""

    def __init__(self, settings: Settings, *, as_json: bool, raw: bool) -> None:
        self.settings, self.as_json, self.raw = settings, as_json, raw
        self.view: View = Quiet() if as_json or raw else choose(tz=clock.local_zone())
        self.story = Story()
        self.samples: list[Sample] = []
        self.reason = ""

    def play(self, loop: Loop, first: AnyFact | None, entries: Sequence[Entry] = ()) -> int:
        """To its end; the exit code. `entries` were written before: they are shown too."""
        loop.journal.heard.append(self._hear)
        loop.seen = self._see
        for entry in entries:
            self._put(entry)
        with self.view:
            for note in self.settings.notes:
                self.view.say(note)
            run = loop.go(first)
        return self._end(run, loop)

    def _hear(self, before: Run, fact: AnyFact, step: Step, entry: Entry) -> None:
        self._put(entry)
        if isinstance(fact, Read):
            self.samples.append(Sample(entry.at, fact.reading.used_tokens, 0))
            del self.samples[:-_SAMPLES_KEPT]
        self.story = self.story.add(before, fact, step, entry.at)
        if step.decisions:
            self.reason = step.decisions[-1].reason
        self.view.step(before, fact, step, entry.at)

    def _put(self, entry: Entry) -> None:
        if self.as_json:
            click.echo(as_json(entry.as_object()))
            sys.stdout.flush()

    def _see(self, run: Run, follower: Follower | None) -> None:
        if follower is not None and self.raw and follower.passes is None:
            follower.passes = _pass
        doing = None
        if follower is not None and follower.tool_since is not None:
            doing = Activity(follower.doing, follower.tool_since)
        self.view.show(
            Picture(run=run, activity=doing, growth=growth(self.samples), reason=self.reason)
        )

    def _end(self, run: Run, loop: Loop) -> int:
        answer = loop.crew.answer(run)
        if not self.as_json:
            width = shutil.get_terminal_size().columns if sys.stderr.isatty() else None
            told = report(
                run,
                now=loop.clock.now(),
                story=self.story,
                settings=self.settings,
                width=width,
            )
            click.echo(told, err=True)
            if run.state is State.DONE and answer and not self.raw:
                click.echo(answer)
        return run.outcome.exit_code if run.outcome is not None else 1


def _pass(lines: list[bytes]) -> None:
    """The agent's own output, through."""
    data = b"".join(line + b"\n" for line in lines)
    out = sys.stdout.fileno()
    while data:
        data = data[os.write(out, data) :]
