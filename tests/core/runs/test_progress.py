"""What counts as progress, which tests fail, and when a session goes round in circles."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.hangs import stopped_hang

from segue.core.runs.progress import Mark, Progress, Tests, failing_tests, progressed
from segue.core.sessions.remarks import Todo
from segue.core.stops.events import Reply, TodoList, ToolCall, ToolResult

PYTEST = """\
tests/test_a.py::test_ok PASSED                                          [ 25%]
tests/test_a.py::test_bad[x y] FAILED                                    [ 50%]
=================================== FAILURES ===================================
E       assert 1 == 2
=========================== short test summary info ============================
\x1b[31mFAILED\x1b[0m tests/test_a.py::\x1b[1mtest_bad\x1b[0m - assert 1 == 2
ERROR tests/test_b.py - ImportError: no module
ERROR tests/test_c.py::test_x - fixture 'y' not found
==================== 1 failed, 1 passed, 2 errors in 0.10s =====================
"""
XDIST = "[gw1] [ 40%] FAILED tests/test_a.py::test_far\n[gw0] [ 50%] PASSED tests/a.py::t\n"
JEST = """\
FAIL src/sum.test.js
  sum
    ✓ adds (2 ms)
    ✕ adds badly (5 ms)

  ● sum › adds badly

    expect(received).toBe(expected)

Tests:       1 failed, 1 passed, 2 total
"""
VITEST = """\
 ❯ src/sum.test.ts (2 tests | 1 failed) 5ms
   × sum > adds badly 4ms
 FAIL  src/sum.test.ts > sum > adds badly
"""
GO = """\
=== RUN   TestAdd
--- FAIL: TestAdd (0.00s)
    --- FAIL: TestAdd/negative (0.00s)
    add_test.go:9: got 1
FAIL
FAIL\texample.com/add\t0.002s
FAIL\texample.com/broken [build failed]
"""
CARGO = """\
test tests::good ... ok
test tests::bad ... FAILED
failures:
    tests::bad
test result: FAILED. 1 passed; 1 failed; 0 ignored
"""
UNITTEST = """\
======================================================================
FAIL: test_one (pkg.test_mod.Case.test_one)
ERROR: test_two (pkg.test_mod.Case)
FAILED (failures=1, errors=1)
"""
NODE = "✖ adds badly (1.25ms)\n✖ failing tests:\n"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (PYTEST, ["tests/test_a.py::test_bad", "tests/test_b.py", "tests/test_c.py::test_x"]),
        ("tests/test_a.py::test_bad FAILED   [ 50%]\n", ["tests/test_a.py::test_bad"]),
        (XDIST, ["tests/test_a.py::test_far"]),
        (JEST, ["src/sum.test.js", "adds badly", "sum › adds badly"]),
        (VITEST, ["sum > adds badly", "src/sum.test.ts > sum > adds badly"]),
        (GO, ["TestAdd", "TestAdd/negative", "example.com/broken"]),
        (CARGO, ["tests::bad"]),
        (UNITTEST, ["pkg.test_mod.Case.test_one", "pkg.test_mod.Case.test_two"]),
        (NODE, ["adds badly"]),
        ("==== 3 failed, 2 passed in 1.2s ====", ["3 failed"]),
        ("==== 5 passed in 1.2s ====", []),
        ("0 failed, 7 passed", []),
        ("✖ 5 problems (5 errors, 0 warnings)", []),
        ("src/a.py:12: FAILED tests/a.py::b is a name", []),
        ("FAILED to open it\nERROR no such file\nFAIL is a word\nERROR: pip (x y)", []),
        ("", []),
    ],
)
def test_failing_tests_are_named_as_their_runner_names_them(text: str, names: list[str]) -> None:
    assert list(failing_tests(text)) == names


def test_in_a_long_text_the_names_at_its_end_are_found_and_they_are_bounded() -> None:
    text = "x" * 500_000 + "\n" + "FAILED a.py::t\n" + "".join(
        f"FAILED a.py::t{n}\n" for n in range(500)
    )  # fmt: skip
    found = failing_tests(text)
    assert found[:2] == ("a.py::t", "a.py::t0")
    assert len(found) == 100
    assert failing_tests("FAILED a.py::" + "t" * 5_000) == ("a.py::" + "t" * 194,)


def test_a_common_word_or_a_number_counts_where_runners_sum_up_and_names_count_everywhere() -> None:
    far = "\n" + "all is well\n" * 1_000
    assert failing_tests(far + "3 failed, 2 passed\n") == ("3 failed",)
    assert failing_tests("3 failed, 2 passed" + far) == ()
    assert failing_tests("3 failed, FAIL is a word" + far) == ()
    assert failing_tests("1 failed\n2 failed\nnone failed\n") == ("2 failed",)
    assert failing_tests(far + "ERROR a.py::t\n") == ("a.py::t",)
    assert failing_tests("ERROR a.py::t" + far) == ()
    assert failing_tests("ERROR a.py::t" + far + "FAILED b.py::t") == ("a.py::t", "b.py::t")
    assert failing_tests("FAILED a.py::t" + far) == ("a.py::t",)
    assert failing_tests("✕ adds" + far) == ("adds",)


@pytest.mark.parametrize(
    "text",
    [
        "FAILED " * 100_000,
        "FAILED \n" * 100_000,
        ("FAIL" + " " * 5_000 + "\n") * 100,
        "--- FAIL: " * 50_000,
        "✕" * 500_000,
        "1 failed" * 60_000,
        "\x1b[" * 100_000 + " FAIL",
        "test a ... " * 50_000 + "FAILED",
    ],
)
def test_a_long_text_of_nothing_but_signs_is_searched_to_its_end(text: str) -> None:
    with stopped_hang():
        found = failing_tests(text * 20)
    assert len(found) <= 100


_SIGNS = ["FAILED ", "FAIL: ", "FAIL\t", "FAIL ", "ERROR ", "✕ ", "● ", " › ", "--- FAIL: "]
_BITS = st.sampled_from(
    [*_SIGNS, *"()\n", "::", ".py", " - ", "test x ... FAILED", "3 failed", "[gw0] [  1%] "]
)


@given(st.lists(_BITS | st.text(max_size=5)).map("".join))
def test_any_text_gives_short_names_each_once(text: str) -> None:
    found = failing_tests(text)
    assert len(set(found)) == len(found) <= 100
    assert all(name and len(name) <= 200 and "\n" not in name for name in found)


# Which fail now


def ran(tests: Tests, command: str, *failing: str, code: int | None = None) -> None:
    code = code if code is not None else int(bool(failing))
    tests.feed(command, ToolResult(exit_code=code, failed=code != 0, failing_tests=failing))


def test_a_test_that_fails_and_then_passes_was_fixed() -> None:
    tests = Tests()
    ran(tests, "pytest -q", "a.py::x", "a.py::y")
    assert list(tests.failing) == ["a.py::x", "a.py::y"]
    ran(tests, "pytest -q", "a.py::y")
    assert (list(tests.failing), tests.passed) == (["a.py::y"], {"a.py::x"})
    ran(tests, "python -m pytest")
    assert (list(tests.failing), tests.passed) == ([], {"a.py::x", "a.py::y"})


@pytest.mark.parametrize(
    "command", ["ls", "pytest b.py", "pytest -k other", "go test ./...", "mypytest", "pytest -m x"]
)
def test_a_run_of_something_else_mends_nothing(command: str) -> None:
    tests = Tests()
    ran(tests, "pytest", "a.py::x")
    ran(tests, command)
    assert list(tests.failing) == ["a.py::x"]
    assert not tests.passed


def test_a_run_of_one_file_mends_only_its_tests() -> None:
    tests = Tests()
    ran(tests, "pytest", "tests/a.py::x", "tests/b.py::y")
    ran(tests, "cd p && pytest ./tests/a.py -q | tail -3")
    assert list(tests.failing) == ["tests/b.py::y"]


def test_what_a_run_did_not_get_to_is_not_fixed() -> None:
    tests = Tests()
    ran(tests, "pytest", "a.py::x", "a.py::y")
    ran(tests, "pytest -x", "a.py::x")
    assert set(tests.failing) == {"a.py::x", "a.py::y"}
    ran(tests, "pytest", code=2)  # it broke before any test
    assert set(tests.failing) == {"a.py::x", "a.py::y"}


def test_a_test_that_fails_again_is_no_longer_fixed() -> None:
    tests = Tests()
    for failing in (("t",), (), ("t",)):
        ran(tests, "make test", *failing)
    assert (list(tests.failing), tests.passed) == (["t"], set())


def test_a_bare_number_of_failures_is_gone_once_all_pass_but_names_no_fixed_test() -> None:
    tests = Tests()
    ran(tests, "pytest | tail -1", "3 failed", code=0)
    assert list(tests.failing) == ["3 failed"]
    ran(tests, "pytest | tail -1")
    assert not tests.failing
    assert not tests.passed


# Progress


def call(name: str = "Bash", argument: str = "ls", *files: str, id_: str = "1") -> ToolCall:
    command = argument if name == "Bash" else ""
    return ToolCall(name=name, argument=argument, command=command, files=files, call_id=id_)


def test_a_changed_tree_is_progress_and_an_unknown_one_says_nothing() -> None:
    assert progressed(Mark(tree="a"), Mark(tree="b"))
    assert progressed(Mark(tree="a"), Mark(tree="b")).why == "files changed"
    for before, after in (("a", "a"), ("", "b"), ("a", ""), ("", "")):
        assert not progressed(Mark(tree=before), Mark(tree=after))


def test_a_closed_todo_is_progress_once() -> None:
    run = Progress()
    before = run.mark()
    run.see_todos([Todo("one", "in_progress"), Todo("two", "pending")])
    assert not progressed(before, run.mark())
    run.see_todos([Todo("one", "completed"), Todo("two", "pending")])
    closed = run.mark()
    assert progressed(before, closed).why == "a todo was closed: one"
    run.see_todos([])  # a new session has its own list, and closes the same again
    run.see_todos([Todo("one", "completed")])
    assert not progressed(closed, run.mark())
    run.feed(TodoList(todos=(Todo("done before, in other words", "completed"),)))
    assert not progressed(closed, run.mark())
    run.feed(TodoList(todos=(Todo("two", "completed"),)))
    assert progressed(closed, run.mark()).why == "a todo was closed: two"


def test_a_test_that_passes_after_it_failed_is_progress() -> None:
    run = Progress()
    run.feed(call("Edit", "e", "a.py"))
    run.feed(call(argument="pytest"))
    run.feed(ToolResult(call_id="1", exit_code=1, failed=True, failing_tests=("t",)))
    before = run.mark()
    assert before.failing == {"t"}
    run.feed(call(argument="pytest", id_="2"))
    run.feed(ToolResult(call_id="2", exit_code=0))
    assert progressed(before, run.mark()).why == "a test passes that failed before: t"


def test_for_tasks_that_write_nothing_new_different_calls_are_progress() -> None:
    run = Progress()
    run.see_tree("a")
    made(run, "ls")
    before = run.mark()
    made(run, "ls")
    run.feed(Reply(text="a million tokens"))
    assert not progressed(before, run.mark())
    assert "no tool call was a new one" in progressed(before, run.mark()).why
    made(run, "ls -a")
    assert progressed(before, run.mark()).why == "1 new tool call"


@pytest.mark.parametrize(
    "result",
    [
        ToolResult(call_id="1", failed=True),
        ToolResult(call_id="1", denied=True),
        ToolResult(call_id="1", exit_code=1),
    ],
)
def test_a_call_that_fails_or_is_refused_is_not_progress_however_new(result: ToolResult) -> None:
    run = Progress()
    run.see_tree("a")
    before = run.mark()
    run.feed(call(argument="rm -f x", id_="1"))
    run.feed(result)
    assert not progressed(before, run.mark())


def made(run: Progress, argument: str) -> None:
    run.feed(call(argument=argument, id_=argument))
    run.feed(ToolResult(call_id=argument))


@pytest.mark.parametrize("wrote", ["a file", "the tree"])
def test_for_tasks_that_write_new_calls_alone_are_none(wrote: str) -> None:
    run = Progress()
    run.see_tree("a")
    if wrote == "a file":
        run.feed(call("Write", "w", "a.py"))
    else:
        run.see_tree("b")
    before = run.mark()
    made(run, "ls -a")
    assert not progressed(before, run.mark())


def test_a_mark_can_be_kept() -> None:
    import msgspec

    mark = Mark(tree="a", closed=frozenset({"x"}), passed=frozenset({"t"}), calls=3)
    assert msgspec.json.decode(msgspec.json.encode(mark), type=Mark) == mark
