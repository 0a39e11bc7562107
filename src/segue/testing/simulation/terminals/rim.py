"""What the daemon uses in a world instead of tmux, /proc and files."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from segue.agents import terminals
from segue.agents.contracts.terminal import Terminal
from segue.core.accounts import Account
from segue.core.policy import Policy
from segue.core.sessions.types import Process, Session
from segue.core.stops.types import Stop
from segue.core.terminals.screen import Screen, State
from segue.system.tmux.panes import AgentPane
from segue.system.tmux.tmux import TmuxError
from segue.system.tmux.typist import TypingRefused, Typist
from segue.testing.simulation.accounts import known_account
from segue.testing.simulation.faults import Fault
from segue.testing.simulation.stores import Killed
from segue.testing.simulation.terminals.conversations import messages
from segue.watch.handoffs.messages import Messages
from segue.watch.handoffs.seating import Seating
from segue.watch.observe import endings
from segue.watch.observe.observer import Observer
from segue.watch.observe.session_table import Sighting
from segue.watch.resumes.gate import AccountGate
from segue.watch.resumes.places import Places
from segue.watch.rules import Rules
from segue.watch.state import ORDER, TrackedSession

if TYPE_CHECKING:
    from segue.testing.simulation.terminals.daemon import SimulatedDaemon
    from segue.testing.simulation.terminals.session import TerminalSession

_SETTLE_S = 0.6  # between a text and its Enter
_LOOK_S = 0.25
_BACK_S = 1.5  # from a command in a shell until an agent runs


class SimulatedRules(Rules):
    """One policy for everything."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.notes: deque[str] = deque()

    def policy(self, agent: str, model: str, cwd: str) -> Policy:
        """The world's policy."""
        return self._policy

    def messages(self, cwd: str) -> Messages:
        """The default messages."""
        return messages()

    @property
    def homes(self) -> dict[str, list[str]]:
        """No additional folders."""
        return {}


class SimulatedObserver(Observer):
    """Tells the daemon about each session that changed. State, zone, forecast and the verdict on an
    ending come from the real code."""

    def __init__(self, daemon: "SimulatedDaemon") -> None:
        self._daemon = daemon
        self.notes: deque[str] = deque()
        self._changed: dict[str, Process | None] = {}
        self._sessions: dict[tuple[str, str], Session] = {}
        self._is_first = True

    @property
    def sessions(self) -> Mapping[tuple[str, str], Session]:
        """The sessions seen so far."""
        return self._sessions

    def changed(self, session_id: str, ended: Process | None = None) -> None:
        """Has the next `step` look at this session. `ended` is its process, if that ended."""
        self._changed[session_id] = ended or self._changed.get(session_id)

    def step(self, timeout_s: float) -> list[Sighting]:
        """The sessions that changed since the last step; returns at once."""
        if self._is_first:
            self._is_first = False
            self._changed = dict.fromkeys(self._daemon.recent(), None) | self._changed
        found, self._changed = self._changed, {}
        sightings = []
        for session_id, ended in found.items():
            session = self._daemon.session_now(session_id)
            if session is None:
                continue
            name = (session.agent, session_id)
            before = self._sessions.get(name)
            self._sessions[name] = session
            if session != before or ended is not None:
                sightings.append(Sighting(session, before, ended))
        return sightings

    def forget(self, session_id: str) -> None:
        """Drops a session that ended long ago."""
        self._sessions.pop((terminals_agent(), session_id), None)

    def wake(self) -> None:
        """Plans a turn soon."""
        self._daemon.stir()

    def nudge(self, agent: str, session_id: str, path: str = "") -> None:
        """Has the daemon look at this session without delay."""
        self.changed(session_id)
        self._daemon.stir()

    def after(self, ended: Process) -> endings.After:
        """What remains of a process that ended."""
        return self._daemon.after(ended)

    def close(self) -> None:
        """Nothing to release."""


def terminals_agent() -> str:
    """The agent of sessions in terminals."""
    return "claude"


