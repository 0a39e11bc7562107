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
from homes import SESSION, START, OpencodeDb, call, claude_session, prompt, reply

from segue.cli import cli
from segue.io import clock
from segue.transcripts import database

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


def test_a_session_is_told_in_the_documented_form(own_home: Path) -> None:
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
        (["sessions", "--agent", "nobody"], "agent 'nobody' keeps no sessions here"),
        (["sessions", "--since", "yesterday-ish"], "time 'yesterday-ish' is not one"),
        (["show", "nothing"], "no session 'nothing'"),
        (["fits", "many"], "'many' is not a count of tokens"),
        (["fits", "-5"], "No such option"),
        (["fits", "5K"], "no session in"),
        (["fits", "5K", "--reserve", "-1"], "--reserve must not be below 0"),
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


def test_growth_and_the_time_to_the_handoff_are_told(own_home: Path) -> None:
    lines = []
    for number in range(12):
        at = START + 60 * number
        lines += [prompt(at=at), reply(number, 50_000 + 1_000 * number, at=at + 30)]
    claude_session(own_home, *lines)
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


def test_opencodes_sub_agents_are_no_sessions_but_are_paid_for(opencode: OpencodeDb) -> None:
    opencode.session("ses_2", "/home/dev/shop", START + 6, parent="ses_1")
    opencode.answer(7, "ses_2", START + 7, 90_000)
    (session,) = listed("sessions")
    assert session["context"]["used"] == 17_030
    found = shown("ses_1")
    (row,) = found["tokens"]
    assert row["input"] + row["output"] + row["cache_read"] == 107_030
    scanned = json.loads(run("scan", "--json").stdout)["totals"]
    assert sum(t["input"] + t["output"] + t["cache_read"] for t in scanned) == 107_030


def test_a_database_that_goes_away_while_it_is_shown_is_no_traceback(
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


def test_a_file_that_is_no_database_is_passed_over_with_one_line(own_home: Path) -> None:
    folder = own_home / ".local/share/opencode"
    folder.mkdir(parents=True)
    (folder / "opencode.db").write_text("not a database")
    result = run("sessions", "--json")
    assert json.loads(result.stdout) == {"sessions": []}
    assert "opencode.db" in result.stderr
    assert len(result.stderr.splitlines()) == 1


# Live


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
        env={**os.environ, "FORCE_COLOR": "1", "COLUMNS": "140"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "\x1b[31m" in done.stdout  # the handoff is due
