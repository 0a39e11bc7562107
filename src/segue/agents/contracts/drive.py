"""How to drive an agent without a terminal: data and pure functions, in each agent's folder.

Others carry out what a drive returns: `runs/legs/keeper` starts and ends processes, and `runs`
decides. Every agent looks the same to them: a process that writes lines, and may accept lines.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, field

from segue.agents.contracts.login import LoginOf
from segue.agents.contracts.permission import Permissions

Env = Mapping[str, str]


class LegOrder(Struct, frozen=True, kw_only=True):
    """What a leg is to do."""

    command: tuple[str, ...]  # the program, and what always comes with it
    prompt: str
    session_id: str = ""  # continue this one; "": a new one
    new_id: str = ""  # a UUID that a new session may have, where the agent lets us choose
    flags: tuple[str, ...] = ()  # the user's own
    cwd: str
    folder: str  # the leg's own, for files that it needs
    env: Env  # as the user has it


class Launch(Struct, frozen=True, kw_only=True):
    """How to start it."""

    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)  # set besides the user's own
    files: dict[str, str] = field(default_factory=dict)  # written into the leg's folder first
    input: bytes = b""  # given at once
    stays_open: bool = False
    """Whether its input stays open, for more words and the interrupt; else it is closed after
    `input`."""
    session_id: str = ""  # if it is known before the agent tells it


Over = Literal["no", "maybe", "yes"]
"""Whether a turn has ended after a record; "maybe": if nothing comes for `settle_s`."""


class StreamWatch:
    """Looks at the records of a leg's stream, as they come. One for each leg."""

    settle_s = 2.0

    def over(self, record: dict[str, Any]) -> Over:
        """Whether the turn has ended, so that the input may be closed."""
        return "no"

    def heard(self, record: dict[str, Any]) -> str:
        """The key of the words (`Drive.say`) that this record tells back: they are part of the
        conversation from here on. "" if it tells none."""
        return ""


class LineMeaning(Struct, frozen=True):
    """What a line of an agent says that writes no records."""

    session_id: str = ""
    said: Literal["", "done", "failed"] = ""


class Drive(Struct, frozen=True, kw_only=True):
    """An agent as segue drives it."""

    agent: str  # whose profile and parser
    find: Callable[[Env], tuple[str, ...] | None]
    """Its command by the PATH: the native program, not a launcher, where that matters. None if it
    is not installed."""
    install: str  # how a user gets it, in one line
    launch: Callable[[LegOrder], Launch]
    talks: bool = False  # takes more words while it runs (`say`)
    say: Callable[[str, str], bytes] | None = None
    """Input that tells it something, by text and a key that is told back if it is; it reaches the
    model at the next boundary, and needs no interrupt."""
    interrupt: bytes = b""  # input that stops the turn, and leaves the process able to continue
    interrupt_signal: str = "SIGINT"  # where there is no such input: the gentlest end
    resumes: bool = True
    resume_factor: float = 1.0  # how much larger a session is once it was resumed
    watch: Callable[[], StreamWatch] = StreamWatch
    refuses: Callable[[Sequence[str]], str] = lambda flags: ""
    """Why these flags of the user's cannot be taken, by name; "" if they can."""
    session_file: Callable[[str, Env, str], str] | None = None
    """Where the session's file is, by its id, the environment and the working folder; "" if it
    does not exist (yet). None: by looking through the agent's home."""
    session_place: Callable[[str, Env, str], str] | None = None
    """Where a session's file that comes from another machine has to be so that it can be resumed,
    by the file's name, the environment and the working folder; "" if that is no name of such a
    file. None: it cannot be resumed elsewhere."""
    hears: Callable[[str], LineMeaning] | None = None
    """For an agent without records: what a line of its output says."""
    tidy: Callable[[str, Env, str], None] | None = None
    """Takes away what a leg left beside its session and what would harm the session later; asked
    for as `session_file` is, after each leg and before the next. Doing it twice does not matter."""
    size_from: Literal["stream", "file"] = "stream"  # who tells the size of the context
    size_after_tools: bool = False  # the stream does, when the tools of that reply have run
    calls_from: Literal["stream", "file"] = "stream"
    """Who tells of every tool call, also of those that the agent refuses."""
    permissions: Permissions | None = None
    login: LoginOf | None = None  # whose limits count; None: nobody can tell
    instructions: tuple[str, ...] = ()
    """The project's files that it reads by itself when it begins, such as AGENTS.md."""
    first_instructions_only: bool = False  # of those, only the first that is there
    repeatable: frozenset[str] = frozenset()
    """Flags that may be given more than once: a second one adds to the first."""
    same_flags: Mapping[str, str] = {}
    """Flags that say the same, or cannot be combined, by the one that stands for them."""
    version: Callable[[tuple[str, ...]], tuple[str, ...]] = lambda command: (*command, "--version")
