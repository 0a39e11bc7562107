"""What test_counters and other tests share."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from segue.agents.contracts.counter import Tally
from segue.core.sessions.ledger import Ledger

Record = dict[str, Any]


START_S = 1_793_000_000


def stamp(second: float) -> str:
    """An ISO time, so many seconds after the first."""
    whole, part = divmod(round(second * 1000), 1000)
    minutes, seconds = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"2026-10-{26 + hours // 24:02}T{hours % 24:02}:{minutes:02}:{seconds:02}.{part:03}Z"


def compact(record: object) -> bytes:
    """A line as agents write it."""
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def prompt(second: float = 0, session: str = "s1", said: str = "go on") -> Record:
    return {
        "parentUuid": None,
        "isSidechain": False,
        "type": "user",
        "message": {"role": "user", "content": said},
        "timestamp": stamp(second),
        "cwd": "/home/dev/p",
        "sessionId": session,
    }


def reply(
    message: str = "m1",
    request: str | None = "r1",
    *,
    tokens: tuple[int, int, int, int] = (1, 2, 3, 4),
    second: float = 1,
    model: str = "claude-opus-4-5",
    side: bool = False,
    stop: str | None = None,
    content: Sequence[Record] = (),
    session: str = "s1",
) -> Record:
    """A record of Claude's; `tokens` are input, output, cache read, cache write."""
    given, said, read, written = tokens
    record: Record = {
        "parentUuid": "u",
        "isSidechain": side,
        "message": {
            "id": message,
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": list(content),
            "stop_reason": stop,
            "usage": {
                "input_tokens": given,
                "cache_creation_input_tokens": written,
                "cache_read_input_tokens": read,
                "output_tokens": said,
                "cache_creation": {
                    "ephemeral_1h_input_tokens": written // 2,
                    "ephemeral_5m_input_tokens": written - written // 2,
                },
            },
        },
        "requestId": request,  # before the time, as Claude Code writes it
        "type": "assistant",
        "timestamp": stamp(second),
        "cwd": "/home/dev/p",
        "sessionId": session,
    }
    return {
        key: value for key, value in record.items() if key != "requestId" or request is not None
    }


def progress(inner: Record, second: float = 1) -> Record:
    """A sub-agent's record, told in its parent's file."""
    return {
        "type": "progress",
        "data": {"type": "agent_progress", "message": inner},
        "timestamp": stamp(second),
        "sessionId": "s1",
    }


def boundary(second: float = 1) -> Record:
    return {"type": "system", "subtype": "compact_boundary", "timestamp": stamp(second)}


def tool_use(name: str, **given: object) -> Record:
    return {"type": "tool_use", "id": "toolu_1", "name": name, "input": given}


def count_line(
    last: Sequence[int] | None,
    total: Sequence[int] | None = None,
    *,
    second: float = 1,
    percent: float | None = None,
) -> Record:
    """A token count of Codex's: input, cached, written, output; the total is the last unless
    given."""
    info: Record = {}
    if total is not None or last is not None:
        info["total_token_usage"] = usage(total if total is not None else last or ())
    if last is not None:
        info["last_token_usage"] = usage(last)
    limits: Record = {"limit_id": "codex", "primary": None, "secondary": None}
    if percent is not None:
        limits["primary"] = {"used_percent": percent, "window_minutes": 300, "resets_at": START_S}
    return event(
        "event_msg", {"type": "token_count", "info": info, "rate_limits": limits}, second=second
    )


def usage(four: Sequence[int]) -> Record:
    given, cached, written, said = four
    return {
        "input_tokens": given,
        "cached_input_tokens": cached,
        "cache_write_input_tokens": written,
        "output_tokens": said,
        "reasoning_output_tokens": said // 2,
        "total_tokens": given + said,
    }


def event(kind: str, payload: Record, *, second: float = 1) -> Record:
    return {"timestamp": stamp(second), "type": kind, "payload": payload}


def meta(session: str, parent: str = "", second: float = 0) -> Record:
    payload = {"id": session, "cwd": "/home/dev/p", "originator": "codex_cli"}
    if parent:
        payload["forked_from_id"] = parent
    return event("session_meta", payload, second=second)


def turn(model: str = "gpt-5.5", second: float = 0) -> Record:
    return event("turn_context", {"turn_id": "t", "cwd": "/home/dev/p", "model": model},
                 second=second)  # fmt: skip


def plan(*steps: tuple[str, str], second: float = 1) -> Record:
    listed = {"plan": [{"step": step, "status": status} for step, status in steps]}
    return event(
        "response_item",
        {"type": "function_call", "name": "update_plan", "arguments": json.dumps(listed)},
        second=second,
    )


def patch(*paths: str, second: float = 1) -> Record:
    said = "*** Begin Patch\n" + "".join(f"*** Update File: {p}\n@@\n-a\n+b\n" for p in paths)
    return event(
        "response_item",
        {"type": "custom_tool_call", "name": "apply_patch", "input": said + "*** End Patch\n"},
        second=second,
    )


def outcome(found: tuple[Tally, Ledger], *names: str) -> dict[str, Any]:
    """What is known of a file, but for what a counter remembers for itself."""
    tally, ledger = found
    told: dict[str, Any] = msgspec.to_builtins(tally)
    told["entries"] = [msgspec.to_builtins(entry) for entry in ledger]
    # A boundary after the last reply is one too: that is how it is shown.
    told["compactions"] += told.pop("memory").get("boundaries", 0)
    return {name: told[name] for name in names or told}
