"""`segue rerun [RUN]`: starts the same task again."""

import os
import sys

import click
from msgspec.structs import replace

from segue.cli.support.run.lookup import find_or_newest, must_be_there, opened
from segue.cli.support.run.options import AgainCommand, options
from segue.cli.support.run.warnings import warn
from segue.cli.work.run import play
from segue.core.policy import Policy
from segue.core.runs.types import Member
from segue.runs.starting import installed_agents, run_request
from segue.system.config import settings as layered
from segue.system.config.settings import Flags


@click.command(cls=AgainCommand)
@click.argument("run", required=False)
@click.option("--strict", is_flag=True, help="Do not start if there is anything to warn about.")
@options
@click.pass_context
def command(
    ctx: click.Context,
    *,
    run: str | None,
    strict: bool,
    policy: str | None,
    sets: tuple[str, ...],
    share_tree: bool,
    as_json: bool,
    raw: bool,
) -> None:
    """Start the task of RUN again as a new run, with what you added to it (`resume --say`) and
    the same agent, folder, flags, check and policy.

    Without RUN, use the newest run of this folder. The work of RUN is neither undone nor carried
    over. With --policy or --set, the new run uses your current settings instead of RUN's policy.
    Arguments after -- are added to the agent's flags. Output and exit codes are those of `segue
    run`.
    """
    with opened() as store:
        found = find_or_newest(store, run)
    must_be_there(found)
    first, *successors = found.relay or (Member(agent=found.agent, flags=found.flags),)
    flags = Flags(
        policy=policy,
        set=sets,
        agent=first.agent,
        check=found.check,  # the check that was accepted then, whatever the project's file has now
        share_tree=share_tree or None,
    )
    settings = layered.load(found.cwd, os.environ, flags)
    installed_agents.register(settings)
    drive, _ = installed_agents.driven(first.agent, os.environ)
    more: tuple[str, ...] = ctx.meta.get("segue.flags", ())

    def request_for(agent: str, words: tuple[str, ...], rules: Policy) -> run_request.RunRequest:
        return run_request.request(
            found.task,
            agent,
            settings,
            os.environ,
            cwd=found.cwd,
            flags=words,
            policy=None if policy or sets else rules,
        )

    words = run_request.with_flags(drive, first.agent, first.flags, more)
    wanted = replace(
        request_for(first.agent, words, first.policy if found.relay else found.policy),
        additions=found.additions,
        successors=tuple(request_for(each.agent, each.flags, each.policy) for each in successors),
    )
    warn(wanted, os.environ, strict=strict)
    sys.exit(play(wanted, settings, as_json=as_json, raw=raw))
