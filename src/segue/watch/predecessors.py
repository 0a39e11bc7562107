"""The sessions whose work a session continues after handoffs in a terminal. Separate from `owners`,
which every view imports: reading sessions takes time to import."""

import os

from segue.core.sessions.types import Session
from segue.errors import StateError
from segue.sessions.documents import Predecessor, predecessor
from segue.system.files import state
from segue.watch.log import LOG_NAME, Log
from segue.watch.owners import successors

_MAX = 8  # the newest of a longer line: each of their files is read whole


def predecessors(log: Log, agent: str, session_id: str) -> list[tuple[str, str]]:
    """The sessions before this one, by agent and id, the oldest first."""
    before = {(agent, new): (agent, old) for (agent, old), new in successors(log).items()}
    found: list[tuple[str, str]] = []
    name = (agent, session_id)
    while name in before and before[name] not in found:
        name = before[name]
        found.append(name)
    return found[:_MAX][::-1]


def earlier(session: Session) -> list[Predecessor]:
    """The same with their places. For any process; None if the log cannot be read."""
    path = os.path.join(state.state_folder(), LOG_NAME)
    if not os.path.exists(path):
        return []
    log = Log(path)
    try:
        names = predecessors(log, session.agent, session.session_id)
    except StateError:
        return []
    finally:
        log.close()
    return [
        predecessor(*name, successor=session.path, cwd=session.cwd, env=os.environ)
        for name in names
    ]
