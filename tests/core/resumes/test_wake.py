"""A session that stopped, seen from outside: when it is resumed, where, and when it is not."""

from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.watch.resuming import AUTO, DAY, HOUR, NOON, R, ended, stopped, utc, verdict

from segue.core.accounts import Answer
from segue.core.policy import Policy
from segue.core.resumes.decisions import (
    FOLLOW_S,
    NOT_RESUMING,
    AskUser,
    Leave,
    Relay,
    Resume,
    ResumeHistory,
    StandBy,
    StoppedSession,
    Verdict,
    WaitForReset,
    decide,
    held_by_account,
    merge_reset,
    unattended,
)
from segue.core.resumes.quiet_hours import is_quiet, parse
from segue.core.sessions.remarks import LimitSeen
from segue.core.stops.types import EndedBy, Reset, Stop


def why(found: Verdict) -> str:
    return found.why


# What is left alone


@pytest.mark.parametrize(
    "fields",
    [
        {"ended_by": "user"}, {"by_hook": "prompt_input_exit"}, {"by_hook": "logout"},
        {"by_hook": "clear"}, {"by_hook": "resume"},
    ],
)  # fmt: skip
@pytest.mark.parametrize("reason", [R.RATE_LIMIT, R.CRASH, R.CONTEXT_EXHAUSTED, R.USER_EXIT])
def test_what_the_user_ended_is_left_alone_whatever_else_it_ended_of(
    fields: dict[str, Any], reason: R
) -> None:
    assert verdict(ended(reason, **fields)) == Leave("Session ended by user, not auto-resuming")


def test_a_users_exit_by_the_verdict_alone_is_left_too_and_resumed_if_the_policy_says_so() -> None:
    closed = ended(stopped(R.USER_EXIT))
    assert verdict(closed) == Leave(NOT_RESUMING)
    assert isinstance(verdict(closed, resume_user_exits=True), Resume)
    unsure = ended(stopped(R.USER_EXIT, confidence=0.6))
    assert isinstance(verdict(unsure, resume_user_exits=True), AskUser)


def test_the_session_before_a_clear_is_never_resumed() -> None:
    assert verdict(ended(by_hook="clear"), resume_user_exits=True) == Leave(NOT_RESUMING)


def test_a_runs_session_is_left_to_the_run() -> None:
    assert "run" in why(verdict(ended(in_run=True)))
    assert isinstance(verdict(ended(in_run=True)), Leave)


def test_nothing_is_resumed_unless_it_is_switched_on() -> None:
    assert Policy().auto_resume is False
    found = decide(ended(), ResumeHistory(), Policy(), now=NOON + 2 * HOUR, local=utc, draw=0.5)
    assert found == Leave("auto_resume is off for this project")


@pytest.mark.parametrize(
    "reason", [R.COMPLETED, R.BILLING, R.AUTH, R.MAX_BUDGET, R.MAX_TURNS, R.REFUSAL, R.ERROR]
)
def test_reasons_that_are_the_users_to_mend_are_left_with_what_to_do(reason: R) -> None:
    found = verdict(ended(stopped(reason, remediation="Do this.")))
    assert found == Leave(f"{reason.description}: Do this.")


def test_a_question_is_the_users_to_answer() -> None:
    assert isinstance(verdict(ended(stopped(R.NEEDS_USER))), AskUser)


def test_no_reason_no_resume() -> None:
    assert isinstance(verdict(ended(stop=None)), Leave)
    assert isinstance(verdict(ended(stopped(R.UNKNOWN))), Leave)


def test_what_is_not_sure_is_asked() -> None:
    assert verdict(ended(stopped(confidence=0.7))) == AskUser(
        "rate limited, but only 70% sure of it"
    )


def test_a_crash_of_an_agent_that_waited_for_the_user_cut_nothing_off() -> None:
    assert isinstance(verdict(ended(stopped(R.CRASH), mid_turn=False)), Leave)
    assert isinstance(verdict(ended(stopped(R.CRASH))), Resume)


def test_a_session_that_another_process_has_open_gets_no_twin() -> None:
    assert verdict(ended(is_open=True)) == Leave("another process has it open")


# When


def test_a_known_reset_is_waited_for_with_a_little_more_so_that_not_all_wake_together() -> None:
    early, late = (verdict(ended(), now=NOON + 60, draw=draw) for draw in (0.0, 1.0))
    assert isinstance(early, WaitForReset)
    assert isinstance(late, WaitForReset)
    assert (early.until, late.until) == (NOON + HOUR + 5, NOON + HOUR + 60)
    assert isinstance(verdict(ended(), now=late.until, draw=1.0), Resume)


