"""How agents are driven, as far as no agent is needed: the command's arguments, files, refusals."""

import json
import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.waiting import until

from segue.agents import drives
from segue.agents.contracts.drive import Drive, LegOrder
from segue.agents.custom.drive import Custom, drive_of
from segue.errors import ConfigError

ID = "0a1f6766-6dc8-4537-a0c2-eefc12a12228"
NEW = "11111111-2222-4333-8444-555555555555"
ODD = "-Do \"it\" {prompt} {session}\n — ünïcode\u2028 'q' $HOME `ls`\n"
MINE = ("claude", "codex", "gemini")


def drive(name: str) -> Drive:
    found = drives.find(name)
    assert found is not None
    return found


def order(cwd: Path = Path("/nowhere"), **more: Any) -> LegOrder:
    known: dict[str, Any] = {"command": ("/bin/agent",), "prompt": ODD, "new_id": NEW}
    given = {**known, "cwd": str(cwd), "folder": str(cwd), "env": {}, **more}
    return LegOrder(**given)


def follows(argv: tuple[str, ...], flag: str) -> str:
    return argv[argv.index(flag) + 1]


# The registry


def test_an_alias_leads_to_the_drive_and_an_unknown_name_to_none() -> None:
    assert drives.find("claude-code") is drives.find("claude")
    assert drives.find("Gemini_CLI") is drives.find("gemini")
    assert drives.find("nobody") is None


@pytest.mark.parametrize("name", drives.NAMES)
def test_every_drive_is_of_an_agent_whose_records_can_be_read(name: str) -> None:
    from segue import agents

    assert agents.find(drive(name).agent) is not None
    assert drive(name).install


def test_what_is_registered_is_found_and_hides_what_comes_with_segue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drives, "_loaded", {})
    mine = drive_of("claude", Custom(command=("/opt/claude",)))
    drives.register("claude-code", mine)
    drives.register("mine", drive_of("mine", Custom(command=("mine",))))
    assert drives.find("claude") is mine
    assert drives.built_in("claude") is not mine
    assert drives.names() == [*drives.NAMES, "mine"]


@pytest.mark.parametrize("time", [1, 2])
def test_what_a_test_registers_is_unknown_to_the_next(time: int) -> None:
    assert drives.names() == [*drives.NAMES]
    drives.register("left-behind", drive_of("left-behind", Custom(command=("mine",))))


# Commands


def test_claude_is_told_its_prompt_as_a_line_and_its_input_stays_open() -> None:
    launch = drive("claude").launch(order())
    assert launch.argv[:2] == ("/bin/agent", "-p")
    assert follows(launch.argv, "--input-format") == "stream-json"
    assert follows(launch.argv, "--output-format") == "stream-json"
    assert follows(launch.argv, "--session-id") == launch.session_id == NEW
    assert "--resume" not in launch.argv
    assert launch.stays_open
    assert launch.input.endswith(b"\n")
    assert launch.input.count(b"\n") == 1
    assert json.loads(launch.input)["message"]["content"] == [{"type": "text", "text": ODD}]


def test_claude_continues_with_a_session_by_its_id() -> None:
    launch = drive("claude").launch(order(session_id=ID))
    assert follows(launch.argv, "--resume") == launch.session_id == ID
    assert "--session-id" not in launch.argv


def hook_of(given: Sequence[str], cwd: Path) -> tuple[dict[str, Any], list[str]]:
    """The settings that claude gets from segue, with the words of the command in them."""
    folder = cwd / "a leg's folder"
    launch = drive("claude").launch(order(cwd, halts=True, folder=str(folder), flags=tuple(given)))
    assert launch.argv[-4:-2] == ("--settings", str(folder / "settings.json"))
    settings = json.loads(launch.files["settings.json"])
    group = settings["hooks"]["SessionStart"][-1]
    assert group["matcher"] == "compact"
    return settings, shlex.split(group["hooks"][0]["command"])


