"""A run that no process drives: when the daemon may continue it."""

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace
from support.runs.stepping import AT, Led, led

from segue.core.policy import Policy
from segue.core.resumes.takeups import OLD_S, SETTLE_S, AbandonedRun, decide
from segue.core.runs.types import CancelAsked, HungUp, InterruptRequested, Run, Wait
from segue.core.stops.reasons import StopReason

AUTO = Policy(auto_resume=True)
NOW = AT + 1_000


def verdict(run: Run, policy: Policy = AUTO, **more: Any) -> str:
    known = {"last_at": AT, "gone_since": NOW - 60, **more}
    found = decide(
        AbandonedRun(run=run, **known),
        policy,
        now=NOW,
        local=lambda at: datetime.fromtimestamp(at, UTC),
        draw=0.5,
    )
    return type(found).__name__


def interrupted() -> Run:
    run = led()
    run.tell(HungUp())
    run.ends(StopReason.CRASH)
    assert run.run.interrupted
    return run.run


@pytest.mark.parametrize("run", [led().run, interrupted()])
def test_what_nobody_ended_is_taken_up(run: Run) -> None:
    assert verdict(run) == "TakeUp"
    assert verdict(run, Policy()) == "Leave"
    assert verdict(run, gone_since=NOW - SETTLE_S / 2) == "WaitForReset"
    assert verdict(run, is_elsewhere=True) == "Leave"
    assert verdict(run, has_folder=False) == "Leave"
    assert verdict(run, paused=True) == "WaitForReset"
    assert verdict(replace(run, wait=None), last_at=NOW - OLD_S - 1) == "Leave"
    assert verdict(run, user_left_project_at=NOW - 10) == "WaitForReset"
    assert verdict(run, last_takeup_at=NOW - 1) == "WaitForReset"
    hour = datetime.fromtimestamp(NOW, UTC).hour
    assert (
        verdict(run, replace(AUTO, quiet_hours=f"{hour:02}:00-{hour + 1:02}:00")) == "WaitForReset"
    )


def test_what_the_user_ended_never_is() -> None:
    for fact in (InterruptRequested(), CancelAsked()):
        run: Led = led()
        run.tell(fact)
        assert verdict(run.run) == "Leave", "its end was begun"
        run.tell(HungUp())
        assert verdict(run.run) == "Leave"
        run.ends(StopReason.COMPLETED)
        assert verdict(run.run) == "Leave"
    assert verdict(led().run, cancel_asked=True) == "Leave"


def test_tries_are_few_and_further_and_further_apart() -> None:
    run, apart = led().run, []
    for tries in range(1, AUTO.max_resumes):
        assert verdict(run, tries=tries, tried_at=NOW) == "WaitForReset"
        apart.append(
            next(s for s in range(1_000) if verdict(run, tries=tries, tried_at=NOW - s) == "TakeUp")
        )
    assert apart == sorted(apart)
    assert apart[0] < apart[-1]
    assert verdict(run, tries=AUTO.max_resumes, tried_at=AT) == "AskUser"


def test_a_run_that_waits_for_a_limit_is_not_old_before_that_is_over() -> None:
    wait = Wait(until=NOW + 5, since=NOW - OLD_S, why=StopReason.RATE_LIMIT)
    run = replace(led().run, wait=wait)
    assert verdict(run, last_at=NOW - OLD_S - 1) == "TakeUp"
