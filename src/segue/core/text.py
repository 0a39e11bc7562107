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
from enum import Enum

from msgspec import Struct

MAX_LINE_CHARS = 16_384  # no client prints a longer message; what lies beyond is never matched


_RAISED_WITHIN = 300


class Voice(Enum):
    """Who speaks in a unit."""

    ERROR = "error"
    PLAIN = "plain"
    PROMPT = "prompt"
    RUNNING = "running"
    MUTED = "muted"


class Unit(Struct, frozen=True):
    """Lines that belong together, cleaned, joined by newlines; `line` is the first one's number."""

    text: str
    voice: Voice
    line: int
    under_tool: bool = False  # stands below a tool call: muted, but an interrupt shows here too
    speaker: bool = False  # opens with the bullet under which the model itself speaks
    log: bool = False  # a stamped log line
    indent: int = 0


_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u200b-\u200f\u2060\ufeff\ufe0f]")
_BOX = r"\u2500-\u257f\u2580-\u259f"
_EDGE = re.compile(rf"^[\s{_BOX}]+|[\s{_BOX}]+$")
_COLUMN = re.compile(r"\s[│┃║].*$")
_SPACES = re.compile(r"[ \t\u00a0\u2000-\u200a\u202f\u3000]+")
_QUOTES = str.maketrans({"‘": "'", "’": "'", "ʼ": "'", "“": '"', "”": '"', "‑": "-", "：": ":", "，": ",",
                         "。": ".", "（": "(", "）": ")", "！": "!"})  # fmt: skip

_MARK = re.compile(
    r"^(?P<mark>[⏺●■□✕✗✖✘❌⛔🚫🛑🖐⎿└╰↳✦•◦⚠⚡ⓘℹ✻✽✶✢✳✔✓✅⏱🌐📝📋💡❯›▌»🔴🟡⨯×⏵▶→]+|[>%$](?=\s)|\w{1,12}>(?=\s))\s*"
)
_ERROR_MARKS = set("■✕✗✖✘❌⛔🚫🛑🖐⨯×🔴")
_RESULT_MARKS = set("⎿└╰↳")
_PROMPT_MARKS = set("❯›▌»>$%")
_SPEAKER_MARKS = set("⏺●✦")

