"""One play: one agent, one scenario, one scratch folder; the agent alone, or with segue. `python -m
segue.drill.plays.play`.

A play has its own process, because it adopts the orphans of a killed agent, and because it may
run in its own network namespace. It reports what happens as JSON lines.
"""

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from segue import api
from segue.core.stops.types import EndedBy
from segue.drill import casts
from segue.drill.model.ask import Kind
from segue.drill.model.log import Logged
from segue.drill.model.script import Script
from segue.drill.model.server import Running, running
from segue.drill.plays import guided, job
from segue.drill.plays.outcome import PlayOutcome
from segue.drill.plays.process import PlayLeg, end_with_parent
from segue.drill.scenarios import load
from segue.drill.scenarios.types import Expectation, Scenario, ScenarioEvent
from segue.errors import InputError, SegueError
from segue.system import clock
from segue.system.process.descendants import near, runs

Tell = Callable[[dict[str, Any]], None]

MARK = "SEGUE_PLAY"
"""An environment variable of all processes of one play."""

_ENDINGS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_LOOK_S = 0.02  # how often to check whether the step to disturb is running
_SIGNALS = {"kill": "SIGKILL", "interrupt": "SIGINT", "terminate": "SIGTERM", "hang_up": "SIGHUP"}
_ENDS_IT: dict[str, EndedBy] = {"interrupt": "user", "hang_up": "user"}
_FOR_SEGUE = ("interrupt", "hang_up")  # what a user's terminal does; the rest befalls the agent
_MORE_S = 60.0  # added to the agent's limit in a play with segue: for waits, and more legs
_LEAVE_S = 10.0  # for segue to end its agent
_LOOK_FIRST = "I interrupted you. Look at what is done already, then continue the job."
_SETTLE_S = 2.0  # until the last keeper is gone


