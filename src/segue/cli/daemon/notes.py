"""`segue notes`: what the daemon saw, decided and did."""

import os
from collections.abc import Callable

import click

from segue.cli.support import interrupts
from segue.cli.support.numbers import Whole
from segue.core.terminals.visible import to_json
from segue.system import clock
from segue.system.files import state
from segue.views import printing
from segue.views.lines import notes as note_lines
from segue.views.verdicts import time_of_day
from segue.watch.log import LOG_NAME, Log, Note, open_log

_LOOK_S = 0.5


@click.command()
@click.argument("session", required=False)
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    metavar="KIND",
    help="Only notes of this kind: crossing, stop, handoff, wake (what is done about a stop) …",
)
@click.option("-n", "count", type=Whole(min=1), default=50, help="The maximum number of notes.")
@click.option("-f", "--follow", is_flag=True, help="Keep printing new notes.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per note.")
def command(
    session: str | None, kinds: tuple[str, ...], count: int, follow: bool, as_json: bool
) -> None:
    """Print the daemon's latest notes: zones, reminders, stops, decisions, handoffs.

    SESSION is an id or the beginning of one. This also works while no daemon is running.
    """
    place = os.path.join(state.state_folder(), LOG_NAME)
    if not os.path.exists(place):
        printing.say("no notes yet; to start the daemon, which writes them: segue watch", err=True)
        return
    log, failure = open_log(place)
    if failure:
        printing.complain(failure)

    steps: dict[str, str] = {}

    def is_wanted(note: Note) -> bool:
        if session and not note.session_id.startswith(session):
            return False
        if note.kind == "handoff" and not as_json:
            before, step = steps.get(note_lines.text(note.data, "id")), note_lines.step(note)
            steps[note_lines.text(note.data, "id")] = step
            if step == before:
                return False
        return note.kind in kinds if kinds else as_json or note.kind not in note_lines.QUIET

    show = _as_json if as_json else _as_line
    try:
        with interrupts.caught():
            last = 0
            shown = _last(log, is_wanted, count)
            for note in shown:
                last = note.seq
                _print(show, note)
            if not shown and not follow:
                printing.say("no matching notes", err=True)
            last = max(last, log.version() if not follow else last)
            while follow:
                for note in log.since(last):
                    last = note.seq
                    if is_wanted(note):
                        _print(show, note)
                interrupts.wait(_LOOK_S)
    except KeyboardInterrupt:
        pass
    finally:
        log.close()


def _last(log: Log, is_wanted: Callable[[Note], bool], count: int) -> list[Note]:
    found: list[Note] = []
    seq = 0
    while notes := log.since(seq):
        seq = notes[-1].seq
        found = [*found, *filter(is_wanted, notes)][-count:]
    return found


def _print(show: Callable[[Note], str], note: Note) -> None:
    if line := show(note):
        printing.say(line)


def _as_json(note: Note) -> str:
    from segue.watch.server.api import note_dict

    return to_json(note_dict(note))


def _as_line(note: Note) -> str:
    text = "; ".join(note_lines.parts(note))
    if not text:
        return ""
    at = printing.style(time_of_day(note.at, clock.now(), clock.local_zone()), dim=True)
    folder = note.project.rstrip("/").rpartition("/")[2]
    whose = f"{note.agent} in {folder} ({note.session_id[:8]})" if note.agent else "segue watch"
    return f"{at}  {whose}  {text}"
