"""`segue resume [RUN]`: resumes a run."""

import os
import sys

import click

from segue import fleet
from segue.cli.support.run.lookup import (
    find,
    is_driven,
    must_be_here,
    must_be_there,
    opened,
    wait_until_released,
)
from segue.cli.support.run.options import AgainCommand, options
from segue.errors import InputError
from segue.runs.starting import installed_agents, run_request
from segue.runs.starting.driver import Driver
from segue.runs.store.port import Held
from segue.system.config import settings as layered
from segue.system.config.settings import Flags


@click.command(cls=AgainCommand)
@click.argument("run", required=False)
@click.option("--say", "addition", metavar="TEXT", help="Add TEXT to the task, or correct it.")
@click.option("--fresh", is_flag=True, help="Use a new session, with a checkpoint.")
@click.option(
    "--seize", is_flag=True, help="Take over even if another segue seems to drive the run."
)
@click.option("--detach", is_flag=True, help="Run in the background, and return at once.")
@click.option("--strict", is_flag=True, help="Fail if the same session cannot be resumed.")
@options
@click.pass_context
def command(
    ctx: click.Context,
    *,
    run: str | None,
    addition: str | None,
    detach: bool,
    fresh: bool,
    strict: bool,
    seize: bool,
    policy: str | None,
    sets: tuple[str, ...],
    share_tree: bool,
    as_json: bool,
    raw: bool,
) -> None:
    """Resume RUN: one that has ended, that you stopped, or whose segue is gone.

    Without RUN, resume the newest unfinished run of this folder. If its agent is still working,
    segue takes it over as it is. Arguments after -- are added to the agent's flags, from the
    next leg on: segue resume RUN -- --permission-mode acceptEdits. Output and exit codes are
    those of `segue run`.

    With --say, the session is told what you want to add or correct, and so is every later one.
    To correct a run that is working, end it first (Ctrl+C, or segue cancel RUN).
    """
    more: tuple[str, ...] = ctx.meta.get("segue.flags", ())
    if fresh and strict:
        raise InputError("--fresh and --strict cannot be combined")
    if addition is not None and not addition.strip():
        raise InputError('--say: the text is empty; write --say "TEXT"')
    with opened() as store:
        found = find(store, run)
        must_be_here(store, found)
        must_be_there(found)
        if found.state.is_final:
            wait_until_released(store, found)
        if detach:
            from segue.cli.support.run.detach import resume as resume_detached

            options = [f"--{name}" for name, is_on in (
                ("fresh", fresh), ("strict", strict), ("seize", seize), ("share-tree", share_tree),
            ) if is_on]  # fmt: skip
            options += [f"--policy={policy}"] if policy else []
            options += [f"--set={each}" for each in sets]
            options += [f"--say={addition}"] if addition else []
            options += ["--", *more] if more else []
            resume_detached(store, found, options, seize=seize, as_json=as_json, raw=raw)
            return
        flags = Flags(policy=policy, set=sets, agent=found.agent, share_tree=share_tree or None)
        settings = layered.load(found.cwd, os.environ, flags)
        installed_agents.register(settings)
        drive, program = installed_agents.driven(found.agent, os.environ)
        words = run_request.with_flags(drive, found.agent, found.flags, more)
        from segue.cli.support.run.stage import RunStage  # slow to import: not for --help

        stage = RunStage(settings, as_json=as_json, raw=raw)
        with Driver(
            store,
            env=os.environ,
            prompts=settings.prompts,
            seize=seize,
            accounts=fleet.open_accounts(),
        ) as driver:
            try:
                loop, first = driver.go_on(
                    found,
                    drive,
                    program,
                    fresh=fresh,
                    strict=strict,
                    share_tree=settings.share_tree,
                    policy=run_request.policy_for(settings, found.agent, words)
                    if policy or sets
                    else None,
                    flags=words if more else None,
                    addition=addition or "",
                    relay=run_request.with_policies(found, settings) if policy or sets else None,
                )
            except Held as held:
                raise InputError(is_driven(found, held.holder)) from None
            stage.view.say(f"{found.id}: resuming ({found.state.value}), {found.agent}")
            code = stage.play(loop, first)
    stage.finish()
    sys.exit(code)