def test_claude_waits_after_its_compaction_by_a_hook_of_the_leg(tmp_path: Path) -> None:
    _, command = hook_of([], tmp_path)
    assert command[-1] == str(tmp_path / "a leg's folder")
    folder = tmp_path / "leg"
    folder.mkdir()
    (folder / "halt-1.late").touch()
    hook = subprocess.Popen(
        [*command[:-1], folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert hook.stdin is not None
    hook.stdin.write('{"hook_event_name": "SessionStart", "source": "compact"}')
    hook.stdin.close()
    until((folder / "halt-2.json").exists)
    aside = tmp_path / "aside"
    aside.write_text(json.dumps({"words": ODD}))
    aside.rename(folder / "halt-2.answer")
    hook.wait()
    assert hook.stdout is not None
    output = json.loads(hook.stdout.read())["hookSpecificOutput"]
    assert output == {"hookEventName": "SessionStart", "additionalContext": ODD}
    assert (folder / "halt-2.taken").exists()


@pytest.mark.parametrize(
    "event", ['{"source": "startup"}', '{"source": "compact", "agent_id": "a1"}', "no JSON", "[]"]
)
def test_claudes_hook_waits_for_nothing_but_a_compaction(event: str, tmp_path: Path) -> None:
    _, command = hook_of([], tmp_path)
    done = subprocess.run(
        [*command[:-1], tmp_path], input=event, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not list(tmp_path.glob("halt-*"))


@pytest.mark.parametrize("is_file", [False, True])
def test_the_users_own_settings_of_claude_stay_as_they_are(is_file: bool, tmp_path: Path) -> None:
    mine = {"hooks": [{"type": "command", "command": "true"}]}
    own = {"sandbox": {"enabled": True}, "hooks": {"SessionStart": [mine], "Stop": [mine]}}
    given = json.dumps(own)
    if is_file:
        (tmp_path / "own.json").write_text(given)
        given = "own.json"
    settings, _ = hook_of(["--settings", given], tmp_path)
    assert settings["sandbox"] == own["sandbox"]
    assert settings["hooks"]["Stop"] == [mine]
    assert settings["hooks"]["SessionStart"][:-1] == [mine]


@pytest.mark.parametrize("given", ["absent.json", "{broken", '{"hooks": {"SessionStart": 7}}'])
def test_settings_that_claude_would_complain_about_are_left_to_it(given: str) -> None:
    launch = drive("claude").launch(order(halts=True, flags=("--settings", given)))
    assert launch.argv.count("--settings") == 1
    assert launch.files == {}


@pytest.mark.parametrize("name", MINE)
def test_the_users_flags_come_before_ours_so_that_no_list_takes_what_follows(name: str) -> None:
    flags = ("--some-list", "a", "b")
    launch = drive(name).launch(order(flags=flags, session_id=ID))
    at = launch.argv.index("--some-list")
    assert launch.argv[at : at + 3] == flags
    assert launch.argv[at + 3].startswith("-")


def test_what_claude_is_told_while_it_works_is_one_line_with_its_key() -> None:
    say = drive("claude").say
    assert say is not None
    line = say("now\nthis", "key-1")
    assert line.count(b"\n") == 1
    record = json.loads(line)
    assert (record["type"], record["uuid"]) == ("user", "key-1")
    watch = drive("claude").watch()
    assert watch.confirmed_key({**record, "isReplay": True}) == "key-1"
    assert watch.confirmed_key(record) == "", "only what is told back was heard"


def test_claudes_turn_is_over_at_a_result_and_only_there() -> None:
    watch = drive("claude").watch()
    assert watch.over({"type": "result", "is_error": True}) == "yes"
    assert watch.over({"type": "assistant"}) == "no"


def test_codex_reads_its_prompt_from_its_input_in_new_and_old_sessions() -> None:
    new = drive("codex").launch(order())
    old = drive("codex").launch(order(session_id=ID))
    assert new.argv[1] == old.argv[1] == "exec"
    assert (new.argv[-1], old.argv[-3:]) == ("-", ("resume", ID, "-"))
    assert new.input == old.input == ODD.encode()
    assert not new.stays_open
    assert (new.session_id, old.session_id) == ("", ID)


def test_codex_checks_for_a_repository_unless_there_is_none(tmp_path: Path) -> None:
    asks = "--skip-git-repo-check"
    below = tmp_path / "a/b"
    below.mkdir(parents=True)
    launch = drive("codex").launch
    assert asks in launch(order(below)).argv
    assert launch(order(below, flags=(asks,))).argv.count(asks) == 1
    (tmp_path / ".git").write_text("gitdir: elsewhere")  # a worktree has a file there
    assert asks not in launch(order(below)).argv


def test_codex_does_not_wait_without_end_unless_the_user_wants_it() -> None:
    launch = drive("codex").launch
    assert "features.unbounded_connection_retries=false" in launch(order()).argv
    wanted = ("--enable", "unbounded_connection_retries")
    assert [w for w in launch(order(flags=wanted)).argv if "unbounded" in w] == [wanted[1]]


@pytest.mark.parametrize("name", MINE)
@pytest.mark.parametrize("session", ["", ID])
def test_no_permission_is_added(name: str, session: str) -> None:
    launch = drive(name).launch(order(session_id=session))
    said = " ".join([*launch.argv, *launch.env]).lower()
    for word in ("danger", "yolo", "approv", "trust", "sandbox", "permission", "bypass", "allow"):
        assert word not in said
    assert "-y" not in launch.argv


def test_gemini_is_one_process_and_reads_its_prompt_from_its_input() -> None:
    new, old = drive("gemini").launch(order()), drive("gemini").launch(order(session_id=ID))
    assert new.env == {"GEMINI_CLI_NO_RELAUNCH": "1"}
    assert follows(new.argv, "--session-id") == new.session_id == NEW
    assert follows(old.argv, "-r") == old.session_id == ID
    assert new.input == ODD.encode()
    assert drive("gemini").resume_factor == 2.0


def test_a_prompt_that_is_not_text_can_be_sent_all_the_same() -> None:
    for name in MINE:
        assert drive(name).launch(order(prompt="\udcff")).input


# Refusals


@pytest.mark.parametrize(
    ("name", "flags", "named"),
    [
        ("claude", ["--resume", ID], "--resume"),
        ("claude", ["--output-format=text"], "--output-format"),
        ("claude", ["-pc"], "-p"),
        ("claude", ["--model", "opus", "--worktree"], "--worktree"),
        ("codex", ["--json"], "--json"),
        ("codex", ["-C", "/elsewhere"], "-C"),
        ("codex", ["--ephemeral"], "--ephemeral"),
        ("gemini", ["-o", "json"], "-o"),
        ("gemini", ["--session-id", ID], "--session-id"),
        ("gemini", ["say this"], "say this"),
        ("codex", ["resume"], "resume"),
        ("claude", ["--model", "opus", "--"], "--"),
    ],
)
def test_a_flag_that_the_channel_cannot_take_is_refused_by_name(
    name: str, flags: list[str], named: str
) -> None:
    said = drive(name).refuses(flags)
    assert named in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("claude", ["--model", "opus", "--allowedTools", "Bash(git *)", "--verbose"]),
        ("claude", ["--dangerously-skip-permissions", "--max-turns", "3"]),
        ("codex", ["-m", "gpt-5.5", "-s", "workspace-write", "-c", 'model="o3"', "-p", "work"]),
        ("gemini", ["-m", "gemini-2.5-pro", "-y", "--approval-mode=yolo"]),
        ("codex", []),
    ],
)
def test_the_users_own_flags_are_taken(name: str, flags: list[str]) -> None:
    assert drive(name).refuses(flags) == ""


# Session files


def session_file(name: str, home: Path, cwd: Path, session: str = ID) -> str:
    look = drive(name).session_file
    assert look is not None
    return look(session, {"HOME": str(home)}, str(cwd))


def plant(file: Path, *records: Any) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(r, separators=(",", ":")) + "\n" for r in records))
    return str(file)