_LOG = re.compile(
    r"^\W{0,3}(?:\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\[?\d\d:\d\d:\d\d|timestamp=|time=\"?\d|level=\w"
    r"|[A-Z][a-z]{2} \d\d? \d\d:\d\d:\d\d|(?:INFO|WARN|WARNING|ERROR|DEBUG|TRACE|FATAL)\b[:\s|\]]"
    r"|(?:srv|slot)\s+\w+:|[\w-]{1,30}\s+\|\s)"
)
_LOG_LEVEL = re.compile(
    r"(?i)\b(?:error|fatal|critical|severe|panic|warn|warning|err)\b|exception|\bfailed\b"
)
_NOT_OURS = (
    r"(?!(?:assertion|import|modulenotfound|syntax|name|attribute|index|key|filenotfound"
    r"|zerodivision|unicode\w+|permission)error\b)"
)
_ERROR_LEAD = re.compile(
    r"(?ix)^[\W_]{0,4}(?:\[[^\]]{1,60}\]\s*){0,3}[\W_]{0,5}(?:\d{1,2}:\s)?(?:"
    r"  (?:api|internal|system|provider|network|connection|server|model|llm|stream|terminal|task"
    r"     |fatal|unexpected|unknown|unrecoverable|upstream)\s+(?:request\s+)?"
    r"     (?:error|failed|failure|exception|status)\b"
    r"| error\b(?:\s*[:({\['\"!-]|\s+(?:\d|\w+ing\b|code|while|when|from|with|in\b|details|message"
    r"     |occurred|condition|failed)\b|$)"
    r"| (?:fatal|exception|failed|failure|panic|uncaught|unhandled|traceback|caused\s+by)\b"
    r"| (?:request|query|execution|api\s+request|llm\s+request|sdk\s+execution)\s+(?:failed|error)\b"
    rf"| {_NOT_OURS}(?-i:(?:[A-Za-z_][\w.:]*[.:])?_?[A-Z]\w*(?:Error|Exception|Failure)\b)"
    r"     (?:\s*[:({'\[-]|$)"
    r"| (?:http|status|status\s*code|error\s*code|got\s+status(?:\s*code)?|code)[\s:=]*[45]\d\d\b"
    r"| [45]\d\d\s+[\[{<\"'a-z]"
    r"| (?:sorry|oops)\b"
    r"| an?\s+(?:unexpected\s+)?(?:error|exception)\s+(?:occurred|was|has)\b"
    r"| reason:\s.{0,120}(?:\b[45]\d\d\b|error|limit)"
    r"| [\w.-]{2,40}:\s*[45]\d\d\s"
    r"| (?:[a-z.-]+\s+){0,4}returned\s+(?:an?\s+)?(?:error|http\s+[45]\d\d|status)"
    r"| (?:agent|task|run|session|execution|turn)\s+(?:execution\s+)?(?:has\s+|was\s+)?(?:been\s+)?"
    r"     (?:stopped|terminated|aborted|failed|crashed|errored)\b"
    r"| stopped:"
    r"| unexpected\s+status\b"
    r"| ran\s+into\s+(?:this|an)\s+error\b"
    r"| (?:[a-z0-9./-]+\s+){1,3}error\b\s*[:,(\[{]"
    r"| (?:[a-z-]+\s+){0,2}error\s+(?:stack|details|message|occurred)\b"
    r"| (?:forbidden|unauthorized|bad\s+request|bad\s+gateway|service\s+unavailable|too\s+many\s+requests"
    r"     |internal\s+server\s+error|payment\s+required)\b\s*(?:[:.(]|$)"
    r")"
)
_BODY_LEAD = re.compile(
    r"(?i)^[\s{\[(<b'\"\\]{0,6}(?:error|errors|errorcode|errormessage|error_type|cause|details?"
    r"|httpstatuscode|statuscode|status|message|msg|code|data|object|type|timestamp|time|level"
    r"|severity|context|request_?id|name|event)[\"'\\]{0,3}\s*:"
)
_BODY_ERROR = re.compile(r"(?i)error|exception|fail|exceed|exhaust|denied|invalid|4\d\d\b|5\d\d\b")
_BODY = re.compile(r"^\s*[\]}{\[\"'`(),]|^\s*[A-Za-z_@]{1,24}[\"']?\s*:\s")
_MUTED = re.compile(
    r"""(?x)^(?:
      [+-](?:\s|[^\s\d]|\d*$) | \|\s? | \#{1,6}\s | \*\s | \d{1,3}[.)]\s | // | /\* | <!-- | @@\s
    | <(?:!|/?(?:html|head|body|meta|title|link|script|style|div|span|p|a|table|t[rdh]|pre|h[1-6]|br|hr|center|ul|li)\b) | >>>\s | E\s | \#!? | \\ | --\s
    | _{6,} | ={6,} | (?:FAILED|PASSED|ERROR|SKIPPED)\s+\S+(?:::|\.py)
    )"""
)
_CODE = re.compile(
    r"""(?x)
    ^(?:def|class|import|from|return|if|elif|else|for|while|try|except|raise|assert|with|const|let
      |var|function|func|fn|pub|struct|enum|echo|printf|print|grep|rg|sed|awk|curl|sudo|export|check
      |async|await|switch|case|throw|catch|local|use|package|public|private|static|expect|it|test
      )\b.*[(){}\[\];=$"'`\\|<>]
    | ^@\w | [;{]\s*$ | =>|===?\s|!==?\s|\s&&|\s\|\||\s:=\s|\$\(|\$\{|\[\[ | ^\w[\w.\[\]"']*\s*[+|]?=\s*\S
    | ^[\w.]+\([^)]*\)\s*[;:]?$ | ^\w+\.\w+\(
    """
)
_RAISED = re.compile(r"(?<![\w`'\"(])(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): ")
_STACK = re.compile(r"^(?:at\s|File\s\"|\.\.\.|\^+$|~+|Emitted\s|node:|throw\s|\d+:\s0x)")
_TOOL_CALL = re.compile(r"^[A-Z][\w-]*(?: [A-Z][\w-]*){0,3}\(")
_RUNNING = re.compile(
    r"(?i)^(?:working|thinking|running|waiting)\b.*\besc to (?:interrupt|cancel)"
    r"|^\S{3,}…\s*\(.*(?:thinking|tokens|esc to|\d+s)\b.*|\w…\s\(esc to interrupt"
)


