"""What would have to be different for another verdict. The ending is judged again with one thing
changed at a time, so every alternative shown is the real result."""

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from segue.agents.ending import Channel, Ending, judge
from segue.core.policy import Policy
from segue.core.stops.classify import Judgement
from segue.core.stops.reasons import StopReason
from segue.core.stops.text.reader import MessageReader

_CHANNELS: tuple[Channel, ...] = ("tui", "stderr", "log", "http-body", "transcript")
_EXITS = ((0, "0"), (1, "1"), (130, "130 (Ctrl+C)"), (137, "137 (killed)"))
_MAX_CHARS = 65_536  # of a longer text, only the end is tried again


class Counterfactual(Struct, frozen=True):
    """One change to what was given, and the verdict that would follow."""

    change: str
    reason: StopReason


def counterfactuals(
    ending: Ending, judgement: Judgement, reader: MessageReader, policy: Policy
) -> list[Counterfactual]:
    """The changes that lead to another reason; if several lead to the same one, the first."""
    found: dict[StopReason, Counterfactual] = {}
    for change, other in _variations(_shortened(ending), judgement):
        reason = judge(other, reader, policy).stop.reason
        if reason is not judgement.stop.reason:
            found.setdefault(reason, Counterfactual(change, reason))
    return list(found.values())


def _shortened(ending: Ending) -> Ending:
    def short(text: str) -> str:
        return text if len(text) <= _MAX_CHARS else text[-_MAX_CHARS:].partition("\n")[2]

    return replace(ending, sources=tuple(replace(s, text=short(s.text)) for s in ending.sources))


def _variations(ending: Ending, judgement: Judgement) -> Iterator[tuple[str, Ending]]:
    """The changes to try, the most likely first: without the lines that decided, as another kind of
    text, with another exit code, ended by somebody else."""
    for evidence in judgement.stop.evidence[:1]:
        without = tuple(
            replace(source, text=_without(source.text, evidence.quote))
            if evidence.where.startswith(f"{source.name}:")
            else source
            for source in ending.sources
        )
        if without != ending.sources:
            yield f"without {evidence.quote!r}", replace(ending, sources=without)
    for place, source in enumerate(ending.sources):
        for channel in _CHANNELS:
            if channel != source.channel:
                sources = list(ending.sources)
                sources[place] = replace(source, channel=channel)
                how = f"if {source.name} is {_KINDS[channel]} (--channel {channel})"
                yield how, replace(ending, sources=tuple(sources))
    for code, name in _EXITS:
        if code != ending.exit_code:
            yield f"with exit code {name}", replace(ending, exit_code=code)
    if ending.ended_by == "unknown":
        yield "if you ended it (--ended-by user)", replace(ending, ended_by="user")
        yield "if the machine ended it (--ended-by system)", replace(ending, ended_by="system")


_KINDS = {
    "tui": "a screen",
    "stderr": "what it printed as errors",
    "log": "a log",
    "http-body": "the body of a failed request",
    "transcript": "a session file",
}


def _without(text: str, quote: str) -> str:
    """A text without the lines that contain a quote, ignoring blanks and line breaks."""
    start = quote.removesuffix("…").split()[:3]
    remaining = [line for line in text.split("\n") if not _holds(line, start)]
    return "\n".join(remaining)


def _holds(line: str, words: list[str]) -> bool:
    return bool(words) and " ".join(words).casefold() in " ".join(line.split()).casefold()
