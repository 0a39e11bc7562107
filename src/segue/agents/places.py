"""Where each agent keeps its sessions. This data is separate from the parsers, because every
`status` and `scan` needs the places, but rarely all the parsers.

`~` and `$XDG_…` are expanded, with the XDG defaults; all existing homes are searched.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from segue.core.lazy_pattern import lazy_pattern

if TYPE_CHECKING:
    from segue.agents.shared.fields import JSON

_NO_WORD = lazy_pattern(r"[^A-Za-z0-9]")
_UUID = lazy_pattern(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def no_parent(path: str) -> str:
    """For agents whose files are all separate sessions."""
    return ""


def stem(name: str) -> str:
    """A file's name without its ending."""
    return name.rpartition(".")[0] or name


def unnamed(name: str) -> str:
    """For agents whose file names do not contain the session's id."""
    return ""


def untold(records: "list[JSON]") -> str:
    """For agents whose records do not name the parent."""
    return "?"


def as_named(path: str, cwd: str) -> str:
    """For agents whose records name the folder."""
    return cwd


class SessionStore(NamedTuple):
    """Where an agent keeps its sessions."""

    homes: tuple[str, ...]
    variables: tuple[tuple[str, str], ...] = ()
    """Environment variables that move the home, and the path below them. The first one that is set
    replaces `homes`; it may name several folders, separated by commas."""
    files: tuple[str, ...] = ()
    """Patterns of session files below a home; `**` is any depth, without following links to
    folders."""
    database: str = ""
    """The pattern of an SQLite file with all sessions in it, instead of files."""
    session_id: Callable[[str], str] = stem
    """The session's id from its file's name; "" if only the records have it."""
    parent_id: Callable[[str], str] = no_parent
    """For a sub-agent's file: its parent's id from the path below the home; "?" if only the records
    have it; otherwise ""."""
    told_parent: "Callable[[list[JSON]], str]" = untold
    """For a file whose `parent_id` is "?": the parent's id from its first records; "" if it has no
    parent, "?" if the records do not say."""
    folder: Callable[[str, str], str] = as_named
    """The project's folder, from the session file's path below the home and the folder in its last
    records: the agent may have moved to another folder."""
    configs: tuple[str, ...] = ()
    """The agent's own config files that may state the size of a window; `{cwd}` is the session's
    folder."""
    projects: str = ""
    """A JSON file below the home that maps folders (keys) to short names (values), for records that
    do not name the folder; the name is a part of the session file's path."""


def _claude_parent(path: str) -> str:
    """`projects/<slug>/<session>/subagents/agent-….jsonl`. Older versions put the file next to its
    parent's, with the parent's id in its records."""
    parts = path.split("/")
    if "subagents" in parts[3:]:
        return parts[parts.index("subagents", 3) - 1]
    return "?" if parts[-1].startswith("agent-") else ""


def _claude_told_parent(records: "list[JSON]") -> str:
    """The session id in a sub-agent's records, which is its parent's."""
    from segue.agents.shared.fields import text

    return next(filter(None, (text(record, "sessionId") for record in records)), "?")


def _claude_folder(path: str, cwd: str) -> str:
    """The folder in which the session began: the file is in a folder that is named after it."""
    slug = path.split("/")[1] if path.count("/") > 1 else ""
    above = cwd
    while above.count("/") > 0 and above != "/":
        if _NO_WORD.sub("-", above) == slug:
            return above
        above = above.rpartition("/")[0]
    return cwd


def _codex_session(name: str) -> str:
    """`rollout-2026-11-15T18-17-41-<id>.jsonl`."""
    found = _UUID.search(name)
    return found[0] if found else stem(name)


def _codex_parent(path: str) -> str:
    """Always "?", because sub-agents' files are in the same folders as all others."""
    return "?"


def _codex_told_parent(records: "list[JSON]") -> str:
    """The parent in the first "session_meta", which is the file's own; a copy of its parent's
    history may follow."""
    from segue.agents.shared.fields import text

    meta = next((r for r in records if text(r, "type") == "session_meta"), None)
    return text(meta, "payload", "source", "subagent", "thread_spawn", "parent_thread_id")


def _gemini_parent(path: str) -> str:
    """The folder of a sub-agent's file, which is named after its parent."""
    parts = path.split("/")
    return parts[3] if len(parts) > 4 else ""


def _pi_session(name: str) -> str:
    """`2026-11-15T19-03-29-991Z_<id>.jsonl`; a file that the user named has the id inside."""
    return stem(name).rpartition("_")[2] if "_" in name else ""


STORES: dict[str, SessionStore] = {
    "claude": SessionStore(
        homes=("~/.claude", "$XDG_CONFIG_HOME/claude"),
        variables=(("CLAUDE_CONFIG_DIR", ""),),
        files=("projects/**/*.jsonl",),
        parent_id=_claude_parent,
        told_parent=_claude_told_parent,
        folder=_claude_folder,
    ),
    "codex": SessionStore(
        homes=("~/.codex",),
        variables=(("CODEX_HOME", ""),),
        files=("sessions/**/*.jsonl", "archived_sessions/**/*.jsonl"),
        session_id=_codex_session,
        parent_id=_codex_parent,
        told_parent=_codex_told_parent,
    ),
    "opencode": SessionStore(
        homes=(
            "$XDG_DATA_HOME/opencode",
            "~/.local/share/opencode",
            "~/Library/Application Support/opencode",
        ),
        variables=(("OPENCODE_DB", ""),),
        configs=("{cwd}/opencode.json", "$XDG_CONFIG_HOME/opencode/opencode.json"),
        database="opencode*.db",
    ),
    "gemini": SessionStore(
        homes=("~/.gemini",),
        variables=(("GEMINI_CLI_HOME", ".gemini"),),
        files=("tmp/*/chats/**/*.jsonl", "tmp/*/chats/**/*.json"),
        session_id=unnamed,
        parent_id=_gemini_parent,
        projects="projects.json",
    ),
    "pi": SessionStore(
        homes=("~/.pi/agent/sessions",),
        variables=(("PI_CODING_AGENT_SESSION_DIR", ""), ("PI_CODING_AGENT_DIR", "sessions")),
        files=("**/*.jsonl",),
        session_id=_pi_session,
        configs=("$PI_CODING_AGENT_DIR/models.json",),
    ),
    "qwen": SessionStore(
        homes=("~/.qwen",),
        variables=(("QWEN_RUNTIME_DIR", ""), ("QWEN_HOME", "")),
        files=("projects/*/chats/*.jsonl",),
    ),
}
