"""A digest as sections of Markdown, within a budget.

The budget is spent in a fixed order: the user's words, the agent's last words, decisions and
findings, failures, results, the rest. Each section first gets its share, so that a long section
does not starve the others; what is left goes to the first section that needs more. Within a
section, the most important entries are chosen and shown in the order of the work.
"""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from segue.core.handoffs.digest.types import (
    CommandResult,
    Digest,
    FileTouched,
    Statement,
    UserPrompt,
)
from segue.core.handoffs.quoting import below, line, name, quotation

CHARS_PER_TOKEN = 4
MIN_TOKENS = 6_000
SHARE = 0.05  # of the next session's window
MAX_CHARS = 100_000  # of a prompt that some agents take as one argument

USER = "What the user said, in order"
LAST_WORDS = "What the session said last"
_BOXES = {"completed": "[x]", "in_progress": "[~]", "pending": "[ ]"}
_KINDS = {
    "decision": "decided",
    "finding": "found",
    "dropped": "dropped",
    "plan": "planned",
    "question": "asked",
    "remark": "said",
}
_NAMED = re.compile(r"[\w./-]*[\d/_.][\w/-]+|[A-Z][\w-]{3,}")
LATER = re.compile(r" \(later: ([^\n]*)\)$")
"""What follows a value that has changed since."""
_LINES_MAX = 40  # of one result
_MORE, _MORE_MAX = 0.05, 1.5  # what each further line of the same result loses
_NOTHING_NEW = 2.0  # a score: only lines like many others
_RECENT = 12  # newest results that are shown in any case


class Entry(Struct):
    """What is shown or left out as a unit. Some entries share a head, which is shown before the
    first of them."""

    worth: float
    text: str
    head: str = ""
    group: int = -1


class DigestPart(Struct):
    """A section: its entries, in the order of the work."""

    title: str
    share: float  # of the budget, initially
    entries: list[Entry]
    gap: str = "\n"


def budget_chars(window_tokens: int) -> int:
    """How many characters of a prompt the digest may take for a window of this size."""
    tokens = max(MIN_TOKENS, int(window_tokens * SHARE))
    return min(tokens * CHARS_PER_TOKEN, MAX_CHARS)


def sections(digest: Digest, max_chars: int, *, summary: str = "") -> list[tuple[str, str]]:
    """Titles and texts, with at most this many characters in total. `summary` is what the agent
    itself says above them; a sentence is left out if all the names in it appear there."""
    parts = [part for part in _parts(digest, summary) if part.entries]
    room = max_chars - sum(_head(part) for part in parts)
    grants = [min(_need(part), int(room * part.share)) for part in parts]
    left = room - sum(grants)
    found = []
    for part, grant in zip(parts, grants, strict=True):
        more = max(0, min(_need(part) - grant, left))
        left -= more
        text = _chosen(part, grant + more)
        if text:
            found.append((part.title, text))
    return found


def _head(part: DigestPart) -> int:
    return len(part.title) + 6


def _need(part: DigestPart) -> int:
    heads = {entry.group: len(entry.head) + 1 for entry in part.entries if entry.head}
    texts = sum(len(entry.text) + len(part.gap) for entry in part.entries)
    return texts + sum(heads.values()) + 60


def _chosen(part: DigestPart, room: int) -> str:
    """The most important entries that fit, in their order, and how many did not fit."""
    entries = part.entries
    places = sorted(range(len(entries)), key=lambda n: -entries[n].worth)
    chosen: set[int] = set()
    headed: set[int] = set()
    left = room - (0 if _need(part) - 60 <= room else 50)
    for place in places:
        entry = entries[place]
        size = len(entry.text) + len(part.gap)
        if entry.head and entry.group not in headed:
            size += len(entry.head) + 1
        if size <= left:
            chosen.add(place)
            headed.add(entry.group)
            left -= size
    if not chosen and entries and room > 200:
        first = entries[places[0]]
        return _with_head(first)[: room - 60] + " …"
    if not chosen:
        return ""
    headed.clear()
    texts = []
    for place in sorted(chosen):
        entry = entries[place]
        texts.append(entry.text if entry.group in headed else _with_head(entry))
        if entry.head:
            headed.add(entry.group)
    if missing := len(entries) - len(chosen):
        texts.append(f"[{missing:,} more left out for size]")
    return part.gap.join(texts)


def _with_head(entry: Entry) -> str:
    return "\n".join(filter(None, (entry.head, entry.text)))


