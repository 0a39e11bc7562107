"""`segue resume [RUN]`: goes on with a run."""

import os
import sys

import click

from segue.cli.run import options
from segue.cli.stage import Stage
from segue.core.run import Run
from segue.errors import InputError
from segue.io import settings as layered
from segue.io.settings import Flags
from segue.runner import begin
from segue.runner.begin import Session
from segue.store import open_store
from segue.store.port import Store


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
    if as_json and raw:
        raise InputError("--json and --raw exclude each other")
    with open_store() as store:
        found = find(store, run)
        flags = Flags(policy=policy, set=sets, agent=found.agent, share_tree=share_tree or None)
        settings = layered.load(found.cwd, os.environ, flags)
        begin.register(settings)
        drive, program = begin.driven(found.agent, os.environ)
        stage = Stage(settings, as_json=as_json, raw=raw)
        with Session(store, env=os.environ, prompts=settings.prompts, seize=seize) as session:
            loop, first = session.go_on(
                found,
                drive,
                program,
                fresh=fresh,
                strict=strict,
                share_tree=settings.share_tree,
                policy=settings.policy(found.agent) if policy or sets else None,
            )
            stage.view.say(f"{found.id}: going on ({found.state.value}), {found.agent}")
            code = stage.play(loop, first)
    sys.exit(code)


def find(store: Store, name: str | None) -> Run:
    """A run by its id or the beginning of it; none named: the newest unfinished one of this folder.
    Raises InputError."""
    if name is None:
        cwd = os.getcwd()
        for run in store.runs(cwd=cwd):
            if run.state.value != "done":
                return run
        raise InputError(f"no unfinished run in {cwd}; `segue runs` lists all")
    ids = store.find(name if name.startswith("run-") else f"run-{name}")
    if name in ids:
        ids = [name]
    if len(ids) != 1:
        what = "no run" if not ids else f"{len(ids)} runs"
        raise InputError(
            f"{what} {'is called' if not ids else 'begin with'} {name}; see: segue runs"
        )
    found = store.run(ids[0])
    if found is None:
        raise InputError(f"{ids[0]}: was written by a newer segue")
    return found
