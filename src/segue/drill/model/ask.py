"""The requests to the scripted model, in one form for all APIs."""

from enum import StrEnum
from typing import Literal

from msgspec import Struct

Role = Literal["system", "user", "assistant", "tool"]


class Kind(StrEnum):
    """The purpose of a request. Rules of a scenario refer to it."""

    MAIN = "main"  # the work itself
    TITLE = "title"  # asks for a title for the session
    COMPACTION = "compaction"  # asks for a summary, because the window is full
    CHECKPOINT = "checkpoint"  # asks what the next session must know
    CONTINUATION = "continuation"  # the first request of a session that continues from a checkpoint
    HANDOFF = "handoff"  # asks for the same as a document
    COUNT = "count"  # asks how many tokens a prompt has
    OTHER = "other"  # asks something besides the work: a router, a memory


class Call(Struct, frozen=True):
    """A tool call: always a shell command, under the agent's own name for that."""

    id: str
    command: str
    name: str = ""
    # the arguments as the agent's tool takes them, including the command
    arguments: dict[str, object] = {}


class Part(Struct, frozen=True):
    """One message of the conversation, in order."""

    role: Role
    text: str = ""
    calls: tuple[Call, ...] = ()  # only for the assistant
    answers: str = ""  # only for a tool: the id of the call whose result this is
    is_error: bool = False  # only for a tool


class Ask(Struct, frozen=True, kw_only=True):
    """One request, as far as the script needs to know it."""

    wire: str
    model: str
    parts: tuple[Part, ...]
    kind: Kind = Kind.MAIN
    number: int = 0  # its number among the server's requests; ids of replies derive from it
    is_stream: bool = False
    tools: tuple[str, ...] = ()  # the tools' names
    base_bytes: int = 0
    """The size of the instructions and tool schemas, which an agent sends before the
    conversation."""
    said_bytes: int = 0
    """The size of the conversation."""

    @property
    def last_text(self) -> str:
        """The text of the newest message of the user or a tool; "" if there is none."""
        return next((p.text for p in reversed(self.parts) if p.role in ("user", "tool")), "")


SHELLS = {
    "Bash": "command",
    "bash": "command",
    "exec_command": "cmd",
    "shell_command": "command",
    "run_shell_command": "command",
    "shell": "command",
}
"""The names that agents give to a tool that runs a shell command, and the argument that holds the
command."""

_IN_WORDS = ("bash", "-lc")  # precedes the command if a tool takes a list of words


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
    """A call of the shell tool that the requesting agent offers."""
    name = next((name for name in ask.tools if name in SHELLS), "Bash")
    arguments: dict[str, object] = {SHELLS[name]: command}
    if name in ("run_shell_command", "bash"):
        arguments["description"] = "one step"
    elif name == "shell":
        arguments = {SHELLS[name]: [*_IN_WORDS, command]}
    return Call(number, command, name, arguments)
