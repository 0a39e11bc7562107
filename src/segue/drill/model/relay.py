"""Handoffs by document, as seen in a conversation: a session is asked to write one, and a session
is told to read one. Pure."""

import re
import shlex
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from segue.drill.model.ask import Part

_FILE = r"(/[^\n]*?handoff-[0-9]{8}T[0-9]{4}-[a-z0-9-]+\.md)"
_REQUEST = re.compile(rf"Create handoff document now[\s\S]*?^\s*{_FILE}\s*$", re.MULTILINE)
_RESUME = re.compile(rf"Read handoff from {_FILE} and resume work")


class Relay(Struct, frozen=True):
    """What the model does after the newest message about a handoff: it writes the document, stops
    because the document is written, reads it, looks at the steps that are done, or works."""

    act: Literal["write", "written", "read", "look", "work"]
    file: str = ""


def relay(parts: Sequence[Part]) -> Relay:
    """The next act by the conversation; "work" if no message is about a handoff."""
    for place in range(len(parts) - 1, -1, -1):
        part = parts[place]
        if part.role not in ("user", "tool"):
            continue
        done = [call.command for later in parts[place:] for call in later.calls]
        if found := _REQUEST.search(part.text):
            spoken = any(later.role == "user" and later.text for later in parts[place + 1 :])
            if spoken and _is_written(done, found[1]):
                return Relay("work")
            return Relay("written" if _is_written(done, found[1]) else "write", found[1])
        if found := _RESUME.search(part.text):
            if not any(shlex.quote(found[1]) in command for command in done):
                return Relay("read", found[1])
            has_looked = any("job/show" in command for command in done)
            return Relay("work" if has_looked else "look", found[1])
    return Relay("work")


def write_command(file: str, text: str) -> str:
    """A shell command that writes the document."""
    name = shlex.quote(file)
    return (
        f"mkdir -p \"$(dirname {name})\" && cat > {name} <<'END_OF_HANDOFF'\n{text}\nEND_OF_HANDOFF"
    )


def read_command(file: str) -> str:
    """A shell command that prints the document."""
    return f"cat {shlex.quote(file)}"


def _is_written(commands: Sequence[str], file: str) -> bool:
    return any(f"cat > {shlex.quote(file)}" in command for command in commands)
