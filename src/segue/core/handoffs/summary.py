"""Extracts the checkpoint from an agent's answer: its block, and the text under each heading.

segue asks agents for one form and gets many. Text that fits no section stays in `raw`: nothing
the agent wrote is lost, except for length.
"""

import re
from collections.abc import Iterable

from msgspec import Struct

from segue.core.handoffs.headings import Line, Section, read_lines
from segue.core.lines import shorten

MAX_CHARS = 40_000
CHARS_PER_TOKEN = 4  # of prose

_TAG = re.compile(
    r"(?:<|&lt;)\s{0,3}(?P<close>/?)\s{0,3}checkpoint(?P<rest>(?:\s[^<>]{0,200})?)/?(?:>|&gt;)",
    re.IGNORECASE,
)
_FENCE = re.compile(r"(?:`{3,9}|~{3,9})\s{0,3}([\w+.-]{0,20})")
_PATH = re.compile(r"[\w@+./~-]{3,300}")
_PATHS = 200
_NEAR = 40  # characters: how far a line is looked at around a tag


class AgentSummary(Struct, frozen=True, kw_only=True):
    """The agent's checkpoint in its own words."""

    goal: str = ""
    completed: str = ""
    remaining: str = ""
    do_not_redo: str = ""
    decisions: str = ""
    other: tuple[tuple[str, str], ...] = ()
    """Sections with headings that nobody asked for, and ("", …) for what precedes the first
    heading."""
    raw: str = ""  # all of it
    is_whole: bool = True  # False: the block had no end, or was too long

    @property
    def has_sections(self) -> bool:
        """Whether any of the five sections was found."""
        return bool(
            self.goal or self.completed or self.remaining or self.do_not_redo or self.decisions
        )


def extract(answer: str, *, max_chars: int = MAX_CHARS) -> AgentSummary | None:
    """Extracts the checkpoint from an answer: its last whole block, else a block without an end,
    else the whole text. None if it is empty. Neither `raw` nor the sections together are much
    longer than `max_chars`."""
    text = answer.replace("\r\n", "\n").replace("\r", "\n")
    found, is_closed = _block(text)
    content = _unfenced(found)
    if not content:
        return None
    raw, missing = shorten(content, max_chars)
    fields, other, is_cut = _sections(content, max_chars)
    return AgentSummary(
        **fields,
        other=other,
        raw=raw,
        is_whole=is_closed and not missing and not is_cut,
    )


def paths_in(summary: AgentSummary) -> tuple[str, ...]:
    """The files that it names by a path with a folder, each once, so that a caller can check
    which of them exist."""
    found: dict[str, None] = {}
    for match in _PATH.finditer(summary.raw):
        path = match[0].rstrip(".")
        name = path.rpartition("/")[2]
        suffix = name.rpartition(".")[2]
        is_file = "/" in path and name != suffix and suffix[:1].isalpha() and len(suffix) < 9
        if is_file and not path.startswith("//"):
            found[path] = None
            if len(found) == _PATHS:
                break
    return tuple(found)


# The block


class _Tag(Struct):
    start: int
    end: int
    is_close: bool


def _block(text: str) -> tuple[str, bool]:
    """The text of the block, or of the whole answer; False if the block has no end."""
    tags = list(_tags(text))
    blocks = [text[start:end] for start, end in _pairs(text, tags)]
    whole = next((block for block in reversed(blocks) if _unfenced(block)), None)
    if whole is not None:
        return whole, True
    opened = [tag for tag in _before_text(text, tags) if not tag.is_close]
    # The last that begins a line: others may be mentions.
    firsts = [tag for tag in opened if _begins_line(text, tag.start)]
    if opened:
        start = (firsts[-1] if firsts else opened[0]).end
        return _TAG.sub("", text[start:]), False
    closed = [tag for tag in tags if tag.is_close]
    if closed and text[: closed[-1].start].strip():
        return _TAG.sub("", text[: closed[-1].start]), False
    plain = _TAG.sub("", text)
    return (plain if tags or not plain.strip() else text), True


def _before_text(text: str, tags: list[_Tag]) -> list[_Tag]:
    """The tags that are followed by text."""
    next_start = len(text)
    for place in range(len(tags) - 1, -1, -1):
        if text[tags[place].end : next_start].strip():
            return tags[: place + 1]
        next_start = tags[place].start
    return []


