"""Follows one leg, through its stream and its session file, until it has ended.

The follower reports what it sees as facts. Its only decision is when a turn has ended, so that the
agent's input can be closed. Each thing it tracks has its own class: the stream, the end of a turn,
the answer to a request for a checkpoint, the session file, the context's size.

All in one file: every event is passed to each of them, in one order.
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from segue.agents.contracts.drive import Drive, LineMeaning
from segue.agents.contracts.profile import Profile
from segue.agents.shared.live import Live
from segue.core.handoffs.digest import Arrival, Builder, Compactions
from segue.core.runs.due import is_passed_with
from segue.core.runs.idle import Idle
from segue.core.runs.progress import Progress
from segue.core.runs.timers import Activity
from segue.core.runs.types import (
    AnyFact,
    Arrived,
    Boundary,
    ContextMeasured,
    Replied,
    Run,
    RunState,
    SessionNamed,
)
from segue.core.sessions.forecasts.pending import Pending
from segue.core.stops.events import (
    Compaction,
    Ended,
    Event,
    Limit,
    Reply,
    Summary,
    ToolCall,
    ToolResult,
    Usage,
)
from segue.runs.clock import Clock
from segue.runs.legs.leg import Leg
from segue.runs.legs.stream import LegStream, TurnEnd
from segue.runs.legs.trackers.activity import CutCall, LastWork, LegTimes, Refusals
from segue.runs.legs.trackers.answer import AnswerTracker, CheckpointAnswer
from segue.runs.legs.trackers.halts import Halts
from segue.runs.legs.trackers.last_output import LastOutput
from segue.runs.legs.trackers.loops import LoopDetector
from segue.runs.legs.trackers.recalls import Recalls
from segue.runs.legs.trackers.session_file import SessionFileTracker
from segue.runs.legs.trackers.size import ContextSize
from segue.sessions.windows import Windows
from segue.system.files.stream import CHUNK_BYTES

_READS = 16  # some megabytes: an agent that prints faster must not delay a run
_READ_S = 0.3  # nor one whose lines take longer to read than to print
_FINISH_S = 1.0  # for the remaining output of an agent that segue ends, because its user waits
_FLOOD_BYTES = 1 << 20
_NEW_CALL_S = 3.0  # what a tool did in that time is soon done again


class LegFollower:
    """Follows one leg from its first byte, including a leg that another process started.

    `look` and `finish` report each fact once. The parts may be read at any time between two looks.
    """

    def __init__(
        self,
        leg: Leg,
        number: int,
        *,
        drive: Drive,
        profile: Profile,
        windows: Windows,
        run: Run,
        session_id: str,
        progress: Progress,
        digest: Builder | None = None,
        env: Mapping[str, str],
        clock: Clock,
        file_from: int = 0,
        idle: Idle | None = None,
        ask_key: str = "",
        is_only_asked: bool = False,
        request_bytes: int = 0,
        earlier: Pending | None = None,
        has_worked: bool = False,
    ) -> None:
        """`file_from` is the size of the session's file when the leg began. For `ask_key` and
        `is_only_asked` see `AnswerTracker`, for `has_worked` see `Compactions`. `request_bytes` is
        the length of a request for a checkpoint. `earlier`: the output of an earlier leg of the
        same agent."""
        self.leg, self.number, self.drive, self.profile = leg, number, drive, profile
        self.env, self.session_id = env, session_id
        self.stream = LegStream(Path(leg.folder) / "stdout", profile, run.cwd)
        self.turn = TurnEnd(drive.watch())
        self.asking = AnswerTracker(
            ask_key, run.policy.checkpoint_tokens, is_only_asked=is_only_asked
        )
        self.file = SessionFileTracker(drive, profile, env=env, cwd=run.cwd, file_from=file_from)
        self.size = ContextSize(profile.name, windows, cwd=run.cwd, policy=run.policy)
        self.pending = Pending(is_late=drive.size_after_tools, earlier=earlier)
        self._request_bytes = request_bytes + drive.message_adds_bytes
        self.times, self.work = LegTimes(clock, run.leg_since), LastWork()
        halts = Halts(Path(leg.folder)) if drive.halt_chars else None
        self.refusals = Refusals()
        self.recalls = Recalls(run.id, number, halts, has_worked=has_worked)
        self.cut_call, self.last_output = CutCall(), LastOutput()
        idle = idle or Idle(run.policy)
        idle.begin(progress.mark(), anew=run.circles is not None)
        self.progress, self.digest = progress, digest
        self._loops = LoopDetector(
            number, idle, progress, cwd=run.cwd, is_replaying=_size_of(leg.stdout) > 0
        )
        self.arrival: Arrival | None = None
        """For a session that takes over: watches what it repeats, until that is known."""
        self.stated_outcome: Literal["", "done", "failed"] = ""  # by an agent without records
        self.stated_in = ""  # the line in which it said so
        self.limits: dict[str, Limit] = {}  # what the stream last said about each, if it is news
        self.is_closed = False  # its input
        self.is_ending = False  # its keeper was asked to end it
        self.is_flooded = False  # it printed more than is allowed, so only the end is read
        self.has_moved = False  # the last look found something
        self._called_at: float | None = None  # a tool, while none was running
        self._is_catching_up = _size_of(leg.stdout) > 0  # on what another process saw happen
        self._stderr_bytes = 0
        self._boundary = False
        self._is_call_news = False  # the last look saw a tool begin
        self._is_missed = False
        """The tools of the newest reading have already run, so nothing can be said in between."""

    # Queries

    @property
    def live(self) -> Live:
        """What the stream has reported so far."""
        return self.stream.live

    @property
    def answer(self) -> CheckpointAnswer | None:
        """The answer to the request for a checkpoint; None if there was no request."""
        return self.asking.answer

    @property
    def compactions(self) -> Compactions:
        """The session's own compactions in this leg."""
        return self.recalls.compactions

    @property
    def works_on(self) -> bool:
        """Whether it keeps working although it was asked for a checkpoint. Whoever acts on this
        resets it."""
        return self.asking.works_on

    @works_on.setter
    def works_on(self, value: bool) -> None:
        self.asking.works_on = value

    @property
    def turn_is_over(self) -> bool:
        """Whether the agent waits for a message."""
        return self.turn.is_over

    @property
    def has_replied(self) -> bool:
        """Whether the model said anything in this leg."""
        return self.work.has_replied

    @property
    def has_more(self) -> bool:
        """Whether more can be read at once."""
        return self.stream.tail.has_more

    @property
    def has_open_call(self) -> bool:
        """Whether a tool is running, according to the stream."""
        return bool(self.live.open_calls)

    @property
    def has_new_call(self) -> bool:
        """Whether a tool is running that was seen to begin just now."""
        began = self._called_at
        is_new = began is not None and self.times.clock.awake() - began < _NEW_CALL_S
        return self.has_open_call and is_new

    @property
    def is_between_tools(self) -> bool:
        """Whether the last look saw a tool finish, and none is running."""
        return self._boundary and not self.live.open_calls

    def activity(self, now: float) -> Activity:
        """The activity, for the timers."""
        return self.times.activity(now)

    def output_bytes(self) -> int:
        """How much it has printed so far, to both streams."""
        return _size_of(self.leg.stdout) + _size_of(self.leg.stderr)

    def begin_answer(self, *, is_cut: bool = False) -> None:
        """From now on, what the session says is its answer. `is_cut`: its turn was interrupted for
        that."""
        self.asking.ask(is_cut=is_cut)
        self.turn.begin()

    def cut_for_recall(self) -> None:
        """Its turn is interrupted, and starts again with what its own compaction left out."""
        self.recalls.last_cut = self.compactions.count
        self.turn.begin()

    def boundary(self, run: Run) -> Boundary | None:
        """The boundary that the last look found, if it matters to the run."""
        pending = self._pending_tokens
        if self.live.open_calls:
            is_wanted = run.is_due and run.state is RunState.WORKING and not run.ended_how
            is_wanted = is_wanted and self.drive.talks
            if not is_wanted:
                return None
            return Boundary(leg=self.number, ahead=True, pending_tokens=pending)
        if not self._boundary:
            return None
        is_wanted = run.is_due or run.is_in_tool or run.state is RunState.STOPPING
        if not is_wanted and not is_passed_with(run, pending):
            return None
        return Boundary(leg=self.number, pending_tokens=pending)

    # Observation

    def look(self, run: Run, now: float) -> list[AnyFact]:
        """The new facts, within a short look: see `has_more`."""
        facts: list[AnyFact] = []
        tail, began = self.stream.tail, self.times.look()
        self._boundary = self._is_call_news = False
        if self.is_flooded:
            tail.skip(_FLOOD_BYTES)
        self.has_moved = False
        for _ in range(_READS):
            lines = tail.read()
            if not lines and not tail.has_more:
                break
            self.has_moved = True
            self.times.output()
            before = self.asking.lines_before(self.live.lines, len(lines))
            facts += self._take_lines(lines[:before], now)
            if before < len(lines):
                self._ask_again()
                facts += self._take_lines(lines[before:], now)
            if self.times.clock.awake() - began > _READ_S:
                break
        if self.asking.is_due(self.live.lines):
            self._ask_again()
        # A call may come from what only the file shows: a compaction. And at a boundary, an old
        # size would hide what the last turn added.
        is_new = self._is_call_news or (self._boundary and self.drive.size_from == "file")
        facts += self._look_at_file(now, at_once=is_new)
        self._look_at_stderr()
        if not tail.has_more:
            self._loops.caught_up()
            self._is_catching_up = False
            self.turn.settle(began)
        if self.turn.is_over:
            self.asking.end()
        if self.drive.hears is not None and run.state is RunState.STOPPING and not run.ended_how:
            self._boundary = True  # for an agent without records, any moment is as good as another
        return [self._timed(fact) for fact in facts]

    def finish(self, run: Run, now: float) -> list[AnyFact]:
        """The remaining facts, once the process is gone."""
        tail, began = self.stream.tail, self.times.clock.awake()
        facts = self.look(run, now)
        # No more than there is now: what follows its end is not its own, and may never end.
        for _ in range(_size_of(self.leg.stdout) // CHUNK_BYTES + 1):
            if not tail.has_more:
                break
            if self.is_ending and self.times.clock.awake() - began > _FINISH_S:
                tail.skip(_FLOOD_BYTES)
            facts += self.look(run, now)
        if rest := tail.rest():
            facts += self._take_lines([rest], now)
        for event in self.stream.finish(now):
            facts += self._take(event, now)
        facts += self._look_at_file(now, at_once=True)
        if not self.drive.talks:
            for event in self.file.replay(now):
                self._count_compaction(event)
        facts += self._arrived()
        tail.close()
        self.file.close()
        return facts

    def _ask_again(self) -> None:
        """Another process asked for a checkpoint at this line."""
        self.asking.ask_again()
        self.turn.begin()

    def _timed(self, fact: AnyFact) -> AnyFact:
        """Adds to a measured size what decides how far ahead segue looks: whether there is a
        boundary before the model is asked again, and what tool output and a request would add.
        Other facts stay as they are."""
        if not isinstance(fact, ContextMeasured):
            return fact
        if self.drive.size_from == "file":
            is_timely = bool(self.live.open_calls) or (self._boundary and not self.drive.talks)
        else:
            is_timely = not self.drive.size_after_tools and not self._is_missed
        return replace(
            fact,
            is_timely=is_timely,
            pending_tokens=self._pending_tokens,
            request_tokens=self.pending.cost(self._request_bytes),
            opening_tokens=self.file.opening_tokens() if self.drive.resume_factor > 1 else 0,
        )

    @property
    def _pending_tokens(self) -> int:
        """An estimate of what the tools' output has added since the last reading. Not for agents
        whose file reports their size: how much of the output shown by the stream is already in that
        size is unknown."""
        return self.pending.tokens if self.drive.size_from == "stream" else 0

    def _look_at_stderr(self) -> None:
        """Text on stderr counts as output too."""
        size = _size_of(self.leg.stderr)
        if size != self._stderr_bytes:
            self._stderr_bytes = size
            self.times.output()

    # The stream

    def _take_lines(self, lines: list[bytes], now: float) -> list[AnyFact]:
        facts: list[AnyFact] = []
        # Once it was sent a message, it matters which turn ended before it received that.
        is_told = self.answer is not None or self.recalls.is_awaited
        for piece in ([line] for line in lines) if is_told else (lines,):
            if self.drive.hears is not None:
                facts += self._hear(piece, now)
            events = self.stream.feed(piece, now)
            keys = self._confirmed_keys()
            self.recalls.hear(keys)
            self.asking.hear(keys)
            for event in events:
                facts += self._take(event, now)
            self.recalls.match()
            is_asked = self.answer is not None or self.recalls.is_awaited
            for record in self.live.records:
                self.turn.feed(record, self.times.awake, is_asked=is_asked)
        return facts

    def _confirmed_keys(self) -> set[str]:
        """Keys of messages that are now part of the conversation. The watch sees all records,
        because it may have to combine two of them."""
        return {self.turn.watch.confirmed_key(record) for record in self.live.records} - {""}

    def _hear(self, lines: list[bytes], now: float) -> list[AnyFact]:
        """For an agent without records, every line counts as its words."""
        facts = self._reply(acted=True) if any(map(bytes.strip, lines)) else []
        for line in lines:
            text = line.decode("utf-8", "replace")
            meaning = self.drive.hears(text) if self.drive.hears is not None else LineMeaning()
            if meaning.outcome:
                self.stated_outcome, self.stated_in = meaning.outcome, text
            self._say(text)
            facts += self._name(meaning.session_id)
        return facts

    def _take(self, event: Event, now: float) -> list[AnyFact]:
        facts: list[AnyFact] = []
        self.progress.feed(event)
        self.recalls.compactions.feed(event)
        self.last_output.feed(event)
        facts += self._arrive(event)
        if self.digest is not None:
            self.digest.feed(event)
        if not self.file.is_followed:
            facts += self._judge(event, now)
        if self.drive.calls_from == "stream":
            self.refusals.feed(event)
        facts += self._name(self.live.session_id)
        match event:
            case Usage():
                facts += self._read(event.used_tokens, event.window_tokens, event.model, now)
            case Compaction() if event.phase == "done" and event.used_tokens is not None:
                facts += self._read(event.used_tokens, None, None, now)  # its own: it made room
            case Limit():
                self.limits[event.scope or ""] = event
            case Reply():
                facts += self._reply(acted=False)
                self.work.answered()
                if event.text:
                    self._say(event.text)
            case ToolCall():
                facts += self._reply(acted=True)
                self.work.called(event, now)
                self.asking.call(event)
                self.times.tool(is_running=True)
                self._is_call_news = True
                if self._called_at is None and not self._is_catching_up:
                    self._called_at = self.times.awake
            case ToolResult():
                self.pending.feed(event)
                self.asking.drop_work()  # some record words after the call that they belong to
                if not self.live.open_calls:
                    self.work.idle()
                    self.times.tool(is_running=False)
                    self._called_at = None
                    self._boundary, self._is_missed = True, self.drive.talks
            case Ended() if event.ok:
                self.work.answered()
                facts += self._reply(acted=True)
        return facts

    def _name(self, session_id: str) -> list[AnyFact]:
        """The session's id as a fact, if it is new."""
        if not session_id or session_id == self.session_id:
            return []
        self.session_id = session_id
        return [SessionNamed(leg=self.number, session_id=session_id)]

    def _arrive(self, event: Event) -> list[AnyFact]:
        if self.arrival is None:
            return []
        self.arrival.feed(event)
        return self._arrived() if self.arrival.is_over else []

    def _arrived(self) -> list[AnyFact]:
        """What a session that took over has repeated, reported once. Nothing for a session that did
        nothing."""
        if self.arrival is None:
            return []
        found, self.arrival = self.arrival.repeats, None
        arrival = Arrived(
            leg=self.number,
            actions=found.actions,
            commands=found.commands,
            files=found.files,
            questions=found.questions,
        )
        return [arrival] if found.actions else []

    def _judge(self, event: Event, now: float) -> list[AnyFact]:
        looped = self._loops.feed(event, now)
        return [looped] if looped is not None else []

    def _reply(self, *, acted: bool) -> list[AnyFact]:
        return [Replied(leg=self.number, acted=acted)] if self.work.reply(acted=acted) else []

    def _say(self, text: str) -> None:
        self.work.text = text
        self.asking.say(text)

    # The session file

    def _look_at_file(self, now: float, *, at_once: bool = False) -> list[AnyFact]:
        if not self.file.look(self.session_id, self.times.awake, at_once=at_once):
            return []
        if self.file.has_grown:
            self.times.output()
        facts: list[AnyFact] = []
        for event in self.file.events(now):
            self._count_compaction(event)
            if not self.file.is_followed:
                continue
            if isinstance(event, Reply | ToolCall):
                facts += self._reply(acted=isinstance(event, ToolCall))
            facts += self._judge(event, now)
            self.cut_call.feed(event)
            self.refusals.feed(event)
        size = self.file.size()
        if size is None or size.used_tokens is None:
            return facts
        self.size.accept(size.accepted_tokens)
        used, window = size.used_tokens, size.told_window_tokens
        return facts + self._read(used, window, size.model, now, in_file=True)

    def _count_compaction(self, event: Event) -> None:
        """Counts a compaction of an agent whose stream does not report it."""
        if isinstance(event, Compaction | Summary):
            self.recalls.compactions.feed(event)

    def _read(
        self,
        used: int,
        window: int | None,
        model: str | None,
        now: float,
        *,
        in_file: bool = False,
    ) -> list[AnyFact]:
        live, session_id = self.live, self.session_id
        found = self.size.read(
            used, window, model, now, live=live, session_id=session_id, in_file=in_file
        )
        if found is None:
            return []
        self._is_missed = False
        self.pending.read(used)
        reading, enforced = found
        return [ContextMeasured(leg=self.number, reading=reading, enforced_tokens=enforced)]


def _size_of(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0
