"""How full the window is, on every recorded session of the real agents.

`data/contexts.jsonl` holds their session files (shortened) and what the scripted model server
reported for the last reply of the main thread, taken from its script, not from segue. Each is laid
out as its agent keeps it and read by the real command.
"""

import json
import os
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import lines

from segue.cli import cli

Line = dict[str, Any] | str  # a record, or a damaged line as it was found
Listed = dict[str, Any]

RECORDINGS = lines("contexts.jsonl")
BY_NAME = {(r["agent"], r["name"]): r for r in RECORDINGS}
_COLUMNS = {
    "session": ("id", "parent_id", "directory", "model", "time_created", "time_updated"),
    "message": ("id", "session_id", "time_created", "time_updated", "data"),
    "part": ("id", "message_id", "session_id", "time_created", "time_updated", "data"),
}
_MOVED = (
    "CLAUDE_CONFIG_DIR CODEX_HOME OPENCODE_DB GEMINI_CLI_HOME PI_CODING_AGENT_SESSION_DIR"
    " PI_CODING_AGENT_DIR QWEN_RUNTIME_DIR QWEN_HOME XDG_DATA_HOME XDG_STATE_HOME"
)
COMPACTED = "ContextCompaction"
PADDING = "x" * 70_000  # more than is read at first


@pytest.fixture(autouse=True)
def no_other_homes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _MOVED.split():
        monkeypatch.delenv(name, raising=False)


def lay(home: Path, files: dict[str, list[Line]]) -> None:
    for name, records in files.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".db":
            make_database(path, records)
        else:
            path.write_text("".join(as_line(record) + "\n" for record in records))


def as_line(record: Line) -> str:
    return record if isinstance(record, str) else json.dumps(record)


def make_database(path: Path, rows: Iterable[Line]) -> None:
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as db:
        for table, columns in _COLUMNS.items():
            db.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
        for row in rows:
            assert isinstance(row, dict)
            columns = _COLUMNS[row["table"]]
            values = [row.get(name) for name in columns]
            db.execute(
                f"INSERT INTO {row['table']} VALUES ({', '.join('?' * len(columns))})",
                [json.dumps(v) if isinstance(v, dict) else v for v in values],
            )
    db.close()


def run(*arguments: str) -> Any:
    result = CliRunner().invoke(cli, [*arguments, "--json"])
    assert result.exception is None, (result.exception, result.stderr)
    return json.loads(result.stdout)


def listed() -> list[Listed]:
    found: list[Listed] = run("sessions")["sessions"]
    return found


def only() -> Listed:
    found = listed()
    assert len(found) == 1, [(s["agent"], s["path"]) for s in found]
    return found[0]


def size(session: Listed) -> tuple[int, int] | None:
    context = session["context"]
    return None if context is None else (context["used"], context["window"])


def recorded(agent: str, name: str, home: Path) -> dict[str, list[Line]]:
    """Lays a recording out; its files, to change them."""
    files: dict[str, list[Line]] = BY_NAME[agent, name]["files"]
    files = {path: list(records) for path, records in files.items()}
    lay(home, files)
    return files


def session_file(files: dict[str, list[Line]]) -> str:
    return next(path for path in files if path.endswith(".jsonl"))


def payload(record: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = record.get("payload") or {}
    return found


def up_to(records: list[Line], is_last: Callable[[dict[str, Any]], bool]) -> list[Line]:
    """A session as it was when this record had just been written."""
    place = max(n for n, r in enumerate(records) if isinstance(r, dict) and is_last(r))
    return records[: place + 1]


# Every recording


def test_the_data_holds_every_recording_that_left_a_session() -> None:
    assert Counter(r["agent"] for r in RECORDINGS) == {
        "claude": 108,
        "codex": 62,
        "gemini": 77,
        "pi": 104,
        "qwen": 10,
        "opencode": 43,
    }


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda r: f"{r['agent']}-{r['name']}")
def test_a_recorded_session_is_as_large_as_the_server_said(
    recording: dict[str, Any], own_home: Path
) -> None:
    lay(own_home, recording["files"])
    told = {
        (os.path.relpath(s["path"], own_home), s["session_id"]): (size(s), s["model"], s["cwd"])
        for s in listed()
    }
    expected = {
        (s["path"], s["id"]): (
            None if s["used"] is None else (s["used"], s["window"]),
            s["model"],
            s["cwd"],
        )
        for s in recording["sessions"]
    }
    assert told == expected


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        ("claude", "i1-resume"),
        ("codex", "g-fork"),
        ("gemini", "h4-retention-off"),
        ("pi", "g1-resume"),
        ("qwen", "g1-resume"),
        ("opencode", "g-fork"),
    ],
)
def test_show_tells_the_same_as_the_list(agent: str, name: str, own_home: Path) -> None:
    recorded(agent, name, own_home)
    for session in BY_NAME[agent, name]["sessions"]:
        told = run("show", session["id"])
        assert size(told) == (session["used"], session["window"])
        assert told["path"] == str(own_home / session["path"])


