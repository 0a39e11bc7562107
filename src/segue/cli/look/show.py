"""`segue show SESSION`: everything known about one session. For a run, see
`support/run/account`."""

from decimal import Decimal
from typing import Any

import click
import msgspec

from segue.core.sessions.reading import Zone
from segue.core.sessions.spend import Spend
from segue.core.sessions.types import Session
from segue.errors import InputError, StateError
from segue.sessions.count.account import SessionAccount, account
from segue.views import printing, tables
from segue.views.machine import Machine, choose, list_sessions, say_notes, with_machine
from segue.views.run.story import repeated
from segue.views.verdicts import duration, iso
from segue.watch.handoffs.repeats import TakenOver, taken_over


@click.command()
@click.argument("session", metavar="[SESSION|RUN]", required=False)
@click.option(
    "--transcript", is_flag=True, help="The conversation, with each tool call on one line."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(session: str | None, transcript: bool, as_json: bool) -> None:
    """Show everything about SESSION (an id, the beginning of one, a session file or a project)
    or about a run (ids that begin with run-). Without an argument, show the newest run of
    this folder."""
    if session is None or session.startswith("run-"):
        if transcript:
            named = session or "RUN"
            raise InputError(f"for a run, use: segue logs {named} --transcript")
        from segue.cli.support.run.account import show

        show(session, as_json=as_json)
        return

    name = session
    if transcript:
        _print_transcript(name, as_json)
        return

    def look(machine: Machine) -> tuple[Session, SessionAccount]:
        found = choose(list_sessions(machine), name)
        return found, account(found, machine.found, machine.index, machine.homes)

    machine, (found, details) = with_machine(look)
    say_notes(machine)
    costs = _costs(details.spend)
    try:
        taken = taken_over(found)
    except StateError as fault:  # everything else can be shown
        taken = None
        printing.complain(str(fault))
    if as_json:
        printing.say_json(_as_dict(found, details, costs, taken))
    else:
        _print(machine, found, details, costs, taken)


def _print_transcript(name: str, as_json: bool) -> None:
    from segue.reports.transcripts import of_session
    from segue.views.report.transcripts import as_list, lines

    _, found = with_machine(lambda machine: choose(list_sessions(machine), name))
    utterances = of_session(found.agent, found.path, found.session_id)
    if as_json:
        answer = {"agent": found.agent, "session_id": found.session_id, "said": as_list(utterances)}
        printing.say_json(answer)
        return
    if not utterances:
        printing.say("it is empty or cannot be read", err=True)
    for line in lines(utterances):
        printing.say(line)


def _costs(spend: dict[str, Spend]) -> dict[str, Decimal | None]:
    from segue.system.config import prices

    return {model: prices.cost_usd(model, tokens) for model, tokens in spend.items()}


def _total(costs: dict[str, Decimal | None]) -> Decimal | None:
    known = [cost for cost in costs.values() if cost is not None]
    return sum(known, Decimal(0)) if known and len(known) == len(costs) else None


def _as_dict(
    session: Session,
    account: SessionAccount,
    costs: dict[str, Decimal | None],
    taken: TakenOver | None,
) -> dict[str, Any]:
    total = _total(costs)
    return {
        **tables.as_dict(session),
        "started_at": iso(account.started_at or session.started_at),
        "compactions": account.compactions,
        "todos": [{"text": todo.text, "status": todo.status} for todo in account.todos],
        "files_changed": account.files,
        "tokens": [
            {
                "model": model,
                "input": spend.input_tokens,
                "output": spend.output_tokens,
                "cache_read": spend.cache_read_tokens,
                "cache_write": spend.cache_write_tokens,
                "cost_usd": None if (cost := costs[model]) is None else float(cost),
            }
            for model, spend in account.spend.items()
        ],
        "cost_usd": None if total is None else float(total),
        "unread_lines": account.unread,
        "typical_turn_tokens": account.typical.median_tokens
        if account.typical is not None
        else None,
        "zones": _zones(session),
        "took_over": None if taken is None else msgspec.to_builtins(taken),
    }


def _zones(session: Session) -> list[dict[str, Any]]:
    if session.forecast is None:
        return []
    is_ahead = session.ahead is not None
    return [
        {
            "zone": zone.value,
            "at_tokens": ahead.at_tokens,
            "tokens": ahead.tokens if is_ahead else None,
            "seconds": None if ahead.seconds is None or not is_ahead else round(ahead.seconds),
        }
        for zone, ahead in session.forecast.zones.items()
    ]


def _print(
    machine: Machine,
    session: Session,
    account: SessionAccount,
    costs: dict[str, Decimal | None],
    taken: TakenOver | None,
) -> None:
    from rich.table import Table
    from rich.text import Text

    rows = Table(box=None, show_header=False, pad_edge=False)
    rows.add_column(style="dim", no_wrap=True)
    rows.add_column(overflow="fold")

    def row(name: str, value: object) -> None:
        if value not in ("", None):
            rows.add_row(name, value if isinstance(value, Text) else printing.cell(str(value)))

    now = machine.now
    row("session", f"{session.session_id}  {session.agent} {session.model}".rstrip())
    row("folder", session.cwd)
    row("file", session.path)
    started = account.started_at or session.started_at
    begun = f"began {tables.ago(started, now)}, " if started else ""
    row("active", f"{begun}last active {tables.ago(session.last_at, now)}")
    row("state", tables.state(session, now))
    if session.run is not None:
        row("run", f"{session.run.id}: {tables.run_state(session.run, now)}")
    if taken is not None:
        row("took over from", f"{taken.from_session_id}: {repeated(taken)}")
    row("handed over to", session.handed_over_to)
    row("process", session.process.pid if session.process is not None else "")
    if session.stop is not None:
        sure = f"{session.stop.reason.description}  {session.stop.confidence:.0%} sure"
        row("last stop", f"{sure}  {session.stop.why}".rstrip())
    row("context", tables.gauge(session))
    row("growth", _growth(session, account))
    row("ahead", _ahead(session))
    row("compactions", account.compactions or "")
    for scope, limit in session.limits.items() or account.limits.items():
        row("limit", _limit(scope, limit.used_percent, limit.resets_at, now))
    for model, spend in account.spend.items():
        row("tokens", _spend(model, spend, costs[model]))
    if account.spend:
        total = _total(costs)
        row("cost", "unknown" if total is None else f"${total:,.2f} at list prices")
    for todo in account.todos:
        mark = {"completed": "✔", "in_progress": "▶", "pending": "·"}[todo.status]
        row("todo", f"{mark} {todo.text}")
    for place, path in enumerate(account.files):
        row("changed" if place == 0 else "", path)
    row("sub-agents", session.children or "")
    lines = (
        "1 line that is not a record"
        if account.unread == 1
        else f"{account.unread:,} lines that are not records"
    )
    row("unread", lines if account.unread else "")
    for note in session.notes:
        row("note", note)
    printing.console().print(rows)


def _growth(session: Session, account: SessionAccount) -> str:
    pace, parts = session.growth, []
    if pace is not None and pace.tokens_per_minute:
        parts.append(f"{pace.tokens_per_minute:,.0f} tokens per minute of work")
    if pace is not None and pace.tokens_per_turn:
        parts.append(f"{pace.tokens_per_turn:,.0f} a turn")
    if account.typical is not None:
        parts.append(f"your turns usually take {account.typical.median_tokens:,}")
    return ", ".join(parts)


def _ahead(session: Session) -> str:
    if session.ahead is None:
        return ""
    parts = []
    for zone, ahead in session.ahead.zones.items():
        if zone is Zone.NORMAL or not ahead.tokens or ahead.tokens <= 0:
            continue
        time = f" ({duration(ahead.seconds)})" if ahead.seconds is not None else ""
        parts.append(f"{zone.value} in {tables.short(ahead.tokens)} tokens{time}")
    return ", ".join(parts) or "the handoff is due"


def _limit(scope: str, used: float | None, resets_at: float | None, now: float) -> str:
    parts = [scope.replace("_", " ")]
    if used is not None:
        parts.append(f"{used:.0f}% used")
    if resets_at is not None:
        when = f"in {duration(resets_at - now)}" if resets_at > now else "already"
        parts.append(f"resets {when}" if resets_at > now else "has reset")
    return ", ".join(parts)


def _spend(model: str, spend: Spend, cost: Decimal | None) -> str:
    price = "cost unknown" if cost is None else f"${cost:,.2f}"
    return (
        f"{model or 'unknown model'}: {spend.input_tokens:,} input,"
        f" {spend.cache_read_tokens:,} from cache, {spend.cache_write_tokens:,} to cache,"
        f" {spend.output_tokens:,} output; {price}"
    )
