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

import re

from msgspec import Struct

from segue.core import voice
from segue.core.voice import Voice

MAX_LINE_CHARS = 16_384  # no client prints a longer message; what lies beyond is never matched


class Unit(Struct, frozen=True):
    """Lines that belong together, cleaned, joined by newlines; `line` is the first one's number."""

    text: str
    voice: Voice
    line: int
    under_tool: bool = False  # stands below a tool call: muted, but an interrupt shows here too
    speaker: bool = False  # opens with the bullet under which the model itself speaks
    log: bool = False  # a stamped log line
    result: bool = False  # hangs below another unit
    indent: int = 0


_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
_CONTROL = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u200b-\u200f\u2060\ufeff\ufe0f\ud800-\udfff]"
)
_EDGE = " \t\n\u00a0\u3000" + "".join(map(chr, range(0x2500, 0x25A0)))  # blanks, and boxes
_COLUMN = re.compile(r"\s[│┃║].*$")
_SPACES = re.compile(r"[ \t\u00a0\u2000-\u200a\u202f\u3000]+")
_PLAIN_MARKS = str.maketrans("‘’ʼ“”‑：，。（）！", "'''\"\"-:,.()!")


def clean(raw: str) -> str:
    """One line without colours, control characters, boxes and other panes."""
    line = _CONTROL.sub("", _ANSI.sub("", raw[:MAX_LINE_CHARS])).translate(_PLAIN_MARKS)
    if "│" in line or "┃" in line or "║" in line:
        line = _COLUMN.sub("", line.strip(_EDGE))
    head = line.lstrip()[:1]
    line = line.strip(_EDGE)
    if head in "└╰" and line and head:
        line = f"{head} {line}"
    return _SPACES.sub(" ", line).strip()


def unescape(text: str) -> str:
    """Undoes the escapes of a JSON text inside a string, at any depth, as far as words need it."""
    if "\\" not in text:
        return text
    for _ in range(3):
        text = text.replace("\\\\", "\\")
    text = re.sub(r"\\u00([0-7][0-9a-fA-F])", lambda m: chr(int(m[1], 16)), text)
    return text.replace("\\n", " ").replace("\\t", " ").replace('\\"', '"').replace("\\'", "'")


def units(
    lines: list[str], *, errors_only: bool = False, logs: bool = True, first_line: int = 1
) -> list[Unit]:
    """Cuts raw lines into units with voices.

    `errors_only`: the channel carries nothing but errors (a failed request's body), so what
    speaks at all speaks as an error. `logs`: whether a log line here can be the agent's own; in a
    conversation it is some tool's output.
    """
    maker = _Maker(errors_only, logs)
    lines = _unquoted(lines)
    for offset, raw in enumerate(lines):
        indent = len(raw) - len(raw.lstrip(" "))
        maker.take(clean(raw), first_line + offset, indent)
    return maker.done()


def _unquoted(lines: list[str]) -> list[str]:
    """Without the quote marks of a mail or an issue, where every line has one."""
    spoken = [line for line in lines if line.strip()]
    if len(spoken) > 1 and all(line.lstrip().startswith(">") for line in spoken):
        return [line.lstrip()[1:] for line in lines]
    return lines


class _Maker:
    """Collects lines until something shows that the next one belongs to another unit."""

    def __init__(self, errors_only: bool, logs: bool) -> None:
        self._errors_only = errors_only
        self._logs = logs
        self._log = False
        self._in_code = False
        self._in_diff = False
        self._in_fence = False
        self._in_result = False  # the lines of a tool's result, until a blank one
        self._indent = 0
        self._results = 0  # below the tool call above
        self._result = False
        self._units: list[Unit] = []
        self._lines: list[str] = []
        self._start = 1
        self._voice = Voice.PLAIN
        self._under_tool = False
        self._tool_open = False
        self._speaker = False

    def done(self) -> list[Unit]:
        self._flush()
        return self._units

    def take(self, line: str, number: int, indent: int) -> None:
        if not line:
            self._flush()
            self._in_code = self._in_result = False
            return
        mark, said = voice.split_mark(line)
        if mark and not said:
            self._flush()
            return
        if self._quoted(mark, said):
            self._flush()
            return
        in_code = self._in_code and not self._errors_only
        whose = voice.voice_of(mark, said, logs=self._logs, in_code=in_code)
        if not mark and self._in_result:
            whose = Voice.MUTED
        if whose is not Voice.MUTED or voice.opens_code(said):
            self._in_code = whose is Voice.MUTED
        if self._lines and not mark and self._belongs(said, whose):
            if not voice.is_stack(said):
                self._lines.append(said)
            return
        self._flush()
        self._indent, self._log = indent, voice.is_log(said)
        self._begin(said, whose, number, mark)

    def _quoted(self, mark: str, said: str) -> bool:
        """Inside a fence or a patch: somebody shows a text, nobody speaks."""
        if voice.is_fence(said):
            self._in_fence = not self._in_fence
            return True
        self._in_diff = voice.opens_diff(said) or (self._in_diff and not mark)
        return self._in_fence or self._in_diff

    def _belongs(self, said: str, whose: Voice) -> bool:
        if voice.is_log(said):
            return False
        if whose is Voice.PLAIN:
            return True
        if self._voice is Voice.PLAIN:
            open_quote = sum(line.count('"') for line in self._lines) % 2
            if open_quote or (voice.wraps(self._lines[-1]) and said[:1].islower()):
                return True
        return self._voice is Voice.ERROR and voice.continues_error(said)

    def _begin(self, said: str, whose: Voice, number: int, mark: str) -> None:
        self._result = result = voice.is_result(mark)
        self._speaker = voice.is_speaker(mark)
        if mark and not result:
            self._tool_open, self._results = self._speaker and voice.is_tool_call(said), 0
        self._results += result
        # The first thing below a call is its result; an error of the client may follow it.
        own = self._results > 1 and voice.is_client_error(said)
        self._under_tool = result and self._tool_open and not own
        self._in_result = self._under_tool or (self._in_result and not mark)
        if self._under_tool:
            whose = Voice.MUTED
        if whose in (Voice.MUTED, Voice.PROMPT, Voice.RUNNING):
            self._units.append(
                Unit(
                    said,
                    whose,
                    number,
                    under_tool=self._under_tool,
                    speaker=self._speaker,
                    indent=self._indent,
                )
            )
            return
        self._lines, self._start, self._voice = [said], number, whose

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
                    result=self._result,
                    indent=self._indent,
                )
            )
        self._lines = []
