"""What claude's hooks are answered: valid for each event, once each, and never too much."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.playing import AGENTS_FOLDER, missing
from support.watch.fake_daemon import FakeDaemon, http

from segue.cli.tools import setup
from segue.core.policy import Policy
from segue.core.sessions.reading import Reading, Zone
from segue.drill import casts
from segue.drill.plays import enclosure
from segue.system.files import state
from segue.watch.handoffs.messages import Messages
from segue.watch.server import hooks
from segue.watch.server.hooks import EVENTS, HookMemory, HookReply, HookView, answer

FILE = "/home/dev/project/.segue/handoffs/handoff-20261116T0912-h-1.md"
AUTO = Policy(auto_handoff=True)
BLOCK = Policy(gate="block")
COSTS = (4_000,) * 12

# By claude's documentation: what each event may return.
CONTEXT = {"SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "Notification"}
DECIDING = {"UserPromptSubmit", "PostToolUse", "Stop", "PreCompact"}
SILENT = {"StopFailure", "PreCompact", "SessionEnd"}


@pytest.fixture
def words() -> Messages:
    return Messages({})


def at(percent: float, **more: Any) -> HookView:
    reading = Reading(input_tokens=round(200_000 * percent / 100), window_tokens=200_000)
    return HookView(reading=reading, zone=reading.zone(Policy()), **more)


def event(name: str, **more: Any) -> dict[str, Any]:
    return {"hook_event_name": name, "session_id": "s", "cwd": "/p", **more}


def context(reply: HookReply) -> str:
    body = reply.body or {}
    return str(body.get("hookSpecificOutput", {}).get("additionalContext", ""))


def assert_valid(name: str, body: dict[str, Any] | None) -> None:
    """As claude's validation would have it."""
    if body is None:
        return
    assert name not in SILENT
    assert set(body) <= {"decision", "reason", "hookSpecificOutput"}
    if "decision" in body:
        assert name in DECIDING
        assert body["decision"] == "block"
        assert body["reason"]
    if "hookSpecificOutput" in body:
        inner = body["hookSpecificOutput"]
        assert inner["hookEventName"] == name
        allowed = {"hookEventName", "additionalContext"}
        if name == "PreToolUse":
            allowed |= {"permissionDecision", "permissionDecisionReason"}
        assert set(inner) <= allowed
        assert name in CONTEXT
        assert inner.get("permissionDecision", "deny") == "deny", "nothing is ever allowed by segue"
        assert all(0 < len(value) <= 10_000 for value in inner.values())
    json.dumps(body)


FIELDS = st.none() | st.booleans() | st.text(max_size=20) | st.integers() | st.just({"a": 1})
ODD_EVENTS = st.fixed_dictionaries(
    {"hook_event_name": st.sampled_from(EVENTS) | st.text(max_size=5) | st.none()},
    optional={
        "prompt": FIELDS | st.just("x" * 90_000),
        "source": FIELDS | st.sampled_from(["system", "user", "resume"]),
        "tool_name": FIELDS | st.just("Read"),
        "tool_input": FIELDS | st.just({"file_path": "/big"}),
        "stop_hook_active": FIELDS,
        "background_tasks": FIELDS,
        "error": FIELDS,
        "last_assistant_message": FIELDS,
        "trigger": FIELDS,
        "reason": FIELDS,
        "notification_type": FIELDS,
        "message": FIELDS,
    },
)
VIEWS = st.none() | st.builds(
    at,
    st.floats(0, 150),
    costs=st.just(COSTS) | st.just(()),
    file_bytes=st.none() | st.integers(0, 10**7),
    handoff_file=st.just("") | st.just(FILE),
    is_left_alone=st.booleans(),
)
TOLD = st.builds(HookMemory, st.none() | st.sampled_from(list(Zone)), st.just("") | st.just(FILE))
POLICIES = st.builds(
    Policy, gate=st.sampled_from(["off", "warn", "block"]), auto_handoff=st.booleans()
)


