"""The config folder: `config.toml` with what the user has set, and the user's own wordings.

What is here reads the user's file alone, and only the table that is asked for: it is paid by every
command. All layers together, and where each value comes from: `io/settings`.
"""

import json
import os
import re
import stat
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from segue import agents
from segue.core.policy import PRESETS, Policy
from segue.errors import ConfigError
from segue.io import state

TABLES = ("policy", "homes", "run", "agents", "prompts")
SCOPES = ("projects", "agents", "models")
"""Below [policy]: the same keys, for work in a folder or below it, for one agent, or for models
whose name begins so."""

_MOST_BYTES = 1_000_000
_RUN_TABLE = re.compile(r"[ \t]*\[[ \t]*run[ \t]*\][ \t]*(?:#[^\n]*)?")
_KEY = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*(?:\.|$)""")


def folder() -> Path:
    """`SEGUE_HOME` moves everything; else the XDG place, on macOS too."""
    return Path(state.config_folder())


def user_file() -> Path:
    """The user's `config.toml`, which need not be there."""
    return folder() / "config.toml"


def wording_files() -> list[Path]:
    """The user's wordings: `wordings.toml` and `wordings/*.toml`, in the order of their names."""
    place = folder()
    files = [place / "wordings.toml", *sorted((place / "wordings").glob("*.toml"))]
    return [file for file in files if file.is_file()]


def policy() -> Policy:
    """The user's policy: a preset, and what `[policy]` in config.toml changes in it. Not what it
    says for one agent or model, nor what a project, the environment or a flag says."""
    written = read(user_file())
    table = {k: v for k, v in written.table("policy").items() if k not in SCOPES}
    for key in table:
        if key not in Policy.__struct_fields__:
            raise written.unknown("key", key, ("policy",), (*Policy.__struct_fields__, *SCOPES))
    preset = check_preset(table.get("name", "graduated"), written.at("policy", "name"))
    table = {key: None if value == "none" else value for key, value in table.items()}
    try:
        return msgspec.convert({**msgspec.to_builtins(preset), **table}, Policy)
    except msgspec.ValidationError as fault:
        raise ConfigError(f"{written.path}: [policy]: {fault}") from None


def homes() -> dict[str, list[str]]:
    """More folders with sessions, by agent: `[homes]` in config.toml."""
    return check_homes(read(user_file()))


def remember_agent(name: str) -> str:
    """Writes `agent` into `[run]` of the user's file, and leaves all else in it as it is; what to
    tell the user. Raises ConfigError if that file is broken; if it cannot be written, that is
    told, and nothing is changed."""
    path = user_file()
    written = read(path)
    own = f"agent = {json.dumps(name, ensure_ascii=False)}"
    by_hand = f"; to keep it, write {own} under [run] in {path}"
    run = written.table("run")
    if "agent" in run:
        return f"{name} is used this time{by_hand}"
    wanted = {**written.data, "run": {**run, "agent": name}}
    text = next((new for new in _with_line(written.text, own) if _says(new, wanted)), None)
    if text is None:
        return f"{name} is used this time{by_hand}"
    try:
        _replace(Path(os.path.realpath(path)), text)
    except OSError as fault:
        return f"{name} is used this time: {path} cannot be written ({fault.strerror}){by_hand}"
    return f"{name} is used from now on: {own} was written under [run] in {path}"


def _with_line(text: str, line: str) -> Iterator[str]:
    """Ways to put a line into [run], the nicest first; which of them is right, its reader says."""
    end = "\r\n" if "\r\n" in text else "\n"
    lines = text.splitlines(keepends=True)
    for place, said in enumerate(lines):
        if _RUN_TABLE.fullmatch(said.rstrip("\r\n")):
            head = said.rstrip("\r\n") + end
            yield "".join([*lines[:place], head, line + end, *lines[place + 1 :]])
    whole = text if not text or text.endswith("\n") else text + end
    yield f"{whole}{end if whole else ''}[run]{end}{line}{end}"
    yield f"run.{line}{end}{text}"


def _says(text: str, wanted: dict[str, Any]) -> bool:
    with suppress(tomllib.TOMLDecodeError, RecursionError):
        return tomllib.loads(text) == wanted
    return False