@pytest.mark.parametrize("name", MINE)
@pytest.mark.parametrize("session", [ID, "", "*", "../x"])
def test_a_session_that_is_not_there_has_no_file(name: str, session: str, tmp_path: Path) -> None:
    assert session_file(name, tmp_path, tmp_path, session) == ""
    plant(tmp_path / f".{name}/projects/x/a.jsonl")
    plant(tmp_path / f".{name}/sessions/2026/01/01/rollout-x-a.jsonl")
    plant(tmp_path / f".{name}/tmp/x/chats/session-x-a.jsonl", {"sessionId": "a"})
    assert session_file(name, tmp_path, tmp_path, session) == ""


def test_claudes_file_is_found_by_the_folder_and_else_wherever_it_is(tmp_path: Path) -> None:
    cwd = tmp_path / "my proj_x.ü"
    cwd.mkdir()
    slug = "".join(c if c.isascii() and c.isalnum() else "-" for c in str(cwd))
    other = plant(tmp_path / f".claude/projects/other/{ID}.jsonl", {})
    assert session_file("claude", tmp_path, cwd) == other
    mine = plant(tmp_path / f".claude/projects/{slug}/{ID}.jsonl", {})
    assert session_file("claude", tmp_path, cwd) == mine
    link = tmp_path / "link"
    link.symlink_to(cwd)
    assert session_file("claude", tmp_path, link) == mine


