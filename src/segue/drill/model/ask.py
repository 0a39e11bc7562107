"""The requests to the scripted model, in one form for all APIs."""

from enum import StrEnum
from typing import Literal

from msgspec import Struct

Role = Literal["system", "user", "assistant", "tool"]


class Kind(StrEnum):
    """What a request is for. Rules of a scenario name it."""

    MAIN = "main"  # the work itself
    TITLE = "title"  # a name for the session
    COMPACTION = "compaction"  # a summary, because the window is full
    CHECKPOINT = "checkpoint"  # what the next session must know
    CONTINUATION = "continuation"  # the first request of a session that continues from a checkpoint
    HANDOFF = "handoff"  # the same as a document, because the session is asked for one
    COUNT = "count"  # how many tokens would that be?
    OTHER = "other"  # what an agent asks beside its work: a router, a memory


class Call(Struct, frozen=True):
    """A tool call: always a shell command, under the agent's own name for that."""

    id: str
    command: str
    name: str = ""
    arguments: dict[str, object] = {}  # as the agent's tool takes them, the command included


class Part(Struct, frozen=True):
    """A piece of the conversation, in its order."""

    role: Role
    text: str = ""
    calls: tuple[Call, ...] = ()  # of the assistant
    answers: str = ""  # of a tool: the id of the call whose result this is
    is_error: bool = False  # of a tool


class Ask(Struct, frozen=True, kw_only=True):
    """One request."""

    wire: str
    model: str
    parts: tuple[Part, ...]
    kind: Kind = Kind.MAIN
    number: int = 0  # which of the server's requests; ids of replies are made of it
    is_stream: bool = False
    tools: tuple[str, ...] = ()  # their names
    base_bytes: int = 0
    """Of instructions and tool schemas: what an agent sends before a word is said."""
    said_bytes: int = 0
    """Of the conversation."""

    @property
    def last_text(self) -> str:
        """What was said to the model last."""
        return next((p.text for p in reversed(self.parts) if p.role in ("user", "tool")), "")


SHELLS = {
    "Bash": "command",
    "bash": "command",
    "exec_command": "cmd",
    "shell_command": "command",
    "run_shell_command": "command",
    "shell": "command",
}
"""Tools that run a shell command, by any agent's name for one, and the argument that holds it."""

_IN_WORDS = ("bash", "-lc")  # before the command, where a tool takes a list of words


def command_in(arguments: object) -> str:
    """The shell command in a tool's arguments; "" if there is none."""
    if isinstance(arguments, dict):
        for key in ("command", "cmd"):
            found = arguments.get(key)
            if isinstance(found, list) and len(found) == len((*_IN_WORDS, "")):
                found = found[-1]
            if isinstance(found, str):
                return found
    return ""


def shell_call(ask: Ask, number: str, command: str) -> Call:
    """A call of the asking agent's own shell tool."""
    name = next((name for name in ask.tools if name in SHELLS), "Bash")
    arguments: dict[str, object] = {SHELLS[name]: command}
    if name in ("run_shell_command", "bash"):
        arguments["description"] = "one step"
    elif name == "shell":
        arguments = {SHELLS[name]: [*_IN_WORDS, command]}
    return Call(number, command, name, arguments)
