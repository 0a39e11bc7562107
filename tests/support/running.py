"""`segue run` through the real command line, for tests: the rehearsal agent, a scripted model on
loopback, and a home of its own.

    with stage("three-exhaustions", within=tmp_path) as s:
        ended = s.run("--json")
        assert ended.code == 0 and ended.events[-1]["state"] == "done"
        assert s.continuity().is_whole
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from segue.drill import casts
from segue.drill.model.script import Script
from segue.drill.model.server import Running, running
from segue.drill.plays import job
from segue.drill.plays.job import Continuity
from segue.drill.scenarios import load
from segue.drill.scenarios.types import Scenario
from segue.runs.store.sqlite import SqliteStore
from support.kept_prices import put_kept_prices
from support.waiting import until

LONG_S = 180.0  # nothing takes that long; a test that waits so long has failed
QUICK = {
    "reset_jitter_min_s": 0.1,
    "reset_jitter_max_s": 0.5,
    "unknown_reset_wait_s": 1.0,
    "unknown_reset_max_s": 3.0,
    "stall_s": 8.0,
}
"""A policy for tests that must not wait for minutes."""
PATIENT = {**QUICK, "stall_s": 600.0}
"""The same, for an agent that is to hang for as long as a test needs."""
_HOMES = {"rehearsal": "CLAUDE_CONFIG_DIR", "rehearsal-codex": "CODEX_HOME"}


@dataclass
class Ended:
    """A command of segue that is over."""

    code: int
    stdout: str
    stderr: str

    @property
    def events(self) -> list[dict[str, Any]]:
        """Of `--json`: one object a line."""
        return [json.loads(line) for line in self.stdout.splitlines()]

    @property
    def lines(self) -> list[str]:
        return self.stdout.splitlines()


@dataclass
class Staged:
    """A place to run segue in."""

    root: Path
    agent: str
    task: str
    flags: tuple[str, ...]
    env: dict[str, str]
    server: Running
    scenario: Scenario
    conf: str = ""
    started: list["subprocess.Popen[str]"] = field(default_factory=list)

    @property
    def project(self) -> Path:
        return self.root / "project"

    @property
    def home(self) -> Path:
        """SEGUE_HOME: the config and all state."""
        return self.root / "segue"

    @property
    def answers(self) -> list[str]:
        """What the scripted model did, request by request."""
        return [str(request.answered) for request in self.server.requests]

    def config(self, more: str = "", policy: Mapping[str, object] = QUICK) -> None:
        """Writes config.toml anew: the agent, this policy, and `more` tables."""
        said = "".join(f"{key} = {json.dumps(value)}\n" for key, value in policy.items())
        (self.home / "config.toml").write_text(f"{self.conf}[policy]\n{said}{more}")

    def start(self, *words: str, cwd: Path | None = None, **env: str) -> "subprocess.Popen[str]":
        """A command of segue that goes on in the background."""
        command = ("-c", "from segue.start import main; main()", *words)
        return self._start(command, cwd or self.project, env)

    def start_script(self, script: Path, *words: str, **env: str) -> "subprocess.Popen[str]":
        """The same with a script of the tests instead of segue itself."""
        return self._start((str(script), *words), self.project, env)

    def _start(
        self, words: Sequence[str], cwd: Path, env: Mapping[str, str]
    ) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, *words],
            env={**self.env, **env},
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="surrogateescape",
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def end(
        self, process: "subprocess.Popen[str]", stdin: str | None = None, max_s: float = LONG_S
    ) -> Ended:
        """Waits for it."""
        out, err = process.communicate(stdin, timeout=max_s)
        return Ended(process.returncode, out, err)

    def segue(
        self,
        *words: str,
        stdin: str | None = None,
        cwd: Path | None = None,
        max_s: float = LONG_S,
        **env: str,
    ) -> Ended:
        """A command of segue, to its end."""
        return self.end(self.start(*words, cwd=cwd, **env), stdin, max_s)

    def words(self, *more: str) -> list[str]:
        """`run` with this agent, task and flags."""
        own = ["--", *self.flags] if self.flags else []
        return ["run", "--agent", self.agent, *more, self.task, *own]

    def run(self, *more: str, **env: str) -> Ended:
        """`segue run`, to its end."""
        return self.end(self.start_run(*more, **env))

    def start_run(self, *more: str, **env: str) -> "subprocess.Popen[str]":
        """`segue run`, in the background."""
        return self.start(*self.words(*more), cwd=None, **env)

    def continuity(self, *, finished: bool = True) -> Continuity:
        """What was done of the job, lost, and done twice."""
        return job.check(self.project, self.scenario.job, finished=finished)

    @contextmanager
    def store(self) -> Iterator[SqliteStore]:
        with SqliteStore(self.home / "runs.db") as found:
            yield found

    def run_ids(self) -> list[str]:
        """The newest first; none as long as there is no store."""
        if not (self.home / "runs.db").exists():
            return []
        with self.store() as store:
            return [run.id for run in store.runs()]

    def state(self, run_id: str) -> str:
        with self.store() as store:
            run = store.run(run_id)
        return run.state.value if run else ""

    def leg(self, run_id: str, number: int = 1) -> Path:
        """A leg's folder."""
        return self.home / "runs" / run_id / f"leg-{number:03}"

    def until(self, holds: Callable[[], Any], max_s: float = LONG_S) -> Any:
        """Waits for a condition, and returns what it gave."""
        return until(holds, limit_s=max_s)

    def new_run(self, *more: str) -> tuple["subprocess.Popen[str]", str]:
        """Starts a run in the background; its process, and its id once its agent replied."""
        known = set(self.run_ids())
        process = self.start_run(*more)
        run_id = self.until(lambda: next((i for i in self.run_ids() if i not in known), ""))
        self.until(lambda: self.state(run_id) == "working")
        return process, run_id


