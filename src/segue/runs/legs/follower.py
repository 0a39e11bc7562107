"""Follows one leg: its stream and its session file together, until it is over.

What it sees it tells as facts; it decides nothing but when a turn is over, so that the agent's
input can be closed.
"""

import os
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from segue.agents.contracts.drive import Drive, LineMeaning
from segue.agents.contracts.profile import Profile
from segue.agents.shared.live import Live
from segue.core.handoffs.digest import Arrival, Builder, Compactions
from segue.core.handoffs.summary import CHARS_PER_TOKEN
from segue.core.runs.idle import Idle
from segue.core.runs.progress import Progress
from segue.core.runs.timers import Activity
from segue.core.runs.types import (
    AnyFact,
    Arrived,
    Boundary,
    ContextMeasured,
    Looped,
    Replied,
    Run,
    RunState,
    SessionNamed,
)
from segue.core.secrets.redact import redact
from segue.core.sessions.glance import Glance, glance
from segue.core.sessions.reading import Reading
from segue.core.sessions.types import Look
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
from segue.sessions import find, tail
from segue.sessions.windows import Windows
from segue.system.files.stream import CHUNK_BYTES, Tail
from segue.system.git import git

_READS = 16  # some megabytes: whoever prints faster than that must not hold up a run
_READ_S = 0.3  # nor whoever prints lines that take longer to read than to print
_FINISH_S = 1.0  # for the rest of what an agent printed whom segue ends: its user waits
_OPEN_KEPT = 1_000
_FILE_LOOK_S = 0.25  # a stat; the size must be known within a second
_FLOOD_BYTES = 1 << 20
_ANSWER_CHARS = 400_000


class CheckpointAnswer(Struct):
    """What the session said since it was asked for a checkpoint."""

    text: str = ""
    is_whole: bool = False  # it has said all that it will


class _Calls(Struct):
    """A session file that is read from where the leg began."""

    tail: Tail
    live: Live


