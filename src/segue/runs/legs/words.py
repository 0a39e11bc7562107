"""A leg's output as people read it: who said what, with the tools called in between. Read piece by
piece while the leg works."""

from contextlib import suppress
from typing import Literal

from msgspec import Struct

from segue import agents
from segue.agents import drives
from segue.agents.shared.live import Live
from segue.core.handoffs.quoting import is_automatic
from segue.core.runs.types import Run
from segue.core.stops.events import Compaction, Ended, Event, Failure, Prompt, Reply, ToolCall
from segue.core.stops.events import ToolResult as Result
from segue.runs.briefing.handoff import said_in
from segue.runs.folders import RunFolder, read
from segue.system.files.stream import CHUNK_BYTES, LINE_BYTES, Tail

Who = Literal["you", "segue", "agent", "tool", "result", "note"]


class Utterance(Struct, kw_only=True):
    """One thing that was said or done. For a tool: its name, its arguments, and how it ended.
    `result` says how the call with that id ended; a `Conversation` has it in the tool itself."""

    who: Who
    text: str
    at: float | None = None
    tool: str = ""
    call_id: str = ""
    result: str = ""


def utterance(event: Event) -> Utterance | None:
    """What an event says to people; None if nothing."""
    match event:
        case Prompt(text=text) if text.strip():
            return Utterance(who=_speaker(text), text=text, at=event.at)
        case Reply(text=text) if text.strip():
            return Utterance(who="agent", text=text, at=event.at)
        case ToolCall():
            what = event.command or event.argument or " ".join(event.files)
            return Utterance(
                who="tool", text=what, at=event.at, tool=event.name, call_id=event.call_id
            )
        case Result():
            return Utterance(
                who="result", text="", at=event.at, call_id=event.call_id, result=_ended(event)
            )
        case Compaction(phase="done"):
            return Utterance(who="note", text="the agent compacted its context", at=event.at)
        case Ended():
            return None
        case Failure(message=message) if message.strip():
            return Utterance(who="note", text=message, at=event.at)
    return None


def _speaker(prompt: str) -> Who:
    """Who wrote a prompt. The first prompt of a run has its user's task in it, word for word."""
    return "segue" if is_automatic(prompt) else "you"


def _ended(event: Result) -> str:
    if event.denied:
        return "not allowed"
    if event.exit_code:
        return f"exit code {event.exit_code}"
    return "failed" if event.failed else "done"


class Conversation:
    """Takes a session's events. `said` is the conversation so far."""

    def __init__(self) -> None:
        self.utterances: list[Utterance] = []

    def feed(self, event: Event) -> None:
        """Takes the next event."""
        if (each := utterance(event)) is not None:
            self.add(each)

    def add(self, each: Utterance) -> None:
        """Takes an utterance that was read earlier."""
        if each.who == "result":
            for tool in reversed(self.utterances):
                if tool.who == "tool" and tool.call_id == each.call_id:
                    tool.result = each.result
                    return
            return
        last = self.utterances[-1] if self.utterances else None
        if each.who == "tool" or last is None or (last.who, last.text) != (each.who, each.text):
            self.utterances.append(each)


class LegWords:
    """What is said in one leg, as its output grows. No input raises; a leg whose files are gone
    says nothing."""

    def __init__(self, run: Run, number: int) -> None:
        self.number = number
        self.folder = RunFolder(run.id).path / f"leg-{number:03}"
        agent = read(self.folder / "agent") or (run.relay[0].agent if run.relay else run.agent)
        profile, drive = agents.find(agent), drives.find(agent)
        self._live = Live(profile) if profile is not None else None
        self._is_plain = drive is not None and drive.hears is not None
        self._tail = Tail(self.folder / "stdout")
        self._returned = 0  # how much of what segue said was returned

    def begin_at(self, place: int) -> None:
        """Skips what was returned before: this much of the output, which is still read because what
        follows may need it."""
        with suppress(OSError), open(self.folder / "stdout", "rb") as file:
            left = place
            while left > 0 and (line := file.readline(LINE_BYTES)):
                left -= len(line)
                self._read([line.rstrip(b"\n")])
        self._tail = Tail(self.folder / "stdout", place)
        self._returned = len(said_in(self.folder)) if self.folder.is_dir() else 0

    @property
    def place(self) -> int:
        """How far the output was read."""
        return self._tail.offset

    @property
    def has_more(self) -> bool:
        """Whether the last look left something that is already there."""
        return self._tail.has_more

    def look(self, max_bytes: int = CHUNK_BYTES) -> list[Utterance]:
        """What was said since the last look, in about this many bytes of output."""
        sentences = said_in(self.folder) if self.folder.is_dir() else []
        found = [Utterance(who=_speaker(text), text=text) for text in sentences[self._returned :]]
        self._returned = max(self._returned, len(sentences))
        try:
            return [*found, *self._read(self._tail.read(max_bytes))]
        except OSError:
            return found

    def skip(self, keep_bytes: int) -> None:
        """Skips what is there, except for its end."""
        self._tail.skip(keep_bytes)

    def finish(self) -> list[Utterance]:
        """What is only known once nothing more arrives."""
        rest = self._tail.rest()
        found = self._read([rest]) if rest else []
        if self._live is not None:
            found += self._words(self._live.close())
        self._tail.close()
        return found

    def _read(self, lines: list[bytes]) -> list[Utterance]:
        if self._is_plain:
            text = b"\n".join(lines).decode("utf-8", "replace").strip()
            return [Utterance(who="agent", text=text)] if text else []
        return self._words(self._live.feed(lines)) if self._live is not None else []

    def _words(self, events: list[Event]) -> list[Utterance]:
        # Prompts were returned above.
        found = (utterance(event) for event in events if not isinstance(event, Prompt))
        return [each for each in found if each is not None]
