"""`segue rerun RUN`: the same task anew."""

import os
import sys

import click

from segue.cli.kept import find, must_be_there, opened
from segue.cli.run import options, play
from segue.errors import InputError
from segue.io import settings as layered
from segue.io.settings import Flags
from segue.runner import begin
from segue.runner.begin import Wanted


@click.command()
@click.argument("run")
@options
def command(
    *,
    run: str,
    policy: str | None,
    sets: tuple[str, ...],
    share_tree: bool,
    as_json: bool,
    raw: bool,
) -> None:
    """Begin the task of RUN anew, as a new run: the same agent, folder, flags, check and policy.

    Nothing of RUN's work is undone or carried over. With --policy or --set, the policy is what is
    set now. Outputs and exit codes are those of `segue run`.
    """
    with opened() as store:
        found = find(store, run)
    must_be_there(found)
    flags = Flags(policy=policy, set=sets, agent=found.agent, share_tree=share_tree or None)
    settings = layered.load(found.cwd, os.environ, flags)
    begin.register(settings)
    drive, program = begin.driven(found.agent, os.environ)
    if fault := drive.refuses(found.flags):
        raise InputError(f"{found.agent}: {fault}")
    wanted = Wanted(
        task=found.task,
        agent=found.agent,
        command=program,
        drive=drive,
        cwd=found.cwd,
        policy=settings.policy(found.agent) if policy or sets else found.policy,
        flags=found.flags,
        check=found.check,
        share_tree=settings.share_tree,
    )
    sys.exit(play(wanted, settings, as_json=as_json, raw=raw))