class SimulatedSeating(Seating):
    """Knows from the world which agent is in which pane."""

    def __init__(self, daemon: "SimulatedDaemon") -> None:
        self._daemon = daemon

    def learn(self, tracked: TrackedSession, process: Process) -> bool:
        """Like the real one, from what the world knows."""
        if tracked.seen_pid == process.pid:
            return False
        tracked.seen_pid = process.pid
        tracked.hook_end, tracked.shell_line, tracked.ended_at = "", None, None
        tracked.in_run = tracked.is_ours = False
        tracked.terminal = terminals.find(process.agent)
        owner = self._daemon.owner(process.session_id)
        tracked.seat = owner.seat if owner is not None else None
        tracked.socket, tracked.program, tracked.flags = "", "/bin/claude", ()
        return True

    def has_tmux(self) -> bool:
        """Whether tmux runs, which it does until the machine goes down."""
        return bool(self._daemon.world.machine.has_tmux)

    def shell_of(self, tracked: TrackedSession) -> tuple[bool, str | None, bool]:
        """Whether tmux runs, what the shell in the pane of an ended agent shows, and whether that
        pane is still there."""
        owner = self._daemon.owner(tracked.session.session_id)
        has_pane = owner is not None and owner.has_pane
        return self.has_tmux(), "$ " if has_pane else None, has_pane


class SimulatedTypist(Typist):
    """Types into a model's input line by the rules of the real typist: never while the agent works
    or the user types, and never over the user's draft."""

    def __init__(self, daemon: "SimulatedDaemon") -> None:
        self._daemon = daemon

    def look(self, seat: AgentPane, terminal: Terminal) -> Screen | TypingRefused:
        """What the pane shows."""
        session = self._daemon.at(seat)
        if session is None:
            return TypingRefused("gone")
        if session.is_scrolled:
            return TypingRefused("copy_mode")
        return Screen(
            state="busy" if session.is_busy else "idle",
            draft=session.draft,
            is_fresh=session.talk.is_fresh and not session.is_busy,
        )

    def type(
        self,
        seat: AgentPane,
        terminal: Terminal,
        text: str,
        *,
        landed: Callable[[], bool],
        land_s: float = 10.0,
        keep_draft: bool = False,
        tries: int = 3,
    ) -> TypingRefused | None:
        """Puts the text into the input line for a moment, then sends it."""
        session, daemon = self._daemon.at(seat), self._daemon
        if session is None:
            return TypingRefused("gone")
        if session.is_scrolled:
            return TypingRefused("copy_mode")
        if session.is_busy:
            return TypingRefused("busy")
        if session.is_typing:
            return TypingRefused("user_active")
        stands = session.draft == text
        if session.draft and not stands and not keep_draft:
            return TypingRefused("draft")
        daemon.may_be_killed(session)
        draft = "" if stands else session.draft
        session.draft = session.held = text
        try:
            daemon.clock.wait((), _SETTLE_S)
            daemon.may_be_killed(session)
        finally:
            session.held = ""
        if daemon.at(seat) is not session:
            return TypingRefused("gone")
        if session.draft != text:
            return TypingRefused("draft", "the user typed")
        session.draft = draft
        if refused := _came_between(session):
            return refused
        session.hear(text, by_segue=True)
        daemon.may_be_killed(session)
        until = daemon.clock.awake() + land_s
        while not landed():
            if daemon.clock.awake() >= until:
                return TypingRefused("swallowed", "it was sent, and nothing is heard of it")
            daemon.clock.wait((), _LOOK_S)
        return None

    def press(
        self,
        seat: AgentPane,
        terminal: Terminal,
        keys: Sequence[str],
        *,
        states: Sequence[State] = ("idle", "busy", "dialog"),
    ) -> TypingRefused | None:
        """Ends the turn, whatever the keys are."""
        session = self._daemon.at(seat)
        if session is None:
            return TypingRefused("gone")
        if session.is_scrolled:
            return TypingRefused("copy_mode")
        state: State = "busy" if session.is_busy else "idle"
        if state not in states:
            return TypingRefused("unknown" if state == "idle" else state)
        if session.is_typing:
            return TypingRefused("user_active")
        self._daemon.may_be_killed(session)
        session.watch.pressed()
        session.interrupt()
        self._daemon.may_be_killed(session)
        return None


def _came_between(session: "TerminalSession") -> TypingRefused | None:
    """Why the text in the input line must not be sent after all, or None. In that case the real
    typist, which holds back the user's keys meanwhile, deletes its text again."""
    if session.is_typing:
        return TypingRefused("draft", "the user typed")
    return TypingRefused("busy") if session.is_busy else None


