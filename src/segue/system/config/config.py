"""The config folder: `config.toml` with the user's settings, and the user's own wordings.

This module reads only the user's file, and only the requested table, because every command pays
for it. For all layers together, and the origin of each value, see `system/config/settings`.
"""

import json
import os
import re
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from segue import agents
from segue.core.nearest import did_you_mean
from segue.core.policy import PRESETS, Policy
from segue.errors import ConfigError
from segue.system.files import files, state

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=-]{0,63}")
TABLES = ("policy", "homes", "run", "agents", "prompts", "queue", "worktree", "fleet", "otel")
SCOPES = ("projects", "agents", "models")
"""Below [policy]: the same keys, for work in a folder or below it, for one agent, or for models
whose name begins with this."""

_MAX_BYTES = 1_000_000
_MAX_LISTED = 12  # names in one message
_RUN_TABLE = re.compile(r"[ \t]*\[[ \t]*run[ \t]*\][ \t]*(?:#[^\n]*)?")
_KEY = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*(?:\.|$)""")


def folder() -> Path:
    """`SEGUE_HOME` moves everything; otherwise the XDG folder, on macOS too."""
    return Path(state.config_folder())


def user_file() -> Path:
    """The user's `config.toml`, which need not exist."""
    return folder() / "config.toml"


def wording_files() -> list[Path]:
    """The user's wordings: `wordings.toml` and `wordings/*.toml`, in the order of their names."""
    place = folder()
    files = [place / "wordings.toml", *sorted((place / "wordings").glob("*.toml"))]
    return [file for file in files if file.is_file()]


def policy() -> Policy:
    """The user's policy: a preset, as changed by `[policy]` in config.toml. Values for one agent or
    model, and those of a project, the environment or a flag, are not included."""
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
        from segue.system.config.type_faults import named

        message = clean(named(fault, Policy))
        raise ConfigError(f"{_place(written, table, fault)}: [policy]: {message}") from None


def _place(written: "ConfigText", table: dict[str, Any], fault: msgspec.ValidationError) -> str:
    """Where the invalid value is: at the key that the message names, or at several if they
    contradict each other."""
    found = re.search(r"\$\.(\w+)", str(fault))
    named = [found[1]] if found else re.findall(r"\w+", str(fault))
    keys = (key for word in named for key in (word, f"{word}_mark"))
    key = next((key for key in keys if key in table), "")
    return written.at("policy", key) if key else str(written.path)


def homes() -> dict[str, list[str]]:
    """More folders with sessions, by agent: `[homes]` in config.toml."""
    return check_homes(read(user_file()))


class FleetConfig(NamedTuple):
    """`[fleet]` in config.toml."""

    url: str = ""  # "": not in a fleet
    lease_s: float = 60.0
    carry_sessions: bool = True  # agents' session files are kept in the database while tasks run
    output_days: float = 30.0  # how many days others can read what agents said; 0: not at all
    labels: tuple[str, ...] = ()  # of this machine


def fleet() -> FleetConfig:
    """The database of a fleet, only from the user's file, because it may contain a password. Raises
    ConfigError."""
    written = read(user_file())
    table = written.table("fleet")
    for key in table:
        if key not in FleetConfig._fields:
            raise written.unknown("key", key, ("fleet",), FleetConfig._fields)
    labels = table.get("labels", [])
    if not isinstance(labels, list) or not all(_is_label(each) for each in labels):
        raise ConfigError(
            f"{written.at('fleet', 'labels')}: labels in [fleet] must be a list of words such as"
            ' ["gpu", "linux"]'
        )
    found = FleetConfig(**{**table, "labels": tuple(labels)})
    if not isinstance(found.carry_sessions, bool):
        raise ConfigError(
            f"{written.at('fleet', 'carry_sessions')}: carry_sessions in [fleet] must be true or"
            " false"
        )
    is_text = isinstance(found.url, str)
    if not is_text or (found.url and not found.url.startswith("postgresql://")):
        raise ConfigError(f'{written.at("fleet", "url")}: url in [fleet] must be "postgresql://…"')
    if isinstance(found.lease_s, bool) or not isinstance(found.lease_s, int | float):
        raise ConfigError(f"{written.at('fleet', 'lease_s')}: lease_s in [fleet] must be a number")
    days = found.output_days
    if isinstance(days, bool) or not isinstance(days, int | float) or not 0 <= days <= 36_500:
        raise ConfigError(
            f"{written.at('fleet', 'output_days')}: output_days in [fleet] must be a number of days"
        )
    if not 5 <= found.lease_s <= 86_400:
        raise ConfigError(
            f"{written.at('fleet', 'lease_s')}: lease_s in [fleet] must be at least 5"
        )
    return found


