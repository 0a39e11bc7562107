"""What a session gains before its next reading is estimated from what its tools print."""

from segue.core.sessions.forecasts.pending import Pending


def turns(pending: Pending, *each: tuple[int, int], start: int = 10_000) -> None:
    """Readings, each after so many bytes of output that cost so many tokens."""
    pending.read(start)
    for size_bytes, tokens in each:
        pending.add(size_bytes)
        start += tokens
        pending.read(start)


def test_output_costs_what_the_output_of_earlier_turns_cost() -> None:
    pending = Pending()
    turns(pending, (2_000, 700), (3_000, 1_050), (2_000, 720))
    assert pending.tokens == 0  # all of it was read
    pending.add(100_000)
    assert pending.tokens == pending.cost(100_000) == 35_000


def test_replies_do_not_make_output_look_expensive() -> None:
    """Most of what these turns added are the model's own words."""
    pending = Pending()
    turns(pending, (600, 3_000), (800, 900), (700, 4_000), (10, 9_000))
    assert pending.cost(100_000) == 50_000


def test_a_high_cost_is_believed_if_turns_agree() -> None:
    pending = Pending()
    turns(pending, (2_000, 9_000), (2_000, 9_100))
    assert pending.cost(1_000) == 500
    turns(pending, (2_000, 9_200), (2_000, 9_000))
    assert pending.cost(1_000) == 4_500


def test_before_anything_is_known_a_token_has_four_bytes() -> None:
    pending = Pending()
    pending.add(4_000)
    assert pending.tokens == 0  # there is no reading to add it to
    assert pending.cost(400) == 100


def test_a_reading_that_comes_after_the_tools_does_not_have_their_output() -> None:
    pending = Pending(is_late=True)
    pending.add(2_000)
    pending.read(10_000)
    assert pending.tokens == 500
    pending.add(8_000)
    pending.read(10_800)  # has the first output: 0.4 tokens per byte
    assert pending.tokens == 3_200


def test_a_compaction_is_no_negative_cost() -> None:
    pending = Pending()
    turns(pending, (2_000, 700), (2_000, -5_000))
    pending.add(1_000)
    assert pending.tokens == 350


def test_a_new_session_knows_what_output_cost_in_the_one_before() -> None:
    first = Pending()
    turns(first, (2_000, 9_000), (2_000, 9_100), (2_000, 9_000))
    second = Pending(earlier=first)
    assert second.tokens == 0
    second.read(30_000)
    second.add(1_000)
    assert second.tokens == 4_500
    turns(second, (2_000, 700), start=30_000)
    assert first.cost(1_000) == 4_500  # what the second one learns is its own
