"""What is the last message of a text? The units in order, and how they affect each other.

A later unit beats an earlier one. An agent that works, retries or keeps speaking shows that what is
above was not an ending. And a text with many causes in it is a list, not an ending.
"""

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from segue.core.lazy_pattern import lazy_pattern
from segue.core.stops.claims.statements import is_advice, is_order
from segue.core.stops.composition import is_aftermath, is_family
from segue.core.stops.plain.text import Unit
from segue.core.stops.plain.voice import (
    Voice,
    is_client_error,
    is_code,
    is_stack,
    is_test,
    is_tool_call,
)
from segue.core.stops.reasons import StopReason
from segue.core.stops.text.reader import (
    SILENCED,
    MatchedMessage,
    MessageReader,
    has_tries_left,
    unexplained,
)
from segue.core.stops.types import Sign, Strength

_STATUS_LEAD = lazy_pattern(r"(?m)^\W{0,3}([45]\d\d)\b")
_CODE_LEAD = lazy_pattern(r"(?m)^\{\s?\"error\":\s?\"(\w+)\"")
_RAISED = lazy_pattern(r"^[A-Z]\w*(?:Error|Exception)\b")
_CAUSES_IN_A_LIST = 4
_STATUSES_IN_A_TABLE = 3
_SPEECH_CHARS = 60  # a shorter line under the model's bullet is a notice, not speech
_ANSWER_WORDS = 2
_INTRODUCING_WORDS = 6
_REPLY_WORDS = 6
_PROSE_WORDS = 9
_TYPED = ("agents.exit_command",)
_REFUSED = (
    "agents.permission_form",
    "agents.permission_refused",
    "agents.permission_setting",
)
_DROPPED = "agents.interrupted_by_hand"
"""Printed when a turn is taken back; after an error, nobody did that by hand."""
_RESETS = lazy_pattern(r"(?i)\breset")
_TROUBLE = lazy_pattern(r"(?i)\bhaving trouble|\bfailed|\bunable to|\bcould ?n[o']t")
_PLAN = lazy_pattern(
    r"(?i)^(?:(?:ok|okay|now|right|alright),? )?(?:let me|let's|i'll|i will) \w"
    r"|.{0,200}\. (?:starting|fixing|trying|running|installing|restarting) (?:it|them|that"
    r"|this) ?(?:now|again)?\."
)
_WENT_WELL = lazy_pattern(
    r"(?i)\b(?:succeeded|recovered|(?:done|finished|completed)\.? (?:in|after) \d"
    r"|(?:finished|completed|ended) (?:successfully|ok\b|status=(?:ok|success|200))|status=ok"
    r"|back online)\b|\b(?:done|finished)\W{0,3} (?:in )?\d[\d.]*m?s\b"
)
"""Said below an error, this shows that it did not end anything."""
_OF_A_TOOL = lazy_pattern(
    r"(?i)^(?:error: )?(?:exit code \d|file (?:has not been|does not exist|not found)"
    r"|string to replace|no such (?:file|tool)|(?:stop|pre|post|user|session)\w* hook )"
)
"""How a tool or a hook of the agent reports to it."""
_SENTENCE = lazy_pattern(r"^[A-Z](?:[\w'’`./-]+,? ){5,}.*[.:!]$")
_HEADING = lazy_pattern(r"^#{1,6}\s+\S")
_ANSWERS = lazy_pattern(
    r"(?i)^(?:(?:http|example|sample) )?(?:response|answer|output) [1-5]\d\d:$"
    r"|^(?:example|sample)(?: error)? (?:response|answer|output|body|payload)s?:$"
)
_REMEDIES = lazy_pattern(r"(?im)^[^\w\n]{0,12}(?:solution|fix|resolution|remedy|workaround):\s")
_REMEDIES_IN_A_GUIDE = 2
_SAID = lazy_pattern(r"/login|[^/\s\d]")  # to the agent; other commands are the client's
_TESTED = lazy_pattern(r"^--- FAIL: Test\w")  # what crashes there is a test
_EXAMPLE = lazy_pattern(r"(?i)\b(?:examples?|samples?|scenarios?|sample output)\b")
_SECTION = lazy_pattern(r"^#{2,6}\s+\S")
_HELP = lazy_pattern(r"^Usage: \S+.*\[")
_DOCUMENT = 2  # from this number of headings on, a text is a document
_CASES = lazy_pattern(
    r"(?i)^\W*(?:when(?:ever)?|if|in case|for example|(?:as )?(?:an? )?(?:example|sample)"
    r"|e\.g\.)\b|.{0,80}\b(?:looks?|is shaped) like(?: this)?:$"
)


