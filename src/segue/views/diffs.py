"""Changed files and patches, for people."""

from collections.abc import Sequence

from segue.system.git.snapshots import FileDiff
from segue.views import printing
from segue.views.run.block import clean, counted

_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def styled(line: str) -> str:
    """A line of a patch in its colour, for `printing.say`."""
    if line.startswith(("+++ ", "--- ", "diff ", "index ")):
        return printing.style(line, bold=True)
    colour = _COLOURS.get(line[:1])
    return printing.style(line, fg=colour) if colour else line


def counted_lines(changed: Sequence[FileDiff]) -> list[str]:
    """One line per file, and a last one with the total."""
    lines = [f"{count(each):>12}  {clean(each.path)}" for each in changed]
    return [*lines, total(changed)]


def total(changed: Sequence[FileDiff]) -> str:
    """ "3 files changed, +12 −4"."""
    added = sum(each.added or 0 for each in changed)
    removed = sum(each.removed or 0 for each in changed)
    return f"{counted(len(changed), 'file')} changed, +{added:,} −{removed:,}"


def count(each: FileDiff) -> str:
    """For example "+12 −4"; "binary" for a file that is not text."""
    return "binary" if each.added is None else f"+{each.added:,} −{each.removed or 0:,}"