def test_an_unknown_reset_is_waited_for_longer_each_time() -> None:
    ending = ended(stopped())
    waits = [verdict(ending, ResumeHistory(resumes=n), now=NOON, draw=0.5) for n in range(4)]
    assert [w.until - NOON for w in waits if isinstance(w, WaitForReset)] == [30, 60, 120, 240]


def test_a_crash_is_resumed_at_once_and_then_after_longer_and_longer() -> None:
    ending = ended(stopped(R.CRASH))
    assert isinstance(verdict(ending, now=NOON), Resume)
    again = ResumeHistory(resumes=2, last_resume_at=NOON - 30)
    found = verdict(ending, again, now=NOON)
    assert isinstance(found, WaitForReset)
    assert found.until == NOON + 60


def test_the_agents_own_way_to_continue_goes_first() -> None:
    ending = ended(state="at_prompt", native_continues_at=NOON + HOUR)
    for now in (NOON, NOON + HOUR, NOON + HOUR + 119):
        found = verdict(ending, now=now)
        assert isinstance(found, StandBy), now
        assert found.until == NOON + HOUR + 120
    taken_over = verdict(ending, now=NOON + HOUR + 120)
    assert isinstance(taken_over, Resume)
    assert (taken_over.place, taken_over.prompt) == ("pane", "continue")


def test_an_agent_that_is_gone_does_not_continue_by_itself() -> None:
    ending = ended(native_continues_at=NOON + HOUR)
    assert isinstance(verdict(ending, now=NOON + HOUR + 61), Resume)


def test_after_the_users_exit_the_project_is_left_alone_for_a_while() -> None:
    now = NOON + 2 * HOUR
    history = ResumeHistory(user_left_project_at=now - 100)
    assert verdict(ended(), history, now=now) == WaitForReset(
        now + 500, "you have just ended a session in this project (user_exit_grace_s)"
    )
    assert isinstance(verdict(ended(), history, now=now + 500), Resume)
    assert isinstance(verdict(ended(), history, now=now, user_exit_grace_s=0), Resume)


def test_quiet_hours_are_waited_for() -> None:
    found = verdict(ended(), quiet_hours="13:30-15:00")
    assert found == WaitForReset(NOON + 3 * HOUR, "quiet hours")
    assert isinstance(verdict(ended(), now=NOON + 3 * HOUR, quiet_hours="13:30-15:00"), Resume)


def test_paused_is_asked_again_later() -> None:
    found = verdict(ended(), ResumeHistory(paused=True))
    assert isinstance(found, WaitForReset)
    assert found.why == "paused"


def test_a_weekly_reset_needs_the_users_yes() -> None:
    weekly = ended(stopped(retry_at=NOON + 4 * DAY), limit_scope="seven_day")
    for now in (NOON, NOON + 5 * DAY):
        assert isinstance(verdict(weekly, now=now), AskUser)
    said = ResumeHistory(yes_until=NOON + 6 * DAY)
    found = verdict(weekly, said, now=NOON)
    assert isinstance(found, WaitForReset)
    assert found.until > NOON + 4 * DAY
    assert isinstance(verdict(weekly, said, now=NOON + 5 * DAY), Resume)
    assert isinstance(verdict(weekly, now=NOON + 5 * DAY, weekly_needs_yes=False), Resume)


def test_a_limit_of_days_is_a_weekly_one_whatever_it_is_called() -> None:
    assert isinstance(verdict(ended(stopped(retry_at=NOON + 2 * DAY))), AskUser)


def test_no_more_of_a_new_window_is_used_unattended_than_the_user_wants() -> None:
    used = {"five_hour": LimitSeen(used_percent=50.0, resets_at=NOON + 6 * HOUR)}
    found = verdict(ended(limits=used), max_unattended=0.5)
    assert found == AskUser(
        "50% of five_hour is used; unattended, the limit is 50% (max_unattended)"
    )
    assert isinstance(verdict(ended(limits=used), max_unattended=0.6), Resume)
    assert isinstance(verdict(ended(limits=used)), Resume)
    said = ResumeHistory(yes_until=NOON + DAY)
    assert isinstance(verdict(ended(limits=used), said, max_unattended=0.5), Resume)


def test_the_window_before_the_reset_does_not_count_against_the_new_one() -> None:
    old = {"five_hour": LimitSeen(used_percent=100.0, resets_at=NOON + HOUR, rejected=True)}
    rules = Policy(max_unattended=0.5)
    assert unattended(old, ResumeHistory(), rules, now=NOON + 2 * HOUR) == ""
    assert unattended(old, ResumeHistory(), rules, now=NOON) != ""
    assert isinstance(verdict(ended(limits=old), max_unattended=0.5), Resume)