@given(ODD_EVENTS, VIEWS, POLICIES, TOLD)
def test_every_reply_is_valid_for_its_event(
    given_event: dict[str, Any], view: HookView | None, policy: Policy, told: HookMemory
) -> None:
    reply = answer(given_event, view, policy, WORDS, told)
    name = given_event["hook_event_name"]
    assert reply.exit_code == 0
    assert_valid(name, reply.body)
    if policy.gate != "block" and name != "Stop":
        assert "block" not in json.dumps(reply.body or {}).split('"')
        assert "permissionDecision" not in (reply.body or {}).get("hookSpecificOutput", {})
    if not policy.auto_handoff and name == "Stop":
        assert reply.body is None
    if view is None or view.is_left_alone:
        assert (reply.body, reply.memory) == (None, told)


WORDS = Messages({})


def test_every_event_that_is_asked_for_is_one_of_claudes() -> None:
    assert set(EVENTS) <= CONTEXT | DECIDING | SILENT


@pytest.mark.parametrize("name", ["UserPromptSubmit", "PostToolUse", "SessionStart"])
def test_a_zone_is_reported_once_when_it_is_entered(name: str, words: Messages) -> None:
    first = answer(event(name), at(52), Policy(gate="off"), words)
    assert "52%" in context(first)
    assert "104,000 of the window's 200,000 tokens" in context(first)
    assert first.memory == HookMemory(Zone.WARNING)
    assert hooks.ToldZone(Zone.WARNING) in first.facts
    again = answer(event(name), at(54), Policy(gate="off"), words, first.memory)
    assert (again.body, again.memory) == (None, first.memory)
    higher = answer(event(name), at(71), Policy(gate="off"), words, again.memory)
    assert context(higher).startswith("High context at 71% - create handoff after current work.")


def test_a_zone_that_was_left_is_not_told_and_is_reported_again_when_entered_again(
    words: Messages,
) -> None:
    told = HookMemory(Zone.CRITICAL)
    down = answer(event("PostToolUse"), at(10), Policy(), words, told)
    assert (down.body, down.memory) == (None, HookMemory(Zone.NORMAL))
    up = answer(event("PostToolUse"), at(72), Policy(), words, down.memory)
    assert "72%" in context(up)


def test_what_is_told_about_a_zone_is_a_statement(words: Messages) -> None:
    for zone, percent in ((Zone.MONITOR, 31), (Zone.WARNING, 51)):
        reading = at(percent).reading
        assert reading is not None
        said = hooks.said_of(zone, reading, Policy(), words)
        assert said.startswith(f"Context at {percent}%: ")
        assert not {"must", "please", "do not", "create"} & set(said.lower().split())


def test_a_prompt_that_is_too_large_is_warned_about_and_refused_only_by_opt_in(
    words: Messages,
) -> None:
    prompt = event("UserPromptSubmit", prompt="x" * 8_000)
    told = HookMemory(Zone.WARNING)
    warned = answer(prompt, at(52, costs=COSTS), Policy(), words, told)
    assert context(warned).startswith("Context at 52%, complete large tasks after handoff.")
    assert "6,000 tokens" in context(warned)
    refused = answer(prompt, at(52, costs=COSTS), BLOCK, words, told)
    assert refused.body is not None
    assert refused.body["decision"] == "block"
    assert refused.facts[-1] == hooks.Gated("block", 6_000, 4_999)
    assert answer(prompt, at(52, costs=COSTS), Policy(gate="off"), words, told).body is None
    assert answer(prompt, at(20, costs=COSTS), BLOCK, words, told).body is None


