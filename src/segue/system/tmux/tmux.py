"""tmux through its command line: its panes, their content, and keys for them.

Everything is passed as arguments, never as shell text; texts go in through buffers, so that
nothing in them is ever read as a command, a key or a format. `typist` decides what may be typed,
and when.
"""

import math
import os
import re
import secrets
import subprocess
import time
from collections.abc import Mapping, Sequence

from msgspec import Struct

from segue.core.terminals.screen import PaneCapture
from segue.core.terminals.visible import one_line
from segue.errors import SegueError

PATIENCE_S = 5.0
_PANE = re.compile(r"%[0-9]+")
_KEY = re.compile(r"[A-Za-z0-9-]+")
_FIELDS = (
    *("pane_id", "pane_pid", "pane_tty", "pane_dead", "pane_in_mode", "pane_width"),
    *("pane_height", "alternate_on", "session_name", "pane_current_command", "pane_current_path"),
)


class TmuxError(SegueError):
    """tmux is missing, does not respond, or refuses. One line."""


class Pane(Struct, frozen=True, kw_only=True):
    """The state of a pane."""

    id: str  # "%5"
    pid: int  # of the first process in it, usually a shell
    tty: str
    dead: bool  # its process has ended, and it was set to remain
    in_mode: bool  # copy mode, or another one in which keys do not reach the program
    command: str  # the foreground program
    width: int
    height: int
    cwd: str
    session: str
    alternate: bool


