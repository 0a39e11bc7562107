"""What test_run_stops and other tests share."""

from segue.drill.plays import job
from support.running import Staged

SLOW = "user-interrupt"  # six steps of 0.6 s; the tests press Ctrl+C themselves


def in_step(s: Staged, number: int) -> None:
    s.until(lambda: job.current(s.project) == number)
