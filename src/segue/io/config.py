"""The config folder: `config.toml` with the user's policy, and the user's own wordings."""

import tomllib
from pathlib import Path
from typing import Any

import msgspec

from segue import agents
from segue.core.policy import PRESETS, Policy
from segue.errors import ConfigError
from segue.io import state


def folder() -> Path:
    """`SEGUE_HOME` moves everything; else the XDG place, on macOS too."""
    return Path(state.config_folder())


def wording_files() -> list[Path]:
    """The user's wordings: `wordings.toml` and `wordings/*.toml`, in the order of their names."""
    place = folder()
    files = [place / "wordings.toml", *sorted((place / "wordings").glob("*.toml"))]
    return [file for file in files if file.is_file()]


def policy() -> Policy:
    """The user's policy: a preset, and what `[policy]` in config.toml changes in it."""
    file = folder() / "config.toml"
    table = _table(file, "policy")
    preset = table.get("name", "graduated")
    if preset not in PRESETS:
        raise ConfigError(f"{file}: [policy]: name {preset!r} is not one of {', '.join(PRESETS)}")
    try:
        return msgspec.convert({**msgspec.to_builtins(PRESETS[preset]), **table}, Policy)
    except msgspec.ValidationError as fault:
        raise ConfigError(f"{file}: [policy]: {fault}") from None


def homes() -> dict[str, list[str]]:
    """More folders with sessions, by agent: `[homes]` in config.toml."""
    file = folder() / "config.toml"
    table = _table(file, "homes")
    known = (*agents.stores(), "markdown")
    found: dict[str, list[str]] = {}
    for name, places in table.items():
        agent = agents.canonical(name)
        if agent not in known:
            raise ConfigError(f"{file}: [homes]: {name!r} is not one of {', '.join(known)}")
        listed = [places] if isinstance(places, str) else places
        if not isinstance(listed, list) or not all(isinstance(p, str) for p in listed):
            raise ConfigError(f'{file}: [homes]: {name} must be a list of folders: ["~/a", "~/b"]')
        found[agent] = listed
    return found


_TABLES = ("policy", "homes")


def _table(file: Path, name: str) -> dict[str, Any]:
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as fault:
        raise ConfigError(f"{file}: cannot be read: {fault}") from None
    except tomllib.TOMLDecodeError as fault:
        raise ConfigError(f"{file}: not TOML: {fault}") from None
    for key in data:
        if key not in _TABLES:
            known = " and ".join(f"[{table}]" for table in _TABLES)
            raise ConfigError(f"{file}: unknown table [{key}]; only {known} are read")
    table = data.get(name, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{file}: {name} must be a table: write [{name}]")
    return table
