"""What went wrong elsewhere: each of the fifteen known pitfalls, where its rule lives here."""

import json
import tracemalloc
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import fields, replace
from support.watch.resuming import DAY, HOUR, NOON, R, ended, stopped, utc, verdict

from segue import classify
from segue.core.policy import Policy
from segue.core.resumes.decisions import (
    AskUser,
    Leave,
    Resume,
    ResumeHistory,
    StandBy,
    StoppedSession,
    WaitForReset,
    decide,
    merge_reset,
)
from segue.core.sessions.alive import Subject, behind
from segue.core.sessions.reading import Reading, Zone
from segue.core.sessions.remarks import LimitSeen
from segue.core.sessions.types import Hold, Process
from segue.core.sessions.zones import ZoneMemory, observe
from segue.core.stops import resets
from segue.core.stops.types import Reset


def test_pitfall_01_a_banner_that_is_read_again_does_not_move_the_reset_on() -> None:
    """Read every minute for a day, "resets 3pm" is 3pm of the day on which it was first read."""
    known: Reset | None = None
    for minute in range(24 * 60):
        now = NOON + minute * 60
        known = merge_reset(known, resets.parse("limit reached, resets 3pm", now=now, tz=UTC))
    assert known is not None
    assert known.at == NOON + 3 * HOUR
    for hour in range(24):
        seen = resets.parse("limit reached, resets in 2 hours", now=NOON + hour * HOUR, tz=UTC)
        known = merge_reset(known, seen)
    assert known is not None
    assert known.at == NOON + 2 * HOUR
    exact = Reset(at=NOON + 4 * HOUR, source="record")
    assert merge_reset(known, exact) is exact


def test_pitfall_02_a_banner_that_vanished_while_nobody_tried_is_a_missed_resume() -> None:
    """There is no banner in what is decided by: without records of its own going on, it did not."""
    ending = ended(state="at_prompt", native_continues_at=NOON + HOUR)
    assert isinstance(verdict(ending, ResumeHistory(resumes=0), now=NOON + DAY), Resume)
    assert verdict(replace(ending, went_on=True), now=NOON + DAY) == Leave("it continued")


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "Pacific/Auckland", "America/Los_Angeles"])
def test_pitfall_03_an_undated_time_that_has_just_passed_is_past_and_not_tomorrow(
    zone: str,
) -> None:
    place = ZoneInfo(zone)
    seven = datetime(2026, 11, 16, 19, tzinfo=place).timestamp()
    for late_s in (1, 60, 1800, 3599):
        found = resets.parse("You've hit your limit · resets 7pm", now=seven + late_s, tz=place)
        assert found is not None
        assert found.at == seven
    before = resets.parse("resets 7pm", now=seven - 2 * HOUR, tz=place)
    assert before is not None
    assert before.at == seven
    # And once it is past, nothing is waited for but a moment.
    ending = ended(stopped(retry_at=seven), at=seven + 1)
    found_now = verdict(ending, now=seven + 2)
    assert isinstance(found_now, WaitForReset)
    assert found_now.until < seven + 60


def test_pitfall_04_a_banner_that_scrolled_away_is_not_the_user_continuing() -> None:
    """No field tells of a screen; the one that tells of going on is of the session's records."""
    assert not [f.name for f in fields(StoppedSession) if "screen" in f.name or "banner" in f.name]
    assert isinstance(verdict(ended(state="at_prompt")), Resume)


def test_pitfall_05_a_subagents_limit_with_an_idle_main_thread_is_waited_for_and_taken_over() -> (
    None
):
    """The agent's own way to go on is armed by its main thread alone: nobody stands by for it."""
    ending = ended(state="at_prompt", is_subagent_only=True, native_continues_at=NOON + 2 * HOUR)
    before = verdict(ending, now=NOON)
    assert isinstance(before, WaitForReset)
    assert NOON + HOUR < before.until < NOON + HOUR + 61
    after = verdict(ending, now=NOON + HOUR + 61)
    assert isinstance(after, Resume)
    assert (after.place, after.prompt) == ("pane", "continue")


def test_pitfall_05_a_subagents_session_is_nobodys_to_resume() -> None:
    main = Subject(key="m", agent="x", session_id="m", path="/m", last_at=1.0)
    child = Subject(key="c", agent="x", session_id="c", path="/c", last_at=9.0, parent_id="m")
    holds = (Hold(session_id="c", since=9.0), Hold(session_id="m", since=1.0))
    process = Process(agent="x", pid=1, started_at=0.0, holds=holds)
    assert {key: found.pid for key, found in behind([main, child], [process]).items()} == {"m": 1}


