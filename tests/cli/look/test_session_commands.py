"""`status`, `sessions`, `show`, `fits`, `scan` as a user runs them."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from support.homes import SESSION, START, OpencodeDb, call, claude_session, prompt, reply, stamp

from segue.cli import cli
from segue.core.sessions.types import Hold, Process
from segue.sessions import database
from segue.system import clock
from segue.system.process import processes

OTHER = "22222222-2222-4333-8444-555555555555"


@pytest.fixture(autouse=True)
def midnight(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ten minutes past midnight."""
    monkeypatch.setattr(clock, "now", lambda: START + 600)


def run(*args: str) -> Result:
    return CliRunner().invoke(cli, args)


def listed(*args: str) -> list[dict[str, Any]]:
    result = run(*args, "--json")
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)["sessions"]
    return found


def shown(name: str = SESSION) -> dict[str, Any]:
    result = run("show", name, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def at_age(file: Path, age_s: float) -> None:
    os.utime(file, (START + 600 - age_s, START + 600 - age_s))


def test_a_session_is_reported_in_the_documented_form(own_home: Path) -> None:
    file = claude_session(own_home, prompt(), reply(1, 20_000), prompt(), reply(2, 30_000))
    (session,) = listed("sessions")
    assert session["agent"] == "claude"
    assert session["session_id"] == SESSION
    assert session["path"] == str(file)
    assert session["cwd"] == "/p"
    assert session["model"] == "claude-sonnet-4-5"
    assert session["context"] == {
        "used": 30_000,
        "window": 200_000,
        "percent": 15.0,
        "zone": "normal",
    }
    assert session["state"] == "stopped"
    assert session["stop"]["reason"] == "completed"
    assert session["last_activity"] == "2026-11-16T00:00:00Z"


def test_a_turn_that_just_ends_is_gone_when_no_agent_is_behind_it(own_home: Path) -> None:
    claude_session(own_home, prompt(), reply(1, 20_000, stop="tool_use", content=call("Bash")))
    (session,) = listed("sessions")
    assert session["state"] == "gone"


def test_status_leaves_out_what_is_older_than_a_day_and_sessions_does_not(own_home: Path) -> None:
    old = claude_session(own_home, reply(1, 20_000), session=OTHER)
    new = claude_session(own_home, reply(2, 20_000))
    at_age(old, 25 * 3600)
    at_age(new, 60)
    assert [s["session_id"] for s in listed("status")] == [SESSION]
    assert {s["session_id"] for s in listed("sessions")} == {SESSION, OTHER}


def test_sessions_are_filtered_by_agent_project_state_and_time(own_home: Path) -> None:
    at_age(claude_session(own_home, reply(1, 20_000, cwd="/home/dev/shop")), 60)
    late = reply(2, 20_000, at=START - 7200, session=OTHER, cwd="/home/dev/api", stop=None)
    at_age(claude_session(own_home, late, session=OTHER), 7800)
    assert len(listed("sessions", "--agent", "claude-code")) == 2
    assert not listed("sessions", "--agent", "codex")
    assert [s["cwd"] for s in listed("sessions", "--project", "shop")] == ["/home/dev/shop"]
    assert [s["cwd"] for s in listed("sessions", "--project", "/home/dev/api")] == ["/home/dev/api"]
    assert [s["cwd"] for s in listed("sessions", "--state", "stopped")] == ["/home/dev/shop"]
    assert [s["cwd"] for s in listed("sessions", "--since", "1h")] == ["/home/dev/shop"]
    assert len(listed("sessions", "--since", "2026-11-15T12:00")) == 2


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["sessions", "--agent", "nobody"], "--agent nobody: no such agent"),
        (["sessions", "--since", "yesterday-ish"], "'yesterday-ish' is not a time"),
        (["sessions", "--since", "²d"], "'²d' is not a time"),
        (["sessions", "--since", "5x"], "'5x' is not a time; write 90m, 12h, 7d,"),
        (["show", "nothing"], "no session 'nothing'"),
        (["fits", "many"], "'many' is not a count of tokens"),
        (["fits", "5kk"], "'5kk' is not a count of tokens"),
        (["fits", "5mk"], "'5mk' is not a count of tokens"),
        (["fits", "0.4"], "'0.4' is not a count of tokens"),
        (["fits", "inf"], "'inf' is not a count of tokens"),
        (["fits", "-5"], "unknown option -5"),
        (["fits", "5K"], "no session in"),
        (
            ["fits", "5K", "--reserve", "-1"],
            "--reserve must be a whole number of at least 0",
        ),
    ],
)
def test_a_mistake_is_one_clear_line(args: list[str], said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "segue", *args], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert said in done.stderr


