"""What the size of a context costs: `python -m bench.tail [--json]`.

Three questions. Is the end of a 500 MB transcript as quick to read as that of 2 MB (goal: at most
1.5 times the time; the peer is a full parse of the 2 MB one)? How far does distance count: behind
lines of 0.1, 1 and 10 MB? And what do 5,000 sessions cost in one `segue status`, in CPU time and in
bytes read (goal: nothing but their tails)? And does `segue rescue` over them, all dead, take longer
than that (goal: no)?
"""

import argparse
import json
import os
import resource
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from bench.support.peers import clean_env, run, segue
from segue.agents import find as find_agent
from segue.agents.contracts.profile import Profile, Record
from segue.core.policy import Policy
from segue.core.sessions.look import look_at
from segue.sessions import find
from segue.sessions.look import look
from segue.sessions.survey import make_judge
from segue.sessions.tail import BLOCK_BYTES

GOAL = 1.5
TASK = (
    "Mend the importer: three of its tests fail since the move to the new reader. Keep the public"
    " names as they are, write a test for each mistake that you find, and run everything with make"
    " before you say that it is done. The old reader stays until the release, so both have to work."
)
SESSION = "11111111-2222-4333-8444-555555555555"


def reply(number: int, used: int) -> bytes:
    usage = {
        "input_tokens": 10,
        "cache_creation_input_tokens": 1000,
        "cache_read_input_tokens": used - 1050,
        "output_tokens": 40,
    }
    record = {
        "parentUuid": f"{number:08x}",
        "isSidechain": False,
        "message": {
            "id": f"msg_{number:012x}",
            "type": "message",
            "role": "assistant",
            "model": "claude-opus-5-5",
            "content": [{"type": "text", "text": "done " * 60}],
            "stop_reason": "end_turn",
            "usage": usage,
        },
        "requestId": f"req_{number:012x}",
        "type": "assistant",
        "uuid": f"{number:08x}",
        "timestamp": time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(1_794_000_000 + number)),
        "cwd": "/home/dev/project",
        "sessionId": SESSION,
    }
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def result(size: int) -> bytes:
    record = {
        "isSidechain": False,
        "type": "user",
        "message": {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x" * size}],
        },
        "sessionId": SESSION,
        "cwd": "/home/dev/project",
    }
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def transcript(path: Path, megabytes: float, last: bytes = b"") -> None:
    block = b"".join(reply(n, 20_000 + n) + result(6_000) for n in range(150))
    with path.open("wb") as file:
        for _ in range(max(1, int(megabytes * (1 << 20) / len(block)))):
            file.write(block)
        file.write(reply(999_999, 150_000) + last)


def seconds(path: Path, profile: Profile, rounds: int) -> float:
    info = path.stat()
    stamp = (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns)
    found = find.FileOnDisk(profile.name, str(path.parent), str(path), SESSION, "", stamp)
    judge = make_judge(lambda agent, model, cwd: Policy(), 0.0)
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        seen = look(found, profile, judge)
        taken.append(time.perf_counter() - start)
        if seen.used_tokens != 150_000:
            raise SystemExit(f"{path}: read {seen.used_tokens} instead of 150,000")
    return median(taken)


def full_parse(path: Path, profile: Profile) -> float:
    start = time.perf_counter()
    lines = path.read_bytes().splitlines()
    seen = look_at(profile.parse(Record(json.loads(line)) for line in lines)).look
    if seen.used_tokens != 150_000:
        raise SystemExit("the full parse is wrong")
    return time.perf_counter() - start


