"""Runs a loop in the foreground, for `run`, `resume` and `rerun`: shows it, prints what comes of
it, and knows its exit code."""

import os
import shutil
import sys
from collections.abc import Sequence

import click

from segue.cli.live import Activity, Picture, Quiet, Story, View, choose, report
from segue.cli.out import Out
from segue.cli.render import as_json
from segue.cli.telling import clean
from segue.core.growth import Sample, growth
from segue.core.run import AnyFact, Read, Run, Started, State, Step
from segue.errors import InputError
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
        if as_json and raw:
            raise InputError("--json and --raw exclude each other")
        self.settings, self.as_json, self.raw = settings, as_json, raw
        self.view: View = Quiet() if as_json or raw else choose(tz=clock.local_zone())
        self.out = Out()
        self.story = Story()
        self.samples: list[Sample] = []
        self.reason = ""

    def play(self, loop: Loop, first: AnyFact | None, entries: Sequence[Entry] = ()) -> int:
        """To its end; the exit code. `entries` were written before: they are shown too."""

        def hear(before: Run, fact: AnyFact, step: Step, entry: Entry) -> None:
            if isinstance(fact, Started) and self.raw and loop.follower is not None:
                self.out.follow(loop.follower.leg.stdout)
            self._hear(before, fact, step, entry)

        loop.journal.heard.append(hear)
        loop.seen, loop.say = self._see, self.say
        for entry in entries:
            self._put(entry)
        for note in self.settings.notes:
            self.say(note)
        with self.view:
            run = loop.go(first)
        return self._end(run, loop)

    def say(self, line: str) -> None:
        """A line that must not be missed, whatever is shown."""
        if type(self.view) is Quiet:
            click.echo(f"segue: {clean(line)}", err=True)
        else:
            self.view.say(line)

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
            self.out.write(as_json(entry.as_object()).encode() + b"\n")

    def _see(self, run: Run, follower: Follower | None) -> None:
        self.out.pump()
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
            _tell(told)
            if run.state is State.DONE and answer and not self.raw:
                self.out.write(answer.encode("utf-8", "surrogateescape").rstrip(b"\n") + b"\n")
        self.out.finish()
        return run.outcome.exit_code if run.outcome is not None else 1


def _tell(text: str) -> None:
    """On stderr, if anybody is there: a closed terminal does not change how a run ended."""
    try:
        click.echo(text, err=True)
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(nowhere, stream)
