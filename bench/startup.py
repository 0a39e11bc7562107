"""What it costs to start: `python -m bench.startup [--json] [--daemon stub|watch]`.

CPU and wall time of whole processes, children included, interleaved so that a busy machine harms
all alike. Goals: `segue --version` at most 5 times the same interpreter doing nothing; what `segue
setup claude` installs at most 2 times the barest interpreter with the daemon up, and 3.5 times
without. The same question goes to `ccusage statusline`, if there is one (SEGUE_CCUSAGE names it).
"""

import argparse
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from segue.system import units
from segue.system.files import state
from segue.system.process.descendants import adopt_orphans

GOAL, GOAL_UP, GOAL_DOWN = 5.0, 2.0, 3.5
SMALL = "Working on it.\nAPI Error: 429 Rate limit reached\n"
BARE = "python -I -S -c pass"
SESSION = "11111111-2222-4333-8444-555555555555"
STUB = """
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen(50)
while True:
    line, _ = listener.accept()
    if line.recv(65536):  # nothing comes from who only asks whether it is there
        line.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 22\\r\\n\\r\\n" + b"#" * 22)
    line.close()
"""


def reply(number: int, used: int) -> str:
    """A record of a claude session: 500 of them are half a megabyte."""
    usage = {"input_tokens": 10, "cache_read_input_tokens": used, "output_tokens": 40}
    message = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [{"type": "text", "text": "Done. " * 100}],
        "usage": usage,
    }
    at = f"2026-11-16T08:{number // 60 % 60:02}:{number % 60:02}.000Z"
    record = {"type": "assistant", "message": message, "requestId": f"req_{number}"}
    return json.dumps({**record, "timestamp": at, "cwd": "/p", "sessionId": SESSION})


def payload(transcript: Path) -> bytes:
    """What claude gives a status line."""
    usage = {"input_tokens": 10, "cache_read_input_tokens": 104_000, "output_tokens": 40}
    window = {
        "total_input_tokens": 104_010,
        "total_output_tokens": 40,
        "context_window_size": 200_000,
        "current_usage": usage,
        "used_percentage": 52,
        "remaining_percentage": 48,
    }
    cost = {"total_cost_usd": 0.01, "total_duration_ms": 7_580, "total_api_duration_ms": 522}
    given = {
        "session_id": SESSION,
        "transcript_path": str(transcript),
        "cwd": "/p",
        "model": {"id": "claude-sonnet-4-5", "display_name": "Sonnet 4.5"},
        "workspace": {"current_dir": "/p", "project_dir": "/p"},
        "version": "2.1.325",
        "cost": cost,
        "context_window": window,
        "hook_event_name": "UserPromptSubmit",
        "prompt": "go on",
    }
    return json.dumps(given).encode()


def took(command: list[str], env: dict[str, str], given: bytes) -> tuple[float, float]:
    """CPU and wall seconds of a process. The client does not wait for what it starts, so that is
    waited for here: it has become a child of this process."""
    known = children()
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env=env, check=True, input=given, stdout=subprocess.DEVNULL)
    wall = time.perf_counter() - began
    for pid in children() - known:
        os.waitpid(pid, 0)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def children() -> set[int]:
    """Also those that ended and were not waited for."""
    return {process.pid for process in psutil.Process().children()}


@contextmanager
def daemon(kind: str, env: dict[str, str], script: str) -> Iterator[None]:
    """A daemon that answers: the real one, or one that costs nothing."""
    place = state.socket_path()
    state.make_watch_folder()
    argv = [script, "watch"] if kind == "watch" else [sys.executable, "-c", STUB, place]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(argv, env=env, stdin=quiet, stdout=quiet, stderr=quiet) as process:
        try:
            until = time.monotonic() + 30
            while not answers(place):
                if process.poll() is not None or time.monotonic() > until:
                    sys.exit(f"{' '.join(argv[:2])} does not answer at {place}")
                time.sleep(0.05)
            yield
            if process.poll() is not None:  # the clients were measured without a daemon
                sys.exit(f"{' '.join(argv[:2])} ended while its clients were measured")
        finally:
            process.terminate()


def answers(place: str) -> bool:
    with socket.socket(socket.AF_UNIX) as line:
        try:
            line.connect(place)
        except OSError:
            return False
    return True