class TextVerdict(Struct, frozen=True):
    """The signs of the last message, and those that were found but lost."""

    signs: tuple[Sign, ...] = ()
    lost: tuple[Sign, ...] = ()
    answered: bool = False  # the last message looks like an answer
    sure: float | None = None  # without signs: how likely it is that this is no stop


def last_message(
    units: Iterable[Unit], reader: MessageReader, source: str, *, generic_errors: bool = True
) -> TextVerdict:
    """The last message of a text. `generic_errors`: an error that no wording matches is at least an
    error (not in logs, where errors are common)."""
    listener = _Listener(reader, source)
    for unit in units:
        listener.take(unit)
    return listener.finish(generic_errors)


class _Listener:
    """Keeps what would count if the text ended here."""

    def __init__(self, reader: MessageReader, source: str) -> None:
        self._reader = reader
        self._source = source
        self._signs: list[Sign] = []
        self._lost: list[Sign] = []
        self._error: Unit | None = None  # the last error that no wording matches
        self._retry: Unit | None = None  # a notice of a retry, if nothing else followed
        self._answered = False
        self._foreign = False
        self._view = False
        self._above: Unit | None = None  # a sentence that introduces what is below it
        self._shown = False  # what is above was only shown
        self._headings = 0  # of a document
        self._remedies = 0
        self._example = False  # the last heading announces one
        self._prompted = False  # the user said something
        self._below = 0  # the line right below the signs
        self._is_plain_words = False  # the signs are in plain words, not in an error
        self._ends = False  # the signs are the last thing said
        self._causes: set[StopReason] = set()
        self._statuses: set[str] = set()

    def take(self, unit: Unit) -> None:
        spoken = unit.voice is Voice.PLAIN and len(unit.text.split()) >= _ANSWER_WORDS
        self._answered = spoken or (self._answered and unit.voice is Voice.MUTED)
        if self._hangs_below_retry(unit):
            return
        self._retry = None
        if unit.voice is Voice.PROMPT and _SAID.match(unit.text):
            self._prompted = True
        elif self._prompted and unit.voice is Voice.PLAIN and _is_reply(unit):
            self._drop("the agent answers what the user said after it")
        if unit.voice is Voice.RUNNING:
            if not self._reader.waits_long(unit.text):
                self._drop("the agent is still at work below it")
            return
        error, _, last = unit.text.rpartition("\n")
        if error and unit.voice is Voice.ERROR and _WENT_WELL.search(last):
            self._drop("it went well below it")
            return
        above = self._above
        if any(letter.isalnum() for letter in unit.text):
            body = unit.text.startswith("{")
            self._above = unit if _introduces(unit) else above if body else None
        matched = self._reader.unit(unit, f"{self._source}:{unit.line}")
        if matched is None:
            self._drop("the agent tries again by itself below it")
            self._retry = unit
            return
        matched = _without_dropped(matched)
        self._ends = bool(matched.signs)
        self._note(unit, matched)
        if unit.voice is Voice.MUTED and _HEADING.match(unit.text):
            self._headings += 1
            self._example = bool(_EXAMPLE.search(unit.text))
        self._view = self._view or bool(unit.voice is Voice.MUTED and _TESTED.match(unit.text))
        self._remedies += len(_REMEDIES.findall(unit.text))
        self._headings += _DOCUMENT * bool(_HELP.match(unit.text))
        if self._example and matched.signs:
            self._lost += [replace(s, lost="shown as an example") for s in matched.signs]
            return
        if above is not None and matched.signs:
            if _CASES.match(above.text):
                self._lost += [replace(s, lost="shown as an example") for s in matched.signs]
                return
            self._shown = True
        elif self._shown and (_is_prose(unit) or (_is_plain(unit) and "`" in unit.text)):
            self._drop("a text about it goes on below it")
        if matched.signs and self._error is not None and _is_dropped(matched.signs):
            self._lost += _outdo(list(matched.signs), "an error was said before it")
        elif matched.signs:
            # "Done." is an answer, an error is not.
            self._answered = all(s.reason is StopReason.COMPLETED for s in matched.signs)
            self._prompted = False
            self._is_plain_words = unit.voice is Voice.PLAIN
            advice = is_order(unit.text) or is_advice(unit.text)
            below = unit.line == self._below and not unit.log  # no blank line parts them
            self._signs, outdone = _newest(self._signs, matched.signs, advice=advice, below=below)
            self._below = unit.line + unit.text.count("\n") + 1
            self._lost += outdone
            self._error = None
        else:
            self._without_signs(unit, matched)

    def _without_signs(self, unit: Unit, matched: MatchedMessage) -> None:
        self._fill_in(unit)
        if self._left and _is_prose(unit):
            self._drop("the agent answered it")
            return
        if self._refused and _is_prose(unit):
            self._drop("the agent goes on without the permission")
            return
        if is_test(unit.text):
            self._drop("a test follows it")
            return
        if unit.voice is Voice.PLAIN and _WENT_WELL.search(unit.text):
            self._drop("it went well below it")
            return
        plans = unit.voice is Voice.PLAIN and not unit.log and _PLAN.match(unit.text)
        is_speech = unit.speaker and (
            len(unit.text) >= _SPEECH_CHARS
            or is_tool_call(unit.text)
            or (unit.voice is Voice.PLAIN and bool(_SENTENCE.match(unit.text)))
        )
        if plans or is_speech:
            self._drop("the agent goes on below it")
        elif (
            unit.voice is Voice.ERROR
            and all(s.outdone for s in matched.lost)
            and not (unit.log or _OF_A_TOOL.match(unit.text))
        ):
            self._error = unit
        elif unit.voice is Voice.MUTED and not is_stack(unit.text):
            self._error = None  # a file, not an ending
            if _SECTION.match(unit.text):
                self._drop("a document goes on below it")
            if is_code(unit.text) and self._weaker_than(Strength.SENTENCE):
                self._drop("code follows it")

    @property
    def _left(self) -> bool:
        """Whether the only evidence so far is that the user typed a word that ends a session."""
        return bool(self._signs) and all(s.evidence.rule in _TYPED for s in self._signs)

    @property
    def _refused(self) -> bool:
        """Whether the only evidence so far is that some client refused a permission."""
        return bool(self._signs) and all(s.evidence.rule in _REFUSED for s in self._signs)

    def _fill_in(self, unit: Unit) -> None:
        """Adds a limit's reset from a unit below it: "2. Wait: the limits reset on 03/01"."""
        if all(s.reset or s.reason is not StopReason.RATE_LIMIT for s in self._signs):
            return
        if not _RESETS.search(unit.text) or is_code(unit.text):
            return
        reset = self._reader.reset_in(unit.text)
        if reset is not None:
            limited = StopReason.RATE_LIMIT
            self._signs = [
                replace(s, reset=reset) if s.reason is limited else s for s in self._signs
            ]

    def finish(self, generic_errors: bool) -> TextVerdict:
        if self._foreign and self._weaker_than(Strength.CODE):
            self._drop("another service speaks here", keep_error=True)
        asks = self._ends and all(s.reason is StopReason.NEEDS_USER for s in self._signs)
        if self._is_plain_words and self._headings >= _DOCUMENT and not asks:
            self._drop("a document says it")
        if self._remedies >= _REMEDIES_IN_A_GUIDE:
            self._drop("a guide to errors, each with its solution")
        if self._view:
            self._drop("a view that the user asked for")
        if len(self._causes) >= _CAUSES_IN_A_LIST or len(self._statuses) >= _STATUSES_IN_A_TABLE:
            self._drop("a list of causes, not one of them")
        if not self._signs and self._error is not None and generic_errors:
            self._signs = [unexplained(self._error, f"{self._source}:{self._error.line}")]
        return TextVerdict(tuple(self._signs), tuple(self._lost), self._answered)

    def _hangs_below_retry(self, unit: Unit) -> bool:
        """Whether this is the cause of a retry, which clients show below its notice."""
        retry = self._retry
        if retry is None:
            return False
        below = retry.line + retry.text.count("\n") + 1
        again = is_client_error(unit.text) and is_client_error(retry.text)  # the next failure
        error = unit.voice is Voice.ERROR and not again
        if unit.line == below and error and has_tries_left(retry.text):
            return True
        if unit.indent <= retry.indent:
            return False
        hangs = unit.result and not (retry.result or is_client_error(unit.text))
        return hangs or bool(_RAISED.match(unit.text))

    def _note(self, unit: Unit, matched: MatchedMessage) -> None:
        self._view = self._view or matched.view
        self._foreign = self._foreign or matched.foreign
        self._lost += matched.lost
        self._statuses |= set(_STATUS_LEAD.findall(unit.text))
        self._statuses |= set(_CODE_LEAD.findall(unit.text))
        self._causes |= {
            s.reason
            for s in (*matched.signs, *matched.lost)
            if s.strength >= Strength.SENTENCE and not s.lost.startswith(SILENCED)
        }

    def _weaker_than(self, strength: Strength) -> bool:
        return all(sign.strength < strength for sign in self._signs)

    def _drop(self, why: str, *, keep_error: bool = False) -> None:
        self._lost += [replace(sign, lost=why) for sign in self._signs]
        self._signs = []
        if not keep_error:
            self._error = None


