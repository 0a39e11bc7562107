"""What segue adds to an agent that it runs: `python -m bench.overhead [--json] [--full]`.

1. CPU time per MB of following and parsing a stream while it is written. The peer is `cat`, which
   copies the same bytes from a pipe to a file; start-up is subtracted on both sides, measured by a
   stream with nothing in it. Goal: at most 8 times cat's.
2. How late an event is, from the write of its line on, at 2,000 lines a second. The peer is
   `tail -f` with a reader that parses nothing. Goal: 99 of 100 within 10 ms.
3. Memory: the peak over a long stream and over a short one. Goal: a tenth more at the most.
4. From the agent's exit to the decision. Goal: 100 ms. 5. From the record that crosses the hard
   mark to the decision. Goal: 1 s. The worst of real runs: see `bench.support.decisions`.

The stream is a recording of a real run, repeated with ids of its own and with results of 1 to 64 KB
of source code, of a shell and of files that were read. The noisy one is a shell's only, of code
about failures: parsers look for failing tests in it. Each run is checked for its replies.
"""

import argparse
import ast
import difflib
import inspect
import json
import os
import pydoc
import re
import select
import subprocess
import sys
import tarfile
import tempfile
import time
import typing
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import IO, Any

from segue.agents import find
from segue.agents.shared.live import Live
from segue.core.stops.events import Ended, Event, Reply
from segue.system.files.changes import POLL_S, Notifier
from segue.system.files.stream import Tail

ROOT = Path(__file__).parent.parent
SHORT_MB, LONG_MB, FULL_MB = 64, 256, 1024
PER_S, WRITE_S = 2000, 5
RESULT_KB = (1, 2, 4, 8, 4, 16, 2, 64)
CODE = (argparse, ast, difflib, inspect, pydoc, subprocess, tarfile, typing, zipfile)  # as text
GOALS = {"cpu_ratio": 8.0, "p99_ms": 10.0, "memory_ratio": 1.1, "exit_ms": 100.0, "mark_ms": 1000.0}
FORMS = ("claude", "codex")
ID = b"msg_number_of_reply"
_TIME = re.compile(rb'"text":"(\d+)"')

Row = dict[str, Any]


# --- the stream ---------------------------------------------------------------------------------


def recorded() -> list[dict[str, Any]]:
    """The records of a run that looked at something with a tool and was done."""
    with (ROOT / "tests/data/recordings/claude.jsonl").open(encoding="utf-8") as file:
        run = next(r for r in map(json.loads, file) if r["name"] == "a1-success-stream")
    return [json.loads(line) for line in run["stdout"].splitlines()]


