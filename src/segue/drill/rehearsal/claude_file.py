"""The claude form's session file: `projects/<slug>/<session>.jsonl`, written record by record."""

import json
import os
import re
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from segue import __version__
from segue.drill.rehearsal.inbox import JSON

CUT_CALL = (
    "[Tool call interrupted: the session ended before this call's result was recorded. "
    "It may have run in part, wholly or not at all.]"
)
FILLER = "No response requested."


def stamp() -> str:
    """The current time in the format of the records."""
    now = time.time()
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now * 1000) % 1000:03}Z"


def new_id() -> str:
    """A new id for a session or a record."""
    return str(uuid.uuid4())


def find(home: Path, session: str) -> Path | None:
    """The file of a session, in any folder."""
    if not re.fullmatch(r"[\w-]+", session):
        return None
    return next(iter(home.glob(f"projects/*/{session}.jsonl")), None)


def folder_of(home: Path, cwd: str) -> Path:
    """The folder with the sessions of a working folder."""
    return home / "projects" / re.sub(r"[^A-Za-z0-9]", "-", cwd)


def newest(home: Path, cwd: str) -> Path | None:
    """The most recently used session of a folder."""
    files = list(folder_of(home, cwd).glob("*.jsonl"))
    return max(files, key=lambda file: file.stat().st_mtime, default=None)


class SessionFile:
    """A session file, to which it appends whole lines, each in one write."""

    def __init__(self, home: Path, session: str, cwd: str, path: Path | None = None) -> None:
        self.session, self.cwd = session, cwd
        self.path = path or folder_of(home, cwd) / f"{session}.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.parent: str | None = None
        self.recent: list[str] = []  # records since the model's last reply began

    def add(self, record: JSON, ident: str = "") -> str:
        """Appends a record of the conversation; returns its id."""
        ident = ident or new_id()
        self.write(
            {
                "parentUuid": self.parent,
                "isSidechain": False,
                **record,
                "uuid": ident,
                "timestamp": stamp(),
                "userType": "external",
                "entrypoint": "rehearsal",
                "cwd": self.cwd,
                "sessionId": self.session,
                "version": f"rehearsal {__version__}",
            }
        )
        self.parent = ident
        self.recent.append(ident)
        return ident

    def note(self, kind: str, **fields: object) -> None:
        """Appends a record outside the conversation."""
        self.write({"type": kind, **fields, "sessionId": self.session})

    def write(self, record: JSON) -> None:
        line = json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(handle, line.encode("utf-8", "replace"))
        finally:
            os.close(handle)


class History:
    """The conversation in a session file: the messages to send again, and the usage."""

    def __init__(self, path: Path) -> None:
        self.messages: list[JSON] = []
        self.models: dict[str, JSON] = {}  # usage so far
        self.parent: str | None = None
        self.used_tokens = 0
        self.recent: list[JSON] = []  # records since the model's last reply began
        self._last_id = ""
        self._preserved: list[JSON] = []  # what a compaction left unchanged
        for record in read_records(path):
            self._take(record)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to continue."""
        return not self.messages

    def open_calls(self) -> list[str]:
        """Tool calls at the end without a result."""
        asked = [
            block["id"]
            for message in self.messages[-1:]
            if message["role"] == "assistant"
            for block in message["content"]
            if block.get("type") == "tool_use"
        ]
        given = [
            block["tool_use_id"]
            for message in self.messages[-1:]
            if isinstance(message["content"], list)
            for block in message["content"]
            if block.get("type") == "tool_result"
        ]
        before = self.messages[-2]["content"] if given and len(self.messages) > 1 else []
        asked += [
            block["id"]
            for block in before
            if isinstance(block, dict) and block.get("type") == "tool_use"
        ]
        return [call for call in asked if call not in given]

    def _take(self, record: JSON) -> None:
        if record.get("type") == "cost-state" and isinstance(record.get("modelUsage"), dict):
            self.models = record["modelUsage"]
        if "parentUuid" in record:
            self.parent = record.get("uuid")
        if record.get("subtype") == "compact_boundary":
            preserved = _preserved_uuids(record)
            self._preserved = [one for one in self.recent if one.get("uuid") in preserved]
            self.messages, self.used_tokens = [], 0
        self._say(record)
        if record.get("isCompactSummary"):
            self.recent = []
            for one in self._preserved:
                self._say(one)

    def _say(self, record: JSON) -> None:
        message = record.get("message")
        attachment = record.get("attachment")
        if isinstance(attachment, dict) and attachment.get("type") == "queued_command":
            add(self.messages, "user", str(attachment.get("prompt", "")))
        if isinstance(attachment, dict) and attachment.get("type") == "hook_additional_context":
            add(self.messages, "user", told_by_hook(attachment.get("content")))
        if record.get("isApiErrorMessage") or not isinstance(message, dict):
            return
        content = message.get("content")
        if record.get("type") == "assistant" and message.get("id") != self._last_id:
            self._last_id, self.recent = str(message.get("id")), []
        self.recent.append(record)
        if record.get("type") == "user" and content:
            add(self.messages, "user", content)
        elif record.get("type") == "assistant" and isinstance(content, list) and content:
            add(self.messages, "assistant", content)
            usage = message.get("usage")
            if isinstance(usage, dict) and message.get("model") != "<synthetic>":
                self.used_tokens = used(usage) or self.used_tokens


def told_by_hook(content: object) -> str:
    """The text of a hook, in the words in which the model sees it."""
    texts = content if isinstance(content, list) else []
    text = "\n".join(str(each) for each in texts)
    return f"<system-reminder>\nSessionStart hook additional context: {text}\n</system-reminder>"


def add(messages: list[JSON], role: str, content: str | list[JSON]) -> None:
    """Adds a message; consecutive messages of one side are merged."""
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    if messages and messages[-1]["role"] == role:
        messages[-1]["content"] = [*messages[-1]["content"], *blocks]
    else:
        messages.append({"role": role, "content": blocks})


def _preserved_uuids(boundary: JSON) -> list[str]:
    """The records that a compaction left unchanged."""
    metadata = boundary.get("compactMetadata")
    preserved = metadata.get("preservedMessages") if isinstance(metadata, dict) else None
    uuids = preserved.get("uuids") if isinstance(preserved, dict) else None
    return uuids if isinstance(uuids, list) else []


def used(usage: JSON) -> int:
    """How many tokens of the window are in use after a reply with this usage."""
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return sum(int(usage.get(name) or 0) for name in (*names, "output_tokens"))


def read_records(path: Path) -> Iterator[JSON]:
    """The records of a session file. Lines that cannot be read are skipped, as by the real
    agent."""
    with path.open("rb") as file:
        for line in file:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                yield record