def asked() -> bytes:
    record = {
        "isSidechain": False,
        "type": "user",
        "promptSource": "typed",
        "message": {"role": "user", "content": TASK},
        "sessionId": SESSION,
        "cwd": "/home/dev/project",
    }
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def dead(folder: Path, sessions: int, died: int) -> dict[str, Any]:
    """`segue rescue` over sessions, of which some died in a tool, by `segue status` over the same:
    of those that were never seen, and again."""
    body = asked() + b"".join(reply(n, 20_000 + n) + result(6_000) for n in range(40))
    found: dict[str, Any] = {"sessions": sessions, "died": died}
    cpu: dict[str, list[float]] = {}
    for command in ("status", "rescue"):
        home = folder / command
        for number in range(sessions):
            place = home / f".claude/projects/-p-{number % 50}"
            place.mkdir(parents=True, exist_ok=True)
            last = reply(999_999, 150_000)
            if number < died:
                last = last.replace(b'"end_turn"', b'"tool_use"')
            name = f"{number:08x}{SESSION[8:]}"
            (place / f"{name}.jsonl").write_bytes(body + last)
        env = clean_env(home, SEGUE_HOME=str(home / "state"))
        ran = [run([segue(), command, "--json"], env) for _ in range(6)]
        cpu[command] = [ran[0].cpu_s, min(each.cpu_s for each in ran[1:])]
        listed = len(json.loads(ran[0].out)["sessions"])
        if listed != (died if command == "rescue" else sessions):
            raise SystemExit(f"{command} lists {listed} of {sessions}")
    for which, when in enumerate(("first", "again")):
        found[f"{when}_ratio"] = round(cpu["rescue"][which] / cpu["status"][which], 2)
        found[f"{when}_cpu_s"] = [round(cpu[name][which], 2) for name in ("rescue", "status")]
    return found


def many(folder: Path, sessions: int) -> dict[str, Any]:
    """One `segue status` over sessions that were never seen, and again."""
    projects = folder / "home/.claude/projects"
    body = b"".join(reply(n, 20_000 + n) + result(6_000) for n in range(40))
    for number in range(sessions):
        place = projects / f"-p-{number % 50}"
        place.mkdir(parents=True, exist_ok=True)
        name = f"{number:08x}{SESSION[8:]}"
        (place / f"{name}.jsonl").write_bytes(body + reply(999_999, 150_000))
    env = clean_env(folder / "home", SEGUE_HOME=str(folder / "state"))
    command = [segue(), "status", "--json"]
    first, again = run(command, env), run(command, env)
    shown = json.loads(first.out)["sessions"]
    right = sum(s["context"]["used"] == 150_000 for s in shown)
    return {
        "sessions": sessions,
        "right": right,
        "first_cpu_s": round(first.cpu_s, 2),
        "again_cpu_s": round(again.cpu_s, 2),
        "us_each": round(1e6 * first.cpu_s / sessions),
        "size_kb": len(body) >> 10,
        "tail_kb": BLOCK_BYTES >> 10,
    }


def measure(folder: Path, large_mb: int, sessions: int) -> dict[str, Any]:
    profile = find_agent("claude")
    if profile is None:
        raise SystemExit("no profile")
    small, large = folder / "small.jsonl", folder / "large.jsonl"
    transcript(small, 2)
    transcript(large, large_mb)
    seconds(small, profile, 20)  # warms what is loaded lazily
    pairs = [(seconds(small, profile, 40), seconds(large, profile, 40)) for _ in range(7)]
    behind = {}
    for megabytes in (0.1, 1, 10):
        file = folder / f"behind{megabytes}.jsonl"
        transcript(file, 2, result(int(megabytes * (1 << 20))))
        behind[f"{megabytes} MB"] = round(1e3 * seconds(file, profile, 7), 2)
    ratio = median(big / little for little, big in pairs)
    little = median(little for little, _ in pairs)
    return {
        "large_mb": os.path.getsize(large) >> 20,
        "small_ms": round(1e3 * little, 3),
        "ratio": round(ratio, 2),
        "goal": GOAL,
        "full_parse_of_small_ratio": round(full_parse(small, profile) / little),
        "behind_a_line_of_ms": behind,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        "many": many(folder, sessions),
        "rescue": [dead(folder / f"rescue-{part}", sessions, sessions // part) for part in (1, 20)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--sessions", type=int, default=5000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), options.megabytes, options.sessions)
    if options.json:
        print(json.dumps(found))
        return
    print(f"end of 2 MB: {found['small_ms']} ms; of {found['large_mb']} MB: {found['ratio']} times")
    print(f"  that (goal {found['goal']}); a full parse of the 2 MB: ", end="")
    print(f"{found['full_parse_of_small_ratio']} times")
    for size, cost in found["behind_a_line_of_ms"].items():
        print(f"  behind a line of {size}: {cost} ms")
    print("one `segue status`:", json.dumps(found["many"]))
    for each in found["rescue"]:
        print("`segue rescue` by `segue status` (goal 1.0):", json.dumps(each))


if __name__ == "__main__":
    main()