def test_pitfall_06_a_week_is_waited_for_to_its_end() -> None:
    weekly = ended(stopped(retry_at=NOON + 7 * DAY), limit_scope="seven_day")
    for days in (0, 1, 3, 6.99):
        found = verdict(weekly, now=NOON + days * DAY, weekly_needs_yes=False)
        assert isinstance(found, WaitForReset), days
        assert NOON + 7 * DAY < found.until <= NOON + 7 * DAY + 60
    assert isinstance(verdict(weekly, now=NOON + 7.01 * DAY, weekly_needs_yes=False), Resume)
    parsed = resets.parse("weekly limit · resets in 6 days 23 hours", now=NOON, tz=UTC)
    assert parsed is not None
    assert parsed.at == NOON + 6 * DAY + 23 * HOUR


def test_pitfall_07_a_second_death_is_seen_after_a_resume_that_took() -> None:
    again = ended(at=NOON + 8 * HOUR, stop=stopped(retry_at=NOON + 9 * HOUR))
    history = ResumeHistory(resumes=1, last_resume_at=NOON + 2 * HOUR, proven=True)
    assert isinstance(verdict(again, history, now=NOON + 8 * HOUR), WaitForReset)
    assert isinstance(verdict(again, history, now=NOON + 10 * HOUR), Resume)


def test_pitfall_07_the_session_in_which_segue_runs_is_not_resumed_by_it() -> None:
    assert verdict(ended(is_own=True)) == Leave("segue itself runs in this session")