def _replace(path: Path, text: str) -> None:
    """Whole or not at all, and private."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, aside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(handle)
        os.replace(aside, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(aside)
        raise


class Written(NamedTuple):
    """A config file as it was read."""

    path: Path
    text: str
    data: dict[str, Any]

    def table(self, name: str) -> dict[str, Any]:
        """One of its tables; {} if it has none. Raises ConfigError if it is something else."""
        found = self.data.get(name, {})
        if not isinstance(found, dict):
            raise ConfigError(f"{self.at(name)}: {name} must be a table: write [{name}]")
        return found

    def at(self, *keys: str) -> str:
        """Where a key stands, for people."""
        line = line_of(self.text, keys)
        return f"{self.path}:{line}" if line else str(self.path)

    def unknown(
        self, what: str, name: str, table: tuple[str, ...], known: Iterable[str]
    ) -> ConfigError:
        """What to raise for a name that nobody knows."""
        return ConfigError(f"{self.at(*table, name)}: {unknown(what, name, table, known)}")


def read(path: Path) -> Written:
    """A config file; empty if it is not there. Raises ConfigError, in one line, for one that
    cannot be read, is no TOML, or has a table that nobody knows."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigError(f"{path}: cannot be read: not a file")
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        return Written(path, "", {})
    except OSError as fault:
        raise ConfigError(f"{path}: cannot be read: {fault.strerror}") from None
    if len(raw) > _MOST_BYTES:
        raise ConfigError(f"{path}: cannot be read: larger than {_MOST_BYTES:,} bytes")
    try:
        text = raw.decode("utf-8")
        written = Written(path, text, tomllib.loads(text))
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: cannot be read: not UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError) as fault:
        said = str(fault).splitlines()[0] if str(fault) else "nested too deeply"
        raise ConfigError(f"{path}: not TOML: {said}") from None
    for name, value in written.data.items():
        if name not in TABLES:
            raise written.unknown("table" if isinstance(value, dict) else "key", name, (), TABLES)
    return written


def check_preset(name: object, where: str) -> Policy:
    """The preset of that name, or ConfigError."""
    if not isinstance(name, str) or name not in PRESETS:
        raise ConfigError(f"{where}: [policy]: name {name!r} is not one of {', '.join(PRESETS)}")
    return PRESETS[name]


def check_homes(written: Written) -> dict[str, list[str]]:
    """[homes] of a file, by agents' own names."""
    known = (*agents.stores(), "markdown")
    found: dict[str, list[str]] = {}
    for name, places in written.table("homes").items():
        agent, where = agents.canonical(name), written.at("homes", name)
        if agent not in known:
            hint = near(name, known)
            raise ConfigError(
                f"{where}: [homes]: {name!r} is not one of {', '.join(known)}{hint and '; ' + hint}"
            )
        listed = [places] if isinstance(places, str) else places
        if not isinstance(listed, list) or not all(isinstance(p, str) for p in listed):
            raise ConfigError(f'{where}: [homes]: {name} must be a list of folders: ["~/a", "~/b"]')
        found[agent] = listed
    return found


def unknown(what: str, name: str, table: tuple[str, ...], known: Iterable[str]) -> str:
    """That nobody knows a name, and which one was meant, or which there are."""
    names = list(known)
    hint = near(name, names) or f"known are {', '.join(names)}"
    if what == "table":
        return f"unknown table [{clean('.'.join((*table, name)))}]: {hint}"
    place = f" in [{clean('.'.join(table))}]" if table else ""
    return f"unknown {what} {name!r}{place}: {hint}"


def near(name: str, known: Iterable[str]) -> str:
    """ "did you mean hard_mark?", or nothing."""
    import difflib

    close = difflib.get_close_matches(name.lower().replace("-", "_"), list(known), 1, 0.7)
    return f"did you mean {close[0]}?" if close else ""


def clean(text: str) -> str:
    """A name of a file's, fit for one line of a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)


def line_of(text: str, keys: tuple[str, ...]) -> int | None:
    """The line that sets a key, or begins its table; None if it is not written plainly."""
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.strip()
        if line.startswith("["):
            table = _dotted(line.partition("#")[0].strip().strip("[]"))
            if keys and table == keys:
                return number
        elif "=" in line:
            key = _dotted(line.partition("=")[0])
            if key and (*table, *key) == keys[: len(table) + len(key)]:
                return number
    return None


def _dotted(text: str) -> tuple[str, ...]:
    """`policy.models."gpt-5.1"` in parts; () if it is no key."""
    parts, place = [], 0
    while place < len(text):
        match = _KEY.match(text, place)
        if match is None:
            return ()
        parts.append(next(group for group in match.groups() if group is not None))
        place = match.end()
    return tuple(parts)