def test_a_session_is_resumed_so_often_and_no_more() -> None:
    assert isinstance(verdict(ended(), ResumeHistory(resumes=4), now=NOON + DAY), Resume)
    found = verdict(ended(), ResumeHistory(resumes=5), now=NOON + DAY)
    assert found == AskUser("resumed 5 times since your last prompt (max_resumes)")


# Many at once


def test_the_first_proves_that_it_works_before_the_others_wake() -> None:
    history = ResumeHistory(waking_now=1)
    assert isinstance(verdict(ended(), history, resumes_at_once=3), WaitForReset)
    proven = ResumeHistory(waking_now=2, proven=True)
    assert isinstance(verdict(ended(), proven, resumes_at_once=3), Resume)
    assert isinstance(
        verdict(ended(), ResumeHistory(waking_now=3, proven=True), resumes_at_once=3), WaitForReset
    )


def test_sessions_wake_one_by_one_and_not_at_the_same_second() -> None:
    now = NOON + 2 * HOUR
    history = ResumeHistory(proven=True, last_wake_at=now - 10)
    one, other = (verdict(ended(), history, now=now, draw=draw) for draw in (0.0, 0.9))
    assert isinstance(one, WaitForReset)
    assert isinstance(other, WaitForReset)
    assert (one.until, other.until) == (now + 20, now + 47)
    assert isinstance(verdict(ended(), history, now=now + 50), Resume)


# Where, and at what price


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({}, "pane"), ({"pane_shell": False}, "window"), ({"has_pane": False}, "window"),
        ({"has_pane": False, "has_tmux": False}, "headless"),
        ({"state": "at_prompt", "pane_shell": False}, "pane"),
    ],
)  # fmt: skip
def test_the_same_pane_else_a_new_window_else_headless(fields: dict[str, Any], place: str) -> None:
    found = verdict(ended(**fields))
    assert isinstance(found, Resume)
    assert found.place == place


def test_the_places_are_the_users_choice() -> None:
    gone = ended(has_pane=False)
    found = verdict(gone, resume_places=("headless", "window"))
    assert isinstance(found, Resume)
    assert found.place == "headless"
    assert isinstance(verdict(gone, resume_places=("pane",)), AskUser)
    assert isinstance(verdict(ended(), resume_places=()), AskUser)


def test_an_agent_that_still_sits_in_a_terminal_gets_no_second_process() -> None:
    assert isinstance(verdict(ended(state="at_prompt", has_pane=False)), AskUser)
    assert isinstance(
        verdict(ended(state="at_prompt"), resume_places=("window", "headless")), AskUser
    )


def test_the_price_of_resuming_is_reported() -> None:
    found = verdict(ended(used_tokens=120_000, usd=1.5), now=NOON + 2 * HOUR)
    assert isinstance(found, Resume)
    assert found.price is not None
    assert (found.price.tokens, found.price.cold) == (120_000, True)
    assert found.why == "rate limited: resuming, 120,000 tokens with a cold cache, about $1.50"
    soon = verdict(ended(stopped(R.CRASH), used_tokens=5), now=NOON + 60)
    assert isinstance(soon, Resume)
    assert soon.price is not None
    assert not soon.price.cold


def test_a_full_window_continues_in_a_new_session_with_a_handoff() -> None:
    for state in ("exited", "at_prompt"):
        found = verdict(ended(stopped(R.CONTEXT_EXHAUSTED), state=state), now=NOON)
        assert isinstance(found, Resume)
        assert (found.prompt, found.price) == ("handoff", None)


# Resets that are seen again


def test_a_reset_moves_to_a_better_source_or_earlier_and_never_on() -> None:
    text, record = Reset(at=100.0), Reset(at=200.0, source="record")
    assert merge_reset(None, text) is text
    assert merge_reset(text, None) is text
    assert merge_reset(text, record) is record
    assert merge_reset(record, text) is record
    assert merge_reset(record, Reset(at=150.0, source="header")).at == 150.0  # type: ignore[union-attr]
    assert merge_reset(record, Reset(at=250.0, source="header")) is record
    assert merge_reset(text, Reset(at=None, after_s=5.0)) is text
    assert merge_reset(text, Reset(at=float("nan"), source="record")) is text


@given(st.lists(st.tuples(st.floats(0, 1e10), st.sampled_from(["header", "record", "text"]))))
def test_whatever_is_seen_again_a_reset_of_the_same_source_never_moves_on(
    seen: list[tuple[float, Any]],
) -> None:
    known: Reset | None = None
    for at, source in seen:
        before, known = known, merge_reset(known, Reset(at=at, source=source))
        assert known is not None
        if before is not None and before.at is not None and known.at is not None:
            same = (before.source == "text") == (known.source == "text")
            assert known.at <= before.at or not same


