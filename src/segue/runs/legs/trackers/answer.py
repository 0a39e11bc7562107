"""Tracks a session's answer to a request for a checkpoint."""

from msgspec import Struct

from segue.core.handoffs.summary import CHARS_PER_TOKEN
from segue.core.stops.events import ToolCall

_ANSWER_CHARS = 400_000


class CheckpointAnswer(Struct):
    """What the session has said since it was asked for a checkpoint."""

    text: str = ""
    is_whole: bool = False  # it has said everything that it will say


class AnswerTracker:
    """Separates the answer from the work.

    `answer` is None until the session is asked. From then on its words are collected until
    `answer.is_whole`, except for words from before it read the request or along with a tool call of
    the work. If it keeps working although it has read the request, `works_on` is set and `answer`
    is None again, because nothing after that can be the answer.
    """

    def __init__(self, key: str, checkpoint_tokens: int, *, is_only_asked: bool = False) -> None:
        """`key` is what the agent repeats once it receives the request. `is_only_asked`: the leg
        exists only to write a checkpoint."""
        self.key, self.is_only_asked = key, is_only_asked
        self.answer = CheckpointAnswer() if is_only_asked else None
        self.works_on = False
        self.cut_call: str | None = None
        """A call that was starting when the session was interrupted, so its outcome is unknown."""
        self._max_chars = checkpoint_tokens * CHARS_PER_TOKEN
        self._line: int | None = None  # after which another process asked
        self._is_cut = False  # the turn was interrupted in order to ask at once
        self._has_read = False  # the model has read the request

    @property
    def is_open(self) -> bool:
        """Whether more of the answer is expected."""
        return self.answer is not None and not self.answer.is_whole

    def ask(self, *, is_cut: bool = False) -> None:
        """The session is asked now. `is_cut`: its turn was interrupted for that."""
        self.answer, self._line, self._is_cut = CheckpointAnswer(), None, is_cut

    def asked_before(self, line: int, *, is_cut: bool) -> None:
        """Records that another process asked after it had printed this many lines."""
        self._line, self._is_cut = line, is_cut

    def lines_before(self, line_count: int, given: int) -> int:
        """How many of these lines were printed before it was asked, if `line_count` lines came
        before them."""
        return given if self._line is None else min(given, max(0, self._line - line_count))

    def is_due(self, line_count: int) -> bool:
        """Whether another process asked at this line."""
        return self._line is not None and line_count >= self._line

    def ask_again(self) -> None:
        """From here on, what the session says is its answer to that other process."""
        self.ask(is_cut=self._is_cut)

    def hear(self, keys: set[str]) -> None:
        """Records that messages with these keys are now part of the conversation."""
        if self.answer is not None and self.key in keys:
            self.answer.text = ""  # words from before it received the request are not an answer
            self._has_read = True

    def say(self, text: str) -> None:
        """Adds words of the session."""
        if self.answer is None or self.answer.is_whole:
            return
        self.answer.text = f"{self.answer.text}\n\n{text}".strip()[-_ANSWER_CHARS:]
        # What exceeds the cap is not passed on, so segue neither waits nor pays for more.
        is_enough = len(self.answer.text) >= self._max_chars
        if is_enough or "</checkpoint>" in text.lower():
            self.answer.is_whole = True

    def call(self, call: ToolCall) -> None:
        """Records a call. After the request was read, a call is not an answer, and nothing after it
        will be."""
        if not self.is_open:
            return
        if self.is_only_asked or self._has_read:
            self.answer, self.works_on = None, True
            return
        self.drop_work()
        if self._is_cut:
            self.cut_call = call.command or f"{call.name} {call.argument}"

    def drop_work(self) -> None:
        """Drops the words so far, which belong to a call of the work: the model has not read the
        request."""
        if self.answer is not None and not self.answer.is_whole and not self._has_read:
            self.answer.text = ""

    def end(self) -> None:
        """The turn has ended, and with it the answer."""
        if self.answer is not None and self.answer.text:
            self.answer.is_whole = True
