"""Tasks from files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.core.queue import lists


def test_one_task_a_line_without_empty_lines_and_comments() -> None:
    assert lists.read("fix the tests\n\n# later\n  add a test  \n").tasks == (
        "fix the tests",
        "add a test",
    )


@pytest.mark.parametrize("mark", ["-", "*", "+", "1.", "2)"])
def test_each_item_of_a_markdown_list_is_a_task_with_what_is_indented_below(mark: str) -> None:
    text = f"# Tonight\n\n{mark} fix the tests\n   in src/\n   - also these\n\n{mark} add a test\n"
    assert lists.read(text).tasks == ("fix the tests\nin src/\n- also these", "add a test")


def test_ticked_items_are_left_out_and_counted() -> None:
    found = lists.read("- [ ] open\n- [x] done\n  with more\n- [X] done too\n- [ ] open too\n")
    assert found.tasks == ("open", "open too")
    assert found.ticked == 2


def test_prose_around_a_list_is_not_a_task_and_said() -> None:
    found = lists.read("Hello,\n\n- one\nand so on\n  indented\n- two\n")
    assert found.tasks == ("one", "two")
    assert found.ignored == (1, 4, 5)


@pytest.mark.parametrize("text", ["", "\n\n", "# only a heading\n", "- \n", "\ufeff"])
def test_where_there_is_nothing_there_is_no_task(text: str) -> None:
    assert lists.read(text).tasks == ()


@given(st.text())
def test_any_text_is_read_and_no_task_is_empty(text: str) -> None:
    assert all(task.strip() for task in lists.read(text).tasks)
