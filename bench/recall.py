"""What of a conversation survives: `python -m bench.recall [--json] [--mb 0.2 2 10 50]`.

Sessions of each agent's form with facts of fifteen kinds planted at five depths; the share of them
that the digest tells within its budget (5% of a window of 200,000 tokens). The peers have the same
budget: (a) the last 20 messages, each cut evenly; (b) the beginning and the end of it all.
Goal: 95%, and 1.5 times the better peer.

Cost: CPU time of building a digest from a file, against reading and parsing the same file. Goal: 2
times. The same of a run that follows its agent's output with and without a digest that grows along;
of qwen and opencode, which runs do not follow in this form, only the parts that all have in common.
Goal: 1.3 times. Memory that the builder holds at the end. Goal: 5 MB. Notes in Markdown contain
only what was said, a few kilobytes, and are read as a whole: for them there is no cost to compare.
"""

import argparse
import json
import tempfile
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.support import conversations
from segue.agents import drives, find
from segue.agents.contracts.drive import Drive
from segue.agents.shared.live import Live
from segue.core.handoffs.digest import Builder, Compactions, budget_chars, sections
from segue.core.policy import Policy
from segue.core.runs.idle import Idle
from segue.core.runs.progress import Progress
from segue.core.runs.types import Run
from segue.core.stops.events import Event
from segue.runs.clock import Clock
from segue.runs.legs.follower import LegFollower
from segue.runs.legs.leg import Leg
from segue.sessions import digest as reading
from segue.sessions.windows import Windows

WINDOW_TOKENS = 200_000
_TRIES = 5
_SAID = ("user", "agent", "helper")
AGENTS = (*conversations.FORMS, "opencode", "markdown")
GOALS = {"found": 0.95, "over_peer": 1.5, "cpu_ratio": 2.0, "follow_ratio": 1.3, "memory_mb": 5.0}


class Nothing(Builder):
    """Takes events in and keeps none: what reading and parsing alone cost."""

    def feed(self, event: Event) -> None:
        return


def told(builder: Builder, chars: int) -> str:
    parts = sections(builder.digest(), chars)
    return "\n\n".join(f"## {title}\n{text}" for title, text in parts)