@contextmanager
def stage(
    scenario: str | Path,
    cast: str = "rehearsal",
    *,
    within: Path | None = None,
    policy: Mapping[str, object] = QUICK,
    more: str = "",
) -> Iterator[Staged]:
    """All that a run needs. `policy` and `more` (tables) are the config. What was started in the
    background is ended at the end, agents and all."""
    with ExitStack() as stack:
        if within is None:
            within = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="segue-run-")))
        root = Path(tempfile.mkdtemp(prefix="stage-", dir=within))
        part, played = casts.find(cast), load.load(scenario)
        home, project = root / "home", root / "project"
        for folder in (home, home / "tmp", project, root / "segue"):
            folder.mkdir(parents=True, exist_ok=True)
        task = job.make(project, played.job)
        context = played.context
        window = (context.window_tokens if context else None) or part.window_tokens
        server = stack.enter_context(running(Script(played, window_tokens=window)))
        where = casts.PlayStage(
            home=home,
            project=project,
            port=server.port,
            window_tokens=window,
            max_turns=played.max_turns,
            options=played.options.get(part.name, {}),
        )
        part.prepare(where)
        program = part.find(os.environ)
        assert program is not None
        begun = part.start(program, where, task, "")
        command = list(begun.argv[: list(begun.argv).index("-m") + 2])
        env = {**begun.env, "SEGUE_HOME": str(root / "segue"), "TZ": "UTC"}
        env[_HOMES[cast]] = env["REHEARSAL_HOME"]
        flags: Sequence[str] = ()
        if cast == "rehearsal" and played.max_turns:
            flags = ("--max-turns", str(played.max_turns))
        staged = Staged(
            root=root,
            agent=part.agent,
            task=task,
            flags=tuple(flags),
            env=env,
            server=server,
            scenario=played,
            conf=f'[agents.{part.agent}]\ncommand = {json.dumps(command)}\nlike = "{part.agent}"\n',
        )
        staged.config(more, policy)
        put_kept_prices(staged.home)
        try:
            yield staged
        finally:
            _end(staged)


def _end(staged: Staged) -> None:
    for process in staged.started:
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()
    from segue.runs.legs.leg import Leg

    for folder in (staged.home / "runs").glob("*/leg-*"):
        leg = Leg(folder)
        if leg.status().state in ("running", "starting"):
            leg.command("test-kill", "kill")
            leg.wait(LONG_S)
