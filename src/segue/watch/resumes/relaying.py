"""Lets another agent take over a session that is limited for long: which agent can, and how it is
started.

The user switches this on (`relay`), names the agents (`[run] agent`) and the flags of each
(`[run.flags]`); a project's file can do none of that. The new agent starts in its own window,
with a handoff that segue wrote; the old session stays at its prompt and belongs to its user.
"""

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from segue.agents import canonical, drives, terminals
from segue.agents.contracts.drive import Drive
from segue.agents.contracts.terminal import Terminal, kept_arguments
from segue.core.handoffs.prompts import Relay
from segue.core.sessions.types import Session
from segue.core.stops.reasons import StopReason
from segue.runs.briefing import instructions
from segue.runs.starting.preflight import access
from segue.system.accounts import account_of
from segue.watch.resumes.gate import AccountGate
from segue.watch.state import DaemonState

NOT_CARRIED_OVER = "MCP servers, skills and the agent's own memory files do not carry over"


class Successor(Struct, frozen=True):
    """An agent that could take over."""

    agent: str
    terminal: Terminal
    drive: Drive
    program: str
    flags: tuple[str, ...]  # the user's flags for it, as far as it accepts them in a terminal


def successors(state: DaemonState, gate: AccountGate, session: Session) -> Iterator[Successor]:
    """The agents of the user's list that are installed, signed in as far as segue can see, have
    a terminal that segue knows, and are not limited; in order. No program is started to find
    out."""
    settings = state.rules.user_settings
    for name in settings.relay:
        agent = canonical(name)
        terminal, drive = terminals.find(agent), drives.find(agent)
        if agent == session.agent or terminal is None or drive is None:
            continue
        command = drive.find(state.env)
        if command is None:
            continue
        flags = settings.flags.get(agent, ())
        found = access(drive, command, flags=flags, env=state.env, cwd=session.cwd, may_start=False)
        if found is not None and found.signed_in is False:
            continue
        if gate.is_free(account_of(agent, state.env, flags=flags, cwd=session.cwd)):
            yield Successor(agent, terminal, drive, command[0], kept_arguments(terminal, flags))


def begun(state: DaemonState, session: Session, to: Successor, document: Path) -> tuple[str, ...]:
    """The command that starts the new agent, with its prompt."""
    unread = instructions.unread_after(session.cwd, to.drive, session.agent)
    relay = Relay(before=session.agent, agent=to.agent, unread=unread)
    prompt = state.rules.messages(session.cwd).handoff_resume(
        file=str(document), reason=StopReason.RATE_LIMIT, relay=relay
    )
    return to.terminal.new_argv(to.program, prompt, to.flags)
