"""Who speaks? Plain output is cut into units, and each unit gets a voice.

Terminal output mixes the agent's own words with prompts, tool results, files, diffs and prose.
A stop message counts only where the agent itself speaks as an error, so before any wording is
looked for, each line is cleaned (colours, boxes, bullets), lines that belong together are joined
into units, and code, diffs, lists, tables and tool results are muted. What remains is:

- ERROR: the unit opens like an error ("API Error: …", "✕ …", "openai.BadRequestError: …", a log
  line of that level, an error body): a phrase anywhere inside it counts;
- PLAIN: anything else that speaks: only a sentence that opens a line counts;
- PROMPT: what the user typed: only the words that end a session count;
- RUNNING: the agent shows that it is still at work: nothing before it is an ending;
- MUTED: never counts.
"""

from msgspec import Struct
from msgspec.structs import replace

from segue.core.stops.plain import samples, voice
from segue.core.stops.plain.unwrap import Line, is_html, unescape, untagged
from segue.core.stops.plain.voice import Voice


class Unit(Struct, frozen=True):
    """Lines that belong together, cleaned and joined by newlines; `line` is the number of the first
    one."""

    text: str
    voice: Voice
    line: int
    under_tool: bool = False  # below a tool call: muted, but an interrupt shows here too
    speaker: bool = False  # starts with the bullet of the model's own words
    log: bool = False  # a stamped log line
    prefix: str = ""  # what the logger put before it
    result: bool = False  # belongs to the unit above it
    indent: int = 0
    wrapped: bool = False  # broken at a line width, possibly inside a word
    item: bool = False  # starts with the bullet of a list, or a tick


def units(lines: list[Line], *, errors_only: bool = False, logs: bool = True) -> list[Unit]:
    """Cuts unwrapped lines into units with voices.

    `errors_only`: the channel carries only errors (the body of a failed request), so any message is
    an error. `logs`: whether a log line can be the agent's own here; in a conversation it is a
    tool's output.
    """
    maker = _Maker(errors_only, logs)
    for line in _without_tables(lines):
        maker.take(line)
    return maker.finish()


_ENTRIES = 3


def _without_tables(lines: list[Line]) -> list[Line]:
    """The lines; those of a table of messages (so many keys with a text each) are its rows."""
    marked = list(lines)
    start = 0
    while start < len(marked):
        end = start
        while end < len(marked) and (marked[end].column or samples.is_entry(marked[end].text)):
            end += 1
        if end - start >= _ENTRIES:
            marked[start:end] = [replace(line, row=True) for line in marked[start:end]]
        start = max(end, start + 1)
    return marked


