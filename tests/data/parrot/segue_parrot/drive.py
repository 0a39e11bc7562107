"""How parrot is driven."""

import shutil

from segue.agents.contracts.drive import Drive, Env, Launch, LegOrder


def find(env: Env) -> tuple[str, ...] | None:
    """Its command."""
    program = shutil.which("parrot", path=env.get("PATH"))
    return (program,) if program else None


def launch(order: LegOrder) -> Launch:
    """One process a prompt."""
    resume = ("--resume", order.session_id) if order.session_id else ()
    return Launch(argv=(*order.command, *resume, *order.flags, order.prompt))


DRIVE = Drive(agent="parrot", find=find, install="pip install segue-parrot", launch=launch)
