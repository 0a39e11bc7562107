"""What a verdict costs: `python bench/classify.py [--json]`.

Three questions, all in CPU time:

a. the catalogue against the very same patterns one by one in the stdlib's `re`, on tails of 100
   lines (goal: 20 times faster, the same wordings found);
b. lines made to hurt against ordinary log text, per byte (goal: at most 1.5 times as much);
c. whole verdicts a second, on real recordings and on large tails.

RE2 builds its automaton while it reads, so a text that was seen before is much cheaper than a new
one. A session is judged once: "new" is what users pay, "again" is what a careless benchmark shows.
"""

import argparse
import json
import random
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC
from pathlib import Path
from statistics import median
from typing import Any, get_args

from msgspec.structs import replace

from segue import api
from segue.agents.ending import Ending, Source
from segue.core.stops.text.wordings import Catalogue, Where
from segue.system.config import wordings

RECORDINGS = Path(__file__).parent.parent / "tests" / "data" / "recordings"
PLACES: tuple[Where, ...] = get_args(Where)
NOW = 1_794_774_600.0
LINES = 100
FASTER_GOAL = 20.0
HURT_GOAL = 1.5
BUDGET_S = 4.0  # of CPU for one text; a text that would need more is measured on its beginning
FIRST_BYTES = 1 << 14

Found = set[tuple[str, str, int, int]]


# --- texts ------------------------------------------------------------------------------------


def source_lines() -> list[str]:
    """What tools print most: source code. The stdlib's is at hand everywhere."""
    files = sorted(Path(argparse.__file__).parent.glob("*.py"))
    return [
        line
        for file in files
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines()
        if line.strip()
    ]


def tail(seed: int, code: list[str], messages: list[str]) -> str:
    """The end of an agent's output: records with tool results, speech, logs, now and then an
    error. No two seeds share their text."""
    pick = random.Random(seed)
    return "\n".join(_line(pick, code, messages) for _ in range(LINES))


def _line(pick: random.Random, code: list[str], messages: list[str]) -> str:
    start = pick.randrange(len(code) - 80)
    chunk = code[start : start + pick.choice((4, 12, 36, 76))]
    stamp = (
        f"2026-11-15T20:{pick.randrange(60):02}:{pick.randrange(60):02}.{pick.randrange(999):03}Z"
    )
    kind = pick.random()
    if kind < 0.5:
        block = {"type": "tool_result", "tool_use_id": f"toolu_{pick.getrandbits(64):x}"}
        block |= {"content": "\n".join(chunk)}
        record: dict[str, Any] = {"type": "user", "message": {"role": "user", "content": [block]}}
        return json.dumps(record | {"timestamp": stamp})
    if kind < 0.8:
        item = {"id": f"item_{pick.randrange(99)}", "type": "command_execution", "exit_code": 0}
        item |= {"aggregated_output": "\n".join(chunk)}
        return json.dumps({"type": "item.completed", "item": item})
    if kind < 0.9:
        return " ".join(" ".join(chunk).split())[:1500]
    if kind < 0.96:
        return f"{stamp} INFO {pick.choice(chunk).strip()}"
    return f"API Error: {pick.choice(messages)}"


def log_text(size: int, code: list[str]) -> str:
    """Ordinary log lines, all different."""
    pick = random.Random(11)
    lines: list[str] = []
    length = 0
    while length < size:
        level = pick.choice(("INFO", "DEBUG", "INFO", "WARN"))
        said = pick.choice(code).strip()
        lines.append(
            f"2026-11-15T20:{len(lines) // 60 % 60:02}:{len(lines) % 60:02}Z {level} {said}"
        )
        length += len(lines[-1]) + 1
    return "\n".join(lines)[:size]


