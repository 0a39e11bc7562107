"""How to tell from outside that an agent runs, and on which session: data, apart from the parsers
like the places, because every `status` needs it. All of it was seen on the real programs."""

from typing import NamedTuple


class PidFiles(NamedTuple):
    """Files that running agents keep about themselves: `<pid>.json`. The names are of fields."""

    folder: str
    """Below a home. Nothing else that is in it is ever opened: secrets may lie there."""
    session_id: str
    start_ticks: str
    """The process's start as the kernel counts it: tells it from a later one of the same pid."""
    started_ms: str
    """About the same by the clock, for systems where ticks are unknown."""
    domain: str
    """On which machine, and in which pid namespace, the pid means something."""
    status: str
    statuses: dict[str, str]
    """Its words, as busy, idle or waiting."""
    waiting_for: str


class Signs(NamedTuple):
    """What shows that an agent runs. An agent with pid files, locks, open files or an open database
    is at work on nothing if a process of it has none of these; others are told by their folder."""

    names: tuple[str, ...]
    """What its process is called (on Linux at most 15 letters)."""
    programs: tuple[str, ...] = ()
    """The programs that may be called so, where others have the same name; () is any."""
    scripts: tuple[str, ...] = ()
    """How the path of its script ends, if a runtime like node runs it under its own name."""
    pid_files: PidFiles | None = None
    locks: str = ""
    """The pattern, below a home, of files that it keeps locked, named by the session's id. They
    are never locked to find out: the agent would take segue for another writer."""
    holds_files: bool = False
    """It keeps the session's file open."""
    holds_database: bool = False
    """It keeps the database with its sessions open: says in which, not on which it works."""
    session_flags: tuple[str, ...] = ()
    """Arguments after which the id of its session may stand."""
    latest_flags: tuple[str, ...] = ()
    """Arguments by which it continues the newest session of its folder, if no id follows."""
    hides_arguments: bool = False
    """It may write its own name over its arguments: by hand it may be at any session."""
    fork_flags: tuple[str, ...] = ()
    """With one of these, it does not continue the session that is named."""
    folder_flags: tuple[str, ...] = ()
    """Arguments after which the session's folder stands, if that is not the process's own."""
    servers: tuple[str, ...] = ()
    """Arguments of a process that works for others: on many sessions, in any folder."""


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
        # A terminal is its client unless told otherwise, and it keeps what the terminal has left.
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
        names=("pi",),  # and its arguments are overwritten
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
