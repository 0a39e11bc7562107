"""Many tasks with limits, full windows and crashes, while the worker is killed again and again."""

import random
import time
from dataclasses import dataclass, field
from pathlib import Path

from segue.runs.legs.leg import Leg
from support.fleet.queueing import FULL, LIMITED, STEPS, Queued, queued

KINDS = {"plain": STEPS, "limited": LIMITED, "full": FULL, "crash": STEPS}
_LOOK_S = 0.1
_LATE_S = 3_600.0


@dataclass
class Report:
    """What came of it."""

    tasks: int
    faults: list[str] = field(default_factory=list)
    worker_kills: int = 0
    agent_kills: int = 0
    legs: int = 0
    handoffs: int = 0
    limits: int = 0
    most_at_once: int = 0
    seconds: float = 0.0


def stress(tasks: int, kills: int, jobs: int, seed: int, within: Path) -> Report:
    """Works off so many tasks with so many kill -9 of the worker, at random moments that are spread
    over the whole work; every task of the kind "crash" also loses an agent or its carrier."""
    draw = random.Random(seed)
    names = [f"{kind}-{n}" for n, kind in zip(range(tasks), _forever(KINDS), strict=False)]
    draw.shuffle(names)
    report = Report(tasks)
    with queued({n: KINDS[n.partition("-")[0]] for n in names}, within) as q:
        began = time.monotonic()
        q.submit_many(names)
        _work(q, report, kills, jobs, draw)
        report.seconds = time.monotonic() - began
        report.faults = q.faults()
        with q.staged.store() as store:
            for run in store.runs():
                report.legs += run.leg
                report.handoffs += run.handoffs
                stops = store.stops(run.id)
                report.limits += sum(kept.stop.reason == "rate_limit" for kept in stops)
    if report.most_at_once > jobs:
        report.faults.append(f"{report.most_at_once} tasks ran at once, of {jobs}")
    return report


def _forever(kinds: dict[str, str]) -> "list[str]":
    return list(kinds) * 1_000


def _work(q: Queued, report: Report, kills: int, jobs: int, draw: random.Random) -> None:
    words = ("worker", "--jobs", str(jobs), "--until-empty")
    worker = q.staged.start(*words)
    crashed: set[str] = set()
    next_at = float("inf")
    until = time.monotonic() + _LATE_S
    while time.monotonic() < until:
        tasks = q.tasks()
        running = [task for task in tasks.values() if task.state.value == "running"]
        report.most_at_once = max(report.most_at_once, len(running))
        done = sum(task.state.is_final for task in tasks.values())
        for task in running:
            if task.run and task.id not in crashed and q.names[task.id].startswith("crash"):
                crashed |= {task.id} if _crash(q, task.run, task.id, draw, report) else set()
        due = report.worker_kills < kills and done >= report.worker_kills * len(tasks) / (kills + 1)
        if due and next_at == float("inf"):
            next_at = time.monotonic() + draw.uniform(0, 1.5)
        if time.monotonic() >= next_at:
            next_at = float("inf")
            worker.kill()
            worker.wait()
            report.worker_kills += 1
            worker = q.staged.start(*words)
        if worker.poll() is not None:
            if report.worker_kills >= kills or done == len(tasks):
                return
            worker = q.staged.start(*words)
        time.sleep(_LOOK_S)
    report.faults.append("it did not end")


def _crash(q: Queued, run_id: str, task_id: str, draw: random.Random, report: Report) -> bool:
    """Kills an agent in the middle of its work, or the process that carries its task."""
    import psutil

    leg = Leg(q.staged.leg(run_id))
    status = leg.status()
    if status.state != "running" or draw.random() < 0.6:
        return False
    pid = status.agent_pid
    if draw.random() < 0.4:
        with q.queue() as queue:
            holder = queue.holder(task_id)
        pid = holder.pid if holder is not None else 0
    try:
        process = psutil.Process(pid) if pid else None
        if process is None or process.environ().get("HOME") != q.staged.env["HOME"]:
            return False
        process.kill()
    except psutil.Error:
        return False
    report.agent_kills += 1
    return True
