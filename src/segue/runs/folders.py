"""The files of a run: one folder for the run, with one folder for each leg. They are private,
and none has to stay open."""

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from segue.system.files import state


class RunFolder:
    """`runs/<id>` in the state folder."""

    def __init__(self, run_id: str, home: str | None = None) -> None:
        self.path = Path(home or state.state_folder(), "runs", run_id)

    def leg(self, number: int) -> Path:
        """The folder of one leg, created if it does not exist."""
        folder = self.path / f"leg-{number:03}"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    def check(self, tries: int, leg: int) -> Path:
        """The folder of one run of the user's check, after that leg."""
        folder = self.path / f"check-{leg:03}-{tries}"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    def answer(self, legs: int) -> str:
        """The file with the last words of the work after this many legs."""
        for number in range(legs, 0, -1):
            if text := read(self.path / f"leg-{number:03}" / "answer.md"):
                return text
        return ""


def write(path: Path, text: str) -> None:
    """Writes a private file, completely or not at all."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogatepass") as file:
            file.write(text)
    except OSError as fault:
        fault.filename = fault.filename or str(path)  # the error of a full disk names no file
        with contextlib.suppress(OSError):
            os.unlink(aside)
        raise
    os.replace(aside, path)


def read(path: Path) -> str | None:
    """Its text; None if it does not exist."""
    try:
        return path.read_text(encoding="utf-8", errors="surrogatepass")
    except FileNotFoundError:
        return None


def write_json(path: Path, value: Any) -> None:
    """The same, as JSON."""
    write(path, json.dumps(value))


def read_json(path: Path) -> Any:
    """Its value; None if it does not exist or is not JSON."""
    try:
        return json.loads(read(path) or "null")
    except ValueError:
        return None
