"""The words that a wording's pattern cannot do without, found by reading the pattern.

RE2's filter knows this better, but has to compile every pattern first: more work than the rest of
`segue classify`. For a few texts it is cheaper to look for plain words, and to compile only the
patterns whose words are there. What is found here may be too little, so that a pattern is tried in
vain, but never too much.
"""

import re
from collections.abc import Iterator

_TOKENS = re.compile(
    r"(?P<word>[a-zA-Z0-9'\"_,:;/<>=@#%&!~-]+(?![?*{]))"
    r"|(?P<open>\((?:\?(?::|P<\w+>)|(?!\?)))"  # a group that must match something
    r"|(?P<close>\)(?P<optional>[?*]|\{[^}]*\})?)"
    r"|(?P<or>\|)"
    r"|(?P<strange>\\[QpPx]|\(\?)"
    r"|\\.|\[\^?\]?(?:\\.|\[:\w+:\]|[^\]\\])*\]|\{[^}]*\}|.",
    re.DOTALL,
)
_SHORTEST = 3


def required(pattern: str) -> tuple[str, ...]:
    """Lower-case words, one of which is in every text that the pattern matches without regard to
    case; empty if there is no telling."""
    found = _alternatives(_TOKENS.finditer(pattern))
    return found[0] if found is not None else ()


def _alternatives(tokens: Iterator[re.Match[str]]) -> tuple[tuple[str, ...], bool] | None:
    """The words of a group or of the whole pattern, up to its end, and whether the group may be
    left out; None if there is something that is not understood."""
    words: tuple[str, ...] | None = ()  # of the branches so far; None once one of them has none
    best: tuple[str, ...] = ()  # of this branch
    optional = False
    for token in tokens:
        kind = token.lastgroup
        if kind == "word":
            word = token[0].lower()
            if len(word) >= _SHORTEST and (len(best) != 1 or len(word) > len(best[0])):
                best = (word,)
        elif kind == "open":
            group = _alternatives(tokens)
            if group is None:
                return None
            if not best and not group[1]:
                best = group[0]
        elif kind == "or":
            words = (*words, *best) if best and words is not None else None
            best = ()
        elif kind in ("close", "optional"):
            optional = token["optional"] is not None
            break
        elif kind == "strange":
            return None
    return ((*words, *best) if best and words is not None else ()), optional
