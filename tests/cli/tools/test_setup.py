"""`segue setup` and `segue uninstall`: other people's files, unchanged before and after."""

import json
import os
import re
import stat
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from segue.agents.claude import setup as claude_settings
from segue.cli.tools import setup, uninstall
from segue.errors import InputError, SegueError, StateError
from segue.system.files import edits, state

OTHERS: dict[str, Any] = {
    "model": "opus",
    "hooks": {
        "Stop": [{"hooks": [{"type": "command", "command": "say done"}]}],
        "PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "check"}]}],
        "Setup": [],
    },
    "statusLine": {"type": "command", "command": "ccusage statusline", "padding": 0},
}


def call(command: click.Command, *words: str) -> Result:
    return CliRunner().invoke(command, list(words), catch_exceptions=True)


def claude(*words: str) -> Result:
    return call(setup.command, "claude", *words)


def settings_file(home: Path, text: str | None = None) -> Path:
    file = home / ".claude/settings.json"
    if text is not None:
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return file


def commands(file: Path) -> dict[str, list[str]]:
    hooks = json.loads(file.read_text())["hooks"]
    return {e: [h["command"] for g in groups for h in g["hooks"]] for e, groups in hooks.items()}


def files(home: Path) -> set[str]:
    return {str(f.relative_to(home)) for f in home.rglob("*") if f.is_file()}


def test_hooks_and_status_line_are_added_and_others_stay_as_they_are(own_home: Path) -> None:
    file = settings_file(own_home, json.dumps(OTHERS, indent=4))
    done = claude()
    assert done.exit_code == 0, done.output
    found = json.loads(file.read_text())
    assert found["hooks"]["Stop"][0] == OTHERS["hooks"]["Stop"][0]
    assert found["hooks"]["PreToolUse"][0] == OTHERS["hooks"]["PreToolUse"][0]
    assert list(found)[:1] == ["model"]
    assert file.read_text().startswith('{\n    "model": "opus",')
    own = {event: lines[-1] for event, lines in commands(file).items() if lines}
    assert {"SessionStart", "UserPromptSubmit", "PreToolUse", "Stop", "StopFailure"} <= set(own)
    assert {"PreCompact", "SessionEnd", "PostToolUse", "Notification"} <= set(own)
    assert all(claude_settings.is_own(line) for line in own.values())
    assert found["statusLine"]["padding"] == 0
    assert claude_settings.is_own(found["statusLine"]["command"])
    former = Path(edits.load()[str(file)].aside)
    assert former.read_text() == "ccusage statusline\n"
    assert stat.S_IMODE(Path(state.watch_folder()).stat().st_mode) == 0o700
    (backup,) = file.parent.glob("settings.json.segue-*")
    assert backup.read_text() == json.dumps(OTHERS, indent=4)


def test_uninstall_gives_the_very_bytes_back_and_leaves_nothing(own_home: Path) -> None:
    text = json.dumps(OTHERS, indent="\t") + "\n\n"
    file = settings_file(own_home, text)
    before = files(own_home)
    claude()
    done = call(uninstall.command)
    assert done.exit_code == 0, done.output
    assert "as it was before" in done.output
    assert file.read_text() == text
    assert files(own_home) == before


def test_done_twice_it_changes_nothing_and_the_first_copy_counts(own_home: Path) -> None:
    file = settings_file(own_home, json.dumps(OTHERS))
    claude()
    once = file.read_bytes()
    again = claude()
    assert "is already set up" in again.output
    assert file.read_bytes() == once
    (own_home / "segue/config.toml").write_text("[policy]\nhard_mark = 0.9\n")
    claude()
    assert file.read_bytes() == once, "which marks count is asked when they are needed"
    former = re.sub(r"(statusline \S+) -", r"\1 0.3,0.5,0.7,0.85", file.read_text())
    assert former.encode() != once
    file.write_text(former)
    assert "hooks and status line are in" in claude().output
    assert file.read_bytes() == once
    assert sum(claude_settings.is_own(line) for line in commands(file)["Stop"]) == 1
    call(uninstall.command)
    assert file.read_text() == json.dumps(OTHERS)


