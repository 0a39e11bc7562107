"""Which lines of a text can contain a secret: a few fast scans, so that the many rules see only
those lines.

Most texts of a session have no such line and cost nothing more.
"""

import re
from bisect import bisect_right
from functools import cache
from typing import Any

from segue.core.secrets.context import LEET, LINE, STRONG, TABLES
from segue.core.secrets.names import SIGNS
from segue.core.secrets.rules import rule, rules

_WHOLE = (  # a secret over many lines, of which no single one looks like a secret
    b"PRIVATE KEY",
    b"rivate-Lines",
    b"ind: Secret",
    b"Static key",
    b"ANSIBLE_VAULT",
    *TABLES,
)
_OVER_LINES = b"|".join(map(re.escape, _WHOLE))
_BEFORE, _AFTER = 2, 3  # lines that belong to a secret's name, or to its command
_SEAM = b"\n\x00\n"  # between suspect lines; no rule matches across it
_KEEP_WHOLE = 2_000  # bytes; cutting lines out of less saves nothing

_HEAD_BYTES = 20  # of a vendor's key, after its prefix

_CHARS = r"[A-Za-z0-9_+/=.~%-]"
_TURN = "(?:[0-9][A-Za-z]|[A-Za-z][0-9])"
_RANDOM = rf"{_TURN}{_CHARS}{{4,}}{_TURN}|[A-Za-z0-9]{{28}}"  # like keys: mixed and long
_ADDRESS = r"://[^\s/@\"'<>]*:[^\s\"'<>]+@"
_MADE = (  # a password next to a word for it, a key next to its name
    rf"(?i:{LINE})|{STRONG}|{LEET}"
    r"|(?i:key)\\?[\"']?[ \t]*[:=][ \t]*[\"']?[A-Za-z0-9+/_-]{16}"
)
_BY_TOKEN = ("random", "key")  # values that `_RANDOM` finds anywhere


class SuspectLines:
    """The lines of a text that can contain a secret, joined into one text, and their places."""

    def __init__(self, data: bytes, spans: list[tuple[int, int]]) -> None:
        self.text = _SEAM.join(data[start:end] for start, end in spans)
        self._starts: list[int] = []
        self._moves: list[int] = []
        place = 0
        for start, end in spans:
            self._starts.append(place)
            self._moves.append(start - place)
            place += end - start + len(_SEAM)

    def placed(self, span: tuple[int, int]) -> tuple[int, int]:
        """Converts a place in these lines to a place in the whole text."""
        move = self._moves[bisect_right(self._starts, span[0]) - 1]
        return span[0] + move, span[1] + move


def suspicious(data: bytes) -> SuspectLines | None:
    """The suspect lines; None if no rule can find a secret in this text."""
    spans: list[tuple[int, int]] = []
    for signs in _signs():
        place = 0
        while (match := signs.search(data, place)) is not None:
            if not spans and (
                len(data) <= _KEEP_WHOLE or rule(_OVER_LINES).search(data) is not None
            ):
                return SuspectLines(data, [(0, len(data))])
            start = _line_start(data, match.start(), _BEFORE)
            place = _line_end(data, match.end(), 0)
            spans.append((start, _line_end(data, place, _AFTER)))
    return SuspectLines(data, merged(sorted(spans))) if spans else None


def merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sorted places with overlapping and adjacent ones joined."""
    joined: list[tuple[int, int]] = []
    for start, end in spans:
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _line_start(data: bytes, place: int, more: int) -> int:
    while True:
        place = data.rfind(b"\n", 0, place)
        if place < 0:
            return 0
        if more <= 0 and data[place - 1 : place] != b"\\":
            return place + 1
        more -= 1


def _line_end(data: bytes, place: int, more: int) -> int:
    while True:
        place = data.find(b"\n", place)
        if place < 0:
            return len(data)
        if more <= 0 and data[place - 1 : place] != b"\\":
            return place
        more -= 1
        place += 1


@cache
def _signs() -> tuple[Any, Any]:
    """All signs of a secret as two automata, because a single one would have more states than RE2
    allows."""
    return (
        rule("|".join([_RANDOM, _ADDRESS, *_heads(), SIGNS]).encode()),
        rule("|".join([_MADE, *_words()]).encode()),
    )


def _heads() -> list[str]:
    """The beginnings of vendors' keys; keys that begin like words, or with anything, are found by
    `_RANDOM`."""
    vendors = rules("vendors")
    heads = (_head(form) for forms in vendors["forms"].values() for form in forms)
    return [*vendors["signs"], *filter(None, heads)]


def _head(form: str) -> str:
    """A vendor's format up to its random part, and a little of that; "" if the format begins with
    anything, so that only `_RANDOM` can find it."""
    depth = group = opened = place = 0
    is_class = False
    while place < len(form):
        sign = form[place]
        if sign == "\\":
            place += 1
        elif is_class:
            is_class = sign != "]"
        elif sign == "[":
            is_class, opened = True, place
        elif sign == "(":
            group = group if depth else place
            depth += 1
        elif sign == ")":
            depth -= 1
        elif sign == "{" and int(count := re.findall(r"\d+", form[place:])[0]) >= 6:
            if depth:
                return form[:group]
            body, number = form[opened:place], min(_HEAD_BYTES, int(count))
            is_any = not form[:opened].replace("\\b", "") and ("A-Za" in body or number < 12)
            return "" if is_any else f"{form[:place]}{{{number}}}"
        place += 1
    return form


def _words() -> list[str]:
    """Patterns for the words that a line with one of the places contains."""
    words = {
        word
        for place in rules("places")["place"]
        if place.get("value", "any") not in _BY_TOKEN
        for word in place.get("signs", [] if "line" in place else place["needs"])
    }
    triggers = [place["line"] for place in rules("places")["place"] if "line" in place]
    return ["(?i:" + "|".join([*sorted(map(re.escape, words)), *triggers]) + ")"]
