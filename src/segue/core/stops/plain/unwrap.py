"""Removes what terminals and loggers add to text, before anything looks for words in it.

A provider's sentence reaches a screen or a log through other programs. Each puts something before
every line (a time stamp, a container's name, a quote mark, a gutter), draws a box around it, breaks
it at a line width, or puts it inside a string. None of that has a meaning. What remains are the
lines as they were written, each with the number of the line it began on, so that evidence still
points into the original. The prefix of a line is kept next to it, because it says when it was
written and at which level.

Everything here is linear in the length of the text, and each kind of wrapping is removed at most
`DEPTH` times.

All in one file, because the kinds of wrapping are removed in one order.
"""

import json
import re

from msgspec import Struct
from msgspec.structs import replace

from segue.core.lazy_pattern import lazy_pattern
from segue.core.stops.plain.bodies import is_numbered_body, without_number

DEPTH = 3
MAX_LINE_CHARS = 16_384  # no client prints a longer message; nothing beyond this is matched
_NARROWEST = 30  # nobody wraps at fewer columns
_PREFIX_WITHIN = 200
_DECODED_CHARS = 65_536
_PAGE_LINES = 20


class Line(Struct, frozen=True):
    """One line as it was written: cleaned and without its prefix."""

    text: str
    number: int
    indent: int = 0
    prefix: str = ""  # what a logger put before it
    goes_on: bool = False  # a line width broke the line above here
    row: bool = False  # of a table, whose cells tabs part
    column: bool = False  # a code, and in the next column what it means


_ANSI = lazy_pattern(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
_CONTROL = lazy_pattern(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u200b-\u200f\u2060\ufeff\ufe0f\ud800-\udfff]"
)
_EDGE = " \t\n\u00a0\u3000" + "".join(map(chr, range(0x2500, 0x25A0)))  # blanks, and boxes
_COLUMN = lazy_pattern(r"\s[│┃║].*$")
_SPACES = lazy_pattern(r"[ \t\u00a0\u2000-\u200a\u202f\u3000]+")
_PLAIN_MARKS = str.maketrans("‘’ʼ“”‑：，。（）！", "'''\"\"-:,.()!")


def clean(raw: str) -> str:
    """One line without colours, control characters, boxes and neighbouring panes."""
    line = _CONTROL.sub("", _ANSI.sub("", raw[:MAX_LINE_CHARS])).translate(_PLAIN_MARKS)
    if "│" in line or "┃" in line or "║" in line:
        line = _COLUMN.sub("", line.strip(_EDGE))
    head = line.lstrip()[:1]
    line = line.strip(_EDGE)
    if head in "└╰" and line and head:
        line = f"{head} {line}"
    return _SPACES.sub(" ", line).strip()


_ESCAPE = lazy_pattern(r"\\u00([0-7][0-9a-fA-F])")


def unescape(text: str) -> str:
    """Undoes the escapes of JSON text inside a string, at any depth, as far as words need it."""
    if "\\" not in text:
        return text
    for _ in range(DEPTH):
        text = text.replace("\\\\", "\\")
    text = _ESCAPE.sub(lambda m: chr(int(m[1], 16)), text)
    text = text.replace("\\r", "").replace("\\n", "\n").replace("\\t", " ")
    return text.replace('\\"', '"').replace("\\'", "'")


_BROKEN_WORD = lazy_pattern(r"(?<=[\w/.-])\n(?=[\w/.-])")


def unbroken(text: str) -> str:
    """A text as it was before its lines were cut at a column, inside words."""
    return _BROKEN_WORD.sub("", text)


_TAG = lazy_pattern(r"<!--.*?-->|</?[A-Za-z!][^<>]{0,400}>|<!--.*$")
_ENTITIES = (("&nbsp;", " "), ("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&amp;", "&"))
_HTML = lazy_pattern(
    r"(?i)<(?:!doctype|!--|/?(?:html|head|body|meta|title|link|script|style|div|span|p|a|table|t[rdh]"
    r"|pre|h[1-6]|br|hr|center|ul|li|header|section|main)\b)"
)


def is_html(text: str) -> bool:
    """Whether a line contains the markup of a page."""
    return "<" in text and bool(_HTML.search(text))


_ANSWER_PAGE = lazy_pattern(
    r"(?i)<title>[^<]{0,60}(?:\b[45]\d\d\b|\b(?:sign|log)[- ]?in\b|just a moment|attention required"
    r"|access denied|unavailable|bad gateway|time-?out)"
)


def is_answer_page(lines: list[Line]) -> bool:
    """Whether a text is only the page with which a gateway refuses, or asks for a login."""
    texts = [line.text for line in lines if line.text][:_PAGE_LINES]
    if not texts or not _HTML.match(texts[0]):
        return False
    return any(_ANSWER_PAGE.search(text) for text in texts)


