"""When a leg last did something, what its model did last, and what the agent was not allowed to
do."""

from segue.core.runs.timers import Activity
from segue.core.stops.events import Event, Reply, ToolCall, ToolResult
from segue.runs.clock import Clock

_OPEN_KEPT = 1_000


class LegTimes:
    """When output arrived and tools ran, on a monotonic clock that stops while the machine sleeps.
    `awake` is the time of the current look."""

    def __init__(self, clock: Clock, since: float | None) -> None:
        """`since` is the unix time at which the leg began. A leg that another process began is as
        old as it says."""
        self.clock, self.awake = clock, clock.awake()
        now = clock.now()
        self._began = self.awake - max(0.0, now - (now if since is None else since))
        self._output = self.awake
        self._tool: float | None = None

    def look(self) -> float:
        """Starts a look, and returns the time."""
        self.awake = self.clock.awake()
        return self.awake

    def output(self) -> None:
        """Records that output arrived."""
        self._output = self.awake

    def tool(self, is_running: bool) -> None:
        """Records whether a tool is running."""
        if not is_running:
            self._tool = None
        elif self._tool is None:
            self._tool = self.awake

    def activity(self, now: float) -> Activity:
        """The activity, for the timers: what was long ago on the monotonic clock was long ago on
        any clock."""
        awake = self.clock.awake()
        return Activity(
            last_output_at=now - (awake - self._output),
            began_at=now - (awake - self._began),
            tool_since=None if self._tool is None else now - (awake - self._tool),
        )

    @property
    def active_s(self) -> float:
        """How long it has been working, without the machine's sleep."""
        return max(0.0, self.clock.awake() - self._began)


class LastWork:
    """What the model did last in a leg, for people and for the next session."""

    def __init__(self) -> None:
        self.has_replied = False  # the model said anything in this leg
        self.has_acted = False  # and called a tool, or finished
        self.text = ""  # its last words
        self.call: ToolCall | None = None  # its last tool call
        self.doing = ""  # its last tool call in short
        self.tool_since: float | None = None  # unix time; None if no tool runs
        self._is_answered = True

    def reply(self, *, acted: bool) -> bool:
        """Records a reply, and returns whether that is news."""
        if self.has_replied and (self.has_acted or not acted):
            return False
        self.has_replied, self.has_acted = True, self.has_acted or acted
        return True

    def answered(self) -> None:
        """Records that the model continued after the last call's result, or finished."""
        self._is_answered = True

    def called(self, call: ToolCall, now: float) -> None:
        """Records a tool call."""
        self.call, self._is_answered = call, False
        self.doing = call.command or f"{call.name} {call.argument}".strip()
        self.tool_since = self.tool_since or now

    def idle(self) -> None:
        """Records that no tool is running any longer."""
        self.tool_since = None

    @property
    def call_in_doubt(self) -> str | None:
        """The last tool call, if the model has said nothing since: its result may be missing from
        the session, although it is in the stream. None if there is no doubt."""
        if self._is_answered:
            return None
        last = self.call
        return (last.command or f"{last.name} {last.argument}") if last is not None else ""


class CutCall:
    """The command in the session file that segue's interrupt cut, for an agent that reports calls
    there. It may have run, although its stream never showed it."""

    def __init__(self) -> None:
        self._call: ToolCall | None = None

    def feed(self, event: Event) -> None:
        """Takes an event of the file."""
        if isinstance(event, ToolCall):
            self._call = event
        elif isinstance(event, Reply) or (isinstance(event, ToolResult) and not _is_cut(event)):
            self._call = None

    @property
    def command(self) -> str | None:
        """The last command, if it has no result or one without an exit code, and the model has said
        nothing since."""
        return (self._call.command or None) if self._call is not None else None


def _is_cut(result: ToolResult) -> bool:
    return result.failed and result.exit_code is None and not result.denied


class Refusals:
    """Tool calls that nobody was there to allow."""

    def __init__(self) -> None:
        self.was_last = False  # the last call was refused
        self.call: ToolCall | None = None  # the last refused call
        self.edit: ToolCall | None = None  # the last refused call that would have written
        self._open: dict[str, ToolCall] = {}  # calls without a result

    def feed(self, event: Event) -> None:
        """Takes an event from the source that reports refusals: the stream or the session file."""
        if isinstance(event, ToolCall):
            if len(self._open) < _OPEN_KEPT:
                self._open[event.call_id] = event
        elif isinstance(event, ToolResult):
            call = self._open.pop(event.call_id, None)
            self.was_last = event.denied
            if event.denied and call is not None:
                self.call = call
                self.edit = call if call.files else self.edit
