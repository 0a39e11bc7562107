"""What test_watch_handoffs and other tests share."""

from segue.drill.plays import job as jobs
from segue.drill.scenarios.types import Job
from support.terminals.tui import Tui
from support.watching import LIMIT_S, done

AT_ONCE = """
[policy]
busy_wait_s = 0
monitor_mark = 0.15
warning_mark = 0.25
critical_mark = 0.35
soft_mark = 0.60
hard_mark = 0.60
"""


def await_job(tui: Tui, job: Job) -> None:
    """Until it is done: each step once, and in order."""
    tui.until(lambda: done(tui, job) == job.steps, LIMIT_S, "the job")
    continuity = jobs.check(tui.project, job, finished=True)
    assert continuity.is_whole, continuity