class Play:
    """One play. `tell` receives each event as it happens."""

    def __init__(
        self,
        cast: casts.Cast,
        program: str,
        scenario: Scenario,
        folder: Path,
        tell: Tell,
        *,
        with_segue: bool = False,
    ) -> None:
        self.cast, self.program, self.scenario, self.tell = cast, program, scenario, tell
        self.with_segue = with_segue
        self.home, self.project = folder / "home", folder / "project"
        self.folder, self.segue_home = folder, folder / "segue"
        who = "segue" if with_segue else "leg-1"
        self.stdout, self.stderr = folder / f"{who}.stdout", folder / f"{who}.stderr"
        self.news_offset = 0  # offset in segue's output
        self.ended_by: EndedBy = "unknown"
        self.user_words = ""  # what the user says next
        self.requests_logged = 0
        self.events = list(scenario.events)  # yet to come
        spoken = [fact.spoken_in for fact in scenario.job.facts]
        self.speeches = {step for step in spoken if step is not None}
        """The steps in which the user still has something to say."""
        self.limit_s = scenario.limit_for(cast.name) + (_MORE_S if with_segue else 0)
        self.window = cast.window_tokens
        self.step: int | None = None

    def run(self) -> PlayOutcome:
        """Runs the play to its end, and leaves no process behind."""
        for place in (self.home, self.home / "tmp", self.project):
            place.mkdir(parents=True, exist_ok=True)
        prompt = job.make(self.project, self.scenario.job)
        context = self.scenario.context
        self.window = (context and context.window_tokens) or self.cast.window_tokens
        script = Script(self.scenario, window_tokens=self.window)
        started = time.monotonic()
        with running(script) as server:
            stage = casts.PlayStage(
                home=self.home,
                project=self.project,
                port=server.port,
                window_tokens=self.window,
                max_turns=self.scenario.max_turns,
                options=self.scenario.options.get(self.cast.name, {}),
            )
            self.cast.prepare(stage)
            exit_code, swept = self.play_through(stage, prompt, server)
            self.say_requests(server)
            self.keep_log(server)
            asked = list(server.requests)
        unfired = [f"rule {place}" for place in script.unfired]
        unfired += [f"{event.act} in step {event.in_step}" for event in self.events]
        unfired += [f"the user's words in step {step}" for step in self.speeches]
        seconds = time.monotonic() - started
        outcome = self.outcome(stage, exit_code)
        outcome = self.judge_run(outcome) if self.with_segue else self.judge_leg(outcome, stage)
        return replace(
            outcome,
            requests=len(asked),
            asked_at_percent=asked_at_percent(asked, self.window),
            swept=outcome.swept + swept,
            seconds=round(seconds, 2),
            unfired=unfired,
        )

    def part(self, stage: casts.PlayStage, prompt: str) -> casts.LegStart:
        """How to start the agent, or segue, which starts the agent."""
        if self.with_segue:
            settings = {"stall_s": self.scenario.stall_s, **self.scenario.policy}
            return guided.part(self.cast, self.program, stage, prompt, self.segue_home, settings)
        return self.cast.start(self.program, stage, prompt, "")

    def play_through(
        self, stage: casts.PlayStage, prompt: str, server: Running
    ) -> tuple[int | None, int]:
        """Starts the agent or segue, and again each time that the user stops it to say something.
        Returns its last exit code, and how many processes it left behind in all."""
        until = time.monotonic() + self.limit_s
        first = part = self.part(stage, prompt)
        left = 0
        for life in count(1):
            exit_code, swept = self.leg(part, server, until)
            left += swept
            if not self.user_words:
                return exit_code, left
            words, self.user_words = self.user_words, ""
            if self.with_segue:
                part = guided.resumed(first, self.segue_home, self.stderr, words)
            else:
                session, _ = self.cast.session(stage)
                part = self.cast.start(self.program, stage, f"{_LOOK_FIRST} {words}", session)
            self.tell({"kind": "said", "words": words})
            who, self.news_offset = "segue" if self.with_segue else "leg", 0
            self.stdout = self.folder / f"{who}-{life + 1}.stdout"
            self.stderr = self.folder / f"{who}-{life + 1}.stderr"
        raise AssertionError  # there is no end to counting

    def leg(self, part: casts.LegStart, server: Running, until: float) -> tuple[int | None, int]:
        """Runs the agent or segue once. Returns its exit code, and how many processes it left
        behind."""
        with PlayLeg.start(
            part.argv,
            env={**part.env, MARK: os.environ.get(MARK, "")},
            cwd=self.project,
            stdin=part.stdin,
            stdout=self.stdout,
            stderr=self.stderr,
            must_be_enclosed=self.cast.needs_namespace,
            owns_all=True,  # this process exists only for it
        ) as leg:
            exit_code = self.follow(leg, server, until)
            if self.with_segue:
                _settle()
            return exit_code, len(leg.sweep())

    def follow(self, leg: PlayLeg, server: Running, until: float) -> int | None:
        """Watches the process until it ends, or ends it at the time limit; returns its exit
        code."""
        while time.monotonic() < until:
            exit_code = leg.wait(_LOOK_S)
            self.say_requests(server)
            self.say_step()
            self.say_decisions()
            if exit_code is not None:
                return exit_code
            for event in [event for event in self.events if event.in_step == self.step]:
                self.events.remove(event)
                self.act(leg, event)
            if self.step is not None and self.step in self.speeches:
                self.interrupt(leg, self.step)
        self.ended_by = "segue"
        self.tell({"kind": "limit", "after_s": self.limit_s})
        return leg.end(_LEAVE_S if self.with_segue else self.cast.interrupt_s)

    def interrupt(self, leg: PlayLeg, step: int) -> None:
        """The user's Ctrl+C, because they have something to say."""
        self.speeches.discard(step)
        self.user_words = job.said_by_user(self.project, self.scenario.job, step)
        leg.signal("SIGINT")
        if not self.with_segue and leg.wait(self.cast.interrupt_s) is None:
            leg.end()

    def act(self, leg: PlayLeg, event: ScenarioEvent) -> None:
        """Lets an event of the scenario happen: to the agent, or to segue if it is something that
        a user's terminal does."""
        if self.with_segue and event.act not in _FOR_SEGUE:
            guided.signal_agent(self.segue_home, _SIGNALS[event.act])
        else:
            leg.signal(_SIGNALS[event.act])
        self.ended_by = _ENDS_IT.get(event.act, "unknown")
        self.tell({"kind": "act", "act": event.act, "in_step": event.in_step})

    def say_requests(self, server: Running) -> None:
        """Reports the requests to the model since the last call."""
        asked = server.requests[self.requests_logged :]
        for request in asked:
            self.tell({"kind": "request", "window": self.window, "request": _plain(request)})
        self.requests_logged += len(asked)

    def say_step(self) -> None:
        """Reports the step whose command is running, if that has changed."""
        step = job.current(self.project)
        if step != self.step:
            self.step = step
            if step is not None:
                self.tell({"kind": "step", "step": step, "of": self.scenario.job.steps})

    def say_decisions(self) -> None:
        """Reports segue's decisions since the last call."""
        if self.with_segue:
            news, self.news_offset = guided.news(self.stdout, self.news_offset)
            for each in news:
                self.tell({"kind": "segue", "said": each})

    def keep_log(self, server: Running) -> None:
        """Writes all requests into the scratch folder, for people who inspect it."""
        lines = (json.dumps(_plain(request)) + "\n" for request in server.requests)
        (self.folder / "requests.jsonl").write_text("".join(lines), encoding="utf-8")

    def outcome(self, stage: casts.PlayStage, exit_code: int | None) -> PlayOutcome:
        """The outcome as far as the repository shows it; the rest is still empty."""
        scenario = self.scenario
        expects = scenario.expects
        if scenario.max_turns is not None and not self.cast.takes_max_turns:
            expects = Expectation()  # nothing prevents it from finishing
        found = job.check(self.project, scenario.job, finished=False)
        return PlayOutcome(
            agent=self.cast.name,
            version=casts.version_of(self.cast.version(self.program), casts.clean_env(stage)),
            scenario=scenario.name,
            played_on=datetime.fromtimestamp(clock.now(), UTC).date().isoformat(),
            with_segue=self.with_segue,
            steps=0 if scenario.turns else scenario.job.steps,
            done=list(found.done),
            lost=list(found.lost),
            repeated=list(found.repeated),
            out_of_order=list(found.out_of_order),
            touched=job.touched(self.project, scenario.job),
            reason="",
            confidence=0.0,
            exit_code=exit_code,
            requests=0,
            legs=1,
            seconds=0.0,
            expects=expects,
            folder=str(self.folder),
        )

    def judge_leg(self, outcome: PlayOutcome, stage: casts.PlayStage) -> PlayOutcome:
        """The outcome with the reason why the agent stopped, as `segue classify` would give it."""
        _, transcript = self.cast.session(stage)
        stop = api.classify(
            agent=self.cast.agent,
            stdout=self.stdout,
            stderr=self.stderr,
            transcript=transcript if transcript and transcript.suffix == ".jsonl" else None,
            exit_code=outcome.exit_code,
            ended_by=self.ended_by,
        )
        return replace(outcome, reason=stop.reason.value, confidence=stop.confidence)

    def judge_run(self, outcome: PlayOutcome) -> PlayOutcome:
        """The outcome with what segue says about its run."""
        end = guided.end_of(self.segue_home, self.stderr)
        run = end.run
        reason = run.outcome.reason if run.outcome else f"unfinished: {run.state.value}"
        return replace(
            outcome,
            reason="timeout" if self.ended_by == "segue" else reason,
            confidence=run.stop.confidence if run.stop else 0.0,
            legs=run.leg,
            handoffs=run.handoffs,
            waits=end.waits,
            swept=end.swept,
        )


