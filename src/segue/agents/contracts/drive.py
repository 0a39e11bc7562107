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

    command: tuple[str, ...]  # the program, and its fixed arguments
    prompt: str
    session_id: str = ""  # continue this one; "": a new one
    new_id: str = ""  # a UUID for a new session, if the agent lets segue choose it
    flags: tuple[str, ...] = ()  # the user's own
    cwd: str
    folder: str  # the leg's own folder, for files that it needs
    env: Env  # the user's environment
    halts: bool = False
    """After its own compaction the agent must wait for what the summary left out, if it can
    (`Drive.halt_chars`)."""


class Launch(Struct, frozen=True, kw_only=True):
    """How to start the agent's process for a leg."""

    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)  # in addition to the user's own
    files: dict[str, str] = field(default_factory=dict)  # written to the leg's folder first
    input: bytes = b""  # sent to the process as soon as it runs
    stays_open: bool = False
    """Whether its input stays open for messages and the interrupt; otherwise it is closed after
    `input`."""
    session_id: str = ""  # if it is known before the agent reports it


Over = Literal["no", "maybe", "yes"]
"""Whether a turn has ended after a record; "maybe": if nothing follows for `settle_s`."""


class StreamWatch:
    """Examines the records of a leg's stream as they arrive. There is one for each leg."""

    settle_s = 2.0

    def over(self, record: dict[str, Any]) -> Over:
        """Whether the turn has ended, so that the input may be closed."""
        return "no"

    def confirmed_key(self, record: dict[str, Any]) -> str:
        """The key of the message (`Drive.say`) that this record confirms: from here on, the message
        is part of the conversation. "" if it confirms none."""
        return ""


class LineMeaning(Struct, frozen=True):
    """What an output line says, for an agent that writes no records."""

    session_id: str = ""
    outcome: Literal["", "done", "failed"] = ""


class Drive(Struct, frozen=True, kw_only=True):
    """How segue drives an agent."""

    agent: str  # whose profile and parser to use
    find: Callable[[Env], tuple[str, ...] | None]
    """Its command, found on the PATH: the native program, not a launcher, where that matters. None
    if it is not installed."""
    install: str  # how a user installs it, in one line
    launch: Callable[[LegOrder], Launch]
    talks: bool = False  # accepts messages while it runs (`say`)
    say: Callable[[str, str], bytes] | None = None
    """Input that sends it a message, from a text and a key; the agent repeats the key once the
    message is part of the conversation. It reaches the model at the next boundary, without an
    interrupt."""
    message_adds_bytes: int = 0
    """The size of the text that it adds to a message that arrives while it works."""
    interrupt: bytes = b""  # input that stops the turn and leaves the process able to continue
    interrupt_signal: str = "SIGINT"  # if there is no such input: the gentlest way to end it
    works_on_compacted: bool = False
    """Its own compaction comes in the middle of a turn and leaves only a summary, which it acts on
    at once. Before that, it must be told what the summary left out, or it repeats work."""
    compaction_mark: bytes = b""
    """Part of every line of the session file that reports its own compaction, for an agent whose
    stream does not report it. b"": the stream does, or `calls_from` is the file."""
    halt_chars: int = 0
    """The longest text that it accepts between its own compaction and its next request
    (`agents/shared/halts`); 0: it does not wait for one."""
    resumes: bool = True
    resume_factor: float = 1.0  # how much larger a session is once it was resumed
    watch: Callable[[], StreamWatch] = StreamWatch
    refuses: Callable[[Sequence[str]], str] = lambda flags: ""
    """Why segue cannot accept these flags of the user, naming the flag; "" if it can."""
    session_file: Callable[[str, Env, str], str] | None = None
    """Where the session's file is, by its id, the environment and the working folder; "" if it
    does not exist (yet). None: segue searches the agent's home."""
    session_place: Callable[[str, Env, str], str] | None = None
    """Where a session file from another machine must be placed so that it can be resumed, by the
    file's name, the environment and the working folder; "" if such a file cannot have that name.
    None: it cannot be resumed elsewhere."""
    hears: Callable[[str], LineMeaning] | None = None
    """For an agent without records: what a line of its output says."""
    tidy: Callable[[str, Env, str], None] | None = None
    """Removes files that a leg left beside its session and that would harm the session later; has
    the arguments of `session_file`, and is called after each leg and before the next. Calling it
    twice is harmless."""
    size_from: Literal["stream", "file"] = "stream"  # what reports the size of the context
    size_after_tools: bool = False  # the stream reports it after the tools of that reply
    calls_from: Literal["stream", "file"] = "stream"
    """What reports every tool call, including those that the agent refuses."""
    permissions: Permissions | None = None
    login: LoginOf | None = None  # whose limits apply; None: unknown
    instructions: tuple[str, ...] = ()
    """The project's files that it reads by itself when it starts, such as AGENTS.md."""
    first_instructions_only: bool = False  # of those, only the first that exists
    repeatable: frozenset[str] = frozenset()
    """Flags that may be given more than once: a second one adds to the first."""
    same_flags: Mapping[str, str] = {}
    """Flags that are equivalent or cannot be combined, each with the flag that represents them."""
    version: Callable[[tuple[str, ...]], tuple[str, ...]] = lambda command: (*command, "--version")
