"""The checkpoint in an agent's answer, however it is written, and as it is passed on."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.core.handoffs.checkpoint import (
    AgentSummary,
    Checkpoint,
    Command,
    FileChanged,
    clean,
    extract,
    paths_in,
    render,
)
from segue.core.sessions.remarks import Todo

BODY = """## Goal
Port the parser.
## Completed Work
- src/a.py: done
## Remaining Tasks
1. src/b.py
## Do Not Redo
the port of a.py
## Key Decisions
keep {braces} and <tags>"""
FIVE = ("Port the parser.", "- src/a.py: done", "1. src/b.py", "the port of a.py",
        "keep {braces} and <tags>")  # fmt: skip
TITLES = ("Goal", "Completed work", "Remaining tasks", "Do not redo", "Key decisions")


def told(answer: str) -> AgentSummary:
    found = extract(answer)
    assert found is not None
    return found


def five(answer: str) -> tuple[str, ...]:
    found = told(answer)
    return tuple(
        text.strip()
        for text in (found.goal, found.completed, found.remaining, found.do_not_redo,
                     found.decisions)
    )  # fmt: skip


BLOCK = f"<checkpoint>\n{BODY}\n</checkpoint>"


@pytest.mark.parametrize(
    "answer",
    [
        BLOCK,
        f"Here it is:\n\n{BLOCK}\n\nI stop now.",
        f"```xml\n{BLOCK}\n```",
        f"```\n{BLOCK}\n```",
        f"~~~markdown\n{BLOCK}\n~~~",
        f"<checkpoint>\n```markdown\n{BODY}\n```\n</checkpoint>",
        f"<checkpoint>\n```\n{BODY}\n</checkpoint>\n```",
        f"```\n<checkpoint>\n{BODY}\n```\n</checkpoint>",
        f'<checkpoint version="2" agent="x">\n{BODY}\n</checkpoint>',
        f"<Checkpoint >\n{BODY}\n</ CHECKPOINT>",
        f"&lt;checkpoint&gt;\n{BODY}\n&lt;/checkpoint&gt;",
        f"<checkpoint>{BODY}</checkpoint>",
        f"<checkpoint>\n{BODY}",
        f"{BODY}\n</checkpoint>",
        f"The `<checkpoint>` that you asked for:\n{BLOCK}",
        f"A <checkpoint> follows.\n{BLOCK}",
        f"<checkpoint>\nolder\n</checkpoint>\n{BLOCK}",
        f"{BLOCK}\n<checkpoint>\nonce more, but I was",
        f"{BLOCK}\n<checkpoint></checkpoint>",
        f"{BLOCK}\n<checkpoint>\n\n```\n```\n</checkpoint>",
        f"<checkpoint/>\n{BLOCK}",
        BLOCK.replace("\n", "\r\n"),
        BODY,
        f"Sure:\n```markdown\n{BODY}\n```",
    ],
)
def test_the_block_is_found_however_it_is_wrapped(answer: str) -> None:
    assert five(answer) == FIVE


def test_nested_blocks_are_one() -> None:
    answer = "<checkpoint>\n## Goal\na\n<checkpoint>\nb\n</checkpoint>\nc\n</checkpoint>"
    assert told(answer).goal == "a\n<checkpoint>\nb\n</checkpoint>\nc"


def test_a_closing_tag_in_a_sentence_does_not_end_the_block() -> None:
    answer = "<checkpoint>\nGoal: read </checkpoint> right\nRemaining: all\n</checkpoint>\nEnd."
    assert told(answer).remaining == "all"


def test_the_last_of_two_blocks_on_one_line_counts() -> None:
    found = told("<checkpoint>a</checkpoint> or rather <checkpoint>b</checkpoint>")
    assert (found.raw, found.is_whole) == ("b", True)


def test_a_block_without_an_end_says_so() -> None:
    assert told(f"<checkpoint>\n{BODY}").is_whole is False


@pytest.mark.parametrize("answer", ["", " \n\t", "<checkpoint></checkpoint>", "<checkpoint>\n",
                                    "```\n```", "</checkpoint>", "<checkpoint/>"])  # fmt: skip
def test_an_empty_answer_does_not_count(answer: str) -> None:
    assert extract(answer) is None


@pytest.mark.parametrize(
    "form",
    ["## {}\n{}", "### {}:\n\n{}", "# 1. {}\n{}", "**{}**\n{}", "**{}:**\n{}", "**{}**: {}",
     "__{}__\n{}", "{}:\n{}", "{}: {}", "1. **{}**\n{}", "## **{}** ##\n{}", "## 🎯 {}\n{}",
     "## {} (so far)\n{}", "{}\n-----\n{}", "## {}: {}"],
)  # fmt: skip
def test_headings_are_read_in_the_usual_forms(form: str) -> None:
    text = "\n".join(form.format(title, f"text {n}") for n, title in enumerate(TITLES))
    assert five(f"<checkpoint>\n{text}\n</checkpoint>") == tuple(f"text {n}" for n in range(5))


@pytest.mark.parametrize("glue", ["\n", "", "\n\n"])
def test_child_tags_are_headings(glue: str) -> None:
    tags = ("goal", "completed_work", "remaining-tasks", "do_not_redo", "key_decisions")
    text = glue.join(f'<{tag} n="1">text {n}</{tag}>' for n, tag in enumerate(tags))
    assert five(f"<checkpoint>{glue}{text}{glue}</checkpoint>") == tuple(
        f"text {n}" for n in range(5)
    )


@given(st.permutations(range(5)))
def test_any_order_will_do(order: list[int]) -> None:
    text = "\n".join(f"## {TITLES[n]}\ntext {n}" for n in order)
    assert five(text) == tuple(f"text {n}" for n in range(5))


def test_unknown_headings_and_what_stands_before_the_first_are_kept() -> None:
    found = told("Intro.\n## Goal\ng\n## Gotchas\nport 80 is taken\n### Deeper\nyes\n## Done\nd")
    assert found.other == (("", "Intro."), ("Gotchas", "port 80 is taken\n### Deeper\nyes"))
    assert (found.goal, found.completed) == ("g", "d")


def test_items_that_look_like_headings_stay_where_they_are() -> None:
    text = "- Remaining: 2\nDone: src/a.py\n### src/b.py\n- **Next:** c\n```sh\n# Goal\n```"
    assert told(f"## Completed work\n{text}\n## Goal\ng").completed == text


def test_a_heading_that_comes_twice_is_one_section() -> None:
    assert told("## Done\na\n## Goal\ng\n## Done\nb").completed == "a\n\nb"


def test_a_huge_answer_is_bounded_and_says_so() -> None:
    lines = "\n".join(f"- line {n}" for n in range(200_000))
    found = told(f"<checkpoint>\n## Goal\ng\n## Done\n{lines}\n## Remaining\nr\n</checkpoint>")
    assert (found.goal, found.remaining, found.is_whole) == ("g", "r", False)
    assert len(found.raw) + len(found.completed) <= 50_000
    assert found.completed.splitlines()[-1].endswith("lines left out …]")


def test_the_files_that_it_names_can_be_checked() -> None:
    text = "Changed `src/a.py`, ./b/c.test.ts. See https://x.io/y.html and/or 1/2.5 src/a.py"
    assert paths_in(told(text)) == ("src/a.py", "./b/c.test.ts")


PIECES = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        ["<checkpoint>", "</checkpoint>", "\n", "```", "\n```xml\n", "## Goal\n", "**Done**", "`",
         "Remaining: ", "<goal>", "</goal>", "{", "}", "\ud800", "\0", "\r", "x" * 90, "<", "---"]
    ),
)  # fmt: skip
ANYTHING = st.lists(PIECES, max_size=25).map("".join)


@given(ANYTHING, st.integers(0, 400))
def test_any_answer_is_read_within_its_bound(answer: str, most: int) -> None:
    found = extract(answer, max_chars=most)
    if found is None:
        return
    sections = [found.goal, found.completed, found.remaining, found.do_not_redo, found.decisions]
    assert len(found.raw) <= most
    assert sum(map(len, sections)) + sum(len(t) + len(x) for t, x in found.other) <= most


@given(ANYTHING.filter(lambda text: "checkpoint" not in text.lower() and text.strip()))
def test_no_line_of_an_answer_without_tags_is_lost(answer: str) -> None:
    found = extract(f"x\n{answer}\nx")
    assert found is not None
    assert found.raw.split() == f"x {answer} x".split()


@pytest.mark.parametrize(
    "unit",
    ["<checkpoint>", "<checkpoint>\n", "</checkpoint>", "<checkpoint>a</checkpoint>", "< ", "```\n",
     "## Goal\n", "# ", "a ", "**", "<goal>", "<goal>a</goal>", "Goal: ", " ", "<checkpoint "],
)  # fmt: skip
def test_four_times_the_answer_takes_no_more_than_its_share_of_time(unit: str) -> None:
    def cost(chars: int) -> float:
        text = unit * (chars // len(unit))
        taken = []
        for _ in range(3):  # the least: what else the machine does only adds
            start = time.process_time()
            extract(text)
            taken.append(time.process_time() - start)
        return min(taken)

    small = max(cost(50_000), 0.01)
    assert cost(200_000) < 10 * small


# Rendering


WHOLE = Checkpoint(
    summary=told(BLOCK),
    task="Port all of it.",
    instructions=("Use tabs.", "No, blanks.\nTwo of them."),
    todos=(Todo("a", "completed"), Todo("b", "in_progress"), Todo("c")),
    files=(FileChanged("src/a.py", "ab" * 32), FileChanged("old.py", exists=False)),
    gone=("src/z.py",),
    commands=(Command("pytest -q", 1), Command("make"), Command("ls\n-la", 0)),
    failing_tests=("tests/test_b.py::test_x",),
    git_status=" M src/a.py",
    git_diff_stat=" 1 file changed",
)


def test_all_parts_are_rendered() -> None:
    text = render(WHOLE, max_chars=10_000)
    for part in [*FIVE, "Port all of it.", "> No, blanks.\n> Two of them.", "- [x] a", "- [~] b",
                 "- [ ] c", f"- src/a.py (sha256 {'ab' * 32})", "- old.py (gone)", "- src/z.py",
                 "- pytest -q (exit code 1)", "- make (no result seen)", "- ls ⏎ -la (exit code 0)",
                 "- tests/test_b.py::test_x", " M src/a.py", " 1 file changed"]:  # fmt: skip
        assert part in text
    assert "Left out" not in text


def test_a_command_that_was_run_again_is_reported_once_where_it_was_run_last() -> None:
    runs = (Command("make", 0), Command("pytest", 1), Command("make", 0), Command("pytest", 0))
    text = render(Checkpoint(task="t", commands=runs))
    lines = [line for line in text.splitlines() if line.startswith("- ")]
    assert lines == [
        "- pytest (exit code 1)",
        "- make (exit code 0), 2 times",
        "- pytest (exit code 0)",
    ]


def test_the_most_important_has_its_place_first_and_the_rest_is_named() -> None:
    long = "\n".join(f"- did {n}" for n in range(5_000))
    many = tuple(Command(f"command {n}", 0) for n in range(5_000))
    found = Checkpoint(
        summary=AgentSummary(goal="the goal", remaining="the rest", completed=long),
        task="t",
        commands=many,
    )
    text = render(found, max_chars=2_000)
    assert len(text) <= 2_000
    assert "the goal" in text
    assert "the rest" in text
    assert "- did 0\n" in text
    assert "- command 4999 (exit code 0)" in text  # of commands the last ones matter
    assert text.splitlines()[-1].startswith("Left out for size: Completed work (")


def test_the_agents_words_are_rendered_whole_if_they_have_no_headings() -> None:
    assert "I did a; b is left." in render(Checkpoint(summary=told("I did a; b is left.")))


def test_without_the_agent_the_rule_made_part_stands_alone() -> None:
    text = render(Checkpoint(task="t", git_status=" M a.py"))
    assert text == "## Task\nt\n\n## git status\n M a.py"
    assert Checkpoint(task="t").is_empty


checkpoints = st.builds(
    Checkpoint,
    summary=st.none() | ANYTHING.map(extract),
    task=ANYTHING,
    instructions=st.lists(ANYTHING, max_size=3).map(tuple),
    todos=st.lists(st.builds(Todo, ANYTHING), max_size=3).map(tuple),
    files=st.lists(st.builds(FileChanged, ANYTHING, st.none() | st.just("ab" * 32), st.booleans()),
                   max_size=3).map(tuple),
    commands=st.lists(st.builds(Command, ANYTHING, st.none() | st.integers()), max_size=9).map(
        tuple),
    git_status=ANYTHING,
)  # fmt: skip


@given(checkpoints, st.integers(0, 1_500))
def test_any_checkpoint_is_rendered_within_its_bound_in_whole_lines(
    checkpoint: Checkpoint, most: int
) -> None:
    text = render(checkpoint, max_chars=most)
    assert len(text) <= most
    whole = set(render(checkpoint, max_chars=10**9).split("\n"))
    added = [line for line in text.split("\n") if line not in whole]
    assert all("left out" in line.lower() or not line for line in added)


def test_secrets_are_gone_from_what_is_rendered_and_kept_but_the_task_stays() -> None:
    key = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
    found = Checkpoint(
        summary=told(f"## Done\nused {key}"), task=f"use {key}", commands=(Command(f"x {key}", 0),)
    )
    kept, number = clean(found)
    assert number == 3  # completed, raw, command
    assert key not in str(kept.summary) + str(kept.commands)
    assert kept.task == f"use {key}"
    assert key not in render(found)
    assert clean(kept) == (kept, 0)
