"""What it costs to start: `python bench/startup.py [--json]`.

CPU time of whole processes, children included, interleaved so that a busy machine harms all
alike. Goal: `segue --version` at most 5 times the same interpreter doing nothing.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

GOAL = 5.0
SMALL = "Working on it.\nAPI Error: 429 Rate limit reached\n"


def cpu_s(command: list[str], env: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(rounds: int) -> dict[str, Any]:
    # Not resolved: in a virtual environment the interpreter is a link to one elsewhere.
    script = Path(sys.executable).parent / "segue"
    if not script.is_file():
        sys.exit(f"no {script}: install segue beside this interpreter first")
    with tempfile.TemporaryDirectory() as home:
        file = Path(home) / "tail.txt"
        file.write_text(SMALL)
        env = {"PATH": os.environ.get("PATH", ""), "HOME": home, "SEGUE_HOME": home}
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "python -c 'import segue'": [sys.executable, "-c", "import segue"],
            "python -c 'import click'": [sys.executable, "-c", "import click"],
            "segue --version": [str(script), "--version"],
            "segue classify --json": [str(script), "classify", "--json", str(file)],
        }
        for command in commands.values():  # writes the .pyc files, warms the page cache
            cpu_s(command, env)
        taken: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(rounds):
            for name, command in commands.items():
                taken[name].append(cpu_s(command, env))
    base = median(taken["python -c pass"])
    rows = [
        {"command": n, "cpu_ms": round(1e3 * median(t), 2), "ratio": round(median(t) / base, 2)}
        for n, t in taken.items()
    ]
    return {"rounds": rounds, "goal": GOAL, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    found = measure(options.rounds)
    if options.json:
        print(json.dumps(found))
        return
    print(f"{'command':<27}{'CPU ms':>8}{'ratio':>7}   (goal for --version: {found['goal']:.0f}x)")
    for row in found["rows"]:
        print(f"{row['command']:<27}{row['cpu_ms']:>8.1f}{row['ratio']:>7.2f}")


if __name__ == "__main__":
    main()
