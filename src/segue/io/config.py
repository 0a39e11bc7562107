"""The config folder: `config.toml` with the user's policy, and the user's own wordings."""

import os
import tomllib
from pathlib import Path

import msgspec

from segue.core.policy import PRESETS, Policy
from segue.errors import ConfigError


def folder() -> Path:
    """`SEGUE_HOME` moves everything; else the XDG place, on macOS too."""
    if home := os.environ.get("SEGUE_HOME"):
        return Path(home)
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "segue"


def wording_files() -> list[Path]:
    """The user's wordings: `wordings.toml` and `wordings/*.toml`, in the order of their names."""
    place = folder()
    files = [place / "wordings.toml", *sorted((place / "wordings").glob("*.toml"))]
    return [file for file in files if file.is_file()]


def policy() -> Policy:
    """The user's policy: a preset, and what `[policy]` in config.toml changes in it."""
    file = folder() / "config.toml"
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Policy()
    except (OSError, UnicodeDecodeError) as fault:
        raise ConfigError(f"{file}: cannot be read: {fault}") from None
    except tomllib.TOMLDecodeError as fault:
        raise ConfigError(f"{file}: not TOML: {fault}") from None
    for key in data:
        if key != "policy":
            raise ConfigError(f"{file}: unknown table [{key}]; only [policy] is read")
    table = data.get("policy", {})
    if not isinstance(table, dict):
        raise ConfigError(f"{file}: policy must be a table: write [policy]")
    preset = table.get("name", "graduated")
    if preset not in PRESETS:
        raise ConfigError(f"{file}: [policy]: name {preset!r} is not one of {', '.join(PRESETS)}")
    try:
        return msgspec.convert({**msgspec.to_builtins(PRESETS[preset]), **table}, Policy)
    except msgspec.ValidationError as fault:
        raise ConfigError(f"{file}: [policy]: {fault}") from None
