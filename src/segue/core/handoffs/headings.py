"""Recognises headings in the forms that agents write them, and maps them to the five sections of
a checkpoint."""

import re

from msgspec import Struct

Name = str  # a field of AgentSummary; "" for a heading that nobody asked for

_ATX = re.compile(r" {0,3}(#{1,6})[ \t]*(\S.{0,200}?)[ \t]*#*[ \t]*")
_BOLD = re.compile(r"[ \t]*(?:[-*+] |\d{1,2}[.)] )?(\*\*|__)([^*_]{1,80})\1[ \t]*:?[ \t]*(.*)")
_XML = re.compile(r"[ \t]*<([A-Za-z][\w-]{1,40})(?:\s[^<>]{0,200})?>(.*)")
_NEXT_CHILD = re.compile(r"(?<=>)[ \t]{0,9}(?=<[A-Za-z])")
_PLAIN = re.compile(r"[ \t]*(?:\d{1,2}[.)] )?([A-Za-z][A-Za-z'’ _&/-]{1,40})[ \t]*:[ \t]*(.*)")
_UNDERLINE = re.compile(r" {0,3}(?:={3,}|-{3,})[ \t]*")

_WORDS: dict[str, Name] = {
    **dict.fromkeys(
        ("goal", "goals", "objective", "objectives", "original task", "task", "the task", "aim",
         "purpose", "mission"), "goal"),
    **dict.fromkeys(
        ("completed", "completed work", "completed tasks", "work completed", "work done", "done",
         "done so far", "progress", "finished", "accomplished", "what was done", "what is done",
         "what has been done"), "completed"),
    **dict.fromkeys(
        ("remaining", "remaining tasks", "remaining work", "remaining steps", "next steps", "next",
         "todo", "todos", "to do", "left to do", "still to do", "pending", "pending tasks",
         "open tasks", "what remains", "what is left", "outstanding"), "remaining"),
    **dict.fromkeys(("decisions", "key decisions", "constraints", "design decisions",
                     "architectural decisions", "important decisions"), "decisions"),
}  # fmt: skip
_TITLE_CHARS = 100
_HEADING_CHARS = 300  # of a line that is all heading
_PER_LINE = 20  # child tags on one line
_NOT_AGAIN = ("redo", "repeat")
_BEGINNINGS: tuple[tuple[str, Name], ...] = (
    ("completed", "completed"),
    ("remaining", "remaining"),
    ("next steps", "remaining"),
    ("goal", "goal"),
    ("key decision", "decisions"),
    ("decisions", "decisions"),
)


class Line(Struct, frozen=True):
    """One line of a checkpoint."""

    text: str
    is_code: bool = False


class Section(Struct):
    """The text under one heading."""

    name: Name
    title: str
    lines: list[str]

    @property
    def text(self) -> str:
        """The text without blank lines around it."""
        return "\n".join(self.lines).strip("\n").rstrip()


class _Heading(Struct):
    name: Name
    title: str
    form: str
    level: int = 0
    rest: str = ""  # the rest of the line
    takes: int = 1  # lines


def name_of(title: str) -> Name:
    """Which of the five sections a title means; "" for none of them."""
    if len(title) > _TITLE_CHARS:
        return ""
    words = re.sub(r"\([^()]{0,80}\)", " ", title.lower()).replace("’", "'").replace("&", " and ")
    words = " ".join(re.sub(r"[^a-z' ]", " ", words.replace("_", " ").replace("-", " ")).split())
    if any(word in words for word in _NOT_AGAIN) and ("not" in words or "n't" in words):
        return "do_not_redo"
    if words in ("do not", "don't", "avoid redoing", "no redo"):
        return "do_not_redo"
    if words in _WORDS:
        return _WORDS[words]
    return next((name for start, name in _BEGINNINGS if words.startswith(start + " ")), "")


def read_lines(lines: list[Line]) -> list[Section]:
    """The sections in their order; the first has no title and contains the text before the first
    heading."""
    lines = [part for line in lines for part in _parted(line)]
    headings = _chosen(
        {place: found for place in range(len(lines)) if (found := _at(lines, place))}
    )
    sections = [Section("", "", [])]
    closing = ""
    skip = 0
    for place, line in enumerate(lines):
        text = line.text
        if skip:
            skip -= 1
            continue
        if heading := headings.get(place):
            skip = heading.takes - 1
            closing = f"</{heading.title.lower()}>" if heading.form == "xml" else ""
            sections.append(Section(heading.name, heading.title, []))
            text = heading.rest
        cut = text.lower().find(closing) if closing else -1
        if cut >= 0:
            sections[-1].lines.append(text[:cut])
            text = text[cut + len(closing) :]
            sections.append(Section("", "", []))
            closing = ""
        sections[-1].lines.append(text)
    return sections


def _parted(line: Line) -> list[Line]:
    """Splits a line with several child tags into one line for each."""
    if line.is_code or not line.text.lstrip().startswith("<"):
        return [line]
    pieces = _NEXT_CHILD.split(line.text, maxsplit=_PER_LINE)
    return [Line(piece) for piece in pieces]


def _at(lines: list[Line], place: int) -> _Heading | None:
    """The heading that a line may be, in any form."""
    text = lines[place].text
    if lines[place].is_code or not text.strip():
        return None
    if len(text) <= _HEADING_CHARS and (match := _ATX.fullmatch(text)):
        title = match[2].strip("*_: \t")
        # `## Goal: all of it` on one line.
        head, colon, rest = title.partition(":")
        if colon and name_of(head):
            return _Heading(name_of(head), head, "atx", len(match[1]), rest.strip("*_ \t"))
        return _Heading(name_of(title), title, "atx", len(match[1]))
    if match := _BOLD.fullmatch(text):
        title, rest = match[2].strip(": \t"), match[3]
        name = name_of(title)
        return _Heading(name, title, "bold", rest=rest) if name or not rest else None
    if match := _XML.fullmatch(text):
        return _Heading(name_of(match[1]), match[1], "xml", rest=match[2])
    if place + 1 < len(lines) and _UNDERLINE.fullmatch(lines[place + 1].text):
        name = name_of(text)
        return _Heading(name, text.strip(), "line", takes=2) if name else None
    if (match := _PLAIN.fullmatch(text)) and (name := name_of(match[1])):
        return _Heading(name, match[1].strip(), "inline" if match[2] else "plain", rest=match[2])
    return None


def _chosen(found: dict[int, _Heading]) -> dict[int, _Heading]:
    """The lines that are headings here: `Done: a` under a `## Done` is an item, `### a.py` a
    subheading."""
    known = [heading for heading in found.values() if heading.name]
    forms = {heading.form for heading in known}
    level = min((heading.level for heading in known if heading.form == "atx"), default=0)
    if not known:
        level = min((h.level for h in found.values() if h.form == "atx"), default=0)

    def counts(heading: _Heading) -> bool:
        match heading.form:
            case "atx":
                return heading.level <= level or (bool(heading.name) and level == 0)
            case "xml":
                return bool(heading.name) or forms == {"xml"}
            case "bold":
                is_main = not forms & {"atx", "xml"}
                return is_main if heading.rest or not heading.name else True
            case "inline":
                return not forms & {"atx", "xml", "bold", "line"}
            case _:
                return True

    return {place: heading for place, heading in found.items() if counts(heading)}