def clean(raw: str) -> str:
    """One line without colours, control characters, boxes and other panes."""
    line = _CONTROL.sub("", _ANSI.sub("", raw[:MAX_LINE_CHARS])).translate(_QUOTES)
    if "│" in line or "┃" in line or "║" in line:
        line = _COLUMN.sub("", _EDGE.sub("", line))
    head = line.lstrip()[:1]
    line = _EDGE.sub("", line)
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
    for offset, raw in enumerate(lines):
        indent = len(raw) - len(raw.lstrip(" "))
        maker.take(clean(raw), first_line + offset, indent)
    return maker.done()


class _Maker:
    """Collects lines until something shows that the next one belongs to another unit."""

    def __init__(self, errors_only: bool, logs: bool) -> None:
        self._errors_only = errors_only
        self._logs = logs
        self._log = False
        self._in_code = False
        self._indent = 0
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
            self._in_code = False
            return
        mark, said = _split_mark(line)
        if mark and not said:
            self._flush()
            return
        voice = self._voice_of(mark, said)
        joins = bool(self._lines) and not mark and voice is Voice.PLAIN and not _LOG.match(said)
        if joins or (self._lines and not mark and self._voice is Voice.ERROR and _continues(said)):
            if not _STACK.match(said):
                self._lines.append(said)
            return
        self._flush()
        self._indent, self._log = indent, bool(_LOG.match(said))
        self._begin(said, voice, number, mark)

    def _begin(self, said: str, voice: Voice, number: int, mark: str) -> None:
        result = bool(mark) and mark[0] in _RESULT_MARKS
        self._speaker = bool(mark) and mark[0] in _SPEAKER_MARKS
        self._under_tool = result and self._tool_open
        if mark and not result:
            self._tool_open = mark[0] in _SPEAKER_MARKS and bool(_TOOL_CALL.match(said))
        if self._under_tool:
            voice = Voice.MUTED
        if voice in (Voice.MUTED, Voice.PROMPT, Voice.RUNNING):
            self._units.append(
                Unit(said, voice, number, under_tool=self._under_tool, indent=self._indent)
            )
            return
        self._lines, self._start, self._voice = [said], number, voice

    def _voice_of(self, mark: str, said: str) -> Voice:
        if mark and (mark[0] in _PROMPT_MARKS or mark[-1] == ">"):
            return Voice.PROMPT
        if _RUNNING.search(said):
            return Voice.RUNNING
        if not mark and (_MUTED.match(said) or (not self._logs and _LOG.match(said))):
            return Voice.MUTED
        if self._in_code and _BODY.match(said) and not _RAISED.match(said):
            return Voice.MUTED
        if (mark and mark[0] in _ERROR_MARKS) or _ERROR_LEAD.match(said):
            return Voice.ERROR
        if _LOG.match(said):
            return Voice.ERROR if _LOG_LEVEL.search(said[:400]) else Voice.PLAIN
        if not self._in_code and _BODY_LEAD.match(said) and _BODY_ERROR.search(said):
            return Voice.ERROR
        if not _BODY.match(said) and (_STACK.match(said) or _CODE.search(said)):
            self._in_code = said[-1] in "({[,"
            return Voice.MUTED
        self._in_code = False
        if "`" not in said and _RAISED.search(said[:_RAISED_WITHIN]):
            return Voice.ERROR
        return Voice.PLAIN

    def _flush(self) -> None:
        if self._lines:
            voice = Voice.ERROR if self._errors_only else self._voice
            joined = unescape("\n".join(self._lines))
            self._units.append(
                Unit(
                    joined,
                    voice,
                    self._start,
                    speaker=self._speaker,
                    log=self._log,
                    indent=self._indent,
                )
            )
        self._lines = []


def _split_mark(line: str) -> tuple[str, str]:
    found = _MARK.match(line)
    return (found["mark"], line[found.end() :]) if found else ("", line)


def _continues(said: str) -> bool:
    """Does a line go on with the error above it, although it looks like something else?"""
    if _ERROR_LEAD.match(said) and said[0] not in "\"'{}":
        return False
    return bool(_BODY.match(said) or _STACK.match(said)) or not (
        _ERROR_LEAD.match(said) or _LOG.match(said) or _MUTED.match(said) or _CODE.search(said)
    )