class OtelConfig(NamedTuple):
    """`[otel]` in config.toml."""

    endpoint: str = ""  # of a collector; "": as the OTEL_* variables say
    headers: dict[str, str] | None = None
    enabled: bool | None = None  # True: also without an endpoint; False: never


def otel() -> OtelConfig:
    """Where telemetry goes, only from the user's file: a repository must not decide it. Raises
    ConfigError."""
    written = read(user_file())
    table = written.table("otel")
    for key in table:
        if key not in OtelConfig._fields:
            raise written.unknown("key", key, ("otel",), OtelConfig._fields)
    found = OtelConfig(**table)
    url, headers = found.endpoint, found.headers
    if not isinstance(url, str) or (url and not url.startswith(("http://", "https://"))):
        raise ConfigError(
            f'{written.at("otel", "endpoint")}: endpoint in [otel] must be "http://…" or "https://…"'
        )
    if headers is not None and not (
        isinstance(headers, dict) and all(isinstance(each, str) for each in headers.values())
    ):
        raise ConfigError(f"{written.at('otel', 'headers')}: headers in [otel] must be strings")
    if not isinstance(found.enabled, bool | None):
        raise ConfigError(
            f"{written.at('otel', 'enabled')}: enabled in [otel] must be true or false"
        )
    return found


def _is_label(text: object) -> bool:
    return isinstance(text, str) and _LABEL.fullmatch(text) is not None


def remember_agent(name: str) -> str:
    """Writes `agent` into `[run]` of the user's file and leaves everything else unchanged; returns
    the message for the user. Raises ConfigError if that file is broken; if it cannot be written,
    the message says so and nothing changes."""
    path = user_file()
    written = read(path)
    own = f"agent = {json.dumps(name, ensure_ascii=False)}"
    by_hand = f"; to keep it, write {own} under [run] in {path}"
    run = written.table("run")
    if "agent" in run:
        return f"using {name} this time{by_hand}"
    wanted = {**written.data, "run": {**run, "agent": name}}
    text = next((new for new in _with_line(written.text, own) if _says(new, wanted)), None)
    if text is None:
        return f"using {name} this time{by_hand}"
    try:
        replace_file(Path(os.path.realpath(path)), text)
    except OSError as fault:
        return f"using {name} this time: {path} cannot be written ({fault.strerror}){by_hand}"
    return f"using {name} from now on: {own} was written under [run] in {path}"


def _with_line(text: str, line: str) -> Iterator[str]:
    """Ways to put a line into [run], the nicest first; the caller checks which of them parses
    correctly."""
    end = "\r\n" if "\r\n" in text else "\n"
    lines = text.splitlines(keepends=True)
    for place, content in enumerate(lines):
        if _RUN_TABLE.fullmatch(content.rstrip("\r\n")):
            head = content.rstrip("\r\n") + end
            yield "".join([*lines[:place], head, line + end, *lines[place + 1 :]])
    whole = text if not text or text.endswith("\n") else text + end
    yield f"{whole}{end if whole else ''}[run]{end}{line}{end}"
    yield f"run.{line}{end}{text}"


def _says(text: str, wanted: dict[str, Any]) -> bool:
    with suppress(tomllib.TOMLDecodeError, RecursionError):
        return tomllib.loads(text) == wanted
    return False


def replace_file(path: Path, text: str) -> None:
    """Writes the file completely or not at all, and privately."""
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