def test_show_takes_the_beginning_of_an_id_a_project_or_a_file(own_home: Path) -> None:
    file = claude_session(own_home, reply(1, 20_000, cwd="/home/dev/shop"))
    for name in (SESSION, "1111", "shop", "/home/dev/shop", str(file)):
        assert shown(name)["session_id"] == SESSION


def test_a_session_belongs_to_the_folder_where_it_began(own_home: Path) -> None:
    began, now = "-home-dev-my-shop", "/home/dev/my.shop/sub/deep"
    claude_session(own_home, reply(1, 20_000, cwd=now), slug=began)
    (session,) = listed("sessions")
    assert session["cwd"] == "/home/dev/my.shop"


def test_a_window_that_was_raised_stays_so_when_the_large_reply_is_far_back(own_home: Path) -> None:
    file = claude_session(own_home, prompt(), reply(1, 230_000), prompt(), reply(2, 260_000))
    assert listed("sessions")[0]["context"]["window"] == 1_000_000
    with file.open("a") as out:
        out.write(prompt("x" * 300_000) + "\n")
        out.write(reply(3, 20_000) + "\n" + prompt() + "\n" + reply(4, 21_000) + "\n")
    (session,) = listed("sessions")
    assert session["context"]["used"] == 21_000
    assert session["context"]["window"] == 1_000_000


def test_several_that_fit_are_listed_and_none_is_guessed(own_home: Path) -> None:
    claude_session(own_home, reply(1, 20_000, cwd="/home/dev/shop"))
    claude_session(own_home, reply(2, 20_000, cwd="/home/dev/shop", session=OTHER), session=OTHER)
    result = run("show", "shop")
    assert result.exit_code == 2
    assert SESSION in result.stderr
    assert OTHER in result.stderr


def test_show_tells_todos_files_compactions_and_tokens_by_kind(own_home: Path) -> None:
    todos = [{"content": "build", "status": "completed"}, {"content": "test", "status": "pending"}]
    boundary = {
        "type": "system",
        "subtype": "compact_boundary",
        "isSidechain": False,
        "compactMetadata": {"trigger": "auto", "preTokens": 90_000, "postTokens": 9_000},
        "sessionId": SESSION,
    }
    claude_session(
        own_home,
        prompt(),
        reply(1, 90_000, stop="tool_use", content=call("TodoWrite", todos=todos)),
        json.dumps(boundary),
        reply(2, 12_000, stop="tool_use", content=call("Edit", file_path="/p/a.py")),
        reply(3, 13_000, stop="tool_use", content=call("Write", file_path="/p/b.py")),
        reply(3, 13_000, stop="tool_use", content=call("Edit", file_path="/p/a.py")),
    )
    found = shown()
    assert found["todos"] == [
        {"text": "build", "status": "completed"},
        {"text": "test", "status": "pending"},
    ]
    assert found["files_changed"] == ["/p/a.py", "/p/b.py"]
    assert found["compactions"] == 1
    assert found["tokens"] == [
        {
            "model": "claude-sonnet-4-5",
            "input": 30,
            "output": 120,
            "cache_read": 114_850,
            "cache_write": 0,
            "cost_usd": pytest.approx(114_850 * 0.3e-6 + 30 * 3e-6 + 120 * 15e-6),
        }
    ]
    assert found["cost_usd"] == found["tokens"][0]["cost_usd"]


def test_a_model_without_a_price_costs_unknown_and_not_nothing(own_home: Path) -> None:
    claude_session(own_home, reply(1, 20_000, model="house-model-7"))
    found = shown()
    assert found["cost_usd"] is None
    assert found["tokens"][0]["cost_usd"] is None
    assert "unknown" in run("show", SESSION).output


