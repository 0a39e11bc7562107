"""Markdown session files: a workflow is complete only if every step is done or it says so."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from segue.agents.markdown.session import Workflow, body, workflow


def read(front: str, rest: str = "# Body\n") -> Workflow:
    found = workflow(f"---\n{front}\n---\n{rest}")
    assert found is not None
    return found


# Complete or not


def test_every_step_done_is_complete() -> None:
    assert read("stepsCompleted: [1, 2, 3]\nlastStep: 3\ntotalSteps: 3").is_complete


def test_three_of_twelve_with_last_step_three_is_not_complete() -> None:
    flow = read("stepsCompleted: [1, 2, 3]\nlastStep: 3\ntotalSteps: 12")
    assert not flow.is_complete


def test_a_count_that_equals_last_step_proves_nothing_without_a_total() -> None:
    assert not read("stepsCompleted: [1, 2, 3]\nlastStep: 3").is_complete


def test_the_order_of_the_steps_does_not_matter() -> None:
    assert read("stepsCompleted: [3, 1, 2]\ntotalSteps: 3").is_complete


def test_duplicate_steps_do_not_make_up_for_missing_ones() -> None:
    flow = read("stepsCompleted: [1, 2, 2]\ntotalSteps: 3")
    assert not flow.is_complete


def test_duplicate_steps_do_not_harm_a_complete_flow() -> None:
    assert read("stepsCompleted: [1, 1, 2, 3, 3]\ntotalSteps: 3").is_complete


def test_enough_steps_with_the_wrong_numbers_are_not_complete() -> None:
    assert not read("stepsCompleted: [2, 3, 4]\ntotalSteps: 3").is_complete


@pytest.mark.parametrize("total", ["0", "-1", "true", "'3'", "3.0", "null"])
def test_a_total_that_is_not_a_count_proves_nothing(total: str) -> None:
    assert not read(f"stepsCompleted: [1, 2, 3]\ntotalSteps: {total}").is_complete


@pytest.mark.parametrize("status", ["complete", "COMPLETED", "Done", "' finished '"])
def test_a_status_that_says_so_is_complete_without_steps(status: str) -> None:
    assert read(f"status: {status}").is_complete


@pytest.mark.parametrize(
    "status", ["in-progress", "ready-for-dev", "incomplete", "not done", "true"]
)
def test_any_other_status_is_not_complete(status: str) -> None:
    assert not read(f"status: {status}\nstepsCompleted: [1]\ntotalSteps: 3").is_complete


def test_a_status_of_done_stands_above_missing_steps() -> None:
    assert read("status: complete\nstepsCompleted: [1]\ntotalSteps: 3").is_complete


@pytest.mark.parametrize("status", ["in-progress", "draft"])
def test_every_step_done_is_complete_whatever_else_the_status_says(status: str) -> None:
    assert read(f"status: {status}\nstepsCompleted: [1, 2]\ntotalSteps: 2").is_complete


def test_steps_by_name_are_complete_when_all_are_there() -> None:
    names = "totalSteps: [init, discovery, writing]\n"
    assert read(f"{names}stepsCompleted: [init, writing, discovery]").is_complete
    assert not read(f"{names}stepsCompleted: [init, init, discovery]").is_complete


@pytest.mark.parametrize(
    ("front", "has_steps"),
    [
        ("status: stable", False),
        ("status: complete\ntitle: x", False),
        ("stepsCompleted: []\nstatus: in-progress", True),
        ("lastStep: 2", True),
        ("status: draft\ntotalSteps: 3", True),
    ],
)
def test_steps_make_a_session_and_a_status_alone_does_not(front: str, has_steps: bool) -> None:
    assert read(front).has_steps is has_steps


# String step names


@pytest.mark.parametrize(
    "steps",
    [
        "[step-01-init, step-02-context, step-03-starter]",
        "['1', '2', '3']",
        "[step_1, step_2, step_3]",
        "[Step 1, Step 2, Step 3]",
        "[01-init, 02-context, 03-starter]",
        "[phase-1, task 2, 'step #3']",
    ],
)
def test_numbers_in_step_names_are_read(steps: str) -> None:
    assert read(f"stepsCompleted: {steps}\ntotalSteps: 3").is_complete
    assert not read(f"stepsCompleted: {steps}\ntotalSteps: 4").is_complete


@pytest.mark.parametrize(
    "steps",
    ["[init, discovery]", "[step-1b-continue]", "[1, 2, discovery]", "[v2-plan]", "[12345]"],
)
def test_unknown_names_prove_nothing(steps: str) -> None:
    assert not read(f"stepsCompleted: {steps}\ntotalSteps: 3").is_complete


@given(st.lists(st.integers(1, 12), min_size=1, max_size=20), st.integers(1, 12))
def test_complete_means_exactly_that_no_step_is_missing(done: list[int], total: int) -> None:
    flow = Workflow(steps_done=tuple(map(str, done)), total_steps=total)
    assert flow.is_complete == set(range(1, total + 1)).issubset(done)


@given(st.lists(st.text(max_size=8), max_size=8), st.none() | st.integers(-3, 12))
def test_no_names_raise_and_fewer_names_than_steps_are_never_complete(
    done: list[str], total: int | None
) -> None:
    flow = Workflow(steps_done=tuple(done), total_steps=total)
    assert not flow.is_complete or total is None or len(done) >= total


# Reading the file


def test_the_fields_are_read_as_they_stand() -> None:
    flow = read("stepsCompleted: [1, b]\nlastStep: step-02\ntotalSteps: 4\nstatus: ' In Work '")
    assert flow == Workflow(
        steps_done=("1", "b"),
        total_steps=4,
        status="in work",
        has_steps=True,
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# No front matter\n",
        "---\nstatus: complete\n",
        "text first\n---\nstatus: complete\n---\n",
        "---\nstepsCompleted: [1, 2\n---\n",
        "---\nstatus: complete: done\n---\n",
        "---\n\tstatus: complete\n---\n",
        "---\nstatus: !!python/object:os.system x\n---\n",
        "---\nlastStep: 2026-13-45\n---\n",
        "---\n- a\n- list\n---\n",
        "---\njust words\n---\n",
        "---\n\n---\n",
        "---\ntitle: A note\n---\n",
        "---\nstatus: &a [*a\n---\n",
        f"---\nstatus: {'[' * 5000}\n---\n",
    ],
)
def test_broken_or_foreign_front_matter_is_not_a_workflow(text: str) -> None:
    assert workflow(text) is None


@pytest.mark.parametrize("end", ["---", "...", "---  "])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_yamls_ends_windows_newlines_and_byte_order_marks_are_read(
    mark: str, newline: str, end: str
) -> None:
    flow = workflow(newline.join([f"{mark}---", "status: complete", end, "Body", ""]))
    assert flow is not None
    assert flow.is_complete


@pytest.mark.parametrize("steps", ["3", "all", "{1: yes}", "null", "true"])
def test_steps_that_are_not_a_list_are_ignored(steps: str) -> None:
    assert read(f"stepsCompleted: {steps}\ntotalSteps: 1").steps_done == ()


def test_body_is_what_follows_the_front_matter() -> None:
    assert body("---\nstatus: x\n---\nText\n---\nmore\n") == "Text\n---\nmore\n"
    assert body("No front matter\n") == "No front matter\n"


@given(st.text(max_size=200))
def test_any_front_matter_is_read_or_refused_without_raising(front: str) -> None:
    found = workflow(f"---\nstepsCompleted: [1]\n{front}\n---\nbody")
    assert found is None or found.has_steps


@given(
    st.lists(st.integers(0, 99) | st.text("abcdefg-_ 123", max_size=8), max_size=6),
    st.none() | st.integers(0, 9),
)
def test_steps_survive_being_written_and_read(done: list[int | str], total: int | None) -> None:
    front = yaml.safe_dump({"stepsCompleted": done, "totalSteps": total}).rstrip("\n")
    flow = read(front)
    assert flow.steps_done == tuple(map(str, done))
    assert flow.total_steps == total


def test_a_few_lines_of_nested_aliases_do_not_grow_without_bound() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 5)]
    flow = workflow("\n".join(["---", *lines, "stepsCompleted: [*a4]", "---", ""]))
    assert flow is None or sum(map(len, flow.steps_done)) < 10_000
