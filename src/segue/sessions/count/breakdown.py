"""Spending by day, project, agent or model, from the ledgers in the index. Each reply counts
once, by the same rules as in a scan."""

from collections.abc import Sequence
from datetime import datetime, tzinfo
from typing import Literal

from msgspec import Struct

from segue.core.sessions.ledger import Entry, Ledger
from segue.core.sessions.spend import Spend
from segue.sessions.count.count import tally_of
from segue.sessions.count.index import Index
from segue.sessions.find import FileOnDisk

By = Literal["day", "project", "agent", "model"]
UNKNOWN = "unknown"


class SpendOf(Struct, frozen=True):
    """The usage of one model in one day, project, …"""

    name: str
    model: str
    spend: Spend


def breakdown(
    index: Index, found: Sequence[FileOnDisk], by: By, tz: tzinfo, since: float | None = None
) -> list[SpendOf]:
    """Usage by name, then by model. `since` leaves out earlier requests, and those without a
    time."""
    once: dict[int, tuple[tuple[bool, int, str], Entry, FileOnDisk]] = {}
    rest: list[tuple[Entry, FileOnDisk]] = []
    projects: dict[str, str] = {}
    for file in found:
        counted = index.counted(file.path)
        if counted is None:
            continue
        if by == "project":
            projects[file.path] = tally_of(counted).cwd or UNKNOWN
        for entry in Ledger(counted.ledger, counted.models):
            if not entry.key:
                rest.append((entry, file))
                continue
            rank = (entry.is_side, -entry.spend.total_tokens, file.path)
            if entry.key not in once or rank < once[entry.key][0]:
                once[entry.key] = (rank, entry, file)
    sums: dict[tuple[str, str], Spend] = {}
    for entry, file in [*rest, *((entry, file) for _, entry, file in once.values())]:
        if since is not None and (entry.at is None or entry.at < since):
            continue
        name = _name(by, entry, file, projects, tz)
        key = (name, entry.model)
        sums[key] = sums.get(key, Spend()) + entry.spend
    return [SpendOf(*key, spend) for key, spend in sorted(sums.items()) if spend.total_tokens]


def _name(by: By, entry: Entry, file: FileOnDisk, projects: dict[str, str], tz: tzinfo) -> str:
    match by:
        case "agent":
            return file.agent
        case "model":
            return entry.model or UNKNOWN
        case "project":
            return projects[file.path]
        case "day":
            try:
                at = entry.at
                return UNKNOWN if at is None else datetime.fromtimestamp(at, tz).date().isoformat()
            except (ValueError, OverflowError, OSError):
                return UNKNOWN
