"""Which lines of a tool's output say something.

Short texts are kept as they are. Of a long one, segue keeps the first and last lines and those that
differ from the others. A line's form is what remains without letters and digits: a log, a listing
or a test run has a few forms in a thousand lines, and something said once has its own form,
whatever it says and in whatever language. Where most lines have their own form (prose), words that
occur only once count. What a command only shows of the disk (`cat`, `git log`) can be shown again
and is dropped.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator
from string import ascii_letters, digits
from typing import Any

import re2
from msgspec import Struct

from segue.core.handoffs.digest.forms import FORM_SHARE, UsualForms, without_digits
from segue.core.handoffs.digest.shapes import named_value
from segue.core.handoffs.digest.words import swaps, words
from segue.core.secrets.redact import OVER_LINES, redact_blocks

LINE_CHARS = 300
SHORT_CHARS = 1_200
_SHORT_LINES = 40
_REPORT_CHARS = 4_000
_WRAPPED_LINES = 6
_HEAD_CHARS, _HEAD_LINES = 400, 3
_TAIL_CHARS, _TAIL_LINES = 900, 6
_SCAN_CHARS = 256 << 10  # of a longer text, its beginning and its end
_ODD_LINES = 12
_ODD_SHARE = 100  # one line in this many is odd, whatever the others are
_ALIKE_SHARE, _FEW_ALIKE = 16, 4  # so few similar lines are odd among that many times more
_CANDIDATES = 400
_PIECE_CHARS = 160  # of a long line
_WORDS_CHARS = 64 << 10  # of text in which words are counted
_ERROR_CHARS, _ERROR_HITS, _ERRORS = 32 << 10, 40, 8
_VALUES = 6

_COLOUR = re.compile(r"\x1b\[[0-9;?]{0,30}[A-Za-z]|\x1b\][^\x07\x1b]{0,500}(?:\x07|\x1b\\)")
_CONTROL = swaps("".join(map(chr, [*range(9), 11, 12, *range(14, 32), 127])), None)
_FAULTS = (
    *("error", "exception", "fatal", "panic", "denied", "refused", "not found", "traceback"),
    *("assert", "expected", "fail", "cannot"),
)
_TELLS = ("important", "remember", "note", "listening", "password", "port", "token", "secret")
_DIGITS = digits.encode()
_WORDS_AND_BLANKS = (ascii_letters + digits + " \t\r").encode() + bytes(range(128, 256))
_WORD_BYTES = (ascii_letters + digits).encode() + bytes(range(128, 256))


def _pattern(text: bytes) -> Any:
    options = re2.Options()
    options.case_sensitive = False
    options.never_capture = True
    options.one_line = False
    options.posix_syntax = False
    return re2.compile(text, options)


_OVER_LINES = re2.compile("|".join(map(re.escape, OVER_LINES)).encode())
_GIVES_VALUE = _pattern(rb"(?m:^)[^\n]{3,60} (?:is|are|was|called|named)(?: now)? \S+(?m:$)")
_FAULTY = _pattern(
    rb"error|exception|fatal|panic|denied|refused|not found|traceback|assert|expected|fail"
)

_LOOKS = words(
    "cat head tail less more sed nl bat ls tree find fd grep rg ag awk wc stat file du pwd which"
    " type sort uniq cut tr diff xxd od hexdump readlink realpath basename dirname jq yq"
)
_SHOWS = _LOOKS - {"sed", "find"}  # whatever their arguments
_JOINS = re.compile(r"[|&;\n>]")
_LOOKERS = _LOOKS | {"cd", "git"}
_GIT_LOOKS = words("status log diff show blame branch ls-files grep rev-parse shortlog")
_WRITES = re.compile(r"sed\s+(?:-\w+\s+)*-i|find\b.*-(?:delete|exec)|>")


def clean(text: str) -> str:
    """The text without colours and control characters."""
    if "\x1b" in text:
        text = _COLOUR.sub("", text)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.translate(_CONTROL)


def only_looks(command: str) -> bool:
    """Whether a shell command only shows what is on disk: all its parts do."""
    first = command.split(None, 1)[:1]
    if first and "=" not in first[0]:
        name = first[0].rpartition("/")[2]
        if name not in _LOOKERS:
            return False  # the usual case, at no cost
        if name in _SHOWS and _JOINS.search(command) is None:
            return True
    if _WRITES.search(command):
        return False
    parts = re.split(r"\|\||&&|[|;\n]", command)
    names = [_program(part) for part in parts if part.strip()]
    return bool(names) and all(names)


def _program(part: str) -> bool:
    words = [word for word in part.split() if "=" not in word.split("/")[0]]
    if not words:
        return False
    name = words[0].rpartition("/")[2]
    if name == "cd" or name == "echo":
        return name == "cd"
    if name == "git":
        verb = next((word for word in words[1:] if not word.startswith("-")), "")
        return verb in _GIT_LOOKS
    return name in _LOOKS


class Excerpt(Struct, frozen=True, gc=False):
    """What is kept of an output. `odd` are the lines that differ from its others."""

    head: str = ""  # all of a short output
    odd: tuple[str, ...] = ()
    tail: str = ""
    forms: bytes = b""  # if not empty: contains the form of every line of the output

    @property
    def chars(self) -> int:
        """Its approximate size."""
        return len(self.head) + len(self.tail) + sum(map(len, self.odd))


NOTHING = Excerpt()


def shorten(
    text: str, *, failed: bool = False, is_report: bool = False, usual: UsualForms | None = None
) -> Excerpt:
    """What may be important in an output of any length: all of a short one, otherwise its first and
    last lines and those that differ from the others, without secrets that span several lines.
    `is_report`: somebody wrote it to be read. `usual`: forms that the session's logs are full of.
    Cheap, because it runs on all output."""
    if is_report and len(text) <= _REPORT_CHARS:
        return Excerpt(redact_blocks(text))
    if len(text) <= SHORT_CHARS and text.count("\n") < _SHORT_LINES:
        return Excerpt(redact_blocks(text))
    if _is_encoded(text):
        return NOTHING
    is_cut = len(text) > _SCAN_CHARS
    if is_cut:
        text, half = redact_blocks(text), _SCAN_CHARS // 2
        text = f"{text[:half]}\n{text[-half:]}"
    data = text.encode("utf-8", "replace")
    forms = without_digits(data).split(b"\n")
    if usual is not None and usual.are_all_of(forms):
        ends = text.endswith("\n") and not usual.has_empty
        return Excerpt(
            _first_lines(text, 1) if ends else "",
            tuple(_faults(data)) if failed else (),
            _last_lines(text, 2 if ends else 1),
            b"" if is_cut else usual.joined,
        )
    distinct = dict.fromkeys(forms).keys()
    is_log = len(distinct) <= len(forms) // FORM_SHARE
    new: Collection[bytes] = distinct
    if is_log and usual is not None:
        new = usual.others(distinct)
    if new and _OVER_LINES.search(b"\n%s\n" % b"\n".join(new) if is_log else data) is not None:
        text, is_log = redact_blocks(text), False
    if not is_log:
        if len(text) > len(forms) * LINE_CHARS:
            text = _in_pieces(text)
        data = text.encode("utf-8", "replace")
        forms = data.translate(None, _WORD_BYTES).split(b"\n")
    found: list[str] = []
    if new:
        counts = Counter(forms)
        max_alike = max(1 + len(forms) // _ODD_SHARE, min(_FEW_ALIKE, len(forms) // _ALIKE_SHARE))
        rare = {form for form in (new if is_log else counts) if counts[form] <= max_alike}
        found = _odd_lines(text, forms, rare) if rare else []
        if not is_log and counts[b""] > len(forms) // 2:
            found += _of_other_length(text.split("\n"), forms)
        if is_log and usual is not None:
            for form in new:
                if counts[form] > max(max_alike, _FEW_ALIKE):
                    usual.add(form, counts[form])
    if not is_log:
        found += _hits(data[_HEAD_CHARS:-_TAIL_CHARS], _GIVES_VALUE, _VALUES)
    if failed:
        found += _faults(data)
    first, last = (_HEAD_LINES, _TAIL_LINES) if not is_log else (1, 2) if new else (0, 1)
    return Excerpt(_first_lines(text, first), tuple(found), _last_lines(text, last))


def _is_encoded(text: str) -> bool:
    """Whether a long text is one word."""
    return not (" " in text or "," in text or "\n" in text or "\t" in text or "\r" in text)


def _first_lines(text: str, number: int) -> str:
    lines = text[:_HEAD_CHARS].rpartition("\n")[0].split("\n", number)
    return "\n".join(lines[:number])


def _last_lines(text: str, number: int) -> str:
    lines = text[-_TAIL_CHARS:].partition("\n")[2].rstrip().rsplit("\n", number)
    return "\n".join(lines[-number:])


def _faults(data: bytes) -> list[str]:
    """Lines near the end of a failed command's output that name what went wrong."""
    return _hits(data[-_ERROR_CHARS:-_TAIL_CHARS], _FAULTY, _ERROR_HITS)[-_ERRORS:]