@pytest.mark.parametrize(
    ("agent", "name", "variable", "below"),
    [
        ("claude", "a1-success-stream", "CLAUDE_CONFIG_DIR", ".claude"),
        ("codex", "a-success", "CODEX_HOME", ".codex"),
        ("gemini", "c2-below", "GEMINI_CLI_HOME", ""),
        ("pi", "a1-ant", "PI_CODING_AGENT_DIR", ".pi/agent"),
        ("qwen", "g1-resume", "QWEN_HOME", ".qwen"),
        ("opencode", "a-success", "XDG_DATA_HOME", ".local/share"),
    ],
)
def test_a_moved_home_is_read_by_the_installed_command(
    agent: str, name: str, variable: str, below: str, own_home: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    recorded(agent, name, elsewhere)
    environment = os.environ | {variable: str(elsewhere / below)}
    if agent == "opencode":
        environment["XDG_CONFIG_HOME"] = str(elsewhere / ".config")
    done = subprocess.run(
        [sys.executable, "-m", "segue", "sessions", "--json"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    (told,) = json.loads(done.stdout)["sessions"]
    (expected,) = BY_NAME[agent, name]["sessions"]
    assert size(told) == (expected["used"], expected["window"])
    assert told["cwd"] == "/home/dev/project"


# After a compaction


@pytest.mark.parametrize(
    ("agent", "name", "used"),
    [
        ("claude", "t12-clear-compact", 2_911),  # postTokens
        ("codex", "h-tui-compact", 6_332),  # the synthetic token count
        ("pi", "k3-thr-end", 30_012),  # a reply came after it
        ("claude", "i3-slash", 5_020),
        ("codex", "c-autocompact-default", 1_220),
        ("gemini", "c6-compress-in-second", 21_012),
        ("opencode", "c-autocompact", 1_220),
    ],
)
def test_after_a_compaction_the_new_size_counts(
    agent: str, name: str, used: int, own_home: Path
) -> None:
    recorded(agent, name, own_home)
    assert used in {s["context"]["used"] for s in listed() if s["context"]}


def test_claudes_own_figure_counts_from_the_compaction_to_the_next_reply(own_home: Path) -> None:
    files = recorded("claude", "t9b-185k-window", own_home)
    path = session_file(files)
    boundary = up_to(files[path], lambda r: r.get("subtype") == "compact_boundary")
    before = boundary[:-1]
    lay(own_home, {path: before})
    assert size(only()) == (185_040, 200_000)
    lay(own_home, {path: boundary})
    assert isinstance(boundary[-1], dict)
    after = boundary[-1]["compactMetadata"]["postTokens"]
    assert size(only()) == (after, 200_000)
    assert after < 10_000


@pytest.mark.parametrize(
    ("agent", "name"), [("pi", "c1-thr-end-190k"), ("opencode", "h-tui-compact")]
)
def test_an_agent_that_states_no_size_after_a_compaction_has_none(
    agent: str, name: str, own_home: Path
) -> None:
    recorded(agent, name, own_home)
    assert only()["context"] is None


def test_gemini_has_no_size_between_its_summary_and_the_next_reply(own_home: Path) -> None:
    files = recorded("gemini", "tui-g10-compress", own_home)
    path = session_file(files)
    lay(own_home, {path: up_to(files[path], lambda r: "<state_snapshot>" in json.dumps(r))})
    assert only()["context"] is None


def test_the_summary_request_of_codex_is_not_the_contexts_size(own_home: Path) -> None:
    files = recorded("codex", "c-autocompact-default", own_home)
    path = session_file(files)
    summed = up_to(files[path], lambda r: r["type"] == "compacted")[:-1]
    lay(own_home, {path: summed})
    assert size(only()) == (9_530, 9_500)


def test_a_codex_compaction_is_known_by_its_size_if_its_record_is_too_large_for_the_tail(
    own_home: Path,
) -> None:
    files = recorded("codex", "h-tui-compact", own_home)
    path = session_file(files)
    place = next(n for n, r in enumerate(files[path]) if isinstance(r, str) and "compacted" in r)
    history = {"message": "summed up", "replacement_history": [PADDING]}
    record: Line = {"type": "compacted", "payload": history}
    lay(own_home, {path: [*files[path][:place], record, *files[path][place + 1 :]]})
    assert size(only()) == (6_332, 258_400)


def test_a_second_codex_compaction_to_the_same_size_leaves_it_known(own_home: Path) -> None:
    files = recorded("codex", "c-autocompact-default", own_home)
    path = session_file(files)
    whole = up_to(files[path], lambda r: payload(r).get("item", {}).get("type") == COMPACTED)
    begun = next(n for n, r in enumerate(whole) if "compaction_output" in as_line(r))
    lay(own_home, {path: [*whole, *whole[begun:]]})
    assert size(only()) == (5_816, 9_500)


# After an error


@pytest.mark.parametrize(
    ("agent", "name", "used"),
    [
        ("claude", "b6-ptl-later-autocompact-off", 150_040),
        ("claude", "d5-off-177k", 177_040),
        ("claude", "t8-ptl-later", 150_040),
        ("pi", "v087-b5-ptl-later-nocompact", 150_030),
        ("gemini", "d11-429-later-a1", 9_030),
        ("opencode", "g-after-ctx", 1_220),
    ],
)
def test_after_an_api_error_the_reply_before_it_still_counts(
    agent: str, name: str, used: int, own_home: Path
) -> None:
    recorded(agent, name, own_home)
    context = only()["context"]
    assert context is not None
    assert context["used"] == used


def test_the_zeros_of_a_synthetic_reply_are_not_a_size(own_home: Path) -> None:
    files = recorded("claude", "b6-ptl-later-autocompact-off", own_home)
    told = [r for r in files[session_file(files)] if isinstance(r, dict) and "message" in r]
    error = next(r for r in told if r["message"].get("model") == "<synthetic>")
    assert not any(error["message"]["usage"][key] for key in ("input_tokens", "output_tokens"))
    assert size(only()) == (150_040, 200_000)


def test_a_session_in_which_every_request_failed_has_no_size(own_home: Path) -> None:
    recorded("claude", "e01-429-default", own_home)
    assert only()["context"] is None


# Codex


@pytest.mark.parametrize("name", ["b-ctx-first", "b-ctx-later", "h-tui-ctx"])
def test_a_codex_that_ran_out_of_room_is_full(name: str, own_home: Path) -> None:
    recorded("codex", name, own_home)
    session = only()
    assert size(session) == (258_400, 258_400)
    assert session["context"]["zone"] == "handoff"


def test_a_codex_window_is_the_one_it_works_with_even_if_more_was_accepted(own_home: Path) -> None:
    recorded("codex", "c-autocompact-default", own_home)  # 9,530 of 9,500, which is 95% of 10,000
    session = only()
    assert size(session) == (1_220, 9_500)
    assert session["notes"] == []


def test_a_codex_killed_in_a_tool_is_read_from_its_usage_record(own_home: Path) -> None:
    files = recorded("codex", "f-kill-tool", own_home)
    told = json.dumps(files[session_file(files)])
    assert '"token_usage_record"' in told
    assert '"last_token_usage"' not in told
    assert size(only()) == (1_030, 258_400)


def test_after_a_full_codex_window_the_usage_records_still_count(own_home: Path) -> None:
    """The token counts go on from the window's size, the usage records from what was spent."""
    files = recorded("codex", "g-resume-after-ctx", own_home)
    path = session_file(files)
    lay(own_home, {path: up_to(files[path], lambda r: r["type"] == "token_usage_record")})
    assert size(only()) == (1_220, 258_400)


def codex_usage(used: int, spent: int) -> Line:
    usage = {"input_tokens": used - 10, "output_tokens": 10, "total_tokens": used}
    told = {"usage": usage, "thread_token_usage": {"total_tokens": spent}}
    return {"type": "token_usage_record", "payload": told}


def test_the_window_of_a_codex_session_is_found_behind_a_huge_tool_output(own_home: Path) -> None:
    files = recorded("codex", "c-noautocompact-below", own_home)
    path = session_file(files)
    first = up_to(files[path], lambda r: payload(r).get("type") == "token_count")
    record: Line = {"type": "response_item", "payload": {"type": "message", "id": PADDING}}
    lay(own_home, {path: [*first, record, codex_usage(8_600, 20_000), codex_usage(8_610, 28_610)]})
    assert size(only()) == (8_610, 9_500)


def test_without_a_word_of_codex_its_window_is_the_effective_one(own_home: Path) -> None:
    path = ".codex/sessions/2026/11/15/rollout-2026-11-15T18-00-00-unknown.jsonl"
    context: Line = {"type": "turn_context", "payload": {"model": "gpt-5.2"}}
    lay(own_home, {path: [context, codex_usage(1_010, 1_010)]})
    assert size(only()) == (1_010, 258_400)


def test_a_reply_of_codex_without_rate_limit_headers_keeps_the_last_limits(own_home: Path) -> None:
    files = recorded("codex", "a-success", own_home)
    records = [payload(r) for r in files[session_file(files)] if isinstance(r, dict)]
    told = [record["rate_limits"] for record in records if "rate_limits" in record]
    assert told[-1]["primary"] is None
    limits = {limit["scope"]: limit["used_percent"] for limit in only()["limits"]}
    assert limits == {"five_hour": 42.5, "seven_day": 7.0}


# Sub-agents


def test_a_sub_agents_file_is_not_a_session_and_its_tokens_are_not_the_parents(
    own_home: Path,
) -> None:
    files = recorded("claude", "a10-subagent", own_home)
    assert sum("/subagents/" in path for path in files) == 1
    session = only()
    assert size(session) == (20_107, 200_000)
    assert session["subagents"] == 1


def test_a_sub_agent_in_the_parents_own_file_does_not_count(own_home: Path) -> None:
    files = recorded("claude", "a10-subagent", own_home)
    path = next(path for path in files if "/subagents/" not in path)
    inside = [r for name in files if "/subagents/" in name for r in files[name]]
    assert all(r["isSidechain"] is True for r in inside if isinstance(r, dict) and "message" in r)
    lay(own_home, {path: [*files[path], *inside]})
    assert [size(s) for s in listed()] == [(20_107, 200_000)]


def test_a_sub_agent_of_opencode_is_not_a_session_of_its_own(own_home: Path) -> None:
    files = recorded("opencode", "a-success", own_home)
    database = next(path for path in files if path.endswith(".db"))
    rows = [dict(r) for r in files[database] if isinstance(r, dict)]
    parent = next(r["id"] for r in rows if r["table"] == "session")
    children = json.loads(json.dumps(rows).replace(parent, "ses_child"))
    for row in children:
        row["id"] = f"child_{row['id']}" if row["table"] != "session" else row["id"]
        if row["table"] == "session":
            row["parent_id"] = parent
        elif row["table"] == "message" and "tokens" in row["data"]:
            row["data"]["tokens"]["total"] = 19_999
    lay(own_home, {database: [*rows, *children]})
    assert size(only()) == (1_220, 20_000)


# Resume


@pytest.mark.parametrize(
    ("agent", "name", "used"),
    [
        ("claude", "i4-kill-then-resume", 20_020),
        ("claude", "i5-error-then-resume", 20_020),
        ("codex", "g-resume-id", 1_220),
        ("codex", "h-tui-resume", 1_509),
        ("pi", "g2-kill-resume", 9_112),
        ("gemini", "b12-guard-resume", 9_112),
        ("qwen", "g1-resume", 9_112),
        ("opencode", "g-after-kill", 1_220),
    ],
)
def test_a_resumed_session_is_one_session_with_the_last_replys_size(
    agent: str, name: str, used: int, own_home: Path
) -> None:
    recorded(agent, name, own_home)
    session = only()
    assert session["context"]["used"] == used


def test_a_fork_has_its_own_size_and_leaves_the_parents_alone(own_home: Path) -> None:
    recorded("claude", "i1-resume", own_home)
    assert sorted(size(s) or () for s in listed()) == [(13_020, 200_000), (15_020, 200_000)]


def test_the_stub_that_geminis_resume_leaves_is_not_a_second_session(own_home: Path) -> None:
    files = recorded("gemini", "h4-retention-off", own_home)
    assert sum("11111111" in path for path in files) == 2
    assert Counter(s["session_id"] for s in listed()) == {"11111111": 1, "e2f458e6": 1}
    assert size(run("show", "11111111")) == (9_112, 1_048_576)


@pytest.mark.parametrize("name", ["j1-cut-last-line", "j3-garbage-middle", "j5-nul-tail"])
def test_a_damaged_file_that_was_resumed_is_read_to_its_end(name: str, own_home: Path) -> None:
    recorded("claude", name, own_home)
    assert size(only()) == (21_020, 200_000)


# Windows of a million


@pytest.mark.parametrize(
    ("name", "notes"),
    [
        ("d8-opus55-966k", []),
        ("d8-other-990k", ["the agent does not know some-other-model"]),
    ],
)
def test_a_window_of_a_million_is_known_from_the_first_reply_on(
    name: str, notes: list[str], own_home: Path
) -> None:
    files = recorded("claude", name, own_home)
    path = session_file(files)
    begun = up_to(files[path], lambda r: "echo turn-0" in json.dumps(r))
    lay(own_home, {path: begun})
    session = only()
    assert size(session) == (20_040, 1_000_000)
    assert session["notes"] == notes


def claude_session(*records: Line) -> dict[str, list[Line]]:
    opened: Line = {"type": "queue-operation", "sessionId": "s1"}
    return {".claude/projects/-home-dev-project/s1.jsonl": [opened, *records]}


def claude_reply(number: int, used: int, model: str = "claude-sonnet-4-5", said: str = "") -> Line:
    usage = {
        "input_tokens": 10,
        "cache_creation_input_tokens": 1_000,
        "cache_read_input_tokens": used - 1_050,
        "output_tokens": 40,
    }
    return {
        "type": "assistant",
        "isSidechain": False,
        "sessionId": "s1",
        "cwd": "/home/dev/project",
        "message": {
            "id": f"msg_{number}",
            "model": model,
            "content": [{"type": "text", "text": said or f"reply {number}"}],
            "stop_reason": "tool_use",
            "usage": usage,
        },
    }


def claude_compaction(before: int, after: int) -> Line:
    return {
        "type": "system",
        "subtype": "compact_boundary",
        "isSidechain": False,
        "sessionId": "s1",
        "compactMetadata": {"trigger": "auto", "preTokens": before, "postTokens": after},
    }


def test_a_window_that_held_more_is_raised_to_what_claude_has_and_it_says_so(
    own_home: Path,
) -> None:
    recorded("claude", "d3-multi-205k", own_home)  # 205,040 were accepted, then 9,020
    session = only()
    assert size(session) == (9_020, 1_000_000)
    assert session["notes"] == ["205,040 tokens were accepted: the window is not 200,000"]


def test_a_window_that_is_only_assumed_is_raised_to_the_next_known_one(own_home: Path) -> None:
    files = recorded("pi", "v087-b7-silent-overflow", own_home)
    assert size(only()) == (250_012, 200_000)  # pi's own config says so, and pi works with it
    (own_home / next(path for path in files if path.endswith("models.json"))).unlink()
    assert size(only()) == (250_012, 272_000)


def test_a_raised_window_stays_raised_after_a_compaction(own_home: Path) -> None:
    lay(own_home, claude_session(claude_reply(1, 400_000), claude_compaction(401_000, 9_000)))
    assert size(only()) == (9_000, 1_000_000)


def test_a_raised_window_stays_raised_by_pre_tokens_where_the_replies_are_far_back(
    own_home: Path,
) -> None:
    noise: Line = {"type": "last-prompt", "sessionId": "s1", "text": PADDING}
    replies = (claude_reply(n, 300_000 + n) for n in range(3))
    boundary = claude_compaction(401_000, 9_000)
    lay(own_home, claude_session(*replies, noise, boundary, claude_reply(9, 12_000)))
    assert size(only()) == (12_000, 1_000_000)


def test_what_was_refused_before_a_compaction_does_not_raise_the_window(own_home: Path) -> None:
    """A prompt that is too long makes claude compact: what it counted then was not accepted."""
    boundary = claude_compaction(225_000, 9_000)
    lay(own_home, claude_session(claude_reply(1, 195_000), boundary, claude_reply(2, 12_000)))
    assert size(only()) == (12_000, 200_000)


def test_what_one_model_accepted_does_not_raise_anothers_window(own_home: Path) -> None:
    large, small = "claude-opus-5-5", "claude-haiku-4-5"
    boundary = claude_compaction(700_000, 9_000)
    replies = (claude_reply(1, 700_000, large), boundary, claude_reply(2, 12_000, small))
    lay(own_home, claude_session(*replies))
    assert size(only()) == (12_000, 200_000)


# Old records that come again


def again(records: list[Line], agent: str) -> list[Line]:
    """Copies of what the first reply left."""
    first: list[Line] = []
    for record in records:
        assert isinstance(record, dict)
        kind = payload(record).get("type") or record.get("type")
        if kind in ("assistant", "gemini", "token_usage_record", "token_count") or (
            kind == "message" and "usage" in record.get("message", {})
        ):
            told = json.dumps(record)
            if '"info": null' not in told and ("sage" in told or "tokens" in told):
                first.append(record)
                if kind not in ("token_usage_record",):
                    break
    assert first, agent
    return first


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        ("claude", "d1-usage-199k"),
        ("codex", "a-success"),
        ("gemini", "e8-noyolo"),
        ("pi", "v087-a1-ant"),
        ("qwen", "g1-resume"),
    ],
)
@pytest.mark.parametrize("between", ["", PADDING], ids=["near", "far"])
def test_a_stale_copy_of_an_earlier_reply_does_not_lower_the_reading(
    agent: str, name: str, between: str, own_home: Path
) -> None:
    files = recorded(agent, name, own_home)
    path = session_file(files)
    noise: Line = {"type": "unheard-of", "text": between}
    lay(own_home, {path: [*files[path], noise, *again(files[path], agent)]})
    (expected,) = BY_NAME[agent, name]["sessions"]
    assert size(only()) == (expected["used"], expected["window"])


def test_a_codex_record_without_figures_does_not_make_an_old_copy_look_new(own_home: Path) -> None:
    files = recorded("codex", "a-success", own_home)
    path = session_file(files)
    empty: Line = {"type": "event_msg", "payload": {"type": "token_count", "info": None}}
    lay(own_home, {path: [*files[path], empty, *again(files[path], "codex")]})
    assert size(only()) == (1_220, 258_400)


def test_an_early_record_of_the_last_reply_that_comes_again_does_not_lower_the_reading(
    own_home: Path,
) -> None:
    begun = claude_reply(2, 30_000)
    assert isinstance(begun, dict)
    early = json.loads(json.dumps(begun))
    early["message"]["usage"]["output_tokens"] = 1
    lay(own_home, claude_session(claude_reply(1, 20_000), early, begun, early))
    assert size(only()) == (30_000, 200_000)


# Where the session belongs


def test_the_folder_is_told_although_the_first_records_do_not_name_it(own_home: Path) -> None:
    files = recorded("claude", "a1-success-stream", own_home)
    first = files[session_file(files)][0]
    assert isinstance(first, dict)
    assert "cwd" not in first
    assert only()["cwd"] == "/home/dev/project"


@pytest.mark.parametrize(
    ("agent", "name", "model"),
    [("codex", "d-500-bounded", "gpt-5.2"), ("pi", "d1-429-default", "fake-model")],
)
def test_the_model_is_told_although_it_never_answered(
    agent: str, name: str, model: str, own_home: Path
) -> None:
    recorded(agent, name, own_home)
    assert only()["model"] == model


# Markdown sessions


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Token usage: 63153/200000; 136847 remaining", (63_153, 200_000)),
        ("Context: 31.6% (63,153/200,000 tokens)", (63_153, 200_000)),
        ("<system_warning>Token usage: 170000/200000; 30000 remaining", (170_000, 200_000)),
        ("Token usage: 10000/200000\n\nContext: 45.0% (90,000/200,000 tokens)", (90_000, 200_000)),
        ("Token usage: 510000/1000000; 490000 remaining", (510_000, 1_000_000)),
        ("Nothing about tokens.", None),
    ],
)
def test_both_text_formats_of_a_reading_are_read_in_markdown_sessions(
    text: str, expected: tuple[int, int] | None, own_home: Path
) -> None:
    folder = own_home / ".opencode"
    folder.mkdir()
    front = "---\nstepsCompleted: [1, 2]\nlastStep: 2\ntotalSteps: 5\n---\n"
    (folder / "session.md").write_text(f"{front}# Work\n\n{text}\n")
    session = only()
    assert (session["agent"], session["cwd"]) == ("markdown", str(folder))
    assert size(session) == expected
