"""How an agent's TUI looks and how to talk to it: data and pure functions, in each agent's folder.

Others carry out what a terminal describes: `system/tmux/typist` looks and types, `watch`
decides.
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field

from segue.core.terminals.screen import PaneCapture, Screen

Resumed = Callable[[str, str, str, Sequence[str]], tuple[str, ...]]
"""The arguments that resume a session, by program, session id, prompt ("": none), kept flags."""
Begun = Callable[[str, str, Sequence[str]], tuple[str, ...]]
"""The arguments that begin a new session, by program, prompt ("": none), kept flags."""


class Terminal(Struct, frozen=True, kw_only=True):
    """How an agent behaves in a terminal. Keys have tmux's names."""

    agent: str
    read: Callable[[PaneCapture], Screen]
    """What its screen says. Never raises; a screen that is not understood is "unknown"."""
    clear: str
    """The command that clears the context when it is typed and submitted: a new session begins,
    with its own id. "" if only a new process does that."""
    interrupt: tuple[str, ...]
    """Keys that stop the turn, each pressed separately, and keep the process and its session."""
    dismiss: tuple[str, ...] = ()
    """Keys that close a dialog that `read` calls harmless; () if there is none."""
    cancel_continue: tuple[str, ...] = ()
    """Keys that cancel the agent's own plan to continue after a limit
    (`Screen.continues_at`), and nothing else; () if there are none."""
    submit: str = "Enter"
    erase: tuple[str, ...] = ()
    """Keys that delete one line of the input, wherever the cursor is: pressed again until the draft
    is empty (at most twice for each line). They do nothing to an empty input."""
    settle_s: float = 0.4  # the pause between the text and `submit`
    steady_s: float = 0.2  # how long a screen must stay idle before it counts as idle
    takes_paste: bool = True
    """Whether it accepts bracketed paste; it may fold a long one ("[Pasted text #1 +12 lines]")."""
    resume_argv: Resumed
    new_argv: Begun
    resumes_with_prompt: bool = True
    """Whether a resumed process accepts its prompt as an argument; otherwise it must be typed."""
    kept_flags: Mapping[str, int] = field(default_factory=dict)
    """The user's own flags that a process keeps when it takes over, and how many values follow
    each; -1: all up to the next flag."""


def kept_arguments(terminal: Terminal, arguments: Sequence[str]) -> tuple[str, ...]:
    """The arguments of a process that its replacement must have too: the user's own choices,
    without the session and the prompt. `arguments`: without the program."""
    found: list[str] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument == "--":
            break
        flag, equals, _ = argument.partition("=")
        count = terminal.kept_flags.get(flag)
        if count is None:
            continue
        found.append(argument)
        if equals:
            continue
        values = rest[:count]
        if count < 0:
            ends = (i for i, value in enumerate(rest) if value.startswith("-"))
            values = rest[: next(ends, len(rest))]
        found += values
        del rest[: len(values)]
    return tuple(found)
