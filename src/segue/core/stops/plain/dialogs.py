"""Does a screen end in a question that only the user can answer?

Every client draws its permission prompts and menus differently, but all of them show the same three
things: a question, ways to answer it, and the keys for that. Two of the three at the end of a
screen are a dialog, whatever it asks.
"""

from msgspec.structs import replace

from segue.core.lazy_pattern import lazy_pattern
from segue.core.stops.plain.unwrap import Line
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import Evidence, Rank, Sign, Strength

_LOOK_BACK = 30
_FOOTER_LINES = 3
_CURSOR = r"[❯›>→▸●○◉◯◌◆◇▶▌•☐☑◻◼*\s]*(?:\[[ xv✓✔]?\]\s*|\([ ●•*x]?\)\s*)?"
_QUESTION = lazy_pattern(
    rf"(?i)^{_CURSOR}(?:(?:allow|apply|approve|grant|would you like|do you (?:want|trust)|select"
    r"|choose|review your|set up|run (?:this|the)|proceed|overwrite|trust|permission|confirm|add"
    r"|how would you)\b.{0,200}[?:]"
    r"|.{0,120}\b(?:allow|approve|proceed|continue|permission|would you like|want to)\b.{0,80}\?)$"
)
_OPTION = lazy_pattern(
    rf"(?i)^{_CURSOR}(?:\d{{1,2}}[.)]\s+\S|(?:yes|no|allow|approve|always|never|cancel|deny|reject"
    r"|accept|modify|explain|edit|skip|switch)\b)"
)
_CHOSEN = lazy_pattern(r"(?i)\b(?:yes|no|allow|approve|always|cancel|deny|reject|accept)\b")
_KEYS = lazy_pattern(
    r"(?i)(?:\b(?:enter|return)|↵|⏎)\s+(?:to\s+)?(?:submit|confirm|select|choose|accept)\b.{0,80}"
    r"\besc(?:ape)?\b|\besc(?:ape)?\s+(?:to\s+)?(?:cancel|go back|reject|exit)\b.{0,60}"
    r"\b(?:enter|return|tab|y/n)\b"
)
_INLINE = lazy_pattern(
    r"(?i)\(type your (?:answer|reply|response)\)\W*$|\bpress (?:enter|return) to\b.{0,120}:\s*$"
    r"|^(?:type|enter|choose|select|pick) (?:an? |your |the )?(?:number|option|choice|selection)\b"
    r".{0,40}[:?>]\s*$|\btype \W?\w+\W? to (?:confirm|proceed|continue|approve)\W*$"
    r"|\?\s*(?:\[[a-z][\w ]{1,20}\]\s*){2,5}$"
    r"|^(?:your )?(?:answer|choice|selection|reply|response)\s?[:>?]\s*$"
    r"|\(yes/no(?:/\[?\w+\]?)?\)\W*$|^press (?:enter|return|any key) to continue\W*$"
    r"|\(y\)es\s?/\s?\(n\)o"
    r"|[\[(]y(?:es)?\s?/\s?n(?:o)?(?:\s?/\s?\w+)*[\])]\s*(?:\[\w+\])?\s*[:?>]?\s*$"
)
_BUTTONS = lazy_pattern(
    r"(?i)^\W*(?:\[?(?:allow|approve|accept|yes|run|always)\b[\w ]{0,14}\]?\W{1,4}){1,3}"
    r"\[?(?:reject|deny|no|cancel|skip)\b(?:[\w ]{0,12}\]?\W*|.{0,80}\benter\b.{0,20})$"
)
_ASKED_LINES = 2
_MAY_IT = lazy_pattern(
    rf"(?i)^{_CURSOR}(?:\?\s)?(?:\[[\w -]{{2,20}}\]\s*|\w{{2,16}}:\s)?(?:allow|approve|permit"
    rf"|authori[sz]e|grant)\s"
    r"[^?]{2,120}\?(?:\s|$)"
)
_NUMBER = r"(?:\d[.)]\s|[\[(]?\w[\])]\s)?"
_HINTS = r"(?: [\w'/.]+){0,6}(?: \([\w /]+\)){0,2}\W*$"
_GRANTS = lazy_pattern(
    rf"(?i)^{_CURSOR}{_NUMBER}(?:always |yes,? (?:and )?)?(?:allow|approve|accept|grant){_HINTS}"
)
_DENIES = lazy_pattern(
    rf"(?i)^{_CURSOR}{_NUMBER}(?:no,? (?:and )?)?(?:reject|deny|decline|disallow|block){_HINTS}"
)
_AGREES = lazy_pattern(
    rf"(?i)^{_CURSOR}{_NUMBER}(?:yes|run|trust|proceed|continue|apply|confirm|execute)\b,?{_HINTS}"
)
_REFUSES = lazy_pattern(
    rf"(?i)^{_CURSOR}{_NUMBER}(?:no|cancel|skip|don't|abort|exit|quit)\b,?{_HINTS}"
)
_REPLY_WITH = lazy_pattern(
    r"(?i)^(?:if (?:yes|so),? )?(?:press|hit|type|enter)\W{1,2}(?:enter|return|y(?:es)?|no?)\b"
    r".{0,80}$"
    r"|^yes ?/ ?no(?: ?/ ?[\w' ]{2,20}){0,3}$"
)
_ASKS = lazy_pattern(r"(?i)^\W*(?:do you want|would you like|shall i|may i|should i)\b.{2,160}\?$")
_ABOVE = 4
_LEFT = lazy_pattern(r"(?i)(?:\^c|<?ctrl[-+ ]c>?)\W*$")


