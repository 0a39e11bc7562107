"""Acts in a tmux pane only if nobody else did since the last look, and holds back the user's keys
while text from segue is in the input line.

tmux does one thing after the other, so nothing can happen between a condition and the actions that
depend on it if both are in one command. The condition covers everything that must not have changed,
including when the clients that show the pane last pressed a key. A key that tmux has not read yet
comes after what is done here, and so reaches the program later.

To hold back keys, the user's client gets a key table in which every key first waits: tmux
handles a client's keys one by one, so the keys behind it wait too, and none is lost or
overtaken. This ends when `release` is called. It also ends by itself, even if this process is
gone: no key begins to wait after HOLD_S, and a waiting key proceeds HOLD_S after it was pressed,
with all keys behind it.
"""

import contextlib
import math
import re
import secrets
import time
from collections.abc import Sequence

from msgspec import Struct

from segue.core.terminals.screen import PaneCapture
from segue.system.tmux.tmux import Pane, Tmux, TmuxError, checked

HOLD_S = 4.0
_POLL_S = 0.05
_ECHO_S = 0.5
_DONE = "done"
_CLIENT = re.compile(r"[\w/.:@-]+")


class PaneStatus(Struct, frozen=True):
    """The properties of a pane that must stay the same."""

    flags: str  # dead, in a mode, panes synchronized, input off: "0000"
    attached: str  # how many clients show it
    keys: str  # when they last pressed a key: "1794818880;"
    late: str  # "1" once keys that were held back were delivered
    command: str  # what is in the foreground
    ours: str  # what segue last inserted without sending it: see `Guard.mark`
    cursor: tuple[int, int] = (0, 0)

    @property
    def line(self) -> str:
        """The state as tmux compares it. Nothing in it has a meaning in a format."""
        return "|".join((self.flags, self.attached, self.keys, self.late, self.command))

    def quiet_s(self, now: float) -> float:
        """Seconds since the last key; infinite if no client shows the pane."""
        times = [int(word) for word in self.keys.split(";") if word.isdecimal()]
        is_watched = any(word.strip("0") for word in self.attached.split(";"))
        # A time in the future: the clock was set back.
        return abs(now - max(times)) if times and is_watched else math.inf


