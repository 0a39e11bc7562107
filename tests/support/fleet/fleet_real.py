"""A task of a real agent that loses its machine, against a scripted model. Runs enclosed, as a
process of its own: `python tests/script.py fleet_real.py FOLDER AGENT`; prints what came of it as
JSON. Two machines, a PostgreSQL and a repository that both reach."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from segue.drill import casts
from segue.drill.model.script import Script
from segue.drill.model.server import running
from segue.drill.plays import enclosure, job
from segue.drill.scenarios import load
from segue.fleet.queue import PostgresQueue
from segue.fleet.store import PostgresStore
from support.fleet.machines import SEGUE, TestMachine
from support.fleet.postgres import postgres

STEPS = """
about = "A few steps."
[job]
steps = 6
step_s = 0.5
"""
CONFIG = "[policy]\nsnapshot_every_s = 0.2\n"
MAX_S = 150.0


def until(holds: Callable[[], Any], what: str) -> Any:
    limit = time.monotonic() + MAX_S
    while not (found := holds()):
        if time.monotonic() > limit:
            sys.exit(f"it never came true: {what}")
        time.sleep(0.1)
    return found


def main(folder: Path, agent: str) -> None:
    enclosure.demand()
    folder.mkdir()
    (folder / "steps.toml").write_text(STEPS)
    scenario = load.load(folder / "steps.toml")
    task = job.make(folder / "repo", scenario.job)
    model = Script(scenario, window_tokens=200_000)
    machines: list[TestMachine] = []
    with postgres() as server, running(model) as played:
        try:
            for name in ("one", "two"):
                machine = TestMachine.make(folder / name, server.url(), CONFIG)
                prepare(machine, agent, folder / "repo", played.port)
                machines.append(machine)
            print(json.dumps(play(machines, server.url(), agent, folder / "repo", task, scenario)))
        finally:
            for machine in machines:
                sys.stderr.write(machine.said() if (machine.folder / "log").exists() else "")
                machine.power_cut()


def prepare(machine: TestMachine, agent: str, project: Path, port: int) -> None:
    """What the agent needs to reach the model, and nothing else."""
    cast = casts.find(agent)
    home = Path(machine.env["HOME"])
    (home / "tmp").mkdir(exist_ok=True)
    where = casts.PlayStage(
        home=home, project=project, port=port, window_tokens=200_000, options={}
    )
    cast.prepare(where)
    program = cast.find({name: os.environ[name] for name in ("SEGUE_AGENTS", "PATH")})
    assert program is not None
    driven = cast.driven(program, where)
    machine.env.update(driven.env)
    for who in ("AUTHOR", "COMMITTER"):
        machine.env |= {f"GIT_{who}_NAME": "me", f"GIT_{who}_EMAIL": "me@example.invalid"}
    config = machine.folder / "segue" / "config.toml"
    config.write_text(
        f"{config.read_text()}[agents.{agent}]\ncommand = {json.dumps(list(driven.command))}\n"
        f"[run.flags]\n{agent} = {json.dumps(list(driven.flags))}\n"
    )


def play(
    machines: list[TestMachine], url: str, agent: str, repo: Path, text: str, scenario: Any
) -> dict[str, Any]:
    one, two = machines
    words = ("submit", "--agent", agent, "--repo", f"file://{repo}", text)
    done = subprocess.run(
        [*SEGUE, *words], env=one.env, cwd=one.folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.stderr)
    with PostgresQueue(url) as queue, PostgresStore(url) as store:
        one.start("worker")
        (task,) = queue.tasks()

        def kept() -> int:
            """How many steps are in the snapshot that was pushed, if its session is kept too."""
            said = subprocess.run(
                ["git", "log", "--format=%H %s", f"refs/segue/{task.id}"], cwd=repo,
                capture_output=True, text=True, check=False,
            ).stdout  # fmt: skip
            found = queue.rows("SELECT snapshot FROM segue.session")
            return said.count(" step ") if found and said.startswith(found[0][0]) else 0

        pushed = until(lambda: found if (found := kept()) >= 2 else 0, "two steps are kept")
        one.power_cut()
        lost_at = time.monotonic()
        two.start("worker")

        def is_over() -> Any:
            now = queue.task(task.id)
            return now if now is not None and now.state.is_final else None

        ended = until(is_over, "the task ends")
        took_s = time.monotonic() - lost_at
        run, former = store.run(ended.run), store.run(ended.former_runs[-1])
        assert run is not None
        assert former is not None
        prompts = sorted((two.folder / "segue" / "runs" / run.id).glob("leg-*/prompt.md"))
        return {
            "state": ended.state.value,
            "outcome": ended.outcome.what if ended.outcome else "",
            "pushed": pushed,
            "took_s": took_s,
            "session": run.session_id,
            "before": former.session_id,
            "is_same": run.origin.is_same if run.origin is not None else None,
            "prompt": prompts[0].read_text(),
            "done": job.check(Path(ended.tree), scenario.job, finished=True).done,
            "is_whole": job.check(Path(ended.tree), scenario.job, finished=True).is_whole,
        }


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