class _Maker:
    """Collects lines until the next one belongs to another unit."""

    def __init__(self, errors_only: bool, logs: bool) -> None:
        self._errors_only = errors_only
        self._logs = logs
        self._log = False
        self._prefix = ""
        self._in_page = False  # inside a gateway's page that is the body of an error
        self._parted = False  # a blank line inside a page
        self._in_tags = False  # the last line had some; a blank line after other text ends a page
        self._item_indent: int | None = None  # indentation of the open list item
        self._frame = False  # the line above is a frame of a Python stack trace
        self._in_sample = False  # below a comment, as far as a body goes
        self._in_code = False
        self._in_diff = False
        self._in_fence = False
        self._heredoc = ""  # the word that ends the one above
        self._in_result = False  # inside a tool's result, until a blank line
        self._indent = 0
        self._results = 0  # results below the tool call above
        self._result = False
        self._units: list[Unit] = []
        self._lines: list[str] = []
        self._wrapped = False
        self._start = 1
        self._voice = Voice.PLAIN
        self._under_tool = False
        self._tool_open = False
        self._speaker = False
        self._item = False

    def finish(self) -> list[Unit]:
        self._flush()
        return self._units

    def take(self, line: Line) -> None:
        text = line.text
        if text:
            self._in_tags = is_html(text)
        if is_html(text) and (self._in_page or self._errors_only or self._awaits_page):
            self._in_page = "</html" not in text.lower()
            text = untagged(text)
            if text and self._lines and not voice.is_result(voice.split_mark(text)[0]):
                self._lines.append(text)
                return
            if not text:
                return
        if line.row:
            self._flush()
            self._units.append(Unit(text, Voice.MUTED, line.number, indent=line.indent))
            return
        if not text:
            if not self._in_page or not self._in_tags:
                self._flush()
                self._in_page = False
                self._in_code = self._in_result = False
                self._item_indent = None
            self._parted = self._in_page
            return
        if self._parted and not is_html(text) and text[:1].isupper():
            self._flush()  # a page that was cut off, and then somebody speaks
            self._in_page = False
        self._parted = False
        mark, words = voice.split_mark(text)
        if mark and not words:
            self._flush()
            return
        if self._quoted(mark, words):
            self._flush()
            return
        if self._frame and not mark and (voice.is_code(words) or line.indent):
            self._frame = voice.is_stack(words)
            return  # the code of a frame, which is not a message
        if samples.is_closing(words) and self._lines and voice.is_body(self._lines[-1]):
            self._lines = []  # the argument of a call
            self._in_sample = True
            return
        if samples.heads_result(words) and not self._errors_only:
            self._flush()
            self._in_result = True
            return
        self._in_sample = samples.is_comment(words) or (self._in_sample and voice.is_body(words))
        if self._in_sample:
            self._flush()
            self._units.append(Unit(words, Voice.MUTED, line.number, indent=line.indent))
            return
        self._frame = voice.is_frame(words)
        self._wrapped = self._wrapped or (line.goes_on and bool(self._lines))
        if line.goes_on and self._speaks_as_error and not mark:
            self._lines.append(words)
            return
        in_code = self._in_code and not self._errors_only
        whose = voice.voice_of(mark, words, logs=self._logs, in_code=in_code, prefix=line.prefix)
        if not mark and (self._in_result or self._in_item(line)):
            whose = Voice.MUTED
        if self._lines and voice.is_source(words) and voice.is_body(self._lines[-1]):
            self._lines = []  # fields of the same piece of source code
        if whose is Voice.MUTED and voice.is_item(words) and not line.prefix:
            self._item_indent = line.indent
        if whose is not Voice.MUTED or voice.opens_code(words):
            self._in_code = whose is Voice.MUTED
        if self._lines and not mark and self._belongs(words, whose, line.prefix):
            if not voice.is_stack(words):
                self._lines.append(words)
            return
        self._flush()
        self._in_page = False
        self._indent, self._prefix = line.indent, line.prefix
        self._log = bool(line.prefix) or voice.is_log(words)
        self._begin(words, whose, line.number, mark)

    @property
    def _reported(self) -> bool:
        """Whether the client itself announced the content of the fence below."""
        last = self._units[-1] if self._units and not self._lines else None
        return last is not None and voice.announces_report(last.text)

    def _in_item(self, line: Line) -> bool:
        """Whether a line continues the list item above it."""
        if self._item_indent is None or line.prefix or line.indent <= self._item_indent:
            self._item_indent = None
            return False
        return True

    @property
    def _awaits_page(self) -> bool:
        """Whether a gateway's page may follow here, as the response that an error mentions."""
        if self._speaks_as_error:
            return True
        if not self._lines or not voice.names_answer(self._lines[-1]):
            return False
        self._voice = Voice.ERROR
        return True

    @property
    def _speaks_as_error(self) -> bool:
        return bool(self._lines) and self._voice is Voice.ERROR

    def _quoted(self, mark: str, words: str) -> bool:
        """Whether this is inside a fence or a patch, where text is shown, not said."""
        if self._errors_only:
            return voice.is_fence(words)  # the fence of a report around the error
        if self._heredoc:
            self._heredoc = "" if words == self._heredoc else self._heredoc
            return True
        if opened := samples.heredoc(words):
            self._heredoc = opened
            return True
        if voice.is_fence(words):
            reported = self._reported and not self._in_fence
            self._in_fence = not (self._in_fence or reported)
            return not reported
        self._in_diff = voice.opens_diff(words) or (self._in_diff and not mark)
        return self._in_fence or self._in_diff

    def _belongs(self, words: str, whose: Voice, prefix: str) -> bool:
        if prefix != self._prefix if prefix else voice.is_log(words):
            return False
        if whose is Voice.PLAIN:
            return True
        if self._voice is Voice.PLAIN:
            open_quote = sum(line.count('"') for line in self._lines) % 2
            rest = voice.wraps(self._lines[-1]) and words[:1].islower()
            if open_quote or (rest and not voice.is_raised(words)):
                return True
        return self._voice is Voice.ERROR and voice.continues_error(words)

    def _begin(self, words: str, whose: Voice, number: int, mark: str) -> None:
        self._result = result = voice.is_result(mark)
        self._speaker = voice.is_speaker(mark)
        self._item = voice.is_tick(mark)
        if mark and not result:
            self._tool_open, self._results = self._speaker and voice.is_tool_call(words), 0
        self._results += result
        # The first thing below a call is its result; an error of the client may follow.
        own = self._results > 1 and voice.is_client_error(words)
        self._under_tool = result and self._tool_open and not own
        self._in_result = self._under_tool or (self._in_result and not mark)
        if self._under_tool:
            whose = Voice.MUTED
        if whose in (Voice.MUTED, Voice.PROMPT, Voice.RUNNING):
            self._units.append(
                Unit(
                    words,
                    whose,
                    number,
                    under_tool=self._under_tool,
                    speaker=self._speaker,
                    indent=self._indent,
                )
            )
            return
        self._lines, self._start, self._voice = [words], number, whose

    def _flush(self) -> None:
        if self._lines:
            whose = Voice.ERROR if self._errors_only else self._voice
            joined = unescape("\n".join(self._lines))
            self._units.append(
                Unit(
                    joined,
                    whose,
                    self._start,
                    speaker=self._speaker,
                    log=self._log,
                    prefix=self._prefix,
                    result=self._result,
                    indent=self._indent,
                    wrapped=self._wrapped,
                    item=self._item,
                )
            )
        self._lines, self._wrapped = [], False
