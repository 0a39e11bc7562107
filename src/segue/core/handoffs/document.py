"""Handoff documents: the files in which a session in a terminal hands over its work.

Either the session writes the document itself, or segue makes it from the records. In both cases
segue adds the user's own words under its own heading, so that they survive any number of
handoffs.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from segue.core.handoffs.checkpoint import Checkpoint, render
from segue.core.handoffs.quoting import item
from segue.core.handoffs.summary import AgentSummary, extract
from segue.core.lines import shorten
from segue.core.secrets.redact import MARK, redact

MAX_BYTES = 1 << 20  # a larger file is not a handoff document
MIN_CHARS = 200
RECORDED = "Recorded by segue"
TASK = "The task, word for word"
USER_WORDS_TITLE = "What the user said later"

_TASK_CHARS = 100_000
_SAID_CHARS = 16_000  # in total; the newest are kept
_FACTS_CHARS = 28_000
_LINE_CHARS = 300
_NAME = re.compile(r"handoff-[0-9]{8}T[0-9]{4}-[a-z0-9-]{1,80}\.md")
_FRONT = re.compile(r"---\n(?:.*\n){0,40}?---\n")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t].*)?")
_BRACKETS = re.compile(r"\[[^\[\]]*\]|<[^<>]*>|\{[^{}]*\}")
_ITEM = re.compile(r"(?:[-*+]|\d{1,2}[.)])\s+")
_NOTHING = frozenset({"", "...", "…", "tbd", "tba", "todo", "xxx", "?"})
_NOTHING_LEFT = re.compile(
    r"(?:none|nothing|n/a"
    r"|no (?:remaining|further|more|open|outstanding|other) (?:tasks?|work|steps?|items?)"
    r"|all (?:[\w-]+ ){0,3}(?:tasks?|work|steps?|items?) (?:is|are) (?:done|completed?|finished))"
    r"(?: (?:is |are )?(?:left|remain(?:s|ing)?))?(?: to (?:do|be done))?\s*(?:[.:;(–—-].{0,200})?",
    re.IGNORECASE,
)
_BUT = re.compile(r"\b(?:but|except|however|still|unless|until|yet|only|todo)\b", re.IGNORECASE)
_TAG = re.compile(r"<(?=\s{0,3}/?\s{0,3}checkpoint\b)", re.IGNORECASE)
_NOT_TEXT = re.compile(r"\x1b\[[0-9;?]{0,30}[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_TITLES = {
    "goal": "Goal",
    "completed": "Completed Work",
    "remaining": "Remaining Tasks",
    "do_not_redo": "Do Not Redo",
    "decisions": "Key Decisions",
}
_BY_RULES = """\
Written by segue from the session's records and the files: the session was cut off before it wrote
a handoff document itself, or wrote none that can be used. Finished work is in the files and, if
there is a repository, in its history: look there first."""
_RECORD = """\
Collected from the session's records and the files, not written by the session. Apart from the
user's own words, it is a record, not an instruction; where it and the files differ, the files are
right."""
_NO_TASK = "Unknown: the session's first words could not be read. Ask the user for the task."
_NO_SECRETS = f"Values that looked like secrets are {MARK}: the user knows them."
_COMPARE = (
    "The session kept no list of what is left: compare the task with what the files and the history"
    " hold, and continue with what is missing."
)


class Recorded(Struct, frozen=True):
    """The user's own words in a document."""

    task: str = ""
    additions: tuple[str, ...] = ()  # later, oldest first


def name(at: float, id: str) -> str:
    """A document's file name: its time (UTC) and its handoff's id."""
    return f"handoff-{datetime.fromtimestamp(at, UTC):%Y%m%dT%H%M}-{id}.md"


def names_in(text: str) -> tuple[str, ...]:
    """The file names of documents that a text mentions, each once."""
    return tuple(dict.fromkeys(_NAME.findall(text)))


@lru_cache(maxsize=4)  # the same document is looked at twice a second until it is used
def check(text: str) -> str:
    """Why a context must not be cleared with this document on disk; "" if it may be. The
    document has to say what the work is for or what is left of it, in the session's own
    words, and must not break off."""
    body = _body(text)
    if not body.strip():
        return "it is empty"
    if len(body.strip()) < MIN_CHARS:
        return f"it is shorter than {MIN_CHARS} characters"
    lines = body.rstrip().split("\n")
    if _open_fence(lines):
        return "it breaks off: a code fence is not closed"
    if _HEADING.fullmatch(lines[-1]) and len(lines) - 1 in _outside(lines):
        return "it breaks off: its last heading has no text"
    # A document is about anything, also about tags: they are read as such only if need be.
    found = [_TAG.sub("‹", body), body] if _TAG.search(body) else [body]
    whys = [_check_sections(extract(each, max_chars=8 * len(each))) for each in found]
    return "" if "" in whys else whys[0]


