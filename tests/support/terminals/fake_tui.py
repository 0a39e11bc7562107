"""An agent's TUI, as small as it can be: a prompt with a dim placeholder, wrapped lines, bracketed
paste with folds, busy and dialog states. Run as a program it writes every message that is submitted
to a file, one JSON string a line; imported, it tells how to read and to talk to it.

`/busy S`, `/dialog`, `/garbage` and `/exit`, typed into it, bring it into these states.
"""

import json
import os
import re
import select
import sys
import termios
import time
import tty

TYPE_CHECKING = False  # typing itself takes longer to load than all the rest
if TYPE_CHECKING:
    from typing import Any

    from segue.agents.contracts.terminal import Terminal
    from segue.core.terminals.screen import PaneCapture, Screen

PLACEHOLDER = "Ask anything"
PASTE = (b"\x1b[200~", b"\x1b[201~")


class Tui:
    """The program."""

    def __init__(self, path: str, **options: float) -> None:
        self.path = path
        self.fold_chars = int(options.get("fold_chars", 10_000))
        self.swallow = int(options.get("swallow", 0))  # Enters that are lost, of each message
        self.deaf_s = options.get("deaf_s", 0.0)  # after a paste, an Enter is lost
        self.lag_s = options.get("lag_s", 0.0)  # before what was read is done
        self.busy_s = options.get("busy_s", 0.0)  # after each message
        self.never = bool(options.get("never", 0))  # is anything submitted
        self.ambush = bool(options.get("ambush", 0))  # a paste opens a dialog
        self.leaves = bool(options.get("leaves", 0))  # a paste ends it
        self.draft: list[str] = []  # chars, and whole pastes that are folded
        self.swallowed = 0
        self.pasted_at = 0.0
        self.busy_until = 0.0
        self.dialog = self.garbage = False
        self.waiting = b""

    def run(self) -> None:
        before = termios.tcgetattr(0)
        tty.setraw(0)
        os.write(1, b"\x1b[?2004h")
        try:
            while True:
                self.draw()
                left_s = self.busy_until - time.monotonic()
                if not select.select([0], [], [], left_s if left_s > 0 else None)[0]:
                    continue
                data = os.read(0, 65536)
                time.sleep(self.lag_s)
                if not data or not self.take(data):
                    return
        finally:
            os.write(1, b"\x1b[?2004l\x1b[2J\x1b[H")
            termios.tcsetattr(0, termios.TCSADRAIN, before)

    def draw(self) -> None:
        state = "busy" if time.monotonic() < self.busy_until else "idle"
        text = "".join(c if len(c) == 1 else f"[Pasted {len(c)} chars]" for c in self.draft)
        lines = [f"=== {'dialog' if self.dialog else state}"]
        if self.dialog:
            lines += ["Do you want to proceed?", "> 1. Yes", "  2. No"]
        else:
            first, *rest = text.split("\n")
            lines += ["> " + first, *("| " + line for line in rest)]
        if not text and not self.dialog:
            lines[1] = f"> \x1b[2m{PLACEHOLDER}\x1b[0m\x1b[{len(PLACEHOLDER)}D"
        if self.garbage:
            lines = ["what is this?"]
        os.write(1, ("\x1b[?25l\x1b[2J\x1b[H" + "\r\n".join(lines) + "\x1b[?25h").encode())

    def take(self, data: bytes) -> bool:
        data, self.waiting = self.waiting + data, b""
        while data:
            if data.startswith(PASTE[0]):
                text, end, rest = data[len(PASTE[0]) :].partition(PASTE[1])
                if not end:
                    self.waiting = data
                    return True
                pasted = text.decode("utf-8", "replace").replace("\r", "\n")
                if not self.dialog:
                    self.draft += [pasted] if len(pasted) > self.fold_chars else list(pasted)
                self.pasted_at, data = time.monotonic(), rest
                self.dialog = self.ambush
                if self.leaves:
                    return False
                continue
            if found := re.match(rb"\x1b\[[0-9;]*[A-Za-z~]", data):
                data = data[found.end() :]
                continue
            if PASTE[0].startswith(data) and len(data) > 1:
                self.waiting = data
                return True
            size = 1 if data[0] < 0xC0 else 2 if data[0] < 0xE0 else 3 if data[0] < 0xF0 else 4
            char, data = data[:size].decode("utf-8", "replace"), data[size:]
            if not self.key(char):
                return False
        return True

    def key(self, char: str) -> bool:
        if char == "\x1b":
            self.dialog = False
            self.busy_until = 0.0
        elif self.dialog:
            if char == "\r":
                self.write("CHOSEN")
                self.dialog = False
        elif char == "\r":
            return self.enter()
        elif char == "\x15":  # the last line
            while self.draft and self.draft[-1] != "\n":
                self.draft.pop()
            self.draft = self.draft[:-1]
        elif char == "\x7f":
            self.draft = self.draft[:-1]
        elif char in "\n\t" or char >= " ":
            self.draft.append(char)
        return True

    def enter(self) -> bool:
        if not self.draft or self.never or time.monotonic() < self.pasted_at + self.deaf_s:
            return True
        if self.swallowed < self.swallow:
            self.swallowed += 1
            return True
        text, self.draft, self.swallowed = "".join(self.draft), [], 0
        if text.startswith("/busy "):
            self.busy_until = time.monotonic() + float(text.split()[1])
        elif text in ("/dialog", "/garbage"):
            setattr(self, text[1:], True)
        elif text == "/exit":
            return False
        else:
            self.write(text)
            self.busy_until = time.monotonic() + self.busy_s
        return True

    def write(self, text: str) -> None:
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(text) + "\n")


def read(shown: "PaneCapture") -> "Screen":
    """What the screen says."""
    from segue.core.terminals.screen import Screen

    state: Any = "unknown"
    for number, line in enumerate(shown.lines):
        if line.startswith("=== "):
            state, below = line[4:], number + 1
            break
    else:
        return Screen(state="unknown" if any(shown.lines) else "starting")
    if state == "dialog":
        return Screen(state="dialog")
    if "\x1b[2m" in shown.styled[below]:
        return Screen(state=state)
    x, y = shown.cursor
    draft = ""
    for number in range(below, min(y + 1, len(shown.lines))):
        line = shown.lines[number]
        # tmux leaves out blanks at the end of a line.
        cells = x if number == y else shown.width if _goes_on(shown, number) else 0
        line += " " * (cells - _cells(line))
        if number == below:
            draft = line[2:]
        else:
            draft += "\n" + line[2:] if line.startswith("| ") else line
    return Screen(state=state, draft=draft, pasted="[Pasted " in draft)


def _goes_on(shown: "PaneCapture", number: int) -> bool:
    following = shown.lines[number + 1 : number + 2]
    return bool(following) and not following[0].startswith("| ")


def _cells(text: str) -> int:
    from unicodedata import east_asian_width

    return sum(2 if east_asian_width(char) in "WF" else 1 for char in text)


def terminal(settle_s: float = 0.1) -> "Terminal":
    """How it is talked to."""
    from segue.agents.contracts.terminal import Terminal

    return Terminal(
        agent="fake",
        read=read,
        clear="/clear",
        interrupt=("Escape",),
        dismiss=("Escape",),
        erase=("C-u",),
        settle_s=settle_s,
        resume_argv=lambda program, session_id, prompt, kept: (program, *kept),
        new_argv=lambda program, prompt, kept: (program, *kept),
    )


if __name__ == "__main__":
    Tui(sys.argv[1], **json.loads(sys.argv[2] if len(sys.argv) > 2 else "{}")).run()
