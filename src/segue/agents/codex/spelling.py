"""Unifies codex's formats: removes each record's wrapping, and converts names and keys to the
spelling of the session file."""

import re

from segue.agents.shared.fields import JSON, instant, obj, text


def unwrap(data: JSON) -> tuple[str, JSON]:
    """The record's kind and content, without the form's wrapping."""
    if isinstance(data.get("method"), str):
        return data["method"], snake_keys(obj(data, "params"))
    if isinstance(data.get("msg"), dict):
        return text(data, "msg", "type"), data["msg"]
    kind, payload = text(data, "type"), obj(data, "payload")
    if not payload:
        return kind or ("response" if "id" in data and "result" in data else ""), data
    if kind == "event_msg":
        # In the file, items repeat what the response items say about tools, and come late, after
        # the end of an interrupted turn.
        inner = text(payload, "type")
        return ("file_item" if inner == "item_completed" else inner), payload
    if kind == "response_item":
        return kind, {**payload, "metadata": data.get("metadata") or payload.get("metadata")}
    return kind, payload


def time_of(data: JSON) -> float | None:
    """When a record was written."""
    return instant(data.get("timestamp") or data.get("emittedAtMs"))


def snake(name: str) -> str:
    """A camelCase name in snake_case."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def snake_keys(value: JSON, depth: int = 4) -> JSON:
    """The server's camelCase keys in the session file's spelling."""
    return {
        snake(k): snake_keys(v, depth - 1) if isinstance(v, dict) and depth else v
        for k, v in value.items()
        if isinstance(k, str)
    }