def test_sub_agents_count_in_what_was_spent_and_not_in_the_context(own_home: Path) -> None:
    file = claude_session(own_home, reply(1, 20_000))
    child = file.with_suffix("") / "subagents/agent-a1.jsonl"
    child.parent.mkdir(parents=True)
    child.write_text(reply(2, 150_000, side=True) + "\n")
    found = shown()
    assert found["subagents"] == 1
    assert found["context"]["used"] == 20_000
    assert sum(found["tokens"][0][k] for k in ("input", "output", "cache_read")) == 170_000
    assert len(listed("sessions")) == 1


def test_a_sub_agents_reply_that_its_parent_repeats_counts_once(own_home: Path) -> None:
    inner = json.loads(reply(2, 7_000, side=True))
    told = {"type": "progress", "data": {"type": "agent_progress", "message": inner}}
    file = claude_session(own_home, reply(1, 20_000), json.dumps(told))
    child = file.with_suffix("") / "subagents/agent-a1.jsonl"
    child.parent.mkdir(parents=True)
    child.write_text(reply(2, 7_000, side=True) + "\n")
    keys = ("model", "input", "output", "cache_read", "cache_write")
    shown_tokens = [{key: row[key] for key in keys} for row in shown()["tokens"]]
    totals = json.loads(run("scan", "--json").stdout)["totals"]
    assert shown_tokens == [{key: row[key] for key in keys} for row in totals]
    assert sum(shown_tokens[0][key] for key in keys[1:]) == 27_000


def test_an_old_sub_agents_file_beside_its_parents_belongs_to_it(own_home: Path) -> None:
    file = claude_session(own_home, reply(1, 20_000))
    beside = file.with_name("agent-a1.jsonl")
    beside.write_text('{"type":"summary"}\n' + reply(2, 150_000, side=True) + "\n")
    for _ in range(2):  # from the file, then from the index
        (session,) = listed("sessions")
        assert session["subagents"] == 1
        found = shown()
        assert sum(found["tokens"][0][k] for k in ("input", "output", "cache_read")) == 170_000


def spawned_by(parent: str) -> dict[str, Any]:
    return {"source": {"subagent": {"thread_spawn": {"parent_thread_id": parent, "depth": 1}}}}


def test_codexs_sub_agents_and_theirs_belong_to_the_session_at_the_top(own_home: Path) -> None:
    child, grandchild = HELD[:-1] + "b", HELD[:-1] + "c"
    codex_session(own_home)
    long = "x" * 100_000  # the agent's instructions stand in the first line
    codex_session(own_home, child, **spawned_by(HELD), base_instructions=long)
    lines = codex_session(own_home, grandchild, **spawned_by(child)).read_text()
    file = own_home / f".codex/sessions/2026/11/14/rollout-2026-11-14T00-00-00-{grandchild}.jsonl"
    file.write_text(lines.replace("900", "700"))
    for _ in range(2):
        (session,) = listed("sessions")
        assert (session["session_id"], session["subagents"]) == (HELD, 2)
    found = shown(HELD)
    assert found["context"]["used"] == 1_000
    # The first child's request is a copy of its parent's.
    assert [(row["input"], row["output"]) for row in found["tokens"]] == [(1_600, 200)]


def test_a_fork_that_begins_with_a_sub_agents_history_is_not_a_sub_agent(own_home: Path) -> None:
    child, fork = HELD[:-1] + "b", HELD[:-1] + "c"
    codex_session(own_home)
    history = codex_session(own_home, child, **spawned_by(HELD)).read_text()
    file = codex_session(own_home, fork, forked_from_id=child)
    own = file.read_text().splitlines(keepends=True)
    file.write_text(own[0] + history + "".join(own[1:]))
    assert {s["session_id"] for s in listed("sessions")} == {HELD, fork}


def test_codex_sub_agents_that_name_each_other_do_not_cause_an_endless_search(
    own_home: Path,
) -> None:
    child = HELD[:-1] + "b"
    codex_session(own_home, HELD, **spawned_by(child))
    codex_session(own_home, child, **spawned_by(HELD))
    assert not listed("sessions")


