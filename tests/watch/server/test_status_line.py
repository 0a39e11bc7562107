"""The status line: one line, as much of it as there is room for, whatever is known."""

import json
import re
from datetime import UTC
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.homes import claude_session, reply
from support.terminals.tui import open_tui
from support.watch.fake_daemon import FakeDaemon, http

from segue.cli.tools import setup
from segue.cli.tools.statusline import command
from segue.core.policy import Policy
from segue.core.sessions.forecasts.forecast import forecast
from segue.core.sessions.forecasts.growth import Growth
from segue.core.sessions.reading import Reading, Zone
from segue.core.sessions.remarks import LimitSeen
from segue.core.sessions.types import Session, SessionState
from segue.system.files import state
from segue.watch.server.status_line import line

NOW = 1_800_000_000.0  # Friday 15 January 2027, 08:00 UTC
RECORDED = Path(__file__).parents[2] / "data/hooks/claude-status.jsonl"
READING = Reading(input_tokens=104_000, window_tokens=200_000)
GROWTH = Growth(tokens_per_minute=2_100.0, tokens_per_turn=6_000.0, replies=9, turns=3)
SESSION = Session(
    agent="claude",
    session_id="s",
    path="/s.jsonl",
    reading=READING,
    zone=Zone.WARNING,
    growth=GROWTH,
    forecast=forecast(READING, GROWTH, Policy()),
    state=SessionState.WORKING,
)
LIMITS = {
    "rate_limits": {
        "five_hour": {"used_percentage": 43.2, "resets_at": NOW + 3600},
        "seven_day": {"used_percentage": 12, "resets_at": NOW + 3 * 86_400},
    }
}


def usual(agent: str, model: str, cwd: str) -> Policy:
    return Policy()


def plain(payload: dict[str, Any], session: Session | None = None, width: int = 0) -> str:
    return line(payload, session, usual, NOW, width, False, tz=UTC)


def test_all_that_is_known_is_in_one_line() -> None:
    assert plain(LIMITS, SESSION) == (
        "█████░░░░░ 52% warning · 104K of 200K · +2.1K/min · handoff in 31 min 26 s"
        " · 5h 43% until 09:00 · week 12% until Mon 08:00"
    )


def test_a_narrow_terminal_keeps_what_matters_most() -> None:
    full = plain(LIMITS, SESSION)
    for width in range(22, len(full) + 1):
        said = plain(LIMITS, SESSION, width)
        assert len(said) <= width
        assert said.startswith("█████░░░░░ 52% warning")
    assert plain(LIMITS, SESSION, 60).endswith("handoff in 31 min 26 s")


def test_colours_change_nothing_but_colours() -> None:
    painted = line(LIMITS, SESSION, usual, NOW, 60, True, tz=UTC)
    assert "\x1b[33m" in painted
    assert re.sub(r"\x1b\[\d+m", "", painted) == plain(LIMITS, SESSION, 60)


def test_at_the_mark_it_says_now_and_with_handoffs_off_nothing() -> None:
    reading = Reading(input_tokens=171_000, window_tokens=200_000)
    full = replace(
        SESSION,
        reading=reading,
        zone=Zone.HANDOFF,
        forecast=forecast(reading, GROWTH, Policy()),
    )
    assert "handoff now" in plain({}, full)
    off = replace(SESSION, forecast=forecast(READING, GROWTH, Policy(hard_mark=1.5)))
    assert "handoff" not in plain({}, off)


def test_limits_that_are_over_are_not_shown_and_a_full_one_comes_first() -> None:
    limits = {
        "five_hour": LimitSeen(used_percent=100.0, resets_at=NOW - 1),
        "seven_day": LimitSeen(rejected=True, resets_at=NOW + 60),
        "odd\x1b[2J\nname": LimitSeen(used_percent=50.0),
    }
    said = plain({}, replace(SESSION, limits=limits))
    assert said.endswith("week full until 08:01 · odd[2Jname 50%")


def test_without_a_session_claudes_own_numbers_count() -> None:
    told = [plain(json.loads(text)) for text in RECORDED.read_text().splitlines()]
    assert told[:2] == ["░░░░░░░░░░ context unknown"] * 2
    assert told[2] == "█░░░░░░░░░ 10% normal"


def test_a_window_that_holds_less_than_is_in_it_is_another_models() -> None:
    usage = {"cache_read_input_tokens": 300_000}
    window = {"context_window_size": 200_000, "current_usage": usage, "used_percentage": 100}
    assert plain({"context_window": window}) == "███░░░░░░░ 30% monitor"


ANY = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
LIMIT = st.fixed_dictionaries({}, optional={"used_percentage": ANY, "resets_at": ANY})


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "rate_limits": ANY | st.dictionaries(st.text(max_size=30), ANY | LIMIT, max_size=3),
            "context_window": ANY,
        },
    ),
    st.sampled_from([None, SESSION]),
    st.integers(0, 200),
)
def test_no_payload_breaks_it(payload: dict[str, Any], session: Session | None, width: int) -> None:
    said = line(payload, session, usual, NOW, width, False, tz=UTC)
    assert said
    assert len(said.splitlines()) == 1
    assert said.isprintable()


def test_the_command_reads_the_session_itself_where_no_daemon_runs(own_home: Path) -> None:
    path = claude_session(own_home, reply(1, 104_000))
    payload = {"transcript_path": str(path), "session_id": path.stem}
    done = CliRunner().invoke(command, ["--no-color"], input=json.dumps(payload))
    assert done.exit_code == 0, done.output
    assert "104K of" in done.stdout
    odd = CliRunner().invoke(command, ["--no-color"], input="not json")
    assert odd.stdout == "░░░░░░░░░░ context unknown\n"


def test_the_real_claude_shows_it_below_the_one_that_was_there(
    own_home: Path, tmp_path: Path
) -> None:
    settings = own_home / ".claude/settings.json"
    settings.parent.mkdir()
    settings.write_text(
        json.dumps({"statusLine": {"type": "command", "command": "echo their line"}})
    )
    done = CliRunner().invoke(setup.command, ["claude"])
    assert done.exit_code == 0, done.output

    def reply(payload: dict[str, Any]) -> bytes:
        if "hook_event_name" in payload:
            return http(b"")
        width = payload["segue"]["columns"]
        return http(f"{plain(payload, SESSION, width)}".encode())

    daemon = FakeDaemon(state.socket_path(), reply)
    try:
        with open_tui("claude", tmp_path, settings=json.loads(settings.read_text())) as tui:
            tui.until(lambda: "their line" in tui.text() and "52% warning" in tui.text())
            lines = [line.strip() for line in tui.text().splitlines()]
    finally:
        daemon.close()
    first = next(n for n, text in enumerate(lines) if text.startswith("their line"))
    assert lines[first + 1].startswith("█████░░░░░ 52% warning · 104K of 200K · +2.1K/min")
