"""A text in an agent's input line: what may be typed, and whether the line shows it.

Agents wrap the line as they like, so blanks are ignored when texts are compared.
"""

import re

from segue.core.terminals.screen import Screen

PART_CHARS = 40  # of a text that is too long to be shown whole
_NARROW = 40
_UNTYPED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_FOLD = re.compile(r"\[Pasted [^\]\n]*\]")


def typeable(text: str) -> tuple[str, int]:
    """The text without anything that a terminal would treat as keys, and how many characters were
    dropped: control characters except newlines and tabs, and a leading `!`, with which some agents
    run a shell."""
    clean, dropped = _UNTYPED.subn("", text.replace("\r\n", "\n"))
    clean = clean.strip()
    if clean.startswith("!"):
        rest = clean.lstrip("! \t\n")
        clean, dropped = rest, dropped + clean.count("!") - rest.count("!")
    return clean + " " if clean.endswith("\\") else clean, dropped  # it may escape the Enter


def is_all(screen: Screen, text: str) -> bool:
    """Whether the input line shows this text and nothing else."""
    return not screen.pasted and _solid(screen.draft) == _solid(text)


def shows(screen: Screen, text: str) -> bool:
    """Whether the input line shows nothing else after this text was inserted, even if it is
    folded or too long to be shown whole."""
    if screen.pasted and _FOLD.fullmatch(screen.draft.strip()):
        return True
    shown = _solid(screen.draft)
    return shown == _solid(text) or (len(shown) >= PART_CHARS and shown in _solid(text))


def without(screen: Screen, text: str) -> str:
    """The draft without this text; the whole draft if it does not contain the text."""
    if shows(screen, text):
        return ""
    draft, ours = screen.draft, _solid(text)
    if screen.pasted and _FOLD.search(draft):
        return _FOLD.sub("", draft, count=1)
    places = [place for place, char in enumerate(draft) if not char.isspace()]
    at = _solid(draft).find(ours)
    if at < 0 or not ours:
        return draft
    return draft[: places[at]] + draft[places[at + len(ours) - 1] + 1 :]


def rows(draft: str) -> int:
    """How many lines a draft may take on a screen, estimated generously."""
    return sum(len(line) // _NARROW + 1 for line in draft.split("\n"))


def _solid(text: str) -> str:
    return "".join(text.split())
