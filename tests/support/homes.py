"""Builds agents' homes for tests: a claude session reply by reply, an opencode database."""

import json
import sqlite3
from pathlib import Path
from typing import Any

SESSION = "11111111-2222-4333-8444-555555555555"
START = 1_794_787_200.0  # 2026-11-16T00:00:00Z


def stamp(at: float) -> str:
    """A record's time."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def prompt(
    text: str = "go on", *, at: float = START, session: str = SESSION, cwd: str = "/p"
) -> str:
    """The user's words."""
    return json.dumps(
        {
            "parentUuid": None,
            "isSidechain": False,
            "type": "user",
            "promptSource": "typed",
            "message": {"role": "user", "content": text},
            "uuid": f"u{at}",
            "timestamp": stamp(at),
            "cwd": cwd,
            "sessionId": session,
        }
    )


def reply(
    number: int,
    used: int,
    *,
    at: float = START,
    model: str = "claude-sonnet-4-5",
    session: str = SESSION,
    cwd: str = "/p",
    stop: str | None = "end_turn",
    content: list[dict[str, Any]] | None = None,
    side: bool = False,
) -> str:
    """A record of a reply that fills the window up to `used`."""
    return json.dumps(
        {
            "parentUuid": None,
            "isSidechain": side,
            "message": {
                "id": f"msg_{number}",
                "type": "message",
                "role": "assistant",
                "model": model,
                "content": content or [{"type": "text", "text": "Done."}],
                "stop_reason": stop,
                "usage": {
                    "input_tokens": 10,
                    "cache_creation_input_tokens": 0,
                    "cache_read_input_tokens": used - 50,
                    "output_tokens": 40,
                },
            },
            "requestId": f"req_{number}",
            "type": "assistant",
            "uuid": f"a{number}",
            "timestamp": stamp(at),
            "cwd": cwd,
            "sessionId": session,
        },
        separators=(",", ":"),
    )


def interruption(*, at: float = START, session: str = SESSION, cwd: str = "/p") -> str:
    """What claude writes when Escape ends a turn."""
    record = json.loads(prompt("", at=at, session=session, cwd=cwd))
    del record["promptSource"]
    said = [{"type": "text", "text": "[Request interrupted by user for tool use]"}]
    record["message"]["content"] = said
    return json.dumps(record)


def call(name: str, **given: Any) -> list[dict[str, Any]]:
    """The content of a reply that calls a tool."""
    return [{"type": "tool_use", "id": f"toolu_{name}", "name": name, "input": given}]


def claude_session(
    home: Path, *lines: str, session: str = SESSION, slug: str = "-p", folder: str = ".claude"
) -> Path:
    """Writes a transcript where Claude Code keeps it."""
    file = home / folder / "projects" / slug / f"{session}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(line + "\n" for line in lines))
    return file


_SCHEMA = """
CREATE TABLE session (id text PRIMARY KEY, parent_id text, directory text NOT NULL,
  title text NOT NULL, model text, time_created integer NOT NULL, time_updated integer NOT NULL);
CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL,
  time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE part (id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL,
  time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE todo (session_id text NOT NULL, content text NOT NULL, status text NOT NULL,
  priority text NOT NULL, position integer NOT NULL, time_created integer, time_updated integer);
"""


class OpencodeDb:
    """A database as opencode 1.18 writes it: WAL, one connection that stays open."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.executescript(_SCHEMA)

    def session(self, name: str, cwd: str, at: float, parent: str | None = None) -> None:
        """Starts a session."""
        model = json.dumps({"id": "test-model", "providerID": "fake"})
        row = (name, parent, cwd, "t", model, _ms(at), _ms(at))
        self.db.execute("INSERT INTO session VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    def message(self, name: str, session: str, at: float, **data: Any) -> None:
        """Writes a message."""
        data = {"time": {"created": _ms(at)}, **data}
        row = (name, session, _ms(at), _ms(at), json.dumps(data))
        self.db.execute("INSERT OR REPLACE INTO message VALUES (?, ?, ?, ?, ?)", row)
        self.db.execute("UPDATE session SET time_updated = ? WHERE id = ?", (_ms(at), session))

    def part(self, name: str, message: str, session: str, at: float, **data: Any) -> None:
        """Writes a part of a message."""
        row = (name, message, session, _ms(at), _ms(at), json.dumps(data))
        self.db.execute("INSERT OR REPLACE INTO part VALUES (?, ?, ?, ?, ?, ?)", row)

    def answer(self, number: int, session: str, at: float, total: int, **more: Any) -> None:
        """A finished reply that fills the window up to `total`."""
        name = f"msg_{number:04}"
        tokens = {
            "total": total,
            "input": total - 130,
            "output": 20,
            "reasoning": 10,
            "cache": {"read": 100, "write": 0},
        }
        self.message(
            name,
            session,
            at,
            role="assistant",
            mode="build",
            agent="build",
            modelID="test-model",
            providerID="fake",
            tokens=tokens,
            finish="stop",
            **{"time": {"created": _ms(at), "completed": _ms(at) + 900}, **more},
        )
        parts: list[dict[str, Any]] = [
            {"type": "step-start"},
            {"type": "text", "text": "ok", "time": {"start": _ms(at), "end": _ms(at) + 5}},
            {"type": "step-finish", "reason": "stop", "tokens": tokens},
        ]
        for place, data in enumerate(parts):
            self.part(f"prt_{number:04}{place}", name, session, at, **data)


def _ms(at: float) -> int:
    return round(at * 1000)
