"""`segue watch`: the daemon, in the foreground."""

import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from segue.cli.support.numbers import Whole
from segue.core.terminals.visible import to_json
from segue.errors import InputError, StateError
from segue.system import clock
from segue.system.files import state
from segue.views import printing

if TYPE_CHECKING:
    from segue.watch.log import Note
    from segue.watch.server.answers import DaemonAnswers
    from segue.watch.telemetry import DaemonTelemetry

_OBSERVES = """\
segue watches, records and reminds. It does not type into terminals or resume sessions. To turn that
on, use --auto, or set it for a project in the config (docs/watch.md)."""
_ACTS = """\
segue acts by itself {where}: at the handoff mark (auto_handoff) it asks a session in
tmux for a handoff document, clears its context and lets it continue; after a limit or a crash
(auto_resume) it resumes the session. It never resumes a session that you ended, and never types
over you. To stop it from acting: segue pause"""


@click.command()
@click.option(
    "--auto", is_flag=True, help="Hand over and resume without asking, instead of only observing."
)
@click.option(
    "--in", "folders", multiple=True, metavar="FOLDER", help="With --auto: act only below FOLDER."
)
@click.option(
    "--http", "port", type=Whole(0, 65535), metavar="PORT",
    help="Also serve the API on 127.0.0.1:PORT, protected by a token.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object per note on stdout.")
def command(auto: bool, folders: tuple[str, ...], port: int | None, as_json: bool) -> None:
    """Watch all sessions and record zones, stops and reminders; with --auto, also hand over and
    resume.

    There is one daemon per user. SIGHUP reloads the config, Ctrl+C ends the daemon. To run it as
    a service: segue service install.
    """
    if folders and not auto:
        raise InputError("--in needs --auto")
    for folder in folders:
        if not os.path.isdir(folder):
            raise InputError(f"--in {folder}: no such folder")
    _fill_closed_streams()
    from segue.runs.store import leases, open_store
    from segue.runs.store.port import Held

    with open_store() as store:
        try:
            lease = store.acquire("watch", leases.me("segue watch"), time.time())
        except Held as held:
            raise StateError(
                f"a daemon is already running: process {held.holder.pid}; see: segue status"
            ) from None
        try:
            _watch(auto=auto, folders=folders, port=port, as_json=as_json)
        finally:
            store.release(lease)


def _watch(*, auto: bool, folders: tuple[str, ...], port: int | None, as_json: bool) -> None:
    from segue.watch.daemon import Watch
    from segue.watch.log import LOG_NAME, open_log
    from segue.watch.rules import Rules
    from segue.watch.server.answers import DaemonAnswers
    from segue.watch.server.server import Server
    from segue.watch.telemetry import DaemonTelemetry

    rules = Rules(os.environ, auto=auto, auto_in=folders)
    log, note = open_log(os.path.join(state.state_folder(), LOG_NAME))
    out = _Printer()
    if note:
        out.say(note)
    watch = Watch(env=os.environ, log=log, rules=rules, say=out.say)
    link = DaemonAnswers(watch, figures=_figures)
    telemetry: DaemonTelemetry | None = None
    server = Server(link, port=port, broke=lambda fault: out.say(_own_fault(fault)))
    try:
        watch.catch_signals()
        watch.restore()
        server.start()
        out.put(2, _introduction(rules.switched_on(), auto=auto, folders=folders))
        if server.port:
            out.say(f"also at http://127.0.0.1:{server.port}, protected by a token")
        if as_json:
            watch.state.listeners.append(out.print_note)
        if (telemetry := _telemetry(link, out.say)) is not None:
            watch.state.listeners.append(telemetry.hear)
        watch.run()
    finally:
        if telemetry is not None:
            telemetry.close()
        server.close()
        log.close()
        out.close()


