"""`segue attach [RUN]`: the live view of a run that another process drives. It only reads from
disk, so closing it does not affect the run."""

import os
import sys
import time
from contextlib import suppress

import click

from segue import agents
from segue.agents import drives
from segue.cli.support import interrupts
from segue.cli.support.run.lookup import driver, find, newest, opened
from segue.cli.support.run.stage import RunStage
from segue.core.runs import machine
from segue.core.runs.progress import Progress
from segue.core.runs.types import Created, LegStarted, Run, RunStep
from segue.errors import ConfigError, InputError, SegueError
from segue.fleet import output
from segue.fleet.conversations import RunWords, wait_for_last
from segue.fleet.database import FleetDatabase
from segue.runs.clock import Clock
from segue.runs.folders import RunFolder, read
from segue.runs.journal import decisions_of
from segue.runs.legs.follower import LegFollower
from segue.runs.legs.leg import Leg
from segue.runs.legs.trackers.activity import LastWork
from segue.runs.legs.words import Utterance
from segue.runs.results import is_here
from segue.runs.starting import installed_agents
from segue.runs.store import projection
from segue.runs.store.port import Entry, Store
from segue.sessions.windows import Windows
from segue.system import clock
from segue.system.config import settings as layered
from segue.views import printing

_LOOK_S = 0.25
_ASK_S = 1.0  # another machine publishes its agents' words only every few seconds
_GONE_S = 5.0  # how long no process may drive the run: another may take it over
_LEFT = 130


@click.command()
@click.argument("run", required=False)
@click.option(
    "--json", "as_json", is_flag=True, help="All events from the first one, one per line."
)
@click.option("--raw", is_flag=True, help="The agent's own output, from the newest leg on.")
def command(run: str | None, as_json: bool, raw: bool) -> None:
    """Show RUN as `segue run` does until it ends, print its answer, and exit with its exit code.

    Without RUN, show the newest unfinished run of this folder, or else the newest run. Ctrl+C
    closes the view but does not end the run.
    """
    with opened() as store:
        found = find(store, run) if run else newest(store)
        if raw and isinstance(store, FleetDatabase) and not is_here(found):
            raise InputError(
                f"{found.id} is on {output.machine_of(store, found.id)}, and what the agent prints"
                f" stays there; without --raw: segue attach {found.id}"
            )
        settings = layered.load(_there(found), os.environ)
        with suppress(ConfigError):
            installed_agents.register(settings)
        stage = RunStage(settings, as_json=as_json, raw=raw)
        view = _View(store, found, stage)
        try:
            with interrupts.caught():
                code = view.show()
        except KeyboardInterrupt:
            stage.finish()
            _say(f"you left the view; {found.id} keeps running; to end it: segue cancel {found.id}")
            code = _LEFT
    stage.finish()
    sys.exit(code)


def _there(run: Run) -> str:
    """The run's folder, or / if it no longer exists: only settings are read from there."""
    return run.cwd if os.path.isdir(run.cwd) else "/"


def _say(line: str) -> None:
    with suppress(OSError):
        printing.complain(line)


