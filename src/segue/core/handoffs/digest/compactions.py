"""What an agent's own compaction forgot. A compaction replaces the conversation with a summary, and
what the summary leaves out is gone unless somebody who saw it repeats it."""

import re
from math import inf

import msgspec

from segue.core.handoffs.digest.parts import budget_chars, names_in, sections, stands_in
from segue.core.handoffs.digest.types import Digest
from segue.core.handoffs.quoting import quotation
from segue.core.lines import shorten
from segue.core.secrets.redact import redact, scrub
from segue.core.stops.events import Compaction, Event, Reply, Summary, ToolCall, ToolResult

_SENTENCES = re.compile(r"(?<=[.!?])\s+|\n+")
_SUMMARY_CHARS = 400_000
_BESIDES = (
    "Todo list",
    "Files touched",
    "Also mentioned",
    "Images",
)  # not worth a message


class Compactions:
    """Counts a session's own compactions, and keeps what the last one left of the conversation.

    Some agents report them elsewhere than their work, so an event may come after one that followed
    it: if both have a time, that decides.
    """

    def __init__(self, *, has_worked: bool = False) -> None:
        """`has_worked`: the session called tools before the first event, and was not told since
        what an earlier compaction left out."""
        self.count = 0
        self.summary = ""
        """The summary of the last one; "" if the records do not have it."""
        self.works_after = 0
        """The number of the last one after which the session called a tool, and so continued."""
        self.results_after = 0
        """The number of the last one after which a tool of the session finished."""
        self.replies_after = 0
        """The number of the last one after which the model replied."""
        self.is_after_work = False
        """Whether the session called a tool between the last one and the one before. A session that
        only compacts is not told the same thing again and again."""
        self.ends_turn = False
        """Whether nothing says that the session continues after the last one."""
        self.is_under_way = False
        """Whether one has begun and not ended."""
        self._has_worked = has_worked
        self._is_fresh = False  # the summary is newer than all work
        self._is_done = False  # nothing was done since the last one, so the result is the same
        self._replied_at = self._called_at = self._finished_at = -inf

    def feed(self, event: Event) -> None:
        """Takes the next event of the session. Some agents record the summary first, others that it
        is done."""
        match event:
            case Summary():
                self.summary, self._is_fresh = event.text[:_SUMMARY_CHARS], True
            case Compaction(phase="started"):
                self.is_under_way = True
            case Compaction(phase="failed"):
                self.is_under_way = False
            case Compaction(phase="done"):
                self.is_under_way = False
                if not self._is_done:
                    self.count += 1
                    self.is_after_work, self._has_worked = self._has_worked, False
                    self.ends_turn = True
                self.ends_turn &= event.ends_turn
                self._is_done = True
                if not self._is_fresh:
                    self.summary = ""
                if event.at is not None:
                    self._catch_up(event.at)
            case Reply() | ToolCall():
                self._is_fresh = self._is_done = False
                self.replies_after, self._replied_at = self.count, _time(event)
                if isinstance(event, ToolCall):
                    self.works_after, self._has_worked = self.count, True
                    self._called_at = _time(event)
            case ToolResult():
                self.results_after, self._finished_at = self.works_after, _time(event)

    def _catch_up(self, at: float) -> None:
        """Counts what came before the last one, and happened after it."""
        if self._replied_at > at:
            self.replies_after, self._is_done = self.count, False
        if self._called_at > at:
            self.works_after, self._has_worked = self.count, True
            if self._finished_at >= self._called_at:
                self.results_after = self.count


def _time(event: Event) -> float:
    return -inf if event.at is None else event.at


def left_out(
    digest: Digest,
    summary: str,
    *,
    window_tokens: int,
    max_chars: int | None = None,
    task: str = "",
) -> str:
    """What is known and missing from the summary, as Markdown without secrets; "" if nothing
    important is. At most `max_chars`, or what fits into a window of this size. `task`: the user's
    first words, if they are not in the digest."""
    limit = budget_chars(window_tokens)
    limit = limit if max_chars is None else min(limit, max_chars)
    # Each text as it was, because layout hides where a line or a word begins.
    clean = msgspec.convert(scrub(msgspec.to_builtins(digest)), Digest)
    first = _task(redact(task)[0], summary, limit // 2)
    found = [*first, *sections(clean, limit - sum(len(text) for _, text in first), summary=summary)]
    if all(title in _BESIDES for title, _ in found):
        return ""
    text = "\n\n".join(f"## {title}\n{text}" for title, text in found)
    return redact(text)[0][:limit]


def _task(task: str, summary: str, max_chars: int) -> list[tuple[str, str]]:
    """The task, if the summary omits something that one of its sentences names: a summary keeps
    what a task is about, and loses what it forbids."""
    if all(stands_in(each, summary) for each in _SENTENCES.split(task) if names_in(each)):
        return []
    return [("The task, word for word", quotation(shorten(task, max_chars)[0]))]
