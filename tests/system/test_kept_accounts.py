"""Where accounts are kept: one private file for all, without secrets, that nothing can spoil."""

import json
import os
import stat
import threading
import time
from pathlib import Path

import pytest

from segue.core.accounts import Account, Limit
from segue.system.accounts import Accounts, account_at, account_of

NOW = time.time()
SECRET = "sk-ant-api03-very-secret-" + "x" * 40


def met(account: Account, known: Accounts, resets_in_s: float = 100.0) -> None:
    limit = Limit(resets_at=NOW + resets_in_s, is_met=True, by="run-1", seen_at=NOW)
    known.note_limit(account, limit)


def test_an_account_is_identified_by_its_key_or_login_and_only_a_hash_of_that_is_kept(
    tmp_path: Path,
) -> None:
    home = {"HOME": str(tmp_path)}
    by_key = account_of("claude", {**home, "ANTHROPIC_API_KEY": SECRET})
    (tmp_path / ".claude.json").write_text(
        json.dumps({"oauthAccount": {"accountUuid": "1234-5678", "emailAddress": "me@here"}})
    )
    by_login = account_of("claude", home)
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex/auth.json").write_text(
        json.dumps({"tokens": {"account_id": "acc-9", "access_token": SECRET}})
    )
    codex = account_of("codex", home)
    (tmp_path / ".gemini").mkdir()
    (tmp_path / ".gemini/google_accounts.json").write_text(json.dumps({"active": "me@here"}))
    gemini = account_of("gemini", home)
    assert (by_key.kind, by_login.kind, codex.kind, gemini.kind) == ("key", "plan", "plan", "plan")
    assert by_key.id != by_login.id
    known = Accounts(str(tmp_path / "segue"))
    for account in (by_key, by_login, codex, gemini):
        met(account, known)
    kept = known.path.read_text()
    for secret in (SECRET, "1234-5678", "acc-9", "me@here"):
        assert secret not in kept


def test_the_same_login_is_the_same_account_in_every_home_and_another_is_not(
    tmp_path: Path,
) -> None:
    found = []
    for name, who in (("a", "u-1"), ("b", "u-1"), ("c", "u-2")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / ".claude.json").write_text(json.dumps({"oauthAccount": {"accountUuid": who}}))
        found.append(account_of("claude", {"CLAUDE_CONFIG_DIR": str(folder)}).id)
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("agent", ["claude", "codex", "opencode", "gemini", "pi", "unheard-of"])
def test_without_any_login_the_home_stands_for_it(agent: str, tmp_path: Path) -> None:
    one, two = (account_of(agent, {"HOME": str(tmp_path / name)}) for name in ("a", "b"))
    assert one.id.startswith(f"{agent}-")
    assert (one.id == two.id) == (agent == "unheard-of")


def test_broken_logins_are_not_logins(tmp_path: Path) -> None:
    for text in ("{", "[]", '{"oauthAccount": 3}', '{"oauthAccount": {"accountUuid": []}}'):
        (tmp_path / ".claude.json").write_text(text)
        assert account_of("claude", {"HOME": str(tmp_path)}).kind == ""


def test_a_session_belongs_to_the_login_of_its_home(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path)}
    inside = str(tmp_path / ".claude/projects/-x/s.jsonl")
    account = account_at("claude", inside, env)
    assert account is not None
    assert account.id == account_of("claude", env).id
    assert account_at("claude", "/elsewhere/s.jsonl", env) is None


def test_the_file_is_private_and_shared(tmp_path: Path) -> None:
    account = Account(id="claude-1", agent="claude")
    met(account, Accounts(str(tmp_path / "s")))
    file = tmp_path / "s" / "accounts.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert Accounts(str(tmp_path / "s")).limited_until(account, NOW) == NOW + 100


def test_of_many_at_once_one_goes_first(tmp_path: Path) -> None:
    account = Account(id="claude-1", agent="claude")
    met(account, Accounts(str(tmp_path)))
    answers: dict[str, bool] = {}

    def ask(who: str) -> None:
        found = Accounts(str(tmp_path)).ask(account, who, NOW + 101)
        answers[who] = found.until is None

    threads = [threading.Thread(target=ask, args=(f"run-{n}",)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(answers.values()) == 1


def test_a_damaged_file_is_put_aside_and_a_full_disk_keeps_nobody(tmp_path: Path) -> None:
    known, account = Accounts(str(tmp_path)), Account(id="claude-1", agent="claude")
    known.path.write_text('{"accounts": [{"id": 3')
    assert known.ask(account, "run-1", NOW).until is None
    assert (tmp_path / "accounts.damaged").exists()
    nowhere = Accounts("/proc/segue")
    met(account, nowhere)
    assert nowhere.ask(account, "run-1", NOW).until is None


def test_what_is_cleared_is_tried_again_at_once(tmp_path: Path) -> None:
    known, account = Accounts(str(tmp_path)), Account(id="claude-1", agent="claude")
    met(account, known)
    assert known.clear(["codex-2"]) == []
    assert known.clear() == ["claude-1"]
    assert known.ask(account, "run-2", NOW).until is None
    assert os.listdir(tmp_path)