def _parts(digest: Digest, summary: str) -> Iterable[DigestPart]:
    last = 0.0 if summary else 0.10
    yield DigestPart(USER, 0.40, list(_prompts(digest.prompts)), "\n\n")
    if digest.last_words and not summary:
        yield DigestPart(LAST_WORDS, last, [Entry(1.0, quotation(digest.last_words))])
    yield DigestPart(
        "Decisions and findings",
        0.22,
        [
            Entry(statement.score, _statement(statement))
            for statement in digest.statements
            if not stands_in(statement.text, summary)
        ],
    )
    yield DigestPart(
        "Failing, as last seen", 0.10, _outcomes(digest.failures, summary, always=True)
    )
    yield DigestPart("Results", 0.20, _outcomes(digest.results, summary))
    yield DigestPart(
        "Todo list",
        0.04,
        [Entry(1.0, f"- {_BOXES[todo.status]} {line(todo.text)}") for todo in digest.todos],
    )
    yield DigestPart("Files touched", 0.04, list(_files(digest.files)))
    yield DigestPart("Also mentioned", 0.03, list(_remarks(digest.remarks, summary)))
    yield DigestPart("Images", 0.01, [Entry(1.0, f"- {name(image)}") for image in digest.images])


def _prompts(prompts: Sequence[UserPrompt]) -> Iterable[Entry]:
    """The newest first if not all of them fit, because later words override earlier ones."""
    for place, prompt in enumerate(prompts):
        mark = " (a correction)" if prompt.is_correction else ""
        quoted = quotation(prompt.text.strip())
        worth = place + (len(prompts) if prompt.is_correction else 0)
        yield Entry(worth, f"{place + 1}.{mark}\n{quoted}")


def _statement(statement: Statement) -> str:
    item = f"- {_KINDS[statement.kind]}: {line(statement.text)}"
    return f"{item} (before that: {line(statement.earlier)})" if statement.earlier else item


def _remarks(remarks: Sequence[Statement], summary: str) -> Iterable[Entry]:
    """Remarks that name something first, then the newest."""
    for place, remark in enumerate(remarks):
        if not stands_in(remark.text, summary):
            yield Entry(remark.score + place / len(remarks), f"- {line(remark.text)}")


def _outcomes(
    outcomes: Sequence[CommandResult], summary: str, *, always: bool = False
) -> list[Entry]:
    """Each line separately: the most important ones are chosen, whichever call they come from."""
    found = []
    recent = len(outcomes) - _RECENT
    for number, outcome in enumerate(outcomes):
        if not always and number < recent and outcome.score < _NOTHING_NEW:
            continue
        if not outcome.lines and not always:
            continue
        times = f", {outcome.times} times" if outcome.times > 1 else ""
        code = "" if outcome.exit_code in (0, None) else f" (exit code {outcome.exit_code}{times})"
        code = code or (f" ({times.removeprefix(', ')})" if times else "")
        who = "sub-agent: " if outcome.by_agent else ""
        head = f"- {who}`{line(outcome.call)[:200]}`{code}"
        more = 3.0 if outcome.by_agent else 0.0
        if not outcome.lines:
            found.append(Entry(outcome.score, head))
        for place, worth in _best(outcome):
            text = outcome.lines[place]
            if always or not (stands_in(text, summary) or _is_outdated(text, summary)):
                found.append(Entry(worth + more, below(text), head, number))
    return found


def _is_outdated(text: str, summary: str) -> bool:
    """Whether a line states a value that has changed since, and the summary has the current one.
    Below the summary, the old value would look like a newer one."""
    later = LATER.search(text)
    return later is not None and later[1] in summary


def _best(outcome: CommandResult) -> list[tuple[int, float]]:
    """The most important lines of a result, in their order, with their worth: each further line is
    worth less. Of lines like many others, only the last."""
    ranked = sorted(range(len(outcome.lines)), key=lambda n: -outcome.scores[n])[:_LINES_MAX]
    least, ends = max(outcome.score / 2, _NOTHING_NEW), (0, len(outcome.lines) - 1)
    best = [
        (n, outcome.scores[n] - min(_MORE_MAX, _MORE * rank))
        for rank, n in enumerate(ranked)
        if outcome.scores[n] >= (_NOTHING_NEW if n in ends else least)
    ]
    return sorted(best) or [(n, outcome.scores[n]) for n in range(len(outcome.lines))][-1:]


def _files(files: Sequence[FileTouched]) -> Iterable[Entry]:
    for place, file in enumerate(files):
        did = ", ".join(
            f"{word} {number} times" if number > 1 else word
            for word, number in (("written", file.writes), ("read", file.reads))
            if number
        )
        change = f"; last {file.change}" if file.change else ""
        worth = place + (len(files) if file.writes else 0)
        yield Entry(worth, f"- {name(file.path)} ({did}{line(change)})")


def stands_in(text: str, told: str) -> bool:
    """Whether the agent's own words contain a sentence: they name everything it names, and at least
    one rare thing."""
    if not told:
        return False
    if _flat(text) in told:
        return True
    names = names_in(text)
    return bool(names) and all(name in told for name in names)


def names_in(text: str) -> set[str]:
    """The rare things that a sentence names: paths, numbers, names."""
    return {name for name in _NAMED.findall(text) if len(name) > 2}


def _flat(text: str) -> str:
    return " ".join(text.split())