# Relay

RELAY: dict[str, Any] = {"relay": True, "relay_after_s": 600.0}


def limited(**fields: Any) -> StoppedSession:
    return ended(**({"successors": ("codex", "opencode")} | fields))


def test_a_limit_that_lasts_too_long_is_not_waited_for_if_another_agent_may_continue() -> None:
    found = verdict(limited(), now=NOON, **RELAY)
    assert (type(found), getattr(found, "agent", "")) == (Relay, "codex")
    assert isinstance(verdict(limited(), now=NOON + HOUR - 500, **RELAY), WaitForReset)
    weekly = limited(stop=stopped(retry_at=NOON + 5 * DAY), limit_scope="seven_day")
    assert isinstance(verdict(weekly, now=NOON, **RELAY), Relay)  # which would else be asked about
    quiet = verdict(limited(), now=NOON, quiet_hours="11:00-13:00", **RELAY)
    assert isinstance(quiet, WaitForReset)


def test_an_agent_that_would_continue_by_itself_is_relayed_only_if_that_can_be_taken_back() -> None:
    own: dict[str, Any] = {"state": "at_prompt", "has_pane": True, "can_cancel_native": True}
    given = limited(native_continues_at=NOON + HOUR, **own)
    assert isinstance(verdict(given, now=NOON, **RELAY), Relay)
    assert isinstance(verdict(given, now=NOON + HOUR - 500, **RELAY), StandBy)  # soon enough
    assert isinstance(verdict(given, now=NOON), StandBy)  # without `relay`
    alone = limited(native_continues_at=NOON + HOUR, **own, successors=())
    assert isinstance(verdict(alone, now=NOON, **RELAY), StandBy)


@pytest.mark.parametrize(
    ("fields", "policy"),
    [
        ({}, {"relay": False}),
        ({}, {"relay_on": ("billing",)}),
        ({"successors": ()}, {}),
        ({"has_tmux": False}, {}),
        ({"state": "at_prompt", "has_pane": False}, {}),
        ({"stop": stopped(R.OVERLOADED, retry_at=NOON + HOUR)}, {}),
        ({"state": "at_prompt", "native_continues_at": NOON + HOUR}, {}),
    ],
)
def test_nothing_is_relayed_without_the_users_word_a_limit_a_terminal_and_a_successor(
    fields: dict[str, Any], policy: dict[str, Any]
) -> None:
    given = ended(**({"successors": ("codex",)} | fields))
    assert not isinstance(verdict(given, now=NOON, **(RELAY | policy)), Relay)


def test_an_account_that_is_limited_or_tried_by_another_holds_a_session_back() -> None:
    policy = Policy(reset_jitter_min_s=5, reset_jitter_max_s=15)
    held = held_by_account(Answer(NOON + 60, "five_hour"), policy, now=NOON, draw=0.5)
    assert (held.until, held.why) == (NOON + 70, "five_hour, until it resets")
    follows = Answer(NOON + 300, by="run-1", follows=True)
    held = held_by_account(follows, policy, now=NOON, draw=0.5)
    assert (held.until, held.why) == (
        NOON + FOLLOW_S,
        "its account was limited: run-1 goes first",
    )


# Whatever the rest is

