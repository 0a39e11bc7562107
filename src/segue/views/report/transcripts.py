"""Conversations for people and for programs: words whole, tool calls folded into a line each."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from segue.reports.transcripts import Said
from segue.views import printing
from segue.views.run_block import clean, cut
from segue.views.verdicts import iso

_COLOURS = {"you": "cyan", "segue": "magenta", "agent": "green", "note": "yellow"}
_TOOL_COLUMNS = 100


def lines(said: Sequence[Said]) -> Iterator[str]:
    """For `printing.say`."""
    before = speaker = ""
    for each in said:
        if each.who == "tool":
            result = f"  ({each.result})" if each.result not in ("", "done") else ""
            what = cut(f"{clean(each.tool)}: {clean(each.text)}", _TOOL_COLUMNS)
            yield printing.style(f"  ▸ {what}{result}", dim=True)
        else:
            if before:
                yield ""
            if each.who != speaker:  # who goes on talking after a tool is named once
                yield printing.style(each.who, fg=_COLOURS[each.who], bold=True)
            speaker = each.who
            yield from (f"  {line}".rstrip() for line in each.text.strip().splitlines())
        before = each.who


def as_list(said: Sequence[Said]) -> list[dict[str, Any]]:
    """For JSON."""
    return [{**msgspec.to_builtins(each), "at": iso(each.at)} for each in said]