def _telemetry(link: "DaemonAnswers", say: Callable[[str], None]) -> "DaemonTelemetry | None":
    """The daemon's telemetry; None unless the user set it up and its packages are installed."""
    from segue.runs.telemetry.reporter import MISSING
    from segue.system.telemetry import setup

    endpoint = setup.endpoint(os.environ)
    if endpoint is None:
        return None
    if not setup.is_installed():
        if endpoint.is_asked:
            say(MISSING)
        return None
    from segue.reports.reading import figure_samples
    from segue.watch.server.metrics import samples
    from segue.watch.telemetry import DaemonTelemetry

    began = clock.now()
    return DaemonTelemetry(
        endpoint, os.environ, lambda: [*samples(link.metrics(), began), *figure_samples()]
    )


def _figures(since: float | None) -> dict[str, Any]:
    """The figures, in the form of `segue report --figures --json`."""
    from segue.reports.figures import figures
    from segue.reports.reading import read_facts
    from segue.views.report.figures import as_dict

    known = read_facts(since or 0.0)
    return as_dict(figures(known), known.stops, since, clock.now())


def _fill_closed_streams() -> None:
    """Opens /dev/null for each closed standard stream. A new file gets the lowest free number, and
    none of segue's sockets may become a child's stdout."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _introduction(switched_on: str, *, auto: bool, folders: tuple[str, ...]) -> str:
    """Says plainly what the daemon is about to do: nobody should learn it by seeing it type."""
    places = []
    if auto:
        places.append(f"below {', '.join(folders)}" if folders else "in every project")
    if switched_on:
        places.append(f"as your config says ({switched_on})")
    return _ACTS.format(where=" and ".join(places)) if places else _OBSERVES


class _Printer:
    """Prints in its own thread. Callers never wait for a reader that has stopped reading (a full
    pipe, a terminal after Ctrl+S), and do not notice one that is gone."""

    _MAX_WAITING = 10_000
    _CLOSE_S = 0.5

    def __init__(self) -> None:
        streams = {1: sys.stdout, 2: sys.stderr}
        # A descriptor that was closed when the process began may belong to a database by now.
        self._open = {number for number, stream in streams.items() if stream is not None}
        self._color = {number for number in self._open if os.isatty(number)}
        if os.environ.get("NO_COLOR"):
            self._color = set()
        self._lines: queue.Queue[tuple[int, str] | None] = queue.Queue(self._MAX_WAITING)
        self._thread = threading.Thread(target=self._work, name="printer", daemon=True)
        self._thread.start()

    def say(self, line: str) -> None:
        """Prints a line for people on stderr, with the time."""
        at = time.strftime("%H:%M:%S")
        stamp = printing.style(at, dim=True) if 2 in self._color else at
        self.put(2, f"{stamp} {printing.one_line(line)}")

    def print_note(self, note: "Note") -> None:
        """Prints a note on stdout, as JSON."""
        from segue.watch.server.api import note_dict

        self.put(1, to_json(note_dict(note)))

    def put(self, number: int, line: str) -> None:
        """Prints a line on stream 1 or 2; drops it if `_MAX_WAITING` lines are already waiting."""
        with suppress(queue.Full):
            self._lines.put_nowait((number, line))

    def close(self) -> None:
        """Prints the lines that still wait, for at most `_CLOSE_S`."""
        with suppress(queue.Full):
            self._lines.put_nowait(None)
        self._thread.join(self._CLOSE_S)

    def _work(self) -> None:
        while (given := self._lines.get()) is not None:
            number, line = given
            data = f"{printing.rendered(line)}\n".encode("utf-8", "replace")
            while data and number in self._open:
                try:
                    data = data[os.write(number, data) :]
                # another process made it non-blocking: retry, so the line is not lost
                except BlockingIOError:
                    time.sleep(0.05)
                except OSError:
                    self._open.discard(number)  # its reader is gone


def _own_fault(fault: Exception) -> str:
    return f"internal error: {type(fault).__name__}: {fault}"
