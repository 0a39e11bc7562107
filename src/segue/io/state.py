"""Where segue keeps its state. Apart from `config`, because a scan that finds nothing new must not
pay for reading policies."""

import os

INDEX_NAME = "sessions.db"


def config_folder() -> str:
    """`SEGUE_HOME` moves everything; else the XDG place, on macOS too."""
    return _folder("XDG_CONFIG_HOME", ".config")


def state_folder() -> str:
    """Where segue writes: `SEGUE_HOME`, else the XDG place for state, on macOS too."""
    return _folder("XDG_STATE_HOME", ".local/state")


def index_path() -> str:
    """The index of sessions."""
    return os.path.join(state_folder(), INDEX_NAME)


def added_homes() -> dict[str, list[str]]:
    """More folders with sessions, by agent, from the config if there is one."""
    if not os.path.exists(os.path.join(config_folder(), "config.toml")):
        return {}
    from segue.io import config

    return config.homes()


def _folder(variable: str, default: str) -> str:
    if home := os.environ.get("SEGUE_HOME"):
        return home
    return os.path.join(
        os.environ.get(variable) or os.path.join(os.path.expanduser("~"), default), "segue"
    )
