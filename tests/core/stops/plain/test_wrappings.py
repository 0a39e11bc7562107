"""However a message is wrapped, its verdict stays or becomes unknown; it is never another one.

Every third stop of the corpus is wrapped in each way. A few messages are wrapped already, and
what is wrapped twice may lose its words: so a small share is allowed, and it is counted apart from
what is unknown.
"""

import json
import textwrap
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from conftest import lines

from segue import api
from segue.agents.ending import Channel, Ending, Source

EVERY = 3
OTHER_MOST = 0.02
PREFIXES = (
    "2026-02-08T20:12:29.123Z ERROR agent: ",
    "[2026-02-08 20:12:29] ERROR ",
    "2026-02-08 20:12:29,123 - litellm - ERROR - ",
    "Feb 08 20:12:29 host agent[123]: ",
    "agent-1  | ",
    "(APIServer pid=1) ERROR 02-08 20:12:29 [router.py:72] ",
    "20:12:29 ERROR    homemind.ai — ",
    'time="2026-02-08T20:12:29Z" level=error msg=',
    "E0208 20:12:29.123456   123 agent.cc:77] ",
    "[agent] stderr: ",
    "ERROR:agent.core:",
    "2026/02/08 20:12:29 [error] 77#77: ",
)
Wrap = Callable[[str], str]


def wrapped(width: int) -> Wrap:
    def change(text: str) -> str:
        parts = (
            textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) or [""]
            for line in text.split("\n")
        )
        return "\n".join(line for part in parts for line in part)

    return change


def cut(width: int) -> Wrap:
    def change(text: str) -> str:
        parts = (
            [line[n : n + width] for n in range(0, len(line), width)] or [""]
            for line in text.split("\n")
        )
        return "\n".join(line for part in parts for line in part)

    return change


def prefixed(prefix: str, width: int | None = None) -> Wrap:
    def change(text: str) -> str:
        text = wrapped(width)(text) if width else text
        return "\n".join(prefix + line for line in text.split("\n"))

    return change


def boxed(text: str) -> str:
    inner = wrapped(76)(text).split("\n")
    rows = "\n".join(f"│ {line:<76} │" for line in inner)
    return f"╭{'─' * 78}╮\n{rows}\n╰{'─' * 78}╯"


WAYS: dict[str, tuple[Wrap, float]] = {
    **{f"wrapped at {w}": (wrapped(w), 0.93) for w in (40, 60, 80, 100, 120)},
    **{f"cut at {w}": (cut(w), 0.88) for w in (40, 80)},
    **{f"logged as {p!r}": (prefixed(p), 0.90) for p in PREFIXES},
    **{f"logged and wrapped as {p!r}": (prefixed(p, 60), 0.87) for p in PREFIXES},
    "boxed": (boxed, 0.93),
    "in a gutter": (lambda text: "\n".join(f"▌ {line}" for line in text.split("\n")), 0.95),
    "quoted": (lambda text: "\n".join(f"> {line}" for line in text.split("\n")), 0.40),
    "escaped once": (json.dumps, 0.93),
    "escaped twice": (lambda text: json.dumps(json.dumps({"message": text})), 0.93),
    "without its end": (lambda text: text[: -len(text) // 4], 0.78),
    "without its beginning": (lambda text: text[len(text) // 4 :], 0.30),
}


def reason(text: str, record: dict[str, Any]) -> str:
    channel: Channel = record["channel"]
    ending = Ending(sources=(Source(text=text, channel=channel),), agent=record["agent"])
    return api.examine(ending, now=0.0).stop.reason.value


@cache
def stops() -> tuple[dict[str, Any], ...]:
    """Messages on a screen or in a log, whose text alone gives the right verdict."""
    told = [r for r in lines("stops.jsonl") if r["label"] != "none" and '{"type"' not in r["text"]]
    return tuple(r for r in told[::EVERY] if reason(r["text"], r) == r["label"])


@pytest.mark.parametrize("way", WAYS)
def test_a_wrapped_message_keeps_its_verdict_or_has_none(way: str) -> None:
    change, stays_least = WAYS[way]
    found: Counter[str] = Counter()
    wrong = []
    for record in stops():
        text = change(record["text"])
        if text == record["text"]:
            continue
        got = reason(text, record)
        kind = "stays" if got == record["label"] else "unknown" if got == "unknown" else "other"
        found[kind] += 1
        if kind == "other":
            wrong.append((record["id"], record["label"], got, text[:300]))
    total = found.total()
    assert total > 40
    limit = 0.06 if way.startswith("without") else OTHER_MOST
    assert found["other"] <= limit * total, wrong
    assert found["stays"] >= stays_least * total, dict(found)
