"""`segue uninstall`: takes back what `setup` and `service install` did."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from segue.cli import service
from segue.errors import InputError, SegueError
from segue.io import claude_settings, edits, mcp_entries, state

_STATE = ("watch", "runs", "drill.jsonl")
_DATABASES = ("sessions.db*", "runs.db*", "watch.db*")


@click.command()
@click.option("--purge", is_flag=True, help="Also delete segue's state: index, runs, logs.")
def command(purge: bool) -> None:
    """Remove segue's own entries from agents' settings, and its service; nothing else. A status
    line that was there before comes back. The config and the program itself stay."""
    failed = False
    said = False
    for path, way in list(_places()):
        try:
            how = way()
        except SegueError as fault:
            click.echo(f"segue: {fault}", err=True)
            failed = True
            continue
        if how:
            said = True
            click.echo(f"{path}: {how}")
    if line := service.take_away():
        said = True
        click.echo(line)
    if purge:
        if failed:
            raise InputError("the state is kept, because of the above: it has the files' copies")
        _purge()
        said = True
    if not said and not failed:
        click.echo("nothing of segue's was found in agents' settings")
    if failed:
        raise SystemExit(1)


def _places() -> Iterator[tuple[str, Callable[[], str]]]:
    """Files that segue was added to, or would be, and how it is taken away."""
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
    """Takes segue's entries out of claude's settings; how, "" if there are none."""
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


def _purge() -> None:
    """What segue made in its state folder, by name: the folder may hold other things."""
    from segue.watch.remote import Remote

    if Remote(state.socket_path(), timeout_s=1.0).is_there():
        raise InputError("the daemon runs; end it first")
    folder = Path(state.state_folder())
    doomed = [folder / name for name in _STATE]
    doomed += [file for pattern in _DATABASES for file in folder.glob(pattern)]
    for place in doomed:
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place, ignore_errors=True)
        else:
            with suppress(OSError):
                place.unlink()
    click.echo(f"{folder}: index, runs and logs are deleted")
