"""Codex 0.166.0, as measured in tmux.

- `/clear` begins a new session; in a git repository, `/new` asks where to run it. The new id is
  locked at once (`thread-writer-locks`); its file is created with the first prompt.
- For a quarter of a second between an answer's text and its tool, nothing shows that a turn is
  running: hence `steady_s`.
- Escape interrupts and leaves tools running in the background. With nothing to interrupt, the
  second Escape opens the transcript. In the chooser at the start (a new model), Escape confirms.
- A message that is submitted during a turn waits for the running tool.
- A paste of more than 1,000 characters is folded; lines are not counted. Enter may follow a paste
  at once; after letters that were typed fast, it is taken for a line break.
"""

import re
from collections.abc import Sequence

from segue.agents.contracts.terminal import Terminal
from segue.core.terminals.screen import (
    Ink,
    PaneCapture,
    Screen,
    ink,
    is_blank,
    is_cut,
    joined,
    padded,
    typed,
    upward,
)

_PROMPT = "›"
_BUSY = re.compile(r"[•◦*] \S.*\(.*\besc to interrupt\)")
_FOLDED = re.compile(r"\[Pasted Content \d+ chars\]|\[Image[^\]]*\]")
_LOGO = re.compile(r"OpenAI Codex \(v\d")
_LOADING = re.compile(r"\s+loading\s*$")
_HINT = re.compile(r"\b(?:enter|esc)\b.*\b(?:select|confirm|continue|cancel|back|quit)\b")
_BACK = re.compile(r"\besc back\b")
_SAID = ("›", "•", "■", "✗", "⚠")
_INDENT = 2
_RIGHT = 1  # columns that the box leaves free at its right
_LOOK_UP = 16  # how far above the prompt the busy line may be, with queued messages in between


def _box(lines: Sequence[str], cursor: tuple[int, int]) -> tuple[int, int] | None:
    """The first row of the prompt and the row after its last, if the cursor is inside."""
    x, y = cursor
    if x < _INDENT or y >= len(lines):
        return None
    top = next(
        (place for place, line in upward(lines, y + 1) if not line.startswith("  ") and line), -1
    )
    if top < 0 or not lines[top].startswith(_PROMPT):
        return None
    last = max((place for place, line in enumerate(lines) if line.strip()), default=0)
    # An empty row separates the prompt from the footer, whose first row may be empty for a moment.
    bottom = next((place for place, line in upward(lines, last) if not line.strip()), -1)
    while bottom - 1 > y and not lines[bottom - 1].strip():
        bottom -= 1
    return (top, bottom) if bottom > y else None


def _draft(rows: Sequence[Ink], shown: PaneCapture, first: int) -> str:
    x, y = shown.cursor
    texts = [typed(row, _INDENT).rstrip() for row in rows]
    texts = padded(texts, y - first, x - _INDENT)
    return joined(texts, shown.width - _INDENT - _RIGHT)


def _read(shown: PaneCapture) -> Screen:
    lines = shown.lines
    box = _box(lines, shown.cursor)
    if box is None:
        return _no_box(lines)
    top, bottom = box
    draft = _draft(ink(shown.styled)[top:bottom], shown, top)
    pasted = bool(_FOLDED.search(draft)) or is_cut(bottom - top, len(lines))
    if any(_BUSY.match(line) for line in lines[max(0, top - _LOOK_UP) : top]):
        return Screen("busy", draft=draft, pasted=pasted)
    has_logo = any(_LOGO.search(line) for line in lines[:top])
    if has_logo and any(_LOADING.match(line) for line in lines[:top]):
        return Screen("starting", draft=draft)
    is_fresh = has_logo and not any(line.startswith(_SAID) for line in lines[:top])
    return Screen("idle", draft=draft, pasted=pasted, is_fresh=is_fresh)


def _no_box(lines: Sequence[str]) -> Screen:
    if is_blank(lines):
        return Screen("starting")
    hint = next(line for line in reversed(lines) if line.strip())
    if _HINT.search(hint):
        return Screen("dialog", is_harmless=bool(_BACK.search(hint)))
    return Screen("unknown")


def _resumed(program: str, session_id: str, prompt: str, flags: Sequence[str]) -> tuple[str, ...]:
    arguments = ["--", prompt] if prompt else []
    return (program, "resume", *flags, session_id, *arguments)


def _new_argv(program: str, prompt: str, flags: Sequence[str]) -> tuple[str, ...]:
    return (program, *flags, *(["--", prompt] if prompt else []))


TERMINAL = Terminal(
    agent="codex",
    read=_read,
    clear="/clear",
    interrupt=("Escape",),
    dismiss=("Escape",),
    erase=("C-e", "C-u", "C-k"),
    steady_s=0.6,
    resume_argv=_resumed,
    new_argv=_new_argv,
    kept_flags={
        "--add-dir": 1,
        "--approve-for-me": 0,
        "-a": 1,
        "--ask-for-approval": 1,
        "-C": 1,
        "--cd": 1,
        "-c": 1,
        "--config": 1,
        "--dangerously-bypass-approvals-and-sandbox": 0,
        "--dangerously-bypass-hook-trust": 0,
        "--disable": 1,
        "--enable": 1,
        "--local-provider": 1,
        "-m": 1,
        "--model": 1,
        "--no-alt-screen": 0,
        "--no-daemon": 0,
        "--oss": 0,
        "-p": 1,
        "--profile": 1,
        "-s": 1,
        "--sandbox": 1,
        "--search": 0,
        "--strict-config": 0,
    },
)
