"""Finds the parent of a sub-agent's session file when its path does not name it but its first
records do."""

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from segue.agents.shared.fields import JSON
from segue.sessions import tail
from segue.sessions.count.index import Index
from segue.sessions.find import FileOnDisk, Home, Stamp, open_file

UNKNOWN_PARENT = "?"
_FIRST_BYTES, _MAX_BYTES = 16 << 10, 4 << 20  # a line of instructions may be long

NewParent = tuple[str, Stamp, str]


class Resolved(NamedTuple):
    """Files with their parents, and new findings that the index does not have."""

    found: list[FileOnDisk]
    new: list[NewParent]


def resolve(
    found: Sequence[FileOnDisk], homes: Mapping[str, Home], index: Index | None
) -> Resolved:
    """Fills in the parents that only records name. Each file is read once, because its first
    records do not change. A sub-agent's sub-agents belong to the session at the top."""
    asked = {file.path for file in found if file.parent_id == UNKNOWN_PARENT}
    if not asked:
        return Resolved(list(found), [])
    known = index.parents() if index is not None else {}
    parents: dict[str, str] = {}
    new: list[NewParent] = []
    for file in found:
        if file.path not in asked:
            continue
        (device, inode, size), parent = known.get(file.path, ((0, 0, 0), ""))
        if (device, inode) != file.stamp[:2] or size > file.size:
            records = _first_records(file.path)
            parent = homes[file.home].store.told_parent(records)
            if records and parent != UNKNOWN_PARENT:
                new.append((file.path, file.stamp, parent))
        parents[file.path] = parent
    above = {
        (file.agent, file.session_id): parents[file.path] for file in found if file.path in parents
    }
    return Resolved(
        [
            file._replace(parent_id=_top(file.agent, parents[file.path], above))
            if file.path in asked
            else file
            for file in found
        ],
        new,
    )


def _first_records(path: str) -> list[JSON]:
    """At least one record, if there is one."""
    try:
        handle = open_file(path)
    except OSError:
        return []
    try:
        length = _FIRST_BYTES
        while True:
            records = tail.head(handle, length)
            if records or length >= _MAX_BYTES or os.fstat(handle).st_size <= length:
                return [record.data for record in records]
            length *= 4
    except OSError:
        return []
    finally:
        os.close(handle)


def _top(agent: str, parent: str, above: Mapping[tuple[str, str], str]) -> str:
    visited = {parent}
    while (higher := above.get((agent, parent), "")) not in ("", UNKNOWN_PARENT, *visited):
        parent = higher
        visited.add(parent)
    return parent
