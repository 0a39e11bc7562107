"""The rehearsal agent against a scripted model, for tests: start it, end it, ask segue why."""

import json
import os
import queue
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import segue
from segue.core.sessions.spend import Spend
from segue.drill.casts import rehearsal
from segue.drill.model.answer import Delivery, Fault, ModelAnswer, ModelReply, Refusal
from segue.drill.model.ask import Ask, Call, Kind
from segue.drill.model.server import running
from support.waiting import pause_s

LONG_S = 90.0  # nothing takes that long; a test that waits so long has failed
SUMMARY = "<analysis>looked</analysis><summary>the first step is done</summary>"


class Scripted:
    """Answers in order; the last one again and again. Summaries have a list of their own."""

    def __init__(self, *answers: ModelAnswer, summaries: Sequence[ModelAnswer] = ()) -> None:
        self.answers = list(answers)
        self.summaries = list(summaries)
        self.asks: list[Ask] = []
        self.came: queue.Queue[Ask] = queue.Queue()

    def answer(self, ask: Ask, now: float) -> ModelAnswer:
        self.asks.append(ask)
        self.came.put(ask)
        answers = self.summaries if ask.kind is Kind.COMPACTION else self.answers
        return answers.pop(0) if len(answers) > 1 else answers[0]


def says(
    text: str, used: int = 2_000, delivery: Delivery = "whole", headers: Any = None
) -> ModelAnswer:
    """A reply that ends the turn; its context is `used` tokens."""
    spend = Spend(input_tokens=used - 107, cache_read_tokens=100, output_tokens=7)
    reply = ModelReply(text=text, spend=spend)
    return ModelAnswer(reply=reply, delivery=delivery, headers=headers or {})


def runs(command: str, used: int = 1_000, number: int = 1, name: str = "Bash") -> ModelAnswer:
    """A reply that calls the shell."""
    arguments: dict[str, object] = {"command" if name == "Bash" else "cmd": command}
    call = Call(f"toolu_{number}", command, name, arguments)
    spend = Spend(input_tokens=used - 120, cache_read_tokens=80, output_tokens=40)
    return ModelAnswer(reply=ModelReply(text="On it.", calls=(call,), spend=spend))


def refuses(fault: Fault, **more: Any) -> ModelAnswer:
    """An error of the API."""
    return ModelAnswer(refusal=Refusal(fault=fault, **more))


class Ran:
    """What a run left behind."""

    def __init__(self, place: "Place", exit_code: int, out: str, err: str) -> None:
        self.place, self.exit_code, self.out, self.err = place, exit_code, out, err

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def result(self) -> dict[str, Any]:
        found = [event for event in self.events if event["type"] == "result"]
        assert len(found) == 1
        return found[0]

    @property
    def kinds(self) -> list[str]:
        """The stream's events, in short."""
        return [str(e.get("subtype") or e["type"]) for e in self.events]

    def verdict(self, *more: str) -> dict[str, Any]:
        """What `segue classify` says of it."""
        out, err = self.place.root / "out", self.place.root / "err"
        out.write_text(self.out)
        err.write_text(self.err)
        words = ["classify", "--json", "--agent", self.place.agent, "--stdout", str(out)]
        words += ["--stderr", str(err), "--exit-code", str(self.exit_code), *more]
        if files := self.place.transcripts():
            words += ["--transcript", str(files[-1])]
        done = _segue(*words)
        found: dict[str, Any] = json.loads(done)
        return found

    @property
    def reason(self) -> str:
        return str(self.verdict()["reason"])


class Place:
    """A home and a project for the agent. `form` is the first words of its command line."""

    def __init__(self, root: Path, agent: str = "claude", form: Sequence[str] = ()) -> None:
        self.root, self.agent, self.form = root, agent, form
        self.home, self.project = root / "agent-home", root / "project"
        self.project.mkdir(exist_ok=True)
        self.url = ""
        self.env: dict[str, str] = {}

    def argv(self, *words: str) -> list[str]:
        python = rehearsal._python(sys.executable)
        return [*python, "-m", "segue.drill.rehearsal", *self.form, *words]

    def start(self, *words: str, **env: str) -> "subprocess.Popen[str]":
        told = {
            "PATH": os.environ["PATH"],
            "TZ": "UTC",
            "PYTHONPATH": str(Path(segue.__file__).parent.parent),
            "REHEARSAL_HOME": str(self.home),
            "REHEARSAL_WAIT_SCALE": "0.01",
            "CLAUDE_CODE_MAX_RETRIES": "2",
            "ANTHROPIC_BASE_URL": self.url,
            "OPENAI_BASE_URL": f"{self.url}/v1",
            "ANTHROPIC_API_KEY": "none",
            "OPENAI_API_KEY": "none",
            **self.env,
            **env,
        }
        return subprocess.Popen(
            self.argv(*words),
            env=told,
            cwd=self.project,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )

    def end(self, process: "subprocess.Popen[str]", stdin: str | None = None) -> Ran:
        try:
            out, err = process.communicate(stdin, timeout=LONG_S)
        finally:
            process.kill()
        return Ran(self, process.returncode, out, err)

    def run(self, *words: str, **env: str) -> Ran:
        return self.end(self.start(*words, **env))

    def transcripts(self) -> list[Path]:
        found = [*self.home.glob("projects/*/*.jsonl"), *self.home.glob("sessions/*/*/*/*.jsonl")]
        return sorted(found, key=lambda file: file.stat().st_mtime_ns)

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.transcripts()[-1].read_text().splitlines()]

    def status(self) -> dict[str, Any]:
        """What `segue status` says of the newest session."""
        homes = {"CLAUDE_CONFIG_DIR": str(self.home), "CODEX_HOME": str(self.home)}
        found = json.loads(_segue("status", "--json", **homes))
        sessions = [s for s in found["sessions"] if s["agent"] == self.agent]
        assert len(sessions) == 1, found
        status: dict[str, Any] = sessions[0]
        return status


class Gate:
    """A command that says when it runs, and stays until it is ended."""

    def __init__(self, root: Path) -> None:
        self.path = root / "gate"
        os.mkfifo(self.path)
        self.handle = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        self.command = f"echo $$ > '{self.path}'; exec sleep 300"

    def pid(self) -> int:
        """Waits until it runs."""
        assert select.select([self.handle], [], [], LONG_S)[0], "the command was never started"
        return int(os.read(self.handle, 100))


def is_there(pid: int) -> bool:
    """Whether a process lives (one that only waits to be buried does not)."""
    done = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return done.stdout.strip()[:1] not in ("", "Z")


def is_gone(pid: int) -> bool:
    """Whether a process ends soon: one that was killed may take a moment."""
    began = time.monotonic()
    while is_there(pid):
        waited_s = time.monotonic() - began
        if waited_s > LONG_S:
            return False
        time.sleep(pause_s(waited_s))
    return True


@contextmanager
def model(place: Place, script: Scripted) -> Iterator[Scripted]:
    """The scripted model, for as long as the block lasts."""
    with running(script) as server:
        place.url = server.url
        yield script


def _segue(*words: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "segue", *words],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=LONG_S * 2,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
