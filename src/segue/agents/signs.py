"""How to tell from outside that an agent is running, and on which session. This data is separate
from the parsers, like the places, because every `status` needs it. All of it was observed with the
real programs."""

from typing import NamedTuple


class PidFiles(NamedTuple):
    """Files that running agents keep about themselves: `<pid>.json`. The attributes are names of
    fields."""

    folder: str
    """Below a home. Nothing else in it is ever opened, because it may contain secrets."""
    session_id: str
    start_ticks: str
    """The process's start time in kernel ticks, which distinguishes it from a later process with
    the same pid."""
    started_ms: str
    """The process's start time in unix milliseconds, less exact, for systems whose ticks segue does
    not know."""
    domain: str
    """The machine and pid namespace in which the pid is valid."""
    status: str
    statuses: dict[str, str]
    """Its words for busy, idle or waiting."""
    waiting_for: str


class Signs(NamedTuple):
    """What shows that an agent is running. If an agent has pid files, locks, open files or an open
    database, a process without any of these works on nothing; other agents are identified by their
    folder."""

    names: tuple[str, ...]
    """The name of its process (on Linux at most 15 letters)."""
    programs: tuple[str, ...] = ()
    """The programs that may have that name, if others do too; () means any."""
    scripts: tuple[str, ...] = ()
    """How the path of its script ends, if a runtime such as node runs it under its own name."""
    pid_files: PidFiles | None = None
    locks: str = ""
    """The pattern, below a home, of files that it keeps locked, named by session id. segue never
    tries to lock them, because the agent would take segue for another writer."""
    holds_files: bool = False
    """It keeps the session's file open."""
    holds_database: bool = False
    """It keeps the database of its sessions open, which shows the database but not the session."""
    session_flags: tuple[str, ...] = ()
    """Arguments that the id of its session may follow."""
    latest_flags: tuple[str, ...] = ()
    """Arguments with which it continues the newest session of its folder, if no id follows."""
    hides_arguments: bool = False
    """It may overwrite its arguments with its own name, so started by hand it may be on any
    session."""
    fork_flags: tuple[str, ...] = ()
    """With one of these, it does not continue the named session."""
    folder_flags: tuple[str, ...] = ()
    """Arguments that the session's folder follows, if that is not the process's own."""
    servers: tuple[str, ...] = ()
    """Arguments of a process that serves others: many sessions, in any folder."""


SIGNS: dict[str, Signs] = {
    "claude": Signs(
        names=("claude", "claude.exe"),
        scripts=("claude-code/cli.js",),
        pid_files=PidFiles(
            folder="sessions",
            session_id="sessionId",
            start_ticks="procStart",
            started_ms="startedAt",
            domain="pidDomain",
            status="status",
            statuses={"busy": "busy", "shell": "busy", "idle": "idle", "waiting": "waiting"},
            waiting_for="waitingFor",
        ),
        session_flags=("--resume", "-r", "--session-id"),
        latest_flags=("--continue", "-c"),
        fork_flags=("--fork-session",),
    ),
    "codex": Signs(
        names=("codex", "codex.exe"),
        locks="thread-writer-locks/*.lock",
        holds_files=True,
        session_flags=("resume",),
        latest_flags=("--last",),
        folder_flags=("-C", "--cd"),
        # A terminal is its client unless stated otherwise, and it keeps running when the terminal
        # has left.
        servers=("app-server",),
    ),
    "opencode": Signs(
        names=("opencode", "opencode.exe"),
        holds_database=True,
        session_flags=("--session", "-s"),
        latest_flags=("--continue", "-c"),
        fork_flags=("--fork",),
        folder_flags=("--dir",),
    ),
    "gemini": Signs(
        names=("gemini",),
        programs=("gemini", "node", "bun"),
        scripts=("gemini", "gemini.js", "gemini-cli/dist/index.js"),
        session_flags=("--session-id", "--resume", "-r"),
        latest_flags=("--resume", "-r"),  # "latest", a number, or nothing
    ),
    "pi": Signs(
        names=("pi",),  # it overwrites its arguments
        programs=("pi", "node", "bun"),
        scripts=("pi-coding-agent/dist/cli.js",),
        session_flags=("--session",),
        latest_flags=("--continue", "-c"),
        hides_arguments=True,
    ),
    "qwen": Signs(
        names=("qwen",),
        programs=("qwen", "node", "bun"),
        scripts=("qwen", "qwen-code/cli-entry.js", "qwen-code/cli.js", "qwen-code/dist/cli.js"),
        session_flags=("--session-id", "--resume", "-r"),
        latest_flags=("--continue", "-c"),
        fork_flags=("--fork-session",),
    ),
}
