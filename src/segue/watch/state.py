"""What the parts of the daemon share: the log, the rules, the tracked sessions, a lock."""

import secrets
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from segue.agents.contracts.terminal import Terminal
from segue.core.names import SessionName, matching
from segue.core.policy import Policy
from segue.core.secrets.redact import scrub
from segue.core.sessions import zones
from segue.core.sessions.types import Session
from segue.core.terminals.screen import Screen
from segue.errors import SegueError, StateError
from segue.runs.clock import Clock
from segue.sessions.documents import Predecessor, predecessor
from segue.system.notices import Notices
from segue.system.tmux.panes import AgentPane
from segue.system.tmux.typist import TypingRefused, Typist
from segue.watch.log import Log, Note
from segue.watch.outside import DocumentFiles, SessionRecords
from segue.watch.predecessors import predecessors
from segue.watch.rules import Rules

Name = tuple[str, str]
"""Which session: the agent, and the session's id."""

ORDER = "order"
"""The kind of note that records what is started, verbatim."""

MAX_COSTS = 60
"""How many of a project's last tasks are used to estimate the next one."""


@dataclass
class TrackedSession:
    """What the daemon knows about one session, in addition to its file and its process."""

    session: Session
    memory: zones.ZoneMemory = field(default_factory=zones.ZoneMemory)
    turn_used: int | None = None  # tokens when its turn began
    noted: float = -1.0  # the fraction in the last logged reading
    seat: AgentPane | None = None
    socket: str = ""  # the tmux server that its pane is or was in
    terminal: Terminal | None = None
    program: str = ""  # the last process that had it open
    flags: tuple[str, ...] = ()  # variables of the user's that a process which takes over inherits
    in_run: bool = False  # it belongs to a `segue run`, and is left alone
    is_ours: bool = False  # the daemon itself runs inside it
    seen_pid: int = 0
    hook_end: str = ""  # the reason in its SessionEnd hook
    reminds: bool = False  # its agent must be told again how full it is
    hooked_at: float = 0.0  # when its hooks last called
    # what its shell showed after the agent had exited; None: no shell waits
    shell_line: str | None = None
    ended_at: float | None = None
    is_declined: bool | None = None
    """The user interrupted a handoff of this session: none begins by itself until it was compacted.
    None: the log was not checked yet."""


@dataclass
class DaemonState:
    """The state that all parts of one daemon share. Whoever changes `tracked` or `paused` holds
    `lock`."""

    env: Mapping[str, str]
    clock: Clock
    log: Log
    rules: Rules
    typist: Typist
    notices: Notices
    say: Callable[[str], None]
    tracked: dict[Name, TrackedSession] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)  # "all", a folder or a session's id
    costs: dict[str, deque[int]] = field(default_factory=dict)  # task costs, by project
    lock: Any = field(default_factory=threading.RLock)
    listeners: list[Callable[[Note], None]] = field(default_factory=list)
    news: threading.Condition = field(default_factory=threading.Condition)
    fault: str = ""  # the last error, as it was reported
    records: SessionRecords = field(default_factory=SessionRecords)
    documents: DocumentFiles = field(default_factory=DocumentFiles)
    new_id: Callable[[str], str] = lambda kind: f"{kind}-{secrets.token_hex(4)}"
    """A new id for a handoff ("h") or a stop ("w")."""

    def policy(self, session: Session) -> Policy:
        """The user's rules for this session."""
        return self.rules.policy(session.agent, session.model, session.cwd)

    def predecessors(self, agent: str, session_id: str, path: str, cwd: str) -> list[Predecessor]:
        """The sessions whose work this one continues after handoffs in a terminal, the oldest
        first. `path` is its own; in a database, it is theirs too."""
        found = []
        for before, id in predecessors(self.log, agent, session_id):
            each = predecessor(before, id, successor=path, cwd=cwd, env=self.env)
            with self.lock:
                tracked = self.tracked.get((before, id))
            found.append(each._replace(path=tracked.session.path) if tracked else each)
        return found

    def note(self, kind: str, session: Session | None, data: dict[str, Any]) -> Note:
        """Writes a note into the log, without secrets, and wakes up readers."""
        data = data if kind == ORDER else scrub(data)
        with self.lock:
            written = self.log.append(
                kind,
                at=self.clock.now(),
                agent=session.agent if session else "",
                session_id=session.session_id if session else "",
                project=session.cwd if session else "",
                data=data,
            )
            for listen in self.listeners:
                listen(written)
        with self.news:
            self.news.notify_all()
        return written

    def look(self, tracked: TrackedSession) -> Screen | TypingRefused:
        """What a session's terminal shows; refused if it has none that segue may type into."""
        if tracked.seat is None or tracked.terminal is None:
            return TypingRefused("gone", "it is not in a terminal that segue knows")
        return self.typist.look(tracked.seat, tracked.terminal)

    def learn_cost(self, project: str, tokens: int) -> None:
        """Records the cost of a task of this project, to estimate later ones."""
        self.costs.setdefault(project, deque(maxlen=MAX_COSTS)).append(tokens)

    def is_paused(self, session: Session) -> bool:
        """Whether the user wants segue to leave this session alone for now."""
        if not self.paused:
            return False
        above = _folder(session) + "/"
        return any(
            what in ("all", session.session_id)
            or (what.startswith("/") and above.startswith(what.rstrip("/") + "/"))
            for what in self.paused
        )

    def find(self, name: str) -> list[TrackedSession]:
        """Sessions that a name may refer to (`core/names`), the live ones first."""
        with self.lock:
            everyone = list(self.tracked.values())
        found = matching(name, everyone, _name)
        return sorted(found, key=lambda tracked: not tracked.session.state.is_live)


def _name(tracked: TrackedSession) -> SessionName:
    return SessionName(tracked.session.session_id, tracked.session.path, tracked.session.cwd)


def _folder(session: Session) -> str:
    return session.cwd.rstrip("/")


def label(session: Session) -> str:
    """How a session is called in a line for people."""
    folder = _folder(session).rpartition("/")[2] or session.cwd or "?"
    text = f"{session.agent} in {folder} ({session.session_id[:8]})"
    return "".join(c if c.isprintable() else "?" for c in text)  # a name may be chosen to mislead


class contained:  # noqa: N801 - a block
    """Reports an error in one session, or on the state's disk, and contains it. The same error
    is not reported again and again. `is_unwritten`: something could not be logged."""

    def __init__(self, state: DaemonState) -> None:
        self.state, self.has_failed, self.is_unwritten = state, False, False

    def __enter__(self) -> "contained":
        return self

    def __exit__(self, kind: Any, fault: BaseException | None, _: Any) -> bool:
        if fault is None or not isinstance(fault, Exception):
            return False
        self.has_failed, self.is_unwritten = True, isinstance(fault, StateError)
        message = str(fault)
        # our own mistake must not end the watch over all sessions
        if not isinstance(fault, SegueError):
            message = f"internal error: {type(fault).__name__}: {fault}"
        if message != self.state.fault:
            self.state.fault = message
            self.state.say(message)
        return True
