"""Which checks of projects the user has accepted.

A `check` in a project's `.segue.toml` is a command by whoever wrote that file, possibly an
agent. It applies only after the user has accepted that exact text in that folder; segue stores a
file whose name is the hash of both.
"""

import contextlib
import hashlib
import json
import os
from pathlib import Path

from segue.errors import StateError
from segue.system.files import state

NAME = "trusted"


def is_accepted(folder: Path, check: str) -> bool:
    """Whether the user has accepted this text in this folder."""
    try:
        return os.lstat(_place(folder, check)).st_uid == os.geteuid()
    except OSError:
        return False


def accept(folder: Path, check: str) -> None:
    """Remembers that the user accepted it. Raises StateError if that fails."""
    place = _place(folder, check)
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        with (
            contextlib.suppress(FileExistsError),
            os.fdopen(os.open(place, flags, 0o600), "w") as f,
        ):
            json.dump({"folder": os.path.realpath(folder), "check": check}, f)
    except OSError as fault:
        raise StateError(f"{place}: cannot be written: {fault.strerror}") from None


def _place(folder: Path, check: str) -> Path:
    identity = (
        os.fsencode(os.path.realpath(folder)) + b"\0" + check.encode("utf-8", "surrogatepass")
    )
    return Path(state.state_folder(), NAME, hashlib.sha256(identity).hexdigest())
