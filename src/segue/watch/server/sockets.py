"""Where the daemon listens: a Unix socket that only its user can reach, and a port if requested.

The state folder determines the path of the socket's file. If two daemons want it, the first one
gets it: it holds a lock and answers. A file left behind by a killed daemon is replaced.
"""

import fcntl
import os
import socket
import stat
from contextlib import suppress

from segue.errors import StateError
from segue.system.files.state import private_folder, watch_folder

LOOPBACK = "127.0.0.1"
TOKEN_NAME = "token"  # noqa: S105 - a file's name
_BACKLOG = 128
_TEST_S = 1.0


def token_path() -> str:
    """Where the port's token is."""
    return os.path.join(watch_folder(), TOKEN_NAME)


class Door:
    """A listening socket, and what belongs to it."""

    def __init__(self, listener: socket.socket, token: bytes = b"", port: int = 0) -> None:
        self.listener, self.token, self.port = listener, token, port
        listener.setblocking(False)

    @property
    def is_open_to_all(self) -> bool:
        """Whether any process on the machine can connect, and so must show the token."""
        return bool(self.port)

    def close(self) -> None:
        """Stops listening."""
        self.listener.close()


class UnixDoor(Door):
    """A socket at a path. Raises StateError with one line if another daemon has it, or if it cannot
    be created."""

    def __init__(self, path: str) -> None:
        self.path = path
        private_folder(os.path.dirname(path))
        self._lock = _locked(path + ".lock", path)
        try:
            _make_room(path)
            super().__init__(self._listen())
        except BaseException:
            os.close(self._lock)
            raise

    def _listen(self) -> socket.socket:
        """Creates the file with its mode and a listener, or not at all."""
        aside = f"{self.path}.{os.getpid()}"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with suppress(FileNotFoundError):
                os.unlink(aside)
            listener.bind(aside)
            os.chmod(aside, 0o600)
            listener.listen(_BACKLOG)
            found = os.lstat(aside)
            os.rename(aside, self.path)
        except OSError as fault:
            listener.close()
            with suppress(OSError):
                os.unlink(aside)
            raise StateError(f"{self.path}: {fault.strerror or fault}") from None
        self._identity = found.st_dev, found.st_ino
        return listener

    def close(self) -> None:
        """Also removes the file, if it is still ours."""
        super().close()
        with suppress(OSError):
            found = os.lstat(self.path)
            if (found.st_dev, found.st_ino) == self._identity:
                os.unlink(self.path)
        os.close(self._lock)


def port_door(port: int, token_file: str) -> Door:
    """A port on 127.0.0.1; 0 is any free port. The token is in the file, which is created if
    needed."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((LOOPBACK, port))
        listener.listen(_BACKLOG)
        return Door(listener, token(token_file), listener.getsockname()[1])
    except (OSError, OverflowError) as fault:
        listener.close()
        reason = getattr(fault, "strerror", None) or str(fault)
        raise StateError(f"port {port} of {LOOPBACK}: {reason}") from None
    except BaseException:
        listener.close()
        raise


def token(path: str) -> bytes:
    """The secret in a file that only this user can read. A file that others could read is
    replaced."""
    private_folder(os.path.dirname(path))
    try:
        with suppress(FileNotFoundError):
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            with open(handle, "rb") as file:
                found, content = os.fstat(handle), file.read(1024).strip()
            is_private = found.st_uid == os.getuid() and not stat.S_IMODE(found.st_mode) & 0o077
            if is_private and len(content) >= 32:
                return content
            os.unlink(path)
        import secrets

        made = secrets.token_urlsafe(32).encode()
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(handle, "wb") as file:
            file.write(made + b"\n")
    except OSError as fault:
        raise StateError(f"{path}: {fault.strerror or fault}") from None
    return made


def _locked(path: str, what: str) -> int:
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as fault:
        raise StateError(f"{path}: {fault.strerror or fault}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise _address_in_use(what) from None
    except OSError:
        pass  # a file system without locks: the test below must be enough
    return handle


def _make_room(path: str) -> None:
    """Makes sure that nobody answers at the path, and that it is a socket's file."""
    try:
        found = os.lstat(path)
    except OSError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise StateError(f"{path}: exists and is not a socket; move it away")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as test:
        test.settimeout(_TEST_S)
        try:
            test.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            return  # nobody is listening
        except OSError:
            pass  # too busy to answer means alive
    raise _address_in_use(path)


def _address_in_use(path: str) -> StateError:
    return StateError(f"another daemon is listening at {path}; each user can run one `segue watch`")