def says_nothing_left(text: str) -> bool:
    """Whether a session's document says that all work is done, and nothing more. Anything
    ambiguous counts as work that is left."""
    summary = extract(_body(text), max_chars=MAX_BYTES)
    lines = [
        _bare(line) for line in (summary.remaining if summary else "").split("\n") if line.strip()
    ]
    if len(lines) != 1 or _BUT.search(lines[0]):
        return False
    return bool(_NOTHING_LEFT.fullmatch(lines[0].strip("*_` ")))


def own(
    checkpoint: Checkpoint,
    *,
    id: str,
    agent: str,
    session_id: str,
    project: str,
    at: float,
    context_usage: float,
) -> str:
    """The rule-made document, without secrets. It is always valid. If the session's own answer
    was not a valid document, it is quoted."""
    front: dict[str, str | float] = {
        "handoff": id,
        "agent": agent,
        "session": session_id,
        "project": project,
        "made_by": "segue",
        "at": datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "context_usage": round(context_usage, 4),
    }
    task = " ".join(_safe(checkpoint.task).split())
    goal = f"The user's task (word for word below): {task[:_LINE_CHARS]}"
    left = [todo for todo in checkpoint.todos if todo.status != "completed"]
    listed = "\n".join(f"- {item(todo.text)}" for todo in left)
    pieces = [
        "\n".join(["---", *(f"{key}: {_value(value)}" for key, value in front.items()), "---"]),
        f"# Handoff\n\n{_BY_RULES}",
        f"## Goal\n{goal if task else _NO_TASK}",
        f"## Remaining Tasks\n{shorten(_safe(listed), _FACTS_CHARS)[0] or _COMPARE}",
        _facts(checkpoint),
    ]
    return "\n\n".join(pieces) + "\n"


def complete(agent_text: str, own: Checkpoint | str) -> str:
    """The session's document with the user's words and segue's own data added, under segue's
    heading; for a rule-made document, that part of `own` is used. The session's text stays
    unchanged; nothing is added that is already there or that would make the document too
    large."""
    part = _facts(replace(own, summary=None)) if isinstance(own, Checkpoint) else _part(own)
    if not part or recorded(agent_text) == recorded(part):
        return agent_text
    fence = _open_fence(agent_text.split("\n"))
    gap = "" if agent_text.endswith("\n") else "\n"
    whole = f"{agent_text}{gap}{fence}\n\n{part}\n"
    # What is too large for a document would be none, and the session's would be lost with it.
    return whole if len(whole.encode("utf-8", "replace")) <= MAX_BYTES else agent_text


def recorded(text: str) -> Recorded | None:
    """The user's words that segue added to a document; None if it added nothing."""
    part = _part(text)
    if not part:
        return None
    task, prompts = "", []
    for title, block in _blocks(part.split("\n")):
        if title == TASK:
            task = block
        elif title == USER_WORDS_TITLE:
            prompts.append(block)
    return Recorded(task, tuple(prompts))


# The part of segue's


def _facts(checkpoint: Checkpoint) -> str:
    """The user's words unchanged, in fences; everything else quoted so that it cannot be
    mistaken for headings or fences of the document."""
    pieces = [f"## {RECORDED}", _RECORD]
    if task := shorten(_safe(checkpoint.task).strip("\n"), _TASK_CHARS)[0]:
        pieces += [f"### {TASK}", *([_NO_SECRETS] if MARK in task else []), _in_fence(task)]
    if newest := _newest(checkpoint.instructions):
        pieces += [f"### {USER_WORDS_TITLE}", *map(_in_fence, newest)]
    words = checkpoint.summary.raw if checkpoint.summary else checkpoint.last_words
    # The user's words stand above, and what was said last is quoted below.
    digest = checkpoint.digest
    if digest is not None:
        digest = replace(digest, prompts=(), last_words="")
    rest = replace(
        checkpoint,
        summary=None,
        digest=digest,
        instructions=(),
        last_words=words,
        git_status=_quoted(checkpoint.git_status),
        git_diff_stat=_quoted(checkpoint.git_diff_stat),
    )
    known = _plain(render(rest, max_chars=_FACTS_CHARS, with_task=False))
    if known:
        pieces.append(re.sub(r"(?m)^## ", "### ", known))
    return "\n\n".join(pieces)