def hurtful(size: int, messages: list[str]) -> Iterator[tuple[str, str]]:
    """Single lines that make a bad matcher slow."""
    repeated = {
        "a": "a",
        "near match": "you have reached the ",
        "near match 2": "rate limit has been ",
        "open brackets": "[",
        "nested brackets": "[{(",
        "digits": "1234567890",
        "blanks": " ",
        "escapes": "\\\\u001b",
        "no ASCII": "限额",
    }
    for name, unit in repeated.items():
        yield (
            name,
            (unit * (size // len(unit.encode()) + 1))[: size // len(unit.encode()) * len(unit)],
        )
    yield "repeated match", ("API Error: " + "rate limit reached " * (size // 19))[:size]
    pick = random.Random(12)
    words = [w for m in messages for w in m.split() if w.isascii()]
    yield "shuffled wordings", " ".join(pick.choice(words) for _ in range(size // 4))[:size]


# --- engines ----------------------------------------------------------------------------------


def everybodys(catalogue: Catalogue) -> Catalogue:
    """All wordings for any speaker, so that both engines look for all of them."""
    return Catalogue(("bench", replace(w, agents=())) for w in catalogue.wordings)


def ours(catalogue: Catalogue, text: str) -> Found:
    return {
        (place, hit.wording.id, hit.start, hit.end)
        for place in PLACES
        for hit in catalogue.find(text, place)
    }


class OneByOne:
    """The same patterns in `re`. RE2's classes are ASCII, hence the flag."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.patterns: list[tuple[str, str, re.Pattern[str]]] = []
        self.untranslated: list[str] = []
        for place in PLACES:
            for wording, source in catalogue.sources(place):
                try:
                    pattern = re.compile("(?a)" + source.replace(r"\z", r"\Z"))
                except re.error:
                    self.untranslated.append(wording.id)
                else:
                    self.patterns.append((place, wording.id, pattern))

    def find(self, text: str) -> Found:
        return {
            (place, name, match.start(), match.end())
            for place, name, pattern in self.patterns
            for match in pattern.finditer(text)
        }


def cpu(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


# --- a ----------------------------------------------------------------------------------------


def against_re(rounds: int, code: list[str], messages: list[str]) -> dict[str, Any]:
    catalogue = everybodys(wordings.load())
    start = time.process_time()
    ours(catalogue, tail(0, code, messages))  # builds the sets, and the first states
    built_s = time.process_time() - start
    one_by_one = OneByOne(catalogue)
    new_s: list[float] = []
    again_s: list[float] = []
    re_s: list[float] = []
    sizes: list[int] = []
    differing: list[str] = []
    same = found = 0
    for seed in range(1, rounds + 1):
        text = tail(seed, code, messages)
        results: dict[str, Found] = {}
        engines = {"ours": lambda t: ours(catalogue, t), "re": one_by_one.find}
        for name in sorted(engines, reverse=bool(seed % 2)):
            start = time.process_time()
            results[name] = engines[name](text)
            (new_s if name == "ours" else re_s).append(time.process_time() - start)
        again_s.append(median(cpu(lambda text=text: ours(catalogue, text)) for _ in range(3)))  # type: ignore[misc]
        sizes.append(len(text.encode()))
        names = {engine: {hit[:2] for hit in hits} for engine, hits in results.items()}
        found += len(names["re"])
        if names["ours"] == names["re"]:
            same += 1
        differing += sorted(f"{p}:{n}" for p, n in names["ours"] ^ names["re"])
    return {
        "wordings": len(catalogue.wordings),
        "patterns": len(one_by_one.patterns),
        "untranslated": len(one_by_one.untranslated),
        "tails": rounds,
        "tail_bytes": round(median(sizes)),
        "build_ms": round(1e3 * built_s, 1),
        "ours_new_ms": round(1e3 * median(new_s), 2),
        "ours_again_ms": round(1e3 * median(again_s), 2),
        "re_ms": round(1e3 * median(re_s), 2),
        "faster_new": round(median(r / n for r, n in zip(re_s, new_s, strict=True)), 2),
        "faster_again": round(median(r / n for r, n in zip(re_s, again_s, strict=True)), 2),
        "goal": FASTER_GOAL,
        "found": found,
        "same_wordings": f"{same}/{rounds}",
        "differing": differing[:10],
    }


# --- b ----------------------------------------------------------------------------------------


def per_byte(text: str, call: Callable[[str], object]) -> dict[str, Any]:
    """CPU per byte on new text: the text is taken in ever larger pieces, each from where the last
    one ended, until it is used up or the next piece would go beyond the budget."""
    size, at, spent, measured = FIRST_BYTES, 0, 0.0, 0
    while at < len(text):
        piece = text[at : at + size]
        took = cpu(lambda piece=piece: call(piece))  # type: ignore[misc]
        at, spent, measured = at + size, spent + took, measured + len(piece.encode())
        if spent + 4 * took > BUDGET_S:
            break
        size *= 4
    return {"ns_per_byte": round(1e9 * spent / measured, 2), "bytes": measured}


def whole(text: str, call: Callable[[str], object]) -> dict[str, Any]:
    """CPU per byte of a verdict on the text, or on as much of its beginning as the budget allows:
    a verdict that takes more than linear time would never end."""
    size, spent = FIRST_BYTES // 8, 0.0
    while True:
        piece = text[:size]
        took = cpu(lambda piece=piece: call(piece))  # type: ignore[misc]
        spent += took
        if size >= len(text) or spent + 4 * took > BUDGET_S:
            break
        size *= 4
    if took < BUDGET_S / 4:
        took = median([took, *(cpu(lambda: call(piece)) for _ in range(2))])
    measured = len(piece.encode())
    return {"ns_per_byte": round(1e9 * took / measured, 2), "bytes": measured}


def under_attack(size: int, code: list[str], messages: list[str]) -> dict[str, Any]:
    catalogue = everybodys(wordings.load())
    ours(catalogue, "warm up")
    api.classify("warm up", now=NOW, tz=UTC)
    ordinary = log_text(size, code)
    texts = [("ordinary log", ordinary), *hurtful(size, messages)]
    rows = []
    for name, text in texts:
        matching = per_byte(text, lambda t: ours(catalogue, t))
        verdict = whole(text, lambda t: api.classify(t, now=NOW, tz=UTC))
        rows.append({"text": name, "catalogue": matching, "classify": verdict})
    base = rows[0]
    for row in rows:
        for kind in ("catalogue", "classify"):
            mine: Any = row[kind]
            other: Any = base[kind]
            mine["ratio"] = round(mine["ns_per_byte"] / other["ns_per_byte"], 2)
    return {"goal": HURT_GOAL, "rows": rows}


# --- c ----------------------------------------------------------------------------------------


def recorded() -> list[Ending]:
    endings = []
    for file in sorted(RECORDINGS.glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            run = json.loads(line)
            sources = tuple(
                Source(text=run[kind], channel=kind, name=kind)
                for kind in ("stdout", "stderr")
                if run[kind]
            )
            endings.append(Ending(sources=sources, agent=file.stem, exit_code=run["exit_code"]))
    return endings


def verdicts(rounds: int, code: list[str], messages: list[str]) -> dict[str, Any]:
    def one(ending: Ending) -> float:
        return cpu(lambda: api.examine(ending, now=NOW, tz=UTC))

    large = [
        Ending(sources=(Source(text=tail(1000 + n, code, messages)),)) for n in range(4 * rounds)
    ]
    plain = [  # nothing but text: all of it is heard
        Ending(sources=(Source(text="\n".join(code[n * 500 : n * 500 + LINES]), channel="tui"),))
        for n in range(4 * rounds)
    ]
    rows = []
    for name, endings in (("recording", recorded()), ("tail, JSON", large), ("tail, text", plain)):
        if not endings:
            continue
        size = median(sum(len(s.text.encode()) for s in e.sources) for e in endings)
        new = [one(e) for e in endings]
        again = [one(e) for e in endings]
        rows.append(
            {
                "text": name,
                "endings": len(endings),
                "bytes": round(size),
                "new_median_ms": round(1e3 * median(new), 2),
                "new_max_ms": round(1e3 * max(new), 1),
                "new_per_s": round(len(new) / sum(new), 1),
                "again_per_s": round(len(again) / sum(again), 1),
            }
        )
    return {"rows": rows}


# --- report -----------------------------------------------------------------------------------


def show(a: dict[str, Any], b: dict[str, Any], c: dict[str, Any]) -> None:
    print(
        f"a. {a['wordings']} wordings, {a['patterns']} patterns, {a['untranslated']} untranslated"
    )
    print(f"   {a['tails']} tails of {a['tail_bytes']:,} bytes, goal {a['goal']:.0f}x")
    print(f"   re one by one {a['re_ms']:10.1f} ms")
    print(f"   ours, new     {a['ours_new_ms']:10.1f} ms {a['faster_new']:8.1f}x")
    print(f"   ours, again   {a['ours_again_ms']:10.1f} ms {a['faster_again']:8.1f}x")
    print(f"   same wordings in {a['same_wordings']} tails, {a['found']} found", *a["differing"])
    print(f"\nb. CPU ns per byte, goal {b['goal']}x")
    keys = ("ns_per_byte", "ratio", "bytes")
    _table(
        ("text", "catalogue", "ratio", "bytes", "classify", "ratio", "bytes"),
        [
            (
                row["text"],
                *(row[kind][key] for kind in ("catalogue", "classify") for key in keys),
            )
            for row in b["rows"]
        ],
    )
    print("\nc. whole verdicts")
    names = ("text", "endings", "bytes", "new_median_ms", "new_max_ms", "new_per_s", "again_per_s")
    _table(names, [tuple(row[name] for name in names) for row in c["rows"]])


def _table(names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    for row in [names, *rows]:
        print(f"   {row[0]:<18}" + "".join(f"{cell:>15}" for cell in row[1:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--rounds", type=int, default=5, help="tails of part a")
    parser.add_argument("--bytes", type=int, default=1 << 20, help="size of the lines of part b")
    options = parser.parse_args()
    code = source_lines()
    messages = [w.example[0] for w in wordings.load().wordings if w.example]
    a = against_re(options.rounds, code, messages)
    b = under_attack(options.bytes, code, messages)
    c = verdicts(options.rounds, code, messages)
    if options.json:
        print(json.dumps({"against_re": a, "under_attack": b, "verdicts": c}))
    else:
        show(a, b, c)


if __name__ == "__main__":
    main()
