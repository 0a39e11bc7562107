"""Which of an agent's sentences matter to the next session, and what they do.

They are recognised by English words, because agents think aloud in English whatever the user
speaks. A sentence in another language has no such word and counts by what it names: numbers, paths,
quoted things.
"""

import re
from collections.abc import Iterator
from string import ascii_lowercase

from msgspec import Struct

from segue.core.handoffs.digest.shapes import named_value
from segue.core.handoffs.digest.types import Kind
from segue.core.handoffs.digest.words import swaps

MAX_CHARS = 500
_MIN_CHARS = 8
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"'(\[])")
_NO_LETTERS = swaps("".join(set(map(chr, range(128))) - set(ascii_lowercase + "'")), " ")
_BULLET = re.compile(r"^(?:[-*•]|\d{1,3}[.)]|#{1,6})\s+")
_QUOTED = re.compile(r"`[^`\n]{2,80}`|\"[^\"\n]{2,60}\"")
_NAMED = re.compile(r"[\w./-]*[/_.][\w/-]+|\b\w*\d[\w.-]*\b")  # in one word

# The weight of a word. Remarks in passing ("let me look") have a negative weight.
_WORDS: dict[Kind, dict[str, float]] = {
    "decision": {
        **dict.fromkeys(("decided", "decision", "decide", "chose", "chosen", "choosing"), 3.0),
        **dict.fromkeys(("agreed", "settled", "must", "never", "convention", "constraint"), 2.0),
        **dict.fromkeys(("instead", "rather", "because", "therefore", "prefer", "keep"), 1.5),
        **dict.fromkeys(("always", "avoid", "only", "should", "don't", "required", "so"), 0.8),
    },
    "finding": {
        **dict.fromkeys(("found", "discovered", "confirmed", "turns", "revealed", "learned"), 2.0),
        **dict.fromkeys(("cause", "caused", "culprit", "bug", "reason", "important", "note"), 2.0),
        **dict.fromkeys(("remember", "actually", "expects", "requires", "means", "due"), 1.5),
        **dict.fromkeys(("issue", "problem", "shows", "password", "token", "version"), 1.2),
        **dict.fromkeys(("port", "id", "url", "key", "named", "called", "word", "value"), 1.0),
        **dict.fromkeys(("fails", "failing", "missing", "wrong", "broken", "error", "is"), 0.6),
    },
    "dropped": {
        **dict.fromkeys(("abandoned", "abandon", "reverted", "revert", "dropped", "drop"), 3.0),
        **dict.fromkeys(("gave", "gives", "dead", "unworkable", "impossible", "undo"), 2.0),
        **dict.fromkeys(("didn't", "doesn't", "can't", "cannot", "won't", "unable"), 1.6),
        **dict.fromkeys(("longer", "failed", "incompatible", "unsupported", "tried"), 1.2),
    },
    "plan": {
        **dict.fromkeys(("plan", "remaining", "todo", "next", "still", "afterwards"), 1.2),
        **dict.fromkeys(("then", "later", "finally", "step", "will", "need"), 0.5),
    },
    "question": {},
    "remark": {},
}
_WEIGHTS: dict[str, tuple[Kind, float]] = {
    word: (kind, weight) for kind, words in _WORDS.items() for word, weight in words.items()
}
_IN_PASSING = re.compile(
    r"(?i)(?:ok(?:ay)?|good|great|perfect|now|first|next|then|let me|let's|i'll|i will|i'm going to"
    r"|now i|now let|checking|looking|running|reading|step \d+)\b"
)
_NAMED_MAX = 4


class Sentence(Struct, frozen=True):
    """A sentence of the agent, with what it does and how much it matters."""

    kind: Kind
    text: str
    score: float
    value: tuple[str, str] | None = None  # the name and the value, if it gives a thing a value


def sentences(text: str) -> Iterator[Sentence]:
    """The sentences of a reply, in order, without code in fences."""
    fenced = False
    for line in text.split("\n"):
        bare = line.strip()
        if bare.startswith(("```", "~~~")):
            fenced = not fenced
            continue
        if fenced or len(bare) < _MIN_CHARS:
            continue
        if bare.startswith("|"):
            yield Sentence("remark", bare[:MAX_CHARS], 0.0)
            continue
        bare = _BULLET.sub("", bare)
        pieces = _SENTENCE.split(bare) if len(bare) > 120 else (bare,)
        for piece in pieces:
            if len(piece) >= _MIN_CHARS:
                yield judge(piece)


def judge(sentence: str) -> Sentence:
    """Judges what a sentence does. A remark does nothing that matters on its own."""
    text = sentence if len(sentence) <= MAX_CHARS else sentence[: MAX_CHARS - 1] + "…"
    totals: dict[Kind, float] = {}
    # Not a set, whose order differs from process to process.
    for word in dict.fromkeys(text.lower().translate(_NO_LETTERS).split()):
        if word in _WEIGHTS:
            does, weight = _WEIGHTS[word]
            totals[does] = totals.get(does, 0.0) + weight
    named = _things(text)
    score = sum(totals.values()) + 0.7 * named
    if text.rstrip("`*\"') ").endswith("?"):
        return Sentence("question", text, score + 1.0)
    value = named_value(text)
    if value is not None:
        score += 1.0
    if _IN_PASSING.match(text):
        score -= 1.5
    if score <= 0.6:
        return Sentence("remark", text, score)
    kind: Kind = max(totals, key=lambda k: totals[k]) if totals else "finding"
    return Sentence(kind, text, score, value)


def _things(text: str) -> int:
    """How many things a sentence names, up to a few. The pattern is slow, so it only sees words
    that can name something; most cannot."""
    found = 0
    if "`" in text or '"' in text:
        text, found = _QUOTED.subn(" ", text)
    for word in text.split():
        if found >= _NAMED_MAX:
            break
        if not word.isalpha() and not word.rstrip(".,;:!?)").isalpha():
            found += len(_NAMED.findall(word))
    return min(found, _NAMED_MAX)