def _in_pieces(text: str) -> str:
    """Splits long lines: data (JSON, a list) into its items, text into groups of words."""
    text = text.replace(', "', ',\n"').replace(',"', ',\n"').replace("},{", "},\n{")
    pieces: list[str] = []
    for line in text.split("\n"):
        if len(line) <= LINE_CHARS:
            pieces.append(line)
        else:
            pieces += _pieces(line)
    return "\n".join(pieces)


def _pieces(line: str) -> Iterator[str]:
    place = 0
    while len(line) - place > LINE_CHARS:
        end = line.rfind(" ", place, place + _PIECE_CHARS)
        if end <= place:
            break  # no words
        yield line[place:end]
        place = end + 1
    yield line[place:] if place else line


def _odd_lines(text: str, forms: list[bytes], rare: Collection[bytes]) -> list[str]:
    """The lines of a text whose form few others have, in order."""
    lines = text.split("\n")
    places = [place for place, form in enumerate(forms) if form in rare and tells(lines[place])]
    if len(places) > _ODD_LINES:
        places = _most_telling(text, lines, places)
    return [lines[place] for place in places]


def _of_other_length(lines: list[str], forms: list[bytes]) -> list[str]:
    """In a list of words or encoded lines, which have no form: the lines of an unusual length."""
    plain = [line for line, form in zip(lines, forms, strict=True) if not form]
    lengths = Counter(map(len, plain))
    found = [x for x in plain if lengths[len(x)] * _ALIKE_SHARE <= len(plain) and tells(x)]
    return found[:_ODD_LINES] if len(lengths) <= _ODD_LINES else []


