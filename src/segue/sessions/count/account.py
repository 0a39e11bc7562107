"""The totals of a whole session: tokens, todos, files; including its sub-agents."""

from collections.abc import Sequence

from msgspec import Struct, field

from segue.agents.contracts.counter import Tally
from segue.core.sessions.forecasts.growth import Sample, Typical, task_costs, typical_task
from segue.core.sessions.ledger import ENDS_TURN, Ledger
from segue.core.sessions.remarks import LimitSeen, Todo
from segue.core.sessions.spend import Spend
from segue.core.sessions.types import Session
from segue.sessions import database
from segue.sessions.count.count import Batch, tally_of
from segue.sessions.count.index import CountedFile, Index
from segue.sessions.find import FileOnDisk, Home

_HISTORY_FILES = 200


class SessionAccount(Struct, kw_only=True):
    """Totals of a session's file and those of its sub-agents."""

    started_at: float | None = None
    compactions: int = 0
    todos: list[Todo] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    limits: dict[str, LimitSeen] = field(default_factory=dict)
    spend: dict[str, Spend] = field(default_factory=dict)
    unread: int = 0  # lines that are not records
    typical: Typical | None = None


def account(
    session: Session, found: Sequence[FileOnDisk], index: Index, homes: Sequence[Home]
) -> SessionAccount:
    """Counts the session's files if they changed, and adds them up."""
    mine = [file for file in found if file.path == session.path]
    children = [
        file
        for file in found
        if file.agent == session.agent and file.parent_id == session.session_id
    ]
    known = index.stamps([home.path for home in homes])
    batch = Batch(index, found, known)
    for file in (*mine, *children):
        if known.get(file.path) != file.stamp:
            batch.add(file)
    batch.finish()
    totals = SessionAccount()
    is_database = any(home.store.database and home.agent == session.agent for home in homes)
    if is_database:
        _from_database(totals, session)
    else:
        rows = {file: index.counted(file.path) for file in (*mine, *children)}
        counted = {file: row for file, row in rows.items() if row is not None}
        for file, row in counted.items():
            _add(totals, tally_of(row), is_child=file in children)
        totals.spend = _spend_by_model(
            [counted[file] for file in sorted(counted, key=lambda f: f.path)]
        )
    totals.typical = typical(session.agent, index, found)
    return totals


def _spend_by_model(rows: Sequence[CountedFile]) -> dict[str, Spend]:
    """Counts each reply once, by the same rules as a scan: a sub-agent's reply may be in its
    parent's file too."""
    merged = Ledger()
    for row in rows:
        for entry in Ledger(row.ledger, row.models):
            merged.add(entry.key, 0, entry.model, entry.flags, *entry.spend.five)
    return merged.totals()


def _add(result: SessionAccount, tally: Tally, *, is_child: bool) -> None:
    result.unread += tally.unread
    for path in tally.files:
        if path not in result.files:
            result.files.append(path)
    if not is_child:
        result.started_at, result.compactions = tally.started_at, tally.compactions
        result.compactions += int(tally.memory.get("boundaries", 0))
        result.todos, result.limits = list(tally.todos.values()), tally.limits


def _from_database(result: SessionAccount, session: Session) -> None:
    try:
        rows = database.spend_by_model(session.path, session.session_id)
        listed = database.todos(session.path, session.session_id)
        files = database.files_changed(session.path, session.session_id)
        compactions = database.compactions(session.path, session.session_id)
    except database.Unreadable:
        return
    result.started_at = session.started_at
    for model, spend in rows:
        result.spend[model] = result.spend.get(model, Spend()) + spend
    result.todos = [Todo(text, database.todo_status(status)) for text, status in listed]
    result.files, result.compactions = files, compactions


def typical(agent: str, index: Index, found: Sequence[FileOnDisk]) -> Typical | None:
    """What a turn usually costs, from this user's own history with this agent."""
    newest = sorted(
        (file for file in found if file.agent == agent and not file.parent_id),
        key=lambda file: file.changed_at,
        reverse=True,
    )
    costs: list[int] = []
    for file in newest[:_HISTORY_FILES]:
        row = index.counted(file.path)
        if row is not None:
            costs += task_costs(samples(Ledger(row.ledger, row.models)))
    return typical_task(costs)


def samples(ledger: Ledger) -> list[Sample]:
    """The main thread's replies; a turn ends where the ledger says so."""
    found, turn = [], 0
    for entry in ledger:
        if not entry.is_side:
            found.append(Sample(entry.at, entry.spend.total_tokens, turn))
            turn += bool(entry.flags & ENDS_TURN)
    return found