def _settle() -> None:
    """Waits for the last keeper, which exits slightly after segue knows that its leg is over."""
    until = time.monotonic() + _SETTLE_S
    while any(map(runs, near(0.0))) and time.monotonic() < until:
        time.sleep(_LOOK_S)


def asked_at_percent(requests: Sequence[Logged], window_tokens: int) -> list[float]:
    """How full the window was at each request for a checkpoint; a repeated request without an
    answer in between counts once."""
    found: list[float] = []
    was_asked = False
    for request in requests:
        is_asked = request.kind is Kind.CHECKPOINT
        if is_asked and not was_asked and request.tokens is not None:
            found.append(round(request.tokens / window_tokens * 100, 1))
        if request.kind in (Kind.MAIN, Kind.CONTINUATION, Kind.CHECKPOINT):
            was_asked = is_asked
    return found


def _plain(request: Logged) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(request)
    return plain


def _end_cleanly() -> None:
    """Any end of this process except SIGKILL also ends the agent, and so does the end of its
    parent."""

    def leave(number: int, _: object) -> None:
        for each in _ENDINGS:  # nothing may disturb the cleanup
            signal.signal(each, signal.SIG_IGN)
        sys.exit(128 + number)

    for each in _ENDINGS:
        signal.signal(each, leave)
    end_with_parent(signal.SIGTERM)


def main() -> None:
    _end_cleanly()
    parser = argparse.ArgumentParser(prog="python -m segue.drill.plays.play")
    parser.add_argument("agent")
    parser.add_argument("scenario")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--program", default="")
    parser.add_argument("--with-segue", action="store_true")
    given = parser.parse_args()
    cast = casts.find(given.agent)

    def tell(event: dict[str, Any]) -> None:
        print(json.dumps(event), flush=True)

    try:
        program = given.program or cast.find(os.environ) or ""
        if not program:
            raise InputError(f"{cast.name} is not installed: {cast.install}")
        scenario, with_segue = load.load(given.scenario), given.with_segue
        play = Play(cast, program, scenario, given.folder, tell, with_segue=with_segue)
        tell({"kind": "outcome", "outcome": msgspec.to_builtins(play.run())})
    except (SegueError, OSError, ValueError) as fault:
        sys.exit(f"segue: {fault}")


if __name__ == "__main__":
    main()
