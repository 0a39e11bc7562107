"""What redaction costs, on ordinary text and on texts made to be slow: `python -m bench.redact`.
In CPU time, beside what others need for the same bytes in the same run: `re` to look for one word
without regard to case, msgspec to decode them as JSON."""

import re
import sysconfig
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from segue.core.secrets.redact import redact

HOSTILE = ("PASSWORD=x ", ";key=x", "--token abc123 ", 'password: "', "curl -u a:", "a.b://c:")
CHARS = 1_000_000


def seconds(work: Callable[[], object]) -> float:
    """The best of three, without what is compiled when it is first needed."""
    work()
    spent = []
    for _ in range(3):
        start = time.process_time()
        work()
        spent.append(time.process_time() - start)
    return min(spent)


def each(work: Callable[[Any], object], texts: Iterable[str | bytes]) -> None:
    for text in texts:
        work(text)


def ordinary(limit: int) -> list[str]:
    """Python's library, in pieces as long as a message or a tool's output."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in files]
    return [text[at : at + limit] for text in texts for at in range(0, len(text), limit)]


def main() -> None:
    word = re.compile("(?i)password")
    for limit in (1_000_000, 10_000, 500):
        texts = ordinary(limit)
        encoded = [msgspec.json.encode(text) for text in texts]
        size = sum(map(len, encoded)) / 1e6
        took = {
            "redact": seconds(partial(each, redact, texts)),
            "re, one word": seconds(partial(each, word.search, texts)),
            "msgspec": seconds(partial(each, msgspec.json.decode, encoded)),
        }
        speeds = (f"{name} {size / spent:.0f} MB/s" for name, spent in took.items())
        print(f"texts of up to {limit:>9,} characters: {', '.join(speeds)}")
    for unit in HOSTILE:
        text = (unit * (CHARS // len(unit) + 1))[:CHARS]
        start = time.process_time()
        redact(text)
        print(f"{unit!r:20} {time.process_time() - start:.2f} s a million characters")


if __name__ == "__main__":
    main()
