"""`segue uninstall`: undoes `setup` and `service install`."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from segue.agents.claude import setup as claude_settings
from segue.cli.daemon import service
from segue.errors import InputError, SegueError
from segue.system import mcp_entries
from segue.system.files import edits, own_files, state
from segue.views import printing

_NAMED = 10  # at most this many remaining files are named


@click.command()
@click.option("--purge", is_flag=True, help="Also delete segue's state: index, runs, logs.")
def command(purge: bool) -> None:
    """Remove segue's entries from agents' settings, and its service, and nothing else. A status
    line that was there before comes back. The config and the program itself stay."""
    if purge:
        _refuse_if_alive()
    failed = False
    has_spoken = False
    for path, way in list(_places()):
        try:
            how = way()
        except SegueError as fault:
            printing.complain(fault)
            failed = True
            continue
        if how:
            has_spoken = True
            printing.say(f"{path}: {how}")
    if line := service.take_away():
        has_spoken = True
        printing.say(line)
    if purge:
        if failed:
            raise InputError(
                "the state was not deleted: it has the copies of the files named above"
            )
        _purge()
        has_spoken = True
    if not has_spoken and not failed:
        printing.say("no segue entries found in agents' settings")
    if failed:
        raise SystemExit(1)


def _places() -> Iterator[tuple[str, Callable[[], str]]]:
    """Files that segue adds entries to, and how to remove them."""
    env = os.environ
    ways: dict[str, tuple[str, Callable[[str], str]]] = {
        "claude": (claude_settings.path(env), remove_claude),
        "codex": (mcp_entries.codex_path(env), lambda p: mcp_entries.remove_codex(env, p)),
        "opencode": (mcp_entries.opencode_path(env), lambda p: mcp_entries.remove_opencode(env, p)),
    }
    found = {os.path.abspath(path): way for path, way in ways.values()}
    for path, edit in edits.load().items():
        if edit.agent in ways:
            found.setdefault(path, ways[edit.agent][1])
    for path, way in found.items():
        yield path, lambda way=way, path=path: way(path)  # type: ignore[misc]


def remove_claude(path: str) -> str:
    """Removes segue's entries from claude's settings; returns how, or "" if there are none."""
    now = edits.read(path)
    settings: Any = edits.parse(now, path) if now is not None else None
    if now is None or not isinstance(settings, dict) or not claude_settings.is_there(settings):
        return ""
    edit = edits.load().get(os.path.abspath(path))
    former = edits.parse(edit.former, path) if edit is not None and edit.former else None

    def same(one: str, other: str) -> bool:
        left, right = (
            edits.dump(claude_settings.bare(edits.parse(t, path, exact=False)))
            for t in (one, other)
        )
        return left == right

    rest = edits.dump(claude_settings.removed(settings, former), now)
    return edits.take_back(path, now, rest, same)


def _refuse_if_alive() -> None:
    """Raises InputError while something uses what would be deleted."""
    if live := list(_live_runs()):
        ids = ", ".join(live[:5]) + (f" and {len(live) - 5} more" if len(live) > 5 else "")
        raise InputError(
            f"nothing was done: still running: {ids}; end it first: segue cancel {live[0]}"
        )
    from segue.system.tmux import hosting

    if still := hosting.hosted():
        raise InputError(
            f"nothing was done: {still[0].agent} is open; quit it first: segue open {still[0].name}"
        )
    if is_daemon_alive() and not service.is_installed():  # a service's daemon is stopped with it
        raise InputError(
            "nothing was done: `segue watch` is running; end it first (Ctrl+C, or kill it)"
        )


def is_daemon_alive() -> bool:
    """Whether a daemon uses this state folder, even if it does not respond."""
    from segue.watch.server.remote import Remote

    place = state.socket_path()
    try:
        handle = os.open(f"{place}.lock", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return Remote(place, timeout_s=1.0).is_there()
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return Remote(place, timeout_s=1.0).is_there()
    finally:
        os.close(handle)
    return False


def _live_runs() -> Iterator[str]:
    """The ids of runs that a process drives, and of runs whose agent still works although that
    process is gone."""
    from segue.cli.support.run.lookup import driver
    from segue.runs.legs.leg import Leg
    from segue.runs.store import open_store, runs_path

    found = dict.fromkeys(
        leg.parent.name
        for leg in Path(state.state_folder(), "runs").glob("run-*/*-*")
        if Leg(leg).status().state == "running"
    )
    if os.path.exists(runs_path()):
        # If the store cannot be read, no process can drive its runs.
        with suppress(SegueError), open_store() as store:
            found |= {run.id: None for run in store.runs() if driver(store, run) is not None}
    yield from found


def _purge() -> None:
    """Deletes what segue created in its state folder, by name, because the folder may contain other
    files; prints what is kept, and why. Raises InputError if anything still uses it."""
    _refuse_if_alive()
    folder = Path(state.state_folder())
    left = own_files.delete(folder)
    printing.say(f"{folder}: index, runs and logs were deleted")
    work = [name for name in left if name.startswith(tuple(f"{each}/" for each in own_files.WORK))]
    for why, names in (
        ("they may contain tasks' work that exists nowhere else", work),
        ("segue did not create them", [name for name in left if name not in work]),
    ):
        if names:
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            printing.say(f"kept, because {why}: {', '.join(names[:_NAMED])}{more}")