def _introduces(unit: Unit) -> bool:
    """Whether a sentence ends in a colon: what follows is shown, not said."""
    words = len(unit.text.split())
    if _ANSWERS.match(unit.text):
        return True
    if _TROUBLE.search(unit.text):
        return False
    is_sentence = unit.text[:1].isupper() and not any(sign in unit.text for sign in "{}[]=")
    return (
        is_sentence and _is_plain(unit) and unit.text.endswith(":") and words >= _INTRODUCING_WORDS
    )


def _is_reply(unit: Unit) -> bool:
    return unit.speaker or (not unit.result and len(unit.text.split()) >= _REPLY_WORDS)


def _is_prose(unit: Unit) -> bool:
    return _is_plain(unit) and unit.text[:1].isupper() and len(unit.text.split()) >= _PROSE_WORDS


def _is_plain(unit: Unit) -> bool:
    return unit.voice is Voice.PLAIN and not unit.log


def _newest(
    before: list[Sign], now: tuple[Sign, ...], *, advice: bool = False, below: bool = False
) -> tuple[list[Sign], list[Sign]]:
    """The last message counts. But a goodbye does not cancel the error before it, a code without a
    cause does not cancel one with a cause, and neither does advice, which is about that error, or
    a code right below a sentence, which is that sentence's."""
    strongest = max(s.strength for s in now)
    weak = (
        all(s.reason in (StopReason.USER_EXIT, StopReason.COMPLETED) for s in now)
        or (strongest < Strength.CODE and any(s.strength > strongest for s in before))
        or all(s.reason is StopReason.ERROR and s.strength < Strength.SENTENCE for s in now)
        or (below and strongest is Strength.CODE and any(s.strength > strongest for s in before))
        or (advice and all(is_family(s.evidence.rule) or s.strength < strongest for s in now))
    )
    known = any(s.reason is not StopReason.ERROR or s.strength >= Strength.SENTENCE for s in before)
    if before and ((weak and (known or _is_dropped(now))) or is_aftermath(now, before)):
        return before, _outdo(list(now), "an error was said before it")
    if {s.reason for s in now} == {s.reason for s in before}:
        return [*now, *before], []  # the same again, in other words
    return list(now), _outdo(before, "something newer was said")


def _without_dropped(matched: MatchedMessage) -> MatchedMessage:
    """The message without the notice that the turn was taken back, if it says why."""
    why = tuple(s for s in matched.signs if not _is_dropped((s,)))
    if not why or len(why) == len(matched.signs):
        return matched
    dropped = [s for s in matched.signs if s not in why]
    return replace(matched, signs=why, lost=(*matched.lost, *_outdo(dropped, "the error says why")))


def _is_dropped(now: tuple[Sign, ...]) -> bool:
    return all(s.evidence.rule == _DROPPED and s.evidence.quote[:1] != "^" for s in now)


def _outdo(signs: list[Sign], why: str) -> list[Sign]:
    return [replace(sign, lost=why, outdone=True) for sign in signs]
