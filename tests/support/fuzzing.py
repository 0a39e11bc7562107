"""A small coverage-guided fuzzer for the rims that a simulation replaces.

    python tests/support/fuzzing.py [--only NAME] [--seconds N] [--seed N]

An input that reaches a line of segue which no input before it reached is kept and changed further.
Begins with real recordings; an input that breaks something is made as short as possible, and
belongs into `tests/data/fuzz/NAME/` then, where every run of the tests plays it.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from types import CodeType, FrameType
from typing import Any, NamedTuple

DATA = Path(__file__).parents[1] / "data"
KEPT = DATA / "fuzz"
MAX_BYTES = 20_000
_MAX_CORPUS = 400
_WORDS = (
    b"null", b"true", b"-1", b"1e999", b"99999999999999999999999", b"0.1", b'""', b"[]", b"{}",
    b"[[[[[[[[", b'{"a":' * 30, b"\\ud800", b"\xff\xfe", b"\x00", b"\r\n", b"\n\n", b"\x1b[7m",
    "é\u2028😀".encode(), b'"type":"result"', b"Content-Length: 7\r\n", b"\t", b" " * 200,
)  # fmt: skip


class Target(NamedTuple):
    """Something that takes any bytes. `play` raises if it breaks a promise."""

    name: str
    seeds: Callable[[], Sequence[bytes]]
    play: Callable[[bytes], object]
    where: str  # the part of segue whose lines count
    plays: int = 60  # in the tests


class Broken(NamedTuple):
    """An input that broke something."""

    data: bytes
    fault: Exception


class Coverage:
    """The lines of one part of segue that were ever reached."""

    def __init__(self, where: str) -> None:
        self.seen: set[tuple[CodeType, int]] = set()
        self._where = where
        self._new = False

    def play(self, target: Target, data: bytes) -> bool:
        """Whether it reached a line that none before it did."""
        self._new = False
        sys.settrace(self._call)
        try:
            target.play(data)
        finally:
            sys.settrace(None)
        return self._new

    def _call(self, frame: FrameType, event: str, arg: Any) -> Any:
        return self._line if self._where in frame.f_code.co_filename else None

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        place = (frame.f_code, frame.f_lineno)
        if place not in self.seen:
            self.seen.add(place)
            self._new = True
        return self._line


def kept(name: str) -> list[bytes]:
    """What once broke something, or reaches what little else does."""
    return [file.read_bytes() for file in sorted((KEPT / name).glob("*"))]


def fuzz(target: Target, random: Random, is_over: Callable[[int], bool]) -> Broken | None:
    """Plays until it is over, which is asked with the number of inputs, or something breaks."""
    coverage = Coverage(target.where)
    corpus = [*kept(target.name), *(seed[:MAX_BYTES] for seed in target.seeds())]
    waiting: Iterator[bytes] = iter(list(corpus))
    plays = 0
    while not is_over(plays):
        data = next(waiting, None) or mutated(corpus, random)
        plays += 1
        try:
            is_new = coverage.play(target, data)
        except Exception as fault:
            return shortest(target, Broken(data, fault))
        if is_new and len(corpus) < _MAX_CORPUS:
            corpus.append(data)
    return None


def mutated(corpus: Sequence[bytes], random: Random) -> bytes:
    """An input that is like one of the corpus."""
    data = bytearray(random.choice(corpus))
    for _ in range(random.choice((1, 1, 2, 4, 8))):
        place = random.randrange(len(data) + 1)
        end = min(len(data), place + int(random.paretovariate(0.8)))
        match random.randrange(8):
            case 0:
                data[place:end] = b""
            case 1:
                data[place:place] = random.choice(_WORDS)
            case 2:
                data[place:end] = random.choice(_WORDS)
            case 3:
                data[place:place] = data[place:end] * random.choice((1, 2, 20))
            case 4:
                other = random.choice(corpus)
                begin = random.randrange(len(other) + 1)
                data[place:] = other[begin : begin + MAX_BYTES]
            case 5 if data:
                data[min(place, len(data) - 1)] = random.randrange(256)
            case 6:
                data = data[:place]  # torn off
            case _:
                lines = bytes(data).splitlines(keepends=True)
                random.shuffle(lines)
                data = bytearray(b"".join(lines))
    return bytes(data[:MAX_BYTES])


def shortest(target: Target, found: Broken) -> Broken:
    """The same fault by less."""
    size = max(1, len(found.data) // 2)
    while size:
        place = 0
        while place < len(found.data):
            less = found.data[:place] + found.data[place + size :]
            try:
                target.play(less)
            except Exception as fault:
                if type(fault) is type(found.fault):
                    found = Broken(less, fault)
                    continue
            place += size
        size //= 2
    return found


def main() -> int:
    """0 if nothing broke."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from support.fuzz_targets import TARGETS

    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each target")
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="segue-fuzz-") as home:
        os.environ |= {"HOME": home, "SEGUE_HOME": f"{home}/segue", "XDG_CONFIG_HOME": home}
        os.chdir(home)
        broken = sum(_broken(each, options) for each in TARGETS if options.only in each.name)
    return 1 if broken else 0


def _broken(target: Target, options: argparse.Namespace) -> bool:
    """Whether anything broke, which is printed."""
    seed = Random().getrandbits(32) if options.seed is None else int(options.seed)
    until, plays = time.monotonic() + float(options.seconds), 0

    def is_over(count: int) -> bool:
        nonlocal plays
        plays = count
        return time.monotonic() > until

    found = fuzz(target, Random(seed), is_over)
    told = "nothing broke" if found is None else f"{found.fault!r} by {found.data!r}"
    print(f"{target.name:14} seed {seed}: {plays:,} inputs: {told}", flush=True)
    return found is not None


if __name__ == "__main__":
    raise SystemExit(main())
