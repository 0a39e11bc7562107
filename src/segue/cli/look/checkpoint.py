"""`segue checkpoint SESSION`: what the next session must know, made without a model."""

import click
import msgspec

from segue.core.handoffs.checkpoint import clean, render
from segue.core.handoffs.digest import budget_chars
from segue.core.handoffs.quoting import indented
from segue.core.secrets.redact import redact
from segue.core.sessions.types import Session
from segue.errors import InputError
from segue.sessions.documents import checkpoint_of, known_work
from segue.views import printing
from segue.views.machine import say_notes, with_machine
from segue.views.rescues import finding
from segue.watch.predecessors import earlier

_IN_DOUBT = (
    "## Last tool call, in doubt\n\nNobody saw how it ended: it may or may not have been done."
)


@click.command()
@click.argument("session")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(session: str, as_json: bool) -> None:
    """Print the checkpoint of SESSION as Markdown: what another session needs to continue it.

    segue makes it from the session's own records and the files on disk, for a live or dead
    session of any agent, without a model. Secrets are left out.
    """
    if session.startswith("run-"):
        raise InputError(f"{session} is a run: segue show {session} prints its checkpoint")
    machine, found = with_machine(lambda machine: finding.named(machine, session))
    say_notes(machine)
    _show(found.session, is_cut=found.is_cut, as_json=as_json)


def _show(session: Session, *, is_cut: bool, as_json: bool) -> None:
    found = known_work(session.agent, session.path, session.session_id, session.cwd)
    window = session.reading.window_tokens if session.reading is not None else 0
    made = checkpoint_of(
        found,
        session.agent,
        session.path,
        session.session_id,
        session.cwd,
        window_tokens=window,
        earlier=earlier(session),
    )
    doubt = found.salvaged.last_call
    doubt = "" if doubt is None and is_cut else doubt
    text = render(made, max_chars=max(budget_chars(window), len(found.task) + 1_000))
    if doubt is not None:
        call = indented(redact(doubt)[0].strip())
        text = "\n\n".join(filter(None, (text, _IN_DOUBT, call)))
    if not text:
        raise InputError(f"nothing can be read in {session.path}")
    if not as_json:
        printing.say(text)
        return
    printing.say_json(
        {
            "agent": session.agent,
            "session_id": session.session_id,
            "path": session.path,
            "cwd": session.cwd or None,
            "in_doubt": None if doubt is None else redact(doubt)[0],
            "markdown": text,
            "checkpoint": msgspec.to_builtins(clean(made)[0]),
        }
    )