def test_codexs_file_is_looked_for_in_the_newest_days_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = tmp_path / ".codex/sessions"
    old = plant(days / f"2025/12/31/rollout-2025-12-31T00-00-00-{ID}.jsonl", {})
    plant(days / "2026/01/02/rollout-2026-01-02T00-00-00-another.jsonl", {})
    assert session_file("codex", tmp_path, tmp_path) == old
    new = plant(days / f"2026/01/02/rollout-2026-01-02T00-00-00-{ID}.jsonl", {})
    seen: list[str] = []
    listdir = os.listdir

    def watched(path: str) -> list[str]:
        seen.append(path)
        return listdir(path)

    monkeypatch.setattr(os, "listdir", watched)
    assert session_file("codex", tmp_path, tmp_path) == new
    assert not [path for path in seen if path.endswith("31")]


HEADER = {"sessionId": ID, "kind": "main"}
CONTEXT = {"$set": {"messages": [{"type": "user", "content": [{"text": "<session_context>"}]}]}}
SAID = {"id": "1", "type": "user", "content": [{"text": "Go"}]}


def test_geminis_stubs_are_not_sessions_and_are_removed(tmp_path: Path) -> None:
    """As a resume in a later minute leaves them."""
    chats = tmp_path / ".gemini/tmp/project/chats"
    own = plant(chats / f"session-2026-01-01T10-00-{ID[:8]}.jsonl", HEADER, CONTEXT, SAID)
    stub = plant(chats / f"session-2026-01-01T10-07-{ID[:8]}.jsonl", HEADER, CONTEXT)
    twin = {**HEADER, "sessionId": f"{ID[:-1]}9"}
    another = plant(chats / f"session-2026-01-01T09-00-{ID[:8]}.jsonl", twin, CONTEXT)
    assert session_file("gemini", tmp_path, tmp_path) == own
    tidy = drive("gemini").tidy
    assert tidy is not None
    for _ in range(2):
        tidy(ID, {"HOME": str(tmp_path)}, str(tmp_path))
        assert sorted(map(str, chats.iterdir())) == [another, own]
    assert not Path(stub).exists()


