"""The only code that prints to the terminal: everything a command prints goes through here, and
anything from outside is made harmless on the way (`core/terminals/visible`). segue marks its own
styles with a value that nobody else can know, so callers need not remember where a text came
from.

tests/views/test_printing.py refuses any other way to print.
"""

import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TextIO

import click

from segue.core.lazy_pattern import lazy_pattern
from segue.core.terminals.visible import one_line, to_json, visible

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment
    from rich.text import Text

    from segue.views.out import Out

__all__ = [
    "cell", "choose", "complain", "confirm", "console", "draw", "fail", "one_line", "painted",
    "pick", "progress", "rendered", "say", "say_json", "style", "visible", "width", "with_schema",
]  # fmt: skip

SCHEMA = 1
_MARK = f"\x1b[{int.from_bytes(os.urandom(6), 'big')}m"
_MARKED = lazy_pattern(re.escape(_MARK) + r"(\x1b\[[0-9;]*m)")
_PAINT = lazy_pattern(r"\x1b\[[0-9;]{1,20}m")
_USUAL_WIDTH = 80
_MAX_WIDTH = 1_000
_PIPE_WIDTH = 400
_terminals: dict[int, "Out"] = {}


def say(
    text: object = "", *, err: bool = False, nl: bool = True, color: bool | None = None
) -> None:
    """Prints text of one or several lines, any part of which may be foreign. Output to stderr is
    dropped if that is a terminal that nobody reads: no run waits for it."""
    shown = rendered(str(text))
    if err and sys.stderr is not None and _is_terminal(sys.stderr):
        _say_to_terminal(click.unstyle(shown) if color is False else shown, nl=nl)
    else:
        click.echo(shown, err=err, nl=nl, color=color)


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def _say_to_terminal(text: str, *, nl: bool) -> None:
    from segue.views.out import STALL_S, Out

    stream = sys.stderr
    stream.flush()
    out = _terminals.setdefault(stream.fileno(), Out(stream))
    out.write_text(f"{text}\n" if nl else text, must=False)
    out.finish(STALL_S)


def complain(line: object) -> None:
    """Prints a warning on stderr, in one line."""
    say(f"segue: {one_line(str(line))}", err=True)


def fail(lines: Iterable[str]) -> None:
    """Prints on stderr why the command stops: one line, and those that belong to it."""
    for place, line in enumerate(lines):
        say(one_line(line) if place else f"segue: {one_line(line)}", err=True)


def say_json(value: dict[str, Any]) -> None:
    """Prints an object on stdout, as one line of JSON with its schema number."""
    say(to_json(with_schema(value)))


def with_schema(value: dict[str, Any]) -> dict[str, Any]:
    """The object with the schema number, which increases when a field changes its meaning."""
    return value if "schema" in value else {"schema": SCHEMA, **value}


def confirm(question: str) -> bool:
    """The user's yes or no, asked on stderr."""
    return click.confirm(one_line(question), err=True)


def choose(question: str, options: Sequence[str]) -> str:
    """The user's choice, asked on stderr."""
    chosen: str = click.prompt(
        one_line(question), type=click.Choice(list(options)), show_choices=False, err=True
    )
    return chosen


def pick(question: str, count: int) -> int:
    """The number that the user chooses, from 1 to `count`, asked on stderr; 0 for none."""
    chosen: int = click.prompt(
        one_line(question), type=click.IntRange(0, count), default=0, show_default=False, err=True
    )
    return chosen


def style(text: str, **how: Any) -> str:
    """The text in segue's own style, for `say`; takes the arguments of `click.style`."""
    begin, _, end = click.style("|", **how).partition("|")
    return painted(begin) + text + painted(end)


def rendered(text: str) -> str:
    """What `say` prints on a terminal: the text made visible, with segue's own styles."""
    if "\x1b" not in text:
        return visible(text)
    parts = _MARKED.split(text)
    return "".join(part if place % 2 else visible(part) for place, part in enumerate(parts))


def cell(text: str, style: str = "") -> "Text":
    """Text for a table, in one line."""
    from rich.text import Text

    return Text(one_line(text), style=style)


def width(*, stderr: bool = False) -> int:
    """The columns of the terminal; `COLUMNS` takes precedence if it is valid."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isascii() and columns.isdigit() and len(columns) < 6 and int(columns):
        return min(int(columns), _MAX_WIDTH)
    try:
        stream = sys.stderr if stderr else sys.stdout
        found = os.get_terminal_size(stream.fileno()).columns
    except (AttributeError, OSError, ValueError):
        found = 0
    return min(found, _MAX_WIDTH) or _USUAL_WIDTH


def console(*, stderr: bool = False) -> "Console":
    """A console of rich: in a terminal's width and colours, or for a pipe without colours and wide
    enough for any table. It never interprets data as markup, and makes it harmless as `visible`
    does."""
    from rich.console import Console
    from rich.segment import Segment

    class Screen(Console):
        def render(
            self, renderable: "RenderableType", options: "ConsoleOptions | None" = None
        ) -> "Iterable[Segment]":
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else visible(text), style, control)

    given: dict[str, Any] = {"stderr": stderr, "highlight": False, "markup": False, "emoji": False}
    plain = Screen(**given, width=_PIPE_WIDTH)
    if plain.is_terminal:
        return Screen(**given, width=width(stderr=stderr))
    return Screen(**given, width=_PIPE_WIDTH, color_system=None)


def draw(screen: "Console", drawn: Any) -> None:
    """Prints what rich draws, without trailing blanks."""
    with screen.capture() as caught:
        screen.print(drawn)
    for line in caught.get().splitlines():
        click.echo(line.rstrip(), color=screen.is_terminal or None)


def progress(label: str, length: int) -> Any:
    """A progress bar on stderr, as a context; its `update` takes the increment."""
    return click.progressbar(length=length, label=visible(label), file=sys.stderr)


def painted(line: str) -> str:
    """A line from segue's own daemon, for `say`: its plain colours count as segue's."""
    return _PAINT.sub(lambda code: _MARK + code[0], line)
