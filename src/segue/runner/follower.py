"""Follows one leg: its stream and its session file together, until it is over.

What it sees it tells as facts; it decides nothing but when a turn is over, so that the agent's
input can be closed.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

from segue.agents.drive import Drive, Heard
from segue.agents.live import Live
from segue.agents.profile import Profile
from segue.core.event import Compaction, Ended, Event, Reply, ToolCall, ToolResult, Usage
from segue.core.glance import Glance, glance
from segue.core.progress import Progress, Repeats
from segue.core.reading import Reading
from segue.core.run import (
    AnyFact,
    Boundary,
    Looped,
    Named,
    Read,
    Replied,
    Run,
    State,
)
from segue.core.session import Look
from segue.core.timers import Activity
from segue.io import git
from segue.io.leg import Leg
from segue.io.stream import Tail
from segue.runner.clock import Clock
from segue.transcripts import find, tail
from segue.transcripts.windows import Windows

_READS = 16  # some megabytes: whoever prints faster than that must not hold up a run
_FILE_LOOK_S = 0.25  # a stat; the size must be known within a second
_ANSWER_CHARS = 400_000


class Answer(Struct):
    """What the session said since it was asked for a checkpoint."""

    text: str = ""
    is_whole: bool = False  # it has said all that it will


class Follower:
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
        env: Mapping[str, str],
        clock: Clock,
    ) -> None:
        self.leg, self.number, self.drive, self.profile = leg, number, drive, profile
        self.windows, self.env, self.cwd = windows, env, run.cwd
        self.session_id = session_id
        self.live = Live(profile)
        self.tail = Tail(Path(leg.folder) / "stdout")
        self.watch = drive.watch()
        self.repeats = Repeats(run.policy.same_calls)
        self.repeats.see_tree(progress.mark().tree)
        self.progress = progress
        self.clock = clock
        self.tool_since: float | None = None  # unix time
        # On the clock that nobody sets. A leg that another process began is as old as it says.
        now, self._awake = clock.now(), clock.awake()
        self._began = self._awake - max(0.0, now - _first(run.leg_since, now))
        self._output = self._awake
        self._tool: float | None = None
        self._stderr_size = 0
        self.answer: Answer | None = None  # None: it was not asked
        self.ask_key = ""  # which the agent tells back once it hears the request
        self.asked_line: int | None = None  # after which line it was, by another process
        self.asked_cut = False  # and whether that interrupted it
        self.doing = ""  # the last tool call, in short
        self.last_call: ToolCall | None = None
        self.last_text = ""
        self.said: Literal["", "done", "failed"] = ""  # by an agent without records
        self.was_denied = False  # its last tool call: nobody was there to allow it
        self.turn_is_over = False
        self.is_closed = False  # its input
        self.is_only_asked = False  # the leg is there for nothing but a checkpoint
        self.works_on = False  # asked, and yet it goes on with the work
        self.cut_call: str | None = None  # began when it was interrupted: who knows how far it came
        self._is_cut = False  # the turn was interrupted, to ask at once
        self._knows = False  # the model has read the request
        self._heard = False  # the agent has
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
        self._boundary = False

    # What is seen

    def look(self, run: Run, now: float) -> list[AnyFact]:
        """What is new, as far as a short look shows: see `has_more`."""
        facts: list[AnyFact] = []
        self._boundary, self._awake = False, self.clock.awake()
        for _ in range(_READS):
            lines = self.tail.read()
            if not lines and not self.tail.has_more:
                break
            self._output = self._awake
            before = self._before_ask(lines)
            facts += self._take_lines(before, now)
            if len(before) < len(lines):
                self.asked(is_cut=self.asked_cut)
                facts += self._take_lines(lines[len(before) :], now)
        if self.asked_line is not None and self.live.lines >= self.asked_line:
            self.asked(is_cut=self.asked_cut)
        facts += self._look_at_file(now)
        self._look_at_stderr()
        if (
            self._maybe_since is not None
            and not self.tail.has_more
            and (self._awake - self._maybe_since >= self.watch.settle_s)
        ):
            self._maybe_since, self.turn_is_over = None, True
        if self.turn_is_over and self.answer is not None and self.answer.text:
            self.answer.is_whole = True
        if self.drive.hears is not None and run.state is State.STOPPING and not run.ended_how:
            self._boundary = True  # of an agent without records any moment is as good as another
        if self._boundary and not self.live.open_calls and _minds_boundaries(run):
            facts.append(Boundary(leg=self.number))
        return facts

    def finish(self, run: Run, now: float) -> list[AnyFact]:
        """What is left, once the process is gone."""
        facts = self.look(run, now)
        while self.tail.has_more:
            facts += self.look(run, now)
        if rest := self.tail.rest():
            facts += self._take_lines([rest], now)
        for event in self.live.close(now):
            facts += self._take(event, now)
        self._file_looked_at = float("-inf")
        facts += self._look_at_file(now)
        self.tail.close()
        return facts

    def _hears_request(self) -> bool:
        keys = (self.watch.heard(record) for record in self.live.records)
        return bool(self.ask_key) and self.ask_key in keys

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
            if self.answer is not None and self._hears_request():
                self.answer.text = ""  # what was said before it heard the request is no answer
                self._heard, self._knows = True, not self.drive.tells_back_early
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
        self.answer, self.asked_line, self._is_cut = Answer(), None, is_cut
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
        if self.live.session_id and self.live.session_id != self.session_id:
            self.session_id = self.live.session_id
            facts.append(Named(leg=self.number, session_id=self.session_id))
        match event:
            case Usage():
                self._knows = self._knows or self._heard
                facts += self._read(event.used_tokens, event.window_tokens, event.model, now)
            case Compaction() if event.phase == "done" and event.used_tokens is not None:
                facts += self._read(event.used_tokens, None, None, now)  # its own: it made room
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
                if self.repeats.feed(event) and not self._looped and self._is_in_a_loop():
                    self._looped = True
                    facts.append(Looped(leg=self.number, calls=self.repeats.limit))
            case ToolResult():
                self.was_denied = event.denied
                if not self.live.open_calls:
                    self.tool_since = self._tool = None
                    self._boundary = True
            case Ended() if event.ok:
                self._is_answered = True
                facts += self._reply(acted=True)
        return facts

    def _is_in_a_loop(self) -> bool:
        """Whoever waits for something asks for it again and again; but then the tree changes."""
        self.repeats.see_tree(git.mark(self.cwd))
        return self.repeats.in_a_row > 0

    def _works_on(self, call: ToolCall) -> None:
        """A call after the request was read is no answer, and nothing after it will be one."""
        if self.answer is None or self.answer.is_whole:
            return
        if self.is_only_asked or self._knows:
            self.answer, self.works_on = None, True
        elif self._is_cut:
            self.cut_call = call.command or f"{call.name} {call.argument}"

    def _hear(self, lines: list[bytes], now: float) -> list[AnyFact]:
        """Of an agent that writes no records: every line is its word."""
        facts = self._reply(acted=True) if any(map(bytes.strip, lines)) else []
        for line in lines:
            text = line.decode("utf-8", "replace")
            heard = self.drive.hears(text) if self.drive.hears is not None else Heard()
            self.said = heard.said or self.said
            self._said(text)
            if heard.session_id and heard.session_id != self.session_id:
                self.session_id = heard.session_id
                facts.append(Named(leg=self.number, session_id=heard.session_id))
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
        if "</checkpoint>" in text.lower():
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
        try:
            size = os.stat(self.leg.stderr).st_size
        except OSError:
            return
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
        if self.drive.size_from != "file":
            return []
        seen = _glance_at(self.session_path, info.st_size, self.profile)
        if seen is None or seen.used_tokens is None:
            return []
        self._accepted = max(self._accepted, seen.accepted_tokens)
        return self._read(seen.used_tokens, seen.window_tokens, seen.model, now, in_file=True)

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
        window, enforced = self.windows.of(self.profile.name, look)
        if (used, window.tokens) == self._used:
            return []
        self._used = (used, window.tokens)
        told_now = Reading(
            input_tokens=used,
            window_tokens=window.tokens,
            source="transcript" if in_file else "stream",
            at=now,
        )
        return [Read(leg=self.number, reading=told_now, enforced_tokens=enforced)]


def _first(*times: float | None) -> float:
    return next(time for time in times if time is not None)


def _minds_boundaries(run: Run) -> bool:
    return run.is_due or run.state is State.STOPPING


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
