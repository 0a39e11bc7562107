"""The agents that a drill can play: for each, everything it needs to be started privately."""

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path

from msgspec import Struct

from segue.drill.model.ask import Ask, Kind
from segue.drill.model.relay import relay

_VERSION_S = 60.0

REAL = ("claude", "codex", "opencode", "gemini", "pi")
NAMES = ("rehearsal", "rehearsal-codex", *REAL)


class PlayStage(Struct, frozen=True, kw_only=True):
    """Where an agent plays: all of it is below one scratch folder."""

    home: Path  # its HOME
    project: Path  # its working folder, a git repository
    port: int  # the scripted model's, on 127.0.0.1
    window_tokens: int
    max_turns: int | None = None
    options: Mapping[str, str] = {}  # of a drill, for this agent: see the cast's file

    @property
    def url(self) -> str:
        """The scripted model, without a path."""
        return f"http://127.0.0.1:{self.port}"


class LegStart(Struct, frozen=True, kw_only=True):
    """How to start one leg."""

    argv: Sequence[str]
    env: Mapping[str, str]
    stdin: bytes = b""


class Driven(Struct, frozen=True, kw_only=True):
    """How `segue run` is to start it."""

    command: Sequence[str]  # as `[agents.NAME]` has it
    env: Mapping[str, str]
    flags: Sequence[str] = ()  # those after `--`


class Cast(Struct, frozen=True, kw_only=True):
    """An agent in a drill."""

    name: str
    agent: str  # whose records it writes: for `segue classify`
    needs_namespace: bool = True  # a real agent may try to reach the world
    window_tokens: int = 200_000  # what it believes in, or is told
    find: Callable[[Mapping[str, str]], str | None]
    """Its program (the native one, not a launcher) by the environment's PATH; None if there is
    none."""
    install: str = ""  # how a user gets it, in one line
    version: Callable[[str], Sequence[str]] = lambda program: (program, "--version")
    prepare: Callable[[PlayStage], None]
    """Writes its private config into the stage's home: fake key, scripted model, nothing else."""
    start: Callable[[str, PlayStage, str, str], LegStart]
    """Program, stage, prompt, and the session to continue ("" for a new one)."""
    driven: Callable[[str, PlayStage], Driven]
    """The same for a play with segue: the flags are those of a user who would run it unattended."""
    kind: Callable[[Ask], Kind]
    """What a request of this agent is for."""
    session: Callable[[PlayStage], tuple[str, Path | None]]
    """The newest session's id and transcript ("" and None if there is none)."""
    takes_max_turns: bool = False  # can be told after how many turns to stop
    interrupt_s: float = 5.0  # how long it may take to end after a signal


def find(name: str) -> Cast:
    """The cast of that name; KeyError if there is none."""
    if name not in NAMES:
        raise KeyError(name)
    cast: Cast = import_module(
        f"segue.agents.{name}.cast"
        if name in REAL
        else f"segue.drill.casts.{name.replace('-', '_')}"
    ).CAST
    return cast


def version_of(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """The version that a program tells; "" if it does not."""
    try:
        said = subprocess.run(  # noqa: S603 - the agent that is about to play
            argv,
            env=env,
            capture_output=True,
            text=True,
            timeout=_VERSION_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    words = [word.strip("v(),") for word in (said.stdout or said.stderr).split()]
    return next((word for word in words if word[:1].isdigit()), "")


def kind_of(ask: Ask) -> Kind:
    """What a request is for, whoever asks."""
    for name in NAMES:
        kind = find(name).kind(ask)
        if kind is not Kind.MAIN:
            return kind
    if "<checkpoint>" in ask.last_text:
        # A session is asked for one at its end, and given one at its beginning. If it summarised
        # itself just before, no word of it is left, and only the request's own words tell.
        has_begun = any(part.role == "assistant" for part in ask.parts)
        is_request = has_begun or "CHECKPOINT REQUIRED" in ask.last_text
        return Kind.CHECKPOINT if is_request else Kind.CONTINUATION
    return Kind.HANDOFF if relay(ask.parts).act == "write" else Kind.MAIN


def clean_env(stage: PlayStage, **more: str) -> dict[str, str]:
    """Nothing of the user's but PATH and the language: keys and settings stay outside."""
    kept = {
        name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TZ") if name in os.environ
    }
    return {
        **kept,
        "HOME": str(stage.home),
        "XDG_CONFIG_HOME": str(stage.home / ".config"),
        "XDG_DATA_HOME": str(stage.home / ".local/share"),
        "XDG_STATE_HOME": str(stage.home / ".local/state"),
        "XDG_CACHE_HOME": str(stage.home / ".cache"),
        "TMPDIR": str(stage.home / "tmp"),
        "TERM": "dumb",
        **more,
    }
