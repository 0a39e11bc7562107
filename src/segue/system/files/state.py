"""Where segue stores its state. Separate from `config`, because a scan that finds nothing new
must not pay for reading policies."""

import os

INDEX_NAME = "sessions.db"
WATCH_NAME, SOCKET_NAME = "watch", "segue.sock"
OPEN_NAME = "open"
SPOOL_ENDING = ".hooks"  # as in `segue.client`, which imports nothing
LINE_ENDINGS = tuple(f".line{n}{new}" for n in range(8) for new in ("", ".new"))  # as there

_MAX_PATH_BYTES = 90  # sun_path has 104 on macOS, 108 on Linux; a suffix is added while binding


def config_folder() -> str:
    """`SEGUE_HOME` moves everything; otherwise the XDG folder, on macOS too."""
    return _folder("XDG_CONFIG_HOME", ".config")


def state_folder() -> str:
    """Where segue writes: `SEGUE_HOME`, otherwise the XDG folder for state, on macOS too."""
    return _folder("XDG_STATE_HOME", ".local/state")


def index_path() -> str:
    """The index of sessions."""
    return os.path.join(state_folder(), INDEX_NAME)


def watch_folder() -> str:
    """The folder that the daemon and its client share, private (0700) once it exists."""
    return os.path.join(state_folder(), WATCH_NAME)


def make_watch_folder() -> str:
    """The same folder, created and private. Raises OSError."""
    place = watch_folder()
    os.makedirs(place, mode=0o700, exist_ok=True)
    os.chmod(place, 0o700)
    return place


def socket_path() -> str:
    """Where the daemon listens. If the state folder's path is too long for a socket, the socket is
    in a private folder among other programs' sockets."""
    return _short(os.path.join(watch_folder(), SOCKET_NAME))


def open_socket_path() -> str:
    """Where the tmux server of `segue open` listens, in its own folder."""
    return _short(os.path.join(state_folder(), OPEN_NAME, "tmux.sock"))


def private_folder(path: str) -> None:
    """Creates a private folder, or checks that it is ours and that nobody else can enter it. Raises
    StateError."""
    import stat

    from segue.errors import StateError

    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        found = os.lstat(path)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise StateError(f"{path}: does not belong to this user; remove it")
        if stat.S_IMODE(found.st_mode) & 0o077:
            os.chmod(path, 0o700)
    except OSError as fault:
        raise StateError(f"{path}: {fault.strerror or fault}") from None


def _short(found: str) -> str:
    if len(os.fsencode(found)) <= _MAX_PATH_BYTES:
        return found
    import hashlib

    name = hashlib.sha256(os.fsencode(os.path.abspath(found))).hexdigest()[:16]
    place = os.environ.get("XDG_RUNTIME_DIR", "")
    if not place or len(os.fsencode(place)) > _MAX_PATH_BYTES - 40:
        place = "/tmp"  # noqa: S108 - who makes the folder sees to it that it is ours
    return os.path.join(place, f"segue-{os.getuid()}", f"{name}.sock")


def spool_path() -> str:
    """Where hooks store what must not be lost while no daemon listens: next to the socket, the only
    path that the client knows."""
    return socket_path() + SPOOL_ENDING


def added_homes() -> dict[str, list[str]]:
    """More folders with sessions, by agent, from the config if there is one."""
    if not os.path.exists(os.path.join(config_folder(), "config.toml")):
        return {}
    from segue.system.config import config

    return config.homes()


def _folder(variable: str, default: str) -> str:
    if home := os.environ.get("SEGUE_HOME"):
        return home
    return os.path.join(
        os.environ.get(variable) or os.path.join(os.path.expanduser("~"), default), "segue"
    )
