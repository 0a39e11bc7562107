"""A queue of tasks for real claude and real codex, against one scripted model. Runs enclosed, as a
process of its own: `python tests/script.py queue_real.py FOLDER`; prints what came of it as JSON.

The first two tasks run into claude's limit in the middle; the others may take either agent.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from segue.drill import casts
from segue.drill.model.script import Script
from segue.drill.model.server import running
from segue.drill.plays import enclosure, job
from segue.drill.scenarios import load
from segue.queue.sqlite import SqliteQueue
from support.fleet.queueing import Told

LIMIT_S = 30
STEPS = """
about = "A few steps."
[job]
steps = 3
"""
LIMITED = f"""{STEPS}
[[rules]]
before_step = 2
fault = "plan_limit"
resets_in_s = {LIMIT_S}
"""
NAMES = ("limited-1", "limited-2", "plain-1", "plain-2", "plain-3", "plain-4")
POLICY = "[policy]\nreset_jitter_min_s = 0.1\nreset_jitter_max_s = 0.5\n"
SEGUE = (sys.executable, "-c", "from segue.start import main; main()")
MAX_S = 280


def main(folder: Path) -> None:
    enclosure.demand()
    home, project, state = folder / "home", folder / "project", folder / "segue"
    for each in (home, home / "tmp", project, state):
        each.mkdir(parents=True)
    scripts = {}
    for name in NAMES:
        path = folder / f"{name}.toml"
        path.write_text(LIMITED if name.startswith("limited") else STEPS)
        scripts[name] = Script(load.load(path), window_tokens=200_000)
    scenario = load.load(folder / "plain-1.toml")
    task = job.make(project, scenario.job)
    model = Told(scripts)
    with running(model) as server:
        env, config = _agents(home, project, server.port)
        env |= {"SEGUE_HOME": str(state), "TZ": "UTC"}
        (state / "config.toml").write_text(f"{config}{POLICY}[queue]\npark_s = 3\n")
        listed = "".join(f"- This is job {name}. {task}\n" for name in NAMES)
        words = ("submit", "--agent", "claude,codex", "--from", "-")
        _segue(*words, env=env, cwd=project, stdin=listed)
        told = _segue("worker", "--jobs", "2", "--until-empty", env=env, cwd=project)
    with SqliteQueue(state / "queue.db") as queue:
        found = [
            {
                "name": name,
                "agent": each.agent,
                "state": each.state.value,
                "ended_at": each.ended_at,
                "is_whole": job.check(Path(each.tree), scenario.job, finished=True).is_whole,
            }
            for name, each in zip(NAMES, queue.tasks(), strict=True)
        ]
    limits = [at for _, at, what in model.asked if what == "plan_limit"]
    print(json.dumps({"tasks": found, "said": told, "limits": limits}))


def _agents(home: Path, project: Path, port: int) -> tuple[dict[str, str], str]:
    env: dict[str, str] = {}
    config, flags = "", "[run.flags]\n"
    for name in ("claude", "codex"):
        cast = casts.find(name)
        where = casts.PlayStage(
            home=home, project=project, port=port, window_tokens=200_000, options={"plan": "1"}
        )
        cast.prepare(where)
        program = cast.find({"SEGUE_AGENTS": os.environ["SEGUE_AGENTS"], "PATH": ""})
        assert program is not None, name
        driven = cast.driven(program, where)
        env |= driven.env
        config += f"[agents.{name}]\ncommand = {json.dumps(list(driven.command))}\n"
        flags += f"{name} = {json.dumps(list(driven.flags))}\n"
    return env, config + flags


def _segue(*words: str, env: dict[str, str], cwd: Path, stdin: str = "") -> str:
    done = subprocess.run(
        [*SEGUE, *words], env=env, cwd=cwd, input=stdin, capture_output=True, text=True,
        timeout=MAX_S, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        sys.exit(f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]))