def test_what_the_user_changed_since_stays(own_home: Path) -> None:
    file = settings_file(own_home, json.dumps(OTHERS))
    claude()
    found = json.loads(file.read_text())
    found["model"] = "sonnet"
    found["hooks"]["Stop"].append({"hooks": [{"type": "command", "command": "later"}]})
    file.write_text(json.dumps(found))
    done = call(uninstall.command)
    assert "the earlier copy" in done.output
    left = json.loads(file.read_text())
    assert left["model"] == "sonnet"
    assert left["statusLine"] == OTHERS["statusLine"]
    assert commands(file)["Stop"] == ["say done", "later"]
    assert not claude_settings.is_there(left)
    assert list(file.parent.glob("settings.json.segue-*")), "the copy is theirs to throw away"


def test_a_status_line_that_the_user_chose_since_stays(own_home: Path) -> None:
    file = settings_file(own_home, json.dumps(OTHERS))
    claude()
    found = json.loads(file.read_text())
    found["statusLine"] = {"type": "command", "command": "mine"}
    file.write_text(json.dumps(found))
    call(uninstall.command)
    assert json.loads(file.read_text())["statusLine"]["command"] == "mine"


def test_settings_that_were_not_there_are_made_private_and_taken_away(own_home: Path) -> None:
    claude()
    file = settings_file(own_home)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    call(uninstall.command)
    assert not file.exists()


def test_a_link_stays_one_and_the_mode_too(own_home: Path) -> None:
    real = own_home / "dotfiles/claude.json"
    real.parent.mkdir()
    real.write_text("{}")
    real.chmod(0o640)
    file = settings_file(own_home)
    file.parent.mkdir()
    file.symlink_to(real)
    claude()
    assert file.is_symlink()
    assert "hooks" in json.loads(real.read_text())
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    call(uninstall.command)
    assert file.is_symlink()
    assert real.read_text() == "{}"


def test_a_file_with_two_names_stays_one_file(own_home: Path) -> None:
    file = settings_file(own_home, json.dumps(OTHERS))
    file.chmod(0o640)
    twin = own_home / "dotfiles.json"
    os.link(file, twin)
    before = file.stat()
    claude()
    for each in (file, twin):
        info = each.stat()
        assert (info.st_ino, info.st_mode, info.st_nlink) == (before.st_ino, before.st_mode, 2)
        assert "hooks" in json.loads(each.read_text())
    call(uninstall.command)
    assert file.read_text() == twin.read_text() == json.dumps(OTHERS)
    assert twin.stat().st_nlink == 2
    assert files(own_home / ".claude") == {"settings.json"}


@pytest.mark.skipif(os.getuid() != 0, reason="takes two users")
def test_another_users_file_stays_theirs(own_home: Path) -> None:
    file = settings_file(own_home, json.dumps(OTHERS))
    os.chown(file, 65534, 65534)
    claude()
    info = file.stat()
    assert (info.st_uid, info.st_gid) == (65534, 65534)
    assert "hooks" in json.loads(file.read_text())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{broken", "not JSON"),
        ("[1]", "not an object"),
        ('{"hooks": []}', "hooks is not an object"),
        ('{"hooks": {"Stop": "x"}}', "hooks.Stop is not a list"),
        ('{"a": NaN}', "NaN is not a value"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a": ' + "[" * 400 + "]" * 400 + "}", "nested too deeply"),
    ],
)
def test_settings_that_are_none_are_one_line_and_stay_as_they_are(
    own_home: Path, text: str, said: str
) -> None:
    file = settings_file(own_home, text)
    before = files(own_home)
    done = claude()
    assert isinstance(done.exception, SegueError)
    assert said in str(done.exception)
    assert "nothing was written" in str(done.exception)
    assert len(str(done.exception).splitlines()) == 1
    assert file.read_text() == text
    assert files(own_home) == before


