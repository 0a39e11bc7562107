"""`segue status --watch`: the table, live."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import click

from segue.cli import tables
from segue.cli.machine import Machine, with_machine
from segue.cli.status import as_dict, recent
from segue.core.session import Session
from segue.io import state
from segue.transcripts import find
from segue.transcripts.follow import Follower

_LOOK_AGAIN_S = 2.0
"""Agents start and end without writing a line, and databases are not followed."""

_ENDINGS = (".jsonl", ".json", ".md")


def watch_status(*, as_json: bool) -> None:
    """Until the user ends it."""
    try:
        if as_json:
            _print_lines()
        else:
            _draw()
    except KeyboardInterrupt:
        pass


def _views() -> Iterator[tuple[Machine, list[Session]]]:
    """What there is now, and again whenever something happens."""
    homes = find.homes(os.environ, state.added_homes())
    roots = sorted({Path(home.path, _root(home)) for home in homes if home.store.files})
    follower = Follower(roots, wants=lambda path: path.endswith(_ENDINGS))
    try:
        while True:
            machine, sessions = with_machine(recent)
            yield machine, sessions
            machine.index.close()
            until = time.monotonic() + _LOOK_AGAIN_S
            while (left := until - time.monotonic()) > 0 and not follower.step(left):
                pass
    finally:
        follower.close()


def _root(home: find.Home) -> str:
    """The part of a home below which its session files are."""
    first = home.store.files[0].split("/")[0]
    return "" if "*" in first else first


def _print_lines() -> None:
    before = ""
    for _, sessions in _views():
        line = json.dumps(as_dict(sessions))
        if line != before:
            click.echo(line)
            before = line


def _draw() -> None:
    from rich.live import Live

    console = tables.console()
    with Live(console=console, auto_refresh=False, screen=False) as live:
        for machine, sessions in _views():
            live.update(tables.table(sessions, machine.now, console.width), refresh=True)
