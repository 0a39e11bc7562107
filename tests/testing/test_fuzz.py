"""Whatever others wrote (agents, terminals, clients, hooks, people): nothing that reads it breaks.
Some inputs each here; `python tests/support/fuzzing.py` goes on for as long as it is let."""

from random import Random

import pytest
from support.fuzz_targets import TARGETS
from support.fuzzing import Target, fuzz, kept, mutated, shortest


@pytest.mark.parametrize("target", TARGETS, ids=lambda each: str(each.name))
def test_nothing_that_is_read_breaks_who_reads_it(target: Target) -> None:
    found = fuzz(target, Random(7), lambda plays: plays >= target.plays)
    assert found is None, f"{found.fault!r} by {found.data!r}"


@pytest.mark.parametrize("target", TARGETS, ids=lambda each: str(each.name))
def test_what_broke_once_does_not_break_again(target: Target) -> None:
    for data in kept(target.name):
        target.play(data)


def test_what_is_deeper_is_found_by_what_was_reached_before_and_made_short() -> None:
    """Three bytes that must come in this order, each behind a line of its own."""
    where = __file__

    def play(data: bytes) -> None:
        at = data.find(b"{")
        if at < 0:
            return
        at = data.find(b"[", at)
        if at < 0:
            return
        if data.find(b"\x00", at) >= 0:
            raise ValueError

    target = Target("three", lambda: [b"plain text, nothing else"], play, where)
    found = fuzz(target, Random(1), lambda plays: plays > 20_000)
    assert found is not None
    assert shortest(target, found).data == b"{[\x00"


def test_the_same_seed_makes_the_same_inputs() -> None:
    first, again = ([mutated([b"a\nb\n"], Random(3)) for _ in range(50)] for _ in range(2))
    assert first == again
