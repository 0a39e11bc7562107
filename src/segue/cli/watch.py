"""`segue watch`: the daemon, in the foreground."""

import json
import os
import sys
import time
from typing import TYPE_CHECKING

import click

from segue.errors import InputError, SegueError
from segue.io import state

if TYPE_CHECKING:
    from segue.watch.log import Note

_OBSERVES = """\
segue watches, records and reminds. It does not type into any terminal and resumes nothing: that is
switched on with --auto, or for a project in the config (docs/watch.md)."""
_ACTS = """\
segue acts by itself {where}: at the handoff mark it asks a session in tmux for a
handoff document, clears its context and lets it go on; after a limit or a crash it resumes it.
It never resumes what you ended, and never types over you. To hold it back: segue pause"""


@click.command()
@click.option("--auto", is_flag=True, help="Hand off and resume by itself, not only observe.")
@click.option(
    "--in", "folders", multiple=True, metavar="FOLDER", help="With --auto: only below FOLDER."
)
@click.option(
    "--http", "port", type=click.IntRange(0, 65535), metavar="PORT",
    help="Answer on 127.0.0.1:PORT too, to who has the token.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object a note on stdout.")
def command(auto: bool, folders: tuple[str, ...], port: int | None, as_json: bool) -> None:
    """Watch all sessions: zones, stops, reminders; with --auto also handoffs and resumes.

    One daemon a user. SIGHUP reads the config again, Ctrl+C ends it. As a service:
    segue service install.
    """
    if folders and not auto:
        raise InputError("--in says where to act: give it with --auto")
    for folder in folders:
        if not os.path.isdir(folder):
            raise InputError(f"--in {folder}: there is no such folder")
    from segue.store import leases, open_store
    from segue.store.port import Held

    with open_store() as store:
        try:
            lease = store.acquire("watch", leases.me("segue watch"), time.time())
        except Held as held:
            raise SegueError(
                f"a daemon is running already: process {held.holder.pid}; see: segue status"
            ) from None
        try:
            _watch(auto=auto, folders=folders, port=port, as_json=as_json)
        finally:
            store.release(lease)


def _watch(*, auto: bool, folders: tuple[str, ...], port: int | None, as_json: bool) -> None:
    from segue.watch.daemon import Watch
    from segue.watch.link import Link
    from segue.watch.log import LOG_NAME, open_log
    from segue.watch.rules import Rules
    from segue.watch.server import Server

    say = _silent if as_json else _say
    rules = Rules(os.environ, auto=auto, auto_in=folders)
    log, note = open_log(os.path.join(state.state_folder(), LOG_NAME))
    if note:
        _say(note)
    watch = Watch(env=os.environ, log=log, rules=rules, say=say)
    link = Link(watch)
    server = Server(link, port=port, broke=lambda fault: _say(f"a fault of segue's own: {fault}"))
    try:
        watch.catch_signals()
        server.start()
        link.read_spool()
        where = f"below {', '.join(folders)}" if folders else "in every project"
        click.echo(_ACTS.format(where=where) if auto else _OBSERVES, err=True)
        if server.port:
            _say(f"also at http://127.0.0.1:{server.port}, for who has the token")
        if as_json:
            watch.world.listeners.append(_print_note)
        watch.run()
    finally:
        server.close()
        log.close()


def _say(line: str) -> None:
    at = time.strftime("%H:%M:%S")
    click.echo(f"{click.style(at, dim=True)} {line}", err=True)


def _silent(line: str) -> None:
    pass


def _print_note(note: "Note") -> None:
    from segue.watch.api import note_dict

    sys.stdout.write(json.dumps(note_dict(note)) + "\n")
    sys.stdout.flush()