class LegFollower:
    """One leg, from its first byte: also of a leg that another process started."""

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
    ) -> None:
        """`file_from`: how long the session's file was when the leg began."""
        self.leg, self.number, self.drive, self.profile = leg, number, drive, profile
        self.windows, self.env, self.cwd = windows, env, run.cwd
        self.policy = run.policy
        self.session_id = session_id
        self.live = Live(profile)
        self.tail = Tail(Path(leg.folder) / "stdout")
        self.watch = drive.watch()
        self.idle = idle or Idle(run.policy)
        self.idle.begin(progress.mark(), anew=run.circles is not None)
        self.progress, self.digest = progress, digest
        self.clock = clock
        self.tool_since: float | None = None  # unix time
        # On the clock that nobody sets. A leg that another process began is as old as it says.
        now, self._awake = clock.now(), clock.awake()
        self._began = self._awake - max(0.0, now - _first(run.leg_since, now))
        self._output = self._awake
        self._tool: float | None = None
        self._stderr_size = 0
        self.compactions = Compactions()
        """The session's own, in this leg."""
        self.recalled = 0  # the last of them of which it was seen to that the session is told
        self.recall_heard = 0  # and the last of which it was told what it left out
        self._recall_key = f"segue:recall:{run.id}:{number}"
        self.arrival: Arrival | None = None
        """Of a session that takes the work over, until it is known what it does again."""
        self.answer: CheckpointAnswer | None = None  # None: it was not asked
        self.ask_key = ""  # which the agent tells back once it hears the request
        self.asked_line: int | None = None  # after which line it was, by another process
        self.asked_cut = False  # and whether that interrupted it
        self.doing = ""  # the last tool call, in short
        self.last_call: ToolCall | None = None
        self.last_text = ""
        self.said: Literal["", "done", "failed"] = ""  # by an agent without records
        self.said_line = ""  # and in which words
        self.was_denied = False  # its last tool call: nobody was there to allow it
        self.denied: ToolCall | None = None  # the last one that was not allowed
        self.edit_denied: ToolCall | None = None  # and the last of them that would have written
        self._open: dict[str, ToolCall] = {}  # calls without a result, where denials are told
        self.turn_is_over = False
        self.is_closed = False  # its input
        self.is_ending = False  # its keeper was told to end it
        self.is_flooded = False  # it printed more than is allowed: just the end of it is read
        self.is_only_asked = False  # the leg is there for nothing but a checkpoint
        self.works_on = False  # asked, and yet it goes on with the work
        self.cut_call: str | None = None  # began when it was interrupted: who knows how far it came
        self._is_cut = False  # the turn was interrupted, to ask at once
        self._knows = False  # the model has read the request
        self.session_path = ""
        self._maybe_since: float | None = None
        self._replied = self._acted = False
        self._is_answered = True
        self._file_looked_at = float("-inf")
        self._file_stamp: tuple[int, int] | None = None
        self._used: tuple[int, int] | None = None  # the size and window that were told last
        self._accepted = 0
        self._model = ""
        self._looped = False
        self._file_from = file_from
        self._calls: _Calls | None = None
        # What another process saw already is no news: nobody knows how the tree was then.
        self._is_replaying = _size(leg.stdout) > 0
        self._boundary = False
        self._is_missed = (
            False  # the newest reading's tools have run: nothing can be said meanwhile
        )
        self.has_moved = False  # the last look found something
        self.limits: dict[str, Limit] = {}  # what the stream last said of each, if it is news

    # What is seen

    def look(self, run: Run, now: float) -> list[AnyFact]:
        """What is new, as far as a short look shows: see `has_more`."""
        facts: list[AnyFact] = []
        self._boundary, self._awake = False, self.clock.awake()
        if self.is_flooded:
            self.tail.skip(_FLOOD_BYTES)
        self.has_moved = False
        for _ in range(_READS):
            lines = self.tail.read()
            if not lines and not self.tail.has_more:
                break
            self.has_moved = True
            self._output = self._awake
            before = self._before_ask(lines)
            facts += self._take_lines(before, now)
            if len(before) < len(lines):
                self.asked(is_cut=self.asked_cut)
                facts += self._take_lines(lines[len(before) :], now)
            if self.clock.awake() - self._awake > _READ_S:
                break
        if self.asked_line is not None and self.live.lines >= self.asked_line:
            self.asked(is_cut=self.asked_cut)
        facts += self._look_at_file(now)
        self._look_at_stderr()
        if self._is_replaying and not self.tail.has_more:
            self._is_replaying = False
            self.idle.forget()
        if (
            self._maybe_since is not None
            and not self.tail.has_more
            and (self._awake - self._maybe_since >= self.watch.settle_s)
        ):
            self._maybe_since, self.turn_is_over = None, True
        if self.turn_is_over and self.answer is not None and self.answer.text:
            self.answer.is_whole = True
        if self.drive.hears is not None and run.state is RunState.STOPPING and not run.ended_how:
            self._boundary = True  # of an agent without records any moment is as good as another
        return [self._timed(fact) for fact in facts]

    def boundary(self, run: Run) -> Boundary | None:
        """The one that the last look found, if it matters to the run, as that look made it."""
        if self.live.open_calls:
            is_wanted = run.is_due and run.state is RunState.WORKING and not run.ended_how
            is_wanted = is_wanted and self.drive.talks
            return Boundary(leg=self.number, ahead=True) if is_wanted else None
        is_wanted = run.is_due or run.is_in_tool or run.state is RunState.STOPPING
        return Boundary(leg=self.number) if self._boundary and is_wanted else None

    @property
    def is_between_tools(self) -> bool:
        """Whether the last look saw a tool finish, and none runs."""
        return self._boundary and not self.live.open_calls

    def _timed(self, fact: AnyFact) -> AnyFact:
        """With whether there is a boundary before the model is asked again."""
        if not isinstance(fact, ContextMeasured):
            return fact
        if self.drive.size_from == "file":
            is_timely = bool(self.live.open_calls) or (self._boundary and not self.drive.talks)
        else:
            is_timely = not self.drive.size_after_tools and not self._is_missed
        return replace(fact, is_timely=is_timely)

    def finish(self, run: Run, now: float) -> list[AnyFact]:
        """What is left, once the process is gone."""
        began = self.clock.awake()
        facts = self.look(run, now)
        # No more than is there now: what comes after its end is somebody else's, and may never end.
        for _ in range(_size_of(self.leg.stdout) // CHUNK_BYTES + 1):
            if not self.tail.has_more:
                break
            if self.is_ending and self.clock.awake() - began > _FINISH_S:
                self.tail.skip(_FLOOD_BYTES)
            facts += self.look(run, now)
        if rest := self.tail.rest():
            facts += self._take_lines([rest], now)
        for event in self.live.close(now):
            facts += self._take(event, now)
        self._file_looked_at = float("-inf")
        facts += self._look_at_file(now)
        self._read_compactions(now)
        facts += self._arrived()
        self.tail.close()
        if self._calls is not None:
            self._calls.tail.close()
        return facts

    def _keys_heard(self) -> set[str]:
        """Keys of words that are part of the conversation now. All records are shown to the watch:
        it may have to put two of them together."""
        keys = {self.watch.heard(record) for record in self.live.records} - {""}
        for number in range(1, self.compactions.count + 1) if keys else ():
            if self.recall_key(number) in keys:
                self.recall_heard = max(self.recall_heard, number)
        return keys

    def recall_key(self, compaction: int) -> str:
        """Of the words that say what this one left out: the same in every process."""
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self._recall_key}:{compaction}"))

    def _before_ask(self, lines: list[bytes]) -> list[bytes]:
        """Those that came before another process asked for a checkpoint."""
        if self.asked_line is None:
            return lines
        return lines[: max(0, self.asked_line - self.live.lines)]

    def _take_lines(self, lines: list[bytes], now: float) -> list[AnyFact]:
        facts: list[AnyFact] = []
        # Asked for a checkpoint, it matters what came before which words.
        for piece in ([line] for line in lines) if self.answer is not None else (lines,):
            if self.drive.hears is not None:
                facts += self._hear(piece, now)
            events = self.live.feed(piece, now)
            keys = self._keys_heard()
            if self.answer is not None and self.ask_key in keys:
                self.answer.text = ""  # what was said before it heard the request is no answer
                self._knows = True
            for event in events:
                facts += self._take(event, now)
            for record in self.live.records:
                self._over(record)
        return facts

    @property
    def has_replied(self) -> bool:
        """Whether the model said anything in this leg."""
        return self._replied

    def asked(self, *, is_cut: bool = False) -> None:
        """From now on, what it says is its answer. `is_cut`: its turn was interrupted for that."""
        self.answer, self.asked_line, self._is_cut = CheckpointAnswer(), None, is_cut
        self.turn_is_over, self._maybe_since = False, None

    def activity(self, now: float) -> Activity:
        """For the timers: what was long ago by the clock that nobody sets was so by any."""
        awake = self.clock.awake()
        return Activity(
            last_output_at=now - (awake - self._output),
            began_at=now - (awake - self._began),
            tool_since=None if self._tool is None else now - (awake - self._tool),
        )

    @property
    def active_s(self) -> float:
        """For how long it has been at work, the machine's sleep not counted."""
        return max(0.0, self.clock.awake() - self._began)

    @property
    def has_more(self) -> bool:
        """Whether there is more to be seen at once."""
        return self.tail.has_more

    def output_bytes(self) -> int:
        """What it printed so far, to both streams."""
        found = 0
        for path in (self.leg.stdout, self.leg.stderr):
            with suppress(OSError):
                found += path.stat().st_size
        return found

    @property
    def has_open_call(self) -> bool:
        """Whether a tool runs, as far as the stream tells."""
        return bool(self.live.open_calls)

    @property
    def call_in_doubt(self) -> str | None:
        """The last tool call, if the model has not said a word since: its result may not be in the
        session, although it is in the stream. None if there is no doubt."""
        if self._is_answered:
            return None
        last = self.last_call
        return (last.command or f"{last.name} {last.argument}") if last is not None else ""

    def _take(self, event: Event, now: float) -> list[AnyFact]:
        facts: list[AnyFact] = []
        self.progress.feed(event)
        self.compactions.feed(event)
        facts += self._arrive(event)
        if self.digest is not None:
            self.digest.feed(event)
        if self._calls is None:
            facts += self._judge(event, now)
        if self.drive.calls_from == "stream":
            self._look_for_denial(event)
        if self.live.session_id and self.live.session_id != self.session_id:
            self.session_id = self.live.session_id
            facts.append(SessionNamed(leg=self.number, session_id=self.session_id))
        match event:
            case Usage():
                facts += self._read(event.used_tokens, event.window_tokens, event.model, now)
            case Compaction() if event.phase == "done" and event.used_tokens is not None:
                facts += self._read(event.used_tokens, None, None, now)  # its own: it made room
            case Limit():
                self.limits[event.scope or ""] = event
            case Reply():
                facts += self._reply(acted=False)
                self._is_answered = True
                if event.text:
                    self._said(event.text)
            case ToolCall():
                facts += self._reply(acted=True)
                self.last_call = event
                self._is_answered = False
                self._works_on(event)
                self.doing = event.command or f"{event.name} {event.argument}".strip()
                self.tool_since = self.tool_since or now
                self._tool = self._awake if self._tool is None else self._tool
            case ToolResult():
                self._was_work()  # some tell the words after the call that they go with
                if not self.live.open_calls:
                    self.tool_since = self._tool = None
                    self._boundary, self._is_missed = True, self.drive.talks
            case Ended() if event.ok:
                self._is_answered = True
                facts += self._reply(acted=True)
        return facts

    def _look_for_denial(self, event: Event) -> None:
        if isinstance(event, ToolCall):
            if len(self._open) < _OPEN_KEPT:
                self._open[event.call_id] = event
        elif isinstance(event, ToolResult):
            call = self._open.pop(event.call_id, None)
            self.was_denied = event.denied
            if event.denied and call is not None:
                self.denied = call
                self.edit_denied = call if call.files else self.edit_denied

    def _arrive(self, event: Event) -> list[AnyFact]:
        if self.arrival is None:
            return []
        self.arrival.feed(event)
        return self._arrived() if self.arrival.is_over else []

    def _arrived(self) -> list[AnyFact]:
        """Told once; of a session that did nothing there is nothing to tell."""
        if self.arrival is None:
            return []
        found, self.arrival = self.arrival.repeats, None
        told = Arrived(
            leg=self.number,
            actions=found.actions,
            commands=found.commands,
            files=found.files,
            questions=found.questions,
        )
        return [told] if found.actions else []

    def _judge(self, event: Event, now: float) -> list[AnyFact]:
        """Whether it gets anywhere. The tree is only looked at if nothing else speaks for it."""
        spun = self.idle.feed(event, now)
        if spun is None or self._looped or self._is_replaying:
            return []
        self.progress.see_tree(git.mark(self.cwd))
        if self.idle.see(self.progress.mark()):
            return []
        self._looped = True
        return [
            Looped(
                leg=self.number,
                calls=spun.count,
                kind=spun.kind,
                call=redact(spun.call)[0],
                made=spun.made,
                failed=spun.failed,
            )
        ]

    def _works_on(self, call: ToolCall) -> None:
        """A call after the request was read is no answer, and nothing after it will be one."""
        if self.answer is None or self.answer.is_whole:
            return
        if self.is_only_asked or self._knows:
            self.answer, self.works_on = None, True
            return
        self._was_work()
        if self._is_cut:
            self.cut_call = call.command or f"{call.name} {call.argument}"

    def _was_work(self) -> None:
        """What was said so far goes with a call of the work: it is no answer to a request that the
        model has not read."""
        if self.answer is not None and not self.answer.is_whole and not self._knows:
            self.answer.text = ""

    def _hear(self, lines: list[bytes], now: float) -> list[AnyFact]:
        """Of an agent that writes no records: every line is its word."""
        facts = self._reply(acted=True) if any(map(bytes.strip, lines)) else []
        for line in lines:
            text = line.decode("utf-8", "replace")
            heard = self.drive.hears(text) if self.drive.hears is not None else LineMeaning()
            if heard.said:
                self.said, self.said_line = heard.said, text
            self._said(text)
            if heard.session_id and heard.session_id != self.session_id:
                self.session_id = heard.session_id
                facts.append(SessionNamed(leg=self.number, session_id=heard.session_id))
        return facts

    def _reply(self, *, acted: bool) -> list[AnyFact]:
        if self._replied and (self._acted or not acted):
            return []
        self._replied, self._acted = True, self._acted or acted
        return [Replied(leg=self.number, acted=acted)]

    def _said(self, text: str) -> None:
        self.last_text = text
        if self.answer is None or self.answer.is_whole:
            return
        self.answer.text = f"{self.answer.text}\n\n{text}".strip()[-_ANSWER_CHARS:]
        # What is beyond the cap is not handed on: nothing more of it is waited or paid for.
        is_enough = len(self.answer.text) >= self.policy.checkpoint_tokens * CHARS_PER_TOKEN
        if is_enough or "</checkpoint>" in text.lower():
            self.answer.is_whole = True

    def _over(self, record: dict[str, object]) -> None:
        over = self.watch.over(record)
        if over == "yes" and self.answer is None:
            self.turn_is_over, self._maybe_since = True, None
        elif over == "no":
            # What comes after the end of a turn does not undo it, unless an answer is awaited.
            self.turn_is_over = self.turn_is_over and self.answer is None
            self._maybe_since = None
        else:
            # Asked for a checkpoint: it may be the turn before the answer that is over.
            self._maybe_since = self._awake

    def _look_at_stderr(self) -> None:
        """Words there count as output too."""
        size = _size_of(self.leg.stderr)
        if size != self._stderr_size:
            self._stderr_size, self._output = size, self._awake

    # The session file

    def _look_at_file(self, now: float) -> list[AnyFact]:
        if not self.session_id or self._awake - self._file_looked_at < _FILE_LOOK_S:
            return []
        self._file_looked_at = self._awake
        if not self.session_path and self.drive.session_file is not None:
            self.session_path = self.drive.session_file(self.session_id, self.env, self.cwd)
        if not self.session_path:
            return []
        try:
            info = os.stat(self.session_path)
        except OSError:
            return []
        stamp = (info.st_size, info.st_mtime_ns)
        if stamp == self._file_stamp:
            return []
        if self._file_stamp is not None:
            self._output = self._awake
        self._file_stamp = stamp
        facts = self._take_calls(now)
        if self.drive.size_from != "file":
            return facts
        seen = _glance_at(self.session_path, info.st_size, self.profile)
        if seen is None or seen.used_tokens is None:
            return facts
        self._accepted = max(self._accepted, seen.accepted_tokens)
        used, window = seen.used_tokens, seen.window_tokens
        return facts + self._read(used, window, seen.model, now, in_file=True)

    def _take_calls(self, now: float) -> list[AnyFact]:
        """What the session file alone tells: calls that the agent refused, and the replies that
        made them."""
        if self.drive.calls_from != "file":
            return []
        if self._calls is None:
            self._calls = _Calls(Tail(self.session_path, self._file_from), Live(self.profile))
        facts: list[AnyFact] = []
        for _ in range(_READS):
            for event in self._calls.live.feed(self._calls.tail.read(), now):
                if isinstance(event, Reply | ToolCall):
                    facts += self._reply(acted=isinstance(event, ToolCall))
                facts += self._judge(event, now)
                self._look_for_denial(event)
                self._count_compaction(event)
            if not self._calls.tail.has_more:
                break
        return facts

    def _count_compaction(self, event: Event) -> None:
        """Of an agent whose stream says nothing of it."""
        if isinstance(event, Compaction | Summary):
            self.compactions.feed(event)

    def _read_compactions(self, now: float) -> None:
        """The same, of one whose file is not followed."""
        if self.drive.talks or self._calls is not None or not self.session_path:
            return
        live = Live(self.profile)
        with Tail(self.session_path, self._file_from) as rest:
            while (lines := rest.read()) or rest.has_more:
                for event in live.feed(lines, now):
                    self._count_compaction(event)

    def _read(
        self,
        used: int,
        told: int | None,
        model: str | None,
        now: float,
        *,
        in_file: bool = False,
    ) -> list[AnyFact]:
        self._model = model or self.live.model or self._model
        self._accepted = max(self._accepted, used)
        reading = self.live.reading
        look = Look(
            session_id=self.session_id,
            cwd=self.cwd,
            model=self._model,
            told_window_tokens=told or (reading.window_tokens if reading else None),
            accepted_tokens=self._accepted,
        )
        window, enforced = self.windows.of(self.profile.name, look, self.policy)
        if (used, window.tokens) == self._used:
            return []
        self._is_missed = False
        self._used = (used, window.tokens)
        told_now = Reading(
            input_tokens=used,
            window_tokens=window.tokens,
            source="transcript" if in_file else "stream",
            at=now,
        )
        return [ContextMeasured(leg=self.number, reading=told_now, enforced_tokens=enforced)]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _first(*times: float | None) -> float:
    return next(time for time in times if time is not None)


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _glance_at(path: str, size: int, profile: Profile) -> Glance | None:
    try:
        handle = find.open_file(path)
    except OSError:
        return None
    try:
        seen, _ = tail.read_back(
            handle, size, lambda records: glance(profile.parse(records)), lambda g: g.is_settled
        )
        return seen
    except OSError:
        return None
    finally:
        os.close(handle)
