"""Where the marks should be: on histories whose best answer is known."""

from random import Random

import pytest

from segue.core.sessions.forecasts.tuning import History, advise

WINDOW = 200_000


def histories(turn: float, spread: float = 0.0, *, seed: int = 1, count: int = 40) -> list[History]:
    """Sessions that grow by that share of the window at each turn, more or less."""
    random = Random(seed)
    found = []
    for _ in range(count):
        sizes, used = [], 15_000.0 + random.random() * turn * WINDOW
        while used < 0.84 * WINDOW:
            sizes.append(int(used))
            used += WINDOW * turn * (1 + spread * (2 * random.random() - 1))
        found.append(History(sizes=tuple(sizes), window_tokens=WINDOW))
    return found


@pytest.mark.parametrize("turn", [0.01, 0.02, 0.03, 0.05])
@pytest.mark.parametrize("max_late", [0.02, 0.05, 0.2])
def test_equal_turns_have_the_mark_that_can_be_computed(turn: float, max_late: float) -> None:
    """Read one turn after the mark was passed, by any part of one: between m + g and m + 2 g."""
    best = 0.90 - 2 * turn + max_late * turn
    found = advise(histories(turn), now_mark=0.85, max_late=max_late)
    assert found.hard_mark == pytest.approx(best, abs=0.02)


@pytest.mark.parametrize("seed", range(5))
def test_uneven_turns_have_the_mark_that_a_long_simulation_finds(seed: int) -> None:
    turn, spread, max_late = 0.03, 0.9, 0.05
    random = Random(1_000 + seed)

    def read_at(mark: float) -> float:
        used = 0.05
        while used < mark:
            used += turn * (1 + spread * (2 * random.random() - 1))
        return used + turn * (1 + spread * (2 * random.random() - 1))

    marks = [mark / 100 for mark in range(60, 91)]
    best = max(
        mark for mark in marks if sum(read_at(mark) > 0.9 for _ in range(3_000)) <= max_late * 3_000
    )
    found = advise(histories(turn, spread, seed=seed), now_mark=0.85, max_late=max_late)
    assert found.hard_mark == pytest.approx(best, abs=0.02)
    assert found.late_then is not None
    assert found.late_then <= max_late


def test_a_history_too_small_is_said_to_be() -> None:
    found = advise(histories(0.02, count=2), now_mark=0.85)
    assert found.hard_mark is None
    assert found.why.startswith("not enough history: ")


def test_turns_too_large_for_any_mark_are_said_to_be() -> None:
    found = advise(histories(0.32, count=1_500), now_mark=0.85)
    assert found.hard_mark is None
    assert "no mark" in found.why


def test_a_compaction_is_not_a_turn() -> None:
    plain = histories(0.02)
    cut = [
        History(sizes=(*each.sizes, 20_000, 24_000), window_tokens=each.window_tokens)
        for each in plain
    ]
    assert advise(cut, now_mark=0.85).hard_mark == advise(plain, now_mark=0.85).hard_mark