class PaneGuard:
    """One pane, while one text is typed. Methods may raise a TmuxError."""

    def __init__(self, tmux: Tmux, pane: Pane) -> None:
        self.tmux = tmux
        self.pane = checked(pane.id)
        self._hold = ""  # the name of the key table
        self._began: PaneStatus | None = None
        # Of every session whose current pane is this one.
        here = f"#{{S:#{{W:,#{{?#{{==:#{{pane_pid}},{pane.pid}}},#{{%s}};,}}}}}}"
        self._form = "|".join(
            (
                "#{pane_dead}#{pane_in_mode}#{pane_synchronized}#{pane_input_off}",
                here % "session_attached",
                "#{?@segue_held,held," + here % "session_activity" + "}",
                "#{@segue_late}",
                "#{s/[^A-Za-z0-9._-]/_/:pane_current_command}",
            )
        )

    def look(self) -> tuple[PaneCapture, PaneStatus]:
        """What the pane shows, and the state that must not change afterwards."""
        shown, variables = self.tmux.capture_with(self.pane, self._form + "|#{@segue_text}")
        fields = variables.split("|")
        if len(fields) != 6:
            raise TmuxError("tmux: its formats are not understood (3.2 or newer is needed)")
        flags, attached, keys, late, command, ours = fields
        return shown, PaneStatus(flags, attached, keys, late, command, ours, shown.cursor)

    def reset(self) -> None:
        """Clears what an earlier guard left behind. Must be called before the first look."""
        for name in ("@segue_hold", "@segue_held", "@segue_late"):
            self.tmux.run("set-option", "-p", "-q", "-u", "-t", self.pane, name)

    def begin(self, status: PaneStatus) -> None:
        """Actions from now on are carried out only while the state is unchanged."""
        self._began = status

    def is_intact(self, status: PaneStatus) -> bool:
        """Whether no key was delivered since `begin`."""
        began = self._began
        return began is not None and status.line in (began.line, _as_held(began).line)

    def act(self, *commands: str, cursor: tuple[int, int] | None = None) -> bool:
        """Carries out tmux commands, all at once, if nothing has changed since the beginning and
        the cursor is there. Returns whether it did."""
        if self._began is None:
            return False
        same = [f"#{{==:{self._form},{m.line}}}" for m in (self._began, _as_held(self._began))]
        condition = f"#{{||:{same[0]},{same[1]}}}"
        if cursor is not None:
            where = f"#{{==:#{{cursor_x}} #{{cursor_y}},{cursor[0]} {cursor[1]}}}"
            condition = f"#{{&&:{condition},{where}}}"
        then = " ; ".join((*commands, f"display-message -p {_DONE}"))
        out = self.tmux.run("if-shell", "-F", "-t", self.pane, condition, then)
        return out.strip() == _DONE

    def holding(self) -> list[str] | None:
        """Prepares a hold, and returns the commands that begin it, for the next `act`. None if the
        user is in the middle of one of tmux's own key sequences."""
        form = "#{client_name}|#{client_key_table}|#{key-table}|#{pane_id}"
        form += "|#{client_readonly}#{client_control_mode}"
        names = []
        for line in self.tmux.run("list-clients", "-F", form).splitlines():
            name, table, usual, pane, flags = (*line.split("|"), *("",) * 5)[:5]
            if pane != self.pane or flags != "00":
                continue
            if table != usual and not table.startswith("segue-"):
                return None
            if _CLIENT.fullmatch(name):
                names.append(name)
        if not names:
            return []
        table = f"segue-{secrets.token_hex(6)}"
        self._hold = table
        self.tmux.run_all(
            ("bind-key", "-T", table, "Any", self._held_key_command(table, alone=len(names) == 1)),
            # In case nothing begins it.
            ("run-shell", "-b", "-d", str(2 * HOLD_S), "-C", f"unbind-key -a -q -T {table}"),
        )
        return [
            f'set-option -p -t "{self.pane}" @segue_hold {table}',
            *(f'switch-client -c "{name}" -T {table}' for name in names),
            # In case nothing releases it. This waits behind keys that are held back, so those end
            # by themselves.
            f'run-shell -b -d {HOLD_S} -C "unbind-key -a -q -T {table}"',
        ]

    def release(self) -> None:
        """Releases the user's keys. May be called at any time, and repeatedly."""
        table, self._hold = self._hold, ""
        if not table:
            return
        for command in (
            ("set-option", "-p", "-q", "-u", "-t", self.pane, "@segue_hold"),
            ("unbind-key", "-a", "-q", "-T", table),
        ):
            with contextlib.suppress(TmuxError):
                self.tmux.run(*command)
        with contextlib.suppress(TmuxError):
            # "0" too, so that the next look sees what was delivered
            if self._option_value("@segue_held"):
                until = time.monotonic() + _ECHO_S
                while time.monotonic() < until and not self._option_value("@segue_late"):
                    time.sleep(_POLL_S / 5)
                time.sleep(_POLL_S * 2)

    def mark(self, digest: str) -> str:
        """The command that records whose text is in the input line now; "": nobody's."""
        if not digest or self._began is None:
            return f'set-option -p -q -u -t "{self.pane}" @segue_text'
        return f'set-option -p -t "{self.pane}" @segue_text "{note(digest, self._began)}"'

    def press(self, names: Sequence[str]) -> str:
        """The command that presses keys."""
        return f'send-keys -t "{self.pane}" ' + " ".join(names)

    def put(self, buffer: str, *, bracketed: bool) -> str:
        """The command that inserts a buffer's text, once."""
        flag = "-p" if bracketed else ""
        return f'paste-buffer -d -r {flag} -b {buffer} -t "{self.pane}"'

    def _option_value(self, option: str) -> str:
        form = f"#{{{option}}}"
        return self.tmux.run("display-message", "-p", "-t", self.pane, form).strip()

    def _held_key_command(self, table: str, *, alone: bool) -> str:
        """What a user's key does meanwhile. With several clients, a key that is held back says
        nothing about those of the others, so it counts as delivered."""
        here = f'-t "{self.pane}"'
        wait = f'if-shell -F {here} "#{{==:#{{@segue_hold}},{table}}}" "run-shell -d {_POLL_S}"'
        return " ; ".join(
            (
                f"set-option -p {here} @segue_held {int(alone)}",
                *(wait,) * round(HOLD_S / _POLL_S),
                f"set-option -p {here} @segue_late 1",
                f"send-keys {here}",
            )
        )


def note(digest: str, status: PaneStatus) -> str:
    """The value of a pane's option while a text of segue's is in its input line: which text, and
    when the user had last pressed a key."""
    return f"{digest}/{status.keys.replace(';', '.')}"


def _as_held(status: PaneStatus) -> PaneStatus:
    return PaneStatus(
        status.flags, status.attached, "held", status.late, status.command, status.ours
    )
