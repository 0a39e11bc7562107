"""A conversation as people read it: who said what, with the tools called in between."""

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from segue.agents import find
from segue.agents.shared.live import Live
from segue.core.runs.types import Run
from segue.core.stops.events import Compaction, Ended, Event, Failure, Prompt, Reply, ToolCall
from segue.core.stops.events import ToolResult as Result
from segue.runs.folders import RunFolder, read
from segue.runs.handoff import said_in
from segue.sessions.digest import read_session
from segue.system.files.stream import Tail

Who = Literal["you", "segue", "agent", "tool", "note"]


class Said(Struct, kw_only=True):
    """One thing that was said or done. Of a tool: its name, what it was given, and how it ended."""

    who: Who
    text: str
    at: float | None = None
    tool: str = ""
    call_id: str = ""
    result: str = ""


class Conversation:
    """Takes a session's events in; `said` is the conversation so far."""

    def __init__(self) -> None:
        self.said: list[Said] = []

    def feed(self, event: Event) -> None:
        """The next one."""
        match event:
            case Prompt(text=text) if text.strip():
                self._add(Said(who="you", text=text, at=event.at))
            case Reply(text=text) if text.strip():
                self._add(Said(who="agent", text=text, at=event.at))
            case ToolCall():
                what = event.command or event.argument or " ".join(event.files)
                self.said.append(
                    Said(who="tool", text=what, at=event.at, tool=event.name, call_id=event.call_id)
                )
            case Result():
                self._result(event)
            case Compaction(phase="done"):
                self._add(Said(who="note", text="the agent compacted its context", at=event.at))
            case Ended():
                pass
            case Failure(message=message) if message.strip():
                self._add(Said(who="note", text=message, at=event.at))

    def _add(self, said: Said) -> None:
        last = self.said[-1] if self.said else None
        if last is None or (last.who, last.text) != (said.who, said.text):
            self.said.append(said)

    def _result(self, event: Result) -> None:
        for said in reversed(self.said):
            if said.who == "tool" and said.call_id == event.call_id:
                said.result = _ended(event)
                return


def of_session(agent: str, path: str, session_id: str) -> list[Said]:
    """From a session's file or rows; empty if it cannot be read."""
    found = Conversation()
    read_session(found, agent, path, session_id)
    return found.said


def of_run(run: Run, leg: int | None = None) -> Iterator[tuple[int, list[Said]]]:
    """Leg by leg, from what the agent printed; or of one leg."""
    for number in (leg,) if leg is not None else range(1, run.leg + 1):
        folder = RunFolder(run.id).path / f"leg-{number:03}"
        profile = find(read(folder / "agent") or (run.relay[0].agent if run.relay else run.agent))
        found = Conversation()
        told = said_in(folder) if folder.is_dir() else []
        found.said = [Said(who="segue", text=text) for text in told]
        if profile is not None and folder.is_dir():
            live = Live(profile)
            with Tail(folder / "stdout") as tail:
                while (lines := tail.read()) or tail.has_more:
                    for event in live.feed(lines):
                        if not isinstance(event, Prompt):  # which segue gave, and is told above
                            found.feed(event)
        yield number, found.said


def _ended(event: Result) -> str:
    if event.denied:
        return "not allowed"
    if event.exit_code:
        return f"exit code {event.exit_code}"
    return "failed" if event.failed else "done"
