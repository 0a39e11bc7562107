"""`segue fits N`: may a task of this size be started in this session?"""

import json
import os
from collections.abc import Sequence

import click

from segue.cli import tables
from segue.cli.machine import Machine, choose, list_sessions, say_notes, with_machine
from segue.core.forecast import Fit, fits
from segue.core.session import Session
from segue.errors import InputError

DOES_NOT_FIT = 1


@click.command()
@click.argument("tokens", metavar="N")
@click.argument("session", required=False)
@click.option("--reserve", type=int, metavar="N", help="Tokens to keep for a checkpoint.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@click.pass_context
def command(
    ctx: click.Context, tokens: str, session: str | None, reserve: int | None, as_json: bool
) -> None:
    """Exit with 0 if a task of N tokens (5000, 5K, 1.2M) fits into SESSION, else with 1.

    Without SESSION: the live or newest one of this folder.
    """
    count = _count(tokens)
    if reserve is not None and reserve < 0:
        raise InputError("--reserve must not be below 0")
    machine, listed = with_machine(list_sessions, with_processes=session is None)
    say_notes(machine)
    found = choose(listed, session) if session else _of_folder(listed)
    fit = _fit(machine, found, count, reserve)
    if as_json:
        click.echo(
            json.dumps(
                {
                    "fits": fit.ok,
                    "tokens": count,
                    "room_tokens": fit.room_tokens,
                    "because": fit.because,
                    "why": fit.why,
                    "session": tables.as_dict(found),
                }
            )
        )
    else:
        click.echo(f"{'yes' if fit.ok else 'no'}: {fit.why}")
    ctx.exit(0 if fit.ok else DOES_NOT_FIT)


def _fit(machine: Machine, session: Session, count: int, reserve: int | None) -> Fit:
    if session.reading is None:
        raise InputError(f"session {session.session_id}: how full it is is not known yet")
    enforced = None
    if session.forecast is not None:
        enforced = machine.survey.windows.enforced(session.agent, session.reading.window_tokens)
    keep = machine.policy.reserve_tokens if reserve is None else reserve
    return fits(
        count,
        session.reading,
        machine.policy,
        reserve_tokens=keep,
        enforced_at_tokens=enforced,
    )


def _of_folder(sessions: Sequence[Session]) -> Session:
    here = os.path.realpath(os.getcwd())
    mine = [s for s in sessions if s.cwd and os.path.realpath(s.cwd) == here and s.reading]
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