def dialog_sign(lines: list[Line], source: str) -> Sign | None:
    """The sign of a dialog at the end of a screen, or None."""
    shown = [line for line in lines[-_LOOK_BACK * 2 :] if line.text.strip(" >❯›")][-_LOOK_BACK:]
    if not shown:
        return None
    if _LEFT.search(shown[-1].text):
        return None  # the answer was to leave
    if _INLINE.search(shown[-1].text) or _BUTTONS.match(shown[-1].text):
        return _sign(shown[-1], source)
    if len(shown) > 1 and _REPLY_WITH.match(shown[-1].text) and _ASKS.match(shown[-2].text):
        return _sign(shown[-2], source)
    if (permission := _permission(shown)) is not None:
        return replace(_sign(permission, source), strength=Strength.SENTENCE)
    keys = any(_KEYS.search(line.text) for line in shown[-_FOOTER_LINES:])
    options = [line for line in shown if _OPTION.match(line.text)]
    place = next((n for n in range(len(shown) - 1, -1, -1) if _QUESTION.match(shown[n].text)), None)
    question = None if place is None else shown[place]
    if keys and (question or options):
        return _sign(question or options[0], source)
    if place is None or question is None:
        return None
    below = shown[place + 1 :]
    answers = [line for line in below if _OPTION.match(line.text)]
    chosen = sum(1 for line in answers if _CHOSEN.search(line.text))
    # Only ways to answer may be below the question, or the rest of one.
    if chosen >= 2 and len(answers) * 2 >= len(below):
        return _sign(question, source)
    return None


def _permission(shown: list[Line]) -> Line | None:
    """The question at the end of a screen that can only ask for a permission: it starts with the
    verb ("Allow … to run?"), or both ways to answer it are below it."""
    for place in range(len(shown) - 1, max(-1, len(shown) - _ASKED_LINES - 1), -1):
        if _MAY_IT.match(shown[place].text):
            return shown[place]
    last = len(shown)
    while last and _answers(shown[last - 1].text):
        last -= 1
    answers = [line.text for line in shown[last:]]
    granted = any(_GRANTS.match(text) for text in answers)
    denied = any(_DENIES.match(text) for text in answers)
    if last and granted and denied:
        return shown[last - 1]
    agreed = granted or any(_AGREES.match(text) for text in answers)
    refused = denied or any(_REFUSES.match(text) for text in answers)
    if agreed and refused:  # words of all menus, so there must be a question
        above = shown[max(0, last - _ABOVE) : last]
        return next((line for line in reversed(above) if line.text.endswith("?")), None)
    return None


def _answers(text: str) -> bool:
    return any(form.match(text) for form in (_GRANTS, _DENIES, _AGREES, _REFUSES))


def _sign(line: Line, source: str) -> Sign:
    return Sign(
        reason=StopReason.NEEDS_USER,
        rank=Rank.TEXT,
        strength=Strength.CODE,  # a sentence above it says why it asks
        evidence=Evidence("screen.dialog", line.text[:200], f"{source}:{line.number}"),
        message=line.text[:200],
    )
