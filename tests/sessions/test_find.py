"""Finding sessions: every agent's places, whatever else is in them."""

import json
import os
import socket
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from segue.errors import ConfigError
from segue.sessions import find
from segue.sessions.find import FileOnDisk
from segue.system.config import config
from segue.system.files import state

ID = "0199f6a2-7c1d-7e10-8a52-3b1e5a1c9f01"
ROLLOUT = f"rollout-2026-11-15T18-17-41-{ID}.jsonl"

# Where each agent's sessions are below a home, with the session's id by the file's name.
PLACES = {
    "claude": ("projects/-p/s1.jsonl", "s1"),
    "codex": (f"sessions/2026/11/15/{ROLLOUT}", ID),
    "opencode": ("opencode.db", "opencode"),
    "gemini": ("tmp/p/chats/session-1.jsonl", ""),
    "pi": (f"--p--/2026-11-15T19-03-29-991Z_{ID}.jsonl", ID),
    "qwen": ("projects/-p/chats/s1.jsonl", "s1"),
}
DEFAULTS = {
    "claude": ".claude",
    "codex": ".codex",
    "opencode": ".local/share/opencode",
    "gemini": ".gemini",
    "pi": ".pi/agent/sessions",
    "qwen": ".qwen",
}


def put(*parts: str | Path, content: str = "{}\n") -> Path:
    path = Path(*parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def look(home: Path, **environment: str | Path) -> list[FileOnDisk]:
    told = {"HOME": str(home), **{name: str(value) for name, value in environment.items()}}
    return find.sessions(find.homes(told))


def paths(found: Iterable[FileOnDisk]) -> set[str]:
    return {file.path for file in found}


@pytest.mark.parametrize("agent", PLACES)
def test_each_agent_is_found_at_its_default_place(agent: str, own_home: Path) -> None:
    below, session = PLACES[agent]
    path = put(own_home, DEFAULTS[agent], below)
    (found,) = look(own_home)
    assert (found.agent, found.path, found.session_id) == (agent, str(path), session)
    assert found.home == str(own_home / DEFAULTS[agent])
    assert found.parent_id == ("?" if agent == "codex" else "")  # only its records tell
    info = path.stat()
    assert found.stamp == (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns)
    assert found.size == 3
    assert found.changed_at == pytest.approx(info.st_mtime)


@pytest.mark.parametrize(
    ("agent", "variable", "below"),
    [
        ("claude", "CLAUDE_CONFIG_DIR", ""),
        ("codex", "CODEX_HOME", ""),
        ("opencode", "XDG_DATA_HOME", "opencode"),
        ("opencode", "OPENCODE_DB", ""),
        ("gemini", "GEMINI_CLI_HOME", ".gemini"),
        ("pi", "PI_CODING_AGENT_DIR", "sessions"),
        ("pi", "PI_CODING_AGENT_SESSION_DIR", ""),
        ("qwen", "QWEN_HOME", ""),
        ("qwen", "QWEN_RUNTIME_DIR", ""),
    ],
)
def test_a_variable_moves_the_home_and_the_default_place_is_left(
    agent: str, variable: str, below: str, own_home: Path, tmp_path: Path
) -> None:
    name = PLACES[agent][0]
    default = put(own_home, DEFAULTS[agent], name)
    moved = put(tmp_path, "else where", below, name)
    found = look(own_home, **{variable: tmp_path / "else where"})
    # opencode's data folder is looked at in all its places: it never was moved by a variable.
    also = {str(default)} if variable == "XDG_DATA_HOME" else set()
    assert paths(found) == {str(moved)} | also
    assert paths(look(own_home, **{variable: " "})) == {str(default)}
    assert paths(look(own_home, **{variable: tmp_path / "nowhere"})) == also


def test_the_first_variable_that_is_set_counts(own_home: Path, tmp_path: Path) -> None:
    name = PLACES["pi"][0]
    first, second = put(tmp_path, "a", name), put(tmp_path, "b/sessions", name)
    found = look(
        own_home,
        PI_CODING_AGENT_SESSION_DIR=tmp_path / "a",
        PI_CODING_AGENT_DIR=tmp_path / "b",
    )
    assert paths(found) == {str(first)}
    assert paths(look(own_home, PI_CODING_AGENT_DIR=tmp_path / "b")) == {str(second)}


def test_a_variable_may_name_several_homes_and_the_users_own(
    own_home: Path, tmp_path: Path
) -> None:
    name = PLACES["claude"][0]
    one, two, mine = put(tmp_path, "1", name), put(tmp_path, "2", name), put(own_home, "c", name)
    told = f" {tmp_path}/1 , {tmp_path}/2,, {tmp_path}/3,~/c,{tmp_path}/1/"
    assert paths(look(own_home, CLAUDE_CONFIG_DIR=told)) == {str(one), str(two), str(mine)}
    assert len(find.homes({"HOME": str(own_home), "CLAUDE_CONFIG_DIR": told})) == 3


@pytest.mark.parametrize("moved", [False, True])
def test_claude_is_found_in_the_config_folder_too(
    moved: bool, own_home: Path, tmp_path: Path
) -> None:
    name = PLACES["claude"][0]
    old = put(own_home, ".claude", name)
    folder = tmp_path / "xdg" if moved else own_home / ".config"
    new = put(folder, "claude", name)
    environment = {"XDG_CONFIG_HOME": folder} if moved else {}
    assert paths(look(own_home, **environment)) == {str(old), str(new)}


def test_a_database_may_be_named_itself_and_only_that_one_is_meant(
    own_home: Path, tmp_path: Path
) -> None:
    mine, other = put(tmp_path, "work.db"), put(tmp_path, "opencode.db")
    assert paths(look(own_home, OPENCODE_DB=mine)) == {str(mine)}
    assert paths(look(own_home, OPENCODE_DB=tmp_path)) == {str(other)}


def test_a_database_named_by_a_bare_name_is_in_opencodes_own_folder(
    own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """opencode joins a name that is not absolute to its data folder, not to where it runs."""
    monkeypatch.chdir(tmp_path)
    put(tmp_path, "work.db")
    mine = put(own_home, ".local/share/opencode/work.db")
    assert paths(look(own_home, OPENCODE_DB="work.db")) == {str(mine)}


def test_a_database_named_by_a_relative_path_is_below_opencodes_own_folder(
    own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    put(tmp_path, "sub/x.db")
    mine = put(own_home, ".local/share/opencode/sub/x.db")
    assert paths(look(own_home, OPENCODE_DB="sub/x.db")) == {str(mine)}
    moved = put(tmp_path, "data/opencode/sub/x.db")
    found = look(own_home, OPENCODE_DB="sub/x.db", XDG_DATA_HOME=tmp_path / "data")
    assert paths(found) == {str(mine), str(moved)}


def test_a_database_in_memory_has_no_file_and_the_usual_one_is_not_meant(
    own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = own_home / ".local/share/opencode"
    for place in (folder / ":memory:", folder / "opencode.db", tmp_path / ":memory:"):
        put(place)
    assert paths(look(own_home, OPENCODE_DB=":memory:")) == set()


def test_databases_of_other_channels_are_found_and_their_logs_are_not(own_home: Path) -> None:
    folder = own_home / ".local/share/opencode"
    for name in ("opencode.db", "opencode-dev.db", "opencode.db-wal", "opencode.db-shm", "x.db"):
        put(folder, name)
    assert {Path(p).name for p in paths(look(own_home))} == {"opencode.db", "opencode-dev.db"}


def test_what_is_written_to_a_databases_log_changes_its_stamp(own_home: Path) -> None:
    folder = own_home / ".local/share/opencode"
    put(folder, "opencode.db")
    log = put(folder, "opencode.db-wal", content="1")
    (before,) = look(own_home)
    log.write_text("12")
    (after,) = look(own_home)
    assert after.stamp != before.stamp
    assert after.size == 5


def test_a_log_that_is_written_over_changes_the_databases_stamp(own_home: Path) -> None:
    folder = own_home / ".local/share/opencode"
    put(folder, "opencode.db")
    log = put(folder, "opencode.db-wal", content="1")
    (before,) = look(own_home)
    os.utime(log, ns=(log.stat().st_mtime_ns + 10**9,) * 2)  # it is used again from its start
    (after,) = look(own_home)
    assert after.stamp != before.stamp


def test_homes_of_the_config_come_on_top(own_home: Path, tmp_path: Path) -> None:
    name = PLACES["claude"][0]
    expected = {str(put(own_home, ".claude", name))}
    expected |= {str(put(tmp_path, "b", name)), str(put(own_home, "c", name))}
    expected.add(str(put(tmp_path, "d", PLACES["codex"][0])))
    put(
        Path(state.config_folder()),
        "config.toml",
        content=f'[homes]\nclaude-code = ["{tmp_path}/b", "~/c", "~/.claude", "/nowhere"]\n'
        f'codex = "{tmp_path}/d"\n',
    )
    assert config.homes() == state.added_homes()
    found = find.sessions(find.homes({"HOME": str(own_home)}, state.added_homes()))
    assert paths(found) == expected
    assert len(found) == 4


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("[homes]\nwho = []", "'who' is not one of claude"),
        ("[homes]\nclaude = 1", "must be a list"),
        ('[homes]\nclaude = ["a", 1]', "must be a list"),
        ("homes = 1", "must be a table"),
        ("[homes", "not TOML"),
    ],
)
def test_a_mistake_in_the_config_is_reported(written: str, told: str) -> None:
    put(Path(state.config_folder()), "config.toml", content=written)
    with pytest.raises(ConfigError, match=r"config\.toml.*" + told):
        state.added_homes()


def test_without_a_config_there_are_no_more_homes() -> None:
    assert state.added_homes() == {}


# --- what belongs to whom -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("agent", "below", "session", "parent"),
    [
        ("claude", "projects/-p/s1.jsonl", "s1", ""),
        ("claude", "projects/-p/s1/subagents/agent-a1.jsonl", "agent-a1", "s1"),
        ("claude", "projects/-p/s1/subagents/deep/agent-a1.jsonl", "agent-a1", "s1"),
        ("claude", "projects/-p/agent-a1.jsonl", "agent-a1", "?"),
        ("claude", "projects/subagents/s1.jsonl", "s1", ""),
        ("claude", "projects/-p/subagents.jsonl", "subagents", ""),
        ("codex", f"archived_sessions/{ROLLOUT}", ID, "?"),
        ("codex", "sessions/mine.jsonl", "mine", "?"),
        ("gemini", "tmp/p/chats/session-1.json", "", ""),
        ("gemini", "tmp/p/chats/s1/sub.jsonl", "", "s1"),
        ("pi", "--p--/mine.jsonl", "", ""),
    ],
)
def test_a_sub_agents_file_belongs_to_its_parent(
    agent: str, below: str, session: str, parent: str, own_home: Path
) -> None:
    put(own_home, DEFAULTS[agent], below)
    (found,) = look(own_home)
    assert (found.agent, found.session_id, found.parent_id) == (agent, session, parent)


def test_other_files_are_passed_over(own_home: Path) -> None:
    for name in (
        ".claude/history.jsonl", ".claude/projects/-p/s1.jsonl.bak", ".claude/projects/-p/s1.json",
        ".claude/projects/-p/s1/subagents/agent-a.meta.json", ".claude/todos/s1.jsonl",
        ".codex/history.jsonl", ".codex/log/x.jsonl", ".gemini/tmp/p/logs.json",
        ".qwen/projects/-p/s1.jsonl", ".pi/agent/x.jsonl",
    ):  # fmt: skip
        put(own_home, name)
    assert look(own_home) == []


def test_sessions_come_in_the_order_of_their_paths(own_home: Path) -> None:
    for name in ("b", "a", "C", "a/x", "-"):
        put(own_home, ".claude/projects", f"{name}.jsonl")
    found = [file.path for file in look(own_home)]
    assert found == sorted(found)
    assert len(found) == 5


# --- what lies about ------------------------------------------------------------------------------


def test_a_file_with_two_names_is_found_once(own_home: Path, tmp_path: Path) -> None:
    folder = own_home / ".claude/projects"
    path = put(folder, "-p/s1.jsonl")
    os.link(path, folder / "-p/hard.jsonl")
    (folder / "-p/soft.jsonl").symlink_to(path)
    put(tmp_path, "away.jsonl")
    (folder / "-p/away1.jsonl").symlink_to(tmp_path / "away.jsonl")
    (folder / "-p/away2.jsonl").symlink_to(tmp_path / "away.jsonl")
    found = look(own_home)
    assert len(found) == 2
    assert len({file.stamp[:2] for file in found}) == 2


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_names_of_a_file_the_first_counts_in_whatever_order_a_folder_lists_them(
    order: int, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = own_home / ".claude/projects"
    first = put(folder, "-p-a/s1.jsonl")
    for name in ("-p/a.jsonl", "-p-a/s2.jsonl", "-p/s0.jsonl", "-q/a.jsonl"):
        (folder / name).parent.mkdir(exist_ok=True)
        os.link(first, folder / name)
    scandir = os.scandir

    def listed(path: str) -> list["os.DirEntry[str]"]:
        with scandir(path) as entries:
            return sorted(entries, key=lambda entry: entry.name)[::order]

    monkeypatch.setattr(os, "scandir", listed)
    assert paths(look(own_home)) == {str(first)}  # "-" is before "/"


def test_a_home_that_is_a_link_to_another_is_looked_at_once(own_home: Path) -> None:
    path = put(own_home, ".claude", PLACES["claude"][0])
    (own_home / ".config").mkdir()
    (own_home / ".config/claude").symlink_to(own_home / ".claude")
    assert [file.path for file in look(own_home)] == [str(path)]
    assert len(find.homes({"HOME": str(own_home)})) == 1


def test_loops_of_links_end(own_home: Path) -> None:
    project = put(own_home, ".claude", PLACES["claude"][0]).parent
    (project / "up").symlink_to(own_home / ".claude")
    (project / "self").symlink_to(project)
    (project / "a.jsonl").symlink_to(project / "b.jsonl")
    (project / "b.jsonl").symlink_to(project / "a.jsonl")
    (project / "lost.jsonl").symlink_to("/nowhere.jsonl")
    chats = put(own_home, ".gemini/tmp/p/chats/s.jsonl").parent
    (chats.parent.parent / "q").symlink_to(own_home / ".gemini/tmp")
    (chats / "again").symlink_to(chats)
    assert {Path(p).name for p in paths(look(own_home))} == {"s1.jsonl", "s.jsonl"}
    (own_home / ".codex").symlink_to(own_home / ".codex")
    assert len(look(own_home)) == 2


@pytest.mark.parametrize("agent", PLACES)
def test_pipes_sockets_and_folders_with_fitting_names_are_passed_over_at_once(
    agent: str, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(own_home, DEFAULTS[agent], PLACES[agent][0])
    name = path.name.replace("opencode", "opencode{}") if agent == "opencode" else "{}" + path.name
    os.mkfifo(path.with_name(name.format("1")))
    path.with_name(name.format("2")).mkdir()
    monkeypatch.chdir(path.parent)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name.format("3"))
        found: list[FileOnDisk] = []
        # A reader that opens the pipe would wait for ever: it would be seen here.
        looking = threading.Thread(target=lambda: found.extend(look(own_home)), daemon=True)
        looking.start()
        looking.join(30)
    assert paths(found) == {str(path)}


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_folders_that_are_not_ours_to_see_are_passed_over(own_home: Path) -> None:
    path = put(own_home, ".claude/projects/-p/s1.jsonl")
    closed = put(own_home, ".claude/projects/-q/s2.jsonl").parent
    half = put(own_home, ".claude/projects/-r/s3.jsonl").parent
    closed.chmod(0o000)
    half.chmod(0o400)  # its names can be seen, and nothing else
    try:
        assert paths(look(own_home)) == {str(path)}
    finally:
        closed.chmod(0o700)
        half.chmod(0o700)


def test_folders_that_fail_are_passed_over(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for root, for whom nothing is closed."""
    path = put(own_home, ".claude/projects/-p/s1.jsonl")
    put(own_home, ".claude/projects/-q/s2.jsonl")
    real = os.scandir

    def scandir(folder: str) -> object:
        if str(folder).endswith("-q"):
            raise PermissionError(13, "Permission denied", folder)
        return real(folder)

    monkeypatch.setattr(os, "scandir", scandir)
    assert paths(look(own_home)) == {str(path)}


def test_a_home_that_is_a_file_or_nothing_is_left_out(own_home: Path) -> None:
    put(own_home, ".claude")
    put(own_home, ".codex/sessions")
    assert look(own_home) == []
    assert look(own_home, CLAUDE_CONFIG_DIR="\t") == []
    assert look(own_home, CLAUDE_CONFIG_DIR=",,") == []


# --- what a home's own files tell -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (json.dumps({"projects": {"/home/dev/p": "p", "/home/dev/q": "q"}}), "/home/dev/q"),
        (json.dumps({"projects": {"/home/dev/p": "p"}}), ""),
        (json.dumps({"projects": ["q"]}), ""),
        (json.dumps({"projects": {"/home/dev/q": None}}), ""),
        (json.dumps({"projects": {"/home/dev/q": ["q"]}}), ""),
        ("[]", ""),
        ("{", ""),
        ("[" * 100_000, ""),
    ],
)
def test_the_home_names_the_project_of_a_session(content: str, told: str, own_home: Path) -> None:
    path = put(own_home, ".gemini/tmp/q/chats/s.jsonl")
    put(own_home, ".gemini/projects.json", content=content)
    (home,) = find.homes({"HOME": str(own_home)})
    assert find.project_folder(home.path, home.store, str(path)) == told


def test_a_home_that_tells_nothing_of_projects_is_not_a_mistake(own_home: Path) -> None:
    path = put(own_home, ".gemini/tmp/q/chats/s.jsonl")
    (home,) = find.homes({"HOME": str(own_home)})
    assert find.project_folder(home.path, home.store, str(path)) == ""


def test_every_found_agent_has_a_profile_but_markdown(own_home: Path) -> None:
    for agent, (below, _) in PLACES.items():
        put(own_home, DEFAULTS[agent], below)
    put(own_home, ".opencode/sessions/s.md")
    found = look(own_home)
    assert {file.agent for file in found} == {*PLACES, find.MARKDOWN}
    for file in found:
        profile = find.profile_of(file.agent)
        assert (profile.name if profile else find.MARKDOWN) == file.agent
