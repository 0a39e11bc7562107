"""Takes a session's events as they happen, and can say at any moment what was known.

All in one file, because everything that is kept shares one budget.
"""

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice
from math import log2
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from segue.core.handoffs.digest import tools
from segue.core.handoffs.digest.excerpts import (
    LINE_CHARS,
    NOTHING,
    SHORT_CHARS,
    Excerpt,
    clean,
    cut_line,
    lines_of,
    names_fault,
    only_looks,
    shorten,
)
from segue.core.handoffs.digest.forms import UsualForms, without_digits
from segue.core.handoffs.digest.sentences import Sentence, sentences
from segue.core.handoffs.digest.shapes import (
    ROW_NUMBERS,
    Frequencies,
    named_value,
    number_words,
    rarity,
    shape_of,
)
from segue.core.handoffs.digest.types import (
    CommandResult,
    Digest,
    FileTouched,
    Statement,
    UserPrompt,
)
from segue.core.handoffs.digest.words import swaps
from segue.core.handoffs.quoting import is_automatic
from segue.core.secrets.redact import MARK, redact, redact_blocks
from segue.core.sessions.remarks import Todo
from segue.core.stops.events import Compaction, Event, Prompt, Reply, TodoList, ToolCall, ToolResult

_WAITING, _WAITING_CHARS = 128, 512 << 10  # events; the output of all of them
_PROMPT_CHARS = 6_000
_PROMPTS_FIRST, _PROMPTS_LAST = 20, 400
_LAST_WORDS_CHARS = 6_000
_CALL_CHARS = 400
_OPEN_CALLS = 500
_SAID_CHARS = 64 << 10  # of replies that are not judged yet
_STATEMENTS = 1_200  # above this, the less important half is dropped
_REMARKS = 600  # above this, similar ones are dropped, then the oldest
_OUTCOMES = 3_000
_HELD_CHARS = 1_200_000  # of all output together
_FILES = 1_500
_IMAGES = 50
_TODOS = 200
_NAMES = 4_000  # names that have a value
_MENTIONS = 6_000
_REFERRED = 6  # things that one reply may refer to
_NAMED, _NAMED_CHARS = 20, 4_000  # of those that it names
_USUAL = 64  # rows of the same form in a session; one more says nothing
_FEW_LINES = 3  # of a short answer
_TEXTS = 6  # long outputs that a reply may refer to
_ENDS_CHARS = 2_000  # of a long text, which show whether it is the same again
_ENCODED = -1  # a checksum that no text has: which data it was does not matter

_CHECKPOINT = re.compile(r"(?i)</?checkpoint>")
_STOPPED = re.compile(
    r"(?i)interrupted|aborted|cancell?ed|doesn't want to proceed|was rejected|no result provided"
)
_CORRECTS = re.compile(
    r"(?i)\s*(?:no\b|nope|wait|stop|actually|instead|don'?t|do not|never|not\b|rather|sorry|i meant"
    r"|correction|change of plan|forget|ignore|scrap|undo|revert|that'?s (?:wrong|not))"
    r"|.{0,200}\b(?:instead of|not .{1,40} but|rather than|from now on|no longer|do not touch"
    r"|don'?t touch|leave .{1,40} alone)\b"
)
_EDGES = swaps("\"'`,;:()[]", " ")
_DIGITS = b"0123456789"
_MAY_NAME = re.compile(r"[`\"\d]")
_SPECIFIC = re.compile(r"`([^`\n]{3,60})`|\"([^\"\n]{3,60})\"|\b([A-Za-z_.-]*\d[\w.-]{2,})\b")


class _Call(Struct, gc=False):
    text: str
    looks: bool
    by_agent: bool


class _Line(Struct, gc=False):
    text: str
    shape: int  # as `Frequencies` numbers it
    name: str  # the thing that it gives a value; "" if none
    value: str
    worth: float  # on its own, whatever else was printed


class _Outcome(Struct, gc=False):
    call: str
    place: int
    kept: Excerpt  # until it is cut into lines
    exit_code: int | None
    failed: bool
    times: int
    looks: bool
    by_agent: bool
    since: int  # where it first printed the same; repeated output is not news
    printed: int  # a checksum of the whole
    varies: bool  # it has printed something else before, so it shows the current state
    lines: Sequence[_Line] = ()
    referred: tuple[str, ...] = ()  # lines that a reply mentioned


