"""Conversations for people and for programs: messages in full, and each tool call on one line."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from segue.runs.legs.words import Utterance
from segue.views import printing
from segue.views.run.block import clean, cut
from segue.views.verdicts import iso

_COLOURS = {"you": "cyan", "segue": "magenta", "agent": "green", "note": "yellow"}
_TOOL_COLUMNS = 100


def lines(utterances: Sequence[Utterance]) -> Iterator[str]:
    """A conversation, for `printing.say`."""
    return TranscriptLines().of(utterances)


class TranscriptLines:
    """Makes lines from a conversation that comes in pieces, in order."""

    def __init__(self) -> None:
        self._before = self._speaker = ""

    def of(self, utterances: Sequence[Utterance]) -> Iterator[str]:
        """The next lines, for `printing.say`."""
        for each in utterances:
            if each.who == "result":  # the tool itself was shown when it began
                if each.result not in ("", "done"):
                    yield printing.style(f"    ({each.result})", dim=True)
                continue
            if each.who == "tool":
                result = f"  ({each.result})" if each.result not in ("", "done") else ""
                what = cut(f"{clean(each.tool)}: {clean(each.text)}", _TOOL_COLUMNS)
                yield printing.style(f"  ▸ {what}{result}", dim=True)
            else:
                if self._before:
                    yield ""
                if each.who != self._speaker:  # not again after the speaker's own tool calls
                    yield printing.style(each.who, fg=_COLOURS[each.who], bold=True)
                self._speaker = each.who
                yield from (f"  {line}".rstrip() for line in each.text.strip().splitlines())
            self._before = each.who


def as_list(utterances: Sequence[Utterance]) -> list[dict[str, Any]]:
    """A conversation, for JSON."""
    return [{**msgspec.to_builtins(each), "at": iso(each.at)} for each in utterances]