def clients(without: str) -> dict[str, list[str]]:
    """What claude runs, as `setup` writes it: by a shell, with the daemon and without one."""
    line, hook = (
        units.client_command("statusline", "-"),
        units.client_command("hook", "UserPromptSubmit"),
    )
    up = state.socket_path()
    return {
        "status line, daemon up": ["sh", "-c", line],
        "hook, daemon up": ["sh", "-c", hook],
        "status line, no daemon": ["sh", "-c", line.replace(up, without)],
        # Nothing can be kept in a folder that does not exist: each time is the first time.
        "status line, first time": ["sh", "-c", line.replace(up, f"{without}.d/nobody.sock")],
        "hook, no daemon": ["sh", "-c", hook.replace(up, without)],
    }


def measure(rounds: int, kind: str) -> dict[str, Any]:
    # Not resolved: in a virtual environment the interpreter is a link to one elsewhere.
    script = Path(sys.executable).parent / "segue"
    if not script.is_file():
        sys.exit(f"no {script}: install segue beside this interpreter first")
    with tempfile.TemporaryDirectory(prefix="segue-") as home:
        file = Path(home) / "tail.txt"
        file.write_text(SMALL)
        transcript = Path(home) / ".claude/projects/-p" / f"{SESSION}.jsonl"
        transcript.parent.mkdir(parents=True)
        transcript.write_text("".join(reply(n, 200 * n) + "\n" for n in range(1, 521)))
        os.environ["SEGUE_HOME"] = home  # where `state` looks
        env = {"PATH": os.environ.get("PATH", ""), "HOME": home, "SEGUE_HOME": home}
        own = clients(f"{home}/nobody.sock")
        commands = {
            BARE: [sys.executable, "-I", "-S", "-c", "pass"],
            **own,
            "python -c pass": [sys.executable, "-c", "pass"],
            "python -c 'import segue'": [sys.executable, "-c", "import segue"],
            "python -c 'import click'": [sys.executable, "-c", "import click"],
            "segue --version": [str(script), "--version"],
            "segue classify --json": [str(script), "classify", "--json", str(file)],
        }
        ccusage = os.environ.get("SEGUE_CCUSAGE") or shutil.which("ccusage")
        if ccusage:
            asked = [ccusage, "statusline", "--offline"]
            commands["ccusage statusline"] = asked  # may be what it said a moment ago
            commands["ccusage, nothing kept"] = [*asked, "--no-cache"]
        given = payload(transcript)
        adopt_orphans()
        with daemon(kind, env, str(script)):
            for command in commands.values():  # writes the .pyc files, warms the page cache
                took(command, env, given)
            taken: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
            for _ in range(rounds):
                for name, command in commands.items():
                    taken[name].append(took(command, env, given))
    cpu = {name: median(each[0] for each in all_of) for name, all_of in taken.items()}
    wall = {name: median(each[1] for each in all_of) for name, all_of in taken.items()}
    rows = []
    for name in taken:
        is_bare = name in own or name == BARE or name.startswith("ccusage")
        base = BARE if is_bare else "python -c pass"
        rows.append(
            {
                "command": name,
                "cpu_ms": round(1e3 * cpu[name], 2),
                "wall_ms": round(1e3 * wall[name], 2),
                "ratio": round(cpu[name] / cpu[base], 2),
                "wall_ratio": round(wall[name] / wall[base], 2),
                "of": base,
                "goal": _goal(name),
            }
        )
    return {"rounds": rounds, "daemon": kind, "goal": GOAL, "ccusage": bool(ccusage), "rows": rows}


def _goal(name: str) -> float | None:
    if name.endswith("daemon up"):
        return GOAL_UP
    if name.endswith("no daemon"):
        return GOAL_DOWN
    return GOAL if name == "segue --version" else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--daemon",
        choices=("stub", "watch"),
        default="watch",
        help="who answers the client: `segue watch`, or a stub that costs nothing",
    )
    options = parser.parse_args()
    found = measure(options.rounds, options.daemon)
    if options.json:
        print(json.dumps(found))
        return
    print(f"{'command':<27}{'CPU ms':>8}{'ratio':>7}{'wall ms':>9}{'ratio':>7}{'goal':>6}   of")
    for row in found["rows"]:
        goal = f"{row['goal']:g}x" if row["goal"] else ""
        print(
            f"{row['command']:<27}{row['cpu_ms']:>8.1f}{row['ratio']:>7.2f}"
            f"{row['wall_ms']:>9.1f}{row['wall_ratio']:>7.2f}{goal:>6}   {row['of']}"
        )
    if not found["ccusage"]:
        print("ccusage is not installed here; SEGUE_CCUSAGE names it")


if __name__ == "__main__":
    main()
