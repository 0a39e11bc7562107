"""The words that a pattern cannot do without, found by reading the pattern.

RE2's filter knows this better, but has to compile every pattern first: more work than the rest of
`segue classify`. For a few texts it is cheaper to look for plain words, and to compile only the
patterns whose words are there. What is found here may be too little, so that a pattern is tried in
vain, but never too much.
"""

import re
from collections.abc import Iterator
from functools import cache

Need = tuple[tuple[str, ...], ...]
"""Groups of lower-case words. A text meets the need if it has one word of each group."""

_TOKENS = re.compile(
    r"(?P<word>[a-zA-Z0-9'\"_,:;/<>=@#%&!~-]+(?![?*{])"
    r"|[\u3040-\u9fff\uac00-\ud7af]+(?![?*{]))"  # scripts without case
    r"|(?P<open>\((?:\?(?::|P<\w+>)|(?!\?)))"  # a group that must match something
    r"|(?P<close>\)(?P<optional>[?*]|\{[^}]*\})?)"
    r"|(?P<or>\|)"
    r"|(?P<strange>\\[QpPx]|\(\?)"
    r"|\\.|\[\^?\]?(?:\\.|\[:\w+:\]|[^\]\\])*\]|\{[^}]*\}|.",
    re.DOTALL,
)
_SHORTEST = 2


@cache
def required(pattern: str) -> tuple[Need, ...]:
    """Every text that the pattern matches without regard to case meets one of these needs. A need
    without groups is met by any text: there is no telling."""
    found = _alternatives(_TOKENS.finditer(pattern))
    return tuple(map(tuple, found[0])) if found is not None else ((),)


def may_match(needs: tuple[Need, ...], folded: str) -> bool:
    """Whether a text, given with its case folded, meets one of the needs."""
    for need in needs:
        for words in need:
            for word in words:
                if word in folded:
                    break
            else:
                break
        else:
            return True
    return False


def _alternatives(
    tokens: Iterator[re.Match[str]],
) -> tuple[list[list[tuple[str, ...]]], bool] | None:
    """What each branch of a group or of the whole pattern needs, up to its end, and whether the
    group may be left out; None if there is something that is not understood."""
    branches: list[list[tuple[str, ...]]] = [[]]
    optional = False
    for token in tokens:
        kind = token.lastgroup
        if kind == "word":
            if len(token[0]) >= _SHORTEST:
                branches[-1].append((token[0].lower(),))
        elif kind == "open":
            group = _alternatives(tokens)
            if group is None:
                return None
            if not group[1]:
                branches[-1] += _of_group(group[0])
        elif kind == "or":
            branches.append([])
        elif kind in ("close", "optional"):
            optional = token["optional"] is not None
            break
        elif kind == "strange":
            return None
    return branches, optional


def _of_group(branches: list[list[tuple[str, ...]]]) -> list[tuple[str, ...]]:
    """What a group inside a branch needs: with several branches, the most telling words of each."""
    if len(branches) == 1:
        return branches[0]
    if not all(branches):
        return []
    telling = [min(each, key=lambda words: (len(words), -len(words[0]))) for each in branches]
    return [tuple(dict.fromkeys(word for words in telling for word in words))]
