"""The agents that a drill can play: for each, everything it needs to be started privately."""

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path

from msgspec import Struct

from segue.agents import plugins
from segue.drill.model.ask import Ask, Kind
from segue.drill.model.relay import relay

_VERSION_S = 60.0

REAL = plugins.built_in_with("cast")
NAMES = ("rehearsal", "rehearsal-codex", *REAL)


class PlayStage(Struct, frozen=True, kw_only=True):
    """The scratch folder in which an agent plays, and everything in it."""

    home: Path  # its HOME
    project: Path  # its working folder, a git repository
    port: int  # the port of the scripted model on 127.0.0.1
    window_tokens: int
    max_turns: int | None = None
    options: Mapping[str, str] = {}  # the drill's options for this agent; see the cast's module

    @property
    def url(self) -> str:
        """The scripted model's URL, without a path."""
        return f"http://127.0.0.1:{self.port}"


class LegStart(Struct, frozen=True, kw_only=True):
    """How to start one leg."""

    argv: Sequence[str]
    env: Mapping[str, str]
    stdin: bytes = b""


class Driven(Struct, frozen=True, kw_only=True):
    """How `segue run` starts the agent."""

    command: Sequence[str]  # the fields of `[agents.NAME]`
    env: Mapping[str, str]
    flags: Sequence[str] = ()  # the flags after `--`


class Cast(Struct, frozen=True, kw_only=True):
    """An agent in a drill."""

    name: str
    agent: str  # whose records it writes; for `segue classify`
    needs_namespace: bool = True  # a real agent may try to reach the internet
    window_tokens: int = 200_000  # the window that it assumes, or that its config states
    find: Callable[[Mapping[str, str]], str | None]
    """The path of its program (the native one, not a launcher) on the environment's PATH, or
    None."""
    install: str = ""  # one line that says how to install it
    version: Callable[[str], Sequence[str]] = lambda program: (program, "--version")
    prepare: Callable[[PlayStage], None]
    """Writes its private config into the stage's home: a fake key and the scripted model, nothing
    else."""
    start: Callable[[str, PlayStage, str, str], LegStart]
    """How to start it alone, by program, stage, prompt, and the id of the session to continue ("":
    a new one)."""
    driven: Callable[[str, PlayStage], Driven]
    """How segue starts it, by program and stage, with the flags of a user who runs it
    unattended."""
    kind: Callable[[Ask], Kind]
    """What a request of this agent is for; MAIN if it does not know the request."""
    session: Callable[[PlayStage], tuple[str, Path | None]]
    """The newest session's id and its transcript, or "" and None."""
    takes_max_turns: bool = False  # whether it accepts a maximum number of turns
    interrupt_s: float = 5.0  # how long it may take to exit after a signal


def find(name: str) -> Cast:
    """The cast with that name. Raises KeyError if there is none."""
    if name not in NAMES:
        raise KeyError(name)
    cast: Cast = import_module(
        f"segue.agents.{name}.cast"
        if name in REAL
        else f"segue.drill.casts.{name.replace('-', '_')}"
    ).CAST
    return cast


def version_of(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """The version that a program reports, or ""."""
    try:
        answer = subprocess.run(  # noqa: S603 - the agent that is about to play
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
    words = [word.strip("v(),") for word in (answer.stdout or answer.stderr).split()]
    return next((word for word in words if word[:1].isdigit()), "")


def kind_of(ask: Ask) -> Kind:
    """What a request is for, whichever agent sent it."""
    for name in NAMES:
        kind = find(name).kind(ask)
        if kind is not Kind.MAIN:
            return kind
    if "<checkpoint>" in ask.last_text:
        # A session is asked for a checkpoint at its end, and receives one at its beginning. If it
        # compacted itself just before, nothing of the conversation is left, and only the request's
        # own text says which it is.
        has_begun = any(part.role == "assistant" for part in ask.parts)
        is_request = has_begun or "CHECKPOINT REQUIRED" in ask.last_text
        return Kind.CHECKPOINT if is_request else Kind.CONTINUATION
    return Kind.HANDOFF if relay(ask.parts).act == "write" else Kind.MAIN


def clean_env(stage: PlayStage, **more: str) -> dict[str, str]:
    """An environment with only PATH, the language, the time zone and the stage's own folders: the
    user's keys and settings stay outside."""
    passed_on = {
        name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TZ") if name in os.environ
    }
    return {
        **passed_on,
        "HOME": str(stage.home),
        "XDG_CONFIG_HOME": str(stage.home / ".config"),
        "XDG_DATA_HOME": str(stage.home / ".local/share"),
        "XDG_STATE_HOME": str(stage.home / ".local/state"),
        "XDG_CACHE_HOME": str(stage.home / ".cache"),
        "TMPDIR": str(stage.home / "tmp"),
        "TERM": "dumb",
        **more,
    }
