"""`segue rescue`: lists sessions that died without segue, and resumes one."""

import sys
from typing import Any

import click

from segue.cli.support.run.options import RunCommand, options
from segue.cli.support.times import instant
from segue.core.resumes.rescues import has_work_left
from segue.core.stops.reasons import StopReason
from segue.errors import InputError
from segue.system import clock
from segue.views import printing
from segue.views.machine import Machine, say_notes, with_machine
from segue.views.rescues import finding, listing
from segue.views.rescues.listing import Dead

_SHOWN = 20
_USUAL = "7d"


class RescueCommand(RunCommand):
    """Arguments after `--` belong to the agent."""

    takes = "SESSION"


@click.command(cls=RescueCommand)
@click.argument("session", required=False)
@click.option("--last", is_flag=True, help="Rescue the newest one.")
@click.option(
    "--since",
    metavar="TIME",
    default=_USUAL,
    help="List those that stopped since then, for example 7d.",
)
@click.option(
    "--all", "with_all", is_flag=True, help="Also list sessions that finished or that you ended."
)
@click.option("--agent", metavar="NAME", help="Continue with another agent.")
@click.option("--in", "folder", metavar="FOLDER", help="The session's folder, if it has moved.")
@click.option("--fresh", is_flag=True, help="Use a new session, with a checkpoint.")
@click.option("--check", metavar="CMD", help="The task is done once this command exits with 0.")
@click.option("--detach", is_flag=True, help="Run in the background, and return at once.")
@click.option("--trust-check", is_flag=True, help="Accept the check of the project's .segue.toml.")
@click.option("--no-project-check", is_flag=True, help="Ignore that check.")
@click.option("--dry-run", is_flag=True, help="Print the command and the prompt; start nothing.")
@options
@click.pass_context
def command(
    ctx: click.Context,
    *,
    session: str | None,
    last: bool,
    since: str,
    with_all: bool,
    agent: str | None,
    folder: str | None,
    fresh: bool,
    check: str | None,
    detach: bool,
    trust_check: bool,
    no_project_check: bool,
    dry_run: bool,
    policy: str | None,
    sets: tuple[str, ...],
    share_tree: bool,
    as_json: bool,
    raw: bool,
) -> None:
    """Continue SESSION, which died without segue, as a run; without SESSION, list all sessions that
    did.

    The run continues in the same session if possible, otherwise in a new session with a
    checkpoint made from the old one's records, or with --agent in a session of another agent.
    Until then segue sends nothing to a model. Arguments after -- go to the agent unchanged.
    Output and exit codes are those of `segue run`.
    """
    if session is not None and last:
        raise InputError("SESSION and --last cannot be combined")
    if session is not None and session.startswith("run-"):
        raise InputError(f"{session} is a run; to resume it: segue resume {session}")
    begins = instant(since, clock.now())
    dead = (
        _listed(begins, last=last, with_all=with_all, as_json=as_json)
        if session is None
        else _named(session)
    )
    if dead is None:
        return
    _refuse(dead, agent, with_all)
    flags = {
        "policy": policy,
        "set": sets,
        "agent": agent or dead.session.agent,
        "check": check,
        "share_tree": share_tree or None,
        "project_check": not no_project_check,
    }
    from segue.cli.support.rescuing import How, rescue

    how = How(
        flags=flags,
        given=ctx.meta.get("segue.flags"),
        folder=folder,
        fresh=fresh,
        trusts=trust_check,
        dry=dry_run,
        detach=detach,
        as_json=as_json,
        raw=raw,
    )
    sys.exit(rescue(dead, how))


def _named(name: str) -> Dead:
    machine, found = with_machine(lambda machine: finding.named(machine, name))
    say_notes(machine)
    return found


def _listed(begins: float, *, last: bool, with_all: bool, as_json: bool) -> Dead | None:
    """The newest session with --last, or else the one that the user chooses from the printed list;
    None if there is none."""

    def look(machine: Machine) -> tuple[list[Dead], list[str], list[Any]]:
        dead, runs = finding.find(machine, begins, with_all=with_all)
        needs_work = not (last or as_json)
        return dead, runs, finding.works(machine, dead[:_SHOWN]) if needs_work else []

    machine, (dead, runs, works) = with_machine(look)
    say_notes(machine)
    if last:
        if not dead:
            raise InputError(
                "no session died with unfinished work; `segue rescue --all` lists more"
            )
        return dead[0]
    if as_json:
        printing.say_json({"sessions": [listing.as_dict(each) for each in dead]})
        return None
    shown = list(zip(dead[:_SHOWN], works, strict=True))
    for line in listing.lines(shown, machine.now, printing.console().width):
        printing.say(line)
    _say_more(dead, runs)
    if not dead or not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        return None
    number = printing.pick(
        "Which one do you want to resume? (a number, or Enter for none)", len(dead[:_SHOWN])
    )
    return dead[number - 1] if number else None


def _say_more(dead: list[Dead], runs: list[str]) -> None:
    if not dead:
        printing.say("no session died with unfinished work; `segue sessions` lists all", err=True)
    elif len(dead) > _SHOWN:
        printing.say(f"and {len(dead) - _SHOWN:,} more: segue rescue --json", err=True)
    if dead:
        printing.say("to resume one: segue rescue SESSION", err=True)
    for run in runs[:_SHOWN]:
        printing.say(f"{run} is not finished; to resume it: segue resume {run}", err=True)


def _refuse(dead: Dead, agent: str | None, with_all: bool) -> None:
    """Raises InputError for a session that must not be rescued, with what to do instead."""
    session = dead.session
    name = session.session_id
    if session.run is not None:
        run = session.run.id
        do = (
            f"to watch it: segue attach {run}"
            if session.run.is_driven
            else f"to resume it: segue resume {run}"
        )
        raise InputError(f"session {name} is part of {run} ({session.run.state}); {do}")
    if session.process is not None:
        raise InputError(
            f"session {name} is open in {session.agent} (process {session.process.pid}): quit it"
            " there first, or continue there"
        )
    if session.handed_over_to:
        raise InputError(
            f"session {name} handed its work over to {session.handed_over_to};"
            f" to rescue that one: segue rescue {session.handed_over_to}"
        )
    if not has_work_left(dead.reason) and not with_all:
        what = "finished" if dead.reason is StopReason.COMPLETED else "was ended by you"
        raise InputError(f"session {name} {what}; to resume it anyway: segue rescue {name} --all")
    if not dead.task:
        raise InputError(
            f"session {name} has no readable prompt, so its task is unknown: {session.path}"
        )
    if agent is None and "new_session" not in dead.ways:
        raise InputError(
            f"segue can read sessions of {session.agent}, but cannot run it; continue with another"
            f" agent: segue rescue {name} --agent NAME"
        )
