"""Texts made shorter by whole lines: half a line says something else than the line."""

LEFT_OUT = "[… {} left out …]"


def count_of(lines: int) -> str:
    """A number of lines, in words."""
    return "1 line" if lines == 1 else f"{lines:,} lines"


def shorten(text: str, max_chars: int, *, keeps_end: bool = False) -> tuple[str, int]:
    """The first lines of a text that fit (or its last ones), with a line that says how many are
    missing; and that number. "" if there is no room for any line."""
    if len(text) <= max_chars:
        return text, 0
    lines = text.split("\n")
    room = max_chars - len(LEFT_OUT.format(count_of(len(lines))))
    kept: list[str] = []
    for line in reversed(lines) if keeps_end else lines:
        room -= len(line) + 1
        if room < 0:
            break
        kept.append(line)
    missing = len(lines) - len(kept)
    if not any(line.strip() for line in kept):
        return "", len(lines)
    note = LEFT_OUT.format(count_of(missing))
    return "\n".join([note, *reversed(kept)] if keeps_end else [*kept, note]), missing
