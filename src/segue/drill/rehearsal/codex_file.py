"""The codex form's session file: `sessions/YYYY/MM/DD/rollout-<time>-<thread>.jsonl`."""

import fcntl
import json
import os
import time
from pathlib import Path

from segue import __version__
from segue.drill.rehearsal.claude_file import new_id, read_records, stamp
from segue.drill.rehearsal.inbox import JSON

NO_USAGE = {
    "input_tokens": 0,
    "cached_input_tokens": 0,
    "cache_write_input_tokens": 0,
    "output_tokens": 0,
    "reasoning_output_tokens": 0,
    "total_tokens": 0,
}


class BusyError(Exception):
    """Another process is writing this thread."""


def find(home: Path, thread: str) -> Path | None:
    """The file of a thread, or of the newest thread for "last"; None if there is none."""
    pattern = "*.jsonl" if thread == "last" else f"*-{thread}.jsonl"
    files = sorted((home / "sessions").glob(f"*/*/*/rollout-{pattern}"))
    return max(files, key=lambda file: file.stat().st_mtime_ns, default=None)


class Rollout:
    """A thread's file, to which it appends whole lines. Raises `BusyError` if another process
    writes the thread."""

    def __init__(self, home: Path, path: Path | None = None) -> None:
        self.thread = path.stem[-36:] if path else new_id()
        if path is None:
            now = time.localtime()
            folder = home / "sessions" / time.strftime("%Y/%m/%d", now)
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"rollout-{time.strftime('%Y-%m-%dT%H-%M-%S', now)}-{self.thread}.jsonl"
        self.path = path
        self.ordinal = 0
        self.handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            fcntl.flock(self.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BusyError from None

    def add(self, kind: str, payload: JSON, **more: object) -> None:
        record = {"timestamp": stamp(), "ordinal": self.ordinal, "type": kind, "payload": payload}
        line = json.dumps({**record, **more}, ensure_ascii=False, separators=(",", ":")) + "\n"
        os.write(self.handle, line.encode("utf-8", "replace"))
        self.ordinal += 1

    def event(self, kind: str, **payload: object) -> None:
        """Appends an event."""
        self.add("event_msg", {"type": kind, **payload})

    def item(self, kind: str, turn: str, **fields: object) -> None:
        """Appends a completed item, as an event."""
        item = {"type": kind, "id": new_id(), **fields}
        self.event("item_completed", thread_id=self.thread, turn_id=turn, item=item)

    def meta(self, cwd: str) -> None:
        """Appends the first record of a new thread."""
        self.add(
            "session_meta",
            {
                "session_id": self.thread,
                "id": self.thread,
                "timestamp": stamp(),
                "cwd": cwd,
                "originator": "rehearsal",
                "cli_version": __version__,
                "source": "exec",
                "model_provider": "rehearsal",
            },
        )

    def counted(self, total: JSON, last: JSON, window: int, limits: JSON) -> None:
        """Appends the current usage."""
        info = {
            "total_token_usage": total,
            "last_token_usage": last,
            "model_context_window": window,
        }
        self.event(
            "token_count",
            info=info if total["total_tokens"] else None,
            rate_limits={
                "limit_id": "codex",
                "primary": limits.get("primary"),
                "secondary": limits.get("secondary"),
                "credits": None,
                "plan_type": None,
                "rate_limit_reached_type": None,
            },
        )


class Past:
    """What a thread said and did, so that it can continue."""

    def __init__(self, path: Path) -> None:
        self.items: list[JSON] = []
        self.total: JSON = dict(NO_USAGE)
        self.used = 0  # tokens; the whole window, if the last record says that it is full
        self.ordinal = 0
        for record in read_records(path):
            payload = record.get("payload")
            self.ordinal += 1
            if isinstance(payload, dict):
                self._take(str(record.get("type")), payload, record)

    def _take(self, kind: str, payload: JSON, record: JSON) -> None:
        metadata = record.get("metadata")
        if kind == "response_item":
            if not (isinstance(metadata, dict) and metadata.get("compaction_output")):
                self.items.append(payload)
        elif kind == "compacted" and isinstance(payload.get("replacement_history"), list):
            self.items = list(payload["replacement_history"])
        elif kind == "token_usage_record":
            self.total = payload.get("thread_token_usage", self.total)
            self.used = int(payload.get("usage", {}).get("total_tokens", 0))
        elif payload.get("type") == "token_count" and isinstance(payload.get("info"), dict):
            info = payload["info"]
            last, total = info.get("last_token_usage", {}), info.get("total_token_usage", {})
            self.used = int(last.get("total_tokens", 0))
            if total.get("total_tokens") == info.get("model_context_window"):
                self.used = int(info.get("model_context_window", 0))

    def open_calls(self) -> list[str]:
        """Calls without a result."""
        done = {i.get("call_id") for i in self.items if i.get("type") == "function_call_output"}
        calls = [i["call_id"] for i in self.items if i.get("type") == "function_call"]
        return [call for call in calls if call not in done]
