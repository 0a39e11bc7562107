"""Tracks a session's answer to a request for a checkpoint."""

from msgspec import Struct

from segue.core.handoffs.summary import CHARS_PER_TOKEN
from segue.core.stops.events import ToolCall

_ANSWER_CHARS = 400_000


class CheckpointAnswer(Struct):
    """What the session said since it was asked for a checkpoint."""

    text: str = ""
    is_whole: bool = False  # it has said everything that it will


class AnswerTracker:
    """Tells the answer from the work.

    `answer` is None until the session is asked. From then on its words are collected, except for
    those that it said before it read the request, or along with a tool call of the work, until
    `answer.is_whole`. If it works on although it has read the request, `works_on` is set, and
    `answer` is None again: nothing after that will be one."""

    def __init__(self, key: str, checkpoint_tokens: int, *, is_only_asked: bool = False) -> None:
        """`key`: what the agent tells back once it hears the request. `is_only_asked`: the leg is
        there for nothing but a checkpoint."""
        self.key, self.is_only_asked = key, is_only_asked
        self.answer = CheckpointAnswer() if is_only_asked else None
        self.works_on = False
        self.cut_call: str | None = None
        """A call that began when the session was interrupted: who knows how far it came."""
        self._max_chars = checkpoint_tokens * CHARS_PER_TOKEN
        self._line: int | None = None  # after which another process asked it
        self._is_cut = False  # the turn was interrupted, to ask at once
        self._has_read = False  # the model has read the request

    @property
    def is_open(self) -> bool:
        """Whether more of the answer is awaited."""
        return self.answer is not None and not self.answer.is_whole

    def ask(self, *, is_cut: bool = False) -> None:
        """It is asked now. `is_cut`: its turn was interrupted for that."""
        self.answer, self._line, self._is_cut = CheckpointAnswer(), None, is_cut

    def asked_before(self, line: int, *, is_cut: bool) -> None:
        """Another process asked it, when it had printed so many lines."""
        self._line, self._is_cut = line, is_cut

    def lines_before(self, seen: int, given: int) -> int:
        """How many of these lines it printed before it was asked, if `seen` came before them."""
        return given if self._line is None else min(given, max(0, self._line - seen))

    def is_due(self, seen: int) -> bool:
        """Whether it was asked at this line, by another process."""
        return self._line is not None and seen >= self._line

    def ask_again(self) -> None:
        """From here on, what it says is its answer to that other process."""
        self.ask(is_cut=self._is_cut)

    def hear(self, keys: set[str]) -> None:
        """Words with these keys are part of the conversation now."""
        if self.answer is not None and self.key in keys:
            self.answer.text = ""  # what was said before it heard the request is no answer
            self._has_read = True

    def say(self, text: str) -> None:
        """It said this."""
        if self.answer is None or self.answer.is_whole:
            return
        self.answer.text = f"{self.answer.text}\n\n{text}".strip()[-_ANSWER_CHARS:]
        # What is beyond the cap is not handed on: nothing more of it is waited or paid for.
        is_enough = len(self.answer.text) >= self._max_chars
        if is_enough or "</checkpoint>" in text.lower():
            self.answer.is_whole = True

    def call(self, call: ToolCall) -> None:
        """A call after the request was read is no answer, and nothing after it will be one."""
        if not self.is_open:
            return
        if self.is_only_asked or self._has_read:
            self.answer, self.works_on = None, True
            return
        self.drop_work()
        if self._is_cut:
            self.cut_call = call.command or f"{call.name} {call.argument}"

    def drop_work(self) -> None:
        """What was said so far goes with a call of the work: it is no answer to a request that the
        model has not read."""
        if self.answer is not None and not self.answer.is_whole and not self._has_read:
            self.answer.text = ""

    def end(self) -> None:
        """The turn has ended: what it said is all."""
        if self.answer is not None and self.answer.text:
            self.answer.is_whole = True
