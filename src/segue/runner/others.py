"""Agents that were started by hand: one writer per session (rule 7), and the user goes first."""

from collections.abc import Mapping

from segue.core import alive
from segue.core.session import Process
from segue.io import processes
from segue.transcripts import find


def working_on(
    agent: str, session_id: str, path: str, cwd: str, env: Mapping[str, str]
) -> Process | None:
    """The process that surely has this session open; None if there is none, or only a guess."""
    homes = [home for home in find.homes(env) if home.agent == agent]
    if not homes or not session_id:
        return None
    subject = alive.Subject(
        key=session_id, agent=agent, session_id=session_id, path=path, cwd=cwd, is_open=True
    )
    living = [process for process in processes.living(homes) if process.certain]
    return alive.behind([subject], living).get(session_id)
