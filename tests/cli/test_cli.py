"""The commands, as scripts and people call them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import lines
from support.homes import claude_session, reply

LIMIT = "API Error: You've hit your session limit · resets 3pm (UTC)"
NOON = "2026-03-10T12:00:00Z"
VERDICT_KEYS = {
    "schema", "reason", "confidence", "evidence", "also", "resume", "retry_at", "retry_after_s",
    "tokens", "context_risk", "details", "remediation",
}  # fmt: skip


def segue(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "segue", *words],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def verdict(*words: str, stdin: str = "") -> dict[str, Any]:
    done = segue("classify", "--json", *words, stdin=stdin)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_json_has_the_fields_of_the_contract() -> None:
    found = verdict("-", "--now", NOON, stdin=LIMIT)
    assert found.keys() == VERDICT_KEYS
    assert found["schema"] == 1
    assert found["reason"] == "rate_limit"
    assert found["resume"] == "same_session"
    assert found["retry_at"] == "2026-03-10T15:00:00Z"
    assert found["retry_after_s"] == 3 * 3600
    assert found["details"]["scope"] == "five_hour"
    assert found["details"]["retry_source"] == "text"
    assert found["evidence"][0].keys() == {"rule", "quote", "where"}


def test_the_zone_of_the_user_is_taken_where_the_text_has_none() -> None:
    said = "Error: usage limit reached, resets 3pm"
    found = verdict("-", "--now", NOON, "--tz", "America/New_York", stdin=said)
    assert found["retry_at"] == "2026-03-10T19:00:00Z"


def test_parts_of_an_ending_are_judged_together(tmp_path: Path) -> None:
    run = next(r for r in lines("recordings/codex.jsonl") if r["name"] == "f-int-tool")
    words = ["--agent", "codex", "--exit-code", str(run["exit_code"])]
    for name in ("stdout", "stderr", "transcript"):
        (tmp_path / name).write_text(run[name])
        words += [f"--{name}", str(tmp_path / name)]
    found = verdict(*words)
    assert found["reason"] == "user_exit"
    assert found["details"]["exit_type"] == "ctrl_c"


def test_an_exit_code_alone_is_enough() -> None:
    assert verdict("--exit-code", "-9")["reason"] == "crash"
    assert verdict("--exit-code", "143", "--ended-by", "segue")["reason"] == "timeout"


def test_a_name_with_a_suffix_is_an_alias() -> None:
    assert verdict("--agent", "gemini-cli", "--exit-code", "173")["reason"] == "rate_limit"


def test_batch_writes_one_verdict_a_line_in_order() -> None:
    requests = [
        {"id": "a", "text": LIMIT, "channel": "tui", "now": NOON, "tz": "UTC"},
        {"id": 2, "text": "Prompt is too long", "agent": "claude", "channel": "stdout"},
        {"id": "c", "text": "nothing to see", "exit_code": -11},
    ]
    done = segue("classify", "--batch", stdin="\n".join(map(json.dumps, requests)))
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(v["id"], v["reason"]) for v in found] == [
        ("a", "rate_limit"),
        (2, "context_exhausted"),
        ("c", "crash"),
    ]
    assert found[0]["retry_after_s"] == 3 * 3600


def test_now_may_be_a_number_or_a_time() -> None:
    texts = [
        {"text": "Error: rate limit, retry after 60 seconds", "now": n} for n in (1000, "1000")
    ]
    done = segue("classify", "--batch", stdin="\n".join(map(json.dumps, texts)))
    assert {json.loads(line)["retry_at"] for line in done.stdout.splitlines()} == {
        "1970-01-01T00:17:40Z"
    }


def test_people_get_reason_evidence_time_and_advice() -> None:
    said = segue("classify", "-", "--now", NOON, "--tz", "UTC", stdin=LIMIT).stdout
    assert said.splitlines()[0].startswith("rate limited  rate_limit · ")
    for part in ("claude.five_hour", "in 3 h", "resume the same session", "Wait until the limit"):
        assert part in said


def test_a_limit_that_has_reset_is_not_waited_for() -> None:
    said = segue("classify", "-", stdin="Claude AI usage limit reached|1753441200").stdout
    assert "now: the limit has reset (2025-07-25 " in said
    assert "The limit has reset: resume the same session." in said
    assert "Wait until" not in said


def test_a_bare_sigterm_is_said_to_be_a_guess() -> None:
    found = verdict("--exit-code", "143")
    assert found["confidence"] < 0.8
    assert "--ended-by" in found["remediation"]
    sure = verdict("--exit-code", "143", "--ended-by", "user")
    assert sure["remediation"] == "Session ended by user, not auto-resuming."


def test_a_window_that_nobody_stated_is_said_to_be_believed() -> None:
    usage = {"input_tokens": 10, "cache_read_input_tokens": 300_000, "output_tokens": 1}
    message = {"id": "msg_1", "model": "claude-sonnet-4-5", "content": [], "usage": usage}
    opened = {
        "type": "system",
        "subtype": "init",
        "model": "claude-sonnet-4-5",
        "apiKeySource": "x",
    }
    text = "\n".join(map(json.dumps, (opened, {"type": "assistant", "message": message})))
    found = verdict("-", stdin=text)
    assert found["tokens"] == {"used": 300_011, "window": 1_000_000}  # more than 200,000 went in
    assert "1,000,000" in found["details"]["notes"][0]
    assert not found["context_risk"]


def test_the_record_says_how_the_user_left(tmp_path: Path) -> None:
    said = {"type": "user", "sessionId": "s", "isSidechain": False, "message": {"role": "user"}}
    said["message"] = {"role": "user", "content": "<command-name>/exit</command-name>"}
    (tmp_path / "s.jsonl").write_text(json.dumps(said))
    found = verdict(str(tmp_path / "s.jsonl"))
    assert found["reason"] == "user_exit"
    assert found["details"]["exit_type"] == "exit_command"


def test_output_is_plain_when_piped() -> None:
    assert "\x1b" not in segue("classify", "-", stdin=LIMIT).stdout


def test_a_terminal_gets_colours_unless_no_color_asks_otherwise(own_home: Path) -> None:
    import os
    import pty

    def shown(**more: str) -> str:
        main, end = pty.openpty()
        words = [sys.executable, "-m", "segue", "classify", "--example", "codex-usage-limit"]
        subprocess.run(words, stdout=end, env={**os.environ, **more}, timeout=60, check=True)
        os.close(end)
        return os.read(main, 65_536).decode()

    assert "\x1b[33m" in shown()
    assert "\x1b" not in shown(NO_COLOR="1")


def test_explain_shows_what_won_what_lost_and_what_would_change_it() -> None:
    text = f"{LIMIT}\n\n+ Prompt is too long\n\nHeads up, you have less than 25% left.\n"
    said = segue("explain", "-", stdin=text).stdout
    assert "wins   rate_limit" in said
    assert "not a stop: not.warning" in said
    assert "without the signs of rate_limit: unknown" in said
    found = json.loads(segue("explain", "--json", "-", stdin=text).stdout)
    assert found["signs"][0]["reason"] == "rate_limit"
    assert found["would_change"]


def test_explain_says_why_a_quoted_message_did_not_count() -> None:
    text = "You've hit your session limit is what the banner says when the plan runs out."
    found = json.loads(segue("explain", "--json", "-", stdin=text).stdout)
    assert found["reason"] == "unknown"
    assert {sign["lost"] for sign in found["lost"]} == {"only mentioned"}


@pytest.mark.parametrize("words", [("classify",), ("explain",)])
def test_nothing_to_judge_is_one_clear_line(words: tuple[str, ...]) -> None:
    done = segue(*words)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "nothing to classify" in done.stderr


def test_a_wrong_option_is_one_clear_line() -> None:
    done = segue("classify", "--exit-code", "abc")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "abc" in done.stderr


def test_every_bundled_recording_is_judged() -> None:
    done = segue("classify", "--json", "--example")
    found = {v["id"]: v["reason"] for v in map(json.loads, done.stdout.splitlines())}
    assert found == {
        "claude-context-full": "context_exhausted",
        "codex-usage-limit": "rate_limit",
        "gemini-quota": "rate_limit",
        "opencode-done-after-429": "completed",
    }


def test_the_policy_in_the_config_folder_counts(own_home: Path) -> None:
    (own_home / "segue").mkdir()
    config = own_home / "segue/config.toml"
    config.write_text("[policy]\nresume_user_exits = true\n")
    assert verdict("--exit-code", "130")["resume"] == "same_session"
    config.write_text("[policy]\nresume_user_exit = true\n")
    done = segue("classify", "--exit-code", "130")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "resume_user_exit" in done.stderr


@pytest.mark.parametrize(
    "words", ["sessions", "sessions --json", "wordings list --json", "wordings list", "--help", ""]
)
def test_a_reader_that_goes_away_ends_it_like_any_other_program(words: str, own_home: Path) -> None:
    claude_session(own_home, reply(1, 20_000))
    gone, out = os.pipe()
    os.close(gone)
    done = subprocess.run(
        [sys.executable, "-m", "segue", *words.split()],
        stdout=out,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(out)
    assert (done.returncode, done.stderr) == (141, "")