class ConfigText(NamedTuple):
    """A parsed config file."""

    path: Path
    text: str
    data: dict[str, Any]

    def table(self, name: str) -> dict[str, Any]:
        """One of its tables; {} if it has none. Raises ConfigError if it is not a table."""
        found = self.data.get(name, {})
        if not isinstance(found, dict):
            raise ConfigError(f"{self.at(name)}: {name} must be a table: write [{name}]")
        return found

    def at(self, *keys: str) -> str:
        """The place of a key, for messages."""
        line = line_of(self.text, keys)
        return f"{self.path}:{line}" if line else str(self.path)

    def unknown(
        self, what: str, name: str, table: tuple[str, ...], known: Iterable[str]
    ) -> ConfigError:
        """The error for an unknown name."""
        return ConfigError(f"{self.at(*table, name)}: {unknown(what, name, table, known)}")


def read(path: Path) -> ConfigText:
    """Parses a config file; empty if it does not exist. Raises ConfigError with one line if it
    cannot be read, is not TOML, or has an unknown table."""
    try:
        raw = files.read_plain(path, _MAX_BYTES)
    except FileNotFoundError:
        return ConfigText(path, "", {})
    except OSError as fault:
        raise ConfigError(f"{path}: cannot be read: {fault.strerror}") from None
    try:
        text = raw.decode("utf-8-sig")  # some editors begin a file with a byte-order mark
        written = ConfigText(path, text, tomllib.loads(text))
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: cannot be read: not UTF-8") from None
    except RecursionError:
        raise ConfigError(f"{path}: not TOML: nested too deeply") from None
    except tomllib.TOMLDecodeError as fault:
        raise ConfigError(f"{path}: not TOML: {str(fault).splitlines()[0]}") from None
    except ValueError:
        raise ConfigError(f"{path}: a number has too many digits") from None
    for keys in _out_of_range(written.data):
        raise ConfigError(f"{written.at(*keys)}: the number is out of range")
    for name, value in written.data.items():
        if name not in TABLES:
            if not isinstance(value, dict) and (table := _table_of(name)):
                raise ConfigError(
                    f"{written.at(name)}: {name} is outside any table: write it under [{table}]"
                )
            raise written.unknown("table" if isinstance(value, dict) else "key", name, (), TABLES)
    return written


def _table_of(key: str) -> str:
    """The table that a key belongs to, or ""."""
    from segue.system.config import layers

    tables = {"run": layers.RUN, "policy": layers.KEYS, "queue": layers.QUEUE}
    tables["worktree"] = layers.WORKTREE
    return next((name for name, keys in tables.items() if key in keys), "")


def _out_of_range(value: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Finds unusable numbers: over 64 bits, infinite, or NaN."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _out_of_range(each, (*keys, key))
    elif isinstance(value, list):
        for each in value:
            yield from _out_of_range(each, keys)
    elif isinstance(value, int | float) and not abs(value) < 2**63:
        yield keys


def check_preset(name: object, where: str) -> Policy:
    """The preset with that name. Raises ConfigError."""
    if not isinstance(name, str) or name not in PRESETS:
        hint = near(str(name), PRESETS) or f"choose one of {', '.join(PRESETS)}"
        raise ConfigError(f"{where}: no policy is called {name!r}; {hint}")
    return PRESETS[name]


def check_homes(written: ConfigText) -> dict[str, list[str]]:
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
    """Says that a name is unknown, and which one was probably meant, or which ones exist."""
    names = list(known)
    hint = near(name, names) or (
        "segue config show lists them"
        if len(names) > _MAX_LISTED
        else f"known names: {', '.join(names)}"
    )
    if what == "table":
        return f"unknown table [{clean('.'.join((*table, name)))}]: {hint}"
    place = f" in [{clean('.'.join(table))}]" if table else ""
    return f"unknown {what} {name!r}{place}: {hint}"


def near(name: str, known: Iterable[str]) -> str:
    """ "did you mean hard_mark?", or nothing."""
    return did_you_mean(name, known)


def clean(text: str) -> str:
    """A name from a file, made safe for one line of a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)


def line_of(text: str, keys: tuple[str, ...]) -> int | None:
    """The line that sets a key or begins its table; None if it is not written in a simple form."""
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
    """`policy.models."gpt-5.1"` in parts; () if it is not a key."""
    parts, place = [], 0
    while place < len(text):
        match = _KEY.match(text, place)
        if match is None:
            return ()
        parts.append(next(group for group in match.groups() if group is not None))
        place = match.end()
    return tuple(parts)