def test_what_gemini_wrote_in_two_files_is_never_tidied_away(tmp_path: Path) -> None:
    chats = tmp_path / ".gemini/tmp/project/chats"
    whole = {"$set": {"messages": [SAID, SAID]}}
    files = [
        plant(chats / f"session-2026-01-01T10-00-{ID[:8]}.jsonl", HEADER, CONTEXT),
        plant(chats / f"session-2026-01-01T10-01-{ID[:8]}.jsonl", HEADER, whole),
        plant(chats / f"session-2026-01-01T10-02-{ID[:8]}.jsonl", HEADER, CONTEXT, SAID),
    ]
    tidy = drive("gemini").tidy
    assert tidy is not None
    tidy(ID, {"HOME": str(tmp_path)}, str(tmp_path))
    assert sorted(map(str, chats.iterdir())) == files
    assert session_file("gemini", tmp_path, tmp_path) == files[1]


# Programs


@pytest.mark.parametrize("name", MINE)
def test_a_launcher_is_taken_where_there_is_no_more_and_nothing_where_there_is_none(
    name: str, tmp_path: Path
) -> None:
    env = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    assert drive(name).find(env) is None
    file = tmp_path / name
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    assert drive(name).find(env) == (str(file),)


def test_agents_that_drills_keep_are_not_found_as_installed_agents(tmp_path: Path) -> None:
    from segue.agents.claude.drive import FILES

    kept = tmp_path / ".cache/segue/agents/claude/1.0/node_modules" / FILES[0]
    plant(kept)
    assert drive("claude").find({"PATH": str(tmp_path), "HOME": str(tmp_path)}) is None
    named = {"PATH": str(tmp_path), "SEGUE_AGENTS": str(tmp_path / ".cache/segue/agents")}
    assert drive("claude").find(named) == (str(kept),)


# The user's own


def own(**told: Any) -> Drive:
    return drive_of("mine", msgspec.convert(told, Custom))


def test_an_own_agent_gets_its_prompt_in_its_words_in_a_file_or_on_its_input() -> None:
    by_word = own(command=["mine", "--task={prompt}"]).launch(order(command=("/bin/mine",)))
    assert (by_word.argv, by_word.input) == (("/bin/mine", f"--task={ODD}"), b"")
    by_file = own(command=["mine", "{prompt_file}"]).launch(order(command=("/bin/mine",)))
    assert by_file.argv == ("/bin/mine", "/nowhere/prompt.md")
    assert (by_file.files, by_file.input) == ({"prompt.md": ODD}, b"")
    by_input = own(command=["mine"]).launch(order(command=("/bin/mine",)))
    assert (by_input.argv, by_input.input) == (("/bin/mine",), ODD.encode())


def test_an_own_agent_is_resumed_as_the_user_says_or_not_at_all() -> None:
    plain = own(command=["mine"])
    assert not plain.resumes
    able = own(
        command=["mine", "new"],
        resume=["mine", "on", "{session}", "{prompt}"],
        session=r"id: (\S+)",
    )
    assert able.resumes
    launch = able.launch(order(command=("/bin/mine",), session_id=ID))
    assert launch.argv == ("/bin/mine", "on", ID, ODD)
    assert launch.session_id == ID


def test_an_own_agent_takes_flags_only_where_there_is_a_place_for_them() -> None:
    assert "{flags}" in own(command=["mine"]).refuses(["--fast"])
    able = own(command=["mine", "{flags}", "{prompt}"])
    assert able.refuses(["--fast"]) == ""
    launch = able.launch(order(command=("/bin/mine",), flags=("--fast", "-x")))
    assert launch.argv == ("/bin/mine", "--fast", "-x", ODD)


def test_an_own_agents_lines_tell_its_session_and_its_end() -> None:
    hears = own(command=["mine"], session=r"id: (\w+)", done="^ok$", failed="^(no|ok but)").hears
    assert hears is not None
    assert hears("the id: abc").session_id == "abc"
    assert (hears("ok").outcome, hears("no").outcome, hears("so so").outcome) == (
        "done",
        "failed",
        "",
    )


