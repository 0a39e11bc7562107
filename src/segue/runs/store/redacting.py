"""Redaction functions for SQL, used by a migration. Cells have the encoding of `coding`. The
rules are loaded only when there is a row to change; a new file has none."""

import sqlite3
from typing import Any

from segue.runs.store.coding import Cell, cell, pack, text, unpack

_USERS_OWN = "task"  # word for word, wherever it stands


def register(db: sqlite3.Connection) -> None:
    """Gives SQL the functions `redacted(json, names)` and `redacted_text(text)`."""
    db.create_function("redacted", 2, _redacted, deterministic=True)
    db.create_function("redacted_text", 1, _redacted_text, deterministic=True)


def _redacted(data: Cell, names: str) -> Cell:
    """The same JSON without secrets: everywhere except in the task, or only in the values of
    `names`. Text that is not JSON stays as it is, and is reported as unreadable when it is
    requested."""
    from segue.core.secrets.redact import scrub

    if not isinstance(data, str | bytes):
        return data
    try:
        value: Any = unpack(data, Any)
    except ValueError:
        return data
    if isinstance(value, dict):
        chosen = names.split()
        clean = {
            name: scrub(item) if (name in chosen if chosen else name != _USERS_OWN) else item
            for name, item in value.items()
        }
    else:
        clean = scrub(value)
    return data if clean == value else pack(clean)


def _redacted_text(data: Cell) -> Cell:
    from segue.core.secrets.redact import redact

    return cell(redact(text(data))[0]) if isinstance(data, str | bytes) else data