@pytest.mark.parametrize(
    "more",
    [
        {"prompt": "/compact" + "x" * 9_000},
        {"prompt": "x" * 40_000, "source": "system"},
        {"prompt": f"Create handoff document now … {FILE}" + "x" * 40_000},
    ],
)
def test_commands_the_agents_own_words_and_segues_are_never_refused(
    more: dict[str, Any], words: Messages
) -> None:
    view = at(86, costs=COSTS, handoff_file=FILE)
    reply = answer(event("UserPromptSubmit", **more), view, BLOCK, words, HookMemory(Zone.HANDOFF))
    assert reply.body is None


def test_a_large_file_is_not_read_by_opt_in_and_the_handoff_always_is(words: Messages) -> None:
    read = event("PreToolUse", tool_name="Read", tool_input={"file_path": "/big.log"})
    assert hooks.file_named(read) == "/big.log"
    reply = answer(read, at(72, file_bytes=400_000), BLOCK, words, HookMemory(Zone.CRITICAL))
    assert reply.body is not None
    inner = reply.body["hookSpecificOutput"]
    assert inner["permissionDecision"] == "deny"
    assert "Context at 72%" in inner["permissionDecisionReason"]
    warned = answer(read, at(72, file_bytes=400_000), Policy(), words, HookMemory(Zone.CRITICAL))
    assert "Context at 72%" in context(warned)
    small = answer(read, at(72, file_bytes=400), BLOCK, words, HookMemory(Zone.CRITICAL))
    assert small.body is None
    own = event("PreToolUse", tool_name="Read", tool_input={"file_path": FILE})
    view = at(86, file_bytes=400_000, handoff_file=FILE)
    assert answer(own, view, BLOCK, words, HookMemory(Zone.HANDOFF)).body is None


@pytest.mark.parametrize(
    ("tool", "given_input", "named"),
    [
        ("Read", {"file_path": "/a", "limit": 20}, ""),
        ("Bash", {"file_path": "/a"}, ""),
        ("Read", "odd", ""),
        ("NotebookRead", {"notebook_path": "/n"}, "/n"),
    ],
)
def test_only_what_is_taken_in_whole_is_measured(tool: str, given_input: Any, named: str) -> None:
    assert hooks.file_named(event("PreToolUse", tool_name=tool, tool_input=given_input)) == named


def test_the_handoff_is_asked_for_once_by_the_first_hook_that_can(words: Messages) -> None:
    view = at(86, handoff_file=FILE)
    asked = answer(event("PostToolUse", tool_name="Bash"), view, AUTO, words)
    assert "Create handoff document now - context at 86%" in context(asked)
    assert FILE in context(asked)
    assert hooks.HandoffAsked(FILE) in asked.facts
    assert asked.memory == HookMemory(Zone.HANDOFF, FILE)
    for name in ("PostToolUse", "Stop"):
        assert answer(event(name), view, AUTO, words, asked.memory).body is None


def test_at_the_end_of_a_turn_nothing_is_asked_for(words: Messages) -> None:
    view = at(86, handoff_file=FILE)
    for is_active in (True, False):
        reply = answer(event("Stop", stop_hook_active=is_active), view, AUTO, words)
        assert (reply.body, reply.memory) == (None, HookMemory())


def test_without_the_users_wish_no_handoff_is_asked_for(words: Messages) -> None:
    view = at(86, handoff_file=FILE)
    assert answer(event("Stop"), view, Policy(), words).body is None
    assert FILE not in context(answer(event("PostToolUse"), view, Policy(), words))


def test_a_sub_agent_hears_nothing_and_tells_nothing(words: Messages) -> None:
    view = at(86, handoff_file=FILE)
    for name in EVENTS:
        reply = answer(event(name, agent_id="a1"), view, AUTO, words)
        assert (reply.body, reply.facts, reply.memory) == (None, (), HookMemory())


