"""Where segue keeps its state. Apart from `config`, because a scan that finds nothing new must not
pay for reading policies."""

import os
from pathlib import Path

INDEX_NAME = "sessions.db"


def config_folder() -> Path:
    """`SEGUE_HOME` moves everything; else the XDG place, on macOS too."""
    return _folder("XDG_CONFIG_HOME", ".config")


def state_folder() -> Path:
    """Where segue writes: `SEGUE_HOME`, else the XDG place for state, on macOS too."""
    return _folder("XDG_STATE_HOME", ".local/state")


def index_path() -> Path:
    """The index of sessions."""
    return state_folder() / INDEX_NAME


def added_homes() -> dict[str, list[str]]:
    """More folders with sessions, by agent, from the config if there is one."""
    if not (config_folder() / "config.toml").exists():
        return {}
    from segue.io import config

    return config.homes()


def _folder(variable: str, default: str) -> Path:
    if home := os.environ.get("SEGUE_HOME"):
        return Path(home)
    return Path(os.environ.get(variable) or Path.home() / default) / "segue"