def test_an_own_agent_is_found_by_the_path(tmp_path: Path) -> None:
    file = tmp_path / "mine"
    env = {"PATH": str(tmp_path)}
    mine = own(command=["mine", "{prompt}"])
    assert mine.find(env) is None
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    assert mine.find(env) == (str(file),)


@pytest.mark.parametrize(
    ("told", "named"),
    [
        ({}, "command"),
        ({"command": []}, "command"),
        ({"command": [" "]}, "program"),
        ({"command": ["x"], "resume": ["x", "{session}"]}, "session"),
        ({"command": ["x"], "resume": ["x"], "session": "(a)"}, "{session}"),
        ({"command": ["x"], "session": "a"}, "group"),
        ({"command": ["x"], "done": "(?<=a)b"}, "`done` is not an RE2 pattern"),
        ({"command": ["x"], "colour": "red"}, "colour"),
        ({"command": "x"}, "array"),
    ],
)
def test_nonsense_about_an_own_agent_is_refused_by_name(told: dict[str, Any], named: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=named.replace("{", r"\{")):
        msgspec.convert(told, Custom)


@pytest.mark.parametrize(
    ("name", "told", "said"),
    [
        ("mine", {"like": "nobody"}, "'nobody' is not one of claude"),
        ("claude", {"command": ["x"], "done": "a"}, "done is not needed"),
        ("mine", {"like": "codex", "command": ["x", "{prompt}"]}, "no placeholders"),
    ],
)
def test_what_does_not_go_with_a_known_agent_is_refused(
    name: str, told: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        drive_of(name, msgspec.convert(told, Custom))


def test_a_known_agent_may_be_another_program(tmp_path: Path) -> None:
    file = tmp_path / "my claude"
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    mine = drive_of("claude", Custom(command=(str(file), "--fast")))
    assert mine.find({}) == (str(file), "--fast")
    assert (mine.agent, mine.talks) == ("claude", True)
    assert mine.launch(order()).argv == drive("claude").launch(order()).argv


def test_one_that_is_like_another_has_its_own_environment_and_home(tmp_path: Path) -> None:
    mine = drive_of(
        "mine", Custom(command=("x",), like="claude-code", env={"A": "b"}, home=str(tmp_path))
    )
    assert mine.agent == "claude"
    assert mine.launch(order()).env == {"A": "b"}
    file = plant(tmp_path / f"projects/x/{ID}.jsonl", {})
    assert mine.session_file is not None
    assert mine.session_file(ID, {"HOME": "/nowhere"}, "/nowhere") == file


def test_the_home_of_one_like_gemini_is_the_folder_with_its_sessions(tmp_path: Path) -> None:
    home = tmp_path / ".gemini"
    mine = drive_of("mine", Custom(like="gemini", home=str(home)))
    file = plant(home / f"tmp/p/chats/session-x-{ID[:8]}.jsonl", HEADER, CONTEXT, SAID)
    assert mine.session_file is not None
    assert mine.session_file(ID, {"HOME": "/nowhere"}, "/nowhere") == file


def test_opencode_has_read_words_once_a_reply_answers_them() -> None:
    watch = drive("opencode").watch()

    def taken(message: str, key: str) -> dict[str, Any]:
        part = {"type": "text", "messageID": message, "metadata": {"segue": key}}
        return {"type": "message.part.updated", "properties": {"part": part}}

    def reply(parent: str) -> dict[str, Any]:
        info = {"id": "msg_9", "role": "assistant", "parentID": parent}
        return {"type": "message.updated", "properties": {"info": info}}

    told: tuple[dict[str, Any], ...] = (
        taken("m2", "k2"),
        reply("m1"),
        taken("m3", "k3"),
        reply("m3"),
        {},
        reply("m3"),
    )
    assert [watch.confirmed_key(record) for record in told] == ["", "", "", "k2", "k3", ""]