@pytest.mark.parametrize(
    ("given_event", "fact"),
    [
        (event("SessionStart", source="clear"), hooks.SessionStarted("clear")),
        (event("UserPromptSubmit", prompt="hi"), hooks.Prompted("hi", False)),
        (event("UserPromptSubmit", prompt="hi", source="system"), hooks.Prompted("hi", True)),
        (event("Stop", background_tasks=[{"id": 1}]), hooks.TurnOver()),
        (
            event("StopFailure", error="rate_limit", last_assistant_message="You've hit"),
            hooks.TurnFailed("rate_limit", "You've hit"),
        ),
        (event("PreCompact", trigger="auto"), hooks.Compacting()),
        (event("SessionEnd", reason="prompt_input_exit"), hooks.SessionEnded("prompt_input_exit")),
        (
            event("Notification", notification_type="permission_prompt", message="m"),
            hooks.NeedsUser("permission_prompt", "m"),
        ),
    ],
)
def test_what_an_event_tells_is_a_fact_also_of_a_session_that_is_left_alone(
    given_event: dict[str, Any], fact: hooks.Fact, words: Messages
) -> None:
    for view in (None, HookView(), at(20), replace(at(20), is_left_alone=True)):
        assert answer(given_event, view, Policy(), words, HookMemory(Zone.MONITOR)).facts == (fact,)


def test_a_recorded_session_is_answered_without_a_word_while_there_is_room(
    words: Messages,
) -> None:
    recorded = Path(__file__).parents[2] / "data/hooks/claude-basic.jsonl"
    events = [json.loads(line) for line in recorded.read_text().splitlines()]
    assert [answer(e, at(10), Policy(), words).body for e in events] == [None] * len(events)
    facts = [type(f).__name__ for e in events for f in answer(e, at(10), Policy(), words).facts]
    assert facts == ["SessionStarted", "Prompted", "TurnOver", "SessionEnded"]


@pytest.mark.parametrize(
    ("commands", "called"),
    [
        (["echo hello >made"], ["UserPromptSubmit", "PostToolUse", "Stop"]),
        ([], ["UserPromptSubmit", "Stop"]),  # its turn is over: it is not asked for anything
    ],
)
def test_the_real_claude_calls_the_client_and_takes_what_it_says(
    commands: list[str], called: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the settings that `setup` writes, and replies made by `answer`."""
    env = {"SEGUE_AGENTS": AGENTS_FOLDER, "PATH": os.environ["PATH"]}
    cast = casts.find("claude")
    program = cast.find(env)
    if program is None or enclosure.why_not():
        missing("claude is not installed, or cannot be enclosed")
    play = tmp_path / "play"
    (play / "home/.claude").mkdir(parents=True)
    (play / "project").mkdir()
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(play / "home/.claude"))
    done = CliRunner().invoke(setup.command, ["claude"])
    assert done.exit_code == 0, done.output

    told = HookMemory()

    def reply(given_event: dict[str, Any]) -> bytes:
        nonlocal told
        made = answer(given_event, at(86, handoff_file=FILE, costs=COSTS), AUTO, WORDS, told)
        told = made.memory
        assert_valid(given_event["hook_event_name"], made.body)
        return http(json.dumps(made.body).encode() if made.body else b"")

    daemon = FakeDaemon(state.socket_path(), reply)
    leg = Path(__file__).parents[2] / "support/agents/one_leg.py"
    words = json.dumps({"prompt": "Do the task.", "commands": commands})
    try:
        argv = [sys.executable, str(leg), "claude", str(program), str(play), words]
        ended = subprocess.run(
            enclosure.command(argv), capture_output=True, text=True, timeout=120, check=False
        )
    finally:
        daemon.close()
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["exit_code"] == 0
    names = [each["hook_event_name"] for each in daemon.events()]
    assert names == ["SessionStart", *called, "SessionEnd"]
    transcript = Path(found["transcript"]).read_text()
    assert "High context at 86% - create handoff after current work." in transcript
    assert ("Create handoff document now - context at 86%" in transcript) is bool(commands)
    records = [json.loads(line) for line in transcript.splitlines()]
    kinds = {r["attachment"]["type"] for r in records if "attachment" in r}
    assert "hook_non_blocking_error" not in kinds, "claude found a reply invalid"
