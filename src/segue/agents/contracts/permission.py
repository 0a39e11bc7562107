"""What an agent may do unattended: the contract, and code that the agents share.

Nothing here reads the content of a credential: only whether its file or variable exists matters.
"""

import json
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from segue.core.stops.types import Grant

Env = Mapping[str, str]
JSON = dict[str, Any]

_MAX_BYTES = 4_000_000
_WORD = re.compile(r"[\w./+@-]{1,60}")
_PARTS = re.compile(r"&&|\|\||[;|\n]")
_ASSIGNED = re.compile(r"\w+=\S*")
_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])', re.DOTALL)
_MAX_PROGRAMS = 4


class Access(Struct, frozen=True, kw_only=True):
    """What an agent may do unattended, as far as its flags and files say. None: unknown."""

    edits: bool | None = None
    commands: bool | None = None
    why: str = ""  # why it may not, in a few words
    add: Grant | None = None  # what to start it with, so that it may
    signed_in: bool | None = None
    sign_in: str = ""  # how to sign in, in a few words
    asks: tuple[str, ...] = ()
    """If nothing else says so: arguments with which its own program reports by exit code whether it
    is signed in (0) or not (1)."""


class RefusedCall(Struct, frozen=True, kw_only=True):
    """A tool call that an agent was not allowed to make, and where. `tool` "": it did not even
    start."""

    tool: str = ""
    command: str = ""
    files: tuple[str, ...] = ()
    cwd: str = ""
    env: Env = {}
    flags: tuple[str, ...] = ()  # the flags with which the agent was started


class Permissions(Struct, frozen=True, kw_only=True):
    """How to find out what an agent may do, and how to allow more."""

    look: Callable[[Sequence[str], Env, str], Access] | None
    """What it may do, by the user's flags, the environment and the working folder. None: nobody
    knows."""
    grants: Callable[[RefusedCall], tuple[Grant, ...]]
    """The grants that would allow such a call, the narrowest first."""


def values(flags: Sequence[str], *names: str, many: bool = False) -> list[str]:
    """What the user gave to these flags, in order. `many`: each takes all words up to the next
    flag; words are split at commas and blanks outside brackets."""
    found: list[str] = []
    place = 0
    while place < len(flags):
        name, equals, value = flags[place].partition("=")
        place += 1
        if name not in names:
            continue
        if equals:
            found.append(value)
        while place < len(flags) and not flags[place].startswith("-"):
            if not equals or many:
                found.append(flags[place])
            place += 1
            if not many:
                break
    return [word for each in found for word in listed(each)] if many else found


def listed(words: str) -> list[str]:
    """A list in one word, separated by commas or blanks: "Edit,Bash(git *)" contains two items."""
    found, depth = [""], 0
    for char in words:
        depth += (char == "(") - (char == ")")
        if char in ", " and depth <= 0:
            found.append("")
        else:
            found[-1] += char
    return [word for word in found if word]


def has(flags: Sequence[str], *names: str) -> bool:
    """Whether one of these flags is given."""
    return any(flag.partition("=")[0] in names for flag in flags)


def programs(command: str) -> tuple[str, ...]:
    """The programs that a shell command starts; () if they cannot be told with certainty, or are
    many."""
    found: dict[str, None] = {}
    for part in _PARTS.split(command):
        words = [word for word in part.split() if not _ASSIGNED.fullmatch(word)]
        if not words or words[0] == "cd":
            continue
        if not _WORD.fullmatch(words[0]):
            return ()
        found[words[0]] = None
    return tuple(found) if 0 < len(found) <= _MAX_PROGRAMS else ()


def read_json(path: Path | str) -> JSON:
    """An object, with or without comments; {} if the file is missing or unreadable."""
    content = read_text(path)
    for text in (content, _TRAILING.sub(_first_group, _COMMENT.sub(_first_group, content))):
        try:
            parsed = json.loads(text)
        except ValueError:
            continue
        return parsed if isinstance(parsed, dict) else {}
    return {}


def _first_group(found: re.Match[str]) -> str:
    return found[1] or ""


def read_toml(path: Path | str) -> JSON:
    """The content; {} if the file is missing or unreadable."""
    try:
        return tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError:
        return {}


def read_text(path: Path | str) -> str:
    """A config file; "" if there is none."""
    try:
        with open(path, "rb") as file:
            return file.read(_MAX_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


def is_filled(path: Path | str) -> bool:
    """Whether there is a file with more than an empty object in it, by its size: it is not
    opened."""
    try:
        return os.stat(path).st_size > 2
    except (OSError, ValueError):
        return False


def within(cwd: str) -> Iterator[Path]:
    """A folder and its parents, up to the top of its repository."""
    here = Path(os.path.realpath(cwd))
    for folder in (here, *here.parents):
        yield folder
        if (folder / ".git").exists():
            return


def home(env: Env) -> Path:
    """The user's home folder."""
    return Path(env.get("HOME") or Path.home())
