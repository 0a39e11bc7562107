"""Which task starts when: pure."""

from typing import Any

from msgspec.structs import replace

from segue.core.queue.schedule import Conditions, Proving, Verdict, plan
from segue.core.queue.types import Caps, Task, TaskState

NOW = 1_794_800_000.0
AGENTS = ("claude",)


def task(number: int, **more: Any) -> Task:
    made = Task(
        id=f"task-{number}", text="Do it", agents=AGENTS, cwd="/p", created_at=NOW, project="/p",
        number=number,
    )  # fmt: skip
    return replace(made, **more)


def running(number: int, account: str = "claude", **more: Any) -> Task:
    more = {"state": TaskState.RUNNING, "agent": account, "account": account, **more}
    return task(number, **more)


def waiting(number: int, **more: Any) -> Task:
    more = {"state": TaskState.WAITING, "agent": "claude", "account": "claude", **more}
    return task(number, **{"run": f"run-{number}", "is_limited": True, **more})


def planned(*tasks: Task, **there: Any) -> list[Verdict]:
    known = {each.id: each for each in tasks}
    told = {"now": NOW, "caps": Caps(jobs=9), "known": known, **there}
    return plan(tasks, Conditions(**told))


def starts(*tasks: Task, **there: Any) -> list[tuple[str, str]]:
    return [(v.task.id, v.agent) for v in planned(*tasks, **there) if v.starts]


def test_the_higher_priority_goes_first_then_the_older_and_what_was_begun_before_all() -> None:
    found = starts(task(1), task(2, priority=5), task(3), waiting(4, priority=-9, is_limited=False))
    assert [name for name, _ in found] == ["task-4", "task-2", "task-1", "task-3"]


def test_no_more_start_than_there_are_places() -> None:
    found = planned(running(1), task(2), task(3), caps=Caps(jobs=2))
    assert [v.starts for v in found] == [True, False]
    assert found[1].why == "waiting for a free slot"


def test_a_task_whose_process_is_lost_starts_again_and_takes_no_place() -> None:
    found = starts(running(1), task(2), caps=Caps(jobs=1), lost=frozenset({"task-1"}))
    assert found == [("task-1", "claude")]


def test_projects_and_accounts_have_caps_and_others_continue() -> None:
    caps = Caps(jobs=9, max_per_project=1)
    assert starts(running(1), task(2), task(3, project="/q"), caps=caps) == [("task-3", "claude")]
    caps = Caps(jobs=9, max_per_account=1)
    both = task(2, agents=("claude", "codex"))
    assert starts(running(1), both, task(3), caps=caps) == [("task-2", "codex")]


def test_a_limited_account_is_not_tried_before_its_reset_and_another_agent_takes_the_task() -> None:
    limited = {"claude": NOW + 60}
    found = planned(task(1), task(2, agents=("claude", "codex")), limited=limited)
    assert (found[0].starts, found[0].why, found[0].until) == (
        False,
        "claude is limited",
        NOW + 60,
    )
    assert (found[1].agent, found[1].account) == ("codex", "codex")
    assert starts(task(1), limited={"claude": NOW}) == [("task-1", "claude")]


def test_agents_of_one_account_share_its_limit() -> None:
    accounts = {"claude": "me", "opencode": "me", "codex": "other"}
    found = starts(
        task(1, agents=("claude", "opencode", "codex")),
        account_of=lambda task, agent: accounts[agent],
        limited={"me": NOW + 5},
    )
    assert found == [("task-1", "codex")]


def test_after_a_limit_one_goes_first_and_the_others_once_it_was_answered() -> None:
    tasks = (waiting(1), waiting(2), waiting(3))
    first = planned(*tasks)
    assert [v.starts for v in first] == [True, False, False]
    assert first[1].why == "claude was limited: one task goes first"
    begun = (running(1), *tasks[1:])
    assert starts(*begun, unreplied=frozenset({"task-1"})) == []
    assert starts(*begun) == [("task-2", "claude")]


def test_after_a_limit_that_no_task_met_one_goes_first_too() -> None:
    proving = {"claude": Proving(NOW - 10)}
    found = planned(task(1), task(2), proving=proving)
    assert [v.starts for v in found] == [True, False]
    assert found[1].why == "claude was limited: one task goes first"
    begun = running(1, tried_at=NOW - 5)
    assert starts(begun, task(2), proving=proving) == []  # whatever its run's last leg did
    assert starts(begun, task(2)) == [("task-2", "claude")]  # it was answered
    at_work = running(1, tried_at=NOW - 20)  # since before the reset: it finds out nothing
    assert starts(at_work, task(2), proving=proving) == [("task-2", "claude")]


def test_a_task_waits_for_a_session_that_goes_first_and_not_for_itself() -> None:
    proving = {"claude": Proving(NOW - 10, "run-other")}
    assert starts(task(1), task(2, agents=("codex",)), proving=proving) == [("task-2", "codex")]
    own = {"claude": Proving(NOW - 10, "run-1")}
    assert starts(waiting(1, run="run-1"), proving=own) == [("task-1", "claude")]


def test_a_run_that_was_begun_stays_with_its_agent() -> None:
    begun = waiting(1, agents=("claude", "codex"))
    assert starts(begun, limited={"claude": NOW + 60}) == []


def test_a_task_waits_for_what_it_comes_after_and_says_so_if_that_failed() -> None:
    before = task(1, state=TaskState.DONE)
    assert starts(before, task(2, after=("task-1",))) == [("task-2", "claude")]
    (_, waits) = planned(task(1), task(2, after=("task-1",)))
    assert (waits.why, waits.is_blocked) == ("waits for task-1", False)
    (blocked,) = planned(task(1, state=TaskState.FAILED), task(2, after=("task-1",)))
    assert blocked.is_blocked
    assert "which failed: segue queue retry task-1" in blocked.why
    (gone,) = planned(task(2, after=("task-9",)), known={})
    assert gone.is_blocked


def test_one_task_at_a_time_in_a_folder_also_while_its_run_waits() -> None:
    here = {"here": True}
    assert starts(task(1, **here), task(2, **here)) == [("task-1", "claude")]
    halfway = waiting(1, here=True, not_before=NOW + 60)
    found = planned(halfway, task(2, **here))
    assert [v.starts for v in found] == [False, False]
    assert found[1].why == "task-1 is working in its folder"


def test_nothing_starts_before_its_time() -> None:
    (found,) = planned(task(1, not_before=NOW + 9, why="the repository is not reachable"))
    assert (found.starts, found.until) == (False, NOW + 9)
    assert found.why == "the repository is not reachable"


def test_tasks_of_other_machines_take_no_place_of_this_one() -> None:
    there = frozenset({"task-1", "task-2"})
    tasks = (running(1), running(2), task(3), task(4))
    assert starts(*tasks, caps=Caps(jobs=1), elsewhere=there) == [("task-3", "claude")]
    assert starts(*tasks, caps=Caps(jobs=1)) == []


def test_a_task_waits_for_a_machine_with_its_labels_and_one_of_its_agents() -> None:
    (found,) = planned(task(1, labels=("linux", "gpu")), labels=frozenset({"linux"}))
    assert (found.starts, found.why) == (False, "needs a machine with the label gpu")
    both = frozenset({"linux", "gpu"})
    assert starts(task(1, labels=("linux", "gpu")), labels=both) == [("task-1", "claude")]
    (found,) = planned(task(1), agents=frozenset({"codex"}))
    assert (found.starts, found.why) == (False, "claude is not installed here")
    two = task(1, agents=("claude", "codex"))
    assert starts(two, agents=frozenset({"codex"})) == [("task-1", "codex")]
