"""What providers and agents print, as data, and the one place where it is matched.

A wording is a pattern with a reason. Patterns are RE2 (linear time, so users' own patterns are
safe), read without regard to case, and each blank in them stands for any white space: clients
wrap their messages wherever the terminal ends. Hundreds of patterns are looked for at once with
RE2's filter; only those that can match are run one by one for their position and captures.

Where a wording may match (`where`):

- "error": anywhere inside an error (a structured record's message, or a unit in ERROR voice);
- "start": at the start of a line that speaks, in any voice but MUTED;
- "line": the whole line, so that short words don't match inside sentences;
- "prompt": the whole line that the user typed;
- "tool": the whole line, even below a tool call, where clients show an interrupt too.

A wording with reason "none" is a counter-wording: what it matches is not a stop (the agent goes
on by itself, it only warns, another service speaks), and neither is the rest of its unit.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

import re2
from msgspec import Struct

from segue.core.stops.claims.likeness import Likeness
from segue.core.stops.claims.vocabulary import Vocabulary
from segue.core.stops.reasons import StopReason
from segue.core.stops.text.literals import Need, may_match, required
from segue.core.stops.types import Strength

Where = Literal["error", "start", "line", "prompt", "tool"]
NOT_A_STOP = "none"
if TYPE_CHECKING:
    Reason = str
else:  # each reason but "unknown", and no stop at all
    Reason = Literal[*(each.value for each in StopReason if each.value != "unknown"), NOT_A_STOP]


class Wording(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of a wordings file."""

    id: str
    reason: Reason
    pattern: str
    lead: str = ""  # what may stand before it on its line
    where: tuple[Where, ...] = ("error", "start")
    strength: Literal["hint", "phrase", "code", "sentence"] = "sentence"
    scope: str | None = None
    covers: Literal["line", "unit", "source", "all"] = "unit"  # how far "none" silences
    spares: tuple[Reason, ...] = ()  # what "none" does not silence
    agents: tuple[str, ...] = ()  # empty: anybody prints it
    example: tuple[str, ...]
    except_for: tuple[str, ...] = ()  # texts that look alike and must not match


class Fault(Struct, frozen=True):
    """Why an entry is not used: one line, naming file, entry and fault."""

    file: str
    entry: str
    fault: str

    def __str__(self) -> str:
        return f"{self.file}: {self.entry}: {self.fault}"


class Hit(Struct, frozen=True):
    """A wording found in a text; captures are the named groups that took part."""

    wording: Wording
    start: int
    end: int
    quote: str
    groups: dict[str, str]
    own: bool = False  # the user's

    @property
    def strength(self) -> Strength:
        """As the entry says; the user's own sentence goes before all of ours."""
        stated = Strength[self.wording.strength.upper()]
        return Strength.OWN if self.own and stated is Strength.SENTENCE else stated


_ANCHORS: dict[Where, str] = {
    "error": "{}",
    "start": r"^(?:\[\w{1,20}\]\s)?(?:(?:details?|reason|message): )?"
    r"(?:the model returned the following errors: )?(?:api error:? (?:\d{3} )?)?[\[(*]{0,2}(?:{})",
    "line": r"^(?:{})\s*[.!]?$",
    "prompt": r"^(?:{})\s*$",
    "tool": r"^(?:{})\s*[.!]?$",
}
_HITS_EACH = 3  # a message that says a thing more often says nothing more
_FEW_TEXTS = 60  # for so many texts it is cheaper to compile only what they need: measured
_FEW_CHARS = 40_000  # the same for long texts, in which looking for words costs most


def bad_pattern(wording: Wording) -> str:
    """Why a wording's pattern cannot be used; "" if it can."""
    if not wording.pattern.strip():
        return "bad pattern: it is empty"
    try:
        for part in (wording.pattern, wording.lead):  # as the user wrote it: the fault names it
            re2.compile(part, options=_options())
        compiled = re2.compile(_source(wording, "start"), options=_options())
    except re2.error as fault:
        message = fault.args[0] if fault.args else str(fault)
        text = message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)
        return f"bad pattern: {text}"
    return "bad pattern: it matches an empty text" if compiled.search("") else ""


def _options() -> Any:
    options = re2.Options()
    options.log_errors = False  # RE2 would write to stderr by itself
    return options


def _source(wording: Wording, where: Where) -> str:
    """Inside an error a lead is not needed to find it, and costs: it could begin anywhere."""
    lead = "" if where == "error" else wording.lead
    whole = f"{lead}(?:{wording.pattern.strip()})" if lead else wording.pattern.strip()
    blanks = whole.replace(" ?", r"\s*").replace(" ", r"\s+")
    return "(?ims)" + _ANCHORS[where].replace("{}", blanks)


