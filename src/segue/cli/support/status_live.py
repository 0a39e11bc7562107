"""`segue status --watch`: the table, live."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

from segue.cli.look.status import as_dict, recent
from segue.cli.support import interrupts
from segue.core.sessions.types import Session
from segue.core.terminals.visible import to_json
from segue.sessions import find
from segue.sessions.follow.follow import FileFollower
from segue.system.files import state
from segue.views import keys, printing, tables
from segue.views.machine import Machine, with_machine

_LOOK_AGAIN_S = 2.0
"""The longest time between two looks: agents start and end without writing to a file, and databases
are not followed."""

_ENDINGS = (".jsonl", ".json", ".md")


def watch_status(*, as_json: bool) -> None:
    """Shows the sessions until the user presses Ctrl+C or q. With `as_json`, prints a line for each
    change."""
    try:
        with interrupts.caught(), keys.q_quits():
            if as_json:
                _print_lines()
            else:
                _draw()
    except KeyboardInterrupt:
        pass


def _views() -> Iterator[tuple[Machine, list[Session]]]:
    """The sessions now, and again after each change or `_LOOK_AGAIN_S`."""
    homes = find.homes(os.environ, state.added_homes())
    roots = sorted({Path(home.path, _root(home)) for home in homes if home.store.files})
    follower = FileFollower(roots, wants=lambda path: path.endswith(_ENDINGS))
    try:
        while True:
            interrupts.check()
            machine, sessions = with_machine(recent)
            yield machine, sessions
            machine.index.close()
            until = time.monotonic() + _LOOK_AGAIN_S
            while (left := until - time.monotonic()) > 0 and not follower.step(left):
                pass
    finally:
        follower.close()


def _root(home: find.Home) -> str:
    """The subfolder of a home that has its session files; "" if they may be anywhere in it."""
    first = home.store.files[0].split("/")[0]
    return "" if "*" in first else first


def _print_lines() -> None:
    before = ""
    for _, sessions in _views():
        line = to_json(printing.with_schema(as_dict(sessions)))
        if line != before:
            printing.say(line)
            before = line


def _draw() -> None:
    from rich.live import Live

    console = printing.console()
    with Live(console=console, auto_refresh=False, screen=False) as live:
        for machine, sessions in _views():
            live.update(tables.table_by_run(sessions, machine.now, console.width), refresh=True)
