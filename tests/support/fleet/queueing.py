"""A queue for tests: one repository, many tasks of the rehearsal agent, and a scripted model that
tells them apart, so that each can have limits, crashes and full windows of its own.

    with queued({"a": "success", "b": LIMITED}, within=tmp_path) as q:
        ids = q.submit("a", "b")
        assert q.segue("worker", "--until-empty").code == 0
        assert q.faults() == []
"""

import json
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from segue.core.queue.types import Task
from segue.drill import casts
from segue.drill.model.answer import ModelAnswer
from segue.drill.model.ask import Ask
from segue.drill.model.script import Script
from segue.drill.model.server import Running, running
from segue.drill.plays import job
from segue.drill.scenarios import load
from segue.queue.sqlite import SqliteQueue
from segue.runs.legs.leg import Leg
from support.running import QUICK, Staged, stage
from support.waiting import LONG_S

STEPS = """
about = "A few steps."
[job]
steps = 6
step_s = 0.1  # no agent works faster than it can be watched
"""
LIMITED = f"""{STEPS}
[[rules]]
before_step = 3
fault = "plan_limit"
resets_in_s = 2
"""
FULL = f"""{STEPS}
[context]
fills_after_steps = 5.2
"""
PLAN = f"""{STEPS}
[options.rehearsal]
plan = "1"
"""
POLICY = {**QUICK, "stall_s": 120.0}
_NAME = re.compile(r"This is job ([A-Za-z0-9-]+)\.")


class Told:
    """A model for each task, told apart by what stands in the task. `asked`: when each was asked,
    and what was answered."""

    def __init__(self, scripts: Mapping[str, Script]) -> None:
        self.scripts = dict(scripts)
        self.asked: list[tuple[str, float, str]] = []

    def answer(self, ask: Ask, now: float) -> ModelAnswer:
        names = (m[1] for part in ask.parts for m in _NAME.finditer(part.text))
        name = next(names, "") or next(iter(self.scripts))
        answer = self.scripts[name].answer(ask, now)
        self.asked.append((name, now, answer.decision))
        return answer


@dataclass
class Queued:
    """A place with a queue."""

    staged: Staged
    model: Told
    server: Running
    jobs: dict[str, Any]
    names: dict[str, str] = field(default_factory=dict)  # of tasks, by id

    @property
    def home(self) -> Path:
        return self.staged.home

    @property
    def project(self) -> Path:
        return self.staged.project

    def segue(self, *words: str, **more: Any) -> Any:
        return self.staged.segue(*words, **more)

    def text(self, name: str) -> str:
        return f"This is job {name}. {job.prompt(self.jobs[name])}"

    def submit(self, *names: str, options: tuple[str, ...] = ()) -> list[str]:
        """Queues these, in order; their ids."""
        found = []
        for name in names:
            ended = self.segue("submit", "--agent", self.staged.agent, *options, self.text(name))
            assert ended.code == 0, ended.stderr
            found.append(ended.stdout.strip())
            self.names[found[-1]] = name
        return found

    def submit_many(self, names: list[str]) -> list[str]:
        """The same in one go."""
        listed = "".join(f"- {self.text(name)}\n" for name in names)
        words = ("submit", "--agent", self.staged.agent, "--from", "-")
        ended = self.segue(*words, stdin=listed)
        assert ended.code == 0, ended.stderr
        ids = ended.stdout.split()
        self.names.update(zip(ids, names, strict=True))
        return list(ids)

    @contextmanager
    def queue(self) -> Iterator[SqliteQueue]:
        with SqliteQueue(self.home / "queue.db") as found:
            yield found

    def tasks(self) -> dict[str, Task]:
        with self.queue() as queue:
            return {task.id: task for task in queue.tasks()}

    def shown(self) -> dict[str, dict[str, Any]]:
        """As `segue queue --json` tells them."""
        ended = self.segue("queue", "--json")
        assert ended.code == 0, ended.stderr
        return {task["task"]: task for task in json.loads(ended.stdout)["tasks"]}

    def left_running(self) -> list[psutil.Process]:
        """Any process of theirs: workers, carriers, agents, keepers, tools."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("HOME") == self.staged.env["HOME"]:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def faults(self, state: str = "done") -> list[str]:
        """What is wrong once all is over."""
        found = []
        for name in ("queue.db", "runs.db"):
            with closing(sqlite3.connect(self.home / name)) as db:
                found += [row[0] for row in db.execute("PRAGMA integrity_check") if row[0] != "ok"]
        tasks = self.tasks()
        trees = [task.tree for task in tasks.values()]
        if len(set(trees)) != len(trees):
            found.append("a tree is shared")
        for task in tasks.values():
            if task.state.value != state:
                found.append(f"{task.id} is {task.state.value}: {task.outcome}")
                continue
            done = job.check(Path(task.tree), self.jobs[self.names[task.id]], finished=True)
            if not done.is_whole:
                found.append(f"{task.id}: {done}")
        with self.staged.store() as store:
            runs = {run.id for run in store.runs()}
        if runs != {task.run for task in tasks.values()}:
            found.append("there are runs that no task has")
        found += [f"still runs: {process}" for process in self.left_running()]
        return found


@contextmanager
def queued(
    scenarios: Mapping[str, str],
    within: Path,
    *,
    policy: Mapping[str, object] = POLICY,
    more: str = "[queue]\npark_s = 0.5\n",
) -> Iterator[Queued]:
    """All that a queue needs. What still runs at the end is ended."""
    with ExitStack() as stack:
        (within / "plan.toml").write_text(PLAN)
        s = stack.enter_context(
            stage(within / "plan.toml", within=within, policy=policy, more=more)
        )
        scripts, jobs = {}, {}
        for name, text in scenarios.items():
            path = within / f"scenario-{name}.toml"
            path.write_text(text)
            scenario = load.load(path)
            own = scenario.context.window_tokens if scenario.context else None
            window = own or casts.find(s.agent).window_tokens
            scripts[name] = Script(scenario, window_tokens=window)
            jobs[name] = scenario.job
        model = Told(scripts)
        server = stack.enter_context(running(model))
        for key, value in s.env.items():
            if str(s.server.port) in value:
                s.env[key] = value.replace(str(s.server.port), str(server.port))
        q = Queued(s, model, server, jobs)
        stack.callback(_end, q)
        yield q


def _end(q: Queued) -> None:
    for process in q.left_running():
        if "worker" in " ".join(process.cmdline()):
            process.kill()
    for folder in (q.home / "runs").glob("*/leg-*"):
        leg = Leg(folder)
        if leg.status().state in ("running", "starting"):
            leg.command("test-kill", "kill")
            leg.wait(LONG_S)
