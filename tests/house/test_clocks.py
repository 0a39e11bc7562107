"""No test bounds the time that something takes: on a busy machine it takes longer."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
CLOCKS = {"monotonic", "perf_counter", "process_time", "thread_time", "time"}
CLOCKS |= {f"{name}_ns" for name in CLOCKS} | {"getrusage", "cpu_times"}
LEAST_PATIENCE_S = 30
"""A deadline that only ends a hang leaves so much at least; `support/waiting` has one for all."""
NO_TIME = {"ru_maxrss"}
PATIENT = {"wait", "join", "communicate", "acquire", "result", "end"}
"""Calls whose first number says how long they wait."""
PATIENCE = {"timeout", "max_s", "limit_s", "timeout_s"}
"""Arguments that say so."""
SHORT_LOOK_S = 2
"""Who waits so long at most shows that something does not happen."""


def _asks_a_clock(node: ast.AST) -> bool:
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and each.attr in NO_TIME:
            return False
    for each in ast.walk(node):
        if isinstance(each, ast.Call):
            name = each.func.attr if isinstance(each.func, ast.Attribute) else None
            name = each.func.id if isinstance(each.func, ast.Name) else name
            if name in CLOCKS - {"time"} or (name == "time" and not each.args):
                return True
    return False


def _spans(node: ast.AST, known: set[str]) -> bool:
    """Whether an expression is a difference of times, or named so."""
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and each.id in known:
            return True
        if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Sub) and _asks_a_clock(each):
            return True
    return False


def bounds(source: str) -> Iterator[str]:
    """The lines of a test file that say how long something may take."""
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        named: set[str] = set()
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and _spans(node.value, named):
                named |= {
                    n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)
                }
        for node in ast.walk(function):
            if isinstance(node, ast.Assert):
                for each in ast.walk(node.test):
                    if isinstance(each, ast.Compare) and _is_upper_bound(each, named):
                        yield f"{node.lineno}: {ast.unparse(node)}"
            elif (isinstance(node, ast.BinOp) and _is_short_deadline(node)) or (
                isinstance(node, ast.Call) and _is_impatient(node)
            ):
                yield f"{node.lineno}: {ast.unparse(node)}"


def short_waits(source: str) -> Iterator[str]:
    """The lines that wait so shortly for something that a busy machine is late."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and _is_impatient(node):
            yield f"{node.lineno}: {ast.unparse(node)}"


def _is_short_deadline(sum_: ast.BinOp) -> bool:
    """Whether a little is added to a clock. What is added to the time of day is no deadline."""
    asked, added = sum_.left, sum_.right
    if not (isinstance(sum_.op, ast.Add) and isinstance(asked, ast.Call) and _asks_a_clock(asked)):
        return False
    is_time_of_day = isinstance(asked.func, ast.Attribute) and asked.func.attr == "time"
    value = added.value if isinstance(added, ast.Constant) else None
    is_short = isinstance(value, int | float) and value < LEAST_PATIENCE_S
    return is_short and not is_time_of_day


def _is_impatient(call: ast.Call) -> bool:
    """Whether a call waits too shortly for something that is to happen."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    given = [each.value for each in call.keywords if each.arg in PATIENCE]
    given += call.args[:1] if name in PATIENT else []
    numbers = [each.value for each in given if isinstance(each, ast.Constant)]
    return any(
        isinstance(each, int | float) and SHORT_LOOK_S < each < LEAST_PATIENCE_S for each in numbers
    )


def _is_upper_bound(compared: ast.Compare, named: set[str]) -> bool:
    sides = [compared.left, *compared.comparators]
    for op, left, right in zip(compared.ops, sides, sides[1:], strict=False):
        less, more = isinstance(op, ast.Lt | ast.LtE), isinstance(op, ast.Gt | ast.GtE)
        if (less and _spans(left, named)) or (more and _spans(right, named)):
            return True
    return False


def test_no_test_says_how_long_something_may_take() -> None:
    found = {
        str(file.relative_to(TESTS)): lines
        for file in sorted(TESTS.rglob("test_*.py"))
        if (lines := list(bounds(file.read_text(encoding="utf-8"))))
    }
    assert found == {}, "count reads, calls or bytes; to end a hang, use support/hangs or waiting"


def test_no_test_and_no_helper_waits_shortly_for_what_must_come() -> None:
    found = {
        str(file.relative_to(TESTS)): lines
        for file in sorted(TESTS.rglob("*.py"))
        if not file.is_relative_to(TESTS / "data")
        and (lines := list(short_waits(file.read_text(encoding="utf-8"))))
    }
    assert found == {}, "wait for LONG_S of support/waiting"


@pytest.mark.parametrize(
    ("said", "is_bound"),
    [
        ("assert time.monotonic() - began < 5", True),
        ("assert 5 > time.process_time() - began, 'slow'", True),
        ("took = perf_counter() - began; assert 1 <= took < 9", True),
        ("until = time.monotonic() + 5", True),
        ("until = time.monotonic() + 60", False),
        ("until = time.monotonic() + LONG_S", False),
        ("assert time.monotonic() < until", False),
        ("assert time.monotonic() - began >= 0.3", False),
        ("reply(at=time.time() - 50)", False),
        ("resets_at = time.time() + 5", False),
        ("assert getrusage(SELF).ru_maxrss - before < 9", False),
        ("assert found(time.time() - 50) == []", False),
    ],
)
def test_a_bound_on_time_is_told_from_other_uses_of_a_clock(said: str, is_bound: bool) -> None:
    body = "\n".join(f"    {line}" for line in said.split("; "))
    assert bool(list(bounds(f"def test() -> None:\n{body}\n"))) == is_bound


@pytest.mark.parametrize(
    ("said", "is_short"),
    [
        ("assert process.wait(20) == 0", True),
        ("subprocess.run(argv, timeout=10)", True),
        ("assert s.end(process, max_s=5).code == 0", True),
        ("assert process.wait(LONG_S) == 0", False),
        ("assert not leg.wait(0.3)", False),
        ("subprocess.run(argv, timeout=180)", False),
    ],
)
def test_a_short_wait_is_told_from_a_look_and_from_patience(said: str, is_short: bool) -> None:
    assert bool(list(short_waits(said))) == is_short
