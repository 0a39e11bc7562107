"""The queue worked through with the commands that users type, by the rehearsal agent."""

import json
from pathlib import Path
from typing import Any

from support.fleet.queue_stress import stress
from support.fleet.queueing import FULL, LIMITED, POLICY, STEPS, queued
from support.running import Staged
from support.runs.relaying import healthy, limited_at, relay_stage
from support.watching import watching


def test_each_task_is_done_in_a_tree_of_its_own_on_its_branch(tmp_path: Path) -> None:
    with queued({"a": STEPS, "b": FULL, "c": LIMITED}, tmp_path) as q:
        a, *_ = q.submit("a", "b", "c")
        ended = q.segue("worker", "--jobs", "3", "--until-empty")
        assert ended.code == 0, ended.stdout + ended.stderr
        q.staged.until(lambda: q.left_running() == [])
        assert q.faults() == []
        shown = q.shown()
        assert shown[a]["branch"] == f"segue/{a}"
        assert shown[a]["work"]["commits"] == 6
        assert shown[a]["merge"] == f"git -C {q.project} merge segue/{a}"


def test_a_worker_killed_again_and_again_loses_repeats_and_leaves_nothing(tmp_path: Path) -> None:
    report = stress(tasks=8, kills=2, jobs=2, seed=7, within=tmp_path)
    assert report.faults == []
    assert report.worker_kills == 2
    assert min(report.handoffs, report.limits, report.agent_kills) >= 1


LONG_LIMIT = LIMITED.replace("resets_in_s = 2", "resets_in_s = 3600")


def test_a_limited_task_waits_without_a_process_others_continue_and_the_daemon_leaves_it_alone(
    tmp_path: Path,
) -> None:
    with queued({"a": LONG_LIMIT, "b": STEPS}, tmp_path) as q:
        (a,) = q.submit("a")
        worker = q.staged.start("worker", "--jobs", "1")
        q.staged.until(lambda: q.tasks()[a].state.value == "waiting")
        q.staged.until(lambda: len(q.left_running()) == 1)
        assert worker.poll() is None
        shown = q.shown()[a]
        assert (shown["why"], shown["waits_until"] is not None) == ("claude: rate limited", True)
        (b,) = q.submit("b")
        assert q.shown()[b]["why"] == "claude is limited"  # one account, one limit
        worker.terminate()
        q.staged.end(worker)
        another = {"CLAUDE_CODE_OAUTH_TOKEN": "another"}  # whose limit is not met
        with watching(q.home, {**q.staged.env, **another}, "--auto") as watch:
            words = ("run", "--agent", q.staged.agent, q.text("b"))
            killed = q.staged.start(*words, cwd=None, **another)
            q.staged.until(lambda: len(q.staged.run_ids()) == 2)
            run_id = q.staged.run_ids()[0]
            q.staged.until(lambda: q.staged.state(run_id) == "working")
            killed.kill()
            watch.until(lambda: q.staged.state(run_id) == "done", "the other run", 90)
            assert [note.data["run"] for note in watch.notes("takeup")] == [run_id]
        assert f"{a} is cancelled" in q.segue("queue", "cancel", a, b).stdout
        assert q.staged.state(q.tasks()[a].run) == "cancelled"
        assert q.left_running() == []


def test_tasks_of_other_accounts_and_agents_continue_while_one_account_is_limited(
    tmp_path: Path,
) -> None:
    with relay_stage(limited_at(3, steps=4), healthy(4), within=tmp_path) as s:
        s.config(policy=POLICY, more="[queue]\npark_s = 0.5\n")
        ids = {}
        for agent in ("claude", "codex", "claude,codex"):
            told = s.segue("submit", "--agent", agent, s.task)
            assert told.code == 0, told.stderr
            ids[agent] = told.stdout.strip()
            if agent == "claude":  # it meets the limit before the others are there
                worker = s.start("worker", "--jobs", "1")
                s.until(lambda: shown(s)[ids["claude"]]["state"] == "waiting")
        s.until(lambda: [t["state"] for t in shown(s).values()].count("done") == 2)
        found = shown(s)
        worker.terminate()
        s.end(worker)
        assert found[ids["codex"]]["agent"] == found[ids["claude,codex"]]["agent"] == "codex"
        limited, free = found[ids["claude"]], found[ids["codex"]]
        assert limited["account"].startswith("claude-")
        assert free["account"].startswith("codex-")
        # What is not the queue's own knows of it, too: one account, one limit.
        assert (
            "claude is limited until "
            in s.segue("run", "--agent", "claude", "x", "--strict").stderr
        )


def test_after_the_reset_one_task_goes_first_and_the_rest_of_its_account_follow_its_reply(
    tmp_path: Path,
) -> None:
    limited = LIMITED.replace("resets_in_s = 2", "resets_in_s = 6")
    with queued({"a": limited, "b": STEPS, "c": STEPS}, tmp_path) as q:
        (a,) = q.submit("a")
        worker = q.staged.start("worker", "--jobs", "3", "--until-empty")
        q.staged.until(lambda: q.tasks()[a].state.value == "waiting")
        with q.staged.store() as store:
            run = store.run(q.tasks()[a].run)
        assert run is not None
        assert run.wait is not None
        reset_at, asked = run.wait.reset_at, len(q.model.asked)
        assert reset_at is not None
        q.submit("b", "c")
        assert q.staged.end(worker).code == 0
        q.staged.until(
            lambda: q.left_running() == []
        )  # what carried the last task is on its way out
        assert q.faults() == []
        after = q.model.asked[asked:]
        assert all(at >= reset_at for _, at, _ in after)
        first = after[0][0]
        others = [at for name, at, _ in after if name != first]
        began = {name: min(at for each, at, _ in after if each == name) for name in "abc"}
        assert len(set(began)) == 3
        # The first request after the reset was answered before another task sent one.
        assert min(others) > after[0][1]
        with q.staged.store() as store:
            replies = {
                q.names[t.id]: next(
                    e.at for e in store.log(t.run) if e.kind == "replied" and e.at >= reset_at
                )
                for t in q.tasks().values()
            }
        assert min(others) >= replies[first]


def shown(s: Staged) -> dict[str, dict[str, Any]]:
    """As `segue queue --json` tells them."""
    ended = s.segue("queue", "--json")
    assert ended.code == 0, ended.stderr
    return {task["task"]: task for task in json.loads(ended.stdout)["tasks"]}
