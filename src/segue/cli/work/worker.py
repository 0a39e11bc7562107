"""`segue worker`: works through the queue."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from segue import fleet
from segue.cli.support.numbers import Whole
from segue.cli.support.run.lookup import opened
from segue.cli.support.tasks import opened_queue
from segue.core.queue.types import Caps, TaskState
from segue.errors import InputError, StateError
from segue.queue.limits import AccountLimits
from segue.queue.worker import ANYTHING, Here, QueueState, Worker
from segue.runs.store.port import LeaseLost
from segue.system import clock
from segue.system.config import settings as layered
from segue.views import printing
from segue.views.run.block import counted

if TYPE_CHECKING:
    from segue.fleet.machines import Pulse

_LOOK_S = 0.5
FLEET_LOOK_S = 1.0  # how often a worker of a fleet asks whether anything changed
_BUSY_S, _IDLE_S = 1.0, 10.0
_AGAIN_S = 2.0  # before an unreachable database is tried again
_FAILED, _NEEDS_YOU = 1, 3


@click.command()
@click.option(
    "--jobs",
    type=Whole(1),
    metavar="N",
    help="How many tasks run at once on this machine.",
)
@click.option("--until-empty", is_flag=True, help="Return once nothing is left to do.")
@click.option("--task", "task_id", hidden=True)
@click.option("--epoch", type=int, hidden=True)
def command(jobs: int | None, until_empty: bool, task_id: str | None, epoch: int | None) -> None:
    """Work through the queue, as limits, priorities and caps allow.

    Each task has its own process, which continues if the worker ends. Ctrl+C ends only the worker;
    segue queue cancel TASK ends a task. Several workers may run at once: --jobs counts all tasks on
    this machine, whoever started them. A task whose account is limited waits without a process
    while others continue.

    With --until-empty: exit code 0 if all tasks are done, 1 if any failed, 3 if one needs you.
    """
    if task_id is not None:
        sys.exit(_carry(task_id, epoch or 0))
    queued = layered.load("/", os.environ).queue
    caps = Caps(
        jobs=jobs or queued.jobs,
        max_per_project=queued.max_per_project,
        max_per_account=queued.max_per_account,
    )
    left = threading.Event()

    def leave(number: int, frame: FrameType | None) -> None:
        left.set()

    before = {n: signal.signal(n, leave) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        sys.exit(_work(caps, until_empty, left))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _work(caps: Caps, until_empty: bool, left: threading.Event) -> int:
    if not fleet.url():
        return _work_off(caps, until_empty, left, None, ANYTHING)
    from segue.fleet.machines import Beating

    pulse, offer = fleet.pulse(), fleet.offer(caps.jobs, os.environ)
    pulse.offer = offer
    here = Here(labels=frozenset(offer.labels), agents=frozenset(offer.agents))
    with Beating(pulse):
        return _work_off(caps, until_empty, left, pulse, here)


def _work_off(
    caps: Caps, until_empty: bool, left: threading.Event, pulse: "Pulse | None", here: Here
) -> int:
    reported, pace = "", Pace(time.monotonic)
    ended: dict[str, TaskState] = {}
    outlook: QueueState | None = None
    while outlook is None or not left.is_set():
        try:
            with opened_queue() as queue, opened(queue) as store:
                known = fleet.open_accounts(queue)
                worker = Worker(
                    queue,
                    store,
                    AccountLimits(os.environ, known),
                    caps,
                    env=os.environ,
                    say=printing.say,
                    here=here,
                )
                worker.ended = ended
                outlook = QueueState()
                while not left.is_set():
                    if pulse is not None and (pulse.fault or pulse.is_late):
                        if pulse.fault and pulse.fault != reported:
                            reported = pulse.fault
                            printing.complain(reported)
                        left.wait(_LOOK_S)
                        continue
                    reported = ""
                    if pulse is not None and not pace.is_due(queue.version()):
                        left.wait(FLEET_LOOK_S)
                        continue
                    outlook = worker.look(clock.now(), whole=pulse is None or until_empty)
                    if until_empty and outlook.is_empty:
                        return _over(outlook, set(ended.values()))
                    left.wait(_LOOK_S)
        except (StateError, InputError) as fault:
            if pulse is None or outlook is None:
                raise
            if str(fault) != reported:  # the tasks' processes handle this on their own
                reported = str(fault)
                printing.complain(f"{fault}; retrying")
            left.wait(_AGAIN_S)
    if outlook.running:
        running = counted(len(outlook.running), "task")
        printing.complain(f"the worker ends; {running} keep running; to see them: segue queue")
    return 0


class Pace:
    """Decides when a worker of a fleet looks at the queue: soon after a change, but at most once in
    `_BUSY_S`, and every `_IDLE_S` without one."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._version, self._at = -1, float("-inf")

    def is_due(self, version: int) -> bool:
        """Whether to look at the queue now; if so, that counts as a look. `version`: the
        queue's."""
        since_s = self._clock() - self._at
        if since_s < (_BUSY_S if version != self._version else _IDLE_S):
            return False
        self._version, self._at = version, self._clock()
        return True


def _over(outlook: QueueState, states: set[TaskState]) -> int:
    printing.say("nothing left to do" if not outlook.verdicts else "nothing left that can start")
    for verdict in outlook.verdicts:
        printing.complain(f"{verdict.task.id} {verdict.why}")
    if states & {TaskState.FAILED, TaskState.CANCELLED} or outlook.verdicts:
        return _FAILED
    return _NEEDS_YOU if TaskState.NEEDS_YOU in states else 0


def _carry(task_id: str, epoch: int) -> int:
    """Carries out one task: what a worker starts in a separate process. Returns the exit code."""
    if fleet.url():
        from segue.fleet.carrying import carry

        try:
            ended = carry(task_id, epoch, fleet.pulse(), env=os.environ, say=_line)
        except LeaseLost as fault:
            _line(fault)
            return 0
        _line(f"{task_id} is {ended.state.value} {ended.why}".rstrip())
        return 0
    from segue.queue.carrier import Carrier, take

    with opened_queue() as queue, opened() as store:
        try:
            lease, task = take(queue, task_id, epoch, clock.now())
        except LeaseLost:
            return 0  # another worker has started it in another process
        _line(f"{task_id}: running in process {os.getpid()}")
        ended = Carrier(queue, store, lease, task, env=os.environ, say=_line).carry()
        _line(f"{task_id} is {ended.state.value} {ended.why}".rstrip())
    return 0


def _line(verdict: Any) -> None:
    from segue.core.runs.outcomes import when

    printing.say(f"{when(clock.now())} {verdict}")
