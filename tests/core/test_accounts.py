"""One account, one limit: who may try, who goes first, and who follows."""

from segue.core import accounts
from segue.core.accounts import Account, Answer, Limit

NOW = 1_794_800_000.0
FREE = Account(id="claude-1", agent="claude")


def met(resets_in_s: float = 100.0, scope: str = "five_hour", **more: object) -> Limit:
    told: dict[str, object] = {"by": "run-1", "seen_at": NOW, **more}
    return Limit(scope=scope, resets_at=NOW + resets_in_s, is_met=True, **told)  # type: ignore[arg-type]


def test_a_limit_that_one_met_keeps_all_others_until_its_reset() -> None:
    limited = accounts.note(FREE, [met()])
    for who in ("run-1", "run-2"):
        assert accounts.ask(limited, who, NOW + 99)[1] == Answer(NOW + 100, "five_hour", "run-1")


def test_of_two_limits_the_one_that_holds_longer_counts() -> None:
    limited = accounts.note(FREE, [met(), met(9_000, "seven_day")])
    assert accounts.ask(limited, "run-2", NOW + 200)[1].until == NOW + 9_000


def test_after_the_reset_one_goes_first_and_the_others_follow_its_first_reply() -> None:
    limited = accounts.note(FREE, [met()])
    limited, first = accounts.ask(limited, "run-2", NOW + 101)
    assert first.until is None
    limited, second = accounts.ask(limited, "run-3", NOW + 102)
    assert (second.follows, second.by) == (True, "run-2")
    assert accounts.ask(limited, "run-2", NOW + 103)[1].until is None  # it may ask again
    limited = accounts.replied(limited, "run-2", NOW + 104)
    assert accounts.ask(limited, "run-3", NOW + 105)[1].until is None
    assert accounts.ask(limited, "run-4", NOW + 105)[1].until is None


def test_whoever_goes_first_and_says_nothing_keeps_the_others_for_minutes_only() -> None:
    limited, _ = accounts.ask(accounts.note(FREE, [met()]), "run-2", NOW + 101)
    _, kept = accounts.ask(limited, "run-3", NOW + 101 + accounts.REPLY_S - 1)
    assert kept.follows
    assert accounts.ask(limited, "run-3", NOW + 101 + accounts.REPLY_S)[1].until is None


def test_whoever_goes_first_and_meets_the_limit_again_has_found_out_for_all() -> None:
    limited, _ = accounts.ask(accounts.note(FREE, [met()]), "run-2", NOW + 101)
    limited = accounts.note(limited, [met(500, by="run-2", seen_at=NOW + 102)])
    assert accounts.ask(limited, "run-3", NOW + 103)[1] == Answer(NOW + 500, "five_hour", "run-2")


def test_a_reply_in_the_middle_of_a_limit_lifts_nothing() -> None:
    limited = accounts.replied(accounts.note(FREE, [met()]), "run-9", NOW + 50)
    assert accounts.ask(limited, "run-2", NOW + 51)[1].until == NOW + 100


def test_long_after_a_reset_nobody_has_to_go_first() -> None:
    limited = accounts.note(FREE, [met()])
    later = NOW + 100 + accounts.STALE_S + 1
    first, second = (accounts.ask(limited, who, later)[1] for who in ("run-2", "run-3"))
    assert first == second == Answer()


def test_what_is_older_than_what_is_known_changes_nothing() -> None:
    limited = accounts.note(FREE, [met()])
    old = Limit(scope="five_hour", used_percent=20.0, seen_at=NOW - 60)
    assert accounts.note(limited, [old]) == limited


def test_the_use_of_a_limit_that_holds_is_noted_and_it_still_holds() -> None:
    told = Limit(scope="five_hour", used_percent=100.0, resets_at=NOW + 100, seen_at=NOW + 5)
    limited = accounts.note(accounts.note(FREE, [met()]), [told])
    assert limited.limits[0].is_met
    assert limited.limits[0].used_percent == 100.0


def test_what_has_passed_is_not_shown_any_more() -> None:
    told = Limit(scope="five_hour", used_percent=40.0, resets_at=NOW + 100, seen_at=NOW)
    noted = accounts.note(FREE, [told])
    assert accounts.current(noted, NOW + 99).limits == (told,)
    assert accounts.current(noted, NOW + 100).limits == ()


def test_a_guess_takes_back_no_reset_that_was_reported() -> None:
    """Seen in a simulation (seed 31337, worlds 51 and 128): a session whose refusal named no reset
    let all of its account try again after half a minute."""
    limited = accounts.note(FREE, [met(9_000)])
    guessed = accounts.note(limited, [met(40, is_guess=True, seen_at=NOW + 10, by="s-2")])
    assert accounts.ask(guessed, "run-2", NOW + 50)[1].until == NOW + 9_000
    later = accounts.note(guessed, [met(9_500, is_guess=True, seen_at=NOW + 9_100, by="s-2")])
    assert accounts.ask(later, "run-2", NOW + 9_200)[1].until == NOW + 9_500