class Catalogue:
    """Compiled wordings, the user's before ours. Bad patterns are left out and kept in `faults`."""

    def __init__(
        self,
        wordings: Iterable[tuple[str, Wording]],
        packaged: Iterable[tuple[str, Wording]] = (),
        vocabulary: Vocabulary | None = None,
        likeness: Likeness | None = None,
    ) -> None:
        """Takes pairs of file name and wording. The packaged ones are checked by our tests, not
        once more at each start; the user replaces one of them by using its id. `vocabulary`: what
        is said where no wording knows the sentence. `likeness`: how whole texts read."""
        self.vocabulary = vocabulary
        self.likeness = likeness
        self.wordings: list[Wording] = []
        self.faults: list[Fault] = []
        self._places: dict[Where, _Place] = {where: _Place() for where in _ANCHORS}
        ids: set[str] = set()
        for file, wording in wordings:
            fault = "this id is used twice" if wording.id in ids else bad_pattern(wording)
            if fault:
                self.faults.append(Fault(file, wording.id, fault))
                continue
            ids.add(wording.id)
            self._add(wording, own=True)
        for _, wording in packaged:
            if wording.id not in ids:
                self._add(wording, own=False)

    def _add(self, wording: Wording, *, own: bool) -> None:
        self.wordings.append(wording)
        for where in wording.where:
            self._places[where].add(wording, _source(wording, where), own)

    def sources(self, where: Where) -> list[tuple[Wording, str]]:
        """The patterns of one place, as RE2 is given them."""
        return self._places[where].sources()

    def find(self, text: str, where: Where, agent: str | None = None) -> list[Hit]:
        """All wordings for this place that the text holds, in the order of the catalogue.

        `agent`: who speaks; wordings that belong to certain agents count only for them.
        """
        return self._places[where].find(text, agent) if text else []


class _Place:
    """The patterns of one place, looked for at once.

    RE2 derives from each pattern the words that it cannot do without, and looks for all of them
    in one pass; only patterns whose words are there are run. A set of the whole patterns would
    do it without the second step, but repetitions such as {0,7} multiply in a shared automaton:
    measured, 300 times slower on new text.

    RE2 compiles all patterns for that. Most processes read only a few texts, so the first ones are
    searched for words that `literals` derives, and only patterns that can match are compiled.
    """

    def __init__(self) -> None:
        self._entries: list[tuple[Wording, bool]] = []
        self._sources: list[str] = []
        self._needs: list[tuple[Need, ...]] = []
        self._compiled: dict[int, Any] = {}
        self._filter: Any = None
        self._texts_left, self._chars_left = _FEW_TEXTS, _FEW_CHARS

    def add(self, wording: Wording, source: str, own: bool) -> None:
        self._entries.append((wording, own))
        self._sources.append(source)

    def sources(self) -> list[tuple[Wording, str]]:
        return [(w, source) for (w, _), source in zip(self._entries, self._sources, strict=True)]

    def find(self, text: str, agent: str | None) -> list[Hit]:
        if not self._entries:
            return []
        hits: list[Hit] = []
        for index, compiled in self._candidates(text):
            wording, own = self._entries[index]
            if wording.agents and agent not in wording.agents:
                continue
            for match in islice(compiled.finditer(text), _HITS_EACH):
                groups = {k: v for k, v in match.groupdict().items() if v}
                hits.append(Hit(wording, match.start(), match.end(), match.group(0), groups, own))
        return hits

    def _candidates(self, text: str) -> Iterator[tuple[int, Any]]:
        """The patterns that can match, in their order."""
        if self._filter is None and self._texts_left > 0 and len(text) <= self._chars_left:
            self._texts_left -= 1
            self._chars_left -= len(text)
            return self._by_words(text)
        if self._filter is None:
            self._filter = re2.Filter()
            for source in self._sources:
                self._filter.Add(source, _options())
            self._filter.Compile()
            self._compiled, self._needs = {}, []
        found = sorted(self._filter.Match(text, True) or ())
        return ((index, self._filter.re(index)) for index in found)

    def _by_words(self, text: str) -> Iterator[tuple[int, Any]]:
        if not self._needs:
            self._needs = [required(wording.pattern) for wording, _ in self._entries]
        folded, compiled = text.casefold(), self._compiled
        for index, needs in enumerate(self._needs):
            if not may_match(needs, folded):
                continue
            if index not in compiled:
                compiled[index] = re2.compile(self._sources[index], options=_options())
            yield index, compiled[index]
