"""The ledger: one row of each reply, and sums that are the sums of its rows."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.core.sessions.ledger import ENDS_TURN, SIDE, Entry, Ledger
from segue.core.sessions.spend import Spend, split_prompt

MODELS = ("claude-opus-4-5", "gpt-5.5", "", "modèle ✓")
Row = tuple[int, int, str, int, tuple[int, int, int, int]]

counts = st.one_of(st.integers(0, 9), st.integers(0, 1 << 36))
rows = st.lists(
    st.tuples(
        st.integers(-4, 4),  # keys: few, so that they meet; 0 is "no key"
        st.integers(0, 1 << 42),
        st.sampled_from(MODELS),
        st.sampled_from((0, SIDE, ENDS_TURN, SIDE | ENDS_TURN)),
        st.tuples(counts, counts, counts, counts),
    ),
    max_size=25,
)


def filled(given_rows: Sequence[Row], ledger: Ledger | None = None) -> Ledger:
    ledger = Ledger() if ledger is None else ledger
    for key, at_ms, model, flags, four in given_rows:
        ledger.add(key, at_ms, model, flags, *four)
    return ledger


def reread(ledger: Ledger) -> Ledger:
    return Ledger(ledger.tobytes(), list(ledger.models))


def one(ledger: Ledger) -> Entry:
    (entry,) = ledger
    return entry


@given(rows)
def test_totals_are_the_sums_of_the_entries(given_rows: list[Row]) -> None:
    ledger = filled(given_rows)
    sums: dict[str, Spend] = {}
    for entry in ledger:
        sums[entry.model] = sums.get(entry.model, Spend()) + entry.spend
    assert ledger.totals() == {m: spend for m, spend in sums.items() if spend.total_tokens}


@given(rows)
def test_of_equal_keys_the_main_threads_then_the_largest_then_the_first_counts(
    given_rows: list[Row],
) -> None:
    best: dict[int, Row] = {}
    unnamed = []
    for row in given_rows:
        key, _, _, flags, four = row
        if not key:
            unnamed.append(row)
        elif key not in best or (flags & SIDE, -sum(four)) < (
            best[key][3] & SIDE,
            -sum(best[key][4]),
        ):
            best[key] = row
    expected = [(key, m, flags & SIDE, four) for key, _, m, flags, four in best.values()]
    expected += [(0, model, flags & SIDE, four) for _, _, model, flags, four in unnamed]
    got = [(e.key, e.model, e.flags & SIDE, e.spend.four) for e in filled(given_rows)]
    assert sorted(got) == sorted(expected)


def test_of_two_that_are_as_large_the_first_counts() -> None:
    first, second = (5, 1, "a", 0, (1, 2, 3, 4)), (5, 2, "b", 0, (4, 3, 2, 1))
    for order in ([first, second], [second, first]):
        entry = one(filled(order))
        assert (entry.model, entry.spend.four) == (order[0][2], order[0][4])


@given(rows)
def test_an_entry_has_the_time_of_the_first_record_and_ends_a_turn_if_any_of_them_did(
    given_rows: list[Row],
) -> None:
    for entry in filled(given_rows):
        if entry.key:
            same = [row for row in given_rows if row[0] == entry.key]
            assert entry.at == (same[0][1] / 1000 or None)
            assert bool(entry.flags & ENDS_TURN) == any(row[3] & ENDS_TURN for row in same)


@given(rows, rows)
def test_bytes_and_back_is_the_same_ledger_also_for_what_is_added_later(
    before: list[Row], after: list[Row]
) -> None:
    whole = filled(before)
    again = reread(whole)
    assert [*again] == [*whole]
    assert again.totals() == whole.totals()
    filled(after, whole)
    filled(after, again)
    assert (again.tobytes(), again.models) == (whole.tobytes(), whole.models)
    assert [*again.keys()] == [entry.key for entry in whole]
    by_key = {entry.key: entry for entry in whole if entry.key}
    for key in range(-4, 5):
        assert again.find(key) == whole.find(key) == by_key.get(key)


def test_adding_says_whether_the_request_is_new() -> None:
    ledger = Ledger()
    assert ledger.add(7, 1, "m", 0, 1, 1, 1, 1)
    assert not ledger.add(7, 1, "m", 0, 2, 2, 2, 2)
    assert ledger.add(0, 1, "m", 0, 1, 1, 1, 1)
    assert ledger.add(0, 1, "m", 0, 1, 1, 1, 1)
    assert [entry.spend.total_tokens for entry in ledger] == [8, 4, 4]


@pytest.mark.parametrize("count", [(1 << 40) + 1, 1 << 53, 1 << 63, 1 << 64, 10**30])
def test_what_is_not_a_count_of_tokens_is_left_out(count: int) -> None:
    ledger = Ledger()
    assert not ledger.add(1, 1, "m", 0, count, 0, 0, 0)
    assert len(ledger) == 0
    assert ledger.totals() == {}
    assert reread(ledger).tobytes() == b""


def test_side_and_main_know_each_other_in_any_order() -> None:
    main, side = (5, 1, "main", 0, (1, 1, 1, 1)), (5, 2, "side", SIDE, (9, 9, 9, 9))
    for order in ([main, side], [side, main]):
        entry = one(filled(order))
        assert (entry.model, entry.is_side, entry.spend.total_tokens) == ("main", False, 4)


def test_the_end_of_a_turn_belongs_to_the_last_request() -> None:
    ledger = filled([(1, 1, "m", 0, (1, 2, 3, 4)), (2, 2, "m", 0, (1, 0, 0, 0))])
    ledger.end_turn()
    assert [entry.flags & ENDS_TURN for entry in ledger] == [0, ENDS_TURN]
    Ledger().end_turn()


def test_a_fork_takes_its_parents_keys_up_to_the_first_difference() -> None:
    parent = filled([(k, k, "m", 0, (k, 0, 0, 0)) for k in (1, 2, 3, 4)])
    child = filled([(10 + k, 99, "m", 0, (k, 0, 0, 0)) for k in (1, 2, 9, 4)])
    assert child.adopt(parent) == 2
    assert [entry.key for entry in child] == [1, 2, 19, 14]
    assert child.find(1) == child.entry(0)
    assert child.find(11) is None
    assert reread(child).find(2) == child.entry(1)


@given(rows, rows)
def test_adopting_changes_keys_and_nothing_else(mine: list[Row], theirs: list[Row]) -> None:
    parent, child = filled(theirs), filled(mine)
    before = [(e.at, e.model, e.flags, e.spend) for e in child]
    same = child.adopt(parent)
    assert [(e.at, e.model, e.flags, e.spend) for e in child] == before
    assert [e.key for e in child][:same] == [e.key for e in parent][:same]
    spends = [(a.spend, b.spend) for a, b in zip(child, parent, strict=False)]
    assert all(a == b for a, b in spends[:same])
    assert all(a != b for a, b in spends[same : same + 1])
    again = child.tobytes()
    assert child.adopt(parent) == same
    assert child.tobytes() == again


@given(counts, counts, counts, counts)
def test_a_prompt_is_split_into_parts_that_add_up_to_it(
    prompt: int, cached: int, written: int, output: int
) -> None:
    spend = split_prompt(prompt, cached, output, written)
    assert min(spend.four) >= 0
    assert spend.input_tokens + spend.cache_read_tokens + spend.cache_write_tokens == prompt
    assert spend.output_tokens == output
    assert spend.total_tokens == sum(spend.four) == prompt + output
    assert spend.cache_read_tokens == min(cached, prompt)