class _View:
    """Follows the log of a run."""

    def __init__(self, store: Store, run: Run, stage: RunStage) -> None:
        self.store, self.run, self.stage = store, run, stage
        self.folder = RunFolder(run.id)
        self.before: Run | None = None  # its state after the entries so far; None: unknown
        self.seq = 0
        is_elsewhere = isinstance(store, FleetDatabase) and not is_here(run)
        self.doing: _RemoteWork | _Doing = _Doing(self.folder)
        if is_elsewhere:
            self.doing = _RemoteWork(store, run)
        self.is_live = False  # whether new entries are news
        self.leg = 0  # the newest leg that has started

    def show(self) -> int:
        """Shows the run until it has ended, or no process drives it; returns the exit code."""
        stage = self.stage
        self._take()
        if self.run.state.is_final:
            return self._end()
        if driver(self.store, self.run) is None:
            return self._nobody()
        self.is_live = True
        stage.view.say(f"{self.run.id}: {self.run.agent} in {self.run.cwd}, leg {self.run.leg}")
        # From the log: a leg may have started since the run was read.
        if stage.raw and self.leg:
            self._copy(self.leg)
        with stage.view:
            is_over = self._follow()
        return self._end() if is_over else self._nobody()

    def _follow(self) -> bool:
        """Shows the run until it has ended (True), or its segue process is gone (False)."""
        version, gone_at = -1, None
        while True:
            if (now := self.store.version()) != version:
                version = now
                self._take()
            self.stage.out.pump()
            self.stage.show(self.run, self.doing.look(self.run))
            if self.run.state.is_final:
                return True
            if driver(self.store, self.run) is not None:
                gone_at = None
            else:
                gone_at = gone_at or time.monotonic()
                if time.monotonic() - gone_at > _GONE_S:
                    return False
            interrupts.wait(_LOOK_S)

    def _end(self) -> int:
        answer = self.folder.answer(self.run.leg)
        if isinstance(self.store, FleetDatabase) and not answer:
            wait_for_last(self.store, self.run, lambda: interrupts.wait(_LOOK_S))
            result = output.result(self.store, self.run.id)
            answer = result.answer if result is not None else ""
        return self.stage.end(self.run, answer=answer, now=clock.now())

    def _nobody(self) -> int:
        self.stage.finish()
        run = self.run
        why = f": it was interrupted by {run.interrupted}" if run.interrupted else ""
        _say(f"no segue drives {run.id} now{why}; to resume: segue resume {run.id}")
        return 1

    def _take(self) -> None:
        """Reads and shows new log entries."""
        run = self.store.run(self.run.id)  # before the log: if it has ended, the log is complete
        for entry in self.store.log(self.run.id, self.seq):
            self.seq = entry.seq
            self._tell(entry)
        self.run = run or self.run

    def _copy(self, leg: int) -> None:
        self.stage.out.follow(self.folder.path / f"leg-{leg:03}" / "stdout")

    def _tell(self, entry: Entry) -> None:
        stage = self.stage
        try:
            before = projection.first_run(entry) if entry.seq == 1 else self.before
            if before is None:
                raise ValueError
            fact = Created() if entry.seq == 1 else projection.fact_of(entry)
            after = machine.step(before, fact, at=entry.at, draw=entry.draw or 0.0).run
            step = RunStep(after, tuple(decisions_of(entry.decisions)))
        except (ValueError, KeyError):  # written by a newer segue
            self.before = None
            stage.put(entry)
            return
        self.before = after
        if isinstance(fact, LegStarted):
            self.leg = fact.leg
            if self.is_live and stage.raw:
                self._copy(fact.leg)
        stage.hear(before, fact, step, entry, is_old=not self.is_live)


class _RemoteWork:
    """What the agent of a run on another machine is doing, as that machine publishes it."""

    def __init__(self, store: Store, run: Run) -> None:
        self.words, self.work, self.leg = RunWords(store, run), LastWork(), 0
        self.next_at = 0.0

    def look(self, run: Run) -> LastWork | None:
        """What the agent does; None if unknown. Reads the database at most every `_ASK_S`."""
        if time.monotonic() >= self.next_at:
            self.next_at = time.monotonic() + _ASK_S
            for piece in self.words.look(run):
                if piece.leg != self.leg:
                    self.leg, self.work = piece.leg, LastWork()
                for each in piece.utterances:
                    self._take(each, piece.at)
        return self.work if run.is_live and self.leg == run.leg else None

    def _take(self, each: Utterance, at: float) -> None:
        if each.who == "tool":
            self.work.doing = each.text or each.tool
            self.work.tool_since = self.work.tool_since or at
        elif each.who == "result":
            self.work.idle()
        elif each.who == "agent":
            self.work.text = each.text


class _Doing:
    """What the agent of a run on this machine is doing, from its output."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder, self.clock = folder, Clock()
        self.follower: LegFollower | None = None

    def look(self, run: Run) -> LastWork | None:
        """What the agent does; None if unknown. Never raises, because the view works without it."""
        if not run.is_live:
            self.follower = None
            return None
        try:
            if self.follower is None or self.follower.number != run.leg:
                self.follower = self._follow(run)
            if self.follower is not None:
                self.follower.look(run, self.clock.now())
        except (SegueError, OSError, ValueError):
            self.follower = None
        return self.follower.work if self.follower is not None else None

    def _follow(self, run: Run) -> LegFollower | None:
        drive, place = drives.find(run.agent), self.folder.path / f"leg-{run.leg:03}"
        profile = agents.find(drive.agent) if drive is not None else None
        if drive is None or profile is None or not (place / "stdout").exists():
            return None
        return LegFollower(
            Leg(place),
            run.leg,
            drive=drive,
            profile=profile,
            windows=Windows(os.environ, lambda model: None),
            run=run,
            session_id=read(place / "session") or "",
            progress=Progress(),
            env=os.environ,
            clock=self.clock,
        )