def _tags(text: str) -> Iterable[_Tag]:
    for match in _TAG.finditer(text):
        start, end = match.span()
        is_mention = text[max(0, start - 1) : start] == "`" and text[end : end + 1] == "`"
        is_empty = text[end - 2 : end] == "/>" and not match["close"]
        if not (is_mention or is_empty):
            yield _Tag(start, end, bool(match["close"]))


def _pairs(text: str, tags: list[_Tag]) -> list[tuple[int, int]]:
    """The whole blocks, without those nested in others."""
    stack: list[_Tag] = []
    pairs: list[tuple[int, int]] = []
    last_close: _Tag | None = None
    for tag in tags:
        if not tag.is_close:
            stack.append(tag)
            last_close = None
        elif stack:
            opened = stack.pop()
            while pairs and pairs[-1][0] > opened.start:
                pairs.pop()  # it was inside
            pairs.append((opened.end, tag.start))
            last_close = tag
        elif last_close and not _ends_line(text, last_close.end):
            # The close before stood in a sentence: the block talks about such tags.
            pairs[-1] = (pairs[-1][0], tag.start)
            last_close = tag
    return pairs


def _begins_line(text: str, place: int) -> bool:
    before = text[max(0, place - _NEAR) : place]
    _, newline, line = before.rpartition("\n")
    return (bool(newline) or place <= _NEAR) and not line.strip(" \t>#*")


def _ends_line(text: str, place: int) -> bool:
    line, newline, _ = text[place : place + _NEAR].partition("\n")
    return (bool(newline) or place + _NEAR >= len(text)) and not line.strip(" \t*`")


def _unfenced(text: str) -> str:
    """The text without the code fences around it: whole ones, or a half that the tags left over."""
    lines = text.strip("\n").split("\n")
    while lines and not lines[0].strip():
        lines.pop(0)
    while lines and not lines[-1].strip():
        lines.pop()
    marks = [place for place, line in enumerate(lines) if _FENCE.fullmatch(line.strip())]
    if len(marks) % 2:
        if marks[-1] == len(lines) - 1:
            lines.pop()
        elif marks[0] == 0:
            lines.pop(0)
    elif len(marks) == 2 and marks == [0, len(lines) - 1]:
        lines = lines[1:-1]
    elif len(marks) > 2 and marks[0] == 0 and marks[-1] == len(lines) - 1:
        first = _FENCE.fullmatch(lines[0].strip())
        # Code inside a wrapped text: the wrap says that it is text.
        if first and first[1].lower() in ("markdown", "md", "xml", "text", "txt"):
            lines = lines[1:-1]
    return "\n".join(lines).strip()


# The sections


def _fenced(lines: list[str]) -> set[int]:
    """The lines inside code fences. A fence without an end does not count."""
    inside: set[int] = set()
    start, mark = -1, ""
    for place, line in enumerate(lines):
        bare = line.lstrip()
        if start < 0 and bare.startswith(("```", "~~~")):
            start, mark = place, bare[:3]
        elif start >= 0 and bare.startswith(mark) and not bare.strip(mark[0] + " \t"):
            inside.update(range(start, place + 1))
            start = -1
    return inside


def _sections(
    content: str, max_chars: int
) -> tuple[dict[str, str], tuple[tuple[str, str], ...], bool]:
    """The five sections by name, and the others; whether anything was left out because of its
    size."""
    lines = content.split("\n")
    fenced = _fenced(lines)
    found = read_lines([Line(text, place in fenced) for place, text in enumerate(lines)])
    if fenced and not any(section.name for section in found):
        # It is all in a fence, except for a word.
        found = read_lines([Line(text) for text in lines if not _FENCE.fullmatch(text.strip())])
    share = max_chars // 6
    fields: dict[str, str] = {}
    other_sections: list[tuple[str, str]] = []
    is_cut = False
    for name, text in _joined(found):
        short, missing = shorten(text, share)
        is_cut = is_cut or missing > 0
        fields[name] = short
    room = share
    for section in found:
        text = section.text
        if section.name or not text:
            continue
        title = section.title[:80]
        short, missing = shorten(text, room - len(title))
        is_cut = is_cut or missing > 0
        if short:
            other_sections.append((title, short))
            room -= len(title) + len(short)
    has_title = bool(fields) or any(title for title, _ in other_sections)
    return fields, tuple(other_sections) if has_title else (), is_cut


def _joined(found: list[Section]) -> list[tuple[str, str]]:
    """Merges sections with the same heading."""
    texts: dict[str, list[str]] = {}
    for section in found:
        if section.name and section.text:
            texts.setdefault(section.name, []).append(section.text)
    return [(name, "\n\n".join(parts)) for name, parts in texts.items()]
