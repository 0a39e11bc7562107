"""A relay between two real agents, each with a scripted model of its own; to be run enclosed.

    python tests/support/agents/real_relay.py FIRST SECOND FOLDER [SETTING=VALUE]

The first one's provider refuses for two hours from step 5 on. Prints what came of it, as JSON.
"""

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import segue
from segue.drill import casts
from segue.drill.model.script import Script
from segue.drill.model.server import running
from segue.drill.plays import job
from segue.drill.scenarios import load
from segue.runs.store.sqlite import SqliteStore

STEPS, LIMITED_AT = 8, 5
_ROOT = str(Path(segue.__file__).resolve().parent.parent)
_SEGUE = f"import sys; sys.path.insert(0, {_ROOT!r}); from segue.start import main; main()"
_LIMIT_S = 240


def scenarios() -> tuple[str, str]:
    """Of the first agent's model and of the second one's."""
    ours = Path(casts.__file__).parents[1] / "scenarios/plan-limit.toml"
    text = ours.read_text().replace("resets_in_s = 8", "resets_in_s = 7200")
    lines = text.replace("before_step = 3", f"before_step = {LIMITED_AT}").splitlines()
    limited = [f"steps = {STEPS}" if line.startswith("steps =") else line for line in lines]
    return "\n".join(limited) + "\n", f'about = "Nothing happens."\n[job]\nsteps = {STEPS}\n'


def main(names: list[str], root: Path, sets: list[str]) -> dict[str, Any]:
    home, project, state = root / "home", root / "project", root / "segue"
    for folder in (home, home / "tmp", project, state):
        folder.mkdir(parents=True, exist_ok=True)
    config, env, first_flags = "", dict[str, str](), list[str]()
    with ExitStack() as stack:
        servers = []
        for place, (name, text) in enumerate(zip(names, scenarios(), strict=True)):
            file = root / f"{place}.toml"
            file.write_text(text)
            cast, played = casts.find(name), load.load(file)
            if place == 0:
                task = job.make(project, played.job)
            window = cast.window_tokens
            script = Script(played, window_tokens=window)
            server = stack.enter_context(running(script))
            servers.append(server)
            stage = casts.PlayStage(
                home=home,
                project=project,
                port=server.port,
                window_tokens=window,
                max_turns=None,
                options=played.options.get(cast.name, {}),
            )
            cast.prepare(stage)
            program = cast.find(os.environ)
            assert program is not None, f"{name} is not installed: {cast.install}"
            driven = cast.driven(program, stage)
            env |= driven.env
            config += f"[agents.{cast.agent}]\ncommand = {json.dumps(list(driven.command))}\n"
            if place == 0:
                first_flags = list(driven.flags)
            else:
                config += f"[run.flags]\n{cast.agent} = {json.dumps(list(driven.flags))}\n"
        (state / "config.toml").write_text(config)
        argv = [sys.executable, "-P", "-c", _SEGUE, "run", "--json", "--agent", ",".join(names)]
        argv += [f"--set={each}" for each in sets]
        done = subprocess.run(
            [*argv, task, "--", *first_flags],
            env={**env, "SEGUE_HOME": str(state)},
            cwd=project,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
        found = job.check(project, load.load(root / "0.toml").job, finished=True)
        with SqliteStore(state / "runs.db") as store:
            (run,) = store.runs()
            legs = [[leg.agent, leg.reason] for leg in store.legs(run.id)]
        return {
            "code": done.returncode,
            "stderr": done.stderr[-2_000:],
            "legs": legs,
            "is_whole": found.is_whole,
            "found": str(found),
            "requests": [len(server.requests) for server in servers],
            "prompt": (state / "runs" / run.id / "leg-002" / "prompt.md").read_text()
            if len(legs) > 1
            else "",
        }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:3], Path(sys.argv[3]), sys.argv[4:])))