def test_what_is_printed_is_what_would_be_written(own_home: Path) -> None:
    printed = json.loads(claude("--print").stdout)
    claude()
    assert json.loads((own_home / ".claude/settings.json").read_text()) == printed


def test_print_writes_nothing(own_home: Path) -> None:
    done = claude("--print")
    assert set(json.loads(done.stdout)) == {"hooks", "statusLine"}
    assert files(own_home) == set()
    assert "mcp_servers.segue" in call(setup.command, "codex", "--print").stdout
    assert json.loads(call(setup.command, "opencode", "--print").stdout)["mcp"]["segue"]["enabled"]
    assert files(own_home) == set()


def test_the_status_line_can_be_left_out_and_one_that_is_not_a_command_is(own_home: Path) -> None:
    file = settings_file(own_home, json.dumps({"statusLine": {"type": "new", "x": 1}}))
    done = claude()
    assert "leaves it unchanged" in done.output
    assert json.loads(file.read_text())["statusLine"] == {"type": "new", "x": 1}
    call(uninstall.command)
    assert claude("--no-status-line").exit_code == 0
    assert json.loads(file.read_text())["statusLine"] == {"type": "new", "x": 1}


def test_another_config_folder_is_honoured_and_found_again(
    own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(own_home / "other"))
    claude()
    assert (own_home / "other/settings.json").exists()
    monkeypatch.delenv("CLAUDE_CONFIG_DIR")
    call(uninstall.command)
    assert not (own_home / "other/settings.json").exists()


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
HOOK = st.fixed_dictionaries({"type": st.just("command"), "command": st.text(max_size=9)})
GROUP = st.fixed_dictionaries({"hooks": st.lists(HOOK | JSON, max_size=2)}) | JSON
SETTINGS = st.dictionaries(st.text(max_size=9), JSON, max_size=3).flatmap(
    lambda rest: st.fixed_dictionaries(
        {},
        optional={
            "hooks": st.dictionaries(
                st.sampled_from(["Stop", "PreToolUse", "Setup"]),
                st.lists(GROUP, max_size=3),
                max_size=3,
            ),
            "statusLine": JSON | HOOK | st.none(),
        },
    ).map(lambda known: {**rest, **known})
)
TEXTS = st.builds(
    lambda value, indent, plain, end: json.dumps(value, indent=indent, ensure_ascii=plain) + end,
    SETTINGS,
    st.sampled_from([None, 0, 1, 2, 4, "\t"]),
    st.booleans(),
    st.sampled_from(["", "\n", "\r\n", "  \n"]),
) | st.sampled_from(["", "\n", "{}", '{"a": 1E400, "a": 1.50, "b": "\\ud800"}', "\ufeff{}"])


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TEXTS, st.booleans(), st.booleans())
def test_any_settings_come_back_byte_for_byte(
    own_home: Path, text: str, is_rewritten: bool, with_line: bool
) -> None:
    """Also if claude wrote the file anew in between, as it does."""
    file = settings_file(own_home)
    file.parent.mkdir(exist_ok=True)
    data = text.encode("utf-8", "surrogatepass")
    try:
        data.decode()
    except UnicodeDecodeError:
        return
    file.write_bytes(data)
    done = claude() if with_line else claude("--no-status-line")
    assert done.exit_code == 0, done.exception
    assert claude_settings.is_there(json.loads(file.read_bytes()))
    if is_rewritten and "E400" not in text:
        file.write_text(json.dumps(json.loads(file.read_bytes()), indent=2))
    gone = call(uninstall.command)
    assert gone.exit_code == 0, gone.output
    assert file.read_bytes() == data


def test_codex_gets_the_server_and_gives_it_back(own_home: Path) -> None:
    file = own_home / ".codex/config.toml"
    file.parent.mkdir()
    text = 'model = "x"  # mine\n[mcp_servers.other]\ncommand = "o"'
    file.write_text(text)
    done = call(setup.command, "codex")
    assert done.exit_code == 0, done.exception
    servers = tomllib.loads(file.read_text())["mcp_servers"]
    assert servers["segue"]["args"][-1:] == ["mcp"]
    assert servers["other"] == {"command": "o"}
    assert file.read_text().startswith(text)
    assert "already" in call(setup.command, "codex").output
    assert call(uninstall.command).exit_code == 0
    assert file.read_text() == text


