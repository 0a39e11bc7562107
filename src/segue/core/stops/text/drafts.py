"""Drafts a wording from a text that segue did not understand.

It takes the line that most looks like a message and replaces what changes each time (numbers,
quoted names, addresses, paths, ids) with patterns for such things. The result is a draft, which the
user reads before it counts.
"""

import re

from segue.core.stops.plain.text import units
from segue.core.stops.plain.unwrap import unwrap
from segue.core.stops.plain.voice import Voice
from segue.core.stops.text.wordings import Reason, Wording

_MAX_WORDS = 14
_MIN_LETTERS = 8
_LEAD = re.compile(
    r"^(?:\W*(?:api |fatal |llm )?(?:error|failed|failure|exception)\b\W*){1,2}", re.I
)
_CHANGING = re.compile(
    r"(?P<url>https?://\S+)|(?P<quoted>\"[^\"]{1,80}\"|`[^`]{1,80}`|'[^']{2,80}')"
    r"|(?P<path>(?:~|\.{0,2})/[\w./@-]{2,200})"
    r"|(?P<id>\b(?=\w*\d)(?=\w*[a-z])[\w-]{12,}\b)|(?P<number>\d[\d.,:]*)"
)
_SLUG = re.compile(r"[^a-z]+")


def line_of(text: str, tail_lines: int) -> str:
    """The line of a text that most likely says why it stopped; "" if no line does."""
    spoken = [
        unit
        for unit in units(unwrap(text.split("\n")[-tail_lines:]))
        if unit.voice in (Voice.ERROR, Voice.PLAIN)
        and sum(letter.isalpha() for letter in unit.text) >= _MIN_LETTERS
    ]
    loud = [unit for unit in spoken if unit.voice is Voice.ERROR]
    chosen = (loud or spoken)[-1:]
    return chosen[0].text.split("\n", 1)[0].strip() if chosen else ""


def draft(line: str, reason: Reason, name: str = "") -> Wording:
    """A wording that matches this line, and lines that differ only in what changes each time."""
    sentence = _LEAD.sub("", line).strip() or line
    words = sentence.split()[:_MAX_WORDS]
    pattern = _pattern(" ".join(words).rstrip(".,:;!·"))
    slug = "_".join(part for part in _SLUG.split(sentence.lower()) if len(part) > 2)[:40].strip("_")
    return Wording(
        id=name or f"mine.{slug or reason}",
        reason=reason,
        pattern=pattern,
        where=("error", "start"),
        example=(line,),
    )


def _pattern(sentence: str) -> str:
    parts, end = [], 0
    for found in _CHANGING.finditer(sentence):
        parts.append(_escaped(sentence[end : found.start()]))
        parts.append(_FORMS[str(found.lastgroup)])
        end = found.end()
    return "".join((*parts, _escaped(sentence[end:])))


_FORMS = {
    "url": r"https?://\S+",
    "quoted": r"[\"'`][^\"'`\n]{1,80}[\"'`]",
    "path": r"[\w./@~-]{2,200}",
    "id": r"[\w-]{8,}",
    "number": r"[\d.,:]+",
}


def _escaped(text: str) -> str:
    """The text as a literal pattern. Blanks stay blanks, because in a wording a blank matches any
    white space."""
    return re.escape(text).replace("\\ ", " ").replace("\\-", "-").replace("'''", "...")


def as_toml(wording: Wording) -> str:
    """The entry for wordings.toml."""
    quote = "'''"
    example = ", ".join(_basic(text) for text in wording.example)
    return (
        "[[wording]]\n"
        f"id = {_basic(wording.id)}\n"
        f"reason = {_basic(wording.reason)}\n"
        f"pattern = {quote}{wording.pattern}{quote}\n"
        f"example = [{example}]\n"
    )


def _basic(text: str) -> str:
    """A TOML string on one line."""
    out = []
    for letter in text:
        if letter in '"\\':
            out.append("\\" + letter)
        elif ord(letter) < 32 or ord(letter) == 127:
            out.append(f"\\u{ord(letter):04x}")
        else:
            out.append(letter)
    return '"' + "".join(out) + '"'
