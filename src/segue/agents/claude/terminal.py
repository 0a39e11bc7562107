"""Claude Code 2.1.325, as measured in tmux.

- The prompt box is between two rules; the conversation is above it, and hints are below it.
- `/clear` begins a new session within 0.1 s: the pid file has its id at once, and its file exists.
  The process remains.
- Escape interrupts, kills the tool, and then sends the queued messages. A message that is submitted
  during a turn is queued and reaches the model after the running tool.
- Ctrl+U deletes a (shown) line to its start, Ctrl+K the line break after it.
- A paste of four lines or of more than 800 characters is folded. Enter may follow at once.
- Escape also cancels the agent's plan to continue after a limit, and says No to a permission.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

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

_PROMPT = re.compile(r"(?:❯|!)(?:[\xa0 ]|$)")
_SHELL = "!"  # whatever is typed there runs as a command
_RULE = "───"
_MENU = "▔▔▔"
_SPINS = re.compile(r"[·✢✳✶✻✽*] \S.*(?:…(?: |$)|Retrying in )")
_BUSY_HINT = "esc to interrupt"
_FOLDED = re.compile(r"\[(?:Pasted text|Image) #\d+[^\]]*\]")
_LOGO = re.compile(r"Claude Code v\d")
_CONTINUES = re.compile(r"Continuing (?:automatically at (.+?)|shortly) · Esc to cancel")
_QUESTION = re.compile(r"(?i)\besc to (?:cancel|close|clear|go back)|enter to (?:confirm|continue)")
_VIEW = "Showing detailed transcript"
_INDENT = 2
_LOOK_UP = 24  # how far above the box its spinner may be, with tips and todos in between


def _box(lines: Sequence[str], cursor: tuple[int, int]) -> tuple[int, int] | None:
    """The lines above and below the prompt, if the cursor is between them."""
    rules = [place for place, line in enumerate(lines) if line.startswith(_RULE)]
    for top, bottom in pairwise(rules):
        if top < cursor[1] < bottom and _PROMPT.match(lines[top + 1]):
            return top, bottom
    return None


def _draft(rows: Sequence[Ink], shown: PaneCapture, first: int) -> str:
    x, y = shown.cursor
    texts = [typed(row, _INDENT).rstrip() for row in rows]
    texts = padded(texts, y - first, x - _INDENT)
    return joined(texts, shown.width - 2 * _INDENT)


def _is_busy(lines: Sequence[str], top: int, bottom: int) -> bool:
    if any(_BUSY_HINT in line for line in lines[bottom + 1 :]):
        return True
    # With a draft, the hint is missing.
    for place, line in upward(lines, top):
        if line.startswith(("●", "❯")) or place < top - _LOOK_UP:
            return False
        if _SPINS.match(line):
            return True
    return False


def _is_fresh(lines: Sequence[str], top: int) -> bool:
    """Whether the logo is shown with at most the clearing command below it."""
    logo = next((place for place, line in enumerate(lines[:top]) if _LOGO.search(line)), None)
    if logo is None:
        return False
    entries = [line for line in lines[logo:top] if line.startswith(("❯", "●", "✻"))]
    return all(line.split() == ["❯", "/clear"] for line in entries)


def _read(shown: PaneCapture) -> Screen:
    lines = shown.lines
    box = _box(lines, shown.cursor)
    if box is None:
        return _no_box(lines)
    top, bottom = box
    rows = ink(shown.styled)[top + 1 : bottom]
    draft = _draft(rows, shown, top + 1)
    if lines[top + 1].startswith(_SHELL):
        return Screen("dialog", draft=_SHELL + draft)
    pasted = bool(_FOLDED.search(draft)) or is_cut(len(rows), len(lines))
    if _is_busy(lines, top, bottom):
        return Screen("busy", draft=draft, pasted=pasted)
    continues = _CONTINUES.search("\n".join(lines[bottom + 1 :]))
    return Screen(
        "idle",
        draft=draft,
        pasted=pasted,
        is_fresh=_is_fresh(lines, top),
        continues_at=(continues[1] or "shortly") if continues else "",
    )


def _no_box(lines: Sequence[str]) -> Screen:
    if is_blank(lines):
        return Screen("starting")
    if any(line.startswith(_MENU) for line in lines):
        # Its menus (models, settings, help, rewind), which Escape leaves without a change.
        return Screen("dialog", is_harmless=True)
    is_question = any(line.startswith(_RULE) for line in lines) and any(
        _QUESTION.search(line) or line.lstrip().startswith(_VIEW) for line in lines
    )
    return Screen("dialog" if is_question else "unknown")


def _resumed(program: str, session_id: str, prompt: str, flags: Sequence[str]) -> tuple[str, ...]:
    return (program, *flags, "--resume", session_id, *(["--", prompt] if prompt else []))


def _new_argv(program: str, prompt: str, flags: Sequence[str]) -> tuple[str, ...]:
    return (program, *flags, *(["--", prompt] if prompt else []))


TERMINAL = Terminal(
    agent="claude",
    read=_read,
    clear="/clear",
    interrupt=("Escape",),
    dismiss=("Escape",),
    cancel_continue=("Escape",),
    erase=("C-e", "C-u", "C-k"),
    resume_argv=_resumed,
    new_argv=_new_argv,
    kept_flags={
        "--add-dir": -1,
        "--agent": 1,
        "--agents": 1,
        "--allow-dangerously-skip-permissions": 0,
        "--allowedTools": -1,
        "--allowed-tools": -1,
        "--append-system-prompt": 1,
        "--autocompact": 1,
        "--betas": -1,
        "--chrome": 0,
        "--dangerously-skip-permissions": 0,
        "--disable-slash-commands": 0,
        "--disallowedTools": -1,
        "--disallowed-tools": -1,
        "--effort": 1,
        "--fallback-model": 1,
        "--ide": 0,
        "--mcp-config": -1,
        "--model": 1,
        "--no-chrome": 0,
        "--permission-mode": 1,
        "--plugin-dir": 1,
        "--safe-mode": 0,
        "--setting-sources": 1,
        "--settings": 1,
        "--strict-mcp-config": 0,
        "--system-prompt": 1,
        "--tools": -1,
        "--verbose": 0,
    },
)