def untagged(text: str) -> str:
    """The readable text of a line of a page."""
    plain = _TAG.sub(" ", text)
    for entity, meant in _ENTITIES:
        plain = plain.replace(entity, meant)
    return " ".join(plain.split())


# --- line prefixes -----------------------------------------------------------------------------

_DAY = r"\d{2,4}[-/]\d\d[-/]\d\d|\d\d/[A-Z][a-z]{2}/\d{4}"
_HOUR = r"\d\d:\d\d:\d\d(?:[.,:]\d+)?(?:\s?(?:Z|UTC|[+-]\d\d:?\d\d))?"
_STAMP = (
    rf"(?:{_DAY})[T ,:]\s?{_HOUR}|\d\d-\d\d\s{_HOUR}|[A-Z][a-z]{{2}}\s{{1,2}}\d\d?\s{_HOUR}|{_HOUR}"
    r"|[EWIF]\d{4}\s\d\d:\d\d:\d\d\.\d+|\d{1,4}\.\d\d\.\d{3}\.\d{3}|\d{10}(?:\.\d+)?"
)
_LEVEL = r"(?:INFO|WARN|WARNING|ERR|ERROR|DEBUG|TRACE|FATAL|CRITICAL|SEVERE|NOTICE)"
# Each alternative ends where the next may start, and none can match in two ways, so it is linear.
_ITEMS = lazy_pattern(
    rf"""(?x)(?:
      (?P<stamp>[\[(]?(?:{_STAMP})(?:[:,]\s{_LEVEL}/[\w-]{{1,40}})?[\])]?)(?=[\s|:\]]|$)
    | (?P<level>[\[(]?{_LEVEL}[\])]?)(?=[\s|:\]]|$)
    | (?P<low>\[(?:error|warn|warning|info|crit|debug|emerg|alert)\])
    | (?P<pair>(?:time|ts|timestamp|level|logger|source|caller|component)
        =(?:"[^"]{{0,80}}"|[^\s"]{{1,60}}))
    | (?P<source>\[[\w.:/@ #-]{{1,60}}\] | \([\w =.:#-]{{1,40}}\) | <[\w.-]{{1,40}}>)(?=[\s:|]|$)
    | (?P<file>[\w./-]{{1,60}}\.(?:[jt]sx?|py|go|rs|cc|cpp|java|rb):\d+\]?)
    | (?P<job>\d+\#\d+: | \d{{1,7}}(?=\s[\w./-]+\.\w+:\d) | \*\d+(?=\s)
        | [EWID]\s(?:srv|slot)\s+\w+:(?:\sid\s+\d+\s\|)?)
    )[ \t]*(?:[-|—:]+(?=\s)[ \t]*|:(?=\w))?"""
)
_NAME = lazy_pattern(
    r"(?:(?P<pipe>(?:\d{1,3}\|)?[\w.-]{2,40}\s{0,30}\|\s)"
    r"|(?P<out>(?:agent |child )?std(?:err|out): )"
    r"|[\w.-]{1,40} [\w./-]{1,40}\[\d+\]: "
    r"|(?!\w*(?i:error|exception|fail|limit|code|status|message|warning|reason|caused))"
    r"[\w.:/-]{2,40}(?:\[\d+\])?(?:: | [-—|] |:(?=[A-Z0-9]))|[a-z_]\w*(?:\.\w+)+:(?=\S)"
    r"|(?P<msg>msg=\"?))"
)
_SOURCE_COLUMN = lazy_pattern(r"\s{2,}[\w.]{2,30}\.(?:py|rs|go|ts|js):\d+$")
_ITEMS_MOST = 8


def prefix_of(text: str) -> str:
    """What a logger put before a line: time stamps, levels, names of modules and processes; "" if
    nothing there must come from a logger."""
    if not text or not (text[0].isdigit() or text[0] in "[(*<" or text[0].isalpha()):
        return ""
    end, sure, names = 0, False, 0
    head = text[:_PREFIX_WITHIN]
    for _ in range(_ITEMS_MOST):
        if item := _ITEMS.match(head, end):
            kind = item.lastgroup
            sure = (
                sure
                or kind in ("stamp", "level", "low", "job")
                or (kind == "pair" and item[0].startswith(("time", "ts", "level")))
            )
            if kind == "source" and not sure and "pid=" not in item[0] and end == 0:
                # "[API Error: …]" is part of the message; other brackets come before a level.
                following = _ITEMS.match(head, item.end())
                out = _NAME.match(head, item.end())
                if not (following and following.lastgroup in ("stamp", "level", "source")) and not (
                    out and out["out"]
                ):
                    break
        elif (sure or end == 0) and names < 1 and (item := _NAME.match(head, end)):
            is_prefix = bool(item["pipe"] or item["out"] or item["msg"])
            if end == 0 and not is_prefix:
                break
            sure = sure or is_prefix
            names += 1
        elif end and not sure and (item := _NAME.match(head, end)) and item["out"]:
            sure = True
        else:
            break
        end = item.end()
    return head[:end] if sure else ""