def _most_telling(text: str, lines: list[str], places: list[int]) -> list[int]:
    """If there are too many lines, those that say what no other line says: judged by what remains
    without words and numbers, by their words, and by what they do. Of very many similar lines only
    some are looked at, of different ones all."""
    form_of = {place: _bare(lines[place]) for place in places}
    alike = Counter(form_of.values())
    most = len(places) // _ALIKE_SHARE
    special = {place for place in places if alike[form_of[place]] <= most}
    if len(places) > _CANDIDATES:
        others = [place for place in places if place not in special]
        places = sorted(special)[:_CANDIDATES] + others[:: -(-len(others) // _CANDIDATES) or 1]
    often = Counter(text[:_WORDS_CHARS].lower().split())

    def worth(place: int) -> float:
        line = lines[place][: 2 * LINE_CHARS].lower()
        words = line.split()
        score = sum(often[word] <= 1 for word in words) / (2 + len(words))
        if place in special:
            score += 0.5
        if _has(line, _TELLS) or names_fault(line):
            score += 0.5
        return score + (0.5 if named_value(line.strip()) is not None else 0.0)

    ranked = sorted(places, key=worth, reverse=True)
    return sorted(ranked[:_ODD_LINES])


def _bare(line: str) -> bytes:
    """A line without words, numbers and blanks."""
    return line[: 2 * LINE_CHARS].encode("utf-8", "replace").translate(None, _WORDS_AND_BLANKS)


def _hits(data: bytes, pattern: Any, max_hits: int) -> list[str]:
    """Lines that match; of those that differ only in numbers, the last."""
    shapes: dict[bytes, bytes] = {}
    place = 0
    for _ in range(max_hits):
        match = pattern.search(data, place)
        if match is None:
            break
        start = data.rfind(b"\n", 0, match.start()) + 1
        end = data.find(b"\n", match.end())
        end = len(data) if end < 0 else end
        place = end + 1
        line = data[start:end].strip()[: 4 * LINE_CHARS]
        shapes[line.translate(None, _DIGITS)[:60]] = line
    return [line.decode("utf-8", "replace") for line in shapes.values()]


def names_fault(line: str) -> bool:
    """Whether a line reports that something went wrong."""
    return _has(line, _FAULTS)


def _has(line: str, words: tuple[str, ...]) -> bool:
    low = line.lower()
    for word in words:  # noqa: SIM110 — `any` costs twice as much, and this is every line
        if word in low:
            return True
    return False


def lines_of(text: str) -> list[str]:
    """The lines of a text that can say something, each once, in order."""
    if len(text) <= LINE_CHARS and "  " not in text and text.isprintable():
        bare = text.strip()  # one line, as most outputs are
        return [bare] if tells(bare) else []
    found: dict[str, None] = {}
    if "\x1b" in text or "\r" in text:
        text = clean(text)
    for line in text.split("\n"):
        bare = line.strip() if line.isprintable() else clean(line).strip()
        if "  " in bare or "\t" in bare:
            bare = " ".join(bare.split())
        if not tells(bare):
            continue
        if len(bare) <= LINE_CHARS:
            found[bare] = None
        else:
            found.update(dict.fromkeys(_wrapped(bare)))
    return list(found)


def _wrapped(line: str) -> list[str]:
    """The beginning of a long line, as several lines."""
    found: list[str] = []
    while len(line) > LINE_CHARS and len(found) < _WRAPPED_LINES:
        first = cut_line(line, LINE_CHARS)
        found.append(first)
        line = line[max(1, len(first) - 1) :].lstrip()
    return [*found, line][:_WRAPPED_LINES]


def cut_line(line: str, max_chars: int) -> str:
    """The first words of a line, none of them cut in half, because half a secret is hard to
    recognise."""
    return line[: max_chars - 2].rpartition(" ")[0] + " …"


def tells(line: str) -> bool:
    """Whether a line can say anything: rules, brackets and encoded data cannot."""
    if len(line) < 2 or not (line[0].isalnum() or any(map(str.isalnum, line))):
        return False
    return len(line) <= 80 or " " in line[:80]
