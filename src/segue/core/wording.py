"""What providers and agents print, as data, and the one place where it is matched.

A wording is a pattern with a reason. Patterns are RE2 (linear time, so users' own patterns are
safe), read without regard to case, and each blank in them stands for any white space: clients
wrap their messages wherever the terminal ends. Hundreds of patterns are looked for at once with
RE2 sets; only those that hit are run one by one for their position and captures.

Where a wording may match (`where`):

- "error": anywhere inside an error (a structured record's message, or a unit in ERROR voice);
- "start": at the start of a line that speaks, in any voice but MUTED;
- "line": the whole line, so that short words don't match inside sentences;
- "prompt": the whole line that the user typed;
- "tool": the whole line, even below a tool call, where clients show an interrupt too.

A wording with reason "none" is a counter-wording: what it matches is not a stop (the agent goes
on by itself, it only warns, another service speaks), and neither is the rest of its unit.
"""

from collections.abc import Iterable
from typing import Any, Literal

import re2
from msgspec import Struct

from segue.core.stop import Strength

Where = Literal["error", "start", "line", "prompt", "tool"]
Reason = Literal[
    "rate_limit", "completed", "context_exhausted", "billing", "auth", "max_budget", "max_turns",
    "refusal", "overloaded", "timeout", "crash", "needs_user", "error", "user_exit", "none",
]  # fmt: skip
NOT_A_STOP = "none"


class Wording(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of a wordings file."""

    id: str
    reason: Reason
    pattern: str
    where: tuple[Where, ...] = ("error", "start")
    strength: Literal["hint", "phrase", "code", "sentence"] = "sentence"
    scope: str | None = None
    covers: Literal["line", "unit", "source", "all"] = "unit"  # how far "none" silences
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

    @property
    def strength(self) -> Strength:
        return Strength[self.wording.strength.upper()]


_ANCHORS: dict[Where, str] = {
    "error": "{}",
    "start": r"^(?:\[[^\]\n]{1,60}\]:?\s?){0,3}[\[(*]{0,2}(?:{})",
    "line": r"^(?:{})\s*[.!]?$",
    "prompt": r"^(?:{})\s*$",
    "tool": r"^(?:{})\s*[.!]?$",
}


def bad_pattern(wording: Wording) -> str:
    """Why RE2 does not take a wording's pattern; "" if it does."""
    try:
        re2.compile(_source(wording.pattern, "error"), options=_quiet())
    except re2.error as fault:
        said = fault.args[0] if fault.args else str(fault)
        return said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    return ""


def _quiet() -> Any:
    options = re2.Options()
    options.log_errors = False  # RE2 would write to stderr by itself
    options.max_mem = 64 << 20
    return options


def _source(pattern: str, where: Where) -> str:
    return "(?ims)" + _ANCHORS[where].replace("{}", pattern.strip().replace(" ", r"\s+"))


class Catalogue:
    """Compiled wordings, the user's before ours. Bad patterns are left out and kept in `faults`."""

    def __init__(
        self, wordings: Iterable[tuple[str, Wording]], packaged: Iterable[tuple[str, Wording]] = ()
    ) -> None:
        """Takes pairs of file name and wording. The packaged ones are checked by our tests, not
        once more at each start."""
        self.wordings: list[Wording] = []
        self.faults: list[Fault] = []
        self._patterns: dict[Where, list[tuple[Wording, str]]] = {w: [] for w in _ANCHORS}
        self._sets: dict[Where, Any] = {}
        self._compiled: dict[str, Any] = {}
        seen: set[str] = set()
        own = [(file, wording, True) for file, wording in wordings]
        for file, wording, unchecked in (*own, *((f, w, False) for f, w in packaged)):
            fault = bad_pattern(wording) if unchecked else ""
            if fault:
                self.faults.append(Fault(file, wording.id, f"bad pattern: {fault}"))
                continue
            if wording.id in seen:
                self.faults.append(Fault(file, wording.id, "this id is used twice"))
                continue
            seen.add(wording.id)
            self.wordings.append(wording)
            for where in wording.where:
                self._patterns[where].append((wording, _source(wording.pattern, where)))

    def find(self, text: str, where: Where, agent: str | None = None) -> list[Hit]:
        """All wordings for this place that the text holds, in the order of the catalogue.

        `agent`: who speaks; wordings that belong to certain agents count only for them.
        """
        entries = self._patterns[where]
        if not entries or not text:
            return []
        if where not in self._sets:
            self._sets[where] = _search_set([source for _, source in entries])
        hits: list[Hit] = []
        for index in sorted(self._sets[where].Match(text) or ()):
            wording, source = entries[index]
            if wording.agents and agent not in wording.agents:
                continue
            hits.extend(self._hits(wording, source, text))
        return hits

    def _hits(self, wording: Wording, source: str, text: str) -> Iterable[Hit]:
        if source not in self._compiled:
            self._compiled[source] = re2.compile(source)
        for match in self._compiled[source].finditer(text):
            groups = {k: v for k, v in match.groupdict().items() if v}
            yield Hit(wording, match.start(), match.end(), match.group(0), groups)


def _search_set(sources: list[str]) -> Any:
    found = re2.Set.SearchSet(_quiet())
    for source in sources:
        found.Add(source)
    found.Compile()
    return found
