"""Decides whether a leg as a whole made progress; `idle` decides it while the leg runs.

Progress is a changed tree, a passing test or a closed todo; for tasks that write nothing, it is
new, different and successful tool calls. Tokens do not count.
"""

from collections.abc import Iterable

from msgspec import Struct

from segue.core.runs.failing_tests import failing_tests, is_count
from segue.core.sessions.remarks import Todo
from segue.core.stops.events import Event, TodoList, ToolCall, ToolResult

__all__ = ["Mark", "Progress", "Progressed", "Tests", "failing_tests", "progressed"]

_CALLS_KEPT = 20_000
_TODOS_KEPT = 2_000
_TODO_CHARS = 200
_RUNNERS = (
    *("pytest", "unittest", "go test", "cargo test", "cargo nextest", "vitest", "jest", "mocha"),
    *("npm test", "npm run test", "npm t", "yarn test", "pnpm test", "bun test", "node --test"),
    *("rspec", "phpunit", "make test", "make check", "tox", "nox", "ctest", "gradle test"),
)
_FILTERS = frozenset(
    {"-k", "-m", "-t", "-g", "-run", "--run", "--lf", "--last-failed", "--sw", "--stepwise"}
    | {"--testNamePattern", "--grep"}
)
_HALTS = ("-x", "--exitfirst", "--maxfail", "--bail", "-failfast", "--failfast", "-b")

Call = tuple[str, str]


class Mark(Struct, frozen=True, kw_only=True):
    """The state of a run's work at one time. Can be stored as JSON."""

    tree: str = ""  # a digest; "" if it is unknown
    has_written: bool = False  # anything since the run began
    closed: frozenset[str] = frozenset()  # todos
    failing: frozenset[str] = frozenset()
    passed: frozenset[str] = frozenset()  # tests of this run that had failed before
    calls: int = 0  # different calls in this run


class Progressed(Struct, frozen=True):
    """True if there was progress; `why` says so in words, in either case."""

    is_progress: bool
    why: str

    def __bool__(self) -> bool:
        return self.is_progress


def progressed(before: Mark, after: Mark) -> Progressed:
    """Whether there was progress between two marks of one run."""
    if before.tree and after.tree and before.tree != after.tree:
        return Progressed(True, "files changed")
    if closed := sorted(after.closed - before.closed):
        return Progressed(True, f"a todo was closed: {closed[0]}")
    if passed := sorted(after.passed - before.passed):
        return Progressed(True, f"a test passes that failed before: {passed[0]}")
    if not after.has_written and after.calls > before.calls:
        number = after.calls - before.calls
        return Progressed(True, f"{number} new tool call{'s' if number > 1 else ''}")
    if after.has_written:
        return Progressed(False, "no file changed, no todo was closed, no test was fixed")
    return Progressed(False, "no file changed, and no tool call was a new one")


class Tests:
    """Which tests fail now, according to the last run of each. A run that names nothing and
    succeeds clears the tests it was asked for: those of the same command, those it names or,
    if it names none, all of its runner's. So does a run that names others, unless it stops at
    the first failure."""

    __test__ = False

    def __init__(self) -> None:
        self.failing: dict[str, Call] = {}  # test -> the command that reported it, and its runner
        self.passed: set[str] = set()

    def feed(self, command: str, result: ToolResult) -> None:
        """A command has ended."""
        runner, asked, halts = _runner(command)
        now = result.failing_tests
        ended_well = not now and not result.failed and result.exit_code in (0, None)
        if not now and not (ended_well and runner):
            return
        for test, (other, its_runner) in list(self.failing.items()):
            is_meant = other == command or (
                bool(runner) and its_runner == runner and _covers(asked, test)
            )
            if now and halts:
                break  # what follows was not run
            if is_meant and test not in now:
                del self.failing[test]
                if not is_count(test):
                    self.passed.add(test)
        for test in now:
            self.failing.pop(test, None)
            self.failing[test] = (command, runner)
            self.passed.discard(test)


class Progress:
    """Takes in what happens in a run, and marks the state of its work."""

    def __init__(self) -> None:
        self.tests = Tests()
        self._tree = ""
        self._has_written = False
        self._open: set[str] = set()  # todos that were seen before they were done
        self._closed: set[str] = set()
        self._calls: set[Call] = set()  # that succeeded
        self._open_calls: dict[str, Call] = {}  # by their ids
        self._commands: dict[str, str] = {}  # by the call's id, until its result is there

    def feed(self, event: Event) -> None:
        """An event of a leg's stream or session."""
        if isinstance(event, ToolCall):
            self._has_written = self._has_written or bool(event.files)
            if len(self._open_calls) < _CALLS_KEPT:
                self._open_calls[event.call_id] = (event.name, event.argument)
            if event.command:
                self._commands[event.call_id] = event.command
        elif isinstance(event, ToolResult):
            self.tests.feed(self._commands.pop(event.call_id, ""), event)
            call = self._open_calls.pop(event.call_id, None)
            succeeded = not event.failed and not event.denied and event.exit_code in (0, None)
            if call is not None and succeeded and len(self._calls) < _CALLS_KEPT:
                self._calls.add(call)
        elif isinstance(event, TodoList):
            self.see_todos(event.todos)

    def see_tree(self, digest: str) -> None:
        """Takes in the current tree; "" means unknown."""
        if digest:
            self._has_written = self._has_written or self._tree not in ("", digest)
            self._tree = digest

    def see_todos(self, todos: Iterable[Todo]) -> None:
        """Takes in the agent's current todo list. A todo that was never open does not count as
        closed: a new session that lists what an earlier one did has done nothing yet."""
        for todo in todos:
            name = " ".join(todo.text.split())[:_TODO_CHARS]
            if todo.status != "completed":
                if len(self._open) < _TODOS_KEPT:
                    self._open.add(name)
            elif name in self._open:
                self._closed.add(name)

    def mark(self) -> Mark:
        """The current state of the work."""
        return Mark(
            tree=self._tree,
            has_written=self._has_written,
            closed=frozenset(self._closed),
            failing=frozenset(self.tests.failing),
            passed=frozenset(self.tests.passed),
            calls=len(self._calls),
        )


def _runner(command: str) -> tuple[str, tuple[str, ...] | None, bool]:
    """The test runner in a command; the tests or files it is asked for, None if unknown; and
    whether it stops at the first failure."""
    line = next((part for part in command.split("\n") if part.strip()), "")[:2_000]
    for runner in _RUNNERS:
        before, found, rest = line.partition(runner)
        if found and (not before or not (before[-1].isalnum() or before[-1] in "_-.")):
            words = rest.split("|")[0].split(";")[0].split("&&")[0].split()
            halts = any(word.startswith(_HALTS) for word in words)
            if any(word.partition("=")[0] in _FILTERS for word in words):
                return runner, None, halts
            asked = [w for w in words if not w.startswith("-") and any(c in w for c in "./:")]
            everything = (".", "./...", "2>&1", "...")
            return runner, tuple(w for w in asked if w not in everything), halts
    return "", None, False


def _covers(asked: tuple[str, ...] | None, test: str) -> bool:
    """Whether a run that was asked for these runs this test."""
    if asked is None:
        return False
    return not asked or any(test.startswith(name.removeprefix("./")) for name in asked)
