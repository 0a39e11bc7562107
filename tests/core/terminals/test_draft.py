"""What may be typed, and whether that is what stands in an input line."""

import pytest

from segue.core.terminals.draft import is_all, rows, shows, typeable, without
from segue.core.terminals.screen import Screen

LONG = "\n".join(f"line {number} of a text that is long" for number in range(9))


def drafted(draft: str, *, pasted: bool = False) -> Screen:
    return Screen(state="idle", draft=draft, pasted=pasted)


@pytest.mark.parametrize(
    ("text", "typed", "dropped"),
    [
        ("plain\n\ttext ", "plain\n\ttext", 0),
        ("a\r\nb\rc", "a\nbc", 1),
        ("\x1b[31mred\x07\x9b\x7f\ud800", "[31mred", 5),
        ("!! rm", "rm", 2),
        ("no! no", "no! no", 0),
        ("ends in \\", "ends in \\ ", 0),
        ("\x00\n ", "", 1),
    ],
)
def test_what_a_terminal_takes_for_keys_is_left_out(text: str, typed: str, dropped: int) -> None:
    assert typeable(text) == (typed, dropped)


def test_a_text_is_known_however_it_is_wrapped() -> None:
    assert is_all(drafted("one two\nthree"), "one  two three")
    assert not is_all(drafted("one two three!"), "one two three")
    assert not is_all(drafted("one two", pasted=True), "one two")


def test_a_text_is_shown_as_a_fold_or_in_part_but_with_nothing_else() -> None:
    assert shows(drafted("[Pasted text #1 +8 lines] ", pasted=True), LONG)
    assert shows(drafted(LONG[60:], pasted=True), LONG)
    assert shows(drafted(LONG, pasted=True), LONG)
    assert not shows(drafted("[Pasted text #1 +8 lines] mine", pasted=True), LONG)
    assert not shows(drafted(LONG[60:] + "mine", pasted=True), LONG)
    assert not shows(drafted("line"), LONG)
    assert not shows(drafted(""), LONG)


def test_what_is_left_without_our_text_is_the_users() -> None:
    assert without(drafted("mine " + LONG + "\nand more "), LONG) == "mine \nand more "
    assert without(drafted("[Pasted 9 lines]mine", pasted=True), LONG) == "mine"
    assert without(drafted(LONG), LONG) == ""
    assert without(drafted("mine alone"), LONG) == "mine alone"
    assert without(drafted("mine", pasted=True), LONG) == "mine"
    assert without(drafted("mine"), "") == "mine"


def test_a_draft_takes_at_least_its_lines() -> None:
    assert rows("") == 1
    assert rows("a\nb\n") == 3
    assert rows("w" * 300) >= 4