class _Value(Struct, gc=False):
    text: str  # the line that states it
    value: str
    place: int
    earlier: str = ""


class Builder:
    """The digest of one session, or of several in a row. Never raises because of what is in the
    events, and takes a few megabytes at most. `told` is what segue itself said, including the task,
    which is not news."""

    def __init__(self, told: Collection[str] = ()) -> None:
        self._told = {_flat(text) for text in told}
        self._waiting: list[Event] = []
        self._waiting_chars = 0
        self._place = 0
        self._prompts: dict[str, UserPrompt] = {}  # by their text, on one line
        self._asked = 0  # number of the user's prompts so far
        self._last: dict[str, int] = {}  # replies and their lengths
        self._last_chars = 0
        self._said: dict[str, int] = {}  # not judged yet, with the place where each was last said
        self._said_chars = 0
        self._statements: dict[str, Statement] = {}
        self._remarks: dict[str, Statement] = {}
        self._values: dict[str, _Value] = {}
        self._open: dict[str, _Call] = {}
        self._outcomes: dict[str, _Outcome] = {}
        self._held_chars = 0
        self._commands: deque[str] = deque(maxlen=_OPEN_CALLS)
        self._tools: dict[str, tools.Tool] = {}
        self._texts: list[tuple[_Outcome, str]] = []  # long outputs that no reply has followed yet
        self._files: dict[str, list[Any]] = {}  # reads, writes, last change
        self._todos: dict[str, Todo] = {}
        self._images: dict[str, None] = {}
        self._mentions: dict[str, None] = {}
        self._usual = UsualForms()
        self._shapes = Frequencies()  # of printed lines
        self._forms = Frequencies()  # of sentences
        self._compactions = 0
        self._take: dict[type[Event], Callable[[Any], None]] = {
            Prompt: self._prompt,
            Reply: self._reply,
            ToolCall: self._call,
            ToolResult: self._result,
            Compaction: self._compaction,
            TodoList: self._listed,
        }

    def tell(self, text: str) -> None:
        """Adds a text that counts as segue's own words from now on."""
        self._catch_up()
        self._told.add(_flat(text))

    def feed(self, event: Event) -> None:
        """Takes the next event of the session."""
        if type(event) in self._take:
            self._waiting.append(event)
            if type(event) is ToolResult:
                self._waiting_chars += len(event.printed)
            if len(self._waiting) >= _WAITING or self._waiting_chars > _WAITING_CHARS:
                self._catch_up()

    def _catch_up(self) -> None:
        """Takes in the events that wait. Several at once cost less, because the processor then has
        this code at hand, and not that of the parser."""
        for event in self._waiting:
            self._place += 1
            self._take[type(event)](event)
        self._waiting.clear()
        self._waiting_chars = 0

    # Events

    def _prompt(self, event: Prompt) -> None:
        for name in event.images:
            if len(self._images) < _IMAGES:
                self._images[name] = None
        self._texts.clear()
        text = event.text.strip()
        if not text:
            return
        self._asked += 1
        flat = _flat(text)
        if is_automatic(text) or self._is_told(flat):
            return
        self._prompts.pop(flat, None)  # repeated: only the last time counts
        self._prompts[flat] = UserPrompt(
            number=self._asked,
            text=_cut_middle(text),
            is_correction=bool(self._prompts or self._asked > 1) and _corrects(text),
        )
        if len(self._prompts) > _PROMPTS_FIRST + _PROMPTS_LAST:
            del self._prompts[list(self._prompts)[_PROMPTS_FIRST]]

    def _is_told(self, flat: str) -> bool:
        return flat in self._told or any(flat and text.startswith(flat) for text in self._told)

    def _reply(self, event: Reply) -> None:
        text = redact_blocks(event.text)
        if not text or ("<" in text and _CHECKPOINT.search(text)):
            return  # the answer to a request is stored as the agent's own summary
        if self._last.pop(text, 0):
            self._last_chars -= len(text)
        self._last[text] = len(text)
        self._last_chars += len(text)
        while self._last_chars - self._last[first := next(iter(self._last))] > _LAST_WORDS_CHARS:
            self._last_chars -= self._last.pop(first)
        if self._texts:
            self._refer(_named_in(text))
        if self._said.pop(text, None) is None:
            self._said_chars += len(text)
        self._said[text] = self._place
        if self._said_chars > _SAID_CHARS:
            self._judge()

    def _call(self, event: ToolCall) -> None:
        kind = self._tools.get(event.name) or self._tool(event.name)
        label = event.command or f"{event.name} {event.argument}".strip()
        if len(label) > _CALL_CHARS:
            label = redact(label)[
                0
            ]  # before cutting it, because half a secret is hard to recognise
        is_command = bool(event.command)
        looks = only_looks(event.command) if is_command else kind.looks
        if len(self._open) >= _OPEN_CALLS:
            self._open.pop(next(iter(self._open)))
        self._open[event.call_id] = _Call(label[:_CALL_CHARS], looks, kind.works)
        if event.files:
            change = tools.change_of(event.given)
            for path in event.files:
                self._touch(path, 1, change)
        elif kind.reads and (path := tools.path_in(event.given)):
            self._touch(path, 0, "")
        if is_command:
            self._commands.append(label[:_CALL_CHARS])
        if kind.asks:
            self._ask(event.given)

    def _result(self, event: ToolResult) -> None:
        call = self._open.pop(event.call_id, None)
        if call is None:
            return
        failed = event.failed or event.denied
        text = event.printed
        if failed and event.exit_code is None and _STOPPED.search(text[:300]):
            return  # its outcome is unknown, which is reported separately
        is_long = len(text) > SHORT_CHARS
        before = self._outcomes.pop(call.text, None)
        if call.looks and is_long and not failed:
            for path in tools.files_shown(call.text):
                self._touch(path, 0, "")
            return  # it can be shown again
        excerpt = shorten(text, failed=failed, is_report=call.by_agent, usual=self._usual)
        printed = _checksum(text, excerpt) if is_long else hash(text)
        is_same = before is not None and before.printed == printed
        varies = before is not None and (before.varies or not is_same)
        outcome = _Outcome(
            call.text,
            self._place,
            excerpt,
            event.exit_code,
            failed,
            1 if before is None else before.times + 1,
            call.looks,
            call.by_agent,
            before.since if before is not None and not varies else self._place,
            printed,
            varies,
        )
        self._outcomes[call.text] = outcome
        if is_long and not call.looks and excerpt is not NOTHING:
            self._texts = [*self._texts[1 - _TEXTS :], (outcome, text)]
        self._held_chars += excerpt.chars
        if len(self._outcomes) > _OUTCOMES or self._held_chars > _HELD_CHARS:
            self._forget_outcomes()

    def _listed(self, event: TodoList) -> None:
        """Takes a todo list: a complete one replaces the previous list, single items change it."""
        if len({todo.text for todo in event.todos}) > 1:
            self._todos = {}
        for todo in event.todos[:_TODOS]:
            if len(self._todos) < _TODOS or todo.text in self._todos:
                self._todos[todo.text] = todo

    def _compaction(self, event: Compaction) -> None:
        self._compactions += event.phase == "done"

    # Evaluation

    def _touch(self, path: str, writes: int, change: str) -> None:
        known = self._files.pop(path, None) or [0, 0, ""]
        known[0] += not writes
        known[1] += writes
        known[2] = change or known[2]
        self._files[path] = known
        if len(self._files) > _FILES:
            unwritten = (path for path, entry in self._files.items() if not entry[1])
            del self._files[next(unwritten, next(iter(self._files)))]

    def _ask(self, given: Any) -> None:
        texts = questions_in(given)
        if texts:
            self._keep(Sentence("question", " / ".join(texts)[:500], 5.0), self._place)

    def _tool(self, name: str) -> tools.Tool:
        """What is known about a tool, cached for the next call."""
        if len(self._tools) > _OPEN_CALLS:
            self._tools.clear()
        found = self._tools[name] = tools.tool(name)
        return found

    def _refer(self, things: list[str]) -> None:
        """Keeps the lines of long outputs that state the things which a reply names."""
        for thing in things[:_REFERRED]:
            form = without_digits(thing.encode("utf-8", "replace"))
            for outcome, printed in self._texts:
                forms = outcome.kept.forms
                if (not forms or form in forms) and thing in printed:
                    _add_line(outcome, printed, thing)
        self._texts = []

    def _mention(self, things: Iterable[str]) -> None:
        """Records that later words or commands name these things, so what stated them matters."""
        for thing in things:
            self._mentions[thing.lower()] = None
        if len(self._mentions) > _MENTIONS:
            for thing in list(self._mentions)[: _MENTIONS // 2]:
                del self._mentions[thing]

    def _judge(self) -> None:
        """Extracts what matters from the replies so far."""
        for text, place in self._said.items():
            self._mention(_named_in(text))
            for statement in sentences(text):
                if statement.kind == "remark":
                    form = self._forms.add(_form(statement.text).translate(None, _DIGITS))
                    self._remarks[statement.text] = Statement(
                        kind="remark",
                        text=statement.text,
                        place=place,
                        score=statement.score,
                        form=form,
                    )
                else:
                    self._keep(statement, place)
        self._said, self._said_chars = {}, 0
        if len(self._remarks) > _REMARKS:
            rare = [each for each in self._remarks.values() if self._is_rare(each)]
            self._remarks = {each.text: each for each in rare[-_REMARKS // 2 :]}

    def _is_rare(self, remark: Statement) -> bool:
        return self._forms.of(remark.form) <= 1

    def _keep(self, said: Sentence, place: int) -> None:
        key = _flat(said.text.lower())
        before = self._statements.pop(key, None)
        score, earlier = said.score, ""
        if said.value is not None:
            known = self._give(*said.value, said.text, place)
            if known.earlier and before is None:
                self._statements.pop(_flat(known.earlier.lower()), None)
                score, earlier = score + 1.0, known.earlier
        self._statements[key] = Statement(
            kind=said.kind,
            text=said.text,
            place=place,
            score=score,
            earlier=earlier,
            form=self._forms.add(_form(said.text)),
        )
        if len(self._statements) > _STATEMENTS:
            self._forget_statements()

    def _give(self, name: str, value: str, line: str, place: int) -> _Value:
        """Records the value of a thing. The newest value counts, and the one before it is reported
        with it."""
        before = self._values.get(name)
        if before is not None and place < before.place and value != before.value:
            return _Value(line, value, place)  # known to have changed since
        earlier = ""
        if before is not None:
            del self._values[name]
            earlier = before.text if before.value != value else before.earlier
        found = _Value(line, value, place, earlier)
        self._values[name] = found
        if len(self._values) > _NAMES:
            for old in list(self._values)[: _NAMES // 2]:
                del self._values[old]
        return found

    def _forget_statements(self) -> None:
        remaining = sorted(
            self._statements.items(), key=lambda item: self._worth(item[1]), reverse=True
        )[: _STATEMENTS // 2]
        self._statements = dict(sorted(remaining, key=lambda item: item[1].place))

    def _worth(self, statement: Statement) -> float:
        """The importance of a statement. What is said over and over about different things is a
        habit, not news."""
        often = log2(self._forms.of(statement.form) or 1)
        return statement.score - min(often, 3.0) + statement.place / (self._place or 1)

    def _forget_outcomes(self) -> None:
        self._count_lines()
        ranked = sorted(
            self._outcomes.items(),
            key=lambda item: max(self._scores(item[1]), default=0.0),
            reverse=True,
        )[: len(self._outcomes) // 2]
        self._outcomes = dict(sorted(ranked, key=lambda item: item[1].place))
        self._held_chars = sum(len(o.text) for _, outcome in ranked for o in outcome.lines)

    def _count_lines(self) -> None:
        for command in self._commands:
            words = [word.strip("\"'`,;()") for word in command.split()]
            self._mention([word for word in words if len(word) > 3 and word[0] != "-"])
        self._commands.clear()
        for outcome in self._outcomes.values():
            if outcome.kept is not NOTHING:
                self._cut(outcome, outcome.kept)
                outcome.kept = NOTHING

    def _cut(self, outcome: _Outcome, excerpt: Excerpt) -> None:
        """Cuts an output into lines. Odd lines are odd within their output, whatever is printed
        elsewhere."""
        head = lines_of(excerpt.head) if excerpt.head else []
        if not (excerpt.odd or excerpt.tail or outcome.referred) and len(head) <= _FEW_LINES:
            outcome.lines = [self._line(text, outcome, is_odd=False) for text in head]
            return
        odd = lines_of("\n".join(excerpt.odd)) if excerpt.odd else ()
        tail = lines_of(excerpt.tail) if excerpt.tail else ()
        texts = head[:_FEW_LINES] if outcome.looks else (*head, *odd, *tail)
        lines = [
            self._line(text, outcome, is_odd=text in odd)
            for text in dict.fromkeys((*texts, *outcome.referred))
        ]
        if len(lines) < 2:
            outcome.lines = lines
            return
        if len(lines) > _FEW_LINES and not outcome.looks:
            for line in (lines[0], lines[-1]):  # what is done, and how it went
                line.worth += 0.7 if line.worth else 0.0
        outcome.lines = [line for line in lines[:-1] if line.worth] + lines[-1:]

    def _line(self, text: str, outcome: _Outcome, *, is_odd: bool) -> _Line:
        """A line of an output, worth nothing if it is a row like very many others. Rows give no
        names. A line that is odd in its output does not become a row because of the numbers in its
        time stamp or in an address."""
        is_no_row = is_odd and number_words(text) < ROW_NUMBERS
        shape, numbers = shape_of(text, is_row=False if is_no_row else None)
        form = self._shapes.add(shape)
        if not is_no_row and numbers >= ROW_NUMBERS and self._shapes.of(form) > _USUAL:
            is_fault = outcome.failed or names_fault(text)
            return _Line(text, form, "", "", 1.8 if is_fault else 0.0)
        name, value = named_value(text) or ("", "")
        if name and not outcome.looks:
            self._give(name, value, text, outcome.since)
        worth = (0.8 if numbers else 0.5) + is_odd
        if outcome.failed or names_fault(text):
            worth += 1.0
        return _Line(text, form, name, value, worth)

    def _scores(self, outcome: _Outcome) -> list[float]:
        """How much each line says: rare lines say most; lines whose value has changed since, less;
        a short answer counts as an answer."""
        if not outcome.lines:
            return []
        recent = 0.5 * outcome.place / (self._place or 1)
        rare = 5.0 if len(outcome.lines) <= _FEW_LINES else 4.0
        scores = []
        for line in outcome.lines:
            score = line.worth + recent + rare * rarity(self._shapes.of(line.shape))
            if line.name:
                known = self._values.get(line.name)
                score += -1.0 if known is not None and known.value != line.value else 1.5
            scores.append(0.3 * score if outcome.looks else score)
        return scores

    def _order(self, outcome: _Outcome) -> int:
        """The place of an output. If a value that it printed again has changed in between, its
        first place, so that the latest value comes last."""
        for line in outcome.lines:
            if line.name:
                value = self._values.get(line.name)
                if value is not None and value.place > outcome.since:
                    return outcome.since
        return outcome.place

    def _mentioned(self, line: _Line, outcome: _Outcome) -> float:
        """How much a line was used: whether later words or commands name what it says and its own
        call did not."""
        words = line.text.lower().translate(_EDGES).split()
        if self._mentions.keys().isdisjoint(words):
            return 0.0  # the usual case
        call = outcome.call.lower()
        return float(any(word in self._mentions and word not in call for word in words))

    def _told_line(self, line: _Line, values: dict[str, str]) -> str:
        """The line, with the current value of the thing if another line gave it a new one. `values`
        are those that were told before, by the lines that state them."""
        known = self._values.get(line.name)
        if known is None or known.value == line.value or known.value in line.text:
            return line.text
        if known.text not in values:
            is_secret = redact(known.text)[1] > 0  # which the value alone does not show
            values[known.text] = MARK if is_secret else known.value
        return f"{line.text} (later: {values[known.text]})"

    def digest(self) -> Digest:
        """What is known now. More events may follow."""
        self._catch_up()
        self._judge()
        self._count_lines()
        failures: list[CommandResult] = []
        results: list[CommandResult] = []
        values: dict[str, str] = {}
        for outcome in sorted(self._outcomes.values(), key=self._order):
            scores = self._scores(outcome)
            for place, line in enumerate(outcome.lines):
                scores[place] = round(scores[place] + self._mentioned(line, outcome), 2)
            result = CommandResult(
                call=outcome.call,
                place=outcome.place,
                lines=tuple(
                    [
                        self._told_line(line, values) if line.name else line.text
                        for line in outcome.lines
                    ]
                ),
                scores=tuple(scores),
                exit_code=outcome.exit_code,
                failed=outcome.failed,
                times=outcome.times,
                by_agent=outcome.by_agent,
            )
            (failures if outcome.failed else results).append(result)
        return Digest(
            prompts=tuple(self._prompts.values()),
            last_words=_end(redact(clean("\n\n".join(self._last)).strip())[0], _LAST_WORDS_CHARS),
            statements=tuple(
                replace(statement, score=round(self._worth(statement), 2))
                for statement in sorted(self._statements.values(), key=lambda s: s.place)
            ),
            remarks=tuple(filter(self._is_rare, self._remarks.values())),
            failures=tuple(failures),
            results=tuple(results),
            todos=tuple(self._todos.values()),
            files=tuple(
                FileTouched(path=path, reads=reads, writes=writes, change=change)
                for path, (reads, writes, change) in self._files.items()
            ),
            images=tuple(self._images),
            compactions=self._compactions,
        )


def _checksum(text: str, excerpt: Excerpt) -> int:
    """Of a long text: its length, its ends, and what is kept of the rest."""
    if excerpt is NOTHING:
        return _ENCODED
    return hash((len(text), text[:_ENDS_CHARS], excerpt.odd, text[-_ENDS_CHARS:]))


def _form(text: str) -> bytes:
    """A sentence without what it names."""
    bare = text if _MAY_NAME.search(text) is None else _SPECIFIC.sub("·", text)
    return bare[:120].encode("utf-8", "replace")


def _named_in(text: str) -> list[str]:
    """The things that a text names: quoted, or containing a number."""
    if _MAY_NAME.search(text, 0, _NAMED_CHARS) is None:
        return []  # as in most remarks
    found = islice(_SPECIFIC.finditer(text, 0, _NAMED_CHARS), _NAMED)
    return [match[match.lastindex or 0] for match in found]


def _corrects(text: str) -> bool:
    return _CORRECTS.match(text) is not None


def _add_line(outcome: _Outcome, printed: str, thing: str) -> None:
    """Adds the first line that names a thing, unless it is part of a secret."""
    printed = redact_blocks(printed)
    place = printed.find(thing)
    if place < 0:
        return
    start = printed.rfind("\n", 0, place) + 1
    end = printed.find("\n", place)
    line = " ".join(clean(printed[start : end if end >= 0 else None][:2_000]).split())
    line = line if len(line) <= LINE_CHARS else cut_line(line, LINE_CHARS)
    if line and line not in outcome.referred:
        outcome.referred = (*outcome.referred, line)


def questions_in(given: Any, depth: int = 4) -> list[str]:
    """The questions in a call that asks the user."""
    if isinstance(given, dict):
        own = given.get("question")
        found = [own] if isinstance(own, str) else []
        inner = list(given.values())
    elif isinstance(given, list):
        found, inner = [], given
    else:
        return []
    if depth:
        for value in inner:
            found += questions_in(value, depth - 1)
    return found[:6]


def _flat(text: str) -> str:
    return " ".join(text.split())


def _end(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else "…" + text[1 - max_chars :]


def _cut_middle(text: str) -> str:
    """The beginning and the end of a long prompt, and the parts of the rest that stand out."""
    if len(text) <= _PROMPT_CHARS:
        return text
    half = _PROMPT_CHARS // 2
    odd = lines_of("\n".join(shorten(text[half:-half]).odd))
    middle = "\n".join([f"[… {len(text) - 2 * half:,} characters left out …]", *odd])
    return f"{text[:half]}\n{middle}\n{text[-half:]}"
