"""Configures the tmux of `segue open` so that nobody notices it: no status line, no prefix, keys
and the mouse for the agent, colours, titles and the clipboard for the terminal outside."""

import re
from collections.abc import Mapping

DETACH_KEY = "C-\\"
DETACH_KEY_NAME = "Ctrl+\\"
"""No agent uses this key: terminals treat it as a signal."""
_HISTORY_LINES = 20_000
_FEATURES = (
    *("256", "bpaste", "ccolour", "clipboard", "cstyle", "extkeys", "focus", "mouse", "overline"),
    *("strikethrough", "title", "usstyle", "hyperlinks"),  # tmux stops at an unknown command
)
_FEW_COLOURS = re.compile(r"linux|vt\d|ansi|cons|dumb|.*-(?:16|88)color")


def client_argv(env: Mapping[str, str], socket: str, target: str) -> list[str]:
    """The command that shows a session in this terminal."""
    features = ",".join((("RGB",) if has_all_colours(env) else ()) + _FEATURES)
    return ["tmux", "-u", "-T", features, "-S", socket, "attach-session", "-t", target]


def client_env(env: Mapping[str, str]) -> dict[str, str]:
    """The environment of that command: tmux refuses to start inside itself, and needs to know the
    terminal."""
    found = {name: value for name, value in env.items() if name not in ("TMUX", "TMUX_PANE")}
    if not is_known(found.get("TERM", "")):
        found["TERM"] = "xterm-256color"  # like nearly all terminals that are too new to be known
    return found


def has_all_colours(env: Mapping[str, str]) -> bool:
    """Whether the agent's 24-bit colours can be passed on unchanged."""
    if env.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return True
    term = env.get("TERM", "")
    if _FEW_COLOURS.fullmatch(term) or env.get("TERM_PROGRAM") == "Apple_Terminal":
        return False
    return "TMUX" in env or not term.startswith("screen")


def is_known(term: str) -> bool:
    """Whether this machine has an entry for that terminal."""
    import curses

    try:
        curses.setupterm(term or "dumb", 2)
        return bool(curses.tigetstr("clear") and curses.tigetstr("cup"))
    except (curses.error, ValueError):
        return False


def inner_term() -> str:
    """The value of TERM that agents get."""
    return "tmux-256color" if is_known("tmux-256color") else "screen-256color"


def commands() -> list[tuple[str, ...]]:
    """The tmux commands that set these options. An older tmux may not know some of them."""
    options = {
        "-s": {
            "default-terminal": inner_term(),
            "escape-time": "0",
            "exit-empty": "on",
            "exit-unattached": "off",
            "extended-keys": "on",
            "focus-events": "on",
            "set-clipboard": "on",
        },
        "-g": {
            # otherwise keys that arrive together reach the agent, including Ctrl+\\
            "assume-paste-time": "0",
            "default-shell": "/bin/sh",
            "destroy-unattached": "off",
            "detach-on-destroy": "on",
            "history-limit": str(_HISTORY_LINES),
            "key-table": "root",
            "mouse": "on",
            "prefix": "None",
            "prefix2": "None",
            "set-titles": "on",
            # A pane without a title has the machine's name.
            "set-titles-string": "#{?#{==:#{pane_title},#{host}},#{window_name},#{pane_title}}",
            "status": "off",
            "update-environment": "",
        },
        "-gw": {
            "aggressive-resize": "on",
            "allow-passthrough": "on",
            "allow-rename": "off",
            "automatic-rename": "off",
            "mode-keys": "emacs",
            "remain-on-exit": "off",
            "window-size": "latest",
        },
    }
    found: list[tuple[str, ...]] = [
        ("set-option", "-q", scope, name, value)
        for scope, values in options.items()
        for name, value in values.items()
    ]
    for table in ("prefix", "root", "copy-mode"):
        # A table that was emptied before no longer exists, and unbinding in it would be an error.
        found += [
            ("bind-key", "-T", table, "F12", "select-pane"),
            ("unbind-key", "-a", "-T", table),
        ]
    return found + [("bind-key", "-T", *binding) for binding in _bindings()]


def _bindings() -> list[tuple[str, ...]]:
    """Keys go to the agent. So does the mouse if the agent requested it; otherwise the wheel
    scrolls back, and a selection is copied."""
    leave = ("detach-client", "-E", "exit 0")
    asked, alternate = "#{mouse_any_flag}", "#{alternate_on}"

    def unless_asked(key: str, *, full: str, else_: str) -> tuple[str, ...]:
        """`full`: in full-screen mode, where there is nothing to scroll back to."""
        rest = f"if-shell -F '{alternate}' '{full}' '{else_}'"
        return ("root", key, "if-shell", "-F", "-t", "=", asked, "send-keys -M", rest)

    clicks = {"DoubleClick1Pane": "select-word", "TripleClick1Pane": "select-line"}
    copied = "copy-mode -H ; send-keys -X {} ; run-shell -d 0.3 ; send-keys -X copy-pipe-and-cancel"
    return [
        ("root", DETACH_KEY, *leave),
        ("copy-mode", DETACH_KEY, *leave),
        unless_asked("WheelUpPane", full="send-keys Up Up Up", else_="copy-mode -e"),
        unless_asked("WheelDownPane", full="send-keys Down Down Down", else_=""),
        unless_asked("MouseDrag1Pane", full="copy-mode -M", else_="copy-mode -M"),
        unless_asked("MouseDown2Pane", full="paste-buffer -p", else_="paste-buffer -p"),
        *(
            unless_asked(key, full=copied.format(what), else_=copied.format(what))
            for key, what in clicks.items()
        ),
        # A user who scrolled back and types again types to the agent.
        ("copy-mode", "Any", "send-keys", "-X", "cancel", ";", "send-keys"),
        ("copy-mode", "WheelUpPane", "send-keys", "-N", "3", "-X", "scroll-up"),
        ("copy-mode", "WheelDownPane", "send-keys", "-N", "3", "-X", "scroll-down"),
        ("copy-mode", "PPage", "send-keys", "-X", "page-up"),
        ("copy-mode", "NPage", "send-keys", "-X", "page-down"),
        ("copy-mode", "MouseDown1Pane", "send-keys", "-X", "clear-selection"),
        ("copy-mode", "MouseUp1Pane", "send-keys", "-X", "clear-selection"),
        ("copy-mode", "MouseDrag1Pane", "send-keys", "-X", "begin-selection"),
        ("copy-mode", "MouseDragEnd1Pane", "send-keys", "-X", "copy-pipe-and-cancel"),
    ]  # fmt: skip