class Tmux:
    """One server. Every method may raise a TmuxError."""

    def __init__(self, socket: str = "") -> None:
        self.socket = socket  # "": the user's default server
        # Without TMUX, which would lead to the server that this process itself is in.
        self._env = {k: v for k, v in os.environ.items() if k not in ("TMUX", "TMUX_PANE")}

    def run(self, *arguments: str, input: bytes = b"") -> str:
        """Runs one command; returns its output."""
        return self._call([arguments], input)

    def run_all(self, *commands: Sequence[str]) -> str:
        """Runs several commands at once; returns their output."""
        return self._call(commands)

    def _call(self, commands: Sequence[Sequence[str]], input: bytes = b"", cwd: str = ".") -> str:
        """Runs several commands, with no other client's commands in between."""
        argv = ["tmux", "-u", *(("-S", self.socket) if self.socket else ())]
        for number, command in enumerate(commands):
            argv += [";"] if number else []
            # A semicolon at the end of an argument would separate commands.
            argv += [a[:-1] + "\\;" if a.endswith(";") else a for a in command]
        try:
            done = subprocess.run(  # noqa: S603
                argv, input=input, capture_output=True, timeout=PATIENCE_S, env=self._env, cwd=cwd
            )
        except subprocess.TimeoutExpired:
            raise TmuxError(f"tmux does not respond: {commands[0][0]}") from None
        except (OSError, ValueError) as error:
            raise TmuxError(f"tmux cannot be run: {error}") from None
        if done.returncode != 0:
            errors = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise TmuxError(f"tmux: {errors[0] if errors else commands[0][0] + ' failed'}")
        return done.stdout.decode("utf-8", "replace")

    # Queries

    def panes(self) -> list[Pane]:
        """All panes of all sessions, each once."""
        return list({pane.id: pane for pane in self._list("-a")}.values())

    def pane(self, id: str) -> Pane | None:
        """None if it or its whole server is gone."""
        try:
            found = self._list("-t", checked(id))  # all panes of its window
        except TmuxError:
            return None
        return next((pane for pane in found if pane.id == id), None)

    def _list(self, *which: str) -> list[Pane]:
        # Paths and names may contain anything but this.
        mark = f"<{secrets.token_hex(8)}>"
        form = mark.join(f"#{{{name}}}" for name in _FIELDS) + mark * 2
        records = self.run("list-panes", *which, "-F", form).split(mark * 2 + "\n")
        fields = [record.split(mark) for record in records]
        return [_pane(each) for each in fields if len(each) == len(_FIELDS)]

    def capture(self, pane: str) -> PaneCapture:
        """What it shows now."""
        return self.capture_with(pane, "")[0]

    def capture_with(self, pane: str, form: str) -> tuple[PaneCapture, str]:
        """What it shows, and the value of a one-line tmux format at the same time."""
        target = ("-t", checked(pane))
        sizes = "#{cursor_x} #{cursor_y} #{pane_width} #{pane_height} #{alternate_on} "
        asked = ("display-message", "-p", *target, sizes + form)
        plain, styled = ("capture-pane", "-p", *target), ("capture-pane", "-p", "-e", *target)
        first, _, rest = self._call([asked, plain, styled]).partition("\n")
        try:
            x, y, width, height, alternate = map(int, first.split(" ", 5)[:5])
        except ValueError:
            raise TmuxError(f"tmux: {pane} is not shown") from None
        lines = tuple(rest.split("\n"))
        halves = lines[:height], lines[height : 2 * height]
        shown = PaneCapture(*halves, cursor=(x, y), width=width, alternate=bool(alternate))
        return shown, first.split(" ", 5)[5]

    def shell_line(self, pane: str) -> str:
        """The cursor's line: a shell's prompt and what is typed after it."""
        shown = self.capture(pane)
        return "".join(shown.lines[shown.cursor[1] :][:1]).rstrip()

    def active_s(self, pane: str) -> float:
        """Time since the last key of a client that shows this pane, in whole seconds; infinite if
        none does."""
        form = "#{pane_id} #{client_activity}"
        clients = (line.split() for line in self.run("list-clients", "-F", form).splitlines())
        latest = [
            int(words[1]) for words in clients if words[:1] == [pane] and words[1].isdecimal()
        ]
        return time.time() - max(latest) if latest else math.inf

    # Actions

    def show_message(self, pane: str, text: str, *, shown_s: float) -> None:
        """Shows a line, for this long or until a key is pressed, to every client that shows the
        pane. The key still reaches the program."""
        window = self.run("display-message", "-p", "-t", checked(pane), "#{window_id}").strip()
        mark = f"<{secrets.token_hex(8)}>"
        form = f"#{{client_name}}{mark}#{{window_id}}{mark}"
        clients = (line.split(mark) for line in self.run("list-clients", "-F", form).splitlines())
        # It is a format for tmux and for times: both have one special character.
        plain = one_line(text).replace("#", "##").replace("%", "%%")
        for client in [words[0] for words in clients if words[1:2] == [window]]:
            how = ("-c", client, "-d", str(round(shown_s * 1000)))
            self.run("display-message", *how, "--", plain)

    def set_pane_option(self, pane: str, name: str, value: str) -> None:
        """Sets an option of that pane only."""
        self.run("set-option", "-p", "-t", checked(pane), name, one_line(value))

    def unset_pane_option(self, pane: str, name: str) -> None:
        """Removes an option of that pane."""
        self.run("set-option", "-p", "-u", "-t", checked(pane), name)

    def load(self, name: str, text: str) -> None:
        """Stores a text in a buffer with that name."""
        self.run("load-buffer", "-b", name, "-", input=text.encode("utf-8", "replace"))

    def paste(self, pane: str, text: str, *, bracketed: bool = True) -> None:
        """Inserts a text as it is; as a paste, if the program requested to be told of pastes."""
        name = f"segue-{secrets.token_hex(8)}"
        self.load(name, text)
        how = "-drp" if bracketed else "-dr"
        self.run("paste-buffer", how, "-b", name, "-t", checked(pane))

    def literal(self, pane: str, text: str) -> None:
        """Inserts a text as if it were typed."""
        self.paste(pane, text, bracketed=False)

    def keys(self, pane: str, *names: str) -> None:
        """Presses keys, by their tmux names."""
        self.run("send-keys", "-t", checked(pane), "--", *map(key, names))

    def new_window(
        self, cwd: str, argv: Sequence[str], env: Mapping[str, str], name: str, session: str = ""
    ) -> str:
        """Opens a window in the background that runs this command; returns its pane. No shell
        parses it."""
        # A single argument would be parsed by a shell.
        direct = tuple(argv) if len(argv) > 1 else ("sh", "-c", 'exec "$0"', *argv)
        given = [part for pair in env.items() for part in ("-e", "=".join(pair))]
        where = ("-t", f"={session}:") if session else ()
        shown = re.sub(r"[^\w .-]", "-", name)  # a name is a format, too
        # The folder is that of the call: as an argument it would be a format.
        how = ("-d", "-P", "-F", "#{pane_id}", *where, *given, "-n", shown)
        return self._call([("new-window", *how, "--", *direct)], cwd=cwd).strip()


def checked(pane: str) -> str:
    """Checks that this is a pane's id: it is also used in commands that tmux parses."""
    if not _PANE.fullmatch(pane):
        raise TmuxError(f"{pane!r} is not a pane")
    return pane


def key(name: str) -> str:
    """Checks that this is the name of a key."""
    if not _KEY.fullmatch(name):
        raise TmuxError(f"{name!r} is not a key")
    return name


def _pane(fields: Sequence[str]) -> Pane:
    values = dict(zip(_FIELDS, fields, strict=False))
    numbers = {name: int(values) if values.isdecimal() else 0 for name, values in values.items()}
    return Pane(
        id=values["pane_id"],
        pid=numbers["pane_pid"],
        tty=values["pane_tty"],
        dead=numbers["pane_dead"] > 0,
        in_mode=numbers["pane_in_mode"] > 0,
        command=values["pane_current_command"],
        width=numbers["pane_width"],
        height=numbers["pane_height"],
        cwd=values["pane_current_path"],
        session=values["session_name"],
        alternate=numbers["alternate_on"] > 0,
    )