def test_a_process_that_also_holds_its_sub_agents_is_behind_its_own_session(
    own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = HELD[:-1] + "b"
    parent = codex_session(own_home)
    holds = [codex_session(own_home, child, **spawned_by(HELD)), parent]
    held = tuple(Hold(session_id=str(f)[-42:-6], path=str(f), since=START) for f in holds)
    runs(monkeypatch, Process(agent="codex", pid=7, started_at=START, holds=held))
    (session,) = listed("status")
    assert (session["session_id"], session["pid"]) == (HELD, 7)


@pytest.mark.parametrize(
    ("used", "tokens", "code"),
    [(20_000, "100K", 0), (20_000, "0.2M", 1), (110_000, "4,000", 0), (110_000, "6000", 1)],
)
def test_fits_answers_with_its_exit_code(own_home: Path, used: int, tokens: str, code: int) -> None:
    claude_session(own_home, reply(1, used))
    result = run("fits", tokens, SESSION)
    assert result.exit_code == code
    assert result.output.startswith(("yes", "no")[code])


def test_fits_without_a_session_means_the_one_of_this_folder(
    own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    claude_session(own_home, reply(1, 20_000, cwd=str(tmp_path)))
    claude_session(own_home, reply(2, 190_000, cwd="/other", session=OTHER), session=OTHER)
    result = run("fits", "5K", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["session"]["session_id"] == SESSION


def test_growth_is_shown_and_for_live_sessions_the_time_to_the_handoff(
    own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = []
    for number in range(12):
        at = START + 60 * number
        lines += [prompt(at=at), reply(number, 50_000 + 1_000 * number, at=at + 30)]
    claude_session(own_home, *lines)
    nothing = {"at_tokens": 170_000, "tokens": None, "seconds": None, "turns": None}
    assert listed("sessions")[0]["handoff"] == nothing
    runs(monkeypatch, Process(agent="claude", pid=7, started_at=START, session_id=SESSION))
    (session,) = listed("sessions")
    assert session["growth"] == {"tokens_per_minute": 1_000, "tokens_per_turn": 1_000}
    assert session["handoff"]["at_tokens"] == 170_000
    assert session["handoff"]["tokens"] == 109_000
    assert session["handoff"]["seconds"] == pytest.approx(109 * 60, rel=0.01)


def test_more_homes_come_from_the_config(own_home: Path, tmp_path: Path) -> None:
    claude_session(tmp_path / "more", reply(1, 20_000), folder="c")
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "task.md").write_text(
        "---\nstepsCompleted: [1, 2]\ntotalSteps: 4\nstatus: in-progress\n---\n"
        "Context: 31.6% (63,153/200,000 tokens)\n"
    )
    config = Path(os.environ["SEGUE_HOME"])
    config.mkdir()
    (config / "config.toml").write_text(
        f'[homes]\nclaude = ["{tmp_path}/more/c"]\nmarkdown = ["{notes}"]\n'
    )
    found = {s["agent"]: s for s in listed("sessions")}
    assert found["claude"]["context"]["used"] == 20_000
    assert found["markdown"]["context"]["used"] == 63_153
    assert found["markdown"]["session_id"] == "task"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[homes]\nnobody = ["/a"]', "'nobody' is not one of"),
        ("[homes]\nclaude = 5", "claude must be a list of folders"),
        ("[house]\n", "unknown table [house]"),
    ],
)
def test_a_wrong_config_is_one_clear_line(text: str, said: str) -> None:
    config = Path(os.environ["SEGUE_HOME"])
    config.mkdir()
    (config / "config.toml").write_text(text)
    for command in ("status", "scan"):
        result = run(command)
        assert result.exit_code == 2
        assert said in result.stderr


# opencode keeps its sessions in a database


@pytest.fixture
def opencode(own_home: Path) -> OpencodeDb:
    db = OpencodeDb(own_home / ".local/share/opencode/opencode.db")
    db.session("ses_1", "/home/dev/shop", START)
    db.message("msg_0000", "ses_1", START, role="user")
    db.part("prt_0", "msg_0000", "ses_1", START, type="text", text="do it")
    db.answer(1, "ses_1", START + 5, 17_030)
    return db


def test_opencode_is_read_from_its_database_while_it_writes(opencode: OpencodeDb) -> None:
    opencode.db.execute("BEGIN IMMEDIATE")  # another program is in the middle of writing
    (session,) = listed("sessions")
    opencode.db.execute("ROLLBACK")
    assert session["session_id"] == "ses_1"
    assert session["cwd"] == "/home/dev/shop"
    assert session["model"] == "test-model"
    assert session["context"]["used"] == 17_030
    assert session["stop"]["reason"] == "completed"
    opencode.answer(2, "ses_1", START + 9, 18_030)
    (session,) = listed("sessions")
    assert session["context"]["used"] == 18_030


def test_opencodes_own_config_tells_the_window(opencode: OpencodeDb, own_home: Path) -> None:
    config = own_home / ".config/opencode/opencode.json"
    config.parent.mkdir(parents=True)
    models = {"test-model": {"limit": {"context": 20_000, "output": 4_000}}}
    config.write_text(json.dumps({"provider": {"fake": {"models": models}}}))
    (session,) = listed("sessions")
    assert session["context"]["window"] == 20_000


def test_opencodes_sub_agents_are_not_sessions_but_are_paid_for(opencode: OpencodeDb) -> None:
    opencode.session("ses_2", "/home/dev/shop", START + 6, parent="ses_1")
    opencode.answer(7, "ses_2", START + 7, 90_000)
    (session,) = listed("sessions")
    assert session["context"]["used"] == 17_030
    found = shown("ses_1")
    (row,) = found["tokens"]
    assert row["input"] + row["output"] + row["cache_read"] == 107_030
    scanned = json.loads(run("scan", "--json").stdout)["totals"]
    assert sum(t["input"] + t["output"] + t["cache_read"] for t in scanned) == 107_030


def test_a_database_that_goes_away_while_it_is_shown_causes_no_traceback(
    opencode: OpencodeDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(path: str, session_id: str) -> int:
        raise database.Unreadable(f"{path}: gone")

    monkeypatch.setattr(database, "compactions", gone)
    assert shown("ses_1")["session_id"] == "ses_1"


def test_opencodes_totals_follow_new_and_deleted_messages(opencode: OpencodeDb) -> None:
    def total() -> int:
        rows = json.loads(run("scan", "--json").stdout)["totals"]
        return sum(t["input"] + t["output"] + t["cache_read"] for t in rows)

    assert total() == 17_030
    opencode.answer(2, "ses_1", START + 9, 18_000)
    assert total() == 35_030
    opencode.db.execute("DELETE FROM message WHERE id = 'msg_0001'")
    assert total() == 18_000


def test_a_file_that_is_not_a_database_is_passed_over_with_one_line(own_home: Path) -> None:
    folder = own_home / ".local/share/opencode"
    folder.mkdir(parents=True)
    (folder / "opencode.db").write_text("not a database")
    result = run("sessions", "--json")
    assert json.loads(result.stdout) == {"schema": 1, "sessions": []}
    assert "opencode.db" in result.stderr
    assert len(result.stderr.splitlines()) == 1


# Markdown


def test_a_note_with_a_status_is_not_a_session_and_one_with_steps_is(own_home: Path) -> None:
    folder = own_home / ".opencode/agent"
    folder.mkdir(parents=True)
    (folder / "review.md").write_text("---\nstatus: stable\nmode: subagent\n---\nYou review.\n")
    (folder / "flow.md").write_text("---\nstatus: draft\nstepsCompleted: []\n---\n")
    assert [s["session_id"] for s in listed("sessions")] == ["flow"]


# What whole files tell


def boundary() -> str:
    return json.dumps({"type": "system", "subtype": "compact_boundary", "timestamp": stamp(START)})


def test_show_counts_compactions_after_which_the_context_was_smaller(own_home: Path) -> None:
    """And those that no reply has followed yet, as docs/sessions.md says."""
    before = [reply(1, 90_000), boundary()]
    claude_session(own_home, *before)
    assert shown()["compactions"] == 1
    claude_session(own_home, *before, reply(2, 20_000))
    assert shown()["compactions"] == 1
    claude_session(own_home, *before, reply(2, 95_000))
    assert shown()["compactions"] == 0


def test_show_tells_how_many_lines_were_not_records(own_home: Path) -> None:
    claude_session(own_home, reply(1, 20_000), '{"message":{"usage":{"input_tokens":')
    assert shown()["unread_lines"] == 1
    assert "1 line that is not a record" in run("show", SESSION).output


# Live


HELD = "0199f6a2-0000-7e10-8a52-00000000000a"


def codex_session(home: Path, name: str = HELD, **source: Any) -> Path:
    """A rollout with one reply of 1,000 tokens."""
    usage = {"input_tokens": 900, "output_tokens": 100, "total_tokens": 1_000}
    info = {"total_token_usage": usage, "last_token_usage": usage}
    told = [
        ("session_meta", {"id": name, "cwd": "/p", "originator": "codex_cli", **source}),
        ("turn_context", {"turn_id": "t", "cwd": "/p", "model": "gpt-5.5"}),
        ("event_msg", {"type": "token_count", "info": info}),
        ("event_msg", {"type": "task_complete", "turn_id": "t"}),
    ]
    file = home / f".codex/sessions/2026/11/14/rollout-2026-11-14T00-00-00-{name}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    records = [{"timestamp": stamp(START), "type": kind, "payload": what} for kind, what in told]
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


def runs(monkeypatch: pytest.MonkeyPatch, *found: Process) -> None:
    monkeypatch.setattr(processes, "living", lambda homes: list(found))


@pytest.mark.parametrize("shows", ["path", "session_id", "folder"])
@pytest.mark.parametrize("command", [("status",), ("sessions", "--since", "1d")])
def test_a_live_session_is_listed_however_long_it_was_idle(
    command: tuple[str, ...], shows: str, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = codex_session(own_home)
    other = codex_session(own_home, HELD[:-1] + "b")
    at_age(file, 2 * 86_400)
    at_age(other, 3 * 86_400)
    assert not listed(*command)
    began = START - 2.5 * 86_400
    fields: dict[str, Any] = {"cwd": "/p"}
    if shows != "folder":
        hold = Hold(path=str(file)) if shows == "path" else Hold(session_id=HELD)
        fields = {"holds": (hold,), "certain": True}
    runs(monkeypatch, Process(agent="codex", pid=7, started_at=began, **fields))
    (session,) = listed(*command)
    assert (session["session_id"], session["pid"]) == (HELD, 7)


def test_a_live_session_whose_records_name_no_folder_yet_is_in_the_folder_of_its_process(
    own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claude_session(own_home, json.dumps({"type": "queue-operation", "sessionId": SESSION}))
    (alone,) = listed("sessions")
    fields: dict[str, Any] = {"agent": "claude", "pid": 7, "started_at": START, "cwd": "/home/dev"}
    runs(monkeypatch, Process(**fields, session_id=SESSION, certain=True))
    (live,) = listed("sessions")
    assert (alone["cwd"], live["cwd"], live["pid"]) == (None, "/home/dev", 7)


@pytest.mark.parametrize("command", [("status",), ("sessions", "--since", "1d")])
def test_a_live_session_of_a_database_is_listed_however_long_it_was_idle(
    command: tuple[str, ...], opencode: OpencodeDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "now", lambda: START + 3 * 86_400)
    opencode.session("ses_2", "/home/dev/shop", START - 60)
    assert not listed(*command)
    named = Process(agent="opencode", pid=7, started_at=START, session_id="ses_1")
    loose = Process(agent="opencode", pid=7, started_at=START - 9, cwd="/home/dev/shop")
    for process in (named, loose):
        runs(monkeypatch, process)
        (session,) = listed(*command)
        assert (session["session_id"], session["pid"]) == ("ses_1", 7)


def test_watch_shows_an_appended_reply_within_a_second(own_home: Path) -> None:
    now = time.time()
    file = claude_session(own_home, reply(1, 20_000, at=now))
    command = [sys.executable, "-m", "segue", "status", "--watch", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watch:
        try:
            assert watch.stdout is not None
            first = json.loads(watch.stdout.readline())
            assert first["sessions"][0]["context"]["used"] == 20_000
            with file.open("a") as out:
                out.write(reply(2, 21_000, at=now) + "\n")
            second = json.loads(watch.stdout.readline())
            assert second["sessions"][0]["context"]["used"] == 21_000
        finally:
            watch.terminate()


def test_a_terminal_gets_colours_and_a_pipe_plain_lines(own_home: Path) -> None:
    claude_session(own_home, reply(1, 190_000, cwd="/home/dev/shop"))
    plain = run("sessions").output
    assert "shop" in plain
    assert "95%" in plain
    assert "\x1b[" not in plain
    done = subprocess.run(
        [sys.executable, "-m", "segue", "sessions"],
        env={**os.environ, "TERM": "xterm", "FORCE_COLOR": "1", "COLUMNS": "140"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "\x1b[31m" in done.stdout  # the handoff is due
