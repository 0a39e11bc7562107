"""Sessions that are each other's parents: in any order of arrival, the counts are as from
scratch."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.files.scan import A, B, C, D, Machine, rollout, same, session

NAMES = (A, B, C, D)
COUNTS = {A: [1, 2, 4], B: [1, 2, 8], C: [1, 2, 8, 16], D: [1, 32]}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def put(machine: Machine, name: str, parent: str) -> None:
    second = 1000.0 * NAMES.index(name)
    machine.write(rollout(name), session(name, COUNTS[name], parent=parent, second=second))


def settled(machine: Machine) -> dict[str, int]:
    seen = same(machine)
    assert machine.scan().done.read_bytes == 0  # nobody waits for anybody
    return seen.input("codex")


@pytest.mark.parametrize("order", [*itertools.permutations("ABCD")])
def test_parents_of_each_other_count_by_themselves_and_their_forks_from_where_they_differ(
    order: tuple[str, ...], machine: Machine
) -> None:
    parents = {"A": B, "B": A, "C": B, "D": D}
    for letter in order:
        name = NAMES["ABCD".index(letter)]
        put(machine, name, parents[letter])
        found = settled(machine)
    # A and B are no copies of each other, D none of itself; C has what B has first.
    assert found == {"gpt-5.5": 7 + 11 + 16 + 33}


def test_a_circle_that_is_closed_and_opened_again_is_matched_again(machine: Machine) -> None:
    put(machine, A, B)
    put(machine, B, "")
    assert settled(machine) == {"gpt-5.5": 11 + 4}
    put(machine, B, A)
    assert settled(machine) == {"gpt-5.5": 11 + 7}
    put(machine, B, "")
    assert settled(machine) == {"gpt-5.5": 11 + 4}
    put(machine, B, A)
    settled(machine)
    machine.place(rollout(B)).unlink()
    assert settled(machine) == {"gpt-5.5": 7}


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(("", "gone", *NAMES))),
                 min_size=1, max_size=3),
        min_size=1, max_size=6,
    )
)  # fmt: skip
@settings(max_examples=150)
def test_after_any_change_of_parents_a_scan_finds_what_one_from_scratch_finds(
    tmp_path_factory: pytest.TempPathFactory,
    rounds: list[list[tuple[str, str]]],
) -> None:
    machine = Machine(tmp_path_factory.mktemp("circles"))
    for changes in rounds:
        for name, parent in changes:
            place = machine.place(rollout(name))
            if parent == "gone":
                place.unlink(missing_ok=True)
            else:
                put(machine, name, parent)
        settled(machine)
