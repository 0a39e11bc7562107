"""An agent in its enclosure, driven as its drive says, against a scripted model. For the tests of
single drives: each play is a function of the test's own file, run enclosed in a process of its
own."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

from segue import agents, api
from segue.agents import drives
from segue.agents.contracts.drive import LegOrder
from segue.agents.shared.live import Live
from segue.core.sessions.spend import Spend
from segue.core.stops.events import Event, Usage
from segue.core.stops.types import Stop
from segue.drill import casts
from segue.drill.model.answer import ModelAnswer, ModelReply, Refusal
from segue.drill.model.ask import Ask, Kind, shell_call
from segue.drill.model.server import Running, running
from segue.drill.plays import enclosure
from segue.drill.plays.process import adopt_orphans
from support.paths import SCRIPT
from support.playing import AGENTS_FOLDER, missing
from support.waiting import until

LIMIT_S = 150.0
ODD = "é\u2028\u2029\ud83d\ude00 {}\\\"'`$(x)\n\t\r\n" * 3 + "x" * 200_000 + "\x07 end "
"""A prompt of 200 KB that many a program would break."""

JSON = dict[str, Any]


def enclosed(file: str, play: str, folder: Path, agent: str) -> None:
    """Runs a play of that test file; what fails there fails here."""
    if reason := enclosure.why_not():
        missing(reason)
    drive = drives.find(agent)
    assert drive is not None
    looking = {"SEGUE_AGENTS": AGENTS_FOLDER, "PATH": os.environ["PATH"]}
    if drive.find(looking) is None:
        missing(f"{agent} is not installed: {drive.install}")
    done = subprocess.run(
        enclosure.command([sys.executable, SCRIPT, file, play, str(folder)]),
        env={**os.environ, **looking},
        capture_output=True,
        text=True,
        timeout=400,  # each wait in there has its own limit
        check=False,
    )
    assert done.returncode == 0, done.stderr


def act(plays: Mapping[str, Callable[["Stage"], None]], agent: str) -> None:
    """The enclosed side."""
    enclosure.demand()
    adopt_orphans()
    model = Model()
    with running(model) as server:
        plays[sys.argv[1]](Stage(agent, Path(sys.argv[2]), server, model))
    assert running_below() == [], "a process was left"


def running_below() -> list[str]:
    left = psutil.Process().children(True)
    return [" ".join(p.cmdline()) for p in left if p.status() != psutil.STATUS_ZOMBIE]


class Model:
    """Has its commands run, one after the other; with none left, it is done."""

    def __init__(self) -> None:
        self.commands: list[str] = []
        self.asked: list[Ask] = []  # of the work
        self.refusal: Refusal | None = None

    @property
    def counted(self) -> int:
        """The size after the last reply."""
        return 1_000 + len(self.asked) + 10

    def answer(self, ask: Ask, now: float) -> ModelAnswer:
        if ask.kind not in (Kind.MAIN, Kind.CHECKPOINT):
            return ModelAnswer(
                reply=ModelReply(text="A name", spend=Spend(input_tokens=7, output_tokens=1))
            )
        self.asked.append(ask)
        spend = Spend(input_tokens=1_000 + len(self.asked), output_tokens=10)
        if self.refusal is not None:
            return ModelAnswer(refusal=self.refusal)
        if not self.commands:
            return ModelAnswer(reply=ModelReply(text="It is done.", spend=spend))
        call = shell_call(ask, f"call_{time.time_ns()}", self.commands.pop(0))
        return ModelAnswer(reply=ModelReply(text="A step.", calls=(call,), spend=spend))


class Stage:
    """Where it plays."""

    def __init__(self, agent: str, folder: Path, server: Running, model: Model) -> None:
        drive = drives.find(agent)
        assert drive is not None
        self.agent, self.drive, self.model, self.folder = agent, drive, model, folder
        home, self.project = folder / "agent", folder / "project"
        home.mkdir()
        subprocess.run(["git", "init", "-q", str(self.project)], check=True)
        cast = casts.find(agent)
        self.stage = casts.PlayStage(
            home=home, project=self.project, port=server.port, window_tokens=200_000
        )
        cast.prepare(self.stage)
        self.env = dict(cast.start("x", self.stage, "x", "").env)
        self.legs = 0

    def leg(self, prompt: str, **more: Any) -> "Driven":
        self.legs += 1
        return Driven(self, self.folder / f"leg-{self.legs}", prompt, more)

    def made(self, name: str) -> Callable[[], bool]:
        return (self.project / name).exists


class Driven:
    """One leg. Input stays open until `close`."""

    def __init__(self, stage: Stage, folder: Path, prompt: str, more: JSON) -> None:
        self.stage, self.drive, self.folder = stage, stage.drive, folder
        folder.mkdir()
        command = self.drive.find({**stage.env, "SEGUE_AGENTS": os.environ["SEGUE_AGENTS"]})
        assert command is not None
        more = {"cwd": str(stage.project), "folder": str(folder), "env": stage.env, **more}
        order = LegOrder(command=command, prompt=prompt, **more)
        assert self.drive.refuses(order.flags) == ""
        launch = self.drive.launch(order)
        self.overs: list[str] = []
        self.heard: list[str] = []
        self.records: list[JSON] = []
        self.events: list[Event] = []
        self.lines: list[bytes] = []
        profile = agents.find(stage.agent)
        assert profile is not None
        self.live = Live(profile)
        with (folder / "stderr").open("wb") as errors:
            self.process = subprocess.Popen(
                launch.argv,
                env={**stage.env, **launch.env},
                cwd=stage.project,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.give(launch.input)

    def _read(self) -> None:
        assert self.process.stdout is not None
        watch = self.drive.watch()
        for line in self.process.stdout:
            self.lines.append(line)
            self.events += self.live.feed([line], time.time())
            for record in self.live.records:
                self.records.append(record)
                if key := watch.confirmed_key(record):
                    self.heard.append(key)
                if (over := watch.over(record)) != "no":
                    self.overs.append(over)

    def give(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def say(self, words: str, key: str) -> None:
        assert self.drive.say is not None
        self.give(self.drive.say(words, key))

    def until(self, is_so: Callable[[], bool], what: str = "") -> None:
        until(is_so, lambda: f"{what}: {self.told()}", LIMIT_S)

    def until_over(self, times: int = 1) -> None:
        self.until(lambda: len(self.overs) >= times, f"it was not over {times} times")

    def close(self) -> int:
        """Ends its input; its exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.ended()

    def ended(self) -> int:
        code = self.process.wait(LIMIT_S)
        self.reader.join(LIMIT_S)
        self.events += self.live.close(time.time())
        return code

    def stop(self, code: int) -> Stop:
        """What segue says about its end."""
        stdout = self.folder / "stdout"
        stdout.write_bytes(b"".join(self.lines))
        return api.classify(
            agent=self.stage.agent,
            stdout=stdout,
            stderr=self.folder / "stderr",
            exit_code=code,
        )

    def size(self) -> tuple[int, int | None]:
        last = [event for event in self.events if isinstance(event, Usage)][-1]
        return last.used_tokens, last.window_tokens

    def told(self) -> str:
        errors = (self.folder / "stderr").read_text(errors="replace")
        return "\n".join(json.dumps(r)[:300] for r in self.records[-30:]) + errors[-2000:]