def test_what_the_user_wrote_below_codexs_server_stays(own_home: Path) -> None:
    file = own_home / ".codex/config.toml"
    file.parent.mkdir()
    file.write_text('model = "x"\n')
    call(setup.command, "codex")
    more = '\n# mine: about the next\n[profiles.a]\nmodel = "y"\n'
    file.write_text(file.read_text() + more)
    assert call(uninstall.command).exit_code == 0
    assert file.read_text() == 'model = "x"\n\n' + more


def test_a_number_of_codexs_that_is_too_long_is_one_line(own_home: Path) -> None:
    file = own_home / ".codex/config.toml"
    file.parent.mkdir()
    file.write_text(f"a = {'9' * 5000}\n")
    done = call(setup.command, "codex")
    assert isinstance(done.exception, SegueError)
    assert call(uninstall.command).exit_code == 1


def test_a_copy_is_nobody_elses_and_gone_if_nothing_was_written(
    own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = settings_file(own_home, '{"env": {"KEY": "x"}}')
    file.chmod(0o644)
    real = edits._write

    def fails(path: str, text: str, mode: int) -> None:
        if path == str(file):
            (copy,) = file.parent.glob("*.segue-*")
            assert stat.S_IMODE(copy.stat().st_mode) == 0o600
            raise StateError("read-only")
        real(path, text, mode)

    monkeypatch.setattr(edits, "_write", fails)
    assert "read-only" in str(claude().exception)
    assert files(own_home) == {".claude/settings.json"}
    assert edits.load() == {}
    assert stat.S_IMODE(file.stat().st_mode) == 0o644


def test_what_claude_writes_while_it_is_taken_back_is_not_lost(
    own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = settings_file(own_home, "{}")
    claude()
    real = claude_settings.removed

    def meanwhile(settings: Any, former: Any) -> Any:
        file.write_text('{"model": "new", "hooks": {}}')
        return real(settings, former)

    monkeypatch.setattr(claude_settings, "removed", meanwhile)
    done = call(uninstall.command)
    assert (done.exit_code, "try again" in done.output) == (1, True)
    assert json.loads(file.read_text())["model"] == "new"


def test_opencode_gets_the_server_and_gives_it_back(own_home: Path) -> None:
    file = own_home / ".config/opencode/opencode.json"
    file.parent.mkdir(parents=True)
    text = '{"theme": "x",   "mcp": {"other": {"type": "remote"}}}'
    file.write_text(text)
    done = call(setup.command, "opencode")
    assert done.exit_code == 0, done.exception
    assert json.loads(file.read_text())["mcp"]["segue"]["command"][-1] == "mcp"
    assert "already" in call(setup.command, "opencode").output
    call(uninstall.command)
    assert file.read_text() == text


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'No module named mcp' >&2; exit 1", "No module named mcp"),
        ("cat >/dev/null; echo hello", "no answer, exit code 0"),
        (None, "No such file or directory"),
    ],
)
@pytest.mark.parametrize("agent", ["codex", "opencode"])
def test_a_server_that_does_not_start_is_not_registered(
    agent: str, script: str | None, why: str, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = own_home / "segue-without-parts"
    if script is not None:
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    monkeypatch.setattr("segue.system.units.own_argv", lambda *words: [str(program), *words])
    before = files(own_home)
    done = call(setup.command, agent)
    assert isinstance(done.exception, InputError)
    assert f"{program} mcp: {why}); nothing was written" in str(done.exception)
    assert files(own_home) == before


def test_an_agent_is_set_up_by_any_of_its_names_and_one_without_settings_is_told_so(
    own_home: Path,
) -> None:
    assert call(setup.command, "claude-code").exit_code == 0
    assert settings_file(own_home).exists()
    for name in ("gemini", "gemini-cli", "pi"):
        done = call(setup.command, name)
        assert isinstance(done.exception, InputError)
        assert "needs no setup: `segue run --agent " in str(done.exception)


def test_comments_in_opencodes_config_are_not_lost(own_home: Path) -> None:
    file = own_home / ".config/opencode/opencode.jsonc"
    file.parent.mkdir(parents=True)
    file.write_text("{ // mine\n}")
    done = call(setup.command, "opencode")
    assert "nothing was written" in str(done.exception)
    assert file.read_text() == "{ // mine\n}"


def test_a_server_of_that_name_that_is_not_segues_stays(own_home: Path) -> None:
    file = own_home / ".codex/config.toml"
    file.parent.mkdir()
    text = '[mcp_servers.segue]\ncommand = "theirs"\n'
    file.write_text(text)
    assert "stays as it is" in call(setup.command, "codex").output
    call(uninstall.command)
    assert file.read_text() == text


def test_one_file_that_is_broken_does_not_keep_the_others(own_home: Path) -> None:
    claude()
    codex = own_home / ".codex/config.toml"
    codex.parent.mkdir()
    codex.write_text("[broken")
    done = call(uninstall.command)
    assert done.exit_code == 1
    assert "not TOML" in done.output
    assert not settings_file(own_home).exists()
    again = call(uninstall.command)
    assert (again.exit_code, "no segue entries" in again.output) == (1, False), "it is not known"


def test_purge_deletes_what_segue_made_and_nothing_else(own_home: Path) -> None:
    folder = own_home / "segue"
    claude()
    own = (
        *("sessions.db", "sessions.db-wal", "runs.db", "runs.db-shm", "watch.db", "drill.jsonl"),
        *("runs/run-01234567/leg-001/stdout", "watch/token", "watch/watch.out"),
        *("sessions.db.damaged-20260101T000000-42", "watch/headless/w-01234567.log"),
        *("watch/segue.sock.hooks", "watch/former-01234567.sh", f"trusted/{'0' * 64}"),
    )
    others = (
        *("mine.txt", "runs/my-experiment/result", "runs/run-1/x", "runs/run-012345678/x"),
        *("runs.db.backup-of-mine", "runs.db.bak", "my-sessions.db", "watch/notes.md"),
        *("watch/headless/mine.log", "trusted/mine", "drill.jsonl.old", "runs/run-89abcdef"),
    )
    for name in (*own, *others, "config.toml"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    away = own_home / "away"
    away.mkdir()
    (away / "kept").write_text("")
    (folder / "runs" / "run-aaaaaaaa").symlink_to(away)
    done = call(uninstall.command, "--purge")
    assert done.exit_code == 0, done.output
    assert files(folder) == {"config.toml", *others}
    assert (away / "kept").exists()
    told = done.output.splitlines()[-1]
    assert told.startswith("kept, because segue did not create them: ")
    for name in ("mine.txt", "runs/my-experiment", "runs.db.backup-of-mine", "watch/notes.md"):
        assert name in told or "more" in told
    assert "config.toml" not in told


def test_purge_leaves_no_folder_that_is_empty(own_home: Path) -> None:
    folder = own_home / "segue"
    claude()
    (folder / "runs" / "run-01234567").mkdir(parents=True)
    (folder / "watch" / "headless").mkdir(parents=True)
    done = call(uninstall.command, "--purge")
    assert done.exit_code == 0
    assert "left" not in done.output
    assert list(folder.iterdir()) == []


def test_with_nothing_to_do_it_says_so(own_home: Path) -> None:
    assert "no segue entries" in call(uninstall.command).output
    assert files(own_home) == set()


def test_the_command_names_this_interpreter(own_home: Path) -> None:
    claude()
    line = commands(settings_file(own_home))["Stop"][0]
    assert f"exec {sys.executable} -I -S " in line
    assert line.endswith(f"{state.socket_path()} Stop")
    assert os.path.isabs(state.socket_path())