def _stream(*records: dict[str, Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


_INIT = {"type": "system", "subtype": "init", "session_id": "s", "model": "claude-sonnet-4-5"}
_DONE = {
    "type": "result", "subtype": "success", "is_error": False, "result": "Done.",
    "session_id": "s", "terminal_reason": "completed",
}  # fmt: skip


def test_pitfall_08_a_warning_about_a_limit_is_not_a_stop() -> None:
    info = {"status": "allowed_warning", "resetsAt": NOON + HOUR, "rateLimitType": "five_hour"}
    event = {"type": "rate_limit_event", "rate_limit_info": info, "session_id": "s"}
    stop = classify(_stream(_INIT, event, _DONE), agent="claude", exit_code=0)
    assert stop.reason is R.COMPLETED
    unfinished = classify(_stream(_INIT, event), agent="claude", exit_code=0)
    assert unfinished.reason is not R.RATE_LIMIT
    # As `core/resumes/decisions` sees it: nothing refuses, so nothing is waited for.
    warned = {"five_hour": LimitSeen(used_percent=95.0, resets_at=NOON + 9 * HOUR)}
    assert isinstance(verdict(ended(limits=warned)), Resume)


def test_pitfall_08_exit_code_124_is_a_timeout_and_not_a_limit() -> None:
    stop = classify("reading docs/limits.md: the 5-hour limit\n", exit_code=124)
    assert stop.reason is R.TIMEOUT


def test_pitfall_08_trigger_words_in_a_tools_output_are_not_a_stop() -> None:
    words = "Error: 429 rate limit exceeded. You've hit your session limit · resets 3:45pm"
    call = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "cat limits.py"}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": words, "is_error": True}
    records = (
        _INIT,
        {"type": "assistant", "message": {"id": "m", "role": "assistant", "content": [call]}},
        {"type": "user", "message": {"role": "user", "content": [result]}},
    )
    assert classify(_stream(*records, _DONE), agent="claude", exit_code=0).reason is R.COMPLETED
    assert classify(_stream(*records), agent="claude", exit_code=1).reason is not R.RATE_LIMIT


def test_pitfall_09_an_agent_that_tries_again_by_itself_is_not_raced() -> None:
    """Whatever else would be done: as long as it says that it goes on, segue stands by."""
    for reason in (R.RATE_LIMIT, R.OVERLOADED):
        ending = ended(stopped(reason), state="at_prompt", native_continues_at=NOON + 600)
        for after_s in (0, 60, 599, 600, 719):
            assert isinstance(verdict(ending, now=NOON + after_s), StandBy)
        assert isinstance(verdict(ending, now=NOON + 720), Resume)


def test_pitfall_10_a_session_without_a_file_is_not_resumed_into_a_crash_loop() -> None:
    gone = ended(stopped(R.CRASH), has_file=False)
    assert isinstance(verdict(gone), Leave)


def test_pitfall_10_a_session_that_does_not_load_is_resumed_once_and_then_asked_about() -> None:
    dead = ended(stopped(R.CRASH), replied=False)
    assert isinstance(verdict(dead), Resume)
    history = ResumeHistory(resumes=1, last_resume_at=NOON - 2)
    for later_s in (0.0, HOUR, DAY):
        assert isinstance(verdict(dead, history, now=NOON + later_s), AskUser)
    limited = ended(replied=False)  # a limit that holds on says nothing of the session
    assert isinstance(verdict(limited, history), Resume)


def test_pitfall_11_an_id_that_is_not_on_disk_is_not_given_to_an_agent() -> None:
    for reason in (R.RATE_LIMIT, R.OVERLOADED, R.CRASH, R.TIMEOUT, R.CONTEXT_EXHAUSTED):
        assert isinstance(verdict(ended(stopped(reason), has_file=False), now=NOON + DAY), Leave)


@pytest.mark.parametrize("reason", [R.AUTH, R.BILLING, R.MAX_BUDGET])
def test_pitfall_12_a_failure_of_the_account_is_never_gone_on_after(reason: R) -> None:
    for now in (NOON, NOON + HOUR, NOON + 30 * DAY):
        for resumes in (0, 3):
            found = verdict(ended(stopped(reason)), ResumeHistory(resumes=resumes), now=now)
            assert isinstance(found, Leave)


def test_pitfall_13_a_reset_that_was_put_off_is_waited_for_again_before_waking() -> None:
    after = NOON + 2 * HOUR
    refusing = LimitSeen(used_percent=100.0, resets_at=NOON + 5 * HOUR, rejected=True)
    found = verdict(ended(limit_scope="five_hour", limits={"five_hour": refusing}), now=after)
    assert isinstance(found, WaitForReset)
    assert NOON + 5 * HOUR < found.until <= NOON + 5 * HOUR + 60
    full = replace(refusing, rejected=False)
    assert isinstance(verdict(ended(limits={"five_hour": full}), now=after), WaitForReset)
    # Another surface has used up the week meanwhile: that is the user's to say.
    week = {"seven_day": replace(refusing, resets_at=NOON + 3 * DAY)}
    assert isinstance(verdict(ended(limits=week), now=after), AskUser)
    # What tells of the time before, or of a model that is not used, holds nothing up.
    old = {"five_hour": replace(refusing, resets_at=NOON + HOUR)}
    assert isinstance(verdict(ended(limits=old), now=after), Resume)
    other = {"seven_day_opus": replace(refusing, resets_at=NOON + 3 * DAY)}
    assert isinstance(verdict(ended(limits=other), now=after), Resume)


def test_pitfall_14_a_day_of_watching_keeps_no_more_than_a_minute_of_it() -> None:
    def watch(memory: ZoneMemory, minutes: int) -> ZoneMemory:
        for minute in range(minutes):
            used = 100_000 + minute % 70_000
            reading = Reading(input_tokens=used)
            zone = Zone.of(reading.fraction, Policy())
            memory, _ = observe(memory, reading, zone, Policy(), project="/p", at=minute * 60.0)
            history = ResumeHistory(resumes=minute % 4, last_resume_at=minute * 60.0)
            decide(ended(), history, Policy(), now=NOON + minute * 60, local=utc, draw=0.5)
        return memory

    memory = watch(ZoneMemory(), 10)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        memory = watch(memory, 1_440)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert memory.zone is not None
    assert after - before < 50_000


def test_pitfall_15_a_full_session_that_a_limit_stopped_is_handed_over_without_its_words() -> None:
    """It cannot compact while it is limited: a new one goes on with what segue knows by itself."""
    full = ended(used_tokens=175_000, window_tokens=200_000)
    found = verdict(full, auto_handoff=True)
    assert isinstance(found, Resume)
    assert found.prompt == "handoff"
    both = ended(stopped(also=(R.CONTEXT_EXHAUSTED,), retry_at=NOON + HOUR))
    handed = verdict(both)
    assert isinstance(handed, Resume)
    assert handed.prompt == "handoff"
    half = verdict(ended(used_tokens=100_000, window_tokens=200_000), auto_handoff=True)
    assert isinstance(half, Resume)
    assert half.prompt == "resume"
    assert isinstance(verdict(full, now=NOON, auto_handoff=True), WaitForReset)