class SimulatedPlaces(Places):
    """Where sessions are resumed: panes with a waiting shell, new windows, or no terminal at
    all."""

    def __init__(self, daemon: "SimulatedDaemon") -> None:
        self._daemon = daemon
        self.state = daemon.state

    def holder(self, tracked: TrackedSession) -> str:
        """Nobody, because only agents hold sessions of terminals."""
        return ""

    def is_running(self, pid: int) -> bool:
        """Always false: simulated agents show themselves at once or not at all."""
        return False

    def program(self, tracked: TrackedSession) -> str:
        """Always installed."""
        return tracked.program or "/bin/claude"

    def forget_logs(self, before: float) -> None:
        """There are none: nothing of a simulation touches files of the machine."""

    def in_pane(self, tracked: TrackedSession, id: str) -> str:
        """Types `segue back` into the shell; returns why not, or ""."""
        owner = self._daemon.owner(tracked.session.session_id)
        if owner is None or not owner.has_pane or owner.process is not None:
            return "no shell waits in its pane"
        if owner.is_typing or owner.draft:
            return "something has been typed in its shell since then"
        return self._begin(owner, id)

    def in_window(self, tracked: TrackedSession, id: str, agent: str = "") -> str:
        """Runs `segue back` in a new window; returns why not, or ""."""
        if not self._daemon.world.machine.has_tmux:
            raise TmuxError("no server running")
        owner = self._daemon.owner(tracked.session.session_id)
        if owner is None or owner.process is not None:
            return "its user has gone on elsewhere"
        return self._begin(owner, id)

    def headless(self, tracked: TrackedSession, id: str, task: str) -> str:
        """A run takes over. The session in the terminal ends, and its work counts as done."""
        owner = self._daemon.owner(tracked.session.session_id)
        if owner is not None:
            owner.watch.resumed("headless")
            owner.talk.steps_left = 0
        return ""

    def _begin(self, owner: "TerminalSession", id: str) -> str:
        daemon = self._daemon
        daemon.may_be_killed(owner)
        daemon.world.schedule.at(
            daemon.world.schedule.now + _BACK_S, lambda: _back(daemon, owner, id)
        )
        daemon.may_be_killed(owner)
        return ""


def _back(daemon: "SimulatedDaemon", owner: "TerminalSession", id: str) -> None:
    """Does what `segue back` (cli/daemon/back) does, once per order."""
    log = daemon.log
    notes = [n for n in log.since(0, (ORDER, "back"), 1_000_000) if n.data.get("id") == id]
    orders = [note for note in notes if note.kind == ORDER]
    if not orders or any(n.kind == "back" and n.seq > orders[-1].seq for n in notes):
        return
    note, now = orders[-1], daemon.world.machine.clock.now()
    fields: dict[str, Any] = {"id": id, "order": note.seq, "pid": 0}
    if owner.process is not None:
        fields = {"id": id, "order": note.seq, "error": "another process has the session open"}
    if daemon.world.is_disk_full:
        return
    log.append(
        "back", at=now, agent=note.agent, session_id=note.session_id, project=note.project,
        data=fields,
    )  # fmt: skip
    if owner.process is None:
        owner.begun_by_segue(str(note.data.get("writes", "")), str(note.data["argv"][-1]))


class MachineGate(AccountGate):
    """The daemon's gate, with the world's accounts."""

    def __init__(self, daemon: "SimulatedDaemon") -> None:
        self.state, self._daemon = daemon.state, daemon
        self.accounts = daemon.world.known_limits
        self._met: frozenset[str] = frozenset()
        self._met_at = float("-inf")

    def account(self, tracked: TrackedSession) -> Account | None:
        """The world's account."""
        owner = self._daemon.owner(tracked.session.session_id)
        if owner is None:
            return None
        return known_account(owner.number % len(self._daemon.world.accounts))

    def limited(self, tracked: TrackedSession, stop: Stop, tries: int) -> None:
        """The real method; also informs the invariants."""
        super().limited(tracked, stop, tries)
        owner, world = self._daemon.owner(tracked.session.session_id), self._daemon.world
        if owner is None or stop.retry_at is None or world.is_disk_full:
            return
        if stop.retry_at > world.machine.clock.now():
            world.account_of(owner.number).learn_limit(world.schedule.now)


class Silent:
    """Discards notices and marks on panes, because nobody is there to see them."""

    def tell(self, *batch: Any, **more: Any) -> None:
        """Nothing."""

    def clear(self, tracked: Any) -> None:
        """Nothing."""

    def close(self, *wait: Any) -> None:
        """Nothing."""


def silent() -> Any:
    """A stand-in for anything that only informs people."""
    return cast("Any", Silent())


__all__ = [
    "Fault",
    "Killed",
    "MachineGate",
    "SimulatedObserver",
    "SimulatedPlaces",
    "SimulatedRules",
    "SimulatedSeating",
    "SimulatedTypist",
    "silent",
]
