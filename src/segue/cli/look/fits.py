"""`segue fits N`: whether a task of this size, or the task in a prompt, may start in this
session."""

import os
import sys
from collections.abc import Sequence

import click

from segue.cli.support.numbers import Whole
from segue.core.sessions.forecasts.forecast import Fit
from segue.core.sessions.forecasts.gate import Sized, size_of_prompt, stated
from segue.core.sessions.types import Session, fit_in
from segue.errors import InputError
from segue.system.files import files
from segue.views import printing, tables
from segue.views.machine import (
    Machine,
    choose,
    list_sessions,
    project_costs,
    say_notes,
    with_machine,
)

DOES_NOT_FIT = 1
_MAX_BYTES = 10_000_000


@click.command()
@click.argument("words", nargs=-1, metavar="[N] [SESSION]")
@click.option(
    "--prompt", metavar="TEXT", help="Estimate N from the text of a task; - reads it from stdin."
)
@click.option("--reserve", type=Whole(0), metavar="N", help="Tokens to keep for a checkpoint.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@click.pass_context
def command(
    ctx: click.Context,
    words: tuple[str, ...],
    prompt: str | None,
    reserve: int | None,
    as_json: bool,
) -> None:
    """Exit with 0 if a task of N tokens (5000, 5K, 1.2M) fits into SESSION, and with 1 if it does
    not.

    Without SESSION, use the live or newest session of this folder. With --prompt, leave out N:
    segue estimates it from the text and from what tasks in the same project have cost so far.
    """
    tokens, session = _size_and_session(words, prompt)
    count = None if tokens is None else _count(tokens)
    text = "" if prompt is None else _text(prompt)

    def look(machine: Machine) -> tuple[Session, list[int]]:
        listed = list_sessions(machine)
        found = choose(listed, session) if session else _of_folder(listed)
        return found, [] if prompt is None else project_costs(machine, listed, found)

    machine, (found, costs) = with_machine(look, with_processes=session is None)
    say_notes(machine)
    sized = size_of_prompt(len(text), costs) if count is None else stated(count)
    fit = fit_in(found, sized.tokens, reserve)
    if fit is None:
        raise InputError(
            f"session {found.session_id}: its size is unknown: no reply states its usage yet"
        )
    if as_json:
        printing.say_json(_as_dict(fit, sized, found))
    else:
        estimate = "" if count is not None else f" Estimated {sized.why}."
        printing.say(f"{'yes' if fit.ok else 'no'}: {fit.why}{estimate}")
    ctx.exit(0 if fit.ok else DOES_NOT_FIT)


def _as_dict(fit: Fit, sized: Sized, session: Session) -> dict[str, object]:
    return {
        "fits": fit.ok,
        "tokens": sized.tokens,
        "source": sized.source,
        "estimate": sized.why,
        "room_tokens": fit.room_tokens,
        "because": fit.because,
        "why": fit.why,
        "session": tables.as_dict(session),
    }


def _size_and_session(words: tuple[str, ...], prompt: str | None) -> tuple[str | None, str | None]:
    """The arguments N and SESSION; None for each that is missing. Raises InputError for any other
    number of arguments."""
    if prompt is None and not words:
        raise InputError("how large is the task? write segue fits 5K, or segue fits --prompt TEXT")
    tokens = None if prompt is not None else words[0]
    rest = words if prompt is not None else words[1:]
    if len(rest) > 1:
        hint = "; leave N out with --prompt" if prompt is not None else ""
        raise InputError(f"only one SESSION is allowed, not {' '.join(rest)}{hint}")
    return tokens, rest[0] if rest else None


def _text(prompt: str) -> str:
    if prompt != "-":
        return prompt
    raw = sys.stdin.buffer.read(_MAX_BYTES + 1)
    if len(raw) > _MAX_BYTES:
        raise InputError(f"--prompt -: more than {_MAX_BYTES:,} bytes on stdin")
    return raw.decode("utf-8", "replace")


def _of_folder(sessions: Sequence[Session]) -> Session:
    here = os.path.realpath(os.getcwd())
    mine = [s for s in sessions if s.cwd and files.real(s.cwd) == here and s.reading]
    if not mine:
        raise InputError(f"no session in {here}; name one: segue fits N SESSION")
    return max(mine, key=lambda s: (s.state.is_live, s.last_at or 0))


def _count(given: str) -> int:
    text = given.strip().replace(",", "").replace("_", "").lower()
    scale = {"k": 1_000, "m": 1_000_000}.get(text[-1:], 1)
    try:
        count = round(float(text[:-1] if scale > 1 else text) * scale)
        if not 0 < count < 1e12:
            raise ValueError
    except (ValueError, OverflowError):
        raise InputError(f"{given!r} is not a count of tokens; write 5000, 5K or 1.2M") from None
    return count
