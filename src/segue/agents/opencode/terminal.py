"""opencode 1.18.33, as measured in tmux.

- Its prompt is a box with a bar (┃) at its left, closed by ╹▀▀▀; the last row in it names the mode.
- `/new` begins a new session; the row in its database is created with the first prompt. Until a
  session has begun, commands that need one do not exist, and Enter picks the nearest other one.
- Escape, pressed twice, interrupts. In the dialog for a permission, one Escape says No.
- A message that is submitted during a turn is queued.
- It starts in 3 to 10 s, and for 3 s more keys wait before they are shown.
- A paste of three lines, or of more than 150 characters, is folded.
- For 0.2 s after Enter, nothing shows that a turn is running: hence `steady_s`.
"""

import re
from collections.abc import Sequence

from segue.agents.contracts.terminal import Terminal
from segue.core.terminals.screen import PaneCapture, Screen, is_blank, is_cut, joined, padded

_BAR = "┃"
_FOOT = "╹▀▀"
_PLACEHOLDER = re.compile(r'Ask anything… ".*"?')
_FOLDED = re.compile(r"\[(?:Pasted ~\d+ lines|Image \d+|File: [^\]]*)\]")
_BUSY = re.compile(r"\besc (?:again to )?interrupt\b|\[retrying in ")
_SHELL = re.compile(r"Shell\b(?! *·)")
_ASKS = re.compile(r"┃ +△ ")
_CHOICE = re.compile(r"\benter (?:confirm|submit|toggle)\b")
_LOGO = "█▀▀█ █▀▀█"
_PAD = 3  # the bar and two blanks
_SHOWN = 0.28  # of the screen: ten of forty rows were seen without scrolling


class _Box:
    """The rows of the prompt."""

    def __init__(self, lines: Sequence[str], foot: int) -> None:
        self.left = lines[foot].index(_FOOT[0])
        width = len(lines[foot].rstrip()) - self.left
        top = foot
        while top > 0 and self._is_row(lines[top - 1]):
            top -= 1
        self.top, self.foot = top, foot
        rows = [line[self.left + _PAD :].rstrip() for line in lines[top:foot]]
        self.mode = rows[-1] if rows else ""
        self.text = rows[1:-2]  # an empty row above and below
        self.room = width - 2 * _PAD + 1

    def _is_row(self, line: str) -> bool:
        # A list of commands above it also has a bar on its right.
        row = line.rstrip()
        return row.find(_BAR) == self.left and not row.endswith(_BAR, self.left + 1)


def _box(lines: Sequence[str]) -> _Box | None:
    for foot in range(len(lines) - 1, -1, -1):
        if lines[foot].lstrip().startswith(_FOOT):
            box = _Box(lines, foot)
            return box if box.text and box.mode else None
    return None


def _read(shown: PaneCapture) -> Screen:
    lines = shown.lines
    if is_blank(lines):
        return Screen("starting")
    box = _box(lines)
    if box is None:
        asks = any(_ASKS.search(line) or _CHOICE.search(line) for line in lines)
        return Screen("dialog" if asks else "unknown")
    x, y = shown.cursor
    first = box.left + _PAD
    if not (box.top < y < box.foot and x >= first):
        # A list covers the screen, with its own input line; Escape closes it.
        return Screen("dialog", is_harmless=True)
    footer = " ".join(lines[box.foot + 1 :])
    draft = _draft(box, shown.cursor)
    pasted = bool(_FOLDED.search(draft)) or is_cut(len(box.text), len(lines), _SHOWN)
    if _BUSY.search(footer):
        return Screen("busy", draft=draft, pasted=pasted)
    if _SHELL.match(box.mode):
        return Screen("dialog", draft=f"!{draft}")
    is_fresh = any(_LOGO in line for line in lines[: box.top])
    return Screen("idle", draft=draft, pasted=pasted, is_fresh=is_fresh)


def _draft(box: _Box, cursor: tuple[int, int]) -> str:
    column, row = cursor[0] - box.left - _PAD, cursor[1] - box.top - 1
    draft = joined(padded(box.text, row, column), box.room)
    return "" if column == row == 0 and _PLACEHOLDER.fullmatch(draft) else draft


def _resumed(program: str, session_id: str, prompt: str, flags: Sequence[str]) -> tuple[str, ...]:
    return (program, *flags, "--session", session_id)  # it accepts no --prompt with this


def _new_argv(program: str, prompt: str, flags: Sequence[str]) -> tuple[str, ...]:
    return (program, *flags, *([f"--prompt={prompt}"] if prompt else []))


TERMINAL = Terminal(
    agent="opencode",
    read=_read,
    clear="/new",
    interrupt=("Escape", "Escape"),
    dismiss=("Escape",),
    erase=("C-e", "C-u", "C-k"),
    steady_s=0.6,
    resume_argv=_resumed,
    new_argv=_new_argv,
    resumes_with_prompt=False,
    kept_flags={
        "--agent": 1,
        "--auto": 0,
        "--hostname": 1,
        "--log-level": 1,
        "-m": 1,
        "--model": 1,
        "--port": 1,
        "--print-logs": 0,
        "--pure": 0,
    },
)