def line(record: dict[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def exchanges(noisy: bool) -> list[tuple[bytes, bytes]]:
    """Words and a call as the model's reply, then the call's result; for each size of a result, one
    of a shell's command and one of a file that was read."""
    _, words, call, result, *_ = recorded()
    words["message"]["id"] = call["message"]["id"] = ID.decode()
    files = [Path(module.__file__ or "") for module in CODE]
    if noisy:
        files = sorted((ROOT / "src/segue").rglob("*.py"))
    texts = "".join(path.read_text("utf-8") for path in files)
    shell, kept = result["tool_use_result"], result["message"]["content"][0]
    found = []
    for number, kb in enumerate(RESULT_KB):
        kept["content"] = text = texts[number * 65_536 :][: kb * 1024]
        if len(text) < kb * 1024:
            raise RuntimeError("not enough text")
        file = {"type": "text", "file": {"filePath": "/home/dev/project/a.py", "content": text}}
        printed = {**shell, "stdout": text}
        for name, told in (("Bash", printed), ("Bash", printed) if noisy else ("Read", file)):
            given = {"file_path": "/home/dev/project/a.py"} if told is file else {"command": "make"}
            call["message"]["content"][0] |= {"name": name, "input": given}
            found.append((line(words) + line(call), line({**result, "tool_use_result": told})))
    return found


def stream(size_bytes: int, noisy: bool = False) -> Iterator[bytes]:
    """Pieces as an agent writes them, up to about this size."""
    first, *_, last = recorded()
    yield line(first)
    written = 0
    for number, (reply, result) in enumerate(cycle(exchanges(noisy)), 1):
        if written >= size_bytes:
            break
        reply = reply.replace(ID, b"msg_%015d" % number)
        yield reply
        yield result
        written += len(reply) + len(result)
    yield line(last)


def write(size_mb: int, to: str, noisy: bool) -> None:
    """Writes it as fast as it goes, to a file or to standard output."""
    handle = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if to else 1
    for piece in stream(size_mb << 20, noisy):
        left = memoryview(piece)
        while left:
            left = left[os.write(handle, left) :]


def write_evenly(to: str) -> None:
    """Writes replies at an even pace, each with the time at which it was written."""
    first, words, *_, last = recorded()
    handle = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(handle, line(first))
    words["message"]["content"][0]["text"] = "TIME"
    before, after = line(words).split(b"TIME")
    start = time.monotonic()
    for number in range(PER_S * WRITE_S):
        wait_s = start + number / PER_S - time.monotonic()
        if wait_s > 0:
            time.sleep(wait_s)
        os.write(handle, before + b"%d" % time.monotonic_ns() + after)
    os.write(handle, line(last))


# --- those who follow it ------------------------------------------------------------------------


def follow(path: str) -> Iterator[list[Event]]:
    """As a run follows a leg, until its turn has ended."""
    profile = find("claude")
    if profile is None:
        raise RuntimeError("no profile")
    live = Live(profile)
    with closing(Notifier()) as notifier, Tail(path) as tail:
        notifier.watch(path)
        print("ready", flush=True)
        while live.ended is None:
            lines = tail.read()
            if lines:
                yield live.feed(lines)
            elif not tail.has_more:
                handle = notifier.fileno()
                select.select([] if handle is None else [handle], [], [], 1.0 if handle else POLL_S)
                notifier.drain()


def watch(path: str) -> Row:
    """Follows to the end; what it saw, and what memory it took."""
    replies = 0
    late_ms: list[float] = []
    for events in follow(path):
        now = time.monotonic_ns()
        for event in events:
            if isinstance(event, Reply):
                replies += 1
                if event.text.isdigit():
                    late_ms.append((now - int(event.text)) / 1e6)
            elif isinstance(event, Ended) and not event.ok:
                raise RuntimeError(f"a wrong end: {event}")
    return {"replies": replies, "peak_mb": _peak_mb(), **lateness(late_ms)}


def read_tail(path: str) -> Row:
    """The peer: what `tail -f` gives, line by line."""
    late_ms: list[float] = []
    Path(path).touch()
    with subprocess.Popen(["tail", "-n", "+1", "-f", path], stdout=subprocess.PIPE) as tail:
        if tail.stdout is None:
            raise RuntimeError("no pipe")
        print("ready", flush=True)
        for found in tail.stdout:
            if timed := _TIME.search(found):
                late_ms.append((time.monotonic_ns() - int(timed[1])) / 1e6)
            elif b'"total_cost_usd"' in found:
                break
        tail.kill()
    return {"replies": len(late_ms), **lateness(late_ms)}


def lateness(late_ms: list[float]) -> Row:
    if not late_ms:
        return {}
    late_ms.sort()
    places = {"p50_ms": 0.5, "p99_ms": 0.99, "max_ms": 1.0}
    return {k: round(late_ms[int((len(late_ms) - 1) * p)], 3) for k, p in places.items()}


def _peak_mb() -> float:
    status = Path("/proc/self/status")
    if not status.exists():
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    peak = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
    return round(int(peak.split()[1]) / 1024, 1)


# --- together -----------------------------------------------------------------------------------


def me(*options: object) -> list[str]:
    return [sys.executable, "-m", "bench.overhead", *map(str, options)]


def cost(command: Sequence[str], given: IO[bytes] | None, out: int) -> float:
    """The CPU time of a child."""
    return _ended(subprocess.Popen(command, stdin=given, stdout=out))


def _ended(child: "subprocess.Popen[bytes]") -> float:
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{child.args!r}: exit code {child.returncode}")
    return used.ru_utime + used.ru_stime


def copied(*writer_options: object) -> tuple[float, int]:
    """CPU time of `cat` for a stream, and its bytes."""
    with (
        tempfile.NamedTemporaryFile() as copy,
        subprocess.Popen(me(*writer_options), stdout=subprocess.PIPE) as writer,
    ):
        cpu_s = cost(["cat"], writer.stdout, copy.file.fileno())
        return cpu_s, os.path.getsize(copy.name)


def followed(*writer: object, by: str = "--watch") -> tuple[float, Row]:
    """CPU time of following what a writer writes, and what was seen. It is ready before that."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "stdout"))
        follower = subprocess.Popen(me(by, path), stdout=subprocess.PIPE)
        if follower.stdout is None or follower.stdout.readline() != b"ready\n":
            sys.exit(f"{by}: did not start")
        with subprocess.Popen(me(*writer, "--to", path)):
            seen: Row = json.loads(follower.stdout.read() or b"{}")
            return _ended(follower), seen


def cpu(size_mb: int, rounds: int, *, noisy: bool = False) -> Row:
    """(1) and what (3) needs."""
    kind = ("--noisy",) if noisy else ()
    begins = b'{"type":"assistant"'
    expected = sum(piece.startswith(begins) for piece in stream(size_mb << 20, noisy))
    ours, cats, peaks, size = [], [], [], 0
    for _ in range(rounds):
        idle_s, _ = copied("--write", 0)
        busy_s, size = copied("--write", size_mb, *kind)
        cats.append(max(1e-3, busy_s - idle_s))
        idle_s, _ = followed("--write", 0)
        busy_s, seen = followed("--write", size_mb, *kind)
        if seen["replies"] != expected:
            sys.exit(f"{seen['replies']} replies instead of {expected}")
        ours.append(busy_s - idle_s)
        peaks.append(seen["peak_mb"])
    mb = size / 1e6
    return {
        "mb": round(mb),
        "replies": expected,
        "ours_ms_per_mb": round(1e3 * median(ours) / mb, 2),
        "cat_ms_per_mb": round(1e3 * median(cats) / mb, 2),
        "cpu_ratio": round(median(o / c for o, c in zip(ours, cats, strict=True)), 2),
        "peak_mb": max(peaks),
    }


def latency(rounds: int) -> Row:
    """(2): the best round of each, for others work on this machine too."""
    rows: dict[str, list[Row]] = {"--watch": [], "--tail": []}
    for _ in range(rounds):
        for option, found in rows.items():
            cpu_s, seen = followed("--write-evenly", by=option)
            if seen.pop("replies") < PER_S * WRITE_S:
                sys.exit(f"{option}: lines are missing")
            found.append({**seen, "cpu_percent": round(100 * cpu_s / WRITE_S, 1)})
    ours, peer = (min(found, key=lambda row: row["p99_ms"]) for found in rows.values())
    return {**ours, "tail": peer, "p99_ratio": round(ours["p99_ms"] / peer["p99_ms"], 2)}


def memory(long: Row) -> Row:
    """(3)"""
    _, short = followed("--write", SHORT_MB)
    ratio = round(long["peak_mb"] / short["peak_mb"], 3)
    return {"short_mb": short["peak_mb"], "long_mb": long["peak_mb"], "memory_ratio": ratio}


def show(found: dict[str, Row]) -> None:
    size, late, room = found["cpu"], found["latency"], found["memory"]
    for name, row in (("stream", size), ("noisy stream", found["noisy"])):
        print(f"a {name} of {row['mb']:,} MB, {row['replies']:,} replies:")
        print(f"  following: {row['ours_ms_per_mb']} ms of CPU per MB, cat: ", end="")
        print(f"{row['cat_ms_per_mb']}; ratio {row['cpu_ratio']}{_met(row, 'cpu_ratio')}")
    print(f"peak memory over {size['mb']:,} MB: {room['long_mb']} MB, over {SHORT_MB} MB: ", end="")
    print(f"{room['short_mb']} MB; ratio {room['memory_ratio']}{_met(room, 'memory_ratio')}")
    print(f"{PER_S:,} lines a second, from the write to the event:")
    for name, row in (("following", late), ("tail -f", late["tail"])):
        print(
            f"  {name}: p50 {row['p50_ms']}, most {row['max_ms']}, p99 {row['p99_ms']} ms", end=""
        )
        print(f"{_met(row, 'p99_ms')}; {row['cpu_percent']}% of a core with its start")
    print(f"  ratio of p99: {late['p99_ratio']}")
    print("from the agent's exit to the decision, ms (median, most):")
    exits, marks = found["exit"], found["mark"]
    for form in FORMS:
        parts = (f"{part} {row['median']}, {row['max']}" for part, row in exits[form].items())
        print(f"  {form}, {exits[form]['all']['number']} exits: {'; '.join(parts)}")
    print(f"  the worst: {exits['exit_ms']}{_met(exits, 'exit_ms')}")
    print("from the record that crosses the hard mark to the decision, ms (median, most):")
    for form in FORMS:
        row = marks[form]
        print(f"  {form}, {row['number']} times: {row['median']}, {row['max']}")
    print(f"  the worst: {marks['mark_ms']}{_met(marks, 'mark_ms')}")


def _met(row: Row, name: str) -> str:
    return f" (goal {GOALS[name]:g}: {'met' if row[name] <= GOALS[name] else 'NOT met'})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--full", action="store_true", help=f"a stream of {FULL_MB} MB")
    parser.add_argument("--rounds", type=int, default=3)
    for option in ("--write", "--watch", "--tail", "--to"):
        parser.add_argument(option, default="", help=argparse.SUPPRESS)
    for option in ("--write-evenly", "--noisy"):
        parser.add_argument(option, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    children: dict[str, Callable[[str], Row]] = {"watch": watch, "tail": read_tail}
    for name, child in children.items():
        if path := getattr(options, name):
            print(json.dumps(child(path)))
            return
    if options.write_evenly:
        write_evenly(options.to)
    elif options.write:
        write(int(options.write), options.to, options.noisy)
    else:
        from bench.support import decisions  # not in those who follow: it is large

        size = cpu(FULL_MB if options.full else LONG_MB, options.rounds)
        noisy = cpu(SHORT_MB, options.rounds, noisy=True)
        found = {
            "cpu": size,
            "noisy": noisy,
            "memory": memory(size),
            "latency": latency(options.rounds),
        }
        found["exit"], found["mark"] = decisions.measured(2 * options.rounds)
        if options.json:
            print(json.dumps({"goals": GOALS, **found}))
        else:
            show(found)


if __name__ == "__main__":
    main()
