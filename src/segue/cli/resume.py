"""`segue resume [RUN]`: goes on with a run."""

import os
import sys

import click

from segue.cli.kept import find, must_be_there, opened
from segue.cli.run import options
from segue.cli.stage import Stage
from segue.errors import InputError
from segue.io import settings as layered
from segue.io.settings import Flags
from segue.runner import begin
from segue.runner.begin import Driver
from segue.store.port import Held


@click.command()
@click.argument("run", required=False)
@click.option("--fresh", is_flag=True, help="In a new session, with a checkpoint.")
@click.option("--seize", is_flag=True, help="Although another segue seems to have it.")
@click.option("--strict", is_flag=True, help="In the same session, or not at all.")
@options
def command(
    *,
    run: str | None,
    fresh: bool,
    strict: bool,
    seize: bool,
    policy: str | None,
    sets: tuple[str, ...],
    share_tree: bool,
    as_json: bool,
    raw: bool,
) -> None:
    """Go on with RUN: one that ended, was stopped by you, or whose segue is gone.

    None named: the newest unfinished one of this folder. A leg that still works is taken up as it
    is. Outputs and exit codes are those of `segue run`.
    """
    if fresh and strict:
        raise InputError("--fresh and --strict exclude each other")
    with opened() as store:
        found = find(store, run)
        must_be_there(found)
        flags = Flags(policy=policy, set=sets, agent=found.agent, share_tree=share_tree or None)
        settings = layered.load(found.cwd, os.environ, flags)
        begin.register(settings)
        drive, program = begin.driven(found.agent, os.environ)
        stage = Stage(settings, as_json=as_json, raw=raw)
        with Driver(store, env=os.environ, prompts=settings.prompts, seize=seize) as driver:
            try:
                loop, first = driver.go_on(
                    found,
                    drive,
                    program,
                    fresh=fresh,
                    strict=strict,
                    share_tree=settings.share_tree,
                    policy=begin.policy_for(settings, found.agent, found.flags)
                    if policy or sets
                    else None,
                )
            except Held as held:
                raise InputError(
                    f"{found.id} is driven by process {held.holder.pid} already; to see it:"
                    f" segue logs -f {found.id}; to end it: segue cancel {found.id}"
                ) from None
            stage.view.say(f"{found.id}: going on ({found.state.value}), {found.agent}")
            code = stage.play(loop, first)
    sys.exit(code)
