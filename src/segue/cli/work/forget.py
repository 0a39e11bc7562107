"""`segue forget RUN`: deletes everything segue stores about a run. The agent's own session files
belong to the agent: segue lists them and leaves them alone."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click

from segue.agents.contracts.drive import Drive
from segue.cli.support.run.lookup import driver, find, opened
from segue.core.runs.types import Run
from segue.errors import ConfigError, InputError, SegueError, StateError
from segue.runs.folders import RunFolder
from segue.runs.legs.leg import Leg
from segue.runs.store import leases
from segue.runs.store.port import Held, Store, run_key
from segue.system import clock
from segue.system.files import state
from segue.views import printing
from segue.views.verdicts import as_json as to_json

SCHEMA = 1
_AGE = re.compile(r"(\d{1,6})\s*([mhdw])")
_UNITS = {"m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_LIVE = ("starting", "running")


@click.command()
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@click.option(
    "--older-than",
    metavar="AGE",
    help="All runs that ended longer ago than this: 90m, 12h, 30d, 8w.",
)
@click.option("--all", "all_", is_flag=True, help="All finished runs.")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted; delete nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(
    runs: tuple[str, ...], older_than: str | None, all_: bool, dry_run: bool, as_json: bool
) -> None:
    """Delete everything that segue stores about finished runs: events, checkpoints, output and
    notes. A run that has not ended is refused. The agent's own session files stay."""
    given = [n for n, v in (("RUN", runs), ("--all", all_), ("--older-than", older_than)) if v]
    if len(given) > 1:
        raise InputError(f"{given[0]} and {given[1]} cannot be combined")
    if not given:
        raise InputError("name RUNs, or use --older-than AGE or --all; segue runs --all lists them")
    rows: list[dict[str, object]] = []
    refused: list[SegueError] = []
    with opened() as store:
        for run in _chosen(store, runs, older_than):
            try:
                rows.append(_forget(store, run, is_only_told=dry_run))
            except SegueError as why:
                refused.append(why)
                continue
            if not as_json:
                _say(rows[-1], is_only_told=dry_run)
    if as_json:
        printing.say(to_json({"schema": SCHEMA, "forgotten": rows, "dry_run": dry_run}))
    elif not rows and not refused:
        printing.say("nothing to forget", err=True)
    for fault in refused:
        printing.complain(fault)
    if refused:
        raise SystemExit(max(fault.exit_code for fault in refused))


def _chosen(store: Store, names: tuple[str, ...], older_than: str | None) -> list[Run]:
    if names:
        return list({run.id: run for run in (find(store, name) for name in names)}.values())
    over = [run for run in store.runs() if run.state.is_final]
    if older_than is None:
        return over
    before = clock.now() - _age_s(older_than)
    return [run for run in over if _ended_at(store, run) < before]


def _age_s(given: str) -> float:
    if (age := _AGE.fullmatch(given.strip())) is None:
        raise InputError(f"--older-than: {given!r} is not an age; write 90m, 12h, 30d or 8w")
    return float(age[1]) * _UNITS[age[2]]


def _ended_at(store: Store, run: Run) -> float:
    return max((entry.at for entry in store.log(run.id)), default=run.created_at)


def _forget(store: Store, run: Run, *, is_only_told: bool) -> dict[str, object]:
    """Deletes a run, and returns what was deleted; with `is_only_told`, deletes nothing. Raises
    SegueError if the run has not ended."""
    folder = RunFolder(run.id).path
    _must_be_over(store, run, folder)
    sessions = _sessions(store, run)
    row: dict[str, object] = {
        "run": run.id,
        "folder": str(folder),
        "bytes": sum(file.lstat().st_size for file in _files(folder)),
        "sessions": [
            {"agent": run.agent, "session_id": name, "path": path or None}
            for name, path in sessions.items()
        ],
    }
    if is_only_told:
        return row
    try:
        lease = store.acquire(run_key(run.id), leases.me(f"segue forget {run.id}"), clock.now())
    except Held as held:
        raise StateError(f"{run.id}: {held}") from None
    try:
        # Events last: after a kill in between, the user can still name the run.
        _delete(folder)
        _drop_snapshots(run)
        drive = _drive(run)
        _forget_notes(drive.agent if drive is not None else run.agent, [*sessions])
        store.forget(run.id, epoch=lease.epoch)
    except BaseException:
        store.release(lease)
        raise
    return row


def _must_be_over(store: Store, run: Run, folder: Path) -> None:
    if (holder := driver(store, run)) is not None:
        raise InputError(
            f"{run.id} is driven by process {holder.pid}; to end it: segue cancel {run.id}"
        )
    if not run.state.is_final:
        raise InputError(
            f"{run.id} has not ended ({run.state.value}); to end it: segue cancel {run.id}"
        )
    for leg in sorted(folder.glob("leg-*")):
        status = Leg(leg).status()
        if status.state in _LIVE:
            raise InputError(
                f"{run.id}: its agent is still running (process {status.agent_pid});"
                f" end it first: kill {status.agent_pid}"
            )


def _sessions(store: Store, run: Run) -> dict[str, str]:
    """The ids of the run's sessions, each with its session file; "" if that is unknown or gone."""
    drive = _drive(run)
    found: dict[str, str] = {}
    for leg in store.legs(run.id):
        if leg.session_id:
            file = drive.session_file if drive is not None else None
            path = file(leg.session_id, os.environ, run.cwd) if file is not None else ""
            found[leg.session_id] = path if path and os.path.exists(path) else ""
    return found


def _drive(run: Run) -> Drive | None:
    """How the run's agent is driven; None if unknown. The user's own agents are known if the config
    still has them."""
    from segue.agents import drives
    from segue.runs.starting import installed_agents
    from segue.system.config import settings

    with suppress(ConfigError):
        installed_agents.register(settings.load(run.cwd, os.environ))
    return drives.find(run.agent)


def _files(folder: Path) -> Iterator[Path]:
    for path, _, names in os.walk(folder):
        yield from (Path(path, name) for name in names)


def _delete(folder: Path) -> None:
    try:
        if folder.is_symlink():
            folder.unlink()
        elif folder.exists():
            shutil.rmtree(folder)
    except OSError as fault:
        raise StateError(f"{folder}: cannot be deleted: {fault.strerror or fault}") from None


def _drop_snapshots(run: Run) -> None:
    """Deletes the run's snapshots in the repository that it worked in. If that has moved, they stay
    there for their 30 days."""
    from segue.system.git import snapshots

    with suppress(SegueError, OSError):
        snapshots.drop(run.cwd, run.id)


def _forget_notes(agent: str, sessions: list[str]) -> None:
    from segue.watch.log import LOG_NAME, Log

    place = Path(state.state_folder(), LOG_NAME)
    if place.exists() and sessions:
        log = Log(place)
        try:
            log.forget(agent, sessions)
        finally:
            log.close()


def _say(row: dict[str, object], *, is_only_told: bool) -> None:
    done = "would be forgotten" if is_only_told else "is forgotten"
    size = row["bytes"]
    printing.say(
        f"{row['run']} {done}: its events, checkpoints, snapshots and {size} bytes of files"
    )
    sessions = row["sessions"]
    assert isinstance(sessions, list)
    for session in sessions:
        where = session["path"] or f"session {session['session_id']}"
        printing.say(f"  {session['agent']} keeps its own session, which stays: {where}")
