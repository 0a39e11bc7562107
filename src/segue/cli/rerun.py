"""`segue rerun RUN`: the same task anew."""

import os
import sys

import click
from msgspec.structs import replace

from segue.cli.kept import find, must_be_there, opened
from segue.cli.run import options, play
from segue.io import settings as layered
from segue.io.settings import Flags
from segue.runner import begin


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
    wanted = begin.wanted(
        found.task,
        found.agent,
        settings,
        os.environ,
        cwd=found.cwd,
        flags=found.flags,
        policy=None if policy or sets else found.policy,
    )
    wanted = replace(wanted, check=found.check)
    sys.exit(play(wanted, settings, as_json=as_json, raw=raw))