times = st.floats(NOON - 10 * DAY, NOON + 10 * DAY)
maybe = st.none() | times
stops = st.builds(
    Stop,
    reason=st.sampled_from(R), confidence=st.floats(0.5, 1), retry_at=maybe,
    retry_after_s=st.none() | st.floats(0, DAY), ended_by=st.sampled_from(get_args(EndedBy)),
)  # fmt: skip
limits = st.dictionaries(
    st.sampled_from(["five_hour", "seven_day", "seven_day_opus", "overage"]),
    st.builds(
        LimitSeen, used_percent=st.none() | st.floats(0, 120), resets_at=maybe,
        rejected=st.booleans(),
    ),
    max_size=2,
)  # fmt: skip
ENDINGS: dict[str, st.SearchStrategy[Any]] = {
    "stop": st.none() | stops, "at": times, "state": st.sampled_from(["exited", "at_prompt"]),
    "ended_by": st.sampled_from(get_args(EndedBy)), "limits": limits, "native_continues_at": maybe,
    "by_hook": st.sampled_from(["", "prompt_input_exit", "clear", "logout", "resume", "other"]),
    "limit_scope": st.sampled_from(["", "five_hour", "seven_day", "plan"]),
    "used_tokens": st.integers(0, 300_000), "window_tokens": st.integers(0, 300_000),
} | dict.fromkeys(
    (
        "in_run", "is_own", "is_open", "has_file", "went_on", "replied", "mid_turn",
        "is_subagent_only", "has_pane", "pane_shell", "has_tmux",
    ),
    st.booleans(),
)  # fmt: skip
HISTORIES: dict[str, st.SearchStrategy[Any]] = {
    "resumes": st.integers(0, 7), "last_resume_at": maybe, "user_left_project_at": maybe,
    "yes_until": maybe, "paused": st.booleans(), "waking_now": st.integers(0, 3),
    "proven": st.booleans(), "last_wake_at": maybe,
}  # fmt: skip
POLICIES: dict[str, st.SearchStrategy[Any]] = {
    "quiet_hours": st.sampled_from(["23:00-07:00", "12:00-13:00,18:00-20:30", "00:00-24:00"]),
    "max_resumes": st.integers(0, 5), "weekly_needs_yes": st.booleans(),
    "auto_handoff": st.booleans(), "max_unattended": st.none() | st.floats(0, 1),
    "resumes_at_once": st.integers(1, 3), "user_exit_grace_s": st.sampled_from([0.0, 600.0]),
    "resume_user_exits": st.booleans(),
}  # fmt: skip


@st.composite
def spoilt(draw: st.DrawFn, known: dict[str, st.SearchStrategy[Any]]) -> dict[str, Any]:
    """A few of the fields, as anything: with all of them nothing would ever be resumed."""
    names = draw(st.lists(st.sampled_from(sorted(known)), max_size=2, unique=True))
    return {name: draw(known[name]) for name in names}


endings = st.builds(lambda more: ended(**({"reason": stopped(R.CRASH)} | more)), spoilt(ENDINGS))
histories = st.builds(lambda more: ResumeHistory(**more), spoilt(HISTORIES))
policies = st.builds(lambda more: Policy(**(AUTO | more)), spoilt(POLICIES))
any_time = st.just(NOON + 2 * HOUR) | st.floats(NOON, NOON + 20 * DAY)
draws = st.floats(0, 1)


@settings(max_examples=250)
@given(endings, histories, policies, any_time, draws)
def test_whatever_the_rest_is_the_rules_hold(
    ending: StoppedSession, history: ResumeHistory, policy: Policy, now: float, draw: float
) -> None:
    found = decide(ending, history, policy, now=now, local=utc, draw=draw)
    assert found == decide(ending, history, policy, now=now, local=utc, draw=draw)
    assert found.why
    if isinstance(found, WaitForReset | StandBy):
        assert found.until > now
    if not isinstance(found, Resume):
        return
    stop = ending.stop
    assert stop is not None
    by_user = ending.ended_by == "user" or ending.by_hook in ("prompt_input_exit", "logout")
    if not policy.resume_user_exits:
        assert not by_user
        assert stop.reason is not R.USER_EXIT
    assert ending.by_hook not in ("clear", "resume")
    assert not is_quiet(parse(policy.quiet_hours), now, utc)
    assert history.resumes < policy.max_resumes
    assert not any((ending.in_run, ending.is_own, ending.went_on, history.paused))
    assert stop.confidence >= policy.min_confidence
    assert stop.reason.should_auto_resume or stop.reason is R.USER_EXIT
    if ending.state == "at_prompt":
        assert found.place == "pane"
    else:
        assert ending.has_file
        assert not ending.is_open
    if stop.reason is R.RATE_LIMIT and stop.retry_at is not None:
        assert now >= stop.retry_at or stop.retry_at <= ending.at
    left_at = history.user_left_project_at
    assert left_at is None or not left_at <= now < left_at + policy.user_exit_grace_s


@given(endings, histories, policies, any_time, draws)
def test_nothing_is_resumed_where_it_is_switched_off(
    ending: StoppedSession, history: ResumeHistory, policy: Policy, now: float, draw: float
) -> None:
    from msgspec.structs import replace

    off = replace(policy, auto_resume=False)
    found = decide(ending, history, off, now=now, local=utc, draw=draw)
    assert isinstance(found, Leave | AskUser)


@given(endings, draws)
def test_waiting_comes_to_an_end(ending: StoppedSession, draw: float) -> None:
    """Asked again whenever it says, there is an answer after a few times."""
    now, policy = ending.at, Policy(auto_resume=True)
    for _ in range(5):
        found = decide(ending, ResumeHistory(), policy, now=now, local=utc, draw=draw)
        if not isinstance(found, WaitForReset | StandBy):
            return
        now = found.until
    raise AssertionError(found)