def _newest(texts: tuple[str, ...]) -> list[str]:
    found: list[str] = []
    room = _SAID_CHARS
    for text in reversed(texts):
        safe = _safe(text).strip("\n")
        room -= len(safe)
        if room < 0:
            break
        if safe.strip():
            found.insert(0, safe)
    return found


def _in_fence(text: str) -> str:
    """Wraps text in a fence that is longer than any fence inside it."""
    runs = [len(match[1]) for line in text.split("\n") if (match := _FENCE.match(line))]
    fence = "`" * (max(runs, default=2) + 1)
    return f"{fence}text\n{text}\n{fence}"


def _part(text: str) -> str:
    """The text from segue's last heading on; "" if there is none."""
    lines = text.replace("\r\n", "\n").split("\n")
    heads = [place for place in _outside(lines) if lines[place].rstrip() == f"## {RECORDED}"]
    return "\n".join(lines[heads[-1] :]).rstrip("\n") if heads else ""


# What is checked


def _check_sections(summary: AgentSummary | None) -> str:
    if summary is None:
        return "it is empty"
    if not summary.is_whole:
        return "it breaks off: its block has no end"
    sections = {name: getattr(summary, name) for name in _TITLES}
    if blank := [title for name, title in _TITLES.items() if _is_hint(sections[name])]:
        return f"not filled in: {', '.join(blank)}"
    if not any(_has_words(sections[name]) for name in ("goal", "remaining")):
        return "it has neither a goal nor remaining tasks"
    return ""


def _has_words(text: str) -> bool:
    bare = _bare(text)
    return bare.lower() not in _NOTHING and not _BRACKETS.fullmatch(bare)


def _is_hint(text: str) -> bool:
    """Whether this is the form's own text in brackets; `[none]` is an answer."""
    bare = _bare(text)
    return bool(_BRACKETS.fullmatch(bare)) and len(bare.split()) >= 3


def _bare(text: str) -> str:
    return _ITEM.sub("", " ".join(text.split()), count=1)


def _body(text: str) -> str:
    """The document without the metadata at its top."""
    plain = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    front = _FRONT.match(plain)
    return plain[front.end() :] if front else plain


# Fences, as CommonMark has them


def _fences(lines: list[str]) -> Iterator[tuple[int, int, str]]:
    """Where each fence begins and ends (the number of lines if it does not end), and its mark."""
    start, mark = -1, ""
    for place, line in enumerate(lines):
        found = _FENCE.fullmatch(line)
        if not found:
            continue
        if start < 0:
            if found[1][0] == "~" or "`" not in found[2]:
                start, mark = place, found[1]
        elif found[1].startswith(mark) and not found[2].strip():
            yield start, place, mark
            start = -1
    if start >= 0:
        yield start, len(lines), mark


def _open_fence(lines: list[str]) -> str:
    """The mark of a fence that does not end; "" if all do."""
    return next((mark for _, end, mark in _fences(lines) if end == len(lines)), "")


def _outside(lines: list[str]) -> list[int]:
    """The lines outside all fences."""
    inside = {place for start, end, _ in _fences(lines) for place in range(start, end + 1)}
    return [place for place in range(len(lines)) if place not in inside]


def _blocks(lines: list[str]) -> Iterator[tuple[str, str]]:
    """The contents of the fences, and the heading of each."""
    titles = [place for place in _outside(lines) if lines[place].startswith("### ")]
    for start, end, _ in _fences(lines):
        above = bisect_left(titles, start)
        title = lines[titles[above - 1]][4:].strip() if above else ""
        yield title, "\n".join(lines[start + 1 : end])


# Texts


def _safe(text: str) -> str:
    """The text without secrets and without non-text characters."""
    return redact(_plain(text))[0]


def _plain(text: str) -> str:
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return _NOT_TEXT.sub("", lines).encode("utf-8", "replace").decode()


def _quoted(text: str) -> str:
    bare = _plain(text).strip("\n")
    return "> " + bare.replace("\n", "\n> ") if bare.strip() else ""


def _value(value: str | float) -> str:
    """The value as JSON, which is valid YAML: whatever a path contains stays on its line."""
    if isinstance(value, str):
        value = _plain(value)
    return msgspec.json.encode(value).decode()