_SHARED_LEAST = 6
_LAST_SIGN = lazy_pattern(r"^.*[\]|>:)](?=\s|$)\s*", re.S)
_SPEECH = lazy_pattern(r"(?i)error[\s:]|fail|exception|limit|\b[45]\d\d\b|^\W*[\"'({]")


def _shared(texts: list[str]) -> str:
    """The common prefix of all lines of a text, if only a program can have put it there."""
    spoken = [text for text in texts if text]
    if len(spoken) < 2:
        return ""
    low, high = min(spoken), max(spoken)
    end = next((n for n, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))
    sign = _LAST_SIGN.match(low[: min(end, _PREFIX_WITHIN)])
    logged = prefix_of(low)
    if (
        sign
        and logged.startswith(sign[0])
        and all(text.startswith(logged.rstrip()) for text in spoken)
    ):
        return logged
    prefix = sign[0] if sign else ""
    if len(prefix) < _SHARED_LEAST or _SPEECH.search(prefix.replace("ERROR", "")):
        return ""
    if any(prefix.count(first) != prefix.count(last) for first, last in ("()", "[]", "{}")):
        return ""  # a call in source code, not a logger's
    return prefix


_DIGITS = lazy_pattern(r"\d+")


def _kind(prefix: str) -> str:
    return _DIGITS.sub("0", prefix)


# --- whole blocks -------------------------------------------------------------------------------

_FRAME = lazy_pattern(r"^\s*\+[-=]{3,}\+?\s*$")
_CELL = lazy_pattern(r"^\s*\|(?P<cell>.*)\|\s*$")


def _peeled(lines: list[str]) -> list[str]:
    """The lines without what each of them has: quote marks, string quotes, an ASCII box, a
    gutter."""
    for _ in range(DEPTH):
        spoken = [line for line in lines if line.strip()]
        if not spoken:
            return lines
        first, last = spoken[0].lstrip(), spoken[-1].rstrip()
        if len(spoken) > 1 and first[0] == last[-1] == '"' and "\n".join(spoken).count('"') == 2:
            lines = [line.replace('"', "") for line in lines]
            continue
        quoted = [line for line in spoken if not _AFTERWORD.match(line)]
        if all(line.lstrip().startswith(">") for line in quoted) and (
            len(quoted) > 1 or any(_speaks_up(line.lstrip()[1:]) for line in quoted)
        ):
            lines = [line.lstrip().removeprefix(">") for line in lines]
        elif len(spoken) > 2 and all(_quoted(line.strip()) for line in spoken):
            if all(line.rstrip().endswith(",") for line in spoken[:-1]):
                return lines  # a list in source code
            lines = [line.strip().rstrip(",")[1:-1] for line in lines]
        elif len(spoken) > 2 and _FRAME.match(spoken[0]) and _FRAME.match(spoken[-1]):
            cells = [_CELL.match(line) for line in spoken[1:-1]]
            if not all(cell and "|" not in cell["cell"] for cell in cells):
                return lines
            lines = ["" if _FRAME.match(line) else line.strip().strip("|") for line in lines]
        elif is_numbered_body(spoken):
            lines = [without_number(line) for line in lines]
        else:
            return lines
    return lines


_MESSAGE_KEYS = {"message", "error", "text", "msg"}


def _decoded(raw: list[str]) -> list[str]:
    """The content of a one-line text that is only a JSON string, or an object around one; otherwise
    the text itself."""
    spoken = [line for line in raw if line.strip()]
    if (
        len(spoken) != 1
        or not spoken[0].lstrip().startswith('"')
        or len(spoken[0]) > _DECODED_CHARS
    ):
        return raw
    value: object = spoken[0]
    for _ in range(DEPTH + 1):
        if isinstance(value, dict) and len(value) == 1 and _MESSAGE_KEYS & value.keys():
            (value,) = value.values()
        if not isinstance(value, str):
            return raw
        try:
            value = json.loads(value, strict=False)
        except (ValueError, RecursionError):
            return raw if value is spoken[0] else str(value).split("\n")
    return raw


def _quoted(line: str) -> bool:
    return len(line) > 2 and line[0] in "\"'" and line.rstrip(",").endswith(line[0])