def last_messages(turns: list[conversations.Turn], chars: int) -> str:
    said = conversations.plain(turns)[-20:]
    return "\n\n".join(text[: chars // 20] for text in said)


def head_and_tail(turns: list[conversations.Turn], chars: int) -> str:
    half = chars // 2
    whole = "\n\n".join(conversations.plain(turns))
    return whole[:half] + whole[-half:]


def measure(agent: str, megabytes: float, seed: int, folder: Path) -> dict[str, Any]:
    """One session of one agent's."""
    turns, planted = conversations.conversation(seed, megabytes)
    if agent == "markdown":
        turns = [turn for turn in turns if turn.kind in _SAID]
        planted = [fact for fact in planted if all(turn.kind in _SAID for turn in fact.turns)]
    path = str(conversations.write(folder, agent, turns))
    chars = budget_chars(WINDOW_TOKENS)
    task = turns[0].text

    def build(kind: type[Builder]) -> tuple[str, float]:
        builder, began = kind(told=[task]), time.process_time()
        reading.read_session(builder, agent, path, conversations.SESSION)
        said = told(builder, chars) if kind is Builder else ""
        return said, time.process_time() - began

    # In turns, and the shortest of each: a busy machine slows down one as it does the other. The
    # first of all is not counted: patterns are compiled then, once in a process.
    build(Builder)
    pairs = [(build(Nothing)[1], *build(Builder)) for _ in range(_TRIES)]
    bare_s, text, cpu_s = min(p[0] for p in pairs), pairs[0][1], min(p[2] for p in pairs)
    missed = Counter(fact.kind for fact in planted if fact.needle not in text)
    texts = (text, last_messages(turns, chars), head_and_tail(turns, chars))
    shares = [sum(f.needle in text for f in planted) / len(planted) for text in texts]
    return {
        "agent": agent,
        "mb": round(Path(path).stat().st_size / 1e6, 1 if agent != "markdown" else 3),
        "found": shares[0],
        "last_20": shares[1],
        "head_tail": shares[2],
        "missed": dict(missed),
        "chars": len(text),
        "cpu_ratio": round(cpu_s / bare_s, 2) if agent != "markdown" else None,
        "follow_ratio": _follow_ratio(agent, path) if agent != "markdown" else None,
        "memory_mb": round(_memory_mb(agent, path), 1),
    }


class Following:
    """What a run does with each event of its agent's."""

    def __init__(self, builder: Builder) -> None:
        self.progress, self.compactions, self.idle = Progress(), Compactions(), Idle(Policy())
        self.builder = builder

    def feed(self, event: Event) -> None:
        self.progress.feed(event)
        self.compactions.feed(event)
        self.idle.feed(event, 0.0)
        self.builder.feed(event)


def _follow_ratio(agent: str, path: str) -> float:
    """What a digest adds to what a run does with its agent's output, the shortest of the tries."""
    taken: dict[bool, list[float]] = {True: [], False: []}
    drive = drives.find(agent) if not path.endswith(".db") else None
    for has_digest in [True, False] * _TRIES:
        if drive is not None:
            taken[has_digest].append(_follow_leg(agent, drive, path, has_digest))
        else:
            taken[has_digest].append(_follow_events(agent, path, has_digest))
    return round(min(taken[True]) / min(taken[False]), 2)


def _follow_leg(agent: str, drive: Drive, path: str, has_digest: bool) -> float:
    """As a run follows a leg that has printed this. CPU time in seconds."""
    profile = find(agent)
    assert profile is not None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "stdout").symlink_to(path)
        (folder / "stderr").touch()
        run = Run(id="r", task="t", agent=agent, cwd=name, created_at=0.0, policy=Policy())
        digest = Builder() if has_digest else None
        follower = LegFollower(
            Leg(folder),
            1,
            drive=drive,
            profile=profile,
            windows=Windows({}, lambda model: None),
            run=run,
            session_id="",
            progress=Progress(),
            digest=digest,
            env={"HOME": name},
            clock=Clock(),
        )
        began = time.process_time()
        follower.finish(run, 0.0)
        if digest is not None:
            digest.tell("")  # takes in the events that still wait
        return time.process_time() - began


def _follow_events(agent: str, path: str, has_digest: bool) -> float:
    """Line by line, or message by message from a database. CPU time in seconds."""
    profile = find(agent)
    assert profile is not None
    began = time.process_time()
    following = Following(Builder() if has_digest else Nothing())
    if path.endswith(".db"):
        reading.read_session(following, agent, path, conversations.SESSION)
    else:
        _follow_lines(following, Live(profile), path)
    following.builder.tell("")
    return time.process_time() - began


def _follow_lines(following: Following, live: Live, path: str) -> None:
    progress, compactions, idle = following.progress, following.compactions, following.idle
    builder = following.builder
    with open(path, "rb") as file:
        for line in file:
            for event in live.feed([line], 0.0):
                progress.feed(event)
                compactions.feed(event)
                idle.feed(event, 0.0)
                builder.feed(event)


def _memory_mb(agent: str, path: str) -> float:
    """What the builder holds once it has read a file, and nothing else."""
    events = list(_events(agent, path))
    tracemalloc.start()
    builder = Builder()
    for event in events:
        builder.feed(event)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held / 1e6


def _events(agent: str, path: str) -> Iterator[Event]:
    kept: list[Event] = []

    class Keep(Builder):
        def feed(self, event: Event) -> None:
            kept.append(event)

    reading.read_session(Keep(), agent, path, conversations.SESSION)
    return iter(kept)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--mb", type=float, nargs="+", default=[0.2, 2, 10, 50])
    parser.add_argument("--agents", nargs="+", default=AGENTS)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    rows = []
    for agent in given.agents:
        for megabytes in given.mb:
            with tempfile.TemporaryDirectory() as folder:
                rows.append(measure(agent, megabytes, given.seed, Path(folder)))
            if not given.json:
                print(_row(rows[-1]), flush=True)
    if given.json:
        print(json.dumps({"goals": GOALS, "rows": rows}, indent=2))


def _row(row: dict[str, Any]) -> str:
    missed = ", ".join(f"{kind} {number}" for kind, number in row["missed"].items())
    cost = ""
    if row["cpu_ratio"] is not None:
        cost = (
            f"  CPU {row['cpu_ratio']:.2f} times reading, {row['follow_ratio']:.2f} times following"
        )
    return (
        f"{row['agent']:9} {row['mb']:6.1f} MB  digest {row['found']:6.1%}  last 20 messages"
        f" {row['last_20']:6.1%}  head and tail {row['head_tail']:6.1%}{cost}"
        f"  {row['memory_mb']:.1f} MB held  {missed}"
    )


if __name__ == "__main__":
    main()
