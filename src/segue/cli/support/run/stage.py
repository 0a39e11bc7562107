"""Shows a run in the foreground, prints its result and determines the exit code: for `run`,
`resume`, `rerun`, `rescue` and `attach`."""

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress

import click
from msgspec.structs import replace

from segue.core.runs import outcomes
from segue.core.runs.types import AnyFact, ContextMeasured, LegStarted, Run, RunState, RunStep
from segue.core.sessions.forecasts.growth import Sample, growth
from segue.errors import InputError
from segue.runs.legs.follower import LegFollower
from segue.runs.legs.trackers.activity import LastWork
from segue.runs.loop import Loop
from segue.runs.notices import RunNotices
from segue.runs.store.port import Entry
from segue.runs.store.sqlite import SqliteStore
from segue.runs.telemetry.reporter import RunTelemetry, attach
from segue.system import clock
from segue.system.config.settings import Settings
from segue.system.telemetry import types as telemetry
from segue.views import printing
from segue.views.out import STALL_S, Loose, both
from segue.views.run.block import clean
from segue.views.run.view import LegActivity, QuietRun, RunPicture, RunView, Story, choose, report
from segue.views.verdicts import as_json

_SAMPLES_KEPT = 400


class RunStage:
    """One run as the user sees it. With `as_json`, each log entry is a line on stdout; with `raw`,
    stdout has the agent's output, unchanged; otherwise it has the agent's last message once the run
    is done. Everything else goes to stderr. Raises InputError if both are set."""

    def __init__(self, settings: Settings, *, as_json: bool, raw: bool) -> None:
        if as_json and raw:
            raise InputError("--json and --raw cannot be combined")
        self.settings, self.as_json, self.raw = settings, as_json, raw
        self.out, self.err = both()
        self.view: RunView = QuietRun()
        if not (as_json or raw):
            self.view = choose(Loose(self.err), tz=clock.local_zone())
        self.story = Story()
        self.notices: RunNotices | None = None
        self.telemetry: RunTelemetry | None = None
        self.samples: list[Sample] = []
        self.reason = ""
        self.run_id = ""

    def play(self, loop: Loop, first: AnyFact | None, entries: Sequence[Entry] = ()) -> int:
        """Runs a loop to its end; returns the exit code. `entries`: log entries from before,
        printed with --json. Call `finish` afterwards, once the run's lease and store are
        released."""

        def on_fact(before: Run, fact: AnyFact, step: RunStep, entry: Entry) -> None:
            if isinstance(fact, LegStarted) and self.raw and loop.follower is not None:
                self.out.follow(loop.follower.leg.stdout)
            self.hear(before, fact, step, entry)

        loop.journal.listeners.append(on_fact)
        policy = self.settings.policy(loop.run.agent)
        self.notices = RunNotices(policy, clock.local_zone())
        loop.journal.listeners.append(self.notices.hear)
        self.telemetry = attach(loop.journal, os.environ, self.say, _numbers)
        published = None
        if not isinstance(loop.journal.store, SqliteStore):  # a fleet's database
            from segue.fleet import output

            published = output.publisher(loop.journal.store, os.environ)

        def on_look(run: Run, follower: LegFollower | None) -> None:
            self.see(run, follower)
            if published is not None:
                published.see(run)

        loop.on_look, loop.say = on_look, self.say
        for entry in entries:
            self.put(entry)
        for note in self.settings.notes:
            self.say(note)
        try:
            with self.view:
                run = loop.go(first)
        except BaseException:
            self.finish()  # so that the error is printed last
            raise
        code = self.end(run, answer=loop.executor.answer(run), now=loop.clock.now())
        if published is not None:
            published.finish(run)
        return code

    def say(self, line: str) -> None:
        """Prints a line that the user must see, also with --json and --raw."""
        if type(self.view) is QuietRun:
            self._tell(f"segue: {printing.one_line(clean(line))}")
        else:
            self.view.say(line)

    def hear(
        self, before: Run, fact: AnyFact, step: RunStep, entry: Entry, *, is_old: bool = False
    ) -> None:
        """Handles a log entry. `is_old`: it is from before this view started, so it is not printed
        as news."""
        self.put(entry)
        if isinstance(fact, ContextMeasured):
            self.samples.append(Sample(entry.at, fact.reading.used_tokens, 0))
            del self.samples[:-_SAMPLES_KEPT]
        self.story = self.story.add(before, fact, step, entry.at)
        if step.decisions:
            self.reason = step.decisions[-1].reason
        if not is_old:
            self.view.step(before, fact, step, entry.at)

    def put(self, entry: Entry) -> None:
        """Prints an entry as JSON, if the user asked for that."""
        if self.as_json:
            self.out.write_text(as_json(entry.as_object()) + "\n")

    def see(self, run: Run, follower: LegFollower | None) -> None:
        """Shows the current state, and copies the agent's new output."""
        self.out.pump()
        self.show(run, follower.work if follower is not None else None)

    def show(self, run: Run, work: LastWork | None) -> None:
        """Shows the current state; `work`: what the agent did last."""
        doing = None
        if work is not None and (since := work.tool_since) is not None:
            doing = LegActivity(work.doing, since)
        self.view.show(
            RunPicture(
                run=run,
                activity=doing,
                growth=growth(self.samples),
                reason=self.reason,
                words=work.text if work is not None else "",
            )
        )

    def end(self, run: Run, *, answer: str, now: float) -> int:
        """Prints the result; returns the exit code."""
        self.run_id = run.id
        if run.interrupted:
            run = replace(run, outcome=outcomes.interrupted(run))
        if not self.as_json:
            width = shutil.get_terminal_size().columns if self.err.is_terminal else None
            outcome = report(
                run,
                now=now,
                story=self.story,
                settings=self.settings,
                width=width,
            )
            self._tell(outcome)
            if run.state is RunState.DONE and answer and not self.raw:
                self.out.write_text(printing.visible(answer).rstrip("\n") + "\n")
        return run.outcome.exit_code if run.outcome is not None else 1

    def finish(self) -> None:
        """Waits until all required output is on stdout, and as much as possible on stderr; then
        ends notices and telemetry. Ctrl+C skips the rest of this; the run's result stays."""
        with suppress(KeyboardInterrupt):
            self.err.finish(STALL_S)
            self.out.finish(STALL_S)
            if self.out.fault:
                self._tell(
                    f"segue: stdout could not be written: {self.out.fault}; "
                    f"to see the answer: segue report {self.run_id}".rstrip()
                )
                self.err.finish(STALL_S)
            if self.notices is not None:  # last: the answer must not wait for them
                notices, self.notices = self.notices, None
                notices.close(lambda line: self._tell(f"segue: {printing.one_line(line)}"))
                self.err.finish(STALL_S)
            if self.telemetry is not None:
                sent, self.telemetry = self.telemetry, None
                sent.close()

    def _tell(self, text: str) -> None:
        """Prints on stderr. Dropped if nobody reads it: a reader must not affect how a run ends."""
        shown = printing.rendered(text)
        if not self.err.is_terminal or os.environ.get("NO_COLOR"):
            shown = click.unstyle(shown)
        self.err.write_text(f"{shown}\n", must=False)


def _numbers() -> list[telemetry.Sample]:
    """This machine's figures for telemetry; empty while a daemon is running, because that one sends
    them."""
    from segue.reports.reading import figure_samples
    from segue.runs.store import leases, open_store

    with open_store() as store:
        holder = store.holder("watch")
    return [] if holder is not None and leases.is_alive(holder) else figure_samples()