_AFTERWORD = lazy_pattern(r"(?i)^\s*request id: \S+\s*$")
_SPOKEN_UP = lazy_pattern(
    r"(?i)^\s*(?:[■✕✗✖✘❌⛔🚫🛑🖐⨯×🔴]|(?:api |llm |provider |request )?(?:error|failed)\b\s*[:\d(])"
)


def _speaks_up(text: str) -> bool:
    """Whether a single quoted line starts like an error. Otherwise a user may have typed it."""
    return bool(_SPOKEN_UP.match(text))


# --- lines --------------------------------------------------------------------------------------


# A code and what it means; a check, what it looked at, and what it found.
_COLUMNS = lazy_pattern(r"^\s*(?:[a-z]+(?:_[a-z]+)+\s{2,}[A-Z]|[↑✗✘✖⚠✓✔]\s+[\w -]{2,20}?\s{3,}\S)")
_CELLS = 2  # so many tabs inside a line part the cells of a table
_NEXT_ROW = lazy_pattern(r"(?<=\S)[ \u00a0]{16,}(?=[⎿⏺●■✕✗✖❌⚠✦] {0,3}\S)")


def _rows_of_a_screen(raw: list[str], first_line: int) -> tuple[list[str], list[int]]:
    """The lines and their numbers. A screen that was copied as one line has its rows padded to the
    width of the terminal, and a mark begins the next one."""
    rows: list[str] = []
    numbers: list[int] = []
    for number, line in enumerate(raw, first_line):
        padded = len(line) <= MAX_LINE_CHARS and " " * 16 in line
        parts = _NEXT_ROW.split(line) if padded else [line]
        rows += parts
        numbers += [number] * len(parts)
    return rows, numbers


def _unquoted(raw: list[str]) -> list[str]:
    """A text that is nothing but one Markdown code span is what somebody copied, not a mention."""
    filled = [number for number, line in enumerate(raw) if line.strip()]
    if not filled:
        return raw
    first, last = raw[filled[0]].lstrip(), raw[filled[-1]].rstrip()
    if first[:1] != "`" or last[-1:] != "`" or sum(line.count("`") for line in raw) != 2:
        return raw
    found = list(raw)
    found[filled[0]] = found[filled[0]].replace("`", "", 1)
    found[filled[-1]] = found[filled[-1]].replace("`", "", 1)
    return found


def unwrap(raw: list[str], first_line: int = 1) -> list[Line]:
    """The lines as they were written. Lines that only a line width broke off are marked
    (`goes_on`)."""
    lines = []
    raw, numbers = _rows_of_a_screen(_unquoted(raw), first_line)
    written = _decoded(raw)
    peeled = _peeled(written)
    texts = [clean(_SOURCE_COLUMN.sub("", o) if ":" in o[-12:] else o) for o in peeled]
    shared = _shared(texts)
    for offset, one in enumerate(peeled):
        text = texts[offset]
        prefix = shared if shared and text.startswith(shared) else prefix_of(text)
        lines.append(
            Line(
                text[len(prefix) :].strip(),
                numbers[offset] if written is raw else first_line,
                len(one) - len(one.lstrip(" ")),
                prefix,
                column="  " in one and bool(_COLUMNS.match(one)),
                row=not prefix and one.strip().count("\t") >= _CELLS,
            )
        )
    return _marked(lines)


_OPENING = lazy_pattern(
    r"^\s*(?:[\^~]+|[^\s\w\"'({\[<-]\s|at \w|File \"|\d{1,3}[.)]\s"
    r"|[-*+]\s(?![{\[('\"])|```|[│┃║|▌])|^\s\s"
)


def _marked(lines: list[Line]) -> list[Line]:
    """Marks lines that continue the one above: that line was full, and this one does not start a
    new sentence."""
    start = 0
    while start < len(lines):
        end = start + 1
        kind = _kind(lines[start].prefix)
        while end < len(lines) and lines[end].text and _same(kind, lines[end], lines[end - 1]):
            end += 1
        width = max((len(line.text) for line in lines[start:end]), default=0)
        for index in range(start + 1, end):
            above, line = lines[index - 1], lines[index]
            if width >= _NARROWEST and _goes_on(above, line, width):
                lines[index] = replace(line, goes_on=True, prefix="")
        start = end
    return lines


def _same(kind: str, line: Line, above: Line) -> bool:
    hangs = not line.prefix and line.indent >= above.indent
    return bool(above.text) and (hangs or _kind(line.prefix) == kind)


def _goes_on(above: Line, line: Line, width: int) -> bool:
    word = line.text.split(" ", 1)[0]
    if len(above.text) + 1 + len(word) <= width or len(above.text) < _NARROWEST - 4:
        return False
    if _OPENING.match(line.text) or above.text[:1] in "^~":
        return False
    return above.text[-1] not in ".!?:;" or line.text[:1].islower()
