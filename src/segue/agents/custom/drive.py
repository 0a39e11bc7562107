"""The user's own agents: `[agents.NAME]` in config.toml.

`like` is for a program that behaves like a known agent; `command` alone replaces the program of
a known agent. Everything else is a program that gets a prompt and reports its result by its
output and exit code.
"""

import os
import re
import shutil
from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from segue.agents import drives, stores
from segue.agents.contracts.drive import Drive, Env, Launch, LegOrder, LineMeaning
from segue.agents.contracts.permission import Permissions
from segue.agents.shared.drive import refusal
from segue.errors import ConfigError

PROMPT, PROMPT_FILE, SESSION, FLAGS = "{prompt}", "{prompt_file}", "{session}", "{flags}"
_PLACES = (PROMPT, PROMPT_FILE, SESSION)
_PLACE = re.compile("|".join(re.escape(place) for place in _PLACES))
_FILE = "prompt.md"
_MAX_WORD_BYTES = 131_071  # Linux accepts no longer argument


class Custom(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the user says about an agent."""

    command: tuple[str, ...] = ()
    """The program and its arguments. `{prompt}` is the prompt and `{prompt_file}` a file with it;
    without either, the prompt is sent to its input. `{flags}`, as a separate argument, is where the
    user's flags go."""
    like: str = ""  # a known agent
    env: dict[str, str] = field(default_factory=dict)  # added to the user's own
    home: str = ""  # with `like`: where its sessions are, if not in that agent's home
    resume: tuple[str, ...] = ()
    """Like `command`, with `{session}`, to continue a session; () if the program can only start new
    ones."""
    session: str = ""  # RE2: its one group is the session's id in a line of its output
    done: str = ""  # RE2: a line that says that the task is done
    failed: str = ""  # RE2: a line that says that the task failed

    def __post_init__(self) -> None:
        """Raises ValueError, with one line that names the key, if the settings make no sense."""
        if not self.command and not self.like:
            raise ValueError("`command` is missing: the program and its arguments, as a list")
        if self.command and not self.command[0].strip():
            raise ValueError("`command` must begin with the program")
        if self.resume and not self.session:
            raise ValueError("`resume` needs `session`: how its id is found in the output")
        if self.resume and not any(SESSION in word for word in self.resume):
            raise ValueError("`resume` must contain {session}")
        for name, groups in (("session", 1), ("done", None), ("failed", None)):
            if pattern := getattr(self, name):
                _compiled(name, pattern, groups)


def drive_of(name: str, custom: Custom) -> Drive:
    """How to drive the user's agent with this name. Raises ConfigError if its settings do not fit
    together."""
    known = drives.built_in(custom.like or name)
    if custom.like and known is None:
        raise ConfigError(
            f"[agents.{name}]: like {custom.like!r} is not one of {', '.join(drives.NAMES)}"
        )
    if known is None:
        return _own(name, custom)
    unfit = [key for key in ("resume", "session", "done", "failed") if getattr(custom, key)]
    if unfit:
        raise ConfigError(
            f"[agents.{name}]: {unfit[0]} is not needed: segue drives it as {known.agent}"
        )
    if any(place in word for word in custom.command for place in (*_PLACES, FLAGS)):
        raise ConfigError(
            f"[agents.{name}]: command takes no placeholders: it is driven as {known.agent}"
        )
    return _like(known, custom)


def _like(known: Drive, custom: Custom) -> Drive:
    """The known agent with another program, environment or home."""

    def launch(order: LegOrder) -> Launch:
        given = known.launch(replace(order, env={**order.env, **custom.env}))
        return replace(given, env={**custom.env, **given.env})

    def session_env(env: Env) -> Env:
        """The environment in which its sessions are found."""
        return {**env, **custom.env, **_home(known.agent, custom.home)}

    changes: dict[str, object] = {"launch": launch}
    if (permissions := known.permissions) is not None:
        changes["permissions"] = _seen_by(permissions, custom, session_env)
    if (login := known.login) is not None:
        changes["login"] = lambda flags, env, cwd: login(flags, session_env(env), cwd)
    if custom.command:
        changes["find"] = lambda env: _resolved_command(custom.command, env)
        changes["install"] = f"{custom.command[0]} cannot be started"
    if (file := known.session_file) is not None:
        changes["session_file"] = lambda session, env, cwd: file(session, session_env(env), cwd)
    if (place := known.session_place) is not None:
        changes["session_place"] = lambda name, env, cwd: place(name, session_env(env), cwd)
    if (tidy := known.tidy) is not None:
        changes["tidy"] = lambda session, env, cwd: tidy(session, session_env(env), cwd)
    return replace(known, **changes)


def _seen_by(
    permissions: Permissions, custom: Custom, environment: Callable[[Env], Env]
) -> Permissions:
    """The known agent's permissions, looked up in the right environment. With the user's own
    `command`, what it may do is unknown, because that may start a container."""
    look = permissions.look
    if custom.command or look is None:
        return replace(permissions, look=None)
    return replace(permissions, look=lambda flags, env, cwd: look(flags, environment(env), cwd))


def _home(agent: str, home: str) -> dict[str, str]:
    """The environment variable that moves an agent's home there; {} if there is none."""
    store = stores().get(agent)
    if not home or store is None or not store.variables:
        return {}
    variable, below = store.variables[0]
    place = os.path.expanduser(home)
    if below and os.path.basename(place) == below:
        place = os.path.dirname(place)
    return {variable: place}


def _own(name: str, custom: Custom) -> Drive:
    def launch(order: LegOrder) -> Launch:
        words = (order.session_id and custom.resume) or custom.command
        texts = {
            PROMPT: order.prompt,
            PROMPT_FILE: os.path.join(order.folder, _FILE),
            SESSION: order.session_id,
        }
        argv: list[str] = []
        for word in words:
            # In one pass, because the values may contain braces.
            filled = _PLACE.sub(lambda found: texts[found[0]], word)
            argv += order.flags if word == FLAGS else [filled]
            size = len(filled.encode("utf-8", "replace"))
            if PROMPT in word and size > _MAX_WORD_BYTES:
                raise ConfigError(
                    f"[agents.{name}]: the prompt has {size:,} bytes, which is too long for an"
                    f" argument: write {PROMPT_FILE} instead of {PROMPT} in the command"
                )
        is_same = words[0] == custom.command[0]
        argv[0] = order.command[0] if is_same else os.path.expanduser(argv[0])
        by_file = any(PROMPT_FILE in word for word in words)
        by_word = any(PROMPT in word for word in words)
        return Launch(
            argv=tuple(argv),
            env=dict(custom.env),
            files={_FILE: order.prompt} if by_file else {},
            input=b"" if by_file or by_word else order.prompt.encode("utf-8", "replace"),
            session_id=order.session_id,
        )

    def refuses(flags: Sequence[str]) -> str:
        if flags and FLAGS not in custom.command:
            return f"{flags[0]} cannot be passed on: [agents.{name}] has no {FLAGS} in its command"
        return refusal(flags, {})

    return Drive(
        agent=name,
        find=lambda env: _resolved_command(custom.command[:1], env),
        install=f"{custom.command[0]} cannot be started",
        launch=launch,
        resumes=bool(custom.resume),
        refuses=refuses,
        hears=_line_reader(custom),
    )


def _resolved_command(command: Sequence[str], env: Env) -> tuple[str, ...] | None:
    program = shutil.which(os.path.expanduser(command[0]), path=env.get("PATH", os.defpath))
    return (program, *command[1:]) if program else None


def _line_reader(custom: Custom) -> Callable[[str], LineMeaning]:
    session = _compiled("session", custom.session, 1) if custom.session else None
    says: list[tuple[Literal["done", "failed"], Search]] = []
    if custom.failed:  # checked first: a program that says both has failed
        says.append(("failed", _compiled("failed", custom.failed)))
    if custom.done:
        says.append(("done", _compiled("done", custom.done)))

    def hears(line: str) -> LineMeaning:
        named = session(line) if session else None
        meaning = next((word for word, search in says if search(line) is not None), None)
        return LineMeaning(session_id=named or "", outcome=meaning or "")

    return hears


Search = Callable[[str], str | None]
"""Searches a line for a pattern: returns its one group, or the whole match; None if there is no
match."""


def _compiled(name: str, pattern: str, groups: int | None = None) -> Search:
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options=options)
    except re2.error as fault:
        message = fault.args[0] if fault.args else ""
        message = message.decode(errors="replace") if isinstance(message, bytes) else str(message)
        raise ValueError(f"`{name}` is not an RE2 pattern: {message}") from None
    if groups is not None and compiled.groups != groups:
        raise ValueError(f"`{name}` must have one group, which is the session's id")

    def search(line: str) -> str | None:
        found = compiled.search(line)
        return None if found is None else str(found[groups or 0] or "")

    return search
