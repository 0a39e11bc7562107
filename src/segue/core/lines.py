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
    remaining: list[str] = []
    for line in reversed(lines) if keeps_end else lines:
        room -= len(line) + 1
        if room < 0:
            break
        remaining.append(line)
    missing = len(lines) - len(remaining)
    if not any(line.strip() for line in remaining):
        return "", len(lines)
    note = LEFT_OUT.format(count_of(missing))
    return "\n".join([note, *reversed(remaining)] if keeps_end else [*remaining, note]), missing
